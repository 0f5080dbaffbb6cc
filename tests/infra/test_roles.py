"""Each role does its work with its policy, and nothing else, on a server that enforces it.

The server knows no conditions, so those are checked on each request that was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import AccessDenied
from cachesvc.store.s3 import S3Store, Tuning

from .conftest import PREFIX, Place
from .iam import ROLES, allows, policy

pytestmark = pytest.mark.xdist_group("iam")

MIB = 1 << 20
READS = {
    "pull": ("pull", "m", "--inductor-dir", "pulled"),
    "lookup": ("lookup", "m"),
    "explain": ("explain", "m"),
    "ls": ("ls",),
    "show": ("show", "m"),
    "verify": ("verify",),
}
CHANGES = ("put_object", "create_multipart_upload", "delete_object")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))


def opened(place: Place, role: str, monkeypatch: pytest.MonkeyPatch, **tuning: int) -> S3Store:
    for name, value in place.server.keys[role].items():
        monkeypatch.setenv(name, value)
    return S3Store(place.url, tuning=Tuning(**tuning))


def granted(place: Place, role: str) -> set[str]:
    """The actions that were asked for, each request allowed by the role's whole policy."""
    whole, asked = policy(role, place.bucket, PREFIX), place.server.asked
    assert asked
    assert [one for one in asked if not allows(whole, one)] == []
    return {one.action for one in asked}


@pytest.mark.parametrize("verb", READS)
def test_a_reader_reads(shared: Place, verb: str) -> None:
    """Every verb that only reads works, and asks for nothing but to list and to read."""
    ran = shared.tccache("reader", *READS[verb])
    assert ran.code == 0, ran.err
    assert granted(shared, "reader") <= {"s3:ListBucket", "s3:GetObject"}


def test_a_reader_of_an_empty_store(place: Place) -> None:
    """A store with nothing in it does not look like one that refuses."""
    for verb in ("pull", "ls", "verify"):
        ran = place.tccache("reader", *READS[verb])
        assert ran.code == 0, ran.err
    granted(place, "reader")


def test_a_reader_changes_nothing(shared: Place, tree: Path) -> None:
    """A push and a removal end with exit code 6 and the name of what was refused."""
    (tree / "more.py").write_text("more")
    pushed = shared.tccache("reader", "push", "m", "--inductor-dir", tree)
    removed = shared.tccache("reader", "rm", "m", "--yes")
    assert (pushed.code, removed.code) == (6, 6)
    assert "PutObject" in pushed.err
    assert "DeleteObject" in removed.err


@pytest.mark.parametrize("operation", CHANGES)
def test_no_write_of_a_reader_is_let_through(shared: Place, operation: str) -> None:
    """Not by any other client either, whatever object it names."""
    client = shared.server.client("reader")
    for key in (*shared.objects(), f"{PREFIX}/bundles/new", "outside"):
        with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
            getattr(client, operation)(Bucket=shared.bucket, Key=key)
    client.close()


def test_a_publisher_publishes(filled: Place, tree: Path) -> None:
    """The first push, one that adds and merges, and one that finds all there; readers see all."""
    first = filled.objects()
    (tree / "more.py").write_text("more")
    pushes = [filled.tccache("publisher", "push", "m", "--inductor-dir", tree) for _ in range(2)]
    assert [ran.code for ran in pushes] == [0, 0], pushes
    assert "nothing to add" in pushes[1].out
    assert filled.objects().items() > first.items()
    assert granted(filled, "publisher") == {"s3:ListBucket", "s3:GetObject", "s3:PutObject"}
    assert filled.tccache("reader", "verify").code == 0
    assert filled.tccache("reader", "pull", "m", "--inductor-dir", "pulled").code == 0
    assert Path("pulled/more.py").read_text() == "more"


def test_a_publisher_writes_packs_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the condition where the object is made; what came second is aborted, no part is left."""
    store = opened(place, "publisher", monkeypatch, threshold=6 * MIB, part=5 * MIB)
    for byte in (b"1", b"2"):
        store.put("bundles/pack", byte * (6 * MIB))
    assert store.get("bundles/pack", limit=6 * MIB) == b"1" * (6 * MIB)
    assert granted(place, "publisher") >= {"s3:PutObject", "s3:AbortMultipartUpload"}
    client = place.server.client("owner")
    assert "Uploads" not in client.list_multipart_uploads(Bucket=place.bucket)
    client.close()


def test_a_publisher_cannot_delete(shared: Place) -> None:
    """Exit code 6, and all is there."""
    removed = shared.tccache("publisher", "rm", "m", "--yes")
    assert removed.code == 6
    assert "DeleteObject" in removed.err


def test_a_publisher_cannot_overwrite(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of other bytes has the condition and changes nothing; without it, it is denied."""
    store = opened(shared, "publisher", monkeypatch)
    for key in shared.objects():
        store.put(key.removeprefix(f"{PREFIX}/"), b"other bytes")
    assert granted(shared, "publisher") == {"s3:PutObject"}
    whole = policy("publisher", shared.bucket, PREFIX)
    for asked in shared.server.asked:
        bare = {name: asked.keys[name] for name in asked.keys if name != "s3:if-none-match"}
        assert not allows(whole, replace(asked, keys=bare))


