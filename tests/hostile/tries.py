"""How often something hostile is tried: a little always, much where a test may take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def quick_and_slow(few: int, many: int) -> list[Any]:
    """The numbers of tries, as parameters of a test; `many` is marked slow."""
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.slow)]


def try_all(tries: int, inputs: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Checks so many generated inputs, always the same ones; the smallest failing one is shown."""

    def one(value: Any) -> None:
        check(value)

    checks = list(HealthCheck)
    chosen = settings(
        max_examples=tries,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=checks,
    )
    chosen(given(inputs)(one))()
