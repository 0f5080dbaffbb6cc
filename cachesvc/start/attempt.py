"""What a warm start does before the first call: identify, look up, pull, seed, load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cachesvc.core.components import Components
from cachesvc.core.errors import BundleNotFound, TccacheError, unexpected
from cachesvc.core.outputs import OutputRecord
from cachesvc.core.tier import AOT, MEGACACHE, Allowed
from cachesvc.local.host import read_environment
from cachesvc.local.live import Live
from cachesvc.local.megafile import Artifact
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Repository
from cachesvc.runtime import directories, megacache
from cachesvc.runtime.begins import before_compiler, is_compiler_loaded
from cachesvc.runtime.context import read_context
from cachesvc.runtime.ptxas import find_either_ptxas
from cachesvc.runtime.spare import spare_all
from cachesvc.runtime.spawned import find_program_last
from cachesvc.runtime.used import graph_units
from cachesvc.start.access import Access, Paths, TrustLike, access
from cachesvc.start.bring import Brought, bring
from cachesvc.start.bundles import Selection, again_if_moved, neighbour, of_model
from cachesvc.start.deadline import Deadline, within
from cachesvc.start.functions import Functions
from cachesvc.start.join import Joined, join
from cachesvc.start.options import Options, deadline_seconds
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import StoreLike
from cachesvc.start.target import Target, target

_CONTEXT = (
    "what differs may be in the compiler's keys: then what was compiled with the other value is not"
    " found, and is compiled again here"
)

Stages = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What the work beside the caller came to."""

    repository: Repository
    chosen: Selection
    brought: Brought
    stages: Stages
    records: tuple[OutputRecord, ...]