def test_a_janitor_deletes(filled: Place) -> None:
    """One object at a time, and never the mark of the store's format."""
    filled.server.asked.clear()
    removed = filled.tccache("janitor", "rm", "m", "--yes")
    assert removed.code == 0, removed.err
    assert set(filled.objects()) == {f"{PREFIX}/tccache.json"}
    assert granted(filled, "janitor") == {"s3:ListBucket", "s3:GetObject", "s3:DeleteObject"}


@pytest.fixture
def in_two_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace time of all that was written is over."""
    later = datetime.now(timezone.utc) + timedelta(days=2)
    monkeypatch.setattr(S3Store, "_now", lambda _: later)


@pytest.mark.usefixtures("in_two_days")
def test_a_janitor_collects(filled: Place, tree: Path) -> None:
    """What a second push superseded is deleted, and readers see all that they saw."""
    first = filled.objects()
    (tree / "more.py").write_text("more")
    assert filled.tccache("publisher", "push", "m", "--inductor-dir", tree).code == 0
    filled.server.asked.clear()
    done = filled.tccache("janitor", "gc", "--yes")
    assert done.code == 0, done.err
    assert granted(filled, "janitor") == {"s3:ListBucket", "s3:GetObject", "s3:DeleteObject"}
    assert set(first) & set(filled.objects()) == {f"{PREFIX}/tccache.json"}
    assert filled.tccache("reader", "pull", "m", "--inductor-dir", "pulled").code == 0
    assert Path("pulled/more.py").read_text() == "more"
    assert Path("pulled/ab/cabc.py").read_text() == "kernel"


@pytest.mark.usefixtures("in_two_days")
def test_what_is_damaged_is_deleted_and_pushed_again(filled: Place, tree: Path) -> None:
    """A publisher cannot mend an object, as it cannot overwrite it; a janitor makes room for it."""
    (pack,) = (key for key in filled.objects() if key.endswith(".tar.zst"))
    owner = filled.server.client("owner")
    owner.put_object(Bucket=filled.bucket, Key=pack, Body=b"other bytes")
    owner.close()
    assert filled.tccache("reader", "verify").code == 4
    filled.server.asked.clear()
    repaired = filled.tccache("janitor", "verify", "--repair", "--yes")
    assert (repaired.code, pack in filled.objects()) == (0, False), repaired
    assert granted(filled, "janitor") == {"s3:ListBucket", "s3:GetObject", "s3:DeleteObject"}
    assert filled.tccache("publisher", "push", "m", "--inductor-dir", tree).code == 0
    assert filled.tccache("reader", "verify").code == 0
    assert filled.tccache("reader", "pull", "m", "--inductor-dir", "pulled").code == 0
    assert Path("pulled/ab/cabc.py").read_text() == "kernel"


@pytest.mark.usefixtures("in_two_days")
@pytest.mark.parametrize("role", ["reader", "publisher"])
def test_nobody_else_collects(shared: Place, role: str) -> None:
    """Exit code 6 where something would be deleted, and all is there."""
    done = shared.tccache(role, "gc", "--older-than", "1d", "--yes")
    assert done.code == 6
    assert "DeleteObject" in done.err


def test_a_janitor_cannot_publish(
    shared: Place, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 6; not a name that is there nor one that is not, at once nor in parts."""
    (tree / "more.py").write_text("more")
    pushed = shared.tccache("janitor", "push", "m", "--inductor-dir", tree)
    assert pushed.code == 6
    assert "PutObject" in pushed.err
    store = opened(shared, "janitor", monkeypatch, threshold=10)
    for key in ("tccache.json", "bundles/new"):
        for size in (9, 10):
            with pytest.raises(AccessDenied):
                store.put(key, b"x" * size)


def test_a_janitor_cannot_unmark_a_store(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its mark a store of another format would be taken for this one."""
    with pytest.raises(AccessDenied, match="DeleteObject"):
        opened(shared, "janitor", monkeypatch).delete("tccache.json")


@pytest.mark.parametrize("role", ROLES)
def test_nothing_beside_the_store_is_touched(
    shared: Place, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other data in the bucket can be neither read nor written nor deleted by any role."""
    opened(shared, role, monkeypatch)
    store = S3Store(f"s3://{shared.bucket}/other?endpoint={shared.server.endpoint}")
    verbs: list[Callable[[], Any]] = [
        lambda: store.get("a", limit=1),
        lambda: store.stat("a"),
        lambda: store.put("a", b"1"),
        lambda: store.delete("a"),
    ]
    for verb in verbs:
        with pytest.raises(AccessDenied):
            verb()
    whole = policy(role, shared.bucket, PREFIX)
    assert not any(allows(whole, asked) for asked in shared.server.asked)
    assert len(shared.server.asked) == len(verbs)
