"""The break-even call, against cases whose costs are known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.break_even import Cost, break_even

EAGER = Cost((1.0,), 1.0)


def test_total() -> None:
    """The first calls one by one, then steady ones; no calls cost nothing."""
    cost = Cost((10.0, 3.0), 0.5)
    assert [cost.total(calls) for calls in range(5)] == [0, 10, 13, 13.5, 14]


@pytest.mark.parametrize(
    ("compiled", "eager", "call"),
    [
        # 10 s more at first, half a second won by each call: even after 20 more calls, ahead at 22.
        (Cost((11.0,), 0.5), EAGER, 22),
        # The same with a slow second call.
        (Cost((11.0, 2.0), 0.5), EAGER, 25),
        # Compiling that costs nothing pays at once.
        (Cost((0.5,), 0.5), EAGER, 1),
        # Eager's own first call is slow: ahead at once, and for ever.
        (Cost((1.0,), 0.5), Cost((5.0,), 1.0), 1),
        # Ahead at first, behind after a slow second call, ahead again for good.
        (Cost((0.5, 9.0), 0.5), EAGER, 18),
        # As fast as eager afterwards: what was lost stays lost, what was won stays won.
        (Cost((2.0,), 1.0), EAGER, None),
        (Cost((0.5,), 1.0), EAGER, 1),
        # Exactly even is not ahead.
        (Cost((1.0,), 1.0), EAGER, None),
        # Slower for ever.
        (Cost((11.0,), 1.5), EAGER, None),
        # Ahead at first, and slower for ever: overtaken some time.
        (Cost((0.1,), 1.5), EAGER, None),
    ],
)
def test_known_costs(compiled: Cost, eager: Cost, call: int | None) -> None:
    """From that call on, and not from the one before."""
    assert break_even(compiled, eager) == call


COSTS = st.builds(
    lambda head, steady: Cost(tuple(map(float, head)), float(steady)),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(1, 9),
)


@given(COSTS, COSTS)
def test_it_stays_so(compiled: Cost, eager: Cost) -> None:
    """As counted by hand: ahead from that call on, as far as one looks, and not before it."""
    ahead = [compiled.total(calls) < eager.total(calls) for calls in range(1, 400)]
    behind = [number for number, is_ahead in enumerate(ahead, 1) if not is_ahead]
    by_hand = (
        None if not ahead[-1] or compiled.steady > eager.steady else max(behind, default=0) + 1
    )
    assert break_even(compiled, eager) == by_hand


def test_whole_seconds_are_exact() -> None:
    """No call more and none less than the arithmetic says, for any gain that floats hold."""
    for lost, gain in itertools.product(range(50), (1, 2, 4)):
        compiled, eager = Cost((float(lost + 8),), 8.0 - gain), Cost((8.0,), 8.0)
        found = break_even(compiled, eager)
        assert found == (1 if lost < 0 else 1 + lost // gain + 1)
