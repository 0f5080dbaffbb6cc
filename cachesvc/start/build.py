"""build: compile in one fresh process, verify in another, publish what was verified.

The order is the protocol. Nothing is written to the caller's store before a process that knows
nothing of the first one has started from a copy of what is to be published, and has given what
eager torch gives. Whoever is killed before that leaves a temporary directory, and no object.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachesvc.core.built import Built, BuiltCall
from cachesvc.core.components import Components
from cachesvc.core.errors import IntegrityError, TccacheError, UsageError
from cachesvc.core.fields import Fields, Issues
from cachesvc.core.outputs import OutputRecord
from cachesvc.core.proof import Proof
from cachesvc.core.report import Verdict
from cachesvc.core.tier import AOT, Allowed
from cachesvc.local.host import read_environment
from cachesvc.local.tree import FoundUnit
from cachesvc.repository.repository import Repository
from cachesvc.runtime.workloads import check_target
from cachesvc.start.access import PRIVATE, Paths, TrustLike, access
from cachesvc.start.captured import (
    NOTHING_AHEAD,
    Ahead,
    captured,
    goal_of,
    publish_captured,
    why_unverified,
)
from cachesvc.start.goods import Goods, from_trees
from cachesvc.start.options import chosen_tier
from cachesvc.start.process import run_sample, workplace
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.publishing import Pushed, facts_of, publish_goods, require_key
from cachesvc.start.sample import SampleSpec
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled, open_repository
from cachesvc.start.tags import checked_tags
from cachesvc.start.target import Target
from cachesvc.start.trees import Trees

_SHOWN = 3
_USUAL = "the usual tolerance of each dtype"

_NOTHING = "nothing is published"
_CURES = {
    Verdict.EAGER: "nothing was compiled by Inductor: a callable must call what it has compiled"
    " itself, another backend leaves nothing to cache, and a model that torch.compile passes over"
    " (a print, a disabled function) runs eagerly",
    Verdict.COLD: "the second process could not use the bundle",
    Verdict.INERT: "nothing of the bundle was used: each process makes other graphs, or a setting"
    " switches the caches off",
    Verdict.PARTIAL: "graphs that were stored missed, and nothing says why",
    Verdict.UNPROVEN: "the compiler's counters do not show what was used",
}


def build(
    target: str,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    label: str | None = None,
    salt: str | None = None,
    tags: Iterable[str] = (),
    tolerance: float | None = None,
    dry_run: bool = False,
    slim: bool = False,
    tier: str | None = None,
    progress: Progress = quiet,
) -> Built:
    """Compiles a workload, verifies what a serving process would make of it, and publishes that.

    Fresh processes make the workload's calls: one eagerly; one compiled, from empty directories;
    one from a copy of the bundle, with empty directories, another working directory and another
    HOME. Where `tier` allows it (default TCCACHE_TIER, else all) another one captures each kind of
    call as a function compiled ahead of time, and one more starts from these alone: those that are
    right and used there are published, too, else `aot_reasons` say why not.

    Published is what gave eager torch's outputs there, within `tolerance` (relative, for all
    floating dtypes; by dtype unless given), and started `warm`; or `partial`, if the compiler can
    cache some of its graphs and not others: then `reasons` name them. The proof in the manifest
    says what was checked, and records each output.

    A build adds: what the store has is not written again. A `dry_run` does all but the last
    publication, and needs no store. `slim` leaves out, before the verification, the texts that a
    Triton kernel came from, which no hit reads. Raises UsageError for a target that is none or does
    not load, IntegrityError if outputs differ, TccacheError if a process fails or a start is not as
    it should be: then nothing is published. And UntrustedError, StoreError, AccessDenied.
    """
    check_target(target)
    if is_disabled():
        raise TccacheError(f"{DISABLED}; {_NOTHING}")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UsageError(f"a tolerance of {tolerance} is none: it is relative, from 0 to 1")
    environment = read_environment()
    given, tiers = checked_tags(tags), chosen_tier(tier)
    said = access(trust, sign_with)
    repository = None if dry_run and store is None else open_repository(store, said, signs=True)
    if repository is not None and not dry_run:
        require_key(repository)
    with workplace("build") as folder:
        work = _Build(
            target, label, salt, tolerance, given, environment, folder, progress, slim, tiers
        )
        verified = work.verified()
        if dry_run or repository is None:
            return verified.built(None, dry_run=True)
        return verified.built(work.publish(repository, verified.proof))


@dataclass
class _Build:
    """One build under way, in a directory of its own."""

    target: str
    label: str | None
    salt: str | None
    tolerance: float | None
    tags: tuple[str, ...]
    environment: Components
    scratch: Path
    progress: Progress
    slim: bool
    tiers: Allowed
    ahead: Ahead = NOTHING_AHEAD

    def verified(self) -> _Verified:
        """Everything before the publication; raises if a check fails."""
        self.progress("run eagerly")
        eager = self._start("eager")
        self.progress("compile")
        cold = self._start("cold")
        _check_captured(self.target, cold)
        _check_outputs(self.target, "compiled from nothing", cold)
        self.goal = goal_of(cold, self.environment)
        self.context = Components.of(cold["context"])
        self.coverage = tuple(call["signature"] for call in cold["calls"])
        stage = open_repository(self.scratch / "store", PRIVATE)
        staged = self.publish(stage, None)
        self.progress("verify in a fresh process")
        warm = self._start("warm")
        _check_model(self.target, cold, warm)
        _check_verified(self.target, warm)
        _check_outputs(self.target, "started from the bundle", warm)
        self.ahead = self._compiled_ahead(cold)
        return _Verified(
            self.target, self.tolerance, self.goal, staged, eager, cold, warm, self.ahead
        )

    def _compiled_ahead(self, cold: Mapping[str, Any]) -> Ahead:
        """The functions that were captured and verified; whatever is against them, told."""
        if AOT not in self.tiers:
            return Ahead(reasons=(f"the tier was set to {self.tiers.said}",))
        try:
            self.progress("compile ahead of time")
            found = captured(self.scratch / "functions", self._start("capture"))
            if not found.units:
                return Ahead(reasons=found.reasons)
            publish_captured(self.scratch / "store", self.goal, found, self.coverage)
            self.progress("verify the functions in a fresh process")
            outcome = self._start("aot")
        except TccacheError as error:
            return Ahead(reasons=(str(error),))
        if Components.of(outcome["model"]).digest != Components.of(cold["model"]).digest:
            return Ahead(reasons=("the model is another one where it is not compiled",))
        if reason := why_unverified(outcome):
            return Ahead(reasons=(*found.reasons, reason))
        return Ahead(
            folder=found.folder,
            units=tuple(outcome["functions"]),
            first_call_s=outcome["first_call_s"],
            calls=outcome["report"]["counts"]["aot_hits"],
            past=outcome["report"]["counts"]["aot_misses"],
            reasons=found.reasons,
        )

    def _start(self, arm: str) -> dict[str, Any]:
        home = self.scratch / arm
        home.mkdir()
        if arm == "capture":  # it adds to the directories, and what it adds nobody verifies
            shutil.copytree(self.scratch / "cold", home / "caches", dirs_exist_ok=True)
        spec = SampleSpec(
            arm=arm,
            target=self.target,
            spawned=0.0,
            reference=str(self.scratch / "eager.pt"),
            store=str(self.scratch / "store"),
            label=self.label,
            proving=True,
            tolerance=self.tolerance,
            mega=str(self._mega),
            functions=str(self.scratch / "functions"),
        )
        return run_sample(
            spec,
            home,
            elsewhere=arm in ("warm", "aot"),
            salt=self.salt,
            caches=home / "caches" if arm == "capture" else None,
        )

    def _is_wanted(self, unit: FoundUnit) -> bool:
        """Whether a unit was verified: a function that no call was made by was not."""
        return not unit.key.startswith(f"{AOT}/") or unit.key in self.ahead.units

    @property
    def _mega(self) -> Path:
        return self.scratch / "mega"

    def publish(self, repository: Repository, proof: Proof | None) -> Pushed:
        """Publishes what the cold process left in its directories."""
        facts = facts_of(self.goal, coverage=self.coverage, proof=proof, tags=self.tags)
        cold = self.scratch / "cold"
        trees = Trees(
            inductor=_if_there(cold / "inductor"),
            triton=_if_there(cold / "triton"),
            mega=_if_there(self._mega),
            aot=self.ahead.folder,
        )

        def collect() -> Goods:  # again, if files change meanwhile
            goods = from_trees(trees, self.context)
            goods = goods.only(self._is_wanted)
            return goods.slim() if self.slim else goods

        return publish_goods(repository, self.goal, facts, collect, self.progress)


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def _check_captured(target: str, cold: Mapping[str, Any]) -> None:
    """A model of several equal graphs finds its own entries; a second one must not find others."""
    verdict = Verdict(cold["report"]["verdict"])
    if verdict not in (Verdict.COLD, Verdict.PARTIAL):
        raise _refusal(target, "compiled start", verdict, cold)


def _check_model(target: str, cold: Mapping[str, Any], warm: Mapping[str, Any]) -> None:
    """A model that is another one in the second process would never be found: says in what."""
    differences = Components.of(cold["model"]).diff(Components.of(warm["model"]))
    if cold["name"] != warm["name"]:
        raise TccacheError(
            f"{target} is named {cold['name']} in one process and {warm['name']} in the next, so"
            f" {_NOTHING}: give it one name, or --label"
        )
    if differences:
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        told = "; ".join(map(str, differences[:_SHOWN]))
        raise TccacheError(
            f"the model of {target} is another one in each process, so {_NOTHING}, because nobody"
            f" would find it: {told}{more}"
        )


def _check_verified(target: str, warm: Mapping[str, Any]) -> None:
    verdict = Verdict(warm["report"]["verdict"])
    if verdict is Verdict.WARM:
        return
    if verdict is not Verdict.PARTIAL or _is_unexplained(warm["report"]["counts"]):
        raise _refusal(target, "start from the bundle", verdict, warm)


def _is_unexplained(counts: Mapping[str, Any]) -> bool:
    """Whether something missed that the compiler can store.

    What Inductor bypasses is compiled, built and tuned at each start; a miss of AOTAutograd's
    alone is a graph that it has not stored.
    """
    built = counts["native_builds"] or counts["autotunings"]
    return bool(counts["graph_misses"] or (built and not counts["graph_bypasses"]))


def _refusal(target: str, what: str, verdict: Verdict, outcome: Mapping[str, Any]) -> TccacheError:
    said = "; ".join(line.strip() for line in outcome["summary"].splitlines())
    return TccacheError(
        f"the {what} of {target} was {verdict}, so {_NOTHING}: {_CURES[verdict]} ({said})"
    )


def _check_outputs(target: str, how: str, outcome: Mapping[str, Any]) -> None:
    """Raises IntegrityError naming each call whose output is not what eager torch gives."""
    issues = [
        f"call {number} of {len(outcome['calls'])}, {call['signature']}: {difference}"
        for number, call in enumerate(outcome["calls"], 1)
        for difference in call["differences"]
    ]
    if issues:
        more = f"; and {len(issues) - _SHOWN} more" if len(issues) > _SHOWN else ""
        raise IntegrityError(
            f"{target}, {how}, does not give what eager torch gives, so {_NOTHING}:"
            f" {'; '.join(issues[:_SHOWN])}{more}",
            issues[:20],
        )


@dataclass(frozen=True)
class _Verified:
    """The outcomes of the three processes, all checks passed."""

    target: str
    tolerance: float | None
    goal: Target
    staged: Pushed
    eager: Mapping[str, Any]
    cold: Mapping[str, Any]
    warm: Mapping[str, Any]
    ahead: Ahead

    @property
    def proof(self) -> Proof:
        return Proof(
            cold_s=self.cold["report"]["first_call_s"],
            warm_s=self.warm["report"]["first_call_s"],
            verdict=Verdict(self.warm["report"]["verdict"]),
            verified=(*self._checks(), *self._reasons()),
            outputs=_records(self.eager["records"]),
        )

    def _checks(self) -> Iterator[str]:
        within = _USUAL if self.tolerance is None else f"{self.tolerance:g}, relative"
        yield f"outputs of {len(self.calls)} calls equal to eager within {within}"
        yield "started in a fresh process with another working directory and HOME"
        yield from self.ahead.verified()
        for call in self.calls:
            if call.random:
                yield (
                    f"call {call.signature}: values that depend on random numbers are only finite,"
                    f" of the same dtypes and shapes: {', '.join(call.random[:_SHOWN])}"
                    f"{' and more' if len(call.random) > _SHOWN else ''}"
                )

    def _reasons(self) -> tuple[str, ...]:
        """Why the verdict is not `warm`, in the report's own sentences."""
        if self.warm["report"]["verdict"] == Verdict.WARM.value:
            return ()
        return tuple(line.strip() for line in self.warm["summary"].splitlines()[1:])

    @property
    def calls(self) -> Sequence[BuiltCall]:
        return [
            BuiltCall(
                signature=warm["signature"],
                eager_s=eager["seconds"],
                cold_s=cold["seconds"],
                warm_s=warm["seconds"],
                difference=warm["apart"],
                random=tuple(warm["random"]),
            )
            for eager, cold, warm in zip(
                self.eager["calls"], self.cold["calls"], self.warm["calls"], strict=True
            )
        ]

    def built(self, pushed: Pushed | None, *, dry_run: bool = False) -> Built:
        """The result, of a publication or without one."""
        told = pushed or self.staged
        return Built(
            target=self.target,
            address=self.goal.address,
            verdict=Verdict(self.warm["report"]["verdict"]),
            cold_s=self.cold["first_call_s"],
            warm_s=self.warm["first_call_s"],
            calls=tuple(self.calls),
            verified=tuple(self._checks()),
            units=told.units,
            files=told.files,
            bytes=told.bytes,
            pack_bytes=told.publication.pack_bytes,
            segment=pushed.publication.segment if pushed else None,
            added=pushed.publication.added if pushed else 0,
            dry_run=dry_run,
            reasons=self._reasons(),
            functions=len(self.ahead.units),
            aot_s=self.ahead.first_call_s,
            aot_reasons=self.ahead.reasons,
            warnings=told.warnings,
        )


def _records(found: Iterable[Mapping[str, Any]]) -> tuple[OutputRecord, ...]:
    issues = Issues()
    records = tuple(OutputRecord.read(Fields(item, "outputs", issues)) for item in found)
    issues.raise_if_any("what the eager process recorded")
    return records
