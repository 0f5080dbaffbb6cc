"""The live directory: where a process's compiler reads and writes.

A directory that the user set is used, seeded without overwriting, never deleted; one that cannot be
written or run from, where torch would fail too, is passed over. Otherwise there is one for each
environment under TCCACHE_HOME, else XDG_CACHE_HOME/tccache, else ~/.cache/tccache, else a private
temporary folder: the first that lies on a local disk, can be written, and holds programs that may
run. A child process inherits the variables that lead to it, and finds the same. None is used that
others can put files into (decision 0025), nor one that was filled under another trust (0024).
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from cachesvc.core.errors import TccacheError, UntrustedError
from cachesvc.core.temporary import temporary_folder
from cachesvc.local.filled_for import other_trust, other_trust_apart
from cachesvc.local.mounts import is_noexec, network_file_system
from cachesvc.local.places import RECORDS, Places, under
from cachesvc.local.privacy import (
    is_shared,
    make_folders,
    make_private,
    open_to_others,
    planted_in,
    take_name,
)
from cachesvc.local.whole import existing

INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
TRITON = "TRITON_CACHE_DIR"
HOME = "TCCACHE_HOME"
LIVES = "live"
"""Folder of our own directories for the live directories: one for each environment and trust."""
NAME_DIGITS = 16

_TEMPORARY = "the temporary directory"
_NOEXEC = "its file system is mounted noexec, and compiled libraries must be loaded from it"
_HELP = f"set {HOME} to a directory on a local disk that can be written and run from"

_OTHER_UMASK = "users who share it must let each other write: run them with umask 0, or as one user"
_TRIES = 3

_Home = tuple[Path, str]


@dataclass(frozen=True, slots=True)
class Live:
    """A live directory: its places, what chose it, and what is to be said about it.

    `trust` is the digest of what is asked of the segments that fill it, None for nothing.
    """

    places: Places
    chosen_by: str
    notes: tuple[str, ...] = ()
    trust: str | None = None

    @property
    def root(self) -> Path:
        return self.places.root

    def folder(self, prefix: str) -> Path:
        """The directory of a section."""
        found = dict(self.places.folders).get(prefix)
        if found is None:
            raise TccacheError(f"the live directory {self.root} has no place for {prefix}")
        return found


def live_directory(environment: str, environ: Mapping[str, str], trust: str | None = None) -> Live:
    """The live directory for an environment and a trust (their digests) under these variables.

    Creates nothing of the user's, but a directory whose name another user could take; of its own,
    what it looks into. Raises TccacheError if no candidate can be used.
    """
    closed = dict(_closed_settings(environ, trust))
    told = tuple(f"{name}={environ[name]} was passed over: {closed[name]}" for name in closed)
    usable = {name: value for name, value in environ.items() if name not in closed}
    if usable.get(INDUCTOR):
        places = _given(Path(usable[INDUCTOR]).absolute(), usable)
        return Live(places, INDUCTOR, (*told, *_warnings(places.root)), trust)
    name = "-".join(digest[:NAME_DIGITS] for digest in (environment, trust) if digest)
    root, chosen_by, passed_over = _own_root(name, usable, trust)
    places = _with_triton(under(root), usable)
    return Live(places, chosen_by, (*told, *passed_over, *_warnings(root)), trust)


def _closed_settings(environ: Mapping[str, str], trust: str | None) -> Iterator[tuple[str, str]]:
    """The variables whose directory cannot be written or run from, or not by this user alone, or
    was filled under another trust; each with the reason."""
    for name in (INDUCTOR, TRITON):
        if not environ.get(name):
            continue
        folder = Path(environ[name]).absolute()
        reason = _closed(folder)
        if reason is None and not is_shared(environ):
            reason = _open(folder)
        if reason is None:
            reason = _filled_otherwise(name, folder, trust)
        if reason is not None:
            yield name, reason


def _filled_otherwise(name: str, folder: Path, trust: str | None) -> str | None:
    """Why a directory that a variable names may not be used under a trust, or None."""
    known = tuple(_records_of(folder))
    if name == TRITON and folder.parent / RECORDS not in known:
        return other_trust_apart(folder, trust)
    return next((why for records in known if (why := other_trust(records, trust))), None)


def _open(folder: Path) -> str | None:
    """Why others can put files into a directory that a variable names, or None."""
    try:
        take_name(folder)
    except OSError as error:
        return error.strerror or str(error)
    records = tuple(_records_of(folder))
    refusal = open_to_others(folder, *records)
    for found in records:
        refusal = refusal or planted_in(found)
    return None if refusal is None else str(refusal)


def _records_of(folder: Path) -> Iterator[Path]:
    """Our records that belong to a directory which a variable names."""
    for above in (folder, folder.parent):
        if (above / RECORDS).exists():
            yield above / RECORDS


def _closed(folder: Path) -> str | None:
    """Why nothing can be built in a directory, or None; it is not made where it is not there."""
    try:
        if is_noexec(folder):
            return _NOEXEC
        with tempfile.TemporaryFile(dir=existing(folder)):
            pass
    except OSError as error:
        return error.strerror or str(error)
    return None


def _given(inductor: Path, environ: Mapping[str, str]) -> Places:
    """The places where Inductor's directory is set: by the user, or for us by a parent process."""
    if inductor.name == "inductor" and (inductor.parent / RECORDS).is_dir():
        return _with_triton(under(inductor.parent), environ)
    own = inductor / RECORDS
    # Device 0's folder is where Triton's files lie by default; the keys hold no device number.
    folders = (
        ("inductor", inductor),
        ("triton", inductor / "triton" / "0"),
        *((name, own / name) for name in ("megacache", "aot", "extra")),
    )
    return _with_triton(Places(inductor, folders), environ)


