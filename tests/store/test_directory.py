"""The directory store: whole objects or none, whatever happens to the writer or the disk."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachesvc.core.errors import StoreError, UntrustedError, UsageError
from cachesvc.store import directory
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.directory import STALE_S, DirectoryStore
from cachesvc.store.location import open_store
from cachesvc.store.streams import Source

Child = Callable[..., "subprocess.CompletedProcess[str]"]
IMPORTS = """
import os, resource, signal, sys
from cachesvc.core.errors import AccessDenied, StoreError
from cachesvc.store.directory import DirectoryStore
"""
NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A directory below which another user gets as far as the modes there let it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path, "store")


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".*")]


def test_reading_creates_nothing(root: Path) -> None:
    """A missing directory is an empty store, and stays missing until the first put."""
    store = DirectoryStore(root)
    assert list(store.list()) == []
    assert store.get("a", limit=1) is None
    store.delete("a")
    store.check()
    assert not root.exists()


def test_what_it_creates_is_for_its_user_only(root: Path) -> None:
    """Directories are 0700 and files 0600, parents of the store included."""
    DirectoryStore(root / "deep" / "store").put("a/b", b"1")
    made = [root, *root.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in made}
    assert {modes[path] for path in made if path.is_dir()} == {0o700}
    assert {modes[path] for path in made if path.is_file()} == {0o600}


def test_a_directory_that_others_read_stays_readable(root: Path) -> None:
    """A store baked into an image as root is of use to the user that serves from it."""
    root.mkdir()
    root.chmod(0o755)
    DirectoryStore(root).put("a/b", b"1")
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0o644


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """It is the user's mistake, not an empty store."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file"):
        DirectoryStore(tmp_path / "file")


def test_the_path_is_fixed_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that changes its directory goes on with the same store."""
    monkeypatch.chdir(tmp_path)
    store = DirectoryStore("store")
    store.put("a", b"1")
    monkeypatch.chdir("/")
    assert store.url == str(tmp_path / "store")
    assert store.get("a", limit=1) == b"1"


@pytest.mark.parametrize(("when", "shows"), [("before", None), ("after", b"whole")])
def test_a_writer_killed_around_the_rename(
    root: Path, child: Child, when: str, shows: bytes | None
) -> None:
    """The rename is the commit: before it nothing shows, after it all; a second put succeeds."""
    code = """
replace = os.replace
def die(*paths):
    if sys.argv[2] == "after": replace(*paths)
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = die
DirectoryStore(sys.argv[1]).put("a/b", b"whole")
"""
    assert child(code, root, when, imports=IMPORTS).returncode == -9
    store = DirectoryStore(root)
    assert store.get("a/b", limit=5) == shows
    assert [found.key for found in store.list()] == (["a/b"] if shows else [])
    assert len(leftovers(root)) == (0 if shows else 1)
    store.put("a/b", b"whole")
    assert store.get("a/b", limit=5) == b"whole"


def test_what_dead_writers_left_goes_once_it_is_old(root: Path) -> None:
    """A put removes temporary files older than the limit, and no younger ones nor others' files."""
    store = DirectoryStore(root)
    store.put("a/b", b"1")
    old, young, other = (root / name for name in (".tmp-old", ".tmp-young", ".other"))
    for path, age in ((old, STALE_S + 60), (young, STALE_S - 60), (other, STALE_S + 60)):
        path.write_bytes(b"")
        written = (root / "a/b").stat().st_mtime - age
        os.utime(path, (written, written))
    store.put("a/c", b"1")
    assert sorted(leftovers(root)) == [".other", ".tmp-young"]


