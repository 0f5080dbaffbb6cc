"""Named components: what a key is made of, kept so that a miss can be explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachesvc.core.digest import digest_json
from cachesvc.core.kept import kept
from cachesvc.core.spelled import spelled


@dataclass(frozen=True, slots=True)
class Difference:
    """One component that is not the same on both sides; None where a side lacks it."""

    component: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{spelled(self.component)}: {_shown(self.old)} -> {_shown(self.new)}"


def _shown(value: str | None) -> str:
    return "absent" if value is None else spelled(value) or "''"


def _unicode(text: str) -> str:
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class Components(Mapping[str, str]):
    """An immutable mapping of component name to text, with a digest over all of them."""

    items_: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Components:
        """The components by name; what is not Unicode, as a path may be, is spelled out."""
        return cls(tuple(sorted((_unicode(name), _unicode(text)) for name, text in values.items())))

    @kept
    def _index(self) -> dict[str, str]:
        return dict(self.items_)

    @kept
    def digest(self) -> str:
        """64 hex digits; equal exactly when all names and values are equal."""
        return digest_json(self._index)

    def __getitem__(self, name: str) -> str:
        return self._index[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.items_)

    def __hash__(self) -> int:
        return hash(self.items_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Components) and self.items_ == other.items_

    def diff(self, new: Mapping[str, str]) -> tuple[Difference, ...]:
        """Every component that differs from `new`, ordered by name."""
        names = sorted({*self, *new})
        pairs = ((name, self.get(name), new.get(name)) for name in names)
        return tuple(Difference(name, old, now) for name, old, now in pairs if old != now)
