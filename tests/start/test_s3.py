"""The main job over S3: one process publishes, another, as on another machine, starts warm."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from .conftest import Bucket, Starts

pytestmark = pytest.mark.xdist_group("s3")

# As a user's process has them.
AS_SHIPPED = dict.fromkeys(
    (
        "TORCHINDUCTOR_COMPILE_THREADS",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",
        "TORCHINDUCTOR_VEC_ISA_OK",
    )
)


@dataclass(frozen=True)
class Compilers:
    """A PATH on which every compiler notes that it was run, and then runs.

    The same for all processes: what a compiler says of itself is in the name of a library.
    """

    folder: Path

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def compiled(self) -> list[str]:
        """The runs that were more than a question for the version."""
        runs = self.log.read_text().splitlines() if self.log.exists() else []
        return [run for run in runs if run.split(" ", 1)[1] not in ("--version", "-v")]


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Compilers:
    found = Compilers(tmp_path_factory.mktemp("compilers"))
    for name in ("g++", "gcc", "c++", "cc", "clang++", "clang"):
        real = shutil.which(name)
        if real:
            wrapper = found.folder / name
            wrapper.write_text(f'#!/bin/sh\necho "{name} $*" >> {found.log}\nexec {real} "$@"\n')
            wrapper.chmod(0o755)
    return found


@pytest.fixture(scope="module")
def cold(starts: Starts, bucket: Bucket, compilers: Compilers) -> dict[str, Any]:
    """A process with torch's own defaults compiles Fused cold and pushes it."""
    report: dict[str, Any] = starts.run(
        """
model = torch.compile(Fused())
report = start(model, [ones()], trust="store")
result = {**shown(report), "segment": push(model, report, trust="store")}
""",
        store=bucket.url,
        label="main",
        env={**AS_SHIPPED, "PATH": compilers.path},
        own=True,
    )
    assert compilers.compiled()
    compilers.log.unlink()
    return report


@pytest.mark.timeout(600)
def test_the_main_job(
    starts: Starts, bucket: Bucket, cold: dict[str, Any], compilers: Compilers, tmp_path: Path
) -> None:
    """Another home, user, temporary directory, working directory and hash seed: warm, with no graph
    compiled, no native code built, and no compiler run for a header either."""
    (tmp_path / "home").mkdir()
    (tmp_path / "cwd").mkdir()
    report = starts.run(
        """
report = start(torch.compile(Fused()), [ones()], trust="store")
result = {**shown(report), "pulled": cachesvc.pull("main", store=given["store"]).found}
""",
        store=bucket.url,
        label="main",
        env={
            **AS_SHIPPED,
            "HOME": str(tmp_path / "home"),
            "USER": "somebody-else",
            "LOGNAME": "somebody-else",
            "PYTHONHASHSEED": "7",
            "PATH": compilers.path,
            "TCCACHE_HOME": None,
            "TCCACHE_TRUST": "store",
        },
        cwd=tmp_path / "cwd",
        own=True,
    )
    assert cold["verdict"] == "cold"
    assert cold["counts"]["cpp_builds"] > 0
    assert report["verdict"] == "warm", report["text"]
    assert report["counts"]["graph_hits"] == 1
    assert report["counts"]["graph_misses"] == report["counts"]["generated"] == 0
    assert report["counts"]["native_builds"] == 0
    assert report["cold_s"] == cold["first_call_s"]
    assert report["live"].startswith(str(tmp_path / "home"))
    assert report["pulled"]
    assert compilers.compiled() == []


def test_the_pack_is_read_by_tar(bucket: Bucket, cold: dict[str, Any], tmp_path: Path) -> None:
    """What lies in the bucket needs no tccache to be looked into."""
    client = boto3.client("s3", endpoint_url=bucket.endpoint)
    listed = client.list_objects_v2(Bucket=bucket.name)["Contents"]
    (key,) = (item["Key"] for item in listed if item["Key"].endswith(".tar.zst"))
    client.download_file(bucket.name, key, str(tmp_path / "pack.tar.zst"))
    client.close()
    done = subprocess.run(
        ["tar", "--zstd", "-tf", str(tmp_path / "pack.tar.zst")],
        capture_output=True,
        text=True,
        check=True,
    )
    names = done.stdout.splitlines()
    assert key.endswith(f"/{cold['segment']}.tar.zst")
    assert any(name.startswith("inductor/fxgraph/") for name in names)
    assert any(name.endswith(".so") for name in names)
