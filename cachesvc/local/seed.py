"""Seeding: units into a live directory, each file by one link or rename, nothing overwritten.

The invariant: a file that can be seen under its final name is whole and verified, and a group or
cache entry is seen only after the files that it leads to. A seeder that is killed leaves
staging folders, which the next one removes, and files that are each whole.

Two kinds of file are replaced where they lie: a group whose directory was copied or moved, so that
its paths lead elsewhere and Triton would find nothing; and, with all of its unit, a file that is
damaged, so that every start would fail on it. A process that has the old one open keeps it.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Literal, NamedTuple, Protocol

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.manifest import Entry, Unit
from cachesvc.core.temporary import make_folder, remove_folder, remove_left
from cachesvc.local.broken import broken, is_named_by_content
from cachesvc.local.durable import Flusher
from cachesvc.local.group import MAX_BYTES, localise, points_into, relocate
from cachesvc.local.layout import is_group, seed_order
from cachesvc.local.ledger import Ledger, row_of
from cachesvc.local.lock import PATIENCE_S, SignOfLife, lock_of, take_in_turn
from cachesvc.local.places import Places
from cachesvc.local.privacy import check_links
from cachesvc.local.quarantine import SetAside, is_set_aside, read_quarantine
from cachesvc.local.whole import check_space, disk_errors, readable_file

_STAGE = ".tccache-stage-"
_CHUNK = 1 << 20

State = Literal["same", "absent", "other", "damaged"]


class Readable(Protocol):
    """Anything that gives bytes until it gives none."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What seeding has to do: units whose files all lie in place, units to be brought, and units
    that this machine made itself with other bytes, which are kept as they are.

    `damaged` are those of the missing ones that replace files which nobody can use. `set_aside`
    says which units are left out because these very bytes have failed here.
    """

    in_place: tuple[Unit, ...]
    missing: tuple[Unit, ...]
    kept: tuple[Unit, ...]
    damaged: tuple[Unit, ...] = ()
    set_aside: tuple[SetAside, ...] = ()


class _Staged(NamedTuple):
    """A file on its way: where it lies, where it goes, the digest of its entry."""

    file: Path
    target: Path
    sha256: str


class Seeder:
    """Holds a live directory's lock while units are compared, staged and committed.

    Use as a context manager. Raises BusyError if another process seeds and has not got on for
    `patience_s` seconds; the lock is the kernel's, so a killed process never holds it.
    """

    def __init__(self, places: Places, *, patience_s: float = PATIENCE_S) -> None:
        self._places = places
        self._lock = lock_of(places)
        self._sign = SignOfLife(places)
        self._patience_s = patience_s
        self._stage_prefix = f"{_STAGE}{digest_bytes(os.fsencode(places.root))[:8]}-"
        self._stages: dict[Path, Path] = {}
        self._staged: dict[str, _Staged] = {}
        self._moved: dict[str, tuple[Path, bytes, str]] = {}
        self._numbers = itertools.count()
        self._ledger = Ledger()
        self._flusher = Flusher()
        self._targets: dict[str, Path | None] = {}
        self._made: set[str] = set()
        self._quarantine: tuple[SetAside, ...] = ()
        self._replaced: set[str] = set()

    def __enter__(self) -> Seeder:
        take_in_turn(self._lock, self._places, self._patience_s)
        with ExitStack() as unless_read:
            unless_read.callback(self._lock.release)
            self.gets_on()
            self._remove_stages()
            self._ledger = Ledger.read(self._places.records)
            self._ledger.settle(self._places.folder("triton/"))
            self._quarantine = read_quarantine(self._places.records)
            unless_read.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flusher.close()
        for stage in self._stages.values():
            remove_folder(str(stage))
        self._lock.release()

    def let_go(self) -> None:
        """Lets others seed while this one still stages; it MUST NOT commit any more. Any thread may
        call it."""
        self._lock.release()

    def gets_on(self) -> None:
        """Tells those who wait that what is to be staged comes, so that they wait on."""
        self._sign.show()

    def plan(self, units: Iterable[Unit]) -> SeedPlan:
        """Sorts units by what has to be done for them; units without a place are left out.

        Raises TccacheError if a disk has no room for those that are missing.
        """
        in_place, missing, kept, damaged = [], [], [], []
        set_aside = []
        for unit in units:
            self.gets_on()
            if any(self._target(entry.path) is None for entry in unit.entries):
                continue
            if failed := is_set_aside(unit, self._quarantine):
                set_aside.append(failed)
                continue
            states = {entry.path: self._state(entry) for entry in unit.entries}
            if "damaged" in states.values():
                damaged.append(unit)
                missing.append(unit)
                # With the rest of this machine's own files for it: a unit is used whole.
                self._replaced.update(path for path, state in states.items() if state != "same")
            elif "other" in states.values():
                kept.append(unit)
            elif "absent" in states.values():
                missing.append(unit)
            else:
                in_place.append(unit)
        self._check_space(entry for unit in missing for entry in unit.entries)
        return SeedPlan(
            tuple(in_place), tuple(missing), tuple(kept), tuple(damaged), tuple(set_aside)
        )

    def stage(self, entry: Entry, source: Readable) -> None:
        """Writes an entry's bytes to the staging folder of its directory.

        `source` checks them as it is read; what it raises leaves nothing that could be committed.
        """
        target = self._locate(entry.path)
        if is_group(entry.path) and entry.size > MAX_BYTES:
            raise IntegrityError(f"{entry.path} is no Triton group: it has {entry.size} bytes")
        with disk_errors(target):
            staged = self._stage_of(entry.path) / str(next(self._numbers))
            with ExitStack() as unless_written:
                file = self._opened(staged)
                unless_written.callback(file.close)
                if is_group(entry.path):
                    file.write(localise(_read_all(source), target.parent, entry.path))
                else:
                    while data := source.read(_CHUNK):
                        self.gets_on()
                        file.write(data)
                file.flush()
                unless_written.pop_all()
            self._flusher.add(file)
        self._staged[entry.path] = _Staged(staged, target, entry.sha256)

    def flush(self) -> None:
        """Returns when all that was staged has reached the disk: the long part of a commit, which
        may take any time and changes nothing that can be seen."""
        with disk_errors(self._places.root):
            self._flusher.finish()

    def _opened(self, staged: Path) -> BinaryIO:
        """The file to write; where the process may open no more, once those before are flushed."""
        try:
            return open(staged, "xb", opener=readable_file)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._flusher.finish()
            return open(staged, "xb", opener=readable_file)

    def commit(
        self,
        missing: Iterable[Unit],
        in_place: Iterable[Unit] = (),
        signers: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        """Puts the files of missing units into place, and records who made all these units, and
        which keys have signed them.

        A unit of which a file was neither staged nor in place is not seeded at all. A file that
        appeared meanwhile under its final name is left as it is, unless its unit was damaged.
        """
        whole = [unit for unit in missing if self._is_staged(unit)]
        paths = sorted((e.path for unit in whole for e in unit.entries), key=seed_order)
        wanted = [path for path in paths if path in self._staged]
        with disk_errors(self._places.root):
            self._flusher.finish()
            for path in wanted:
                self.gets_on()
                self._place(path)
            for path, (file, content, sha256) in self._moved.items():
                self._put_right(path, file, content)
                self._ledger.note(path, row_of(file, sha256))
            self._ledger.note_origins((*whole, *in_place))
            self._ledger.note_signers(
                {u.key: signers.get(u.key, frozenset()) for u in (*whole, *in_place)}
            )
            self._ledger.write_if_changed(self._places.records)

    def _check_space(self, entries: Iterable[Entry]) -> None:
        sizes: Counter[Path] = Counter()
        for entry in entries:
            sizes[self._folder(entry.path)] += entry.size
        check_space(sizes)

    def _target(self, path: str) -> Path | None:
        if path not in self._targets:
            self._targets[path] = self._places.locate(path)
        return self._targets[path]

    def _locate(self, path: str) -> Path:
        file = self._target(path)
        if file is None:
            raise TccacheError(f"no directory was given for {path}")
        return file

    def _folder(self, path: str) -> Path:
        folder = self._places.folder(path)
        if folder is None:
            raise TccacheError(f"no directory was given for {path}")
        return folder

    def _state(self, entry: Entry) -> State:
        file = self._locate(entry.path)
        row = self._ledger.rows.get(entry.path)
        if row is not None and row.sha256 == entry.sha256 and row.is_at(file):
            return "same"
        return self._compare(entry, file)

    def _compare(self, entry: Entry, file: Path) -> State:
        try:
            data = _read_regular(file)
        except FileNotFoundError:
            return "absent"
        except OSError:
            return "other"
        try:
            content = relocate(data, entry.path) if is_group(entry.path) else data
        except IntegrityError:
            return "damaged"
        if digest_bytes(content) != entry.sha256:
            return "damaged" if self._is_damaged(entry, data) else "other"
        if content is not data and not points_into(data, file.parent, entry.path):
            localised = localise(content, file.parent, entry.path)
            self._moved[entry.path] = (file, localised, entry.sha256)
        else:
            self._ledger.note(entry.path, row_of(file, entry.sha256))
        return "same"

    def _is_damaged(self, entry: Entry, data: bytes) -> bool:
        """Whether other bytes than the entry's are of no use to any compiler.

        Or those of no compiler: files that were seeded under a name that stands for their bytes.
        """
        seeded = self._ledger.rows.get(entry.path)
        changed = seeded is not None and seeded.sha256 == entry.sha256
        return bool(broken(entry.path, data)) or (changed and is_named_by_content(entry.path))

    def _is_staged(self, unit: Unit) -> bool:
        return all(
            entry.path in self._staged or self._state(entry) == "same" for entry in unit.entries
        )

    def _place(self, path: str) -> None:
        staged, target, sha256 = self._staged[path]
        folder = path.rpartition("/")[0]
        if folder not in self._made:
            check_links(self._folder(path), target.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        if path in self._replaced:
            os.rename(staged, target)
        elif not _link(staged, target):
            return
        self._ledger.note(path, row_of(target, sha256))

    def _put_right(self, path: str, file: Path, content: bytes) -> None:
        """Writes a group again, by one rename, in a directory that has moved."""
        staged = self._stage_of(path) / str(next(self._numbers))
        with open(staged, "xb", opener=readable_file) as target:
            target.write(content)
            target.flush()
            os.fdatasync(target.fileno())
        os.rename(staged, file)

    def _stage_of(self, path: str) -> Path:
        folder = self._folder(path)
        if folder not in self._stages:
            check_links(folder, folder)
            folder.mkdir(parents=True, exist_ok=True)
            self._stages[folder] = Path(make_folder(self._stage_prefix, folder))
        return self._stages[folder]

    def _remove_stages(self) -> None:
        """Removes what killed seeders left. They had this lock, so none of it is of use; or, where
        another one shares a directory, what nobody holds."""
        for _, folder in self._places.folders:
            with suppress(OSError):
                for stage in folder.glob(f"{self._stage_prefix}*"):
                    shutil.rmtree(stage, ignore_errors=True)
            remove_left(folder)
        remove_left(self._places.records)


def _link(staged: Path, target: Path) -> bool:
    """Gives the staged file its final name; False if the name is taken."""
    try:
        os.link(staged, target)
    except FileExistsError:
        return False
    except OSError:
        # A file system without hard links. Another program may write a file of the same key
        # between the look and the rename; either of the two serves.
        if os.path.lexists(target):
            return False
        os.rename(staged, target)
    else:
        os.unlink(staged)
    return True


def _read_regular(file: Path) -> bytes:
    # Without O_NONBLOCK a named pipe in the way would be waited for.
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", file)
        return source.read()


def _read_all(source: Readable) -> bytes:
    chunks = []
    while data := source.read(_CHUNK):
        chunks.append(data)
    return b"".join(chunks)
