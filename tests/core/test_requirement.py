"""Requirements: a unit is used only where the host has all that it needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.requirement import Capabilities, Requirement

HOST = Capabilities(
    isa=frozenset({"avx2", "fma"}), versions={"glibc": "2.31", "driver": "12.0", "odd": "1"}
)


@pytest.mark.parametrize(
    ("kind", "value", "met"),
    [
        ("isa", "avx2", True),
        ("isa", "avx512f", False),
        ("glibc", "2.31", True),
        ("glibc", "2.4", True),
        ("glibc", "2.34", False),
        ("glibc", "2.31.0", True),
        ("glibc", "2.31.1", False),
        ("glibc", "2.x", False),
        ("driver", "12", True),
        ("driver", "12.8", False),
        ("glibcxx", "3.4", False),
        ("odd", "1", False),
        ("tomorrow", "1", False),
    ],
)
def test_met_or_not(kind: str, value: str, met: bool) -> None:
    """Versions compare by number; what is unknown, on either side, is never met."""
    assert (not HOST.unmet([Requirement(kind, value)])) is met


def test_unmet_names_both_sides() -> None:
    """A refusal says what is needed and what this host has instead, in a fixed order."""
    needs = [Requirement("isa", "amx"), Requirement("glibcxx", "3.4.30"), Requirement("glibc", "3")]
    assert [str(unmet) for unmet in HOST.unmet(needs)] == [
        "needs glibc 3, this host has 2.31",
        "needs glibcxx 3.4.30, this host has no glibcxx",
        "needs isa amx, this host has a CPU without it",
    ]


def test_a_host_that_is_not_asked() -> None:
    """A bundle of another machine is moved whatever it needs."""
    assert not Capabilities(unchecked=True).unmet([Requirement("isa", "sve2")])


VERSIONS = st.lists(st.integers(0, 30), min_size=1, max_size=4)


@given(VERSIONS, VERSIONS)
def test_versions_are_ordered(have: list[int], want: list[int]) -> None:
    """Of two versions at least one meets the other; both do only if they are the same."""

    def meets(one: list[int], other: list[int]) -> bool:
        host = Capabilities(versions={"glibc": ".".join(map(str, one))})
        return not host.unmet([Requirement("glibc", ".".join(map(str, other)))])

    assert meets(have, want) or meets(want, have)
    padded = max(len(have), len(want))
    same = have + [0] * (padded - len(have)) == want + [0] * (padded - len(want))
    assert (meets(have, want) and meets(want, have)) is same
