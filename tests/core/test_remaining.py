"""The time that is left, guessed from what has been done."""

from __future__ import annotations

from cachesvc.core.remaining import Remaining, told


def test_nothing_is_known_at_first() -> None:
    """No guess is better than a made-up one."""
    assert Remaining().seconds([("default", "cold")]) is None


def test_what_is_known_best_counts() -> None:
    """A step's own mean, else that of its arm in other variants, else that of everything."""
    remaining = Remaining()
    remaining.done(("default", "cold"), 40.0)
    remaining.done(("default", "cold"), 60.0)
    remaining.done(("default", "warm"), 10.0)
    remaining.done(("regions", "cold"), 20.0)
    assert remaining.seconds([]) == 0
    assert remaining.seconds([("default", "cold")]) == 50
    assert remaining.seconds([("max-autotune", "cold"), ("default", "warm")]) == 40 + 10
    assert remaining.seconds([("default", "local")]) == 130 / 4


def test_told() -> None:
    """Seconds while they are few, then minutes."""
    assert [told(seconds) for seconds in (0.4, 89, 91, 600)] == ["0 s", "89 s", "2 min", "10 min"]