def _with_triton(places: Places, environ: Mapping[str, str]) -> Places:
    if not environ.get(TRITON):
        return places
    triton = Path(environ[TRITON]).absolute()
    folders = tuple(
        (name, triton if name == "triton" else folder) for name, folder in places.folders
    )
    return Places(places.root, folders)


def _own_root(
    name: str, environ: Mapping[str, str], trust: str | None
) -> tuple[Path, str, Iterator[str]]:
    """The first usable directory of our own, what chose it, and what is to be said of others."""
    named = tuple(_named_homes(environ))
    remote = _remote(named)
    passed_over = dict(remote)
    local = (item for item in named if item[0] not in remote)
    last = (item for item in named if item[0] in remote)
    for home, chosen_by in chain(local, _temporary_homes(), last):
        root = home / LIVES / name
        try:
            closed = _made(home, root, chosen_by, environ)
            if reason := other_trust(root / RECORDS, trust):
                raise UntrustedError(f"{root}: {reason}")
        except OSError as error:
            passed_over[home] = error.strerror or str(error)
            if isinstance(error, PermissionError) and is_shared(environ):
                passed_over[home] += f" ({error.filename}): {_OTHER_UMASK}"
        except UntrustedError as error:
            passed_over[home] = str(error)
        else:
            passed_over.pop(home, None)
            return root, chosen_by, chain(_told(passed_over), closed)
    told = "; ".join(_told(passed_over)) or "there is no home and no temporary directory"
    raise TccacheError(f"no usable live directory: {told}: {_HELP}")


def _told(passed_over: Mapping[Path, str]) -> Iterator[str]:
    for home, reason in passed_over.items():
        yield f"{home} was passed over as live directory: {reason}"


def _named_homes(environ: Mapping[str, str]) -> Iterator[_Home]:
    """This library's own directories that the environment names, best first, each with its name."""
    if environ.get(HOME):
        yield Path(environ[HOME]).absolute(), HOME
    if environ.get("XDG_CACHE_HOME"):
        yield Path(environ["XDG_CACHE_HOME"]).absolute() / "tccache", "XDG_CACHE_HOME"
    if environ.get("HOME"):
        yield Path(environ["HOME"]).absolute() / ".cache" / "tccache", "HOME"


def own_homes(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """All directories of this library's own in which a live directory may lie; nothing is made."""
    temporary = temporary_folder()
    last = () if temporary is None else (_temporary_home(temporary),)
    return tuple(dict.fromkeys((*(home for home, _ in _named_homes(environ)), *last)))


def _remote(named: tuple[_Home, ...]) -> dict[Path, str]:
    """Homes on a network, where compilers race and lose files, each with the reason against it.

    None where TCCACHE_HOME chose it, nor where temporary files lie on a network too.
    """
    kinds = {home: network_file_system(home) for home, chosen_by in named if chosen_by != HOME}
    remote = {
        home: f"it is on a network file system ({kind})" for home, kind in kinds.items() if kind
    }
    temporary = temporary_folder() if remote else None
    return remote if temporary and not network_file_system(temporary) else {}


def _temporary_homes() -> Iterator[_Home]:
    """One folder for each user in the temporary directory; a fresh one if its name is taken."""
    folder = temporary_folder()
    if folder is not None:
        yield _temporary_home(folder), _TEMPORARY
        if fresh := _fresh_home():
            yield fresh, _TEMPORARY


def _temporary_home(folder: Path) -> Path:
    return folder / f"tccache-{os.getuid()}"


@functools.cache
def _fresh_home() -> Path | None:
    """The same for all of this process."""
    try:
        return Path(tempfile.mkdtemp(prefix="tccache-"))
    except OSError:
        return None


def _made(home: Path, root: Path, chosen_by: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Makes a live directory of our own with its records; what was closed to others, to be told.

    Raises OSError if it cannot be used, UntrustedError if others can put files there.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # somebody is removing it, for it was not in use
            return _made_once(home, root, chosen_by, environ)
    return _made_once(home, root, chosen_by, environ)


def _made_once(
    home: Path, root: Path, chosen_by: str, environ: Mapping[str, str]
) -> tuple[str, ...]:
    if is_noexec(root):
        raise OSError(_NOEXEC)
    records = root / RECORDS
    told: tuple[str, ...] = ()
    if is_shared(environ):
        make_folders(records, 0o777)
    else:
        if chosen_by == _TEMPORARY and home.is_symlink():
            raise UntrustedError("it is a link, and everybody can make one there")
        # The directory that TCCACHE_HOME names may be used by others for something else.
        own = (root.parent, root, records)
        told = make_private(root, records, own if chosen_by == HOME else (home, *own))
    with tempfile.TemporaryFile(dir=root):
        pass
    return told


def _warnings(root: Path) -> Iterator[str]:
    if kind := network_file_system(root):
        yield (
            f"the live directory {root} is on a network file system ({kind}): compilers race and"
            f" lose files there; {_HELP}"
        )
