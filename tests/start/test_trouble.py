"""Whatever is wrong with store, bundle or disk: a cold start, the reason, and never an error."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.digest import digest_bytes

from .conftest import Published, Starts

pytestmark = pytest.mark.xdist_group("start")

# The call proves that serving goes on; the model itself is compiled once, at the end.
TRY = """
import resource
reports = {}
for name, case in given["cases"].items():
    with __import__("contextlib").ExitStack() as stack:
        for variable, value in case.get("env", {}).items():
            old = os.environ.pop(variable, None)
            stack.callback(lambda n=variable, o=old: o is not None and os.environ.update({n: o}))
            if value is not None:
                os.environ[variable] = value
        if "limit" in case:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_FSIZE, (case["limit"], hard))
        options = {"label": "plain", "trust": None, **case.get("options", {})}
        reports[name] = shown(start(Plain(), calls=[lambda: None], **options))
os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
last = shown(start(torch.compile(Plain()), [ones()], store=None))
result = [reports, last]
"""


def copied(plain: Published, store: Path) -> None:
    """A copy of the store with that bundle alone: other tests publish beside it."""
    shutil.copytree(plain.store, store)
    for folder in (store / "bundles").iterdir():
        if folder.name != plain.label:
            shutil.rmtree(folder)


def damaged(plain: Published, store: Path, suffix: str, data: bytes) -> str:
    """A copy of the store in which one kind of object has been replaced."""
    copied(plain, store)
    (found,) = store.rglob(f"*{suffix}")
    found.write_bytes(data)
    return str(store)


def renamed(plain: Published, store: Path) -> str:
    """A copy whose manifest is garbage under the name that fits it."""
    copied(plain, store)
    (manifest,) = (path for path in store.rglob("*.json") if path.name != "tccache.json")
    garbage = b'{"format": 1, "units": 7}'
    manifest.with_name(f"{digest_bytes(garbage)}.json").write_bytes(garbage)
    manifest.unlink()
    return str(store)


def foreign(plain: Published, store: Path) -> str:
    """A copy in which the bundle lies under another machine's environment."""
    copied(plain, store)
    (environment,) = store.glob("bundles/*/*/*")
    environment.rename(environment.with_name("e" * 64))
    return str(store)


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# Each case: options and environment of the start, and what the notes must hold.
CASES = {
    "no store": "no store was given",
    "store of no kind": "almost a URL",
    "unknown scheme": "nosuch",
    "untrusted": "trust",
    "unknown word of trust": "or the word `store`",
    "bad label": "is not a bundle name",
    "no credentials": "redential",
    "unreachable": "127.0.0.1",
    "garbage pack": "does not have the size and digest",
    "garbage manifest": "units",
    "garbage mark": "tccache.json",
    "format 2": "has format 2",
    "foreign environment": "the store has nothing for this model here",
    "full disk": "cannot write",
}


