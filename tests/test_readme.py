"""The README is run: its commands and programs, in their order, in one empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What makes a compile quick changes nothing that the README says.
QUICK = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}
VERBS = re.compile(r"(?:`|^)tccache ([a-z]+)", re.MULTILINE)


@pytest.fixture
def s3() -> Iterator[str]:
    """An S3 server of this process with the README's bucket; the address of its endpoint."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="ml-cache")
    yield endpoint
    server.stop()


def _caches(folder: Path) -> None:
    """The directories that some program filled without tccache."""
    stem = folder / "inductor" / "ab" / "cabcdefgh"
    kernel = folder / "triton" / "KERNEL" / "launcher.json"
    for file, text in ((stem.with_suffix(".py"), "kernel = 1\n"), (kernel, "{}")):
        file.parent.mkdir(parents=True)
        file.write_text(text)


def _script(folder: Path) -> str:
    """The shell blocks as one script; programs are written to the files that they name."""
    lines = ["set -eu"]
    for language, text in BLOCK.findall(README):
        name = re.match(r"# (\w+\.py)\n", text)
        if language == "sh":
            lines.append(text)
        elif name:
            (folder / name[1]).write_text(text)
    return "\n".join(lines)


@pytest.mark.xdist_group("compile")
def test_the_tour_runs_as_written(tmp_path: Path, s3: str) -> None:
    """A newcomer who types the README's commands in order sees each succeed, and a warm start."""
    _caches(tmp_path / "caches")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", _script(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **QUICK, "PATH": path, "AWS_ENDPOINT_URL": s3},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nwarm: ") == 2, done.stdout
    assert ": warm, first result" in done.stdout, done.stdout
    assert "0 added; nothing was missing" in done.stderr, done.stderr
    assert "model salt: absent -> release 7" in done.stdout, done.stdout
    restored = tmp_path / "elsewhere" / "inductor" / "ab" / "cabcdefgh.py"
    assert restored.read_text() == "kernel = 1\n"


def test_make_targets_exist() -> None:
    """`make demo` and `make test` are targets, and `make demo` runs the command's demo."""
    for target, runs in (("demo", "tccache demo"), ("test", "pytest")):
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert runs in done.stdout


def test_every_verb_is_in_the_readme() -> None:
    """The README names each verb that the command has, and none that it has not."""
    help_text = subprocess.run(
        [sys.executable, "-m", "tccache", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = help_text.partition("Commands:")[2].partition("Exit codes")[0]
    verbs = set(re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE))
    assert set(VERBS.findall(README)) == verbs


def test_every_program_of_the_readme_is_valid() -> None:
    """Each Python block compiles, also those that only show a line."""
    for language, text in BLOCK.findall(README):
        if language == "python":
            compile(text, "README.md", "exec")
