"""Reading untrusted JSON: refused as a whole if it is not plain JSON, else issue by issue."""

from __future__ import annotations

import json
import re

import pytest

from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import MAX_DEPTH, Fields, Issues, load_object, with_extra

NOT_JSON = {
    "nothing": (b"", "is not JSON"),
    "text": (b"hello", "is not JSON"),
    "cut": (b'{"a":', "is not JSON"),
    "more": (b"{}{}", "is not JSON"),
    "trailing comma": (b'{"a":1,}', "is not JSON"),
    "not UTF-8": (b'{"a":"\xff"}', "not valid Unicode"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not valid Unicode"),
    "byte order mark": (b"\xef\xbb\xbf{}", "is not JSON"),
    "half a pair in a value": (rb'{"a":"\ud800"}', "not valid Unicode"),
    "half a pair in a name": (rb'{"\udfff":1}', "not valid Unicode"),
    "half a pair deep inside": (rb'{"a":[{"b":"x\uDbffy"}]}', "not valid Unicode"),
    "name twice": (b'{"a":1,"a":1}', "twice"),
    "name twice inside": (b'{"a":[{"b":1,"b":2}]}', "twice"),
    "NaN": (b'{"a":NaN}', "finite"),
    "Infinity": (b'{"a":Infinity}', "finite"),
    "minus infinity": (b'{"a":-Infinity}', "finite"),
    "a float too large": (b'{"a":1e999}', "finite"),
    "an integer too long": (b'{"a":' + b"9" * 5000 + b"}", "is not JSON"),
    "arrays without end": (b"[" * 100_000, "is not JSON"),
    "nested too deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
    "a list": (b"[]", "is not a JSON object"),
    "a number": (b"1", "is not a JSON object"),
}


@pytest.mark.parametrize(("data", "reason"), NOT_JSON.values(), ids=NOT_JSON)
def test_refused_as_a_whole(data: bytes, reason: str) -> None:
    """What is no JSON object, or one that readers differ about, is refused with where and why."""
    with pytest.raises(IntegrityError, match=f"(?s)^here .*{reason}"):
        load_object(data, "here")


def test_a_whole_pair_is_text() -> None:
    """An escaped surrogate pair is one character, as JSON says; an escaped backslash is none."""
    assert load_object(rb'{"a":"\ud83d\ude00","b":"\\ud800"}', "x") == {"a": "😀", "b": r"\ud800"}


def _fields(value: object) -> tuple[Fields, Issues]:
    issues = Issues()
    return Fields(value, "at", issues), issues


def test_good_fields() -> None:
    """Fields of the kinds asked for come back as they are, and optional ones may be missing."""
    value = {"t": "ab", "i": 7, "n": 1, "l": ["a"], "m": {"x": "y"}, "o": {"t": "in"}, "z": None}
    fields, issues = _fields(value)
    assert fields.text("t") == "ab"
    assert fields.integer("i") == 7
    assert fields.optional_number("n") == 1.0
    assert fields.texts("l") == ("a",)
    assert fields.mapping("m") == {"x": "y"}
    assert fields.child("o").text("t") == "in"
    assert fields.optional_child("z") is None
    assert fields.optional_number("missing") is None
    assert fields.optional_text("missing", re.compile("x")) is None
    assert fields.rest() == ()
    assert issues.count == 0


DEEP = json.loads("[" * 600 + "]" * 600)


@pytest.mark.parametrize(
    ("verb", "value", "issue"),
    [
        ("text", 1, "is of a wrong kind"),
        ("text", None, "is of a wrong kind"),
        ("text", ["a"], "is of a wrong kind"),
        ("integer", True, "True is not a size"),
        ("integer", -1, "-1 is not a size"),
        ("integer", 1 << 63, "is not a size"),
        ("integer", 10**4000, "is not a size"),
        ("integer", 1.0, "is of a wrong kind"),
        ("integer", "1", "is of a wrong kind"),
        ("optional_number", True, "is not a number from 0"),
        ("optional_number", -0.5, "is not a number from 0"),
        ("optional_number", 1e12, "is not a number from 0"),
        ("optional_number", 10**400, "is not a number from 0"),
        ("optional_number", "1", "is of a wrong kind"),
        ("texts", "abc", "is of a wrong kind"),
        ("mapping", [], "is of a wrong kind"),
        ("child", [], "is of a wrong kind"),
        ("optional_child", 0, "is of a wrong kind"),
    ],
)
def test_wrong_kinds(verb: str, value: object, issue: str) -> None:
    """A field of another kind is named with its place, once, and reading goes on."""
    fields, issues = _fields({"f": value})
    getattr(fields, verb)("f")
    assert len(issues.found) == 1
    assert issues.found[0].startswith("at.f: ")
    assert issue in issues.found[0]


@pytest.mark.parametrize("verb", ["text", "integer", "texts", "mapping", "child"])
def test_missing(verb: str) -> None:
    """A field that must be there is named once if it is not."""
    fields, issues = _fields({})
    getattr(fields, verb)("f")
    assert issues.found == ["at.f: is missing"]


def test_each_wrong_item_is_named() -> None:
    """In lists and mappings every item that is wrong is named by its place."""
    fields, issues = _fields({"l": ["a", 1, DEEP, "b!"], "m": {"x": 1, "y": "", "z": DEEP}})
    assert fields.texts("l", re.compile("[a-z]+")) == ("a", "b!")
    assert fields.mapping("m") == {"y": ""}
    assert issues.found == [
        "at.l[1]: 1 has not the form asked",
        "at.l[2]: a list has not the form asked",
        "at.l[3]: 'b!' has not the form asked",
        "at.m.x: is not text",
        "at.m.z: is not text",
    ]


def test_many_issues() -> None:
    """All issues are counted and the first twenty worded, so that an error stays readable."""
    fields, issues = _fields({"l": list(range(1000))})
    fields.texts("l")
    with pytest.raises(IntegrityError, match=r"^it is not valid: .* and 980 more$") as caught:
        issues.raise_if_any("it")
    assert len(caught.value.issues) == 20


def test_unknown_fields_are_kept() -> None:
    """What nobody read comes back as canonical JSON, and can be put beside known fields again."""
    fields, issues = _fields({"known": 1, "new": {"b": [1.5, None], "a": "é"}, "also": False})
    fields.integer("known")
    rest = fields.rest()
    assert rest == (("also", "false"), ("new", '{"a":"é","b":[1.5,null]}'))
    assert with_extra({"known": 2}, rest) == {
        "known": 2,
        "new": {"a": "é", "b": [1.5, None]},
        "also": False,
    }
    assert issues.count == 0


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_unknown_fields_do_not_nest_for_ever(make: object) -> None:
    """An unknown field nests as deep as can be written again, and no deeper."""
    value: object = 0
    for _ in range(MAX_DEPTH):
        value = make(value)  # type: ignore[operator]
    fields, issues = _fields({"fits": value, "deep": make(value), "deeper": DEEP})  # type: ignore[operator]
    assert [name for name, _ in fields.rest()] == ["fits"]
    assert issues.found == [
        f"at.deep: is nested deeper than {MAX_DEPTH}",
        f"at.deeper: is nested deeper than {MAX_DEPTH}",
    ]
