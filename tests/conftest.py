"""What every test shares: nothing of this machine leaks in, nothing leaks out."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# Compiling on the other core makes the time of a single example meaningless.
hypothesis.settings.register_profile("tccache", hypothesis.settings(deadline=None))
hypothesis.settings.load_profile("tccache")

FOREIGN = ("AWS_", "TCCACHE_", "TORCH", "TRITON_")


@pytest.fixture(scope="session", autouse=True)
def _own_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, nor a process it starts, meets the user's caches, settings or credentials.

    TMPDIR too: that is where torch puts its cache when nobody says otherwise.
    """
    world = tmp_path_factory.mktemp("world")
    for name in ("home", "tmp"):
        (world / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        patch.delenv("XDG_CACHE_HOME", raising=False)
        patch.setenv("HOME", str(world / "home"))
        patch.setenv("TMPDIR", str(world / "tmp"))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts_count() -> None:
    """A shell without job control starts what runs in its background with Ctrl-C ignored, and all
    processes of the tests would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def h200_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches that one process left on an H200, unpacked: data/README.md. To be read only."""
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(Path(__file__).parent / "data" / "h200_cache.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(autouse=True)
def _no_directory_in_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch names its cache directories in the environment as soon as it compiles in a process;
    no test is to meet the ones of a test before it."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that mounts a file system in memory with these options, where that is allowed."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip("this user may not mount a file system")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
