"""What a process compiles after its start, published beside it whenever it has settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError, UsageError, unexpected
from cachesvc.core.report import Report
from cachesvc.local.needs import load_parsers
from cachesvc.repository.publish import Publication
from cachesvc.start.access import TrustLike
from cachesvc.start.publishing import Pushed
from cachesvc.start.push import push_made
from cachesvc.start.settings import StoreLike, chosen_repository
from cachesvc.start.settling import Settling
from cachesvc.start.target import Target, target

_MOST_CALLS = 1000


def goal_of(report: Report | None, model: object, label: str | None, salt: str | None) -> Target:
    """Where a process publishes: as the model was at the start that is reported, else as it is;
    without a digest from either, under the label or the name in the report alone.

    Raises UsageError for a label that is no name, or where nothing says a name; whatever the code
    of a model raises when it is looked at.
    """
    name = report.name if label is None and report is not None else label
    if report is not None and report.model:
        goal = target(name)
        address = replace(goal.address, model=report.model.digest)
        return replace(goal, address=address, model=report.model)
    if model is not None:
        return target(model, label=label, salt=salt)
    if name is None:
        raise UsageError("what is published needs a name: give the report, the model or a label")
    return target(name)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where to publish, and the start that came before, if it is known."""

    goal: Target
    report: Report | None
    store: StoreLike | None
    trust: TrustLike | None

    @property
    def place(self) -> StoreLike | None:
        """The store that was given, else that of the start, else None: TCCACHE_STORE's."""
        return self.report.store if self.store is None and self.report else self.store

    def check(self) -> None:
        """Raises TccacheError where no publication can come of it, never UsageError: a variable
        may have named the store. Makes no request."""
        try:
            chosen_repository(self.place, self.trust, signs=True)
        except UsageError as error:
            raise TccacheError(str(error)) from error
        if self.report is not None and self.report.made_apart:
            raise TccacheError("a call was only right outside the live directory")


class Supplement:
    """Publishes what this process has compiled or used, in a thread, once nothing was added for
    `settle_s` seconds, and at the end. Trouble is told to `warn`, and serving goes on."""

    def __init__(
        self, destination: Destination, settle_s: float, warn: Callable[[str], None]
    ) -> None:
        self._destination = destination
        self._warn = warn
        self._context = Components()
        self._calls: dict[str, None] = {}
        self._state = "nothing to add yet"
        self._is_behind = False
        self.published: tuple[Publication, ...] = ()
        self._settle_s = settle_s
        # A fork while the thread imports would inherit a lock on the module, held for ever.
        load_parsers()
        self.renew()

    def renew(self) -> None:
        """Begins anew, as after a fork: what the parent process adds is its own to publish."""
        self._settling = Settling(self._publish, self._settle_s, "tccache-publish")

    def add(self, call: str) -> None:
        """Says that this thread has compiled for a call; empty for one that no bundle covers."""
        from cachesvc.runtime.context import read_context

        self._context = read_context()  # threads differ in their settings
        if call and len(self._calls) < _MOST_CALLS:
            self._calls[call] = None
        self._touch()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all that was added is published, at most `timeout` seconds; whether it is."""
        return self._settling.wait(timeout)

    def finish(self, patience: float) -> bool:
        """Publishes at once what was added, or could not be published before, within so many
        seconds; whether that has ended."""
        if self._is_behind:
            self._touch()
        return self._settling.finish(patience)

    def state(self) -> str:
        """What is going on, the segment that was published last, or what went wrong."""
        if self._settling.is_busy:
            return "under way"
        return "waits until compiles settle" if self._settling.is_waiting else self._state

    def _touch(self) -> None:
        try:
            self._settling.touch()
        except RuntimeError as error:
            self._failed(f"no thread can be started for it: {error}")

    def _publish(self) -> None:
        try:
            self._state = self._told(self._pushed())
            self._is_behind = False
        except TccacheError as error:
            self._failed(str(error))
        except Exception as error:  # serving goes on, whatever this library gets wrong
            self._failed(unexpected(error))

    def _pushed(self) -> Pushed:
        to = self._destination
        calls, context = tuple(dict(self._calls)), self._context
        return push_made(
            to.goal, to.report, calls=calls, context=context, store=to.place, trust=to.trust
        )

    def _told(self, pushed: Pushed) -> str:
        for warning in pushed.warnings:
            self._warn(warning)
        if pushed.publication.segment is not None:
            self.published = (*self.published, pushed.publication)
        last = self.published[-1].segment if self.published else None
        return "nothing to add" if last is None else f"segment {last[:12]}"

    def _failed(self, text: str) -> None:
        self._is_behind = True
        self._state = f"failed: {text}"
        self._warn(f"nothing was published: {text}")
