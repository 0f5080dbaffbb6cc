"""When a call fails: what of the cache is at fault is set aside, and the same start goes on.

The order, from the cheapest suspicion to the last: the caller's own code (the call fails as it was
written, too), a passing trouble (the call is made once more), files that are damaged on this disk,
the units that the error names, everything that was brought, and everything that this process has
used. What turns out not to be at fault is put back.

What only a failure needs is imported there: no start in order pays for it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any

from cachesvc.core.errors import TccacheError
from cachesvc.local.layout import unit_key
from cachesvc.local.places import Places
from cachesvc.local.strikes import Measure, begin_start, died_before, end_start, measure
from cachesvc.runtime.calls import Call, timed
from cachesvc.runtime.eager import is_one_of_several
from cachesvc.start.attempt import Attempt
from cachesvc.start.clock import now

Made = tuple[Any, float]

_DIED = "the last start {} died in its first call: all files were read again"
_DIED_TWICE = "two starts in a row died in their first call"
_DIED_ANYWAY = (
    "starts died in their first call with this bundle and without it: what was set aside is back"
)
_PATIENCE_S = 10.0
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass
class Rescue:
    """Makes the calls of an attempt; each way out of a failure is tried once.

    `damaged` are units whose files nobody can use, so they never come back; `aside` are those that
    are under suspicion. `is_alone`: nothing else was compiled in this process before, so that all
    of it may be forgotten. `again` is called before a call is made once more: what was counted
    until then is about code that is no longer in use.
    """

    attempt: Attempt
    is_alone: bool = True
    again: Callable[[], None] = lambda: None
    damaged: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    made_apart: bool = False

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
        """The output of a call, and the seconds until it was right; raises what the call itself is
        at fault for."""
        started = time.perf_counter()
        try:
            return timed(call)
        except Exception as error:
            output = self._rescued(call, error)
        return output, time.perf_counter() - started

    def make_apart(self, call: Call, reason: str) -> Made:
        """The call made once more without the caches, as its output was wrong."""
        self._suspect(dict.fromkeys((*self._brought(), *self._used()), reason))
        return self._apart(call)

    def told(self) -> tuple[str, ...]:
        """What this start has set aside, each unit with the reason."""
        return tuple(f"{u}: {reason}" for u, reason in {**self.damaged, **self.aside}.items())

    def take_back(self) -> None:
        """Puts back what was set aside by this start: it was not at fault."""
        places = self._places()
        if places is None or not self.aside:
            return
        from cachesvc.local.quarantine import restore

        try:
            restore(places, list(self.aside))
        except TccacheError as error:
            self.attempt.notes.append(f"what was set aside could not be put back: {error}")
        else:
            self.aside.clear()

    def _rescued(self, call: Call, error: Exception) -> Any:
        """The output of the call without what is at fault; raises where nothing helps."""
        if self._places() is None or is_one_of_several() or _fails_as_written(call):
            raise error
        for step in (self._once_more, self._without_damage, self._without_named):
            if step(error):
                try:
                    return self._called_again(call)
                except Exception as later:
                    error = later
        if _is_passing(error):
            raise error
        return self._without_all(call, error)

    def _without_all(self, call: Call, error: Exception) -> Any:
        if self._suspect(dict.fromkeys(self._brought(), _told(error))):
            try:
                return self._called_again(call)
            except Exception as later:
                error = later
        if not self.is_alone or not (self._used() or self.aside or self.damaged):
            self.take_back()
            raise error
        self._suspect(dict.fromkeys(self._used(), _told(error)))
        return self._apart(call)[0]

    def _called_again(self, call: Call) -> Any:
        from cachesvc.runtime.reset import forget_compiled

        if self.is_alone:
            forget_compiled()
        self.again()
        return timed(call)[0]

    def _apart(self, call: Call) -> Made:
        """The last way: directories in which nothing has ever been compiled."""
        from cachesvc.runtime.reset import apart

        try:
            with apart():
                self.again()
                made = timed(call)
        except Exception:
            self.take_back()
            raise
        self.made_apart = True
        return made

    def _once_more(self, error: Exception) -> bool:
        """Whether the failure may have been a passing one: something of a cache was in play."""
        suspicious = self.attempt.brought.is_usable or bool(self._used())
        if suspicious:
            self.attempt.notes.append(f"a call failed and was made again: {_told(error)}")
        return suspicious

    def _without_damage(self, _: Exception) -> bool:
        from cachesvc.local.damage import damaged_units

        places = self._places()
        damaged = {} if places is None else {d.unit: d.reason for d in damaged_units(places)}
        done = self._put_aside(damaged)
        self.damaged |= done
        if done:
            self._say_trouble(self.attempt.bring_again)
        return bool(done)

    def _without_named(self, error: Exception) -> bool:
        """Without the units that the error, or one that led to it, names: the last part of their
        keys, or a file of theirs in which it was raised."""
        if _is_passing(error):
            return False
        text = " ".join(str(item) for item in _chain(error))
        known = (*self._brought(), *self._used())
        named = [unit for unit in known if unit.rpartition("/")[2] in text]
        named += filter(None, map(self._unit_of, _files(error)))
        return self._suspect(dict.fromkeys(named, _told(error)))

    def _unit_of(self, file: str) -> str | None:
        """The unit that a file of the live directory belongs to."""
        places = self._places()
        for prefix, folder in places.folders if places else ():
            if file.startswith(f"{folder}/"):
                return unit_key((*prefix.split("/"), *file[len(str(folder)) + 1 :].split("/")))
        return None

    def _suspect(self, units: Mapping[str, str]) -> bool:
        fresh = {unit: reason for unit, reason in units.items() if unit not in self.aside}
        if any(unit.startswith("aot/") for unit in fresh):
            self.attempt.disarm()
        done = self._put_aside(fresh)
        self.aside |= done
        return bool(done)

    def _put_aside(self, units: Mapping[str, str]) -> dict[str, str]:
        """Those of the units that were there to be set aside, each with the reason."""
        places = self._places()
        if places is None or not units:
            return {}
        from cachesvc.local.quarantine import read_quarantine, set_aside

        at = now()
        try:
            set_aside(places, units, at=at, patience_s=_PATIENCE_S)
        except TccacheError as error:
            self.attempt.notes.append(f"not all could be set aside: {error}")
        done = (item for item in read_quarantine(places.records) if item.at == at)
        return {item.unit: item.reason for item in done if item.unit in units}

    def _brought(self) -> tuple[str, ...]:
        """The keys of the units that this start has from a bundle."""
        return (*self.attempt.brought.units, *self.attempt.loaded)

    def _used(self) -> tuple[str, ...]:
        """The keys of the units that this process has used or compiled, whoever made them."""
        from cachesvc.runtime.megacache import capture
        from cachesvc.runtime.used import used_units

        live = self.attempt.live
        return () if live is None else tuple(sorted(used_units(capture(), live.folder("inductor"))))

    def _after_deaths(self, step: Measure) -> None:
        places = self._places()
        if places is None or step is Measure.TRUST:
            return
        if step is Measure.VERIFY:
            whose = "from this bundle" if self.attempt.chosen.segments else "without a bundle"
            self.attempt.notes.append(_DIED.format(whose))
            self._without_damage(TccacheError(whose))
        elif step is Measure.SET_ASIDE:
            self._suspect(dict.fromkeys(self._brought(), _DIED_TWICE))
        else:
            self._restore_after_deaths(places)

    def _restore_after_deaths(self, places: Places) -> None:
        from cachesvc.local.quarantine import read_quarantine, restore

        aside = [item for item in read_quarantine(places.records) if item.reason == _DIED_TWICE]
        own = set(self.attempt.brought.aside)
        back = [item.unit for item in aside if item.unit in own]
        if back:
            restore(places, back)
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


def _is_passing(error: BaseException) -> bool:
    """Whether the error is about memory, disk or descriptors that ran out: no unit's fault."""
    return any(
        isinstance(item, MemoryError)
        or type(item).__name__ == "OutOfMemoryError"
        or (isinstance(item, OSError) and item.errno in _PASSING)
        for item in _chain(error)
    )


def _told(error: BaseException) -> str:
    """The error that led to all others, in a line: what it is, and the first line of its text."""
    *_, first = _chain(error)
    lines = str(first).strip().splitlines()
    return f"{type(first).__name__}: {lines[0] if lines else ''}"[:300]


def _files(error: BaseException) -> Iterator[str]:
    """The files in which the error and those that led to it were raised."""
    for item in _chain(error):
        yield from (frame.f_code.co_filename for frame, _ in walk_tb(item.__traceback__))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it, the first cause last."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
