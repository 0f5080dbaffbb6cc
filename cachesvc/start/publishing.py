"""Publication of what was found in cache directories: what the store lacks is added."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from cachesvc.core.errors import IntegrityError, TccacheError, UsageError
from cachesvc.core.manifest import Origin
from cachesvc.core.merge import covers
from cachesvc.core.proof import Proof
from cachesvc.core.trust import shown_keys
from cachesvc.local.devices import foreign_devices
from cachesvc.local.needs import unit_needs
from cachesvc.local.tree import FoundFile, FoundUnit
from cachesvc.repository.pack import ChangedWhilePacked, Source
from cachesvc.repository.publish import Draft, Facts, Publication, held_units, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.start.bundles import again_if_moved
from cachesvc.start.clock import nonce, now
from cachesvc.start.goods import Goods
from cachesvc.start.producer import producer
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.target import Target
from cachesvc.start.transfer import capabilities
from cachesvc.store.location import mark_format

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push found and wrote. `publication.segment` is None if the store had it all."""

    publication: Publication
    units: int
    files: int
    bytes: int
    skipped: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()


def facts_of(
    goal: Target,
    *,
    coverage: tuple[str, ...] = (),
    proof: Proof | None = None,
    tags: tuple[str, ...] = (),
) -> Facts:
    """What the manifest of a publication made now says beside its units."""
    return Facts(
        address=goal.address,
        environment=goal.environment,
        model=goal.model,
        created=now(),
        nonce=nonce(),
        producer=producer(),
        coverage=coverage,
        proof=proof,
        tags=tags,
    )


def publish_goods(
    repository: Repository,
    goal: Target,
    facts: Facts,
    collect: Callable[[], Goods],
    progress: Progress = quiet,
) -> Pushed:
    """Publishes what `collect` finds, again if a file changed while it was read.

    Where keys sign, what others have compiled and these keys have not signed is left out. Raises
    UsageError where keys are trusted and none signs: nobody like this process would use what it
    publishes; TccacheError if there is nothing to publish, IntegrityError if all of it is damaged,
    and what the store raises.
    """
    require_key(repository)
    for attempt in range(_ATTEMPTS):
        progress("read the cache directories")
        goods = collect()
        _check_live(goods, repository)
        goods = goods.signable(repository.signing)
        try:
            return again_if_moved(lambda: _publish(repository, goal, facts, goods, progress))  # noqa: B023
        except ChangedWhilePacked:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def require_key(repository: Repository) -> None:
    """Raises UsageError where what is published would be of no use to readers like this process:
    it would not be signed, or by a key that is not trusted here."""
    trust, signing = repository.trust, repository.signing
    if trust.is_everyone and not signing & trust.revoked:
        return
    if not signing:
        raise UsageError(
            f"what is published to {repository.store.url} would not be signed, and only what is"
            " signed is used here: sign it with --sign-with FILE, TCCACHE_SIGN_WITH or sign_with="
        )
    if not signing <= trust.accepted:
        raise UsageError(
            f"what is published to {repository.store.url} would be signed by"
            f" {shown_keys(signing - trust.accepted)}, which is not trusted here, or is revoked:"
            " trust its public half too, or sign with another key"
        )


def _check_live(goods: Goods, repository: Repository) -> None:
    """Nobody signs what lies where others may have left anything."""
    live, trust = goods.live, repository.trust
    if not repository.keys or live is None:
        return
    if trust.is_everyone or live.trust != trust.digest:
        raise UsageError(
            f"what lies in {live.root} cannot be signed: whoever could write to the store was"
            " trusted when it was filled, so it may hold what others have made; trust keys from the"
            " first start on (TCCACHE_TRUST=FILE.pub), sign with `tccache build`, or name the"
            " directories that are to be signed"
        )


def _publish(
    repository: Repository, goal: Target, facts: Facts, goods: Goods, progress: Progress
) -> Pushed:
    reading = _read(repository, goal)
    stored = (unit for segment in reading.segments for unit in segment.manifest.units)
    host = capabilities(stored, foreign=goal.foreign)
    held = held_units(reading, host, repository.signing)
    missing = [u for u in goods.scan.units if not covers(held.get(u.key), len(u.files))]
    damaged: list[str] = []
    drafts = list(_drafts(missing, facts, goods, damaged))
    if drafts:
        progress(f"pack {len(drafts)} units")
        mark_format(repository.store)
    elif damaged and len(damaged) == len(goods.scan.units):
        reasons = "; ".join(damaged[:3])
        raise IntegrityError(f"nothing to publish under {facts.address}: {reasons}", damaged)
    if not goods.scan.units:
        raise TccacheError(
            f"nothing to publish under {facts.address}: no unit was found"
            f"{_passed_over(goods)}; compile the model first, or name the directories that"
            " hold its cache"
        )
    if drafts:
        publication = publish(repository, facts, reading, drafts, host)
    else:
        publication = Publication(facts.address, None)
    return Pushed(
        publication=publication,
        units=len(goods.scan.units),
        files=goods.scan.files,
        bytes=goods.scan.size,
        skipped=goods.scan.skipped,
        warnings=(
            *damaged,
            *publication.warnings,
            *_left_unsigned(goods),
            *_device_warning(missing, goal),
            *(refused.reason for refused in reading.refused),
        ),
    )


def _passed_over(goods: Goods) -> str:
    skipped = [f", {count} {reason} files passed over" for reason, count in goods.scan.skipped]
    return "".join([*skipped, *(f"; {text}" for text in _left_unsigned(goods))])


def _read(repository: Repository, goal: Target) -> Reading:
    bundle = repository.bundle(goal.address)
    return Reading(goal.address, ()) if bundle is None else repository.read(bundle, signed=True)


def _drafts(
    units: Iterable[FoundUnit], facts: Facts, goods: Goods, damaged: list[str]
) -> Iterator[Draft]:
    """The units as they will be published; one with a damaged library is named and left out."""
    own = Origin(facts.created, facts.address.model, goods.context)
    for unit in units:
        try:
            needs = unit_needs(unit)
        except IntegrityError as error:
            damaged.append(f"{unit.key} is left out: {error}")
        else:
            sources = tuple(map(_source, unit.files))
            yield Draft(unit.key, sources, goods.origins.get(unit.key, own), needs)


def _source(file: FoundFile) -> Source:
    return Source(file.path, file.size, partial(_open, file))


def _open(file: FoundFile) -> BinaryIO:
    return open(file.source, "rb") if file.content is None else io.BytesIO(file.content)


def _left_unsigned(goods: Goods) -> Iterator[str]:
    if count := len(goods.unsigned):
        first = min(goods.unsigned)
        more = f" and {count - 1} more units" if count > 1 else ""
        yield (
            f"{first}{more}: not signed, since they were brought here and this key has not signed"
            " them: sign what was compiled here, or name the directories that hold them"
        )


def _device_warning(units: Iterable[FoundUnit], goal: Target) -> Iterator[str]:
    for shown in foreign_devices(units, goal.environment):
        yield (
            f"kernels for {shown} are published for the device {goal.environment['device']}: give"
            " --environment with the fingerprint of the machine that compiled them"
        )
