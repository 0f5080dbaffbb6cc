"""From what a user writes to a store: the URL, the word of trust, and the store's format."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from cachesvc.core.digest import canonical_json
from cachesvc.core.errors import IntegrityError, UntrustedError, UsageError
from cachesvc.core.fields import Fields, Issues, load_object
from cachesvc.store.contract import Store

FORMAT = 1
FORMAT_KEY = "tccache.json"

_FORMAT_LIMIT = 4096
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_ALMOST_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(/[^/].*)?", re.DOTALL)


def open_store(url: str | os.PathLike[str] | Store, *, trusted: bool = False) -> Store:
    """The store at a path, a file:// or s3:// URL, or any other URL that fsspec has a driver for.

    A store that others can write is opened only if it is `trusted`: as a whole, or because only
    what is signed is used of it. Raises UntrustedError without that and UsageError for a URL that
    names no store. No request is made yet.
    """
    store = url if isinstance(url, Store) else _located(os.fspath(url))
    require_trust(store, trusted)
    store.vouch(trusted)
    return store


def require_trust(store: Store, trusted: bool) -> None:
    """Raises UntrustedError if others can write to the store and nobody vouches for it."""
    if store.remote and not trusted:
        raise UntrustedError(
            f"{store.url} can be written by others, and a pull runs the code of whoever pushed:"
            " name the public key of who signs what is pushed, by --trust FILE.pub,"
            ' TCCACHE_TRUST=FILE.pub or trust="FILE.pub"; or say that you trust everyone who can'
            ' write there, by --trust store, TCCACHE_TRUST=store or trust="store"; or use a'
            " directory that only you can write"
        )


def check_format(store: Store) -> bool:
    """Whether the store carries the mark of the format that this version reads.

    A store without any mark is one to which nothing was pushed yet. Raises IntegrityError for the
    mark of another format, and for what is no mark at all.
    """
    data = store.get(FORMAT_KEY, limit=_FORMAT_LIMIT)
    if data is None:
        return False
    where = f"{FORMAT_KEY} in {store.url}"
    issues = Issues()
    found = Fields(load_object(data, where), "", issues).integer("format")
    issues.raise_if_any(where)
    if found != FORMAT:
        raise IntegrityError(
            f"{store.url} has format {found} and this version reads format {FORMAT}: use the"
            " version of tccache that wrote it, or another store"
        )
    return True


def mark_format(store: Store) -> None:
    """Marks the store with this version's format if it has no mark; raises as `check_format`."""
    if not check_format(store):
        store.put(FORMAT_KEY, canonical_json({"format": FORMAT}))
        check_format(store)  # another version may have been faster, and its mark is not replaced


def _located(url: str) -> Store:
    text = url.strip()
    if not text or "\0" in text:
        raise UsageError("no store is named; give a path, s3://BUCKET/PREFIX or another URL")
    scheme, url, _ = text.partition("://")
    if url:
        return _by_scheme(scheme.lower(), text)
    if _ALMOST_URL.fullmatch(text):
        raise UsageError(
            f"{_shown(text)!r} is almost a URL; write it with two slashes, or with ./ before it if"
            " it is a path"
        )
    return _directory(os.path.expanduser(text))


def _shown(url: str) -> str:
    """What may be told of something that is no URL we know: nothing before its last @."""
    return url.rpartition("@")[2]


def _by_scheme(scheme: str, url: str) -> Store:
    if not _SCHEME.fullmatch(scheme):
        raise UsageError(f"{_shown(url)!r} is no URL: {scheme!r:.80} is no scheme")
    try:
        urlsplit(url)
    except ValueError:
        raise UsageError(f"the {scheme}:// URL is wrong: its host cannot be read") from None
    if scheme == "s3":
        from cachesvc.store.s3 import S3Store

        return S3Store(url)
    if scheme == "file":
        return _directory(_local_path(url))
    from cachesvc.store.fsspec_store import FsspecStore
    from cachesvc.store.retrying import Retrying

    store = FsspecStore(url)
    return Retrying(store) if store.remote else store  # botocore retries by itself, drivers may not


def _directory(path: str) -> Store:
    from cachesvc.store.directory import DirectoryStore

    return DirectoryStore(path)


def _local_path(url: str) -> str:
    parts = urlsplit(url, allow_fragments=False)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not path or "\0" in path or parts.query:
        raise UsageError(
            f"{_shown(url)} names no local directory; write file:///PATH or the path alone"
        )
    return path
