"""run: any program, started with what a store holds for it; what it adds goes back to the store.

The program need not know this library. Whatever goes wrong with the store or the disk is a
warning: the program is started all the same, and its exit code is never changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachesvc.core.address import check_name
from cachesvc.core.components import Components
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import TccacheError, UntrustedError, UsageError, unexpected
from cachesvc.core.report import Transfer
from cachesvc.local.filled_for import fill_for
from cachesvc.local.host import read_environment
from cachesvc.local.in_use import hold
from cachesvc.local.live import INDUCTOR, TRITON, Live
from cachesvc.local.tree import scan
from cachesvc.local.usage import additions, watch
from cachesvc.repository.publish import Publication
from cachesvc.runtime.directories import current
from cachesvc.start.access import Access, Paths, TrustLike, access
from cachesvc.start.additions import Publisher, Start
from cachesvc.start.bring import DIRECTORIES_ONLY, Brought, bring
from cachesvc.start.bundles import again_if_moved, select
from cachesvc.start.deadline import Deadline, within
from cachesvc.start.options import deadline_seconds
from cachesvc.start.program import Ended, Signals, located
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import (
    DISABLED,
    StoreLike,
    chosen_store,
    is_disabled,
    open_repository,
)
from cachesvc.start.trees import live_folders

SETTLE_S = 10.0
PATIENCE_S = 30.0

_SWITCHES = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
"""Variables that switch a cache of the compiler off, each with the value that does. All caches are
on by default in every torch from 2.7 on, and a variable that switches one on would also overrule
the program's own settings: so none is set here."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it did with its caches, as seen from outside.

    `exit_code` is the program's; 128 and the number of the signal if it died of one. `in_place`
    units of the store's bundles lay in the live directory at the start, and `own` others that this
    machine had made or brought before. `used` and `own_used` of these were read, None where the
    file system does not tell. `added` units are new, or have files that they had not.
    """

    name: str
    exit_code: int
    signal: int | None = None
    live: str | None = None
    bundles: tuple[str, ...] = ()
    transfer: Transfer = Transfer()
    in_place: int = 0
    used: int | None = None
    own: int = 0
    own_used: int | None = None
    added: int = 0
    published: tuple[Publication, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def is_inert(self) -> bool:
        """Whether units were brought, none was used, and the program added its own."""
        return self.in_place > 0 and self.used == 0 and self.added > 0


def run(
    name: str,
    command: Sequence[str],
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    publish: bool = True,
    deadline: float | None = None,
    settle: float = SETTLE_S,
    patience: float = PATIENCE_S,
    progress: Progress = quiet,
    warn: Progress = quiet,
) -> Ran:
    """Runs a command with the caches that a store holds under a name, until it ends.

    Everything under the name for this environment is brought into the live directory, for at most
    `deadline` seconds (default: TCCACHE_DEADLINE, else five minutes), and the command finds it
    there by TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR. It has this process's streams and process
    group, and gets the signals that this process is sent. What it compiled is published under the
    name unless `publish` is false: while it runs, whenever nothing was added for `settle` seconds,
    and after its end, for at most `patience` seconds, or until a signal asks for the end. Where
    TCCACHE_DISABLE is set, the command is run and nothing else is done.

    `warn` is told of trouble when it comes; `notes` of the result hold it too. Call it in the main
    thread of a process that does little else: signals are this function's while it runs. Raises
    UsageError, and UntrustedError, before anything is done; its exit code is 127 if there is no
    such program, 126 if it cannot be run.
    """
    if DIGEST.fullmatch(check_name(name)):
        raise UsageError(f"{name} reads as a model digest: give the name to publish under")
    program, seconds = located(command), deadline_seconds(deadline)
    begun = time.perf_counter()
    work = _Run(name, store, access(trust, sign_with), progress, warn)
    if not is_disabled():
        work.check_store(seconds)
    with Signals() as signals:
        if is_disabled():
            work.note(DISABLED)
            return work.ran(signals.run(program, command, os.environ))
        with work.troubles():
            work.locate(seconds, begun)
        with work.troubles():
            work.pull(signals, seconds, begun)
        with work.troubles():
            work.look()
        started = time.monotonic()
        if not publish:
            ended = signals.run(program, command, work.environ())
            return work.ran(ended, seconds=time.monotonic() - started)
        with work.publishing(signals, settle, patience) as published:
            ended = signals.run(program, command, work.environ())
            lasted = time.monotonic() - started
        return work.ran(ended, published, lasted)


@dataclass(frozen=True, slots=True)
class _Pulled:
    """What a pull brought: bundles by address, keys of the units, and what there is to say.

    What lies under the key of a unit that was set aside is this machine's own.
    """

    bundles: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    transfer: Transfer = Transfer()
    notes: tuple[str, ...] = ()


@dataclass
class _Run:
    """One run under way; each step leaves what it found, also when a later one fails."""

    name: str
    store: StoreLike | None
    trust: Access
    progress: Progress
    warn: Callable[[str], None]
    environment: Components = field(default_factory=Components)
    live: Live | None = None
    pulled: _Pulled = field(default_factory=_Pulled)
    start: Start | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tells the user, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.warn(text)

    @contextmanager
    def troubles(self) -> Iterator[None]:
        """Whatever goes wrong within is a note: the program must start."""
        try:
            yield
        except TccacheError as error:
            self.note(str(error))
        except Exception as error:
            self.note(unexpected(error))

    def check_store(self, seconds: float) -> None:
        """Raises for a store that the caller named wrongly; one that fails is met again later.

        A directory on a server that is away makes whoever looks at it wait.
        """
        try:
            within(seconds, lambda _: chosen_store(self.store, self.trust))
        except (UsageError, UntrustedError):
            raise
        except TccacheError as error:
            self.note(str(error))

    def locate(self, seconds: float, begun: float) -> None:
        """Finds the live directory, which belongs to those who are trusted."""
        for variable, off in _SWITCHES.items():
            if os.environ.get(variable) == off:
                self.note(f"{variable}={off} is set, so the compiler uses no cache of that kind")
        self.environment = read_environment()
        scope = scope_of(self.trust, seconds=seconds, begun=begun)
        self.live = live = current(self.environment.digest, scope)
        hold(live.places, inherited=True)
        if scope is not None:
            fill_for(live.places, scope)  # before the program, or a child of it, fills it otherwise
        for text in self.live.notes:
            self.note(text)

    def pull(self, signals: Signals, seconds: float, begun: float) -> None:
        """Brings the bundles; nothing enters the live directory after that time, or a signal."""
        if self.live is None:
            return
        live = self.live
        self.pulled = within(
            seconds,
            lambda deadline: _pull(self, live, deadline),
            begun=begun,
            beside=signals.beside,
            wait_for=signals.wait_for,
        )
        for text in self.pulled.notes:
            self.note(text)

    def look(self) -> None:
        """Sees what lies in the live directory before the program does."""
        if self.live is None:
            return
        self.progress("look into the live directory")
        folders = live_folders(self.live)
        found = scan(folders)
        watched = watch(found.units, [folder for _, folder in folders])
        self.start = Start(self.live, self.environment, found, watched, self.pulled.keys)

    def environ(self) -> Mapping[str, str]:
        """The program's environment: this process's, and the way to the live directory."""
        if self.live is None:
            return os.environ
        return {
            **os.environ,
            INDUCTOR: str(self.live.folder("inductor")),
            TRITON: str(self.live.folder("triton")),
        }

    @contextmanager
    def publishing(
        self, signals: Signals, settle: float, patience: float
    ) -> Iterator[Sequence[Publication]]:
        """Publishes while it is entered, and a last time after that, however it is left."""
        if self.start is None:  # there is nowhere to look
            yield ()
            return
        publisher = Publisher(self.name, self.store, self.trust, self.start, settle, self.note)
        try:
            work = signals.beside(publisher.work, "tccache-publish")
        except TccacheError as error:
            self.note(f"what the program adds is not published: {error}")
            yield ()
            return
        try:
            yield publisher.published
        finally:
            publisher.finish()
            if not signals.wait_unless_ended(work, patience):
                self.note(
                    "the publication was not finished: what was added may not be in the store"
                )

    def ran(self, ended: Ended, published: Sequence[Publication] = (), seconds: float = 0.0) -> Ran:
        """What there is to tell at the end."""
        in_place, own, used, own_used, added = 0, 0, None, None, 0
        if self.start is not None:
            with self.troubles():
                keys = {unit.key for unit in self.start.scan.units}
                pulled, others = keys & self.start.pulled, keys - self.start.pulled
                in_place, own = len(pulled), len(others)
                read = self.start.watch.used()
                if read is not None:
                    used, own_used = len(read & pulled), len(read & others)
                added = len(additions(self.start.scan, scan(live_folders(self.start.live))))
        return Ran(
            name=self.name,
            exit_code=ended.exit_code,
            signal=ended.signal,
            live=str(self.live.root) if self.live else None,
            bundles=self.pulled.bundles,
            transfer=self.pulled.transfer,
            in_place=in_place,
            used=used,
            own=own,
            own_used=own_used,
            added=added,
            published=tuple(published),
            seconds=seconds,
            notes=tuple(self.notes),
        )


def _pull(run: _Run, live: Live, deadline: Deadline) -> _Pulled:
    run.progress(f"look for bundles of {run.name}")
    repository = open_repository(run.store, run.trust)

    def attempt() -> Brought:
        deadline.check()
        chosen = select(repository, run.name)
        return bring(
            repository, chosen, live.places, run.progress, deadline, tiers=DIRECTORIES_ONLY
        )

    brought = again_if_moved(attempt)
    transfer = brought.transfer
    return _Pulled(
        brought.bundles,
        frozenset(brought.units),
        transfer,
        (
            *brought.refused,
            *_left_out(transfer.left_out),
            *_set_aside(transfer.set_aside),
        ),
    )


def _left_out(texts: Sequence[str]) -> Iterator[str]:
    return (f"left out, {text}" for text in texts)


def _set_aside(texts: Sequence[str]) -> Iterator[str]:
    return (f"set aside, {text}" for text in texts)
