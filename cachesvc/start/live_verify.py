"""verify_live: whether what lies in this environment's live directory is what it should be."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachesvc.core.errors import TccacheError
from cachesvc.local.leftovers import leftovers
from cachesvc.local.lock import PATIENCE_S, lock_of, take
from cachesvc.local.places import Places
from cachesvc.local.privacy import is_shared
from cachesvc.local.soundness import Soundness, look, put_right, remove_units
from cachesvc.local.walk import remove_all
from cachesvc.runtime.directories import current
from cachesvc.start.access import TrustLike, access
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.target import own_environment


@dataclass(frozen=True, slots=True)
class LiveProblem:
    """A unit that is damaged, and what is wrong with each of its files."""

    unit: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.unit}: {'; '.join(self.problems)}"


@dataclass(frozen=True, slots=True)
class LiveVerification:
    """What was read in a live directory, every problem found, and what was done about it.

    `moved` are groups whose paths lead to where the directory was before, so Triton finds nothing.
    `changed` are seeded files that hold other bytes now, whole as far as can be seen: a compiler
    may have written them again. `leftovers` are files of killed processes. With `repair`, `removed`
    are the keys of the units that are gone, `put_right` the groups that lead to their files again;
    the leftovers are gone, too, but for what `failed` names.
    """

    path: str
    units: int = 0
    files: int = 0
    bytes: int = 0
    problems: tuple[LiveProblem, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    put_right: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all units can be used, now that damaged ones may have been removed."""
        units = {problem.unit for problem in self.problems}
        return units <= set(self.removed) and set(self.moved) <= set(self.put_right)


def verify_live(
    *, trust: TrustLike | None = None, repair: bool = False, progress: Progress = quiet
) -> LiveVerification:
    """Reads every file of the live directory that a start which trusts so would use.

    Each file that was seeded is compared with its digest; one that compilers write again, and by
    its date may have, must be whole as far as can be seen, and so must all others. Each Triton
    group must list files that are there, at the paths where they are, and no file may be another
    user's. Nothing is changed, and nobody is waited for.

    With `repair`, and the lock that seeders take: units that are damaged are removed whole, and
    forgotten, so that the next start brings or compiles them again; groups of a directory that has
    moved are put right; what killed processes have left is removed. What cannot be done is told.
    Raises BusyError if a process seeds for too long; TccacheError where no torch is installed, or
    there is no live directory.
    """
    environment = own_environment()
    if environment is None:
        raise TccacheError("no torch is installed here, so there is no live directory to verify")
    said = access(trust).reading
    live = current(environment, said.trusted(said.signing_keys()).digest)
    work = _Verification(live.places, progress, list(live.notes))
    progress(f"read {live.root}")
    work.read()
    if repair and work.has_found:
        with _locked(live.places):
            work.read()  # somebody may have put it right meanwhile
            work.repair()
    return work.outcome()


@contextmanager
def _locked(places: Places) -> Iterator[None]:
    lock = lock_of(places)
    take(lock, places, PATIENCE_S)
    try:
        yield
    finally:
        lock.release()


@dataclass
class _Verification:
    """One verification under way."""

    places: Places
    progress: Progress
    notes: list[str]
    found: Soundness = field(default_factory=lambda: Soundness(0, 0, 0))
    left: list[str] = field(default_factory=list)
    removed: tuple[str, ...] = ()
    put_right: tuple[str, ...] = ()
    failed: list[str] = field(default_factory=list)

    def read(self) -> None:
        self.found = look(self.places, is_shared=is_shared(os.environ))
        self.left = [str(item.path) for item in leftovers(self.places, time.time())]

    @property
    def has_found(self) -> bool:
        return bool(self.found.damaged or self.found.moved or self.left)

    def repair(self) -> None:
        self.progress(f"remove {len(self.found.damaged)} units")
        units = [damage.unit for damage in self.found.damaged]
        if units:
            self.removed, failed = remove_units(self.places, units)
            self.failed += failed
        if self.found.moved:
            self.put_right = put_right(self.places, self.found.moved)
        for item in leftovers(self.places, time.time()):
            if not remove_all(item.path):
                self.failed.append(f"{item.path} cannot be removed")

    def outcome(self) -> LiveVerification:
        return LiveVerification(
            path=str(self.places.root),
            units=self.found.units,
            files=self.found.files,
            bytes=self.found.bytes,
            problems=tuple(LiveProblem(item.unit, item.problems) for item in self.found.damaged),
            moved=self.found.moved,
            changed=self.found.changed,
            leftovers=tuple(self.left),
            removed=self.removed,
            put_right=self.put_right,
            failed=tuple(self.failed),
            notes=tuple(self.notes),
        )
