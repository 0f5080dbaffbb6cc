"""The arms of a bench by their names: the ways to start a workload."""

from __future__ import annotations

EAGER = "eager"
COLD = "cold"
ARMS = (EAGER, COLD, "warm", "local", "megacache", "aot")
"""In the order in which they are made: the later ones start from what a cold one leaves."""

ENOUGH = 3
"""How many samples a claim needs."""
