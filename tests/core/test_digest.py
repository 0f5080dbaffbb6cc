"""Digests and canonical JSON: equal values give equal bytes."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.digest import (
    DIGEST,
    canonical_json,
    digest_bytes,
    digest_json,
    digest_stream,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_canonical_json_is_json(value: Any) -> None:
    """Reading what was written gives the value again, and writing that gives the same bytes."""
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data


@given(st.dictionaries(TEXT, VALUES, max_size=6), st.randoms())
def test_order_of_names_does_not_matter(value: dict[str, Any], random: Any) -> None:
    """Two objects with the same fields have the same digest, however they were put together."""
    names = list(value)
    random.shuffle(names)
    assert digest_json({name: value[name] for name in names}) == digest_json(value)


def test_the_bytes() -> None:
    """The form is sorted by name, without spaces, in UTF-8 and not escaped."""
    value = {"b": [1, 2.5, True, None], "a": "é\n", "B": {}}
    assert canonical_json(value) == '{"B":{},"a":"é\\n","b":[1,2.5,true,null]}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")], "\ud800"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """NaN, infinities and half a surrogate pair have no bytes that every reader agrees on."""
    with pytest.raises(ValueError, match=r"."):
        canonical_json(value)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_equal_in_every_process(seed: str) -> None:
    """The digest does not depend on Python's hash seed."""
    code = (
        "from cachesvc.core.components import Components;"
        "print(Components.of({name: name for name in {'torch', 'triton', 'device', 'os'}}).digest)"
    )
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == (
        digest_json({"torch": "torch", "triton": "triton", "device": "device", "os": "os"})
    )


@given(st.binary(max_size=100))
def test_digests_are_sha256(data: bytes) -> None:
    """Bytes and streams have one digest: SHA-256 in 64 lower-case hex digits."""
    digest = hashlib.sha256(data).hexdigest()
    assert digest_bytes(data) == digest_stream(io.BytesIO(data)) == digest
    assert DIGEST.fullmatch(digest)


def test_a_stream_is_read_from_where_it_stands() -> None:
    """A stream longer than one chunk is digested whole, from its position."""
    data = bytes(3 << 20) + b"end"
    stream = io.BytesIO(data)
    stream.seek(5)
    assert digest_stream(stream) == digest_bytes(data[5:])
