"""Stores behind fsspec's drivers, whose manners differ."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from cachesvc.core.errors import AccessDenied, StoreError, UsageError
from cachesvc.store.contract import Store
from cachesvc.store.fsspec_store import FsspecStore
from cachesvc.store.streams import Source

Place = Callable[[], Store]
MIB = 1 << 20


@pytest.fixture
def driver(objects: Place) -> Any:
    """The class of the driver behind the object store, to be given bad manners."""
    objects()
    return fsspec.get_filesystem_class("objects")


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def with_status(status: int) -> Exception:
    error = Exception("the service says no")
    error.status = status  # type: ignore[attr-defined]
    return error


def test_memory_is_this_process_only(memory: Place, objects: Place) -> None:
    """Nobody else can write to memory://; everything else may be shared."""
    assert not memory().remote
    assert objects().remote


def test_a_protocol_that_nobody_knows() -> None:
    """The error says what could be written instead."""
    with pytest.raises(UsageError, match="nosuch:// is not known; write a path"):
        FsspecStore("nosuch://a")


@pytest.mark.parametrize("says", ["Please install tccache-missing to use it", None])
def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, says: str | None) -> None:
    """The error names the package, by fsspec's own words or Python's."""
    missing = {"class": "tccache_missing.FileSystem", "err": says}
    monkeypatch.setitem(known_implementations, "absent", missing)
    with pytest.raises(UsageError, match=r"absent://a needs a package.*tccache.missing"):
        FsspecStore("absent://a")


@pytest.mark.parametrize("url", ["local:///tmp/a", "file:///tmp/a"])
def test_local_files_are_refused(url: str) -> None:
    """fsspec's driver for them shows objects while they are written."""
    with pytest.raises(UsageError, match=r"write (the path alone|a path)"):
        FsspecStore(url)


def test_chains_are_refused() -> None:
    """A cache in between would hide what others put."""
    with pytest.raises(UsageError, match="chained"):
        FsspecStore("simplecache::memory://a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("objects://user:secret@host/a", "objects://user@host/a"),
        ("objects://container@account/a?token=secret#secret", "objects://container@account/a"),
        ("memory:///a", "memory:///a"),
    ],
)
def test_what_is_shown_holds_no_secret(objects: Place, url: str, shown: str) -> None:
    """Passwords and queries stay out of reports and errors."""
    objects()
    assert FsspecStore(url).url == shown


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("no route to host"), StoreError),
        (RuntimeError("a driver may raise anything"), StoreError),
        (TimeoutError(), StoreError),
        (with_status(500), StoreError),
        (PermissionError("no"), AccessDenied),
        (with_status(403), AccessDenied),
        (with_status(401), AccessDenied),
    ],
)
def test_what_drivers_raise(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch, error: Exception,
    kind: type[StoreError],
) -> None:  # fmt: skip
    """Trouble of every kind is one of two, whichever verb met it; none reads as missing."""
    store = objects()
    store.put("a", b"1")
    for name in ("info", "ls", "pipe_file", "rm_file"):
        monkeypatch.setattr(driver, name, raises(error))
    verbs: list[Callable[[], object]] = [
        lambda: store.get("a", limit=1),
        lambda: store.put("b", b"1"),
        lambda: list(store.list()),
        lambda: store.stat("a"),
        lambda: store.delete("a"),
        store.check,
    ]
    for verb in verbs:
        with pytest.raises(StoreError, match="objects://bucket/prefix") as caught:
            verb()
        assert type(caught.value) is kind


def test_a_driver_that_cannot_be_opened(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers that look for credentials at once fail as stores do, at the first request: nothing is
    asked of the network before it. The next request tries again."""
    with monkeypatch.context() as patch:
        patch.setattr(driver, "__init__", raises(OSError("no credentials service")))
        store = objects()
        with pytest.raises(StoreError, match="cannot open it in objects://bucket/prefix"):
            store.check()
    store.check()


def test_a_fork_has_a_driver_of_its_own(objects: Place) -> None:
    """Many drivers refuse to work in another process than the one that made them."""
    store = objects()
    store.check()
    assert isinstance(store, FsspecStore)
    own = id(store._fs)
    child = os.fork()
    if child == 0:
        os._exit(0 if id(store._fs) != own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert id(store._fs) == own


def test_fewer_bytes_than_the_object_has(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that comes short is an error, not a short object."""
    objects().put("a", b"0123456789")
    monkeypatch.setattr(driver, "cat_file", lambda *_, **__: b"01234")
    with pytest.raises(StoreError, match="5 of 10 bytes"):
        objects().get("a", limit=10)


def test_a_size_that_is_not_told(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a size nothing could be checked, so it is refused."""
    objects().put("a", b"1")
    monkeypatch.setattr(driver, "info", lambda *_: {"type": "file", "size": None})
    with pytest.raises(StoreError, match="does not tell the size"):
        objects().get("a", limit=10)


def test_a_large_object_given_up_half_way(objects: Place, driver: Any) -> None:
    """The driver's file is neither closed nor left to be closed when it is collected."""
    store = objects()
    with pytest.raises(StoreError, match="changed size"):
        store._put("a", Source(io.BytesIO(bytes(5 * MIB)), 6 * MIB, "a"))
    assert driver.held == {}


def test_a_driver_with_real_directories(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first object's directory is made, once it turned out to be missing."""
    made: list[str] = []
    pipe_file = driver.pipe_file

    def pipe(self: Any, path: str, data: bytes) -> None:
        if not made:
            raise FileNotFoundError(path)
        pipe_file(self, path, data)

    monkeypatch.setattr(driver, "pipe_file", pipe)
    monkeypatch.setattr(driver, "makedirs", lambda _, path, exist_ok: made.append(path))
    objects().put("a/b/c", b"1")
    assert made == ["bucket/prefix/a/b"]
    assert objects().get("a/b/c", limit=1) == b"1"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"updated": "2024-05-06T07:08:09.123Z"}, (2024, 5, 6, 7, 8, 9)),
        ({"LastModified": "2024-05-06T07:08:09+00:00"}, (2024, 5, 6, 7, 8, 9)),
        ({"mtime": 1714979289.0}, (2024, 5, 6, 7, 8, 9)),
        ({"created": datetime(2024, 5, 6, 7, 8, 9)}, (2024, 5, 6, 7, 8, 9)),
    ],
)
def test_times_as_drivers_tell_them(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any],
    expected: tuple[int, ...],
) -> None:  # fmt: skip
    """Text, seconds and naive times in UTC all become aware times."""
    monkeypatch.setattr(driver, "info", lambda *_: {"type": "file", "size": 1, **told})
    found = objects().stat("a")
    assert found is not None
    assert found.modified.replace(microsecond=0) == datetime(*expected, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize("told", [{}, {"mtime": None}, {"updated": "yesterday"}])
def test_a_time_that_is_not_told(
    objects: Place, driver: Any, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    """It counts as now, so that nothing is deleted for being old."""
    before = datetime.now(timezone.utc)
    monkeypatch.setattr(driver, "info", lambda *_: {"type": "file", "size": 1, **told})
    found = objects().stat("a")
    assert found is not None
    assert found.modified >= before
