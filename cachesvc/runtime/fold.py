"""Facts of many places folded: what most of like places share is said once, exceptions by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from cachesvc.core.digest import Json

_NUMBER = re.compile(r"(^|\.)\d+(?=\.|$)")
_LIKE = 3  # fewer than that have no majority
Facts = Mapping[str, Json]


def like(path: str) -> str:
    """A path with `*` in the place of each number: what like places have in common."""
    return _NUMBER.sub(r"\1*", path)


def fold(places: Mapping[str, Facts], group: Callable[[str], str] = like) -> dict[str, Facts]:
    """The same facts, shorter: those that more than half of a group's places share under the
    group's name, what a place has otherwise under its own.

    For the same places, equal results mean equal facts. Where one place of four or more has other
    facts, only what is said of that place changes.
    """
    groups: dict[str, list[str]] = {}
    for path in places:
        groups.setdefault(group(path), []).append(path)
    folded: dict[str, Facts] = {}
    for name, paths in groups.items():
        common = dict(_common([places[path] for path in paths])) if len(paths) >= _LIKE else {}
        if common:
            folded[name] = common
        for path in paths:
            own = dict(_exceptions(places[path], common))
            if own or not common:
                folded[path] = own
    return folded


def _common(members: list[Facts]) -> Iterator[tuple[str, Json]]:
    counts: dict[tuple[str, object], int] = {}
    values: dict[tuple[str, object], Json] = {}
    for facts in members:
        for name, value in facts.items():
            key = name, _key(value)
            counts[key] = counts.get(key, 0) + 1
            values[key] = value
    for (name, text), count in counts.items():
        if 2 * count > len(members):
            yield name, values[name, text]


def _key(value: Json) -> object:
    """What is equal for equal facts, found in the same way: `True` is no 1, and 1 no 1.0."""
    return repr(value) if isinstance(value, dict | list) else (type(value), value)


def _exceptions(facts: Facts, common: Facts) -> Iterator[tuple[str, Json]]:
    for name, value in facts.items():
        if name not in common or _key(common[name]) != _key(value):
            yield name, value
    for name in common.keys() - facts.keys():
        yield name, "absent"
