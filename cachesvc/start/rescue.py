"""When a call fails: what of the cache is at fault is set aside, and the same start goes on.

The order, from the cheapest suspicion to the last: the caller's own code (the call fails as it was
written, too), files that are damaged on this disk, the unit that the error names, everything that
was brought. What turns out not to be at fault is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.local.damage import damaged_units
from cachesvc.local.places import Places
from cachesvc.local.quarantine import read_quarantine, restore, set_aside
from cachesvc.local.strikes import Measure, begin_start, died_before, end_start, measure
from cachesvc.runtime.calls import Call, timed
from cachesvc.start.attempt import Attempt
from cachesvc.start.bring import TIERS
from cachesvc.start.clock import now

Made = tuple[Any, float]

_DIED = "the last start from this bundle died in its first call: all files were read again"
_DIED_TWICE = "two starts in a row died in their first call"
_DIED_ANYWAY = (
    "starts died in their first call with this bundle and without it: what was set aside is back"
)


@dataclass
class Rescue:
    """Makes the calls of an attempt; each way out of a failure is tried once.

    `damaged` are units whose files nobody can use, so they never come back; `aside` are those that
    are under suspicion.
    """

    attempt: Attempt
    damaged: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, a process that dies leaves a trace for the next start."""
        places = self._places()
        if places is None:
            yield
            return
        segments = self.attempt.chosen.segments
        try:
            self._after_deaths(measure(died_before(places.records, segments)))
            start = begin_start(places.records, segments)
        except TccacheError as error:  # a full disk must not keep anybody from serving
            self.attempt.notes.append(str(error))
            yield
            return
        try:
            yield
        finally:
            end_start(start)

    def make(self, call: Call) -> Made:
        """The output and the seconds of a call; raises what the call itself is at fault for."""
        try:
            return timed(call)
        except Exception as error:
            if self._places() is None or _fails_as_written(call):
                raise
            return self._again(call, error)

    def make_apart(self, call: Call, reason: str) -> Made:
        """The call made once more without the bundle, as its output was wrong."""
        from cachesvc.runtime.reset import apart

        self._suspect(dict.fromkeys(self._brought(), reason))
        try:
            with apart():
                return timed(call)
        except Exception:
            self.take_back()
            raise

    def told(self) -> tuple[str, ...]:
        """What this start has set aside, each unit with the reason."""
        return tuple(f"{u}: {reason}" for u, reason in {**self.damaged, **self.aside}.items())

    def take_back(self) -> None:
        """Puts back what was set aside by this start: it was not at fault."""
        places = self._places()
        if places is not None and self.aside:
            with suppress(TccacheError):
                restore(places, list(self.aside))
            self.aside.clear()

    def _again(self, call: Call, error: Exception) -> Made:
        from cachesvc.runtime.reset import forget_compiled

        for step in (self._without_damage, self._without_named, self._without_brought):
            if step(error):
                forget_compiled()
                try:
                    return timed(call)
                except Exception as later:
                    error = later
        return self._apart(call)

    def _apart(self, call: Call) -> Made:
        """The last way: directories in which nothing has ever been compiled."""
        from cachesvc.runtime.reset import apart

        try:
            with apart():
                return timed(call)
        except Exception:
            self.take_back()
            raise

    def _without_damage(self, _: Exception) -> bool:
        places = self._places()
        damaged = {} if places is None else {d.unit: d.reason for d in damaged_units(places)}
        done = self._put_aside(damaged)
        self.damaged |= done
        if done:
            self._say_trouble(self.attempt.bring_again)
        return bool(done)

    def _without_named(self, error: Exception) -> bool:
        """Without the brought units of which the error, or one that led to it, names the last
        part."""
        text = " ".join(_texts(error))
        named = (unit for unit in self._brought() if unit.rpartition("/")[2] in text)
        return self._suspect(dict.fromkeys(named, _told(error)))

    def _without_brought(self, error: Exception) -> bool:
        return self._suspect(dict.fromkeys(self._brought(), _told(error)))

    def _suspect(self, units: Mapping[str, str]) -> bool:
        fresh = {unit: reason for unit, reason in units.items() if unit not in self.aside}
        done = self._put_aside(fresh)
        self.aside |= done
        return bool(done)

    def _put_aside(self, units: Mapping[str, str]) -> dict[str, str]:
        """Those of the units that were there to be set aside, each with the reason."""
        places = self._places()
        if places is None or not units:
            return {}
        try:
            return {item.unit: item.reason for item in set_aside(places, units, at=now())}
        except TccacheError as error:
            self.attempt.notes.append(f"nothing could be set aside: {error}")
            return {}

    def _brought(self) -> tuple[str, ...]:
        """The keys of the units that the bundles of this start have in the live directory."""
        from cachesvc.start.transfer import holdings

        attempt = self.attempt
        if attempt.repository is None or not attempt.brought.is_usable:
            return ()
        sections = TIERS.get(attempt.brought.tier or "", frozenset())
        try:
            found = holdings(attempt.repository, attempt.chosen.bundles, foreign=False)
        except TccacheError as error:
            attempt.notes.append(str(error))
            return ()
        return tuple(key for key, unit in found.units.items() if unit.section in sections)

    def _after_deaths(self, step: Measure) -> None:
        places = self._places()
        if places is None or step is Measure.TRUST:
            return
        if step is Measure.VERIFY:
            self.attempt.notes.append(_DIED)
            self._without_damage(TccacheError(_DIED))
        elif step is Measure.SET_ASIDE:
            self._suspect(dict.fromkeys(self._brought(), _DIED_TWICE))
        else:
            units = [i.unit for i in read_quarantine(places.records) if i.reason == _DIED_TWICE]
            restore(places, units)
            self.attempt.notes.append(_DIED_ANYWAY)
            self._say_trouble(self.attempt.bring_again)

    def _say_trouble(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TccacheError as error:
            self.attempt.notes.append(str(error))

    def _places(self) -> Places | None:
        live = self.attempt.live
        return None if live is None else live.places


def _fails_as_written(call: Call) -> bool:
    """Whether the call fails without the compiler too: then it is the caller's own failure."""
    from cachesvc.runtime.eager import eagerly

    try:
        with eagerly():
            call.run()
    except Exception:
        return True
    return False


def _told(error: BaseException) -> str:
    """The error that led to all others, in a line: what it is, and the first line of its text."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def _texts(error: BaseException | None) -> Iterable[str]:
    """What the error and those that led to it say, and the files in which they were raised."""
    while error is not None:
        yield str(error)
        yield from (frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))
        error = error.__cause__ or error.__context__
