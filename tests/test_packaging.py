"""What lands on a user's machine: a wheel built from this checkout, looked at from outside."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {"cachesvc": ROOT / "cachesvc", "tccache": ROOT / "cli" / "tccache"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", target, ROOT],
        check=True,
    )
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, as in site-packages."""
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def dist_info(installed: Path) -> Path:
    (folder,) = installed.glob("tccache-*.dist-info")
    return folder


def metadata(installed: Path) -> Message:
    return message_from_bytes((dist_info(installed) / "METADATA").read_bytes())


def test_nothing_but_the_two_packages_lands_in_site_packages(installed: Path) -> None:
    """`cli`, `tests`, `benchmarks` and `infra` are names that other projects use too."""
    names = {path.name for path in installed.iterdir()}
    assert names == {"cachesvc", "tccache", dist_info(installed).name}


@pytest.mark.parametrize("package", SOURCES)
def test_every_source_file_is_in_the_wheel(installed: Path, package: str) -> None:
    """A new subpackage travels without being listed anywhere."""
    source = SOURCES[package]
    expected = {path.relative_to(source) for path in source.rglob("*.py")}
    assert expected <= {
        path.relative_to(installed / package) for path in _files(installed / package)
    }


def test_the_templates_of_a_page_are_in_the_wheel(installed: Path) -> None:
    """They are read beside the sources, and are no Python."""
    folder = Path("page", "templates")
    expected = {path.name for path in (SOURCES["cachesvc"] / folder).iterdir()}
    assert expected == {path.name for path in (installed / "cachesvc" / folder).iterdir()}


@pytest.mark.parametrize("package", SOURCES)
def test_type_checkers_may_use_our_annotations(installed: Path, package: str) -> None:
    """PEP 561: without the marker file a user's mypy ignores every annotation."""
    assert (installed / package / "py.typed").is_file()


def test_the_command_is_an_entry_point(installed: Path) -> None:
    """The name a user types, and where it leads."""
    text = (dist_info(installed) / "entry_points.txt").read_text()
    assert text.split("\n")[:2] == ["[console_scripts]", "tccache = tccache.main:entry"]


def test_torch_is_an_extra(installed: Path) -> None:
    """An init container that only pulls installs no torch."""
    needs = metadata(installed).get_all("Requires-Dist", [])
    assert [need for need in needs if need.startswith("torch")] == ["torch>=2.7; extra == 'torch'"]


def test_the_licence_travels(installed: Path) -> None:
    """Apache-2.0 asks that every copy carries it."""
    assert metadata(installed)["License-Expression"] == "Apache-2.0"
    assert (dist_info(installed) / "licenses" / "LICENSE").is_file()


def test_importing_the_library_is_quick(installed: Path) -> None:
    """torch costs seconds and boto3 a third of one; both wait until they are used."""
    code = "import sys, cachesvc; print(cachesvc.__path__, {'torch', 'boto3'} & {*sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=installed,
        env={"PATH": "", "PYTHONPATH": str(installed)},
    )
    assert str(installed) in run.stdout
    assert run.stdout.endswith(" set()\n")


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