@pytest.fixture(scope="module")
def outcome(
    starts: Starts, plain: Published, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The reports of all cases, made in one process, and of a last start without trouble."""
    folder = tmp_path_factory.mktemp("trouble")
    s3 = "s3://bucket/prefix?endpoint=http://127.0.0.1:" + str(closed_port())
    live = "TORCHINDUCTOR_CACHE_DIR"
    store = {"store": str(plain.store)}
    anonymous = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    cases: dict[str, Any] = {
        "no store": {"options": {"store": None}},
        "store of no kind": {"options": {"store": "s3:/bucket"}},
        "unknown scheme": {"options": {"store": "nosuch://bucket", "trust": "store"}},
        "untrusted": {"options": {"store": s3}},
        "unknown word of trust": {"options": {**store, "trust": "everyone"}},
        "bad label": {"options": {**store, "label": "no/name"}},
        "no credentials": {"options": {"store": s3, "trust": "store"}, "env": anonymous},
        "unreachable": {"options": {"store": s3, "trust": "store"}},
        "garbage pack": {
            "options": {"store": damaged(plain, folder / "pack", ".tar.zst", b"garbage")}
        },
        "garbage manifest": {"options": {"store": renamed(plain, folder / "manifest")}},
        "garbage mark": {
            "options": {"store": damaged(plain, folder / "mark", "tccache.json", b"\xff")}
        },
        "format 2": {
            "options": {"store": damaged(plain, folder / "two", "tccache.json", b'{"format": 2}')}
        },
        "foreign environment": {"options": {"store": foreign(plain, folder / "foreign")}},
        "full disk": {"options": store, "env": {live: str(folder / "full")}, "limit": 512},
    }
    assert cases.keys() == CASES.keys()
    reports, last = starts.run(TRY, given={"cases": cases})
    return reports, last, folder


@pytest.mark.parametrize("name", CASES)
def test_trouble_is_a_note(outcome: tuple[dict[str, Any], dict[str, Any], Path], name: str) -> None:
    """The call is made, nothing is claimed to have been pulled, and the note says why."""
    report = outcome[0][name]
    assert report["verdict"] == "eager"
    assert report["first_call_s"] is not None
    assert report["bundle"] is report["tier"] is None
    assert report["transfer"]["seeded"] == report["transfer"]["in_place"] == 0
    assert "nothing pulled" in report["text"]
    assert any(CASES[name] in note for note in report["notes"]), report["notes"]
    assert not any("internal error" in note for note in report["notes"])


def test_after_all_the_trouble_the_model_compiles(
    outcome: tuple[dict[str, Any], dict[str, Any], Path],
) -> None:
    """A cold start in the process that met it all; and no file of a failed pull is left over."""
    _, last, folder = outcome
    assert last["verdict"] == "cold"
    left = [path for path in (folder / "full").rglob("*") if path.is_file()]
    assert [path for path in left if path.parent.name != ".tccache"] == []


def test_nothing_can_be_written_anywhere(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """An unknown user, HOME and the temporary directory closed: served cold, each place named."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    found = starts.run(
        """
import cachesvc.start.warm_start, tempfile
if os.geteuid() == 0:
    os.setgid(54321); os.setuid(54321)
for name in ("USER", "LOGNAME", "TMPDIR"):
    os.environ.pop(name, None)
os.environ["HOME"] = given["closed"]
tempfile._candidate_tempdir_list = lambda: [given["closed"]]
result = shown(start(Plain(), calls=[lambda: None], store=given["closed"]))
""",
        env={"TCCACHE_HOME": str(closed / "ours")},
        given={"closed": str(closed)},
    )
    assert found["verdict"] == "eager"
    assert found["live"] is None
    (note,) = found["notes"]
    assert note.startswith("no usable live directory")
    assert str(closed / "ours") in note


def test_a_corrupt_mega_cache_is_a_note(starts: Starts, tmp_path: Path) -> None:
    """Artifacts that torch cannot load are named; the start is inert, since they were brought."""
    from cachesvc.local.megafile import Artifact, put_together

    file = tmp_path / "mega.bin"
    file.write_bytes(put_together([Artifact("inductor", "f" * 52, b"garbage")]))
    report = starts.run(
        """
model = torch.compile(Plain())
cachesvc.push(model, store=given["store"], label="mega", mega=given["file"])
result = shown(start(model, [ones()], label="mega"))
""",
        store=tmp_path / "store",
        given={"file": str(file)},
    )
    assert report["verdict"] == "inert"
    assert report["tier"] == "megacache"
    assert any("torch cannot load this mega-cache" in note for note in report["notes"])


def test_a_live_file_that_was_damaged_is_not_served(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """A seeded file that somebody cut short is noticed: it is not called in place."""
    home = tmp_path / "home"
    script = "result = shown(start(torch.compile(Plain()), [ones()]))"
    first = starts.run(script, store=plain.store, label="plain", home=home)
    entries = [path for path in Path(first["live"]).rglob("fxgraph/*/*/*") if path.is_file()]
    for path in entries:
        os.truncate(path, 10)
    second = starts.run(script, store=plain.store, label="plain", home=home)
    assert entries
    assert second["verdict"] in ("warm", "inert")
    assert second["transfer"]["in_place"] < first["transfer"]["seeded"]
