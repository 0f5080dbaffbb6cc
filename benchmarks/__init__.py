"""Measurements; `python -m benchmarks` runs those that need no GPU."""
