"""A store at any URL that fsspec has a driver for: memory://, gs://, abfs://, hf:// and others.

An object is written by one call that makes it appear whole, or through a file that appears when it
is closed; that is how object stores work. A driver for a plain file server (sftp, smb, ftp) may
show an object while it grows, and then only the digests in a manifest protect a reader.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote, urlsplit

from cachesvc.core.errors import AccessDenied, StoreError, TccacheError, UsageError
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target

PART = 8 << 20
"""How many bytes one request reads."""

WHOLE = 16 << 20
"""Objects up to this many bytes are written by one request."""

_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_FRACTION = re.compile(r"\.\d+")
_DENIED = {401, 403}


class _Own:
    """One process's driver; a fork makes its own, as many refuse to work in another process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.opened: tuple[Any, str] | None = None


class FsspecStore(Store):
    """The objects below an fsspec URL; credentials come from where the driver looks for them.

    The driver is made at the first request: some look for their credentials in the network.
    Raises UsageError if fsspec does not know the protocol, its driver is not installed, or the URL
    names local files, which DirectoryStore stores safely and fsspec does not.
    """

    def __init__(self, url: str, *, part: int = PART, whole: int = WHOLE) -> None:
        if "::" in url:
            raise UsageError("chained URLs (a::b) keep copies that grow old; name the store alone")
        self.url = _without_secrets(url)
        self._secrets = tuple(_secrets(url))
        self._part = part
        self._whole = whole
        protocol = url.partition("://")[0].lower()
        _require_driver(protocol, self.url)
        self._full_url = url
        self._own = _Own()
        self._one_call = protocol == "memory"  # its files show while they are written
        self.remote = protocol != "memory"

    def _opened(self) -> tuple[Any, str]:
        if self._own.process != os.getpid():
            self._own = _Own()
        own = self._own
        with own.lock:
            if own.opened is None:
                with self._trouble("open", "it"):
                    own.opened = _open(self._full_url)
            return own.opened

    @property
    def _fs(self) -> Any:
        return self._opened()[0]

    @property
    def _root(self) -> str:
        return self._opened()[1]

    def _fetch(self, key: str, target: Target) -> int | None:
        with self._trouble("read", key):
            info = self._info(key)
        if info is None:
            return None
        size = self._size(info, key)
        return target.receive(size, self._chunks(key, size))

    def _chunks(self, key: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, self._part):
            with self._trouble("read", key):
                end = min(start + self._part, size)
                chunk = self._fs.cat_file(self._place(key), start=start, end=end)
            yield chunk

    def _put(self, key: str, source: Source) -> None:
        with self._trouble("write", key):
            try:
                self._write(self._place(key), source)
            except FileNotFoundError:  # where directories are real, the first object needs its own
                self._fs.makedirs(self._place(key).rpartition("/")[0], exist_ok=True)
                self._write(self._place(key), source)

    def _write(self, place: str, source: Source) -> None:
        if self._one_call or source.size <= self._whole:
            self._fs.pipe_file(place, source.whole())
            return
        file = self._fs.open(place, "wb", block_size=self._part)
        try:
            for chunk in source.chunks(self._part):
                file.write(chunk)
        except BaseException:
            _abandon(file)
            raise
        file.close()

    def _list(self, prefix: str) -> Iterator[Stat]:
        with self._trouble("list", prefix or "the store"):
            self._fs.invalidate_cache()
            infos = dict(self._files(self._place(prefix).rstrip("/")))
        for path in sorted(infos):
            yield self._as_stat(path[len(self._root) + 1 :], infos[path])

    def _files(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if _lists_flat(self._fs):
            with suppress(FileNotFoundError):
                yield from self._fs.find(folder, detail=True).items()
            return
        # fsspec's own find takes a directory that cannot be listed for an empty one.
        for info in self._entries(folder):
            if info["type"] == "directory":
                yield from self._files(info["name"].rstrip("/"))
            else:
                yield info["name"], info

    def _entries(self, folder: str) -> list[Mapping[str, Any]]:
        try:
            entries = self._fs.ls(folder, detail=True)
        except FileNotFoundError:
            return []
        return [info for info in entries if info["name"].rstrip("/") != folder]

    def _stat(self, key: str) -> Stat | None:
        with self._trouble("look at", key):
            info = self._info(key)
        return None if info is None else self._as_stat(key, info)

    def _delete(self, key: str) -> None:
        with self._trouble("delete", key), suppress(FileNotFoundError):
            self._fs.rm_file(self._place(key))

    def _info(self, key: str) -> Mapping[str, Any] | None:
        try:
            info: Mapping[str, Any] = self._fs.info(self._place(key))
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else info

    def _size(self, info: Mapping[str, Any], key: str) -> int:
        if info.get("size") is None:
            raise StoreError(f"{self.url} does not tell the size of {key}; use another store")
        return int(info["size"])

    def _as_stat(self, key: str, info: Mapping[str, Any]) -> Stat:
        return Stat(key, self._size(info, key), _modified(info))

    def _place(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextmanager
    def _trouble(self, verb: str, key: str) -> Iterator[None]:
        """Drivers raise what the libraries below them raise, so everything is caught here."""
        try:
            yield
        except TccacheError:
            raise
        except Exception as error:
            said = self._without_secrets(str(error))
            text = f"cannot {verb} {key} in {self.url}: {type(error).__name__}: {said}"
            if isinstance(error, PermissionError) or _status(error) in _DENIED:
                raise AccessDenied(f"{text}; give the driver credentials for it") from error
            raise StoreError(f"{text}; see that the store is there and reachable") from error

    def _without_secrets(self, text: str) -> str:
        """What a driver says, which may hold the URL that it was given."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _open(url: str) -> tuple[Any, str]:
    import fsspec.core

    # Another process's objects must show at once, so no listing may be kept.
    fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    return fs, str(root).rstrip("/")


def _require_driver(protocol: str, url: str) -> None:
    """Raises UsageError unless fsspec can serve `protocol` by a driver that is not a local one."""
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem
    except ImportError:
        raise UsageError(f"{url} needs the package fsspec; pip install fsspec") from None
    try:
        driver = fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise UsageError(
            f"{url}: {protocol}:// is not known; write a path, s3://BUCKET/PREFIX or a URL that"
            " fsspec has a driver for"
        ) from None
    except ImportError as error:
        reason = error.args[0] or error.__cause__
        raise UsageError(f"{url} needs a package that is not here: {reason}") from None
    if issubclass(driver, LocalFileSystem):
        raise UsageError(f"{url} names local files; write the path alone")


def _lists_flat(fs: Any) -> bool:
    """Whether the driver brings its own way to list a tree, by one paged request."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(fs)
    if isinstance(fs, AsyncFileSystem):
        return kind._find is not AsyncFileSystem._find
    return kind.find is not AbstractFileSystem.find


def _abandon(file: Any) -> None:
    """Gives up a file half-written: closing it, as its deletion would do, would publish it."""
    with suppress(Exception):
        file.discard()
    with suppress(AttributeError):
        file.closed = True


def _modified(info: Mapping[str, Any]) -> datetime:
    """When an object was written; now, if the driver does not say: then nothing is called old."""
    value = next((info[name] for name in _MODIFIED if info.get(name) is not None), None)
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(_FRACTION.sub("", value).replace("Z", "+00:00"))
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return aware.astimezone(timezone.utc)
    return datetime.now(timezone.utc)


def _status(error: Exception) -> int | None:
    """The HTTP status in an error, by the names that drivers' libraries have for it."""
    for name in ("status", "status_code", "code"):
        with suppress(TypeError, ValueError):
            return int(getattr(error, name, None) or "none")
    return None


def _without_secrets(url: str) -> str:
    """The URL as it may be shown: without a password, a query or a fragment."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"


def _secrets(url: str) -> Iterator[str]:
    """The parts of a URL that must not be shown, as they stand there and decoded."""
    parts = urlsplit(url)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    for secret in (password, parts.query, parts.fragment):
        if secret:
            yield from dict.fromkeys((secret, unquote(secret)))