def test_a_reader_never_sees_a_part(root: Path) -> None:
    """A process replaces an object over and over; each read meanwhile is one whole object."""
    writer = """
import sys
from cachesvc.store.directory import DirectoryStore
store = DirectoryStore(sys.argv[1])
for number in range(60):
    store.put("a/b", bytes([number]) * (100_000 + 37_000 * (number % 7)))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(directory.__file__).parents[2])}
    store = DirectoryStore(root)
    reads = 0
    with subprocess.Popen([sys.executable, "-c", writer, str(root)], env=environment) as process:
        while process.poll() is None:
            data = store.get("a/b", limit=1 << 20)
            if data is not None:
                assert len(data) == 100_000 + 37_000 * (data[0] % 7)
                assert data == data[:1] * len(data)
                assert [found.key for found in store.list()] == ["a/b"]
                reads += 1
    assert process.returncode == 0
    assert reads > 0


def test_racing_writers_both_succeed(root: Path) -> None:
    """Two processes put and delete the same keys; neither trips over the other's clearing up."""
    racer = """
import sys
from cachesvc.store.directory import DirectoryStore
store = DirectoryStore(sys.argv[1])
for number in range(150):
    store.put("a/b/c", b"same")
    store.delete("a/b/c")
store.put("a/b/c", b"same")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(directory.__file__).parents[2])}
    racers = [
        subprocess.Popen([sys.executable, "-c", racer, str(root)], env=environment)
        for _ in range(2)
    ]
    assert [process.wait() for process in racers] == [0, 0]
    assert DirectoryStore(root).get("a/b/c", limit=4) in {b"same", None}
    assert leftovers(root) == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "writable"),
        (errno.EIO, "failing"),
        (errno.ENXIO, "healthy"),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, advice: str
) -> None:
    """The error says what, where and what to do; nothing shows and nothing is left."""
    store = DirectoryStore(root)
    store.put("a/old", b"1")

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(StoreError, match=advice) as caught:
            store.put("a/new", b"2")
    assert "cannot write a/new" in str(caught.value)
    assert str(root) in str(caught.value)
    assert [found.key for found in store.list()] == ["a/old"]
    assert leftovers(root) == []


def test_a_real_limit_on_the_size_of_files(root: Path, child: Child) -> None:
    """The kernel refuses the second megabyte: StoreError, and the half of a file is gone."""
    code = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    DirectoryStore(sys.argv[1]).put("a/b", bytes(2 << 20))
except StoreError as error:
    print(error)
"""
    done = child(code, root, imports=IMPORTS)
    assert "cannot write a/b" in done.stdout, done.stderr
    assert list(DirectoryStore(root).list()) == []
    assert leftovers(root) == []


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_directory_that_this_user_cannot_write(open_root: Path, child: Child, mode: int) -> None:
    """AccessDenied says which user lacks what; it is not a StoreError to be retried."""
    open_root.mkdir()
    open_root.chmod(mode)
    code = """
try:
    DirectoryStore(sys.argv[1]).put("a/b", b"1")
except AccessDenied as error:
    print(error)
"""
    done = child(code, open_root, user=NOBODY, imports=IMPORTS)
    assert "cannot write a/b" in done.stdout, done.stderr
    assert "give user" in done.stdout


def test_what_this_user_cannot_read_is_denied_not_missing(open_root: Path, child: Child) -> None:
    """Reading, looking and listing raise AccessDenied, so nobody takes it for a cold start."""
    DirectoryStore(open_root).put("a/b", b"1")
    for path, mode in ((open_root, 0o755), (open_root / "a", 0o000), (open_root / "a/b", 0o000)):
        path.chmod(mode)
    code = """
store = DirectoryStore(sys.argv[1])
for verb in (lambda: store.get("a/b", limit=1), lambda: store.stat("a/b"),
             lambda: list(store.list()), lambda: store.delete("a/b")):
    try:
        print("no error", verb())
    except AccessDenied:
        print("denied")
"""
    done = child(code, open_root, user=NOBODY, imports=IMPORTS)
    (open_root / "a").chmod(0o700)
    assert done.stdout.split() == ["denied"] * 4, done.stderr


def test_links_and_pipes_are_no_objects(root: Path, tmp_path: Path) -> None:
    """They are neither read nor listed, and a pipe is not waited for."""
    store = DirectoryStore(root)
    store.put("a/b", b"1")
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "a/link").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "a/pipe")
    for key in ("a/link", "a/pipe", "a"):
        assert store.get(key, limit=100) is None
        assert store.stat(key) is None
    assert [found.key for found in store.list()] == ["a/b"]


def test_files_of_others_are_passed_over(root: Path) -> None:
    """Hidden files and names that are no key are not objects."""
    store = DirectoryStore(root)
    store.put("a/b", b"1")
    for name in (".hidden", "a/with space", "a/.DS_Store"):
        (root / name).write_bytes(b"")
    assert [found.key for found in store.list()] == ["a/b"]


@pytest.mark.parametrize(("there", "put"), [("a/b", "a"), ("a", "a/b")])
def test_a_key_below_another_key(root: Path, there: str, put: str) -> None:
    """A file system cannot hold both: the second is refused, the first stays whole."""
    store = DirectoryStore(root)
    store.put(there, b"1")
    with pytest.raises(StoreError, match="move it away"):
        store.put(put, b"2")
    assert store.get(put, limit=1) is None
    assert store.get(there, limit=1) == b"1"
    assert leftovers(root) == []


def test_deleting_leaves_no_empty_directories(root: Path) -> None:
    """Those that hold something stay, and so does the store."""
    store = DirectoryStore(root)
    for key in ("a/b/c", "a/d"):
        store.put(key, b"1")
    store.delete("a/b/c")
    assert sorted(path.name for path in root.rglob("*")) == ["a", "d"]
    store.delete("a/d")
    assert list(root.iterdir()) == []


def test_objects_that_vanish_while_they_are_listed(root: Path) -> None:
    """A concurrent delete is no trouble for a listing that has begun."""
    store = DirectoryStore(root)
    for key in ("a", "b/c", "d"):
        store.put(key, b"1")
    listing = store.list()
    assert next(listing).key == "a"
    store.delete("b/c")
    store.delete("d")
    assert list(listing) == []


