"""Which whole bundles go: any rule condemns, a pin or a fresh write spares."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.address import Address
from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import UsageError
from cachesvc.repository.grace import GRACE_S, Grace
from cachesvc.repository.listing import Bundle, Listed
from cachesvc.repository.policy import Candidate, Policy, Verdicts, apply
from cachesvc.store.contract import Stat

NOW = datetime(2025, 6, 1, tzinfo=timezone.utc)
GRACE = Grace(NOW, GRACE_S)
DAY = 86_400.0


def candidate(
    model: str,
    days: float,
    size: int = 100,
    *,
    name: str = "gpt",
    environment: str = "e",
    **facts: Any,
) -> Candidate:
    """A bundle that was last written to so many days ago."""
    written = Stat("bundles/key.json", size, NOW - timedelta(days=days))
    address = Address(name, digest_bytes(model.encode()), digest_bytes(environment.encode()))
    return Candidate(Bundle(address, (Listed("0" * 64, written),)), size, **facts)


def models(addresses: Iterable[Address], candidates: list[Candidate]) -> list[int]:
    """Which of the candidates, by their number."""
    wanted = set(addresses)
    return [n for n, item in enumerate(candidates) if item.bundle.address in wanted]


def gone(policy: Policy, candidates: list[Candidate]) -> list[int]:
    return models(apply(policy, candidates, GRACE).gone, candidates)


def test_no_policy_deletes_nothing() -> None:
    """A bundle stays for ever unless somebody says otherwise."""
    assert apply(Policy(), [candidate("m", 10_000)], GRACE) == Verdicts({}, {})


def test_older_than() -> None:
    """What counts is the last write."""
    found = [candidate(str(days), days) for days in (40, 31, 29)]
    assert gone(Policy(older_than_s=30 * DAY), found) == [0, 1]
    verdicts = apply(Policy(older_than_s=30 * DAY), found, GRACE)
    assert next(iter(verdicts.gone.values())) == "was last written to 40.0 days ago"


@pytest.mark.parametrize(
    ("version", "specs", "stays"),
    [
        ("2.9.1+cu128", ["2.9"], True),
        ("2.9.1+cu128", ["2.9.1"], True),
        ("2.9.1+cu128", ["2.9.1+cu128"], True),
        ("2.9.1+cu128", ["2"], True),
        ("2.9.1+cu128", ["2.10", "2.9"], True),
        ("2.9.1+cu128", ["2.9.0"], False),
        ("2.9.1+cu128", ["2.9.1+cu126"], False),
        ("2.90.0", ["2.9"], False),
        ("2.10.0", ["2.1"], False),
        ("2.9.0a0+gitabc", ["2.9.0"], False),
    ],
)
def test_torch_versions(version: str, specs: list[str], stays: bool) -> None:
    """A version is meant by whole parts from the left."""
    found = [candidate("m", 10, torch=version)]
    assert gone(Policy(torch=tuple(specs)), found) == ([] if stays else [0])


def test_a_bundle_that_does_not_say_its_torch_stays() -> None:
    """Nothing that is trusted says it, so nothing is known."""
    assert gone(Policy(torch=("2.9",)), [candidate("m", 10, torch=None)]) == []


def test_keep_last_counts_for_each_name_and_environment() -> None:
    """Models of one name in one environment push each other out, no others do."""
    found = [
        candidate("a", 5),
        candidate("b", 7),
        candidate("c", 6),
        candidate("d", 9, name="other"),
        candidate("e", 9, environment="other"),
    ]
    assert gone(Policy(keep_last=2), found) == [1]
    assert gone(Policy(keep_last=1), found) == [1, 2]


def test_the_budget_takes_the_oldest_until_the_rest_fits() -> None:
    """And no more than it must; what other rules delete makes room too."""
    found = [candidate("a", 5), candidate("b", 9), candidate("c", 7), candidate("d", 90)]
    assert gone(Policy(max_bytes=400), found) == []
    assert gone(Policy(max_bytes=399), found) == [3]
    assert gone(Policy(max_bytes=200), found) == [1, 3]
    assert gone(Policy(max_bytes=0), found) == [0, 1, 2, 3]
    assert gone(Policy(max_bytes=300, older_than_s=30 * DAY), found) == [3]


def test_rules_unite_and_pins_win() -> None:
    """A pinned bundle stays whatever is said, counts in the budget, and is named."""
    found = [
        candidate("a", 50, tags=frozenset({"prod", "x"})),
        candidate("b", 60, tags=frozenset({"x"})),
        candidate("c", 2, torch="2.8.0"),
        candidate("d", 2, torch="2.9.0"),
    ]
    policy = Policy(older_than_s=30 * DAY, torch=("2.9",), keep_tags=frozenset({"prod", "stage"}))
    verdicts = apply(policy, found, GRACE)
    assert models(verdicts.gone, found) == [1, 2]
    assert list(verdicts.kept.values()) == [
        "has the tag prod, though it was last written to 50.0 days ago"
    ]
    assert gone(Policy(max_bytes=100, keep_tags=frozenset({"prod"})), found) == [1, 2, 3]


def test_what_was_just_written_to_stays() -> None:
    """A push may be at work there: it has put its pack, or counts on what it has read."""
    found = [candidate("a", 0.9), candidate("b", 0.8), candidate("c", 1.1)]
    policy = Policy(max_bytes=0, keep_last=1, older_than_s=0)
    verdicts = apply(policy, found, GRACE)
    assert models(verdicts.gone, found) == [2]
    assert set(verdicts.kept) == {item.bundle.address for item in found[:2]}


def test_what_nobody_trusts_pushes_nothing_out_and_makes_room_first() -> None:
    """Who can write to the store cannot choose what its janitor deletes."""
    found = [
        candidate("mine", 50),
        candidate("forged", 2, trusted=False),
        candidate("forged too", 3, trusted=False),
    ]
    assert gone(Policy(keep_last=1), found) == []
    assert gone(Policy(max_bytes=200), found) == [2]
    assert gone(Policy(max_bytes=100), found) == [1, 2]


def test_only_the_budget_is_against_what_nobody_trusts() -> None:
    """Which tags it has is not known, so it is left alone, and that is said where it matters."""
    found = [candidate("theirs", 50, trusted=False), candidate("mine", 2, torch="2.9.0")]
    rules: dict[str, Any] = {"older_than_s": 30 * DAY, "torch": ("2.9",), "keep_last": 1}
    verdicts = apply(Policy(**rules), found, GRACE)
    assert verdicts.gone == {}
    assert list(verdicts.kept.values()) == [
        "holds nothing that is trusted here and can be read, though it was last written to"
        " 50.0 days ago"
    ]
    assert gone(Policy(**rules, max_bytes=100), found) == [0]


def test_what_stays_beyond_the_budget_is_named() -> None:
    """With what keeps it: a tag, or that it was just written to."""
    found = [
        candidate("a", 50, tags=frozenset({"prod"})),
        candidate("b", 0.5),
        candidate("c", 0.5, trusted=False),
        candidate("d", 50),
    ]
    pinned = frozenset({"prod"})
    verdicts = apply(Policy(max_bytes=100, keep_tags=pinned), found, GRACE)
    assert models(verdicts.gone, found) == [3]
    why = "though it takes room of which there is too little"
    fresh = f"was written to within the grace time, {why}"
    assert list(verdicts.kept.values()) == [f"has the tag prod, {why}", fresh, fresh]
    assert apply(Policy(max_bytes=300, keep_tags=pinned), found, GRACE).kept == {}


@given(
    st.lists(
        st.tuples(
            st.floats(0, 400), st.integers(0, 1000), st.booleans(), st.booleans(), st.booleans()
        ),
        max_size=12,
    ),
    st.integers(0, 3000),
    st.integers(1, 3),
)
def test_whatever_the_rules(facts: list[Any], most: int, last: int) -> None:
    """No pinned or fresh bundle ever goes; the budget is met unless only these are left; the last
    trusted model of each name and environment goes for no other reason than the budget."""
    found = [
        candidate(
            str(number),
            days,
            size,
            environment=str(other),
            trusted=trusted,
            tags=frozenset({"pin"} if pinned else ()),
        )
        for number, (days, size, other, trusted, pinned) in enumerate(facts)
    ]
    policy = Policy(keep_last=last, max_bytes=most, keep_tags=frozenset({"pin"}))
    verdicts = apply(policy, found, GRACE)
    stays = [item for item in found if item.bundle.address not in verdicts.gone]
    fixed = [i for i in found if "pin" in i.tags or not GRACE.is_over(i.bundle.modified)]
    assert all(item in stays for item in fixed)
    if sum(item.bytes for item in stays) > most:
        assert all(item in fixed or not item.bytes for item in stays)
    kept_last = apply(Policy(keep_last=last), found, GRACE).gone
    for environment in {item.bundle.address.environment for item in found}:
        here = [i for i in found if i.trusted and i.bundle.address.environment == environment]
        assert len([i for i in here if i.bundle.address not in kept_last]) >= min(last, len(here))


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_last": 0},
        {"older_than_s": -1.0},
        {"older_than_s": float("nan")},
        {"max_bytes": -1},
        {"torch": ("",)},
        {"torch": (" ",)},
    ],
)
def test_what_cannot_be_meant(wrong: Any) -> None:
    """`--keep-last 0` would delete everything, and an unset variable must not."""
    with pytest.raises(UsageError):
        Policy(**wrong)
