"""Differences between components made readable: narrowed down, and put together by their cause."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from cachesvc.core.components import Difference
from cachesvc.core.digest import Json, canonical_json

_SHOWN_PLACES = 3
_MANY = 4
_SHOWN = 100
_LEAD = 20
_ATTRIBUTE = "attribute"
_DIGEST = re.compile(r"\b[0-9a-f]{16,64}\b")
_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_NUMBERED = re.compile(r"(\D*)(\d{0,18})")
_PART = re.compile(r"(\S+: )?(.*)", re.DOTALL)
"""Of several models under one address, each has its name before its components."""
_Change = tuple[tuple[str, ...], str | None, str | None]


def narrowed(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences, each between two JSON objects or lists cut down to what changed inside.

    `attributes head: {"a":1,"b":2} -> {"a":1,"b":3}` becomes `attributes head b: 2 -> 3`. What is
    no JSON, or is kept as a digest on a side, stays as it is.
    """
    return tuple(part for difference in differences for part in _narrow(difference))


def _narrow(difference: Difference) -> list[Difference]:
    try:
        old, new = _parsed(difference.old), _parsed(difference.new)
        changes = [] if old is None or new is None else list(_changes(old, new))
    except (ValueError, RecursionError):  # manifests come from outside
        changes = []
    return [
        Difference(_component(difference.component, path), before, after)
        for path, before, after in changes
    ] or [difference]


def _parsed(text: str | None) -> Json:
    """The JSON object or list in a component's text; None if it is anything else."""
    if text is None or not text.startswith(("{", "[")):
        return None
    value: Json = json.loads(text, parse_constant=_refuse)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _component(component: str, path: Sequence[str]) -> str:
    """The component's name with the way to the change: at most KIND SUBJECT KEY.KEY."""
    if not path:
        return component
    if " " in _part(component)[1]:
        return f"{component} {'.'.join(path)}"
    subject, *keys = path
    return f"{component} {subject} {'.'.join(keys)}".rstrip()


def _part(component: str) -> tuple[str, str]:
    """The name of one of several models, and the component without it."""
    found = _PART.match(component)
    return (found[1] or "", found[2]) if found else ("", component)


def _changes(old: Json, new: Json, path: tuple[str, ...] = ()) -> Iterator[_Change]:
    before, after = _keyed(old), _keyed(new)
    if before is None or after is None:
        yield from _in_lists(old, new, path)
        return
    for key in sorted({*before, *after}):
        if key not in before:
            yield (*path, key), None, _text(after[key])
        elif key not in after:
            yield (*path, key), _text(before[key]), None
        elif canonical_json(before[key]) != canonical_json(after[key]):  # 1 == True == 1.0
            yield from _changes(before[key], after[key], (*path, key))


