"""Components: one digest over all of them, and every difference named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.components import Components, Difference
from cachesvc.core.digest import digest_json

MAPPINGS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=5)


@given(MAPPINGS, MAPPINGS)
def test_digest_is_equality(one: dict[str, str], other: dict[str, str]) -> None:
    """Two sets of components have one digest exactly if all names and values are equal."""
    first, second = Components.of(one), Components.of(other)
    assert (first.digest == second.digest) == (first == second)
    assert first != second or hash(first) == hash(second)


@given(MAPPINGS)
def test_it_is_a_mapping(values: dict[str, str]) -> None:
    """Components read like the mapping that they were made of, in order of their names."""
    components = Components.of(values)
    assert list(components) == sorted(components)
    assert len(components) == len(values)
    assert Components.of(components) == components
    assert components.digest == digest_json(dict(components))


@given(MAPPINGS, MAPPINGS)
def test_diff_tells_all(old: dict[str, str], new: dict[str, str]) -> None:
    """Applying a diff to the old components gives the new ones; nothing equal is in it."""
    before, after = Components.of(old), Components.of(new)
    changed = dict(before)
    for difference in before.diff(after):
        assert difference.old != difference.new
        assert difference.old == before.get(difference.component)
        changed.pop(difference.component, None)
        if difference.new is not None:
            changed[difference.component] = difference.new
    assert Components.of(changed) == after
    assert not before.diff(before)


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (Difference("torch", "2.9.0", "2.9.1"), "torch: 2.9.0 -> 2.9.1"),
        (Difference("triton", None, "3.5.0"), "triton: absent -> 3.5.0"),
        (Difference("flags", "x", ""), "flags: x -> ''"),
    ],
)
def test_a_difference_reads_well(difference: Difference, text: str) -> None:
    """A difference names the component and both values, also where one is absent or empty."""
    assert str(difference) == text


def test_what_is_not_unicode_is_spelled_out() -> None:
    """A path that is no text, as Python reads it from the environment, still has a digest."""
    components = Components.of({"TORCH_HOME": b"/caf\xe9".decode("utf-8", "surrogateescape")})
    assert dict(components) == {"TORCH_HOME": "/caf\\udce9"}
    assert len(components.digest) == 64
