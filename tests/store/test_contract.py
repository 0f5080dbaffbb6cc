"""What every store promises, run against every store."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError, StoreError, UsageError
from cachesvc.store.contract import KEY, Store
from cachesvc.store.streams import Source

Place = Callable[[], Store]
DRIVERS = ["memory", "directory", "objects", "s3_in_process", "s3_server"]
WRAPPERS = ["retrying", "counting", "faultless"]
MIB = 1 << 20
LIMIT = 64 * MIB


@pytest.fixture(params=[*DRIVERS, *WRAPPERS])
def place(request: pytest.FixtureRequest) -> Place:
    opens: Place = request.getfixturevalue(request.param)
    return opens


@pytest.fixture
def store(place: Place) -> Store:
    return place()


def keys(store: Store, prefix: str = "") -> list[str]:
    return [stat.key for stat in store.list(prefix)]


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff" * 5000], ids=["empty", "one", "some"])
def test_what_was_put_is_what_another_reader_gets(place: Place, data: bytes) -> None:
    """Bytes come back unchanged, the empty object too, through a store opened apart."""
    place().put("bundles/a.json", data)
    assert place().get("bundles/a.json", limit=len(data)) == data


def test_a_file_is_put_whole(place: Place, tmp_path: Path) -> None:
    """`put_file` stores the bytes of the file."""
    file = tmp_path / "file"
    file.write_bytes(b"pack" * 1000)
    place().put_file("a/pack.tar.zst", file)
    assert place().get("a/pack.tar.zst", limit=4000) == b"pack" * 1000


def test_a_missing_object_is_a_value(store: Store) -> None:
    """Nothing raises for what is not there, in a store that is empty and in one that is not."""
    for _ in range(2):
        assert store.get("a/missing", limit=1) is None
        assert store.stat("a/missing") is None
        store.delete("a/missing")
        store.put("a/other", b"")


def test_a_missing_file_is_the_callers(store: Store, tmp_path: Path) -> None:
    """A file that cannot be opened is no trouble of the store, and nothing is stored."""
    with pytest.raises(FileNotFoundError):
        store.put_file("a", tmp_path / "missing")
    assert keys(store) == []


def test_keys_are_listed_in_order_and_below_the_prefix_only(store: Store) -> None:
    """The order is that of the whole key, also where a directory's name would sort otherwise."""
    names = ["a-b/x", "a.b", "a/x", "a/y/z", "a0", "b/x", "ab/x"]
    for name in names:
        store.put(name, b"12")
    assert keys(store) == sorted(names)
    assert keys(store, "a/") == ["a/x", "a/y/z"]
    assert keys(store, "a/y/") == ["a/y/z"]
    assert keys(store, "c/") == []
    assert {stat.size for stat in store.list()} == {2}


def test_stat_says_what_list_says(store: Store) -> None:
    """Size and time agree, and the time is aware and in UTC."""
    store.put("a/b", b"123")
    [listed] = store.list("a/")
    found = store.stat("a/b")
    assert found is not None
    assert (found.key, found.size) == (listed.key, listed.size) == ("a/b", 3)
    assert abs(found.modified - listed.modified) < timedelta(seconds=1)
    assert found.modified.utcoffset() == timedelta(0)
    assert found.modified <= datetime.now(timezone.utc) + timedelta(minutes=1)


def test_writing_twice_is_harmless(store: Store) -> None:
    """A second put of equal bytes changes nothing that a reader sees."""
    for _ in range(2):
        store.put("a/b", b"same")
    assert store.get("a/b", limit=4) == b"same"
    assert keys(store) == ["a/b"]


def test_what_was_deleted_is_gone(place: Place) -> None:
    """No verb sees a deleted object, deleting again is harmless, its neighbour stays."""
    store = place()
    store.put("a/b", b"1")
    store.put("a/c", b"2")
    for _ in range(2):
        store.delete("a/b")
    assert place().get("a/b", limit=1) is None
    assert place().stat("a/b") is None
    assert keys(place()) == ["a/c"]


def test_an_object_above_the_limit_is_refused(store: Store) -> None:
    """IntegrityError, with no more than the limit written; the limit itself is allowed."""
    store.put("a", b"x" * 100)
    target = io.BytesIO()
    with pytest.raises(IntegrityError, match="more than the 99 allowed"):
        store.fetch("a", target, limit=99)
    assert len(target.getvalue()) <= 99
    assert store.get("a", limit=100) == b"x" * 100


