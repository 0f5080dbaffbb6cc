"""Processes that do things at once, and stores for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

HERE = Path(__file__).parent
MOTO = HERE.parent / "infra" / "moto_process.py"

# What a compile in this process has set, before any test of this folder was begun.
_IN_EFFECT = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

FILES = ("k.cubin", "k.source")
"""Of each kernel."""

Race = Callable[..., list[Any]]


class Racer:
    """A process whose forks run scripts at once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "racer.py")],
            env={name: value for name, value in os.environ.items() if name not in _IN_EFFECT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def run(self, *runs: tuple[str, Any, Mapping[str, str]]) -> list[Any]:
        """The result of each script; AssertionError with the traceback of one that failed."""
        scripts, given, env = zip(*runs, strict=True)
        asked = {"scripts": scripts, "given": given, "env": env}
        assert self._process.stdin is not None
        print(json.dumps(asked, default=str), file=self._process.stdin, flush=True)
        answers = json.loads(self._line())
        for answer in answers:
            assert answer["code"] == 0, answer.get("error", answer["code"])
        return [answer["result"] for answer in answers]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def racer() -> Iterator[Racer]:
    racer = Racer()
    yield racer
    racer.close()


@pytest.fixture
def race(racer: Racer, tmp_path: Path) -> Race:
    """Runs pairs of a script and what it is given, all at once; each in a home of its own, unless
    it is given one."""

    def race(*runs: tuple[str, dict[str, Any]]) -> list[Any]:
        return racer.run(*((script, given, _env(tmp_path, given)) for script, given in runs))

    return race


def _env(folder: Path, given: dict[str, Any]) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    home = given.get("home") or folder / f"home-{uuid.uuid4().hex[:8]}"
    return {"TCCACHE_HOME": str(home), "TMPDIR": str(temporary), "TCCACHE_TRUST": "store"}


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """The URL of an S3 service in a process of its own, as forks cannot share its threads."""
    process = subprocess.Popen(
        [sys.executable, str(MOTO)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.communicate()


@pytest.fixture
def bucket(s3: str) -> str:
    """The URL of an empty store on that service."""
    client = boto3.client("s3", endpoint_url=s3)
    name = f"bucket-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    client.close()
    return f"s3://{name}/prefix?endpoint={s3}"


def slow(kind: str) -> Any:
    """A parameter that only the slow tests have."""
    return pytest.param(kind, marks=pytest.mark.slow)


@pytest.fixture(params=["directory", slow("file"), slow("s3")])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind that processes can share."""
    return url_of(request, tmp_path)


def url_of(request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty store of the kind that a fixture is asked for."""
    if request.param == "s3":
        url: str = request.getfixturevalue("bucket")
        return url
    return f"file://{folder}/store" if request.param == "file" else str(folder / "store")


def kernel(name: str) -> str:
    """A directory in Triton's cache, whose name begins so."""
    return f"{name}Y".ljust(52, "7")


Goods = Callable[..., Path]


@pytest.fixture
def goods(tmp_path: Path) -> Goods:
    """Makes a directory of Triton's with these kernels, all of whose files name their maker."""

    def make(maker: str, names: Iterable[str]) -> Path:
        for name in names:
            folder = tmp_path / "goods" / maker / kernel(name)
            folder.mkdir(parents=True)
            for file in FILES:
                (folder / file).write_text(maker)
            children = {file: str(folder / file) for file in FILES}
            (folder / "__grp__k.json").write_text(json.dumps({"child_paths": children}))
        return tmp_path / "goods" / maker

    return make


def makers(triton: Path | str) -> dict[str, str]:
    """Who has made each kernel in a directory of Triton's; none of them is there in part."""
    found = {}
    for folder in sorted(Path(triton).iterdir()):
        if folder.name.startswith("."):
            continue
        told = {(folder / file).read_text() for file in FILES}
        listed = json.loads((folder / "__grp__k.json").read_text())["child_paths"]
        assert {Path(file).parent for file in listed.values()} == {folder}
        (found[folder.name.rstrip("7")[:-1]],) = told
    return found
