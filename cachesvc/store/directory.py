"""A store in a local directory, by plain system calls.

Order is what makes an object appear whole: all bytes go to a file whose name is no key, they reach
the disk, and then one rename gives them the object's name. A writer that dies leaves such a file
behind, in the store's own directory, where the next put of any object finds and removes it once it
is old.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import BinaryIO

from cachesvc.core.errors import AccessDenied, StoreError, UntrustedError, UsageError
from cachesvc.core.ownership import foreign, openings, others_may_write
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import CHUNK, Source, Target

STALE_S = 3600.0
"""How long a temporary file must have been left alone before it counts as a dead writer's."""

_TEMPORARY = ".tmp-"
_TRIES = 100
_ABSENT = (FileNotFoundError, NotADirectoryError)
_ADVICE = {
    errno.ENOSPC: "free some space there or use another store",
    errno.EDQUOT: "free some of the quota or use another store",
    errno.EROFS: "mount it writable or use another store",
    errno.EIO: "the disk or its server is failing; look at the system's log",
    errno.ESTALE: "the file server lost its place; try again",
    errno.ENAMETOOLONG: "use a store with a shorter path",
    errno.EISDIR: "a directory lies where the object belongs; move it away",
    errno.ENOTDIR: "a file lies where a directory belongs; move it away",
}


class DirectoryStore(Store):
    """The objects are the files below `path`. A directory that is missing is an empty store.

    What it creates is for this user only (0700, 0600), unless the store's directory exists and
    lets others read or write: then what is created in it does too, less the umask.
    Links and devices are no objects. Raises UsageError if `path` is a file, or relative to a
    directory that is gone.

    Where only this user can write, and nobody said otherwise by `vouch`, every folder and object is
    judged as it is met: UntrustedError is raised for one that another user may have written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _absolute(os.fspath(path))
        self.url = self.path
        self._missing = not os.path.exists(self.path)
        if not self._missing and not os.path.isdir(self.path):
            raise UsageError(f"{self.path} is a file; name a directory as the store")
        self.remote = others_may_write(self.path)
        self._is_vouched = False
        self._closed: set[str] = set()

    def vouch(self, trusted: bool) -> None:
        self._is_vouched = trusted

    def _fetch(self, key: str, target: Target) -> int | None:
        self._still_ours()
        place = self._place(key)
        with self._trouble("read", key):
            self._judge_way(place)
            file = _open_regular(place)
        if file is None:
            return None
        with file:
            seen = os.fstat(file.fileno())
            self._judge(place, seen)
            return target.receive(seen.st_size, self._chunks(file, key))

    def _chunks(self, file: BinaryIO, key: str) -> Iterator[bytes]:
        while True:
            with self._trouble("read", key):
                chunk = file.read(CHUNK)
            if not chunk:
                return
            yield chunk

    def _put(self, key: str, source: Source) -> None:
        place = self._place(key)
        with self._trouble("write", key):
            temporary, file = self._create_temporary()
            try:
                with file:
                    _write(file, source)
                    now = os.fstat(file.fileno()).st_mtime
                self._rename(temporary, place)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            _settle(os.path.dirname(place))
        _remove_stale(self.path, now - STALE_S)

    def _create_temporary(self) -> tuple[str, BinaryIO]:
        """A new file that only this call writes."""
        self._make(self.path)
        path = os.path.join(self.path, _TEMPORARY + os.urandom(8).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return path, os.fdopen(os.open(path, flags, self._mode() & 0o644 | 0o600), "wb")

    def _rename(self, temporary: str, place: str) -> None:
        """Gives a file the object's name, in a folder that is made if it is missing."""
        folder = os.path.dirname(place)
        for _ in range(_TRIES):  # a delete may remove the empty folder before the file is in it
            with suppress(FileNotFoundError):
                self._make(folder)
                return os.replace(temporary, place)
        raise FileNotFoundError(errno.ENOENT, "the directory keeps vanishing", folder)

    def _make(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        self._make(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder, self._mode())

    def _mode(self) -> int:
        """The permissions of the store's directory, which what is made in it takes over."""
        try:
            return stat.S_IMODE(os.stat(self.path).st_mode) & 0o777 | 0o700
        except FileNotFoundError:
            return 0o700

    def _list(self, prefix: str) -> Iterator[Stat]:
        self._still_ours()
        return self._walk(prefix)

    def _walk(self, prefix: str) -> Iterator[Stat]:
        for entry in self._sorted_entries(prefix):
            key = prefix + entry.name
            with self._trouble("list", key):
                is_directory = entry.is_dir(follow_symlinks=False)
                found = None if is_directory else _stat_regular(entry.path)
            if is_directory:
                yield from self._walk(f"{key}/")
            elif found is not None:
                self._judge(entry.path, found)
                yield _as_stat(key, found)

    def _sorted_entries(self, prefix: str) -> list[os.DirEntry[str]]:
        """The entries of one directory so that a walk meets keys in order: `a-b` before `a/b`."""
        place = self._place(prefix)
        with self._trouble("list", prefix):
            self._judge_way(place)
            try:
                with os.scandir(place) as entries:
                    shown = [entry for entry in entries if not entry.name.startswith(".")]
                    return sorted(shown, key=_sort_key)
            except _ABSENT:
                return []

    def _stat(self, key: str) -> Stat | None:
        place = self._place(key)
        with self._trouble("look at", key):
            self._judge_way(place)
            found = _stat_regular(place)
        if found is None:
            return None
        self._judge(place, found)
        return _as_stat(key, found)

    def _delete(self, key: str) -> None:
        place = self._place(key)
        with self._trouble("delete", key), suppress(*_ABSENT):
            os.unlink(place)
            self._remove_empty(os.path.dirname(place))

    def _now(self) -> datetime:
        """The clock of the file system, where this user can write to it; else this host's."""
        import tempfile

        try:
            with tempfile.TemporaryFile(prefix=_TEMPORARY, dir=self.path) as file:
                now = os.fstat(file.fileno()).st_mtime
        except OSError:
            return super()._now()
        _remove_stale(self.path, now - STALE_S)
        return datetime.fromtimestamp(now, timezone.utc)

    def _remove_empty(self, folder: str) -> None:
        """Removes the directories that a delete left empty; the store's own stays."""
        with suppress(OSError):  # ENOTEMPTY ends it; tidiness is not worth an error
            while folder != self.path:
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def _place(self, key: str) -> str:
        return os.path.join(self.path, key)

    @property
    def _is_private(self) -> bool:
        return not (self.remote or self._is_vouched)

    def _judge_way(self, place: str) -> None:
        """Judges the folders that lead to a place below the store's directory.

        What only this user can write stays so, and is looked at once.
        """
        if not self._is_private:
            return
        folder, met = os.path.dirname(place), []
        while len(folder) > len(self.path) and folder not in self._closed:
            with suppress(*_ABSENT):
                seen = os.lstat(folder)
                self._judge(folder, seen)
                if stat.S_ISLNK(seen.st_mode):
                    self._judge_target(folder)
                met.append(folder)
            folder = os.path.dirname(folder)
        self._closed.update(met)

    def _judge_target(self, link: str) -> None:
        for opening in openings(link):
            raise _untrusted(opening.path, opening.reason)

    def _judge(self, path: str, seen: os.stat_result) -> None:
        """Raises UntrustedError if others may have written a folder or file of a private store."""
        if self._is_private and (reason := foreign(path, seen)):
            raise _untrusted(path, reason)

    def _still_ours(self) -> None:
        """A directory that was not there yet was called private: it must not be another's now."""
        if self._missing and self._is_private and os.path.exists(self.path):
            if others_may_write(self.path):
                raise UntrustedError(
                    f"{self.path} was just made by another user, or so that others can write to it;"
                    " open it again, and say that you trust it if you do"
                )
            self._missing = False

    @contextmanager
    def _trouble(self, verb: str, key: str) -> Iterator[None]:
        """Says what the system's error means to the user of a store."""
        try:
            yield
        except PermissionError as error:
            raise AccessDenied(
                f"cannot {verb} {key or 'the store'} in {self.path}: {error.strerror}; give user"
                f" {os.geteuid()} that right on {error.filename or self.path}"
            ) from error
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "see that the directory is there and healthy")
            raise StoreError(
                f"cannot {verb} {key or 'the store'} in {self.path}: {error.strerror or error};"
                f" {advice}"
            ) from error


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise UsageError(
            f"{path} cannot be found: this process's working directory is gone; name the store by"
            " an absolute path"
        ) from None


