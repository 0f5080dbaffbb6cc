"""The guard that failed when code was compiled again: what changed between calls, and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_MOST_TEXT = 200
_COMPILE = re.compile(r"^\d+/\d+(?:_\d+)?: ")
_ARGUMENT = re.compile(r"L\['(\w+)'\]")
_SIZE = re.compile(
    r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)\."
    r" expected (?P<old>\d+), actual (?P<new>\d+)"
)
_SYMBOL = re.compile(r"(?P<name>[\w.\[\]']+?)\.size\(\)\[(?P<dim>\d+)\]")
_TENSOR = re.compile(
    r"tensor '(?P<name>.+?)' (?P<facet>dispatch key set|rank|dtype|device|stride|requires_grad)"
    r" ?mismatch(?P<values>.*)"
)
_LENGTH = re.compile(r"len\((?P<name>.+)\) == (?P<old>\d+)$")
_EQUAL = re.compile(r"(?P<name>[\w.\[\]'\"]+) == (?P<old>.+)$")
_GLOBAL = re.compile(r"GLOBAL_STATE changed: (?P<name>[\w, ]+)")
_OBJECT = re.compile(r"___check_obj_id\((?P<name>[^,]+),")

_OTHERWISE = "give a call with each such input when the bundle is made, so that each is found there"
_FACETS = {
    "stride": "give it in one layout: {name}.contiguous() before the call",
    "dtype": "convert it to one dtype before the call",
    "device": "move it to one device before the call",
    "rank": "give it with one number of dimensions: unsqueeze it before the call",
    "requires_grad": "make all calls with it, or all without it",
    "dispatch key set": "make all calls under the same torch.no_grad() or torch.inference_mode()",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """What a failed guard says: `subject` has changed, from `old` to `new` where it is told.

    `curable` is whether a change of the code or of the inputs spares the compile.
    """

    subject: str
    cure: str
    old: str = ""
    new: str = ""
    curable: bool = True


def read_guard(reason: str) -> Guard:
    """The guard in a recompile reason of torch; its own words where it is of no known form."""
    text = guard_text(reason)
    for pattern, guard in _FORMS:
        if match := pattern.search(text):
            return guard(match, reason)
    return Guard(f"what this guards: {text[:_MOST_TEXT]}", _OTHERWISE, curable=False)


def guard_text(reason: str) -> str:
    """The guard itself: without the compile that it belongs to, and the source beside it."""
    first = (reason.strip().splitlines() or ["no reason was given"])[0]
    return re.split(r"\s{2,}#", without_compile(first))[0].strip()


def without_compile(reason: str) -> str:
    """The reason without the number of the compile that its guard belongs to."""
    return _COMPILE.sub("", reason)


def _size(match: re.Match[str], _: str) -> Guard:
    name, dim = _named(match["name"]), match["dim"]
    return Guard(_size_of(name, dim), _size_cure(name, dim), match["old"], match["new"])


def _symbol(match: re.Match[str], _: str) -> Guard:
    name, dim = _named(match["name"]), match["dim"]
    subject = f"the range of {_size_of(name, dim)} ({match.string[:_MOST_TEXT]})"
    return Guard(subject, _size_cure(name, dim))


def _size_of(name: str, dim: str) -> str:
    return f"the size of {name} in dimension {dim}"


def _size_cure(name: str, dim: str) -> str:
    return (
        f"mark the dimension before the first call, torch._dynamo.mark_dynamic({name}, {dim}), or"
        " compile with dynamic=True; or pad to a few lengths and give a call with each when the"
        " bundle is made"
    )


def _tensor(match: re.Match[str], _: str) -> Guard:
    name, facet = _named(match["name"]), match["facet"]
    subject = f"the {facet} of {name}{_brief(match['values'])}"
    return Guard(subject, _FACETS[facet].format(name=name))


def _brief(values: str) -> str:
    text = values.strip(" .")
    return f" ({text[:_MOST_TEXT]})" if text else ""


def _length(match: re.Match[str], _: str) -> Guard:
    name = _named(match["name"])
    cure = f"give {name} with one length: the same arguments at each call, lists padded or stacked"
    return Guard(f"the length of {name}", cure, match["old"])


def _equal(match: re.Match[str], reason: str) -> Guard:
    name, old = _named(match["name"]), match["old"].strip()
    return Guard(f"the value of {name}", _value_cure(name, old, reason), old)


def _value_cure(name: str, value: str, reason: str) -> str:
    if "nn.Module" in reason:
        return (
            f"keep {name} in a tensor (register_buffer), or set"
            " torch._dynamo.config.allow_unspec_int_on_nn_module = True"
        )
    if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value):
        return f"give {name} as a tensor: torch.tensor({value})"
    return f"each value of {name} is code of its own: keep them few, and {_OTHERWISE}"


def _global(match: re.Match[str], _: str) -> Guard:
    name = match["name"].strip()
    cure = "make all calls under the same setting: torch.no_grad(), autocast, number of threads"
    return Guard(f"the state of torch ({name})", cure)


def _object(match: re.Match[str], _: str) -> Guard:
    name = _named(match["name"])
    cure = f"keep one object as {name}, or call torch.compile once for each object"
    return Guard(f"the object {name}", cure)


def _named(source: str) -> str:
    """A source as it is written in the code: `x` for `L['x']`."""
    return _ARGUMENT.sub(r"\1", source.strip())


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], Guard]], ...] = (
    (_SIZE, _size),
    (_TENSOR, _tensor),
    (_SYMBOL, _symbol),
    (_LENGTH, _length),
    (_GLOBAL, _global),
    (_OBJECT, _object),
    (_EQUAL, _equal),
)
