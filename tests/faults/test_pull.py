"""Pulls from a service that fails at each step: all of a bundle comes, or nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import cachesvc
from cachesvc.start.work import Work
from cachesvc.store.faulty import EVER
from tests.faults.conftest import BUCKET, Place, time_is_up_at
from tests.faults.proxy import Proxy, Rule, Trouble

UNITS = {"ab/cabc.py": b"kernel", "fxgraph/xy/fkey/hash": b"graph" * 100}
STEPS = {
    "mark": ("/tccache.json", ""),
    "list": (f"/{BUCKET}", "list-type"),
    "manifest": (".json", ""),
    "pack": (".tar.zst", ""),
}
WRONG: dict[Trouble, type[Exception]] = {
    "lie": cachesvc.IntegrityError,
    "half": cachesvc.IntegrityError,
    "flip": cachesvc.StoreError,
}
steps = pytest.mark.parametrize("step", STEPS)


def at(step: str, trouble: Trouble, count: int = EVER) -> Rule:
    suffix, query = STEPS[step]
    first = 2 if step == "manifest" else 1  # the mark's name ends in the same way, and comes first
    return Rule(trouble, "GET", suffix, query, first, count)


def held(folder: Path) -> dict[str, bytes]:
    """All that lies in a directory but for its lock: a pull that fails may have held it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    signs = (".tccache/lock", ".tccache/seeding")
    return {name: data for name, data in found.items() if name not in signs}


@pytest.fixture
def pushed(tmp_path: Path, service: str, place: Place) -> None:
    """A bundle under the name `m`, pushed past the proxy."""
    for name, data in UNITS.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).write_bytes(data)
    url = f"s3://{BUCKET}/{place.prefix}?endpoint={service}"
    cachesvc.push("m", store=url, trust="store", inductor_dir=tmp_path / "tree")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def pull(url: str, target: Path, pushed: None) -> Callable[..., cachesvc.Pulled]:
    """A pull through the proxy."""

    def pull(**options: float) -> cachesvc.Pulled:
        return cachesvc.pull("m", store=url, trust="store", inductor_dir=target, **options)

    return pull


@steps
@pytest.mark.usefixtures("pauses")
def test_a_passing_trouble(
    pull: Callable[..., cachesvc.Pulled], proxy: Proxy, target: Path, step: str
) -> None:
    """Of each kind, at each step: all of the bundle comes."""
    troubles: tuple[Trouble, ...] = ("refused", "reset", "cut", "empty", "slow down")
    for trouble in troubles:
        proxy.expect(at(step, trouble, 1))
        assert pull().found, trouble
        assert {name: held(target).get(name) for name in UNITS} == UNITS
        assert proxy.injected == {trouble: 1}
        for name in UNITS:
            (target / name).unlink()


@pytest.mark.parametrize("step", ["mark", "manifest", "pack"])
def test_wrong_bytes(
    pull: Callable[..., cachesvc.Pulled], proxy: Proxy, target: Path, pauses: list[float], step: str
) -> None:
    """They are never asked for again and never used: the data is wrong, or, where the service's own
    checksum tells, the wire. Nothing enters the directory."""
    for trouble, kind in WRONG.items():
        proxy.expect(at(step, trouble))
        with pytest.raises(kind) as caught:
            pull()
        assert proxy.injected == {trouble: 1}
        assert pauses == []
        assert STEPS[step][0].lstrip("/") in str(caught.value)
        assert not held(target)


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("trouble", ["lie", "half"])
def test_a_list_that_is_wrong(
    pull: Callable[..., cachesvc.Pulled], proxy: Proxy, target: Path, trouble: Trouble
) -> None:
    """Nothing signs a list: one that is cut or changed leads to an error, to nothing, or to the
    bundle as it is."""
    proxy.expect(at("list", trouble))
    with suppress(cachesvc.StoreError, cachesvc.IntegrityError):
        pull()
    assert {name: data for name, data in held(target).items() if name in UNITS} in ({}, UNITS)
    assert proxy.injected[trouble] >= 1


@pytest.mark.parametrize(
    ("step", "trouble"), [(step, trouble) for step in STEPS for trouble in ("hang", "drip")]
)
def test_the_deadline(
    pull: Callable[..., cachesvc.Pulled], proxy: Proxy, target: Path, step: str, trouble: Trouble
) -> None:
    """A service that sends nothing, or a byte now and then, is left behind; and nothing enters the
    directory when the rest comes after all."""
    proxy.expect(at(step, trouble, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "wait", time_is_up_at(proxy.stuck))
        with pytest.raises(cachesvc.StoreError, match=r"deadline of 7 s.*nothing was brought"):
            pull(deadline=7)
    left = [thread for thread in threading.enumerate() if thread.name == "tccache-start"]
    assert len(left) == 1
    proxy.ended.set()
    left[0].join(60)
    assert not left[0].is_alive()
    assert not held(target)
    assert pull(deadline=60).transfer.seeded == len(UNITS)


def test_a_deadline_in_time(pull: Callable[..., cachesvc.Pulled], target: Path) -> None:
    """It changes nothing; and so the one of the environment."""
    assert pull(deadline=60).transfer.seeded == len(UNITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCCACHE_DEADLINE", "no number")
        with pytest.raises(cachesvc.UsageError, match="deadline"):
            pull()
        patch.setenv("TCCACHE_DEADLINE", "60")
        assert pull().transfer.in_place == len(UNITS)


@pytest.mark.usefixtures("pushed")
def test_the_command_ends_while_the_service_hangs(proxy: Proxy, url: str, tmp_path: Path) -> None:
    """Exit 5 and one line; its process does not wait for a body that comes byte by byte."""
    proxy.expect(at("list", "drip"))
    seconds = 1
    while not proxy.stuck.is_set():  # a busy machine may need more time to come so far
        assert seconds < 60
        seconds *= 2
        done = subprocess.run(
            [sys.executable, "-m", "tccache", "pull", "m", "--deadline", str(seconds)],
            env={
                **os.environ,
                "TCCACHE_STORE": url,
                "TCCACHE_TRUST": "store",
                "TCCACHE_HOME": str(tmp_path / "home"),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        f"error: the deadline of {seconds} s passed: nothing was brought; pull again, or give it"
        " more time\n"
    )
    assert not proxy.ended.is_set()


@pytest.mark.usefixtures("pushed")
@pytest.mark.parametrize(
    ("step", "number"), [("manifest", signal.SIGINT), ("pack", signal.SIGTERM)]
)
def test_the_command_is_interrupted_while_the_service_hangs(
    proxy: Proxy, url: str, tmp_path: Path, step: str, number: int
) -> None:
    """It ends at once, without a deadline and with several requests under way, and leaves nothing
    behind."""
    proxy.expect(at(step, "hang"))
    line = ("pull", "m", "--store", url, "--trust", "store", "--inductor-dir", tmp_path / "target")
    folders = {name: str(tmp_path / name) for name in ("TCCACHE_HOME", "TMPDIR")}
    Path(folders["TMPDIR"]).mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "tccache", *map(str, line)], env={**os.environ, **folders}
    ) as process:
        assert proxy.stuck.wait(60)
        process.send_signal(number)
        try:
            assert process.wait(60) == 128 + number
        finally:
            process.kill()
    assert not proxy.ended.is_set()
    assert not held(tmp_path / "target")
    assert not held(tmp_path / "TMPDIR")
