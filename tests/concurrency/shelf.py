"""What a store should hold, in plain dictionaries, and a store in a dictionary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Literal

from cachesvc.core.address import Address
from cachesvc.core.trust import Trust
from cachesvc.store.contract import Stat, Store
from cachesvc.store.streams import Source, Target

Hurt = Literal["manifest", "pack", "gone", "signature", "wrong"]
"""A manifest or a pack with other bytes, a pack that is gone, no signature in a signature's place,
or a signature of other bytes."""


class Dict(Store):
    """Objects in memory."""

    url = "dict"
    remote = False

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def _fetch(self, key: str, target: Target) -> int | None:
        data = self.held.get(key)
        return None if data is None else target.receive(len(data), [data])

    def _put(self, key: str, source: Source) -> None:
        self.held[key] = source.whole()

    def _list(self, prefix: str) -> Iterator[Stat]:
        return (self._at_some_time(key) for key in sorted(self.held) if key.startswith(prefix))

    def _stat(self, key: str) -> Stat | None:
        return self._at_some_time(key) if key in self.held else None

    def _delete(self, key: str) -> None:
        self.held.pop(key, None)

    def _at_some_time(self, key: str) -> Stat:
        return Stat(key, len(self.held[key]), datetime(2025, 1, 1, tzinfo=timezone.utc))


@dataclass(frozen=True)
class Version:
    """A unit as one pusher made it at some time."""

    key: str
    created: str
    files: int

    @property
    def rank(self) -> tuple[int, str]:
        """More files count more, then being younger."""
        return self.files, self.created

    @property
    def contents(self) -> dict[str, bytes]:
        """Its files, none of which is like a file of any other version."""
        said = f"{self.key} {self.created}"
        return {f"{self.key}/{n}": f"{said} {n}".encode() for n in range(self.files)}


View = dict[str, Version]


def best(views: Iterable[View]) -> View:
    """Of each key the version that counts most."""
    found: View = {}
    for view in views:
        for key, version in view.items():
            if key not in found or found[key].rank < version.rank:
                found[key] = version
    return found


@dataclass(frozen=True)
class Written:
    """A segment that somebody has written."""

    address: Address
    name: str
    units: View
    signers: frozenset[str]
    supersedes: frozenset[str]
    hurt: Hurt | None = None

    def is_read(self, trust: Trust, *, signed: bool) -> bool:
        """Whether who trusts so reads it; `signed` if it is asked who has signed it."""
        if self.hurt == "manifest":
            return False
        if trust.keys is None:
            return not (signed and self.hurt == "signature")
        return not trust.keys.isdisjoint(self.known_signers)

    @property
    def known_signers(self) -> frozenset[str]:
        return frozenset() if self.hurt in ("signature", "wrong") else self.signers

    @property
    def has_its_pack(self) -> bool:
        return self.hurt not in ("pack", "gone")


@dataclass
class Shelf:
    """The segments that are there, by name, and all that ever were."""

    there: dict[str, Written] = field(default_factory=dict)
    known: dict[str, Written] = field(default_factory=dict)

    def at(self, address: Address) -> list[Written]:
        return [written for written in self.there.values() if written.address == address]

    def read(self, address: Address, trust: Trust, *, signed: bool = False) -> list[Written]:
        """The live ones of those that are read."""
        read = [w for w in self.at(address) if w.is_read(trust, signed=signed)]
        gone = {name for written in read for name in written.supersedes}
        return [written for written in read if written.name not in gone]

    def view(self, address: Address, trust: Trust) -> View:
        """What who trusts so finds."""
        return best(written.units for written in self.read(address, trust))

    def sure(self, address: Address, trust: Trust) -> View:
        """What of it nobody but a remover may take away: neither damaged, nor given up in favour of
        what is damaged."""
        broken = [written for written in self.at(address) if written.hurt]
        given_up = {name for written in broken for name in written.supersedes}
        found = self.read(address, trust)
        return best(w.units for w in found if not w.hurt and w.name not in given_up)

    def add(
        self,
        address: Address,
        name: str,
        fresh: View,
        *,
        signers: frozenset[str],
        older: set[str],
        lied: Collection[str] = (),
    ) -> None:
        """A segment with these units and with all that it supersedes, but for what is a lie."""
        merged = older.difference(*(self.known[each].supersedes for each in older))
        units = best([fresh, *(self.known[each].units for each in merged.difference(lied))])
        written = Written(address, name, units, signers, frozenset(older))
        self.there[name] = self.known[name] = written

    def is_held_without(self, gone: Written) -> bool:
        """Whether all that a segment held is there for everyone who could trust it."""
        others = [
            other.units
            for other in self.at(gone.address)
            if other.hurt != "manifest" and other.known_signers >= gone.known_signers
        ]
        held = best(others)
        return all(k in held and held[k].files >= each.files for k, each in gone.units.items())

    def hurt(self, name: str, how: Hurt) -> None:
        self.there[name] = replace(self.there[name], hurt=how)
