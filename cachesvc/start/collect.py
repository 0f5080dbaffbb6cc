"""collect: a store is rid of what nobody needs any more, and of what a policy is against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from cachesvc.core.address import Address
from cachesvc.core.errors import IntegrityError, TccacheError, UsageError
from cachesvc.repository.gc import Deletion, Judged, Kept, Outcome, carry_out, judge, plan, within
from cachesvc.repository.grace import GRACE_S, MIN_GRACE_S, Grace
from cachesvc.repository.policy import Policy
from cachesvc.repository.publish import Facts, mergeable, unite
from cachesvc.repository.repository import Repository
from cachesvc.start.access import Paths, TrustLike, access
from cachesvc.start.bundles import again_if_moved
from cachesvc.start.clock import nonce, now
from cachesvc.start.producer import producer
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.settings import StoreLike, open_repository


@dataclass(frozen=True, slots=True)
class Collected:
    """What was deleted and merged, or would be; and what stays that might be expected to go.

    merged: addresses whose live segments are one now, and how many there were.
    bytes_left: what the bundles that were there hold afterwards.
    failure: what ended the work before it was done. It is not raised, so that what was done before
        it is known.
    """

    dry_run: bool
    deleted: tuple[Deletion, ...]
    merged: tuple[tuple[Address, int], ...]
    kept: tuple[Kept, ...]
    bytes_left: int
    failure: TccacheError | None = None

    @property
    def objects(self) -> int:
        """How many objects were deleted."""
        return sum(len(deletion.objects) for deletion in self.deleted)

    @property
    def bytes(self) -> int:
        """How many bytes they had."""
        return sum(deletion.bytes for deletion in self.deleted)


def collect(
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    policy: Policy | None = None,
    grace_s: float = GRACE_S,
    merge: bool = False,
    agreed: Collected | None = None,
    dry_run: bool = False,
    progress: Progress = quiet,
) -> Collected:
    """Deletes superseded segments, packs that no manifest names, and bundles that `policy` is
    against.

    Nothing that was written, or superseded, less than `grace_s` seconds ago by the store's clock is
    deleted; the least is an hour, since a push may take half of that. What `trust` does not accept
    counts for nothing: only a policy deletes it, see there. Age is left to the policy, whatever the
    trust says of it. `merge` makes one segment of several where no host loses by that, signed by
    `sign_with`; the merged ones go in a later run. Without it nothing is written. Where `agreed`,
    the result of a dry run, is given, nothing is deleted or merged that is not in it.

    Raises UsageError, UntrustedError, IntegrityError for a store of another format, StoreError if
    it cannot be read; a failure after the first change is in the result.
    """
    if not grace_s >= MIN_GRACE_S:
        raise UsageError(
            f"a grace time of {grace_s:g} s is too short: give {MIN_GRACE_S:.0f} s or more, a push"
            " may take half of that"
        )
    repository = open_repository(store, access(trust, sign_with), signs=merge)
    if merge and not (repository.trust.is_everyone or repository.keys):
        raise UsageError(
            "what is trusted by keys is merged by who signs: name a private key by --sign-with,"
            ' TCCACHE_SIGN_WITH or sign_with="FILE"'
        )
    return collect_in(
        repository,
        policy or Policy(),
        grace_s,
        merge=merge,
        agreed=agreed,
        dry_run=dry_run,
        progress=progress,
    )


def collect_in(
    repository: Repository,
    policy: Policy,
    grace_s: float,
    *,
    merge: bool = False,
    agreed: Collected | None = None,
    dry_run: bool = False,
    progress: Progress = quiet,
) -> Collected:
    """As `collect`, with any grace time."""
    grace = Grace(repository.store.now(), grace_s)  # before the list, so that nothing looks older
    judged: list[Judged] = []
    several: dict[Address, int] = {}
    ageless = Repository(repository.store, replace(repository.trust, max_age_s=None))
    for bundle in repository.bundles():
        progress(f"read {bundle.address}")
        judged.append(judge(bundle, ageless.read(bundle, superseded=True, signed=True), grace))
        if merge and len(bundle.segments) > 1:
            chosen = mergeable(repository, repository.read(bundle, signed=True))
            several |= {bundle.address: len(chosen)} if chosen else {}
    planned = plan(judged, policy, grace)
    for deletion in planned.deletions:
        if deletion.cause == "policy":
            several.pop(deletion.address, None)
    if agreed is not None:
        planned = within(planned, agreed.deleted)
        several = {a: n for a, n in several.items() if a in dict(agreed.merged)}
    done = Outcome(planned.deletions) if dry_run else carry_out(planned, repository.store, progress)
    collected = Collected(
        dry_run=dry_run,
        deleted=done.deleted,
        merged=tuple(several.items()) if dry_run else (),
        kept=planned.kept,
        bytes_left=sum(j.candidate.bundle.size for j in judged) - done.bytes,
        failure=done.failure,
    )
    if dry_run or done.failure is not None:
        return collected
    return _merge_all(repository, several, collected, progress)


def _merge_all(
    repository: Repository, several: Mapping[Address, int], collected: Collected, progress: Progress
) -> Collected:
    """Merges what is mergeable at these addresses now; ends at the first failure."""
    merged: list[tuple[Address, int]] = []
    kept = list(collected.kept)
    failure: TccacheError | None = None
    for address in several:
        progress(f"merge {address}")
        try:
            if number := again_if_moved(partial(_merge, repository, address)):
                merged.append((address, number))
        except IntegrityError as error:  # of this bundle, so the others can be merged all the same
            kept.append(Kept(address, None, f"it is not merged: {error}"))
        except TccacheError as error:
            failure = error
            break
    return replace(collected, merged=tuple(merged), kept=tuple(kept), failure=failure)


def _merge(repository: Repository, address: Address) -> int:
    """How many segments were made one; 0 if there is nothing to merge any more."""
    bundle = repository.bundle(address)
    if bundle is None:
        return 0
    reading = repository.read(bundle, signed=True)
    chosen = mergeable(repository, reading)
    if not chosen:
        return 0
    newest = chosen[-1].manifest
    facts = Facts(
        address=address,
        environment=newest.environment,
        model=newest.model,
        created=now(),
        nonce=nonce(),
        producer=producer(),
    )
    unite(repository, facts, reading)
    return len(chosen)
