"""The mega-cache of a process and its traps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.local.megafile import Artifact
from cachesvc.runtime import megacache

pytestmark = pytest.mark.xdist_group("runtime")

CALL = """
from cachesvc.core.errors import IntegrityError
from cachesvc.local.megafile import Artifact, put_together, take_apart
from cachesvc.runtime import megacache
from cachesvc.runtime.counters import Meter

def call(model):
    meter = Meter(None)
    with torch.no_grad():
        torch.compile(model)(ones())
    counts = meter.read()
    return [counts.hits, counts.compiled]

def names(artifacts):
    return sorted({artifact.type for artifact in artifacts})
"""


@pytest.fixture(scope="session")
def mega(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The mega-cache file of a process that has compiled Plain."""
    file = str(tmp_path_factory.mktemp("mega") / "plain.bin")
    types = fresh.run(
        CALL
        + """
call(Plain())
artifacts = megacache.capture()
open(given["file"], "wb").write(put_together(artifacts))
result = names(artifacts)
""",
        given={"file": file},
    )
    assert types == ["aot_autograd", "inductor"]
    return file


def test_nothing_compiled_is_nothing_captured(fresh: FreshProcesses) -> None:
    """torch answers None then; and loading nothing takes nothing."""
    assert fresh.run(CALL + "result = [list(megacache.capture()), megacache.load(())]") == [[], 0]


def test_what_one_process_captures_another_hits(fresh: FreshProcesses, mega: str) -> None:
    """Loaded artifacts are hits; torch then records them again only because they were hit."""
    loaded, hits, after = fresh.run(
        CALL
        + """
artifacts = take_apart(open(given["file"], "rb").read(), "file")
result = [megacache.load(artifacts), call(Plain()), names(megacache.capture())]
""",
        given={"file": mega},
    )
    assert loaded == 2
    assert hits == [1, 0]
    assert set(after) <= {"aot_autograd", "inductor"}


def test_a_load_after_a_compile_still_serves_what_comes_later(
    fresh: FreshProcesses, mega: str
) -> None:
    """Too late for what has been compiled, in time for the rest; nothing raises."""
    before, loaded, after = fresh.run(
        CALL
        + """
artifacts = take_apart(open(given["file"], "rb").read(), "file")
result = [call(Other()), megacache.load(artifacts), call(Plain())]
""",
        given={"file": mega},
    )
    assert before == [0, 1]
    assert loaded == 2
    assert after == [1, 0]


def test_garbage_is_named_or_passed_over(fresh: FreshProcesses) -> None:
    """Content that torch cannot unpickle is an IntegrityError; a type that it does not know is not
    taken; neither leaves the process unable to compile."""
    garbage, unknown, counts = fresh.run(
        CALL
        + """
try:
    megacache.load([Artifact("inductor", "f" * 52, b"garbage")])
except IntegrityError as error:
    garbage = str(error)
unknown = megacache.load([Artifact("nothing", "key", b"garbage")])
result = [garbage, unknown, call(Plain())]
"""
    )
    assert "torch cannot load this mega-cache" in garbage
    assert unknown == 0
    assert counts == [0, 1]


@pytest.fixture
def artifacts() -> Iterator[Any]:
    """Torch's record of artifacts, empty."""
    from torch.compiler._cache import CacheArtifactManager

    CacheArtifactManager._ensure_cache_artifacts_registered()
    with CacheArtifactManager.with_fresh_cache():
        yield CacheArtifactManager


def record_meanwhile(
    artifacts: Any, monkeypatch: pytest.MonkeyPatch, lock: AbstractContextManager[Any]
) -> None:
    """Captures while another thread records, and then once more."""
    artifacts.record_artifact("inductor", "first", b"1")
    to_bytes = artifacts._serializer.to_bytes

    def compiles() -> None:
        with lock:
            artifacts.record_artifact("inductor", "second", b"2")

    beside = threading.Thread(target=compiles)

    def meanwhile() -> bytes:
        data: bytes = to_bytes()
        beside.start()
        beside.join(0.2)
        return data

    with monkeypatch.context() as patched:
        patched.setattr(artifacts._serializer, "to_bytes", meanwhile)
        megacache.capture()
    beside.join()
    assert [artifact.key for artifact in megacache.capture()] == ["first", "second"]


def test_a_compile_during_a_save(artifacts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records after the save, also in a torch that keeps no list of all artifacts."""
    from torch._dynamo.convert_frame import compile_lock

    monkeypatch.setattr(megacache, "_recorded", tuple)
    record_meanwhile(artifacts, monkeypatch, compile_lock)


def test_a_backward_pass_during_a_save(artifacts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch holds no lock where its entry is recorded: it is not forgotten either."""
    record_meanwhile(artifacts, monkeypatch, nullcontext())


def test_a_tuning_that_got_better(artifacts: Any) -> None:
    """The last one under a key counts, as when torch loads all of them."""
    for content in (b"1", b"2"):
        artifacts.record_artifact("pgo", "key", content)
    assert megacache.capture() == (Artifact("pgo", "key", b"2"),)


def test_a_torch_without_that_lock(artifacts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts are captured as before; so they are in one without that list."""
    from torch._dynamo import convert_frame

    artifacts.record_artifact("inductor", "first", b"1")
    monkeypatch.delattr(convert_frame, "compile_lock")
    assert [artifact.key for artifact in megacache.capture()] == ["first"]
    monkeypatch.delattr(artifacts, "_seen_artifacts")
    assert [artifact.key for artifact in megacache.capture()] == ["first"]
