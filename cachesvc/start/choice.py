"""Why a start took the tier that it took, and no better one."""

from __future__ import annotations

from cachesvc.core.tier import AOT
from cachesvc.start.attempt import Attempt


def tier_reason(attempt: Attempt) -> str:
    """Why no function compiled ahead of time is used; empty where some are."""
    brought, functions = attempt.brought, attempt.functions
    if brought.newest is None or (functions is not None and functions.units):
        return ""
    if functions is not None:
        return "; ".join(functions.notes[:2]) or "no function could be put into the model"
    if AOT not in attempt.options.tier:
        return f"the tier was set to {attempt.options.tier.said}"
    if attempt.chosen.is_loose:
        return "functions are of one model, and this bundle is of another, or of a name alone"
    return "the bundle holds no function compiled ahead of time: tccache build makes them"
