"""Manifests of strangers: whatever a field holds, it is refused in a sentence, or means no harm."""

from __future__ import annotations

import json
import os.path
import runpy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from cachesvc.core.digest import digest_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import MAX_COUNTED, MAX_VALUES
from cachesvc.core.manifest import Manifest
from cachesvc.core.spelled import spelled

from .tries import quick_and_slow, try_all

Place = tuple[str | int, ...]

GOOD: dict[str, Any] = runpy.run_path(str(Path(__file__).parent / "make_corpus.py"))[
    "good_manifest"
]()
GOOD["units"][0]["requires"] = [{"kind": "isa", "value": "avx2"}]
GOOD["coverage"] = ["(float32[2])"]
GOOD["tags"] = ["nightly"]
GOOD["supersedes"] = ["0" * 64]
GOOD["proof"] = {
    "cold_s": 1.5,
    "warm_s": None,
    "verdict": "warm",
    "verified": ["outputs"],
    "outputs": [
        {
            "call": "c", "inputs": "", "weights": "", "leaves": 1, "tolerance": 0.5,
            "tensors": [
                {"path": "output", "dtype": "float32", "shape": [2], "scale": "1", "sample": ["1"]}
            ],
        }
    ],
}  # fmt: skip

ODD_TEXT = st.sampled_from([
    "", " ", ".", "..", "/", "//", "../../x", "/etc/passwd", "triton", "triton/", "triton/K/../x",
    "triton/K\0", "triton/K\n", "triton/K\x1b[2J", "triton/K\x9b2J", "triton/\u202eK", "TRITON/K",
    "triton/k", "triton/K/ﬁ", "triton/K/fi", "\ufeff", "C:\\x", "con", "x" * 300, "ä" * 200,
    "a/" * 700, "0" * 64, "0" * 63 + "G", "٣" * 64, "0" * 64 + "\n", "any", "any\n", "null", "NaN",
    "2025-01-01T00:00:00.000000Z\n", "2025-02-30T00:00:00.000000Z", "1e999", "-0", "1_000",
])  # fmt: skip
ODD_NUMBER = st.sampled_from([
    -1, 0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**400, -(10**400), 0.1, -0.0,
    1e308, True, False,
])  # fmt: skip
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | ODD_TEXT | ODD_NUMBER | st.text(max_size=20) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4),
    max_leaves=8,
)


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Where every value in a document lies, the document itself first."""
    yield here
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*here, key))


PLACES = tuple(places(GOOD))


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """The good manifest with one to three of its values replaced, removed, doubled or added to."""
    document = json.loads(json.dumps(GOOD))
    for place in draw(st.lists(st.sampled_from(PLACES[1:]), min_size=1, max_size=3)):
        with suppress(KeyError, IndexError, TypeError, AttributeError):
            holder = document
            for key in place[:-1]:
                holder = holder[key]
            change(draw, holder, place[-1])
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def change(draw: st.DrawFn, holder: Any, key: Any) -> None:
    how = draw(st.sampled_from(["replace", "replace", "remove", "double", "add"]))
    if how == "replace":
        holder[key] = draw(ODD)
    elif how == "remove":
        del holder[key]
    elif how == "double" and isinstance(holder, list):
        holder.append(holder[key])
    elif isinstance(holder[key], dict):
        holder[key][draw(ODD_TEXT)] = draw(ODD)


def check(data: bytes) -> None:
    """Parses; whatever is accepted is what its own digests say and names nothing outside."""
    try:
        manifest = Manifest.parse(data, "it")
    except IntegrityError as error:
        said = str(error)
        assert said == spelled(said)
        assert len(said) < 20_000
        return
    assert Manifest.parse(manifest.to_bytes()) == manifest
    assert manifest.address.environment == digest_json(dict(manifest.environment))
    paths = [entry.path for unit in manifest.units for entry in unit.entries]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert os.path.normpath(f"/live/{path}") == f"/live/{path}"
        assert path == spelled(path)
        assert not any(part.startswith(".") for part in path.split("/"))
        assert max(len(part.encode()) for part in path.split("/")) <= 255


def test_the_good_manifest_is_accepted() -> None:
    """What is changed below is refused for the change, not for what was there before."""
    assert Manifest.parse(json.dumps(GOOD).encode()).units
    assert len(PLACES) > 70


@pytest.mark.parametrize("tries", quick_and_slow(200, 5_000))
def test_every_field(tries: int) -> None:
    """With any value in any field, and several fields at once, a manifest is refused or right."""
    try_all(tries, changed(), check)


def test_every_field_by_itself() -> None:
    """Each field alone refuses, or passes over, each of the values that readers stumble over."""
    odd = [None, "", "..", "\x1b[2J", -1, 2**64, 10**4000, 1e308, True, [], {}, [[]], {"": {}}]
    tried = 0
    for place in PLACES[1:]:
        for value in odd:
            document = json.loads(json.dumps(GOOD))
            holder = document
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = value
            check(json.dumps(document).encode())
            tried += 1
    assert tried > 900


@pytest.mark.parametrize("tries", quick_and_slow(150, 5_000))
def test_any_bytes(tries: int) -> None:
    """Bytes of every kind, and a good manifest with bytes put in, are refused or right."""
    good = json.dumps(GOOD).encode()
    pieces = st.sampled_from([
        b"[", b"{", b"]", b"}", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\\u0000", b"\0",
        b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"NaN", b"-Infinity", b"1e999", b"9" * 5000,
        b"[" * 3000, b'{"a":' * 3000, b"//", b"\xc2\x9b",
    ])  # fmt: skip
    put_in = st.tuples(st.integers(0, len(good)), pieces, st.integers(0, 40)).map(
        lambda at: good[: at[0]] + at[1] + good[at[0] + at[2] :]
    )
    try_all(tries, st.binary(max_size=200) | put_in, check)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"format":1,"units":[' + b"{}," * MAX_VALUES + b"{}]}", id="units"),
        pytest.param(b'{"format":1,"x":[' + b"[]," * MAX_VALUES + b"[]]}", id="unknown"),
        pytest.param(b'{"format":1,"tags":[' + b"0," * MAX_VALUES + b"0]}", id="tags"),
    ],
)
def test_millions_of_values(data: bytes) -> None:
    """What would take forty times its size as values is refused before it is taken apart."""
    with pytest.raises(IntegrityError, match=f"it holds more than {MAX_VALUES} values"):
        Manifest.parse(data, "it")


@pytest.mark.parametrize("field", ["units", "origins", "tags", "supersedes", "coverage"])
def test_hundreds_of_thousands_of_issues(field: str) -> None:
    """Nobody reads on where ten thousand items of a list are wrong."""
    document = GOOD | {field: [0] * 300_000}
    with pytest.raises(IntegrityError, match=r" and \d+ more$") as caught:
        Manifest.parse(json.dumps(document).encode())
    counted = int(str(caught.value).rpartition(" and ")[2].partition(" ")[0])
    assert MAX_COUNTED / 2 < counted < 2 * MAX_COUNTED