def _keyed(value: Json) -> dict[str, Json] | None:
    """An object, or a list of rows that begin with a text of their own, by key."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    rows = {
        row[0]: _said(row[1:])
        for row in value
        if isinstance(row, list) and len(row) > 1 and isinstance(row[0], str)
    }
    return rows if len(rows) == len(value) else None


def _said(said: list[Json]) -> Json:
    """What a row says of its key: the one value if there is only one."""
    while said and said[-1] is None:
        said.pop()
    return said[0] if len(said) == 1 else said or None


def _in_lists(old: Json, new: Json, path: tuple[str, ...]) -> Iterator[_Change]:
    """Texts that only one list has; the items that differ between lists of objects; or all."""
    if not (isinstance(old, list) and isinstance(new, list)):
        yield path, *_texts(old, new)
    elif _is_set(old) and _is_set(new):
        gone = [item for item in old if item not in new]
        come = [item for item in new if item not in old]
        yield path, *(_texts(gone, come) if gone or come else _texts(old, new))
    elif len(old) == len(new) and any(isinstance(item, dict | list) for item in (*old, *new)):
        pairs = enumerate(zip(map(canonical_json, old), map(canonical_json, new), strict=True))
        places = [index for index, (before, after) in pairs if before != after]
        for index in places:
            way = path if len(places) == 1 else (*path, f"[{index}]")
            yield from _changes(old[index], new[index], way)
    else:
        yield path, *_texts(old, new)


def _is_set(values: Sequence[Json]) -> bool:
    texts = {value for value in values if isinstance(value, str)}
    return len(texts) == len(values)


def _texts(old: Json, new: Json) -> tuple[str, str]:
    """Both values as text, in quotes only where nothing else tells them apart."""
    before, after = _text(old), _text(new)
    if before == after:
        return canonical_json(old).decode(), canonical_json(new).decode()
    return before, after


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()


def sentences(differences: Iterable[Difference]) -> Iterator[str]:
    """A line for each cause: the same change in many places is said once.

    So is what appeared, went away or has other code in many places of one package.
    """
    rest: list[Difference] = []
    for same in _grouped(differences, _same_change):
        if len(same) > 1:
            yield _in_places(same)
        else:
            rest.extend(same)
    for similar in _grouped(rest, _similar_change):
        if len(similar) >= _MANY:
            yield _in_package(similar)
        else:
            yield from map(sentence, similar)


def sentence(difference: Difference) -> str:
    """One difference in a line, long values cut to where they differ."""
    return f"{difference.component}: {_arrow(difference)}"


def _grouped(
    differences: Iterable[Difference], cause: Callable[[Difference], object]
) -> Iterable[list[Difference]]:
    groups: dict[object, list[Difference]] = {}
    for difference in differences:
        groups.setdefault(cause(difference), []).append(difference)
    return groups.values()


def _words(difference: Difference) -> tuple[str, str, str]:
    """Kind, subject and key of a component: `attribute`, `layers.0.norm`, `eps`."""
    part, component = _part(difference.component)
    kind, _, rest = component.partition(" ")
    subject, _, key = rest.partition(" ")
    if kind == _ATTRIBUTE and not key:
        subject, _, key = subject.rpartition(".")
    return f"{part}{kind}", subject or ".", key


def _same_change(difference: Difference) -> object:
    kind, _, key = _words(difference)
    return kind, key, difference.old, difference.new


def _similar_change(difference: Difference) -> object:
    kind, subject, key = _words(difference)
    state = _state(difference)
    return (kind, key, _package(subject), state) if state else difference


def _state(difference: Difference) -> str | None:
    """How something differs whose values tell nothing to people; None if they do."""
    if difference.old is None:
        return "new"
    if difference.new is None:
        return "gone"
    old, new = (_DIGEST.sub("", text) for text in (difference.old, difference.new))
    return "changed" if old == new else None


def _package(subject: str) -> str:
    return subject.partition(".")[0] or "."


def _in_places(same: Sequence[Difference]) -> str:
    kind, _, key = _words(same[0])
    what = f"{kind} {key}".rstrip()
    return f"{what}: {_arrow(same[0])} in {len(same)} places ({_places(same)})"


def _in_package(similar: Sequence[Difference]) -> str:
    kind, subject, key = _words(similar[0])
    what = f"{kind} {key}".rstrip()
    state = _state(similar[0])
    return f"{what}: {len(similar)} of {_package(subject)} {state} ({_places(similar)})"


def _places(group: Sequence[Difference]) -> str:
    subjects = sorted((_words(difference)[1] for difference in group), key=_natural)
    more = ", ..." if len(subjects) > _SHOWN_PLACES else ""
    return ", ".join(subjects[:_SHOWN_PLACES]) + more


def _natural(subject: str) -> list[tuple[str, int]]:
    """An order in which `layers.2` comes before `layers.10`."""
    return [(text, int(digits or 0)) for text, digits in _NUMBERED.findall(subject)]


def _arrow(difference: Difference) -> str:
    old, new = (
        "absent" if text is None else _LONG_DIGEST.sub(r"\1", text) or "''"
        for text in (difference.old, difference.new)
    )
    start = max(0, _common(old, new) - _LEAD)
    return f"{_cut(old, start)} -> {_cut(new, start)}"


def _common(old: str, new: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(old), len(new)))


def _cut(text: str, start: int) -> str:
    """The text, or the part of a long one that begins at `start`."""
    if len(text) <= _SHOWN:
        return text
    shown = text[start : start + _SHOWN]
    before, after = "..." if start else "", "..." if start + _SHOWN < len(text) else ""
    return f"{before}{shown}{after}"
