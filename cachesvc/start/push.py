"""push: from cache directories, and the mega-cache of this process, into a store."""

from __future__ import annotations

import importlib.metadata
import io
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from cachesvc.core.components import Components
from cachesvc.core.errors import IntegrityError, TccacheError, UsageError
from cachesvc.core.manifest import Origin, Proof
from cachesvc.core.merge import covers
from cachesvc.core.report import Report, Verdict
from cachesvc.local.devices import foreign_devices
from cachesvc.local.ledger import Ledger
from cachesvc.local.megafile import Artifact
from cachesvc.local.needs import unit_needs
from cachesvc.local.tree import FoundFile, FoundUnit, Scan, scan
from cachesvc.repository.pack import ChangedWhilePacked, Source
from cachesvc.repository.publish import Draft, Facts, Publication, held_units, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.runtime.directories import current
from cachesvc.start.bundles import again_if_moved
from cachesvc.start.clock import nonce, now
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled, open_repository
from cachesvc.start.target import EnvironmentLike, Target, target
from cachesvc.start.transfer import capabilities
from cachesvc.start.trees import PathLike, Trees, live_folders
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What is to be pushed: the units, and who made those that were once seeded here."""

    scan: Scan
    origins: Mapping[str, Origin]
    context: Components


def push(
    model: Any,
    *,
    store: StoreLike | None = None,
    trust: str | None = None,
    label: str | None = None,
    inductor_dir: PathLike | None = None,
    triton_dir: PathLike | None = None,
    mega: PathLike | None = None,
    extra: Mapping[str, PathLike] | None = None,
    environment: EnvironmentLike | None = None,
    report: Report | None = None,
    tags: Iterable[str] = (),
    progress: Progress = quiet,
) -> Pushed:
    """Publishes cache directories under a name, or what this process compiled for a model.

    `model` is a name, then the directories and files given are pushed (the live directory if none
    is); or a model, then the live directory and the mega-cache of this process are. A push adds:
    what the store has is not written again, and nothing is taken away. `report`, of the start
    that compiled, puts its seconds and its calls into the manifest. Where TCCACHE_DISABLE is set,
    nothing is done.

    Raises UsageError, UntrustedError, IntegrityError, StoreError, AccessDenied; TccacheError if
    there is nothing to publish.
    """
    if is_disabled():
        address = target(model, label=label, environment=environment).address
        return Pushed(Publication(address, None), 0, 0, 0, warnings=(DISABLED,))
    repository = open_repository(store, trust)
    goal = target(model, label=label, environment=environment)
    trees = Trees(inductor_dir, triton_dir, mega, extra or {})
    facts = _facts(goal, report, tuple(map(_checked_tag, tags)))
    for attempt in range(_ATTEMPTS):
        progress("read the cache directories")
        found = _find(model, goal, trees)
        try:
            return again_if_moved(lambda: _publish(repository, goal, facts, found, progress))  # noqa: B023
        except ChangedWhilePacked:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _find(model: Any, goal: Target, trees: Trees) -> _Found:
    if trees:
        return _Found(scan(trees.folders(), trees.artifacts()), {}, Components())
    environment = goal.environment.digest
    live = current(environment)
    artifacts: tuple[Artifact, ...] = ()
    context = Components()
    if not isinstance(model, str):
        from cachesvc.runtime.context import read_context
        from cachesvc.runtime.megacache import capture

        artifacts, context = capture(), read_context()
    scanned = scan(live_folders(live), artifacts)
    return _Found(scanned, _origins(scanned, Ledger.read(live.places.records)), context)


def _origins(scanned: Scan, ledger: Ledger) -> dict[str, Origin]:
    """Who made the units that were seeded here and have not grown since."""
    return {
        unit.key: ledger.origins[unit.key]
        for unit in scanned.units
        if unit.key in ledger.origins and all(file.path in ledger.rows for file in unit.files)
    }


def _publish(
    repository: Repository, goal: Target, facts: Facts, found: _Found, progress: Progress
) -> Pushed:
    reading = _read(repository, goal)
    stored = (unit for segment in reading.segments for unit in segment.manifest.units)
    host = capabilities(stored, foreign=goal.foreign)
    held = held_units(reading, host)
    missing = [u for u in found.scan.units if not covers(held.get(u.key), len(u.files))]
    damaged: list[str] = []
    drafts = list(_drafts(missing, facts, found, damaged))
    if drafts:
        progress(f"pack {len(drafts)} units")
        mark_format(repository.store)
    elif damaged and len(damaged) == len(found.scan.units):
        reasons = "; ".join(damaged[:3])
        raise IntegrityError(f"nothing to publish under {facts.address}: {reasons}", damaged)
    if not found.scan.units:
        raise TccacheError(
            f"nothing to publish under {facts.address}: no unit was found"
            f"{_passed_over(found.scan)}; compile the model first, or name the directories that"
            " hold its cache"
        )
    if drafts:
        publication = publish(repository, facts, reading, drafts, host)
    else:
        publication = Publication(facts.address, None)
    return Pushed(
        publication=publication,
        units=len(found.scan.units),
        files=found.scan.files,
        bytes=found.scan.size,
        skipped=found.scan.skipped,
        warnings=(*damaged, *_device_warning(missing, goal), *(r.reason for r in reading.refused)),
    )


def _passed_over(scanned: Scan) -> str:
    return "".join(f", {count} {reason} files passed over" for reason, count in scanned.skipped)


def _read(repository: Repository, goal: Target) -> Reading:
    bundle = repository.bundle(goal.address)
    return Reading(goal.address, ()) if bundle is None else repository.read(bundle)


def _drafts(
    units: Iterable[FoundUnit], facts: Facts, found: _Found, damaged: list[str]
) -> Iterator[Draft]:
    """The units as they will be published; one with a damaged library is named and left out."""
    own = Origin(facts.created, facts.address.model, found.context)
    for unit in units:
        try:
            needs = unit_needs(unit)
        except IntegrityError as error:
            damaged.append(f"{unit.key} is left out: {error}")
        else:
            sources = tuple(map(_source, unit.files))
            yield Draft(unit.key, sources, found.origins.get(unit.key, own), needs)


def _source(file: FoundFile) -> Source:
    return Source(file.path, file.size, partial(_open, file))


def _open(file: FoundFile) -> BinaryIO:
    return open(file.source, "rb") if file.content is None else io.BytesIO(file.content)


def _device_warning(units: Iterable[FoundUnit], goal: Target) -> Iterator[str]:
    for shown in foreign_devices(units, goal.environment):
        yield (
            f"kernels for {shown} are published for the device {goal.environment['device']}: give"
            " --environment with the fingerprint of the machine that compiled them"
        )


def _facts(goal: Target, report: Report | None, tags: tuple[str, ...]) -> Facts:
    return Facts(
        address=goal.address,
        environment=goal.environment,
        model=goal.model,
        created=now(),
        nonce=nonce(),
        producer=_producer(),
        coverage=report.coverage if report else (),
        proof=_proof(report) if report else None,
        tags=tags,
    )


def _checked_tag(tag: str) -> str:
    """The tag, or UsageError if it is empty or cannot be written as UTF-8."""
    try:
        if tag.encode():
            return tag
    except UnicodeEncodeError:
        pass
    raise UsageError(f"{tag!a} is no tag: use text in UTF-8")


def _proof(report: Report) -> Proof:
    """What a start that compiled shows: its first call is the cold one."""
    cold = report.verdict in (Verdict.COLD, Verdict.INERT)
    return Proof(
        cold_s=report.first_call_s if cold else report.cold_s,
        warm_s=report.first_call_s if report.verdict is Verdict.WARM else None,
        verdict=report.verdict,
    )


def _producer() -> Components:
    return Components.of(
        {
            "tccache": importlib.metadata.version("tccache"),
            "python": platform.python_version(),
        }
    )
