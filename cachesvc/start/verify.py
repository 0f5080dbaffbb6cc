"""verify: whether a store holds what it says, and the removal of what can never be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cachesvc.core.errors import StoreError
from cachesvc.repository.gc import Deletion, Outcome, Plan, carry_out, orphans, within
from cachesvc.repository.grace import GRACE_S, Grace
from cachesvc.repository.listing import bundles
from cachesvc.repository.soundness import Checked, check_bundle
from cachesvc.start.access import TrustLike
from cachesvc.start.inspect import required
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.store.contract import Stat
from cachesvc.store.location import FORMAT_KEY

_OF_NO_BUNDLE = (FORMAT_KEY, "leases/")


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked, and every problem found.

    problems: what is not as it should be, and was not repaired.
    orphans: packs and signatures that no manifest names.
    unknown: objects whose names are none of a store's; nothing is ever done to them.
    marked: whether the store says its format; the next push says it.
    repaired: what was deleted, or would be, so that the next push writes it again.
    failure: what ended a repair before it was done; not raised, so that what was done is known.
    """

    bundles: int
    segments: int
    entries: int
    bytes: int
    problems: tuple[str, ...]
    orphans: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    marked: bool = True
    repaired: tuple[Deletion, ...] = ()
    failure: StoreError | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(
    bundle: str | None = None,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    repair: bool = False,
    agreed: Verification | None = None,
    dry_run: bool = False,
    progress: Progress = quiet,
) -> Verification:
    """Checks every manifest, signature, pack and entry of a store, or of the bundles meant.

    Problems are named in the result, not raised; superseded segments are checked too. `repair`
    deletes what no reader can ever use: a manifest that is not what its name says, a segment whose
    pack is gone or damaged, what lies in a signature's place and is none, packs without a manifest
    that have been there for a day. Segments that are only not trusted, or of a newer format, stay
    and are problems. `dry_run` says what a repair would delete; where `agreed`, the result of one,
    is given, nothing is deleted that is not in it.

    Raises UsageError, UntrustedError, IntegrityError for a store of another format, StoreError,
    BundleNotFound if nothing is meant.
    """
    repository = open_repository(store, trust)
    grace = Grace(repository.store.now(), GRACE_S) if repair else None
    objects = list(repository.store.list()) if bundle is None else []
    found = bundles(objects) if bundle is None else required(repository, bundle)
    checked = [check_bundle(repository, item, progress) for item in found]
    done = _verification(checked, objects)
    if grace is None:
        return done
    planned = Plan((*_cures(checked), *_old_orphans(checked, grace)))
    if agreed is not None:
        planned = within(planned, agreed.repaired)
    if dry_run:
        return replace(done, repaired=planned.deletions)
    return _repaired(done, checked, carry_out(planned, repository.store, progress))


def _verification(checked: Sequence[Checked], objects: Sequence[Stat]) -> Verification:
    known = {stat.key for item in checked for stat in item.bundle.objects}
    return Verification(
        bundles=len(checked),
        segments=sum(item.segments for item in checked),
        entries=sum(item.entries for item in checked),
        bytes=sum(item.bytes for item in checked),
        problems=tuple(problem.reason for item in checked for problem in item.problems),
        orphans=tuple(stat.key for item in checked for stat in item.bundle.orphans),
        unknown=tuple(
            stat.key
            for stat in objects
            if stat.key not in known and not stat.key.startswith(_OF_NO_BUNDLE)
        ),
        marked=not objects or any(stat.key == FORMAT_KEY for stat in objects),
    )


def _cures(checked: Iterable[Checked]) -> Iterator[Deletion]:
    for item in checked:
        yield from (problem.cure for problem in item.problems if problem.cure is not None)


def _old_orphans(checked: Iterable[Checked], grace: Grace) -> Iterator[Deletion]:
    for item in checked:
        found = orphans(item.bundle, grace)
        yield from (orphan for orphan in found if isinstance(orphan, Deletion))


def _repaired(done: Verification, checked: Sequence[Checked], outcome: Outcome) -> Verification:
    """What is left after a repair."""
    cured = set(outcome.deleted)
    gone = {stat.key for deletion in outcome.deleted for stat in deletion.objects}
    problems = (problem for item in checked for problem in item.problems)
    return replace(
        done,
        problems=tuple(problem.reason for problem in problems if problem.cure not in cured),
        orphans=tuple(key for key in done.orphans if key not in gone),
        repaired=outcome.deleted,
        failure=outcome.failure,
    )