def test_a_large_object_survives(place: Place, tmp_path: Path) -> None:
    """20 MiB and a bit, which drivers move in several parts, come back in order."""
    data = os.urandom(20 * MIB + 12345)
    file = tmp_path / "large"
    file.write_bytes(data)
    place().put_file("large", file)
    with open(tmp_path / "back", "w+b") as target:
        assert place().fetch("large", target, limit=LIMIT) == len(data)
        target.seek(0)
        assert target.read() == data
    found = place().stat("large")
    assert found is not None
    assert found.size == len(data)


@pytest.mark.parametrize("size", [3, 20 * MIB], ids=["small", "large"])
def test_a_source_of_another_size_stores_nothing(store: Store, size: int) -> None:
    """A file that shrinks or grows while it is stored is noticed, and no part of it shows."""
    for said in (size - 1, size + 1):
        with pytest.raises(StoreError, match="changed size"):
            store._put("a", Source(io.BytesIO(bytes(size)), said, "a"))
    assert keys(store) == []
    assert store.get("a", limit=LIMIT) is None


def test_a_full_disk_at_the_callers_is_not_the_stores(store: Store) -> None:
    """An error of the target reaches the caller as it is."""

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    store.put("a", b"1")
    with pytest.raises(OSError, match="No space left"):
        store.fetch("a", Full(), limit=1)


@pytest.mark.parametrize(
    "place", [name for name in DRIVERS if name != "s3_in_process"] + WRAPPERS, indirect=True
)
def test_verbs_may_be_called_from_several_threads(store: Store) -> None:
    """Eight threads put, read and list at once; nothing is lost or mixed."""

    def work(worker: int) -> None:
        for number in range(5):
            key, data = f"w/{worker}/{number}", bytes([worker]) * 10_000
            store.put(key, data)
            assert store.get(key, limit=10_000) == data
            assert key in keys(store, f"w/{worker}/")
            assert store.get("shared", limit=100) == b"s" * 100

    store.put("shared", b"s" * 100)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(keys(store, "w/")) == 40


def test_an_empty_store_can_be_checked(store: Store) -> None:
    """`check` needs a place that can be listed, not one that holds something."""
    store.check()
    assert keys(store) == []


def test_the_url_shown_can_be_used(store: Store) -> None:
    """Every store says what a user would write, and who else may write there."""
    assert "prefix" in store.url or "/store" in store.url
    assert isinstance(store.remote, bool)


bad_keys = st.one_of(
    st.sampled_from(
        ["", "/", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.b", "a b", "é", "a\n"]
    ),
    st.text().filter(lambda text: not KEY.fullmatch(text)),
)
parts = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", fullmatch=True)
good_keys = st.lists(parts, min_size=1, max_size=3).map("/".join)
same_store = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_store
@given(bad_keys)
def test_what_is_no_key_reaches_no_driver(counting: Place, key: str) -> None:
    """Every verb refuses it as the caller's mistake, before anything is done."""
    store = counting()
    verbs: list[Callable[[], object]] = [
        lambda: store.get(key, limit=1),
        lambda: store.put(key, b""),
        lambda: store.put_file(key, Path(os.devnull)),
        lambda: store.stat(key),
        lambda: store.delete(key),
        lambda: store.list(f"{key}/"),
    ]
    for verb in verbs:
        with pytest.raises(UsageError):
            verb()
    assert not store.calls  # type: ignore[attr-defined]


def test_a_prefix_ends_with_a_slash(store: Store) -> None:
    """Half a name is no prefix: it would find other bundles too."""
    with pytest.raises(UsageError, match="slash"):
        store.list("a")


@pytest.mark.parametrize("place", ["memory", "directory"], indirect=True)
@settings(same_store, max_examples=50)
@given(st.sets(good_keys, max_size=8))
def test_any_key_can_be_stored(place: Place, names: set[str]) -> None:
    """The longest names too; the listing is complete and in order."""
    store = place()
    free = {n for n in names if not any(other.startswith(f"{n}/") for other in names)}
    for name in free:
        store.put(name, name.encode())
    assert keys(store) == sorted(free)
    for name in free:
        assert store.get(name, limit=1000) == name.encode()
        store.delete(name)
    assert keys(store) == []
