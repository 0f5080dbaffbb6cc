"""push: from cache directories, and the mega-cache of this process, into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cachesvc.core.address import ANY_MODEL
from cachesvc.core.components import Components
from cachesvc.core.proof import Proof
from cachesvc.core.report import Report, Verdict
from cachesvc.local.needs import load_parsers
from cachesvc.repository.publish import Facts, Publication
from cachesvc.start.access import Paths, TrustLike, access
from cachesvc.start.beside import Beside
from cachesvc.start.goods import Goods, from_live_directory, from_stock, from_trees, take_stock
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.publishing import Pushed, facts_of, publish_goods
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled, open_repository
from cachesvc.start.tags import checked_tags
from cachesvc.start.target import EnvironmentLike, Target, target
from cachesvc.start.trees import PathLike, Trees


def push(
    model: Any,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    label: str | None = None,
    inductor_dir: PathLike | None = None,
    triton_dir: PathLike | None = None,
    mega: PathLike | None = None,
    extra: Mapping[str, PathLike] | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
    report: Report | None = None,
    tags: Iterable[str] = (),
    slim: bool = False,
    progress: Progress = quiet,
) -> Pushed:
    """Publishes cache directories under a name, or what this process compiled for a model.

    `model` is a name, then the directories and files given are pushed (the live directory if none
    is); or a model (several: a sequence or a mapping by name), then what this process has compiled
    or used is. A push adds: what the store has is not written again, and nothing is taken away.
    `report`, of the start that compiled, puts its seconds and its calls into the manifest. `salt`
    is the caller's own part of the model digest. `slim` leaves out the texts that a Triton kernel
    came from, which no hit reads; a kernel that the store has with them stays as it is there.
    `sign_with` are files of private keys that sign what is published (TCCACHE_SIGN_WITH); what was
    brought here and they have not signed is then left out, unless its directories are given. Where
    TCCACHE_DISABLE is set, nothing is done.

    Raises UsageError, UntrustedError, IntegrityError, StoreError, AccessDenied; TccacheError if
    there is nothing to publish.
    """
    if is_disabled():
        address = target(model, label=label, environment=environment, salt=salt).address
        return Pushed(Publication(address, None), 0, 0, 0, warnings=(DISABLED,))
    repository = open_repository(store, access(trust, sign_with), signs=True)
    goal = _goal(model, label, environment, salt, report)
    trees = Trees(inductor_dir, triton_dir, mega, extra or {})
    facts = _facts(goal, report, checked_tags(tags))
    collect = _collector(model, goal, trees, report, repository.trust.digest)
    return publish_goods(repository, goal, facts, _slim(collect) if slim else collect, progress)


def push_beside(
    model: Any,
    report: Report,
    *,
    store: StoreLike | None,
    trust: TrustLike | None,
    label: str | None,
    salt: str | None,
) -> Beside:
    """Publishes in a thread what this process has compiled for a model until now.

    Raises UsageError for a label that is no name.
    """
    goal = _goal(model, label, None, salt, report)
    facts = _facts(goal, report, ())
    said = access(trust)
    collect = _collector(model, goal, Trees(), report, scope_of(said))
    # A fork while that thread imports would inherit a lock on the module, held for ever.
    load_parsers()
    return Beside(
        lambda: publish_goods(open_repository(store, said, signs=True), goal, facts, collect)
    )


def push_made(
    goal: Target,
    report: Report | None,
    *,
    calls: Iterable[str],
    context: Components,
    store: StoreLike | None,
    trust: TrustLike | None,
) -> Pushed:
    """Publishes what this process has compiled or used until now, from any thread.

    `calls` are covered beside those of the report; `context` is that of the thread that compiled.
    Raises what `push` raises.
    """
    facts = _facts(goal, report, ())
    facts = replace(facts, coverage=tuple(dict.fromkeys((*facts.coverage, *calls))))
    said, model = access(trust), goal.address.model
    stock = replace(take_stock(goal.environment.digest, scope_of(said)), context=context)
    if model == ANY_MODEL:  # what is found by a name alone are directories
        stock = replace(stock, artifacts=())
    suspects = report.suspects if report else frozenset()
    return publish_goods(
        open_repository(store, said, signs=True),
        goal,
        facts,
        lambda: from_stock(stock, model, suspects),
    )


def _collector(
    model: Any, goal: Target, trees: Trees, report: Report | None, trust: str | None
) -> Callable[[], Goods]:
    """Collects anew each time, as files may have changed; what the process knows is taken once.

    `trust` is the digest of the trust under which the live directory is filled.
    """
    environment = goal.environment.digest
    if trees:
        return lambda: from_trees(trees)
    if isinstance(model, str):
        return lambda: from_live_directory(environment, trust)
    stock = take_stock(environment, trust)
    suspects = report.suspects if report else frozenset()
    return lambda: from_stock(stock, goal.address.model, suspects)


def _slim(collect: Callable[[], Goods]) -> Callable[[], Goods]:
    return lambda: collect().slim()


def _goal(
    model: Any,
    label: str | None,
    environment: EnvironmentLike | None,
    salt: str | None,
    report: Report | None,
) -> Target:
    """The target, as the model was at its start: a call may leave traces in a model."""
    goal = target(model, label=label, environment=environment, salt=salt)
    if report is None or not report.model or isinstance(model, str):
        return goal
    address = replace(goal.address, model=report.model.digest)
    return replace(goal, address=address, model=report.model)


def _facts(goal: Target, report: Report | None, tags: tuple[str, ...]) -> Facts:
    if report is None:
        return facts_of(goal, tags=tags)
    return facts_of(goal, coverage=report.coverage, proof=_proof(report), tags=tags)


def _proof(report: Report) -> Proof:
    """What a start that compiled shows: its first call is the cold one."""
    cold = report.verdict in (Verdict.COLD, Verdict.INERT)
    return Proof(
        cold_s=report.first_call_s if cold else report.cold_s,
        warm_s=report.first_call_s if report.verdict is Verdict.WARM else None,
        verdict=report.verdict,
    )
