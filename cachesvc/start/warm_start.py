"""warm_start: before a model's first call, bring what some machine has compiled, and prove it.

Nothing here raises for what goes wrong with the cache: the worst case is the cold start that
there would have been anyway, with the reason in the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError
from cachesvc.core.report import Report
from cachesvc.local.host import read_environment
from cachesvc.local.live import Live
from cachesvc.local.megafile import Artifact
from cachesvc.repository.repository import Repository
from cachesvc.runtime import counters, directories, megacache
from cachesvc.runtime.calls import Call, example_calls, timed
from cachesvc.runtime.context import read_context
from cachesvc.runtime.headers import spare_headers
from cachesvc.start.bring import Brought, bring
from cachesvc.start.bundles import again_if_moved, select
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled, open_repository

_UNSTORED = (
    "AOTAutograd has stored nothing for {} graphs, so each start traces them again: a graph with"
    " gradients is stored after its backward pass; make the calls under torch.no_grad(), or give"
    " whole training steps"
)


def warm_start(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    calls: Iterable[Any] | None = None,
    store: StoreLike | None = None,
    label: str | None = None,
    trust: str | None = None,
    progress: Progress = quiet,
) -> Report:
    """Starts a model warm from a store, before or after `torch.compile`, in place.

    `inputs` are the arguments of one example call, `calls` several: a sequence of arguments, a
    mapping of keyword arguments, or a callable without arguments each. They are made after
    seeding, with gradients and autocast as they are set around this function, and prove the
    start. Without them the report is `unproven` and settles by itself at the model's first calls.
    `label` names the bundle (default: the model's class). The store is TCCACHE_STORE, the word of
    trust TCCACHE_TRUST unless given.

    Never raises for the cache, the store or the calls: the report says what went wrong. Where
    TCCACHE_DISABLE is set, nothing is touched and the calls are made as they are.
    """
    attempt = _Attempt(model=model, label=label, progress=progress, watch=not is_disabled())
    if is_disabled():
        attempt.notes.append(DISABLED)
    else:
        attempt.prepare(store, trust)
    return attempt.prove(inputs, calls)


def observe(model: Any, *, calls: Iterable[Any]) -> Report:
    """Makes the calls with whatever directories are in effect, and reports what was counted.

    Nothing is pulled: this is how a start without this library looks from inside.
    """
    attempt = _Attempt(model=model, label=None, progress=quiet)
    attempt.locate()
    return attempt.prove(None, calls)


@dataclass
class _Attempt:
    """One warm start under way; each step leaves what it found, also when a later one fails."""

    model: Any
    label: str | None
    progress: Progress
    watch: bool = True
    notes: list[str] = field(default_factory=list)
    stages: list[tuple[str, float]] = field(default_factory=list)
    store: str | None = None
    live: Live | None = None
    brought: Brought = field(default_factory=Brought)
    late: bool = False

    def prepare(self, store: StoreLike | None, trust: str | None) -> None:
        """Everything before the first call. Whatever goes wrong becomes a note."""
        try:
            with self._stage("identify"):
                self.notes.extend(self.locate().notes)
                directories.use(self._live())
            if self.late:
                self.notes.append("late: this process had compiled before; its directories stay")
            repository = open_repository(store, trust)
            self.store = repository.store.url
            again_if_moved(lambda: self._bring(repository, self._live()))
        except TccacheError as error:
            self.notes.append(str(error))
        except Exception as error:  # serving must start, whatever this library gets wrong
            self.notes.append(f"internal error, please report it: {type(error).__name__}: {error}")

    def locate(self) -> Live:
        """Finds the live directory in effect."""
        self.late = directories.is_late()
        self.live = directories.current(read_environment().digest)
        return self.live

    def _live(self) -> Live:
        assert self.live is not None  # noqa: S101 - set by the stage before
        return self.live

    def _bring(self, repository: Repository, live: Live) -> None:
        with self._stage("look up"):
            chosen = select(repository, self.model, label=self.label)
        brought = bring(repository, chosen, live.places, self.progress)
        self.notes.extend(brought.refused)
        self.notes.extend(f"left out, {text}" for text in brought.transfer.left_out)
        self.brought = brought
        if brought.newest is None:
            self.notes.append(f"the store has nothing for this model here: {repository.store.url}")
            return
        self.stages += [("pull", brought.transfer.pull_s), ("seed", brought.transfer.seed_s)]
        self.notes.extend(_context_notes(brought.contexts))
        if brought.has_inductor:
            spare_headers()
        if brought.tier == "megacache":
            with self._stage("load"):
                self._load(brought.artifacts, live)

    def _load(self, paths: Iterable[str], live: Live) -> None:
        placed = ((path, live.places.locate(path)) for path in paths)
        artifacts = [Artifact.from_bytes(f.read_bytes(), path) for path, f in placed if f]
        if not megacache.load(artifacts):
            self.notes.append("the compiler took nothing of the mega-cache: see its warnings")

    def prove(
        self, inputs: Sequence[Any] | Mapping[str, Any] | None, calls: Iterable[Any] | None
    ) -> Report:
        """Makes the calls and reports what the compiler counted meanwhile."""
        triton = directories.triton_folder(self.live) if self.live else None
        before = counters.compiled_so_far() > 0
        meter = counters.Meter(triton, hooked=self.watch)
        made: list[tuple[Call, float]] = []
        try:
            for call in example_calls(self.model, inputs, calls):
                self.progress(f"call {call.signature}")
                made.append((call, timed(call)))
        except Exception as error:  # the caller's own call will show it again, in its own place
            self.notes.append(f"an example call failed: {type(error).__name__}: {error}")
        first = made[0][1] if made else None
        if first is not None:
            self.stages.append(("first call", first))
        counts = meter.read()
        if unstored := meter.unstored():
            self.notes.append(_UNSTORED.format(unstored))
        return Report(
            name=self._name(),
            read_counts=(lambda: counts) if made else meter.read,
            called=bool(made),
            bundle=self.brought.newest,
            store=self.store,
            tier=self.brought.tier,
            live=str(self.live.root) if self.live else None,
            late=self.late,
            compiled_before=before,
            transfer=self.brought.transfer,
            stages=tuple(self.stages),
            first_call_s=first,
            cold_s=self.brought.cold_s,
            coverage=tuple(call.signature for call, _ in made),
            notes=tuple(dict.fromkeys(self.notes)),  # a second look may say the same again
        )

    def _name(self) -> str:
        from cachesvc.runtime.model import model_name

        return self.label or model_name(self.model)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.stages.append((name, time.perf_counter() - started))


def _context_notes(contexts: Sequence[Components]) -> Iterator[str]:
    """What differs between the process that compiled last and this one, and may explain a miss.

    Nothing where one of them was like this one.
    """
    here = read_context() if contexts else Components()
    if contexts and here not in contexts:
        for difference in contexts[-1].diff(here):
            yield f"context differs, {difference}"
