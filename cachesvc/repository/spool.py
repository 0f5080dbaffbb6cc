"""What is stored already, brought to disk so that it can be packed anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Unit
from cachesvc.core.merge import Segment, fewest_packs
from cachesvc.repository.listing import MANIFEST, object_key
from cachesvc.repository.pack import Source, copy
from cachesvc.repository.repository import PackMissing, Repository


class Damaged(IntegrityError):
    """Segments whose packs are not what their manifests say: the name of each, and the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


def spooled(
    repository: Repository, segments: tuple[Segment, ...], wanted: Mapping[str, Unit], folder: Path
) -> Iterator[Source]:
    """The files of the wanted units, verified, one pack after the other.

    Raises Damaged once all packs were tried, PackMissing at once if a segment is not there any
    more.
    """
    damaged: dict[str, str] = {}
    for segment, units in fewest_packs(segments, wanted).parts:
        try:
            yield from _unpacked(repository, segment, units, folder)
        except IntegrityError as error:
            if isinstance(error, PackMissing) and _is_gone(repository, segment):
                raise
            damaged[segment.name] = str(error)
    if damaged:
        raise Damaged(damaged)


def _is_gone(repository: Repository, segment: Segment) -> bool:
    """Whether a segment was deleted since it was read: its manifest goes first, its pack last."""
    key = object_key(segment.manifest.address, segment.name, MANIFEST)
    return repository.store.stat(key) is None


def _unpacked(
    repository: Repository, segment: Segment, units: Iterable[Unit], folder: Path
) -> Iterator[Source]:
    pack = folder / segment.name
    repository.fetch(segment, pack)
    entries = [entry for unit in units for entry in unit.entries]
    for number, (entry, stream) in enumerate(repository.entries(segment, pack, entries)):
        file = folder / f"{segment.name}-{number}"
        with open(file, "wb") as target:
            copy(stream, target)
        yield Source(entry.path, entry.size, partial(_open, file))
    pack.unlink()


def _open(file: Path) -> BinaryIO:
    return open(file, "rb")