def test_an_interrupt_leaves_nothing(root: Path) -> None:
    """Ctrl-C while bytes are copied removes the temporary file and goes on its way."""

    class Interrupting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    store = DirectoryStore(root)
    with pytest.raises(KeyboardInterrupt):
        store._put("a", Source(Interrupting(b"1"), 1, "a"))
    assert leftovers(root) == []


def test_a_directory_that_another_user_made_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was missing when it needed no word of trust; one that others can write is not read."""
    store = DirectoryStore(root)
    assert not store.remote
    root.mkdir()
    root.chmod(0o777)
    (root / "a").write_bytes(b"planted")
    with pytest.raises(UntrustedError, match="another user"):
        store.get("a", limit=100)
    with pytest.raises(UntrustedError, match="another user"):
        store.list()


def test_one_that_is_trusted_may_be_anothers(root: Path) -> None:
    """Who has said the word when it was missing need not say it again."""
    store = open_store(root, trusted=True)
    root.mkdir()
    root.chmod(0o777)
    (root / "a").write_bytes(b"wanted")
    assert store.get("a", limit=100) == b"wanted"


def test_a_working_directory_that_is_gone(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store by an absolute path is used all the same; a relative one is told."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    store = open_store(root)
    store.put("a/b", b"1")
    assert store.get("a/b", limit=1) == b"1"
    with pytest.raises(UsageError, match="working directory is gone; name the store by an absol"):
        open_store("store")


# What lies in a store that only this user can write.


def plant(root: Path, what: str) -> None:
    """The object m/n/a, which is not certainly this user's: by its own mode or owner, or by that of
    a folder on the way."""
    folder, file = root / "m", root / "m" / "n" / "a"
    if what == "link":
        elsewhere = root.parent / "elsewhere"
        elsewhere.mkdir()
        folder.rename(elsewhere / "m")
        folder.symlink_to(elsewhere / "m")
        elsewhere.chmod(0o777)
    elif what == "folder":
        folder.chmod(0o777)
    elif what == "sticky":
        folder.chmod(0o1777)
    elif what == "file":
        file.chmod(0o666)
    elif what == "group":
        file.parent.chmod(0o775)
    else:
        os.chown(folder if what == "anothers folder" else file, NOBODY, NOBODY)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
PLANTED = (
    *("folder", "sticky", "file", "group", "link"),
    pytest.param("anothers folder", marks=as_root),
    pytest.param("anothers file", marks=as_root),
)


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_others_may_have_written_is_refused(root: Path, what: str, is_wrapped: bool) -> None:
    """Though the way to the store is closed: by each verb that reads, with what to do. A word of
    trust makes it as any store that others can write, also where the store is wrapped."""
    DirectoryStore(root).put("m/n/a", b"1")
    plant(root, what)
    store: Store = DirectoryStore(root)
    assert not store.remote
    store = open_store(Counting(store) if is_wrapped else store)
    reads: list[Callable[[], object]] = [
        lambda: store.get("m/n/a", limit=1),
        lambda: store.stat("m/n/a"),
        lambda: list(store.list("m/n/")),
    ]
    if what != "link":  # it is not walked through
        reads.append(lambda: list(store.list()))
    for read in reads:
        with pytest.raises(UntrustedError, match=r"chmod go-w .*--trust FILE\.pub.*--trust store"):
            read()
    assert open_store(store, trusted=True).get("m/n/a", limit=1) == b"1"
    assert [item.key for item in store.list("m/n/")] == ["m/n/a"]
    assert store.stat("m/n/a") is not None
    with pytest.raises(UntrustedError, match="chmod go-w"):
        open_store(store).get("m/n/a", limit=1)


@as_root
def test_what_root_has_written_is_not_anothers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can write everywhere: folders and objects of root in a user's store are trusted."""
    DirectoryStore(root).put("m/n/a", b"1")
    os.chown(root, NOBODY, NOBODY)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    store = DirectoryStore(root)
    assert not store.remote
    assert store.get("m/n/a", limit=1) == b"1"
    assert [item.key for item in store.list()] == ["m/n/a"]


def test_what_is_closed_is_looked_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can open it again, so a folder costs one look for as long as a store is used; an
    object none, beside the one that is taken anyway."""
    for key in ("m/a", "m/b", "m/n/c"):
        DirectoryStore(root).put(key, b"1")
    store = DirectoryStore(root)
    looked: list[str] = []
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        looked.append(os.path.relpath(path, root))
        return lstat(path)

    monkeypatch.setattr(os, "lstat", look)
    assert len(list(store.list())) == 3
    assert sorted(looked) == ["m", "m/a", "m/b", "m/n", "m/n/c"]
    looked.clear()
    assert len(list(store.list("m/n/"))) == 1
    store.get("m/a", limit=1)
    assert looked == ["m/n/c"]
