"""pull: from a store into cache directories, before any process needs them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.errors import BundleNotFound
from cachesvc.core.report import Transfer
from cachesvc.local.in_use import holding
from cachesvc.local.megafile import Artifact, put_together
from cachesvc.local.places import RECORDS, Places
from cachesvc.local.whole import write_whole
from cachesvc.repository.repository import Repository
from cachesvc.repository.scratch import scratch
from cachesvc.runtime.directories import current
from cachesvc.start.access import TrustLike
from cachesvc.start.bring import brought_of, held_tiers, remember
from cachesvc.start.bundles import Selection, again_if_moved, select
from cachesvc.start.deadline import Deadline, within
from cachesvc.start.given_path import directory
from cachesvc.start.options import seconds_if_any
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.refusals import unusable
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled, open_repository
from cachesvc.start.target import EnvironmentLike
from cachesvc.start.transfer import Holdings, holdings, seed
from cachesvc.start.trees import PathLike, Trees

_GAVE_UP = "nothing was brought; pull again, or give it more time"


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull found and where its units lie now; nothing found is not an error."""

    bundles: tuple[str, ...]
    transfer: Transfer
    directories: tuple[tuple[str, str], ...] = ()
    artifacts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        return bool(self.bundles)


def pull(
    model: Any,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    label: str | None = None,
    inductor_dir: PathLike | None = None,
    triton_dir: PathLike | None = None,
    mega: PathLike | None = None,
    extra: Mapping[str, PathLike] | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
    require: bool = False,
    deadline: float | None = None,
    progress: Progress = quiet,
) -> Pulled:
    """Seeds what a store holds for a name, or a model, on this machine.

    `model` is a name, then every model under it is brought; or a model. Without directories the
    live directory is seeded; with some, just these sections are brought to them. `mega` is a file
    to write the mega-cache to. `environment` is another machine's fingerprint, or the first digits
    of its digest; what is brought for another machine is not checked against this one. Where
    TCCACHE_DISABLE is set, nothing is done.

    `deadline` is in seconds (default TCCACHE_DEADLINE, else there is none): once it has passed,
    nothing enters a directory any more, and StoreError is raised, whatever the store does.

    Raises BundleNotFound if `require` and nothing was found; UsageError, UntrustedError,
    IntegrityError, StoreError, AccessDenied; BusyError if another process seeds for too long.
    """
    if is_disabled():
        return Pulled((), Transfer(), notes=(DISABLED,))
    trees = Trees(inductor_dir, triton_dir, mega, extra or {})

    def work(limit: Deadline) -> Pulled:
        repository = open_repository(store, trust)

        def attempt() -> Pulled:
            progress("look for bundles")
            chosen = select(repository, model, label=label, environment=environment, salt=salt)
            return _bring(repository, chosen, trees, progress, limit)

        pulled = again_if_moved(attempt)
        if require and not pulled.transfer.present + pulled.transfer.kept:
            raise _nothing(label or _shown(model), repository, pulled)
        return pulled

    return within(seconds_if_any(deadline), work, outcome=_GAVE_UP)


def _nothing(name: str, repository: Repository, pulled: Pulled) -> BundleNotFound:
    return BundleNotFound(
        f"no bundle for {name} and this environment in {repository.store.url}:"
        f" {_why(pulled) or 'see `tccache ls`, or push one'}"
    )


def _shown(model: Any) -> str:
    return model if isinstance(model, str) else type(model).__name__


def _why(pulled: Pulled) -> str:
    """Why nothing of what there is can be used here, if that is so."""
    return "; ".join(f"left out, {text}" for text in pulled.transfer.left_out)


def _bring(
    repository: Repository, chosen: Selection, trees: Trees, progress: Progress, limit: Deadline
) -> Pulled:
    found = holdings(repository, chosen.bundles, foreign=chosen.foreign)
    refused = tuple(item.reason for item in found.refused)
    if not found.units:
        if refused and not found.segments:
            raise unusable(found.refused)
        return Pulled((), Transfer(left_out=found.left_out), notes=refused)
    with scratch("mega") as folder, ExitStack() as held:
        places, notes = _places(found, trees, folder, repository.trust.digest)
        if not trees:  # a collector may be at work
            held.enter_context(limit.holding(held.enter_context(holding(places))))
        transfer = seed(repository, found, places, progress=progress, deadline=limit)
        artifacts = _write_mega(found, places, trees)
        for tier in () if trees else held_tiers(found):
            remember(repository, places, chosen, found, brought_of(found, transfer, places, tier))
    return Pulled(
        bundles=found.addresses,
        transfer=transfer,
        directories=_directories(found, places, trees.mega if artifacts else None, trees),
        artifacts=artifacts,
        notes=(*notes, *refused),
    )


def _places(
    found: Holdings, trees: Trees, spare: Path, trust: str | None
) -> tuple[Places, tuple[str, ...]]:
    """The live directory, or just the directories that were named."""
    if not trees:
        manifest = found.newest
        assert manifest is not None  # noqa: S101 - units come from manifests
        live = current(manifest.address.environment, trust)
        return live.places, live.notes
    folders = tuple(trees.targets())
    root = folders[0][1] if folders else spare
    mega = (("megacache", root / RECORDS / "megacache"),) if trees.mega is not None else ()
    return Places(root, (*folders, *mega)), ()


def _write_mega(found: Holdings, places: Places, trees: Trees) -> int:
    """Puts the mega-cache file together out of its seeded artifacts; how many it holds."""
    if trees.mega is None:
        return 0
    paths = [e.path for u in found.units.values() if u.section == "megacache" for e in u.entries]
    files = [(path, places.locate(path)) for path in paths]
    artifacts = [Artifact.from_bytes(f.read_bytes(), path) for path, f in files if f is not None]
    if artifacts:
        write_whole(directory(trees.mega), put_together(artifacts))
    return len(artifacts)


def _directories(
    found: Holdings, places: Places, mega: PathLike | None, trees: Trees
) -> tuple[tuple[str, str], ...]:
    """Where each section that was brought lies now; of a mega-cache, the file if it was written."""
    prefixes = {prefix for prefix, _ in places.folders}
    held = {prefix for prefix in prefixes for key in found.units if key.startswith(prefix + "/")}
    shown = [(prefix, str(folder)) for prefix, folder in places.folders if prefix in held]
    if trees:
        shown = [(prefix, folder) for prefix, folder in shown if prefix != "megacache"]
        shown += [("megacache", str(directory(mega)))] if mega else []
    return tuple(shown)
