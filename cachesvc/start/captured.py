"""Functions from a fresh process: captured there, published, verified in another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.report import Verdict
from cachesvc.start.access import PRIVATE
from cachesvc.start.goods import from_trees
from cachesvc.start.publishing import facts_of, publish_goods
from cachesvc.start.settings import open_repository
from cachesvc.start.target import Target
from cachesvc.start.trees import Trees


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capturing process has written, and what it could not capture, in sentences."""

    folder: Path
    units: tuple[str, ...]
    reasons: tuple[str, ...]
    context: Components


def captured(folder: Path, outcome: Mapping[str, Any]) -> Captured:
    """What the capturing process has told."""
    reasons = tuple(dict.fromkeys(outcome["reasons"]))
    context = Components.of(outcome["context"])
    return Captured(folder, tuple(outcome["units"]), reasons, context)


def goal_of(outcome: Mapping[str, Any], environment: Components) -> Target:
    """What is published of a process that has told the name and the model of its workload."""
    model = Components.of(outcome["model"])
    address = Address(outcome["name"], model.digest, environment.digest)
    return Target(address, environment, model)


def publish_captured(
    store: Path, goal: Target, found: Captured, coverage: tuple[str, ...] = ()
) -> None:
    """Publishes functions into a store for scratch, for a process that verifies them."""
    publish_goods(
        open_repository(store, PRIVATE),
        goal,
        facts_of(goal, coverage=coverage),
        lambda: from_trees(Trees(aot=found.folder), found.context),
    )


def why_unverified(outcome: Mapping[str, Any]) -> str:
    """Why the start with functions of a fresh process does not verify them; empty if it does.

    Its calls must have given what eager torch gives, without compiling anything, and functions
    must have made some of them.
    """
    apart = [text for call in outcome["calls"] for text in call["differences"]]
    if apart:
        return f"the output is not what eager torch gives: {apart[0]}"
    report = outcome["report"]
    if report["verdict"] != Verdict.WARM.value:
        return f"the start was {report['verdict']}: {_said(outcome)}"
    if not report["counts"]["aot_hits"]:
        return f"no call was made by a function: {_said(outcome)}"
    return ""


def _said(outcome: Mapping[str, Any]) -> str:
    return "; ".join(line.strip() for line in str(outcome["summary"]).splitlines())


@dataclass(frozen=True, slots=True)
class Ahead:
    """The functions that were verified; `calls` were made by them, `past` were not.

    `first_call_s` is that of the start which verified them, all that it does before included.
    """

    folder: Path | None = None
    units: tuple[str, ...] = ()
    first_call_s: float | None = None
    calls: int = 0
    past: int = 0
    reasons: tuple[str, ...] = ()

    def verified(self) -> Iterator[str]:
        """What was checked, in a sentence."""
        if self.units:
            past = f", {self.past} were compiled" if self.past else ""
            yield (
                f"{self.calls} calls made by {len(self.units)} functions compiled ahead of time in"
                f" a fresh process{past}; outputs equal to eager"
            )


NOTHING_AHEAD = Ahead()
