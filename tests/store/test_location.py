"""What a user writes, and which store and which trust it means."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cachesvc.core.errors import IntegrityError, UntrustedError, UsageError
from cachesvc.store.contract import Store
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.fsspec_store import FsspecStore
from cachesvc.store.location import check_format, mark_format, open_store
from cachesvc.store.retrying import Retrying
from cachesvc.store.s3 import S3Store
from cachesvc.store.streams import Source
from cachesvc.store.wrapper import Wrapper


@pytest.mark.parametrize(
    ("written", "kind", "shown"),
    [
        ("{tmp}/store", DirectoryStore, "{tmp}/store"),
        ("  {tmp}/store\n", DirectoryStore, "{tmp}/store"),
        ("file://{tmp}/a%20store", DirectoryStore, "{tmp}/a store"),
        ("FILE://localhost{tmp}/store", DirectoryStore, "{tmp}/store"),
        ("{tmp}/a:b", DirectoryStore, "{tmp}/a:b"),
        ("memory://a/b", FsspecStore, "memory://a/b"),
        ("s3://bucket/a/b/", S3Store, "s3://bucket/a/b"),
        ("S3://bucket", S3Store, "s3://bucket"),
    ],
)
def test_the_scheme_decides(written: str, kind: type[Store], shown: str, tmp_path: Path) -> None:
    """A path is a directory, s3:// is S3, everything else is fsspec's."""
    store = open_store(written.format(tmp=tmp_path), trusted=True)
    assert type(store) is kind
    assert store.url == shown.format(tmp=tmp_path)


def test_the_wire_is_tried_again(objects: Callable[[], Store]) -> None:
    """A remote store has somebody who retries: botocore, or the wrapper."""
    objects()
    store = open_store("objects://bucket/prefix", trusted=True)
    assert isinstance(store, Retrying)
    assert isinstance(store.inner, FsspecStore)


def test_paths_of_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path objects, relative paths and the user's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store(tmp_path / "a").url == str(tmp_path / "a")
    assert open_store("a/b").url == str(tmp_path / "a/b")
    assert open_store("~/a").url == str(tmp_path / "home/a")


@pytest.mark.parametrize(
    "written",
    ["", "  ", "a\0b", "s3:/bucket/a", "s3:", Path("s3://bucket"), "file://host/a", "file://",
     "nosuch://x", "s3://", "file:///a?b=c",
     "simplecache::memory://a", "a b://c"],
)  # fmt: skip
def test_what_names_no_store(written: str | Path) -> None:
    """UsageError, and never a directory of a strange name."""
    with pytest.raises(UsageError):
        open_store(written, trusted=True)


def test_a_store_is_taken_as_it_is(tmp_path: Path) -> None:
    """A caller may build the store, and wrap it."""
    store = DirectoryStore(tmp_path)
    assert open_store(store) is store


@pytest.mark.parametrize("make", [lambda: "s3://bucket", lambda: S3Store("s3://bucket")])
def test_a_remote_store_needs_somebody_to_vouch(make: Callable[[], str | Store]) -> None:
    """The refusal says why, and every way to say whom one trusts."""
    with pytest.raises(UntrustedError) as caught:
        open_store(make())
    ways = ("--trust {}", "TCCACHE_TRUST={}", 'trust="{}"')
    said = [way.format(whom) for way in ways for whom in ("store", "FILE.pub")]
    for part in ("runs the code", *said):
        assert part in str(caught.value)
    assert open_store(make(), trusted=True).remote


def test_a_private_directory_needs_no_word(tmp_path: Path) -> None:
    """Unlike one that others can write."""
    assert not open_store(tmp_path / "store").remote
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(UntrustedError):
        open_store(tmp_path / "shared")
    assert open_store(tmp_path / "shared", trusted=True).remote


def test_a_new_store_has_no_mark_and_gets_one(directory: Callable[[], Store]) -> None:
    """Marking writes once, and a marked store is fine."""
    store = directory()
    assert not check_format(store)
    mark_format(store)
    assert store.get("tccache.json", limit=100) == b'{"format":1}'
    assert check_format(store)
    mark_format(store)


def test_another_version_marks_at_the_same_moment(directory: Callable[[], Store]) -> None:
    """A store that does not replace what is there keeps that mark: then nothing is pushed."""

    class Raced(Wrapper):
        def _put(self, key: str, source: Source) -> None:
            super()._put(key, Source(io.BytesIO(b'{"format":2}'), 12, key))

    with pytest.raises(IntegrityError, match="format 2"):
        mark_format(Raced(directory()))


def test_a_mark_with_more_in_it(directory: Callable[[], Store]) -> None:
    """Unknown fields are passed over, and the mark is left as it is."""
    store = directory()
    store.put("tccache.json", b'{"format": 1, "by": "us"}')
    mark_format(store)
    assert store.get("tccache.json", limit=100) == b'{"format": 1, "by": "us"}'


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        (b'{"format": 2}', "format 2 .* reads format 1: use"),
        (b'{"format": "1"}', "wrong kind"),
        (b"{}", "missing"),
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"format": 1}' + b" " * 5000, "more than the 4096 allowed"),
    ],
)
def test_a_store_of_another_format(directory: Callable[[], Store], mark: bytes, says: str) -> None:
    """It is neither read nor written, and the error says what to do."""
    store = directory()
    store.put("tccache.json", mark)
    for verb in (check_format, mark_format):
        with pytest.raises(IntegrityError, match=says):
            verb(store)
    assert store.get("tccache.json", limit=10_000) == mark


@pytest.mark.parametrize(
    "code",
    [
        "import cachesvc.store.location, cachesvc.store.retrying",
        "from cachesvc.store.location import open_store; open_store('/x').get('a', limit=1)",
        "from cachesvc.store.location import open_store; open_store('s3://bucket', trusted=True)",
    ],
)
def test_nothing_heavy_is_imported(
    child: Callable[..., subprocess.CompletedProcess[str]], code: str
) -> None:
    """Neither boto3 nor fsspec until a request needs them: a pull from a directory is quick."""
    heavy = "{'boto3', 'botocore', 's3transfer', 'fsspec', 'urllib3', 'tempfile', 'torch'}"
    done = child(f"{code}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr
