"""What bundles hold in readable form: their graphs and kernels, and the code of each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from cachesvc.core.code import Choice, Code, choices, choose, merged
from cachesvc.core.errors import BundleNotFound
from cachesvc.core.graph import Contents
from cachesvc.core.manifest import Entry, Unit
from cachesvc.core.merge import Segment, fewest_packs, merge
from cachesvc.local.graphs import contents
from cachesvc.local.opened import MAX_BYTES, code_in, is_read, open_entry, unopened
from cachesvc.repository.listing import Bundle
from cachesvc.repository.pack import copy
from cachesvc.repository.repository import Repository
from cachesvc.repository.scratch import scratch
from cachesvc.start.access import TrustLike
from cachesvc.start.bundles import again_if_moved
from cachesvc.start.inspect import required
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.refusals import unusable
from cachesvc.start.settings import StoreLike, open_repository


def show_graphs(
    bundle: str,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    progress: Progress = quiet,
) -> tuple[Contents, ...]:
    """What each bundle holds that a name, digest or address means.

    Brings the packs into a scratch folder and reads their entries as data: nothing in them is
    unpickled or run, and no torch is needed. An entry of an unknown form is named in
    `unreadable`. Raises BundleNotFound if nothing is meant, UntrustedError if none of it is
    trusted, IntegrityError if a pack or an entry is not what its manifest says.
    """
    repository = open_repository(store, trust)
    return again_if_moved(
        lambda: tuple(
            _contents(repository, item, progress) for item in required(repository, bundle)
        )
    )


def show_code(
    bundle: str,
    code: str,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    progress: Progress = quiet,
) -> Code:
    """The code of one graph or kernel of the bundles meant.

    `code` is a key, an entry's path, a kernel's name, or the start of one; `.FORM` behind it asks
    for another form: `fx` of a graph, `ptx` or `ttir` of a Triton build. Raises UsageError, naming
    what there is, if that is nothing or may be several; else as `show_graphs`.
    """
    repository = open_repository(store, trust)
    return again_if_moved(lambda: _code(repository, required(repository, bundle), code, progress))


def _contents(repository: Repository, bundle: Bundle, progress: Progress) -> Contents:
    reading = repository.read(bundle)
    if reading.refused and not reading.segments:
        raise unusable(reading.refused)
    segments = reading.segments
    units = _union(segments)
    opened = [
        open_entry(entry, data)
        for entry, data in _bytes(repository, segments, units, _is_opened, progress)
    ]
    large = [
        unopened(entry)
        for unit in units
        for entry in unit.entries
        if is_read(entry.path) and entry.size > MAX_BYTES
    ]
    return contents(bundle.address, units, [*opened, *large])


def _is_opened(entry: Entry) -> bool:
    return is_read(entry.path) and entry.size <= MAX_BYTES


def _union(segments: Sequence[Segment]) -> tuple[Unit, ...]:
    return tuple(merge(unit for segment in segments for unit in segment.units).values())


def _bytes(
    repository: Repository,
    segments: Sequence[Segment],
    units: Sequence[Unit],
    wanted: Callable[[Entry], bool],
    progress: Progress,
) -> Iterator[tuple[Entry, bytes]]:
    """The wanted entries of these units, verified; one pack at a time lies in a scratch folder."""
    needed = {unit.key: unit for unit in units if any(map(wanted, unit.entries))}
    for segment, chosen in fewest_packs(segments, needed).parts:
        progress(f"read {segment.manifest.address} {segment.name[:12]}")
        entries = [entry for unit in chosen for entry in unit.entries if wanted(entry)]
        with scratch("show") as folder:
            pack = folder / "pack"
            repository.fetch(segment, pack)
            for entry, stream in repository.entries(segment, pack, entries):
                data = io.BytesIO()
                copy(stream, data)
                yield entry, data.getvalue()


def _code(
    repository: Repository, bundles: Sequence[Bundle], asked: str, progress: Progress
) -> Code:
    """Reads every bundle to know what there is, then the one entry that is meant."""
    places: dict[str, Bundle] = {}
    known: list[Choice] = []
    for bundle in bundles:
        for choice in choices(_contents(repository, bundle, progress)):
            known.append(choice)
            places.setdefault(choice.key, bundle)
    choice, form = choose(merged(known), asked)
    path = dict(choice.forms)[form]
    segments = repository.read(places[choice.key]).segments
    found = _bytes(
        repository, segments, _union(segments), lambda entry: entry.path == path, progress
    )
    for entry, data in found:
        text = code_in(entry, data, form, choice.kernel)
        return Code(choice.key, choice.name, form, path, text)
    raise BundleNotFound(f"{path} is gone from {repository.store.url}: ask again")