def _untrusted(path: str, reason: str) -> UntrustedError:
    return UntrustedError(
        f"{path}: {reason}, and a pull runs the code of whoever pushed: if you know that nobody"
        f" else has, close it (chmod go-w {path}; chown it if it is another user's); or name the"
        " public key of who signs what is pushed, by --trust FILE.pub; or say that you trust"
        " everyone who can write there, by --trust store"
    )


def _open_regular(path: str) -> BinaryIO | None:
    """The file at `path` open for reading, or None if there is none; a link or device is none."""
    try:
        # Without O_NONBLOCK a named pipe in the way would be waited for.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except _ABSENT:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    return os.fdopen(number, "rb")


def _stat_regular(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except _ABSENT:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _as_stat(key: str, found: os.stat_result) -> Stat:
    return Stat(key, found.st_size, datetime.fromtimestamp(found.st_mtime, timezone.utc))


def _sort_key(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _write(file: BinaryIO, source: Source) -> None:
    file.writelines(source.chunks())
    file.flush()
    os.fsync(file.fileno())


def _settle(folder: str) -> None:
    """Makes the rename itself last, where the file system lets a directory be synced."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _remove_stale(folder: str, before: float) -> None:
    """Removes what dead writers left, judged by the clock of the file system that holds it."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_TEMPORARY):
                with suppress(OSError):  # of another user, or gone by now
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        os.unlink(entry.path)