@dataclass
class Attempt:
    """One warm start under way; each step leaves what it found, also when a later one fails.

    `records` are those of outputs, where the caller wants them checked. `loaded` are the keys of
    the units that came into the live directory after `brought`: by loading a mega-cache, or as the
    `rest`, once something had to be compiled that no function was there for.
    """

    model: Any
    label: str | None = None
    salt: str | None = None
    options: Options = field(default_factory=Options)
    progress: Progress = quiet
    notes: list[str] = field(default_factory=list)
    stages: Stages = field(default_factory=list)
    goal: Target | None = None
    repository: Repository | None = None
    chosen: Selection = field(default_factory=lambda: Selection((), foreign=False))
    live: Live | None = None
    brought: Brought = field(default_factory=Brought)
    records: tuple[OutputRecord, ...] = ()
    loaded: tuple[str, ...] = ()
    late: bool = False
    ahead: Joined | None = None
    functions: Functions | None = None
    rest: Brought | None = None
    _begun: float | None = None
    _bringing: threading.RLock = field(default_factory=threading.RLock)

    @property
    def tier(self) -> str | None:
        """The tier in use: where no function is any more, that of what came in their place."""
        if self.rest is not None and self.functions is not None and not self.functions.units:
            return self.rest.tier
        return self.brought.tier

    def set_aside(self) -> tuple[str, ...]:
        """What of this start's bundle is set aside on this machine, each unit with the reason."""
        failed = {} if self.functions is None else self.functions.aside
        return (*self.brought.transfer.set_aside, *(f"{u}: {text}" for u, text in failed.items()))

    def prepare(
        self, store: StoreLike | None, trust: TrustLike | None, sign_with: Paths | None = None
    ) -> None:
        """Everything before the first call. Whatever goes wrong becomes a note.

        With on_miss="error" it is raised: BundleNotFound where there is nothing to be used.
        """
        strict = self.options.on_miss == "error"
        try:
            self._prepare(store, access(trust, sign_with))
        except TccacheError as error:
            if strict:
                raise
            self.notes.append(str(error))
        except Exception as error:  # serving must start, whatever this library gets wrong
            if strict:
                raise
            self.notes.append(unexpected(error))
        self._begun = None
        if strict and not self.brought.is_usable:
            raise BundleNotFound("; ".join(self.notes) or "nothing of the bundle can be used here")

    def _prepare(self, store: StoreLike | None, said: Access) -> None:
        started = self._begun = time.perf_counter()
        with self.stage("identify"):
            seconds = deadline_seconds(self.options.deadline)
            live = self.locate(scope_of(said, seconds=seconds, begun=started))
            self.notes.extend(live.notes)
            directories.use(live)
            find_program_last()
            if self.late:
                self.notes.append("late: this process had compiled before; its directories stay")
            self.goal = goal = target(self.model, label=self.label, salt=self.salt)
        self.ahead = ahead = join(goal, store, said, called=started, seconds=seconds)
        fetched = within(
            seconds,
            lambda deadline: self._fetch(goal, live, ahead, deadline),
            begun=started,
        )
        self.repository, self.chosen = fetched.repository, fetched.chosen
        self.records = fetched.records
        self.stages += fetched.stages
        ahead.await_imports()
        self.take(fetched.brought)

    def locate(self, trust: str | None = None) -> Live:
        """Finds the live directory in effect, for a trust (its digest)."""
        self.late = directories.is_late()
        self.live = directories.current(read_environment().digest, trust)
        return self.live

    def _fetch(self, goal: Target, live: Live, ahead: Joined, deadline: Deadline) -> _Fetched:
        """Runs beside the caller: changes nothing but the live directory, at its commit."""
        repository = ahead.open()

        def attempt() -> _Fetched:
            started = time.perf_counter()
            listed = ahead.take_listed() or repository.bundles(goal.address.name)
            chosen = self._choose(repository, goal, listed)
            stages = [("look up", time.perf_counter() - started)]
            tiers = self.options.tier
            records = self._recorded(repository, chosen)
            brought = bring(repository, chosen, live.places, self.progress, deadline, tiers=tiers)
            refused = brought.refused
            while brought.newest is None and brought.refused:  # as if it were not there
                listed = tuple(bundle for bundle in listed if bundle not in chosen.bundles)
                chosen = self._choose(repository, goal, listed)
                records = self._recorded(repository, chosen)
                brought = bring(
                    repository, chosen, live.places, self.progress, deadline, tiers=tiers
                )
                refused += brought.refused
            brought = replace(brought, refused=refused)
            if brought.newest is not None:
                moved = brought.transfer
                stages += [("pull", moved.pull_s), ("seed", moved.seed_s)]
            return _Fetched(repository, chosen, brought, stages, records)

        return again_if_moved(attempt)

    def _recorded(self, repository: Repository, chosen: Selection) -> tuple[OutputRecord, ...]:
        """The records of outputs. Read before the commit: after it nothing may wait for a store."""
        return tuple(_records(repository, chosen)) if self.options.check else ()

    def _choose(
        self, repository: Repository, goal: Target, listed: tuple[Bundle, ...]
    ) -> Selection:
        chosen = of_model(listed, goal)
        if chosen.bundles or not self.options.fallback:
            return chosen
        return neighbour(repository, listed, goal, read_context()) or chosen

    def take(self, brought: Brought) -> None:
        """Says what was brought, and prepares the compiler for it."""
        self.brought = brought
        if brought.tier != AOT:
            self._spare_compiler(brought)
        self.notes.extend(brought.refused)
        self.notes.extend(f"left out, {text}" for text in brought.transfer.left_out)
        if repaired := brought.transfer.repaired:
            self.notes.append(f"{repaired} units were damaged on this disk and brought again")
        if brought.newest is None:
            where = self.repository.store.url if self.repository else "the store"
            self.notes.append(f"the store has nothing for this model here: {where}")
            return
        if self.chosen.differences:
            self.notes.append(_neighbours(self.chosen))
        self.notes.extend(_context_notes(brought.contexts))
        if brought.tier == AOT:
            with self.stage("load"):
                self._arm()
        self._load_artifacts(brought)

    def _spare_compiler(self, brought: Brought) -> None:
        """Spares the compiler what it would do again although there are graphs for it."""
        if self.live is not None and (brought.has_inductor or self._is_filled()):
            spare_all(self.live.places.records)
            find_either_ptxas()

    def _arm(self) -> None:
        """Puts the functions into the models; with none in use the start goes one tier down."""
        assert self.live is not None  # noqa: S101 - it was seeded
        assert self.goal is not None  # noqa: S101
        self.functions = functions = Functions(self.model, self.goal, self.salt, self.live.places)
        try:
            functions.load(self.brought.units, self.bring_rest)
        except Exception as error:  # serving must start, whatever this library gets wrong
            functions.notes.append(f"no function is used: {unexpected(error)}")
        self.notes += functions.notes
        if not functions.units or is_compiler_loaded():
            self.bring_rest()
        else:
            before_compiler(self.bring_rest)

    def disarm(self) -> None:
        """Does without functions from now on, as something that was brought is under suspicion."""
        if self.functions is not None and self.functions.units:
            self.functions.unload()
            self.bring_rest()
            self._go_down()

    def bring_rest(self) -> None:
        """Brings the next tier, once: something may have to be compiled. Never raises."""
        with self._bringing:  # whoever comes meanwhile waits, and then finds all in place
            if self.repository is None or self.live is None or self.rest is not None:
                return
            self.rest = Brought()
            try:
                self.rest = rest = self._bring(self._below_aot())
                self.loaded += rest.units
                self._go_down()
                self._load_artifacts(rest)
                self._spare_compiler(rest)
            except TccacheError as error:
                self.notes.append(str(error))
            except Exception as error:  # as above
                self.notes.append(unexpected(error))

    def _go_down(self) -> None:
        """The next tier is that of the start, if no function is in use."""
        if self.rest is not None and not (self.functions and self.functions.units):
            self.brought = _instead(self.rest, self.brought)

    def _below_aot(self) -> Allowed:
        tiers = self.options.tier
        return replace(tiers, tiers=tuple(tier for tier in tiers.tiers if tier != AOT))

    def _load_artifacts(self, brought: Brought) -> None:
        if brought.tier == MEGACACHE:
            with self.stage("load"):
                self._load(brought.artifacts)

    def _is_filled(self) -> bool:
        """Whether the live directory holds graphs, brought or made here."""
        return self.live is not None and (self.live.folder("inductor") / "fxgraph").is_dir()

    def _load(self, paths: Iterable[str]) -> None:
        assert self.live is not None  # noqa: S101 - it was seeded
        places = self.live.places
        placed = ((path, places.locate(path)) for path in paths)
        artifacts = [Artifact.from_bytes(f.read_bytes(), path) for path, f in placed if f]
        self.loaded += tuple(graph_units(artifacts))
        if not megacache.load(artifacts):
            self.notes.append("the compiler took nothing of the mega-cache: see its warnings")

    def bring_again(self) -> None:
        """Seeds what is missing in the live directory by now. Raises what `bring` raises."""
        if self.repository is not None and self.live is not None:
            self.brought = self._bring(self.options.tier)

    def _bring(self, tiers: Allowed) -> Brought:
        repository, live, chosen = self.repository, self.live, self.chosen
        assert repository is not None  # noqa: S101 - whoever calls has looked
        assert live is not None  # noqa: S101
        return within(
            deadline_seconds(self.options.deadline),
            lambda deadline: bring(
                repository, chosen, live.places, self.progress, deadline, tiers=tiers
            ),
            begun=self._begun,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Notes the seconds of what is done within."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.stages.append((name, time.perf_counter() - started))


def _instead(rest: Brought, functions: Brought) -> Brought:
    """What was brought in the place of functions, none of which is in use."""
    aside = (*functions.transfer.set_aside, *rest.transfer.set_aside)
    return replace(
        rest,
        aside=(*functions.aside, *rest.aside),
        cold_s=rest.cold_s or functions.cold_s,
        transfer=replace(rest.transfer, set_aside=aside),
    )


def _records(repository: Repository, chosen: Selection) -> Iterator[OutputRecord]:
    """What the builders of these bundles have recorded of outputs."""
    for bundle in chosen.bundles:
        for segment in repository.read(bundle).segments:
            if segment.manifest.proof is not None:
                yield from segment.manifest.proof.outputs


def _neighbours(chosen: Selection) -> str:
    shown = "; ".join(map(str, chosen.differences[:3]))
    more = f" and {len(chosen.differences) - 3} more" if len(chosen.differences) > 3 else ""
    return (
        "fallback: the store has nothing for this very model; the bundle of another one of this"
        f" name serves the graphs that are the same. It differs in {shown}{more}"
    )


def _context_notes(contexts: Sequence[Components]) -> Iterator[str]:
    """What differs between the process that compiled last and this one, and may explain a miss.

    Nothing where one of them was like this one.
    """
    here = read_context() if contexts else Components()
    if contexts and here not in contexts:
        for difference in contexts[-1].diff(here):
            yield f"context differs, {difference}"
        yield _CONTEXT
