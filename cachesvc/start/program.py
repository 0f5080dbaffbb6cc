"""Another program as a child: started as a shell would, signals passed on, its end told.

The child stays in the process group of its parent, with its streams, so a terminal's Ctrl-C,
Ctrl-Z and hang-up reach both. Such a signal comes from the kernel and is not passed on a second
time; one that a process sent was meant for the program, and is.

Signals are blocked and taken one by one, never handled: nothing is interrupted half-way, threads
that start within never get one, and the first process of a container gets them too, to which the
kernel delivers none that has no handler.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.start.work import Work

T = TypeVar("T")

ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that ask a program to end."""

PASSED_ON = ENDING | {
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP),
}
_HARMLESS = frozenset({signal.SIGWINCH, signal.SIGCONT, signal.SIGCHLD})
_TAKEN = PASSED_ON | {signal.SIGCHLD}
# Python ignores these in its own process; no other program expects that.
_DEFAULT_AGAIN = (signal.SIGPIPE, signal.SIGXFSZ)
_LOOK_S = 1.0


class CommandNotFound(UsageError):
    """There is no such program; the exit code is a shell's."""

    exit_code = 127


class CommandNotExecutable(UsageError):
    """There is such a file, and it cannot be run; the exit code is a shell's."""

    exit_code = 126


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: with an exit code, or of a signal, which a shell adds to 128."""

    exit_code: int
    signal: int | None = None

    @classmethod
    def of(cls, code: int) -> Ended:
        """From an exit code as Python gives it: negative for a signal."""
        return cls(code) if code >= 0 else cls(128 - code, -code)


class Signals:
    """Takes the signals of this process while it is entered, in the thread that entered it.

    One that this process ignores, as under `nohup`, ends nothing here; the program may want it.
    """

    def __init__(self) -> None:
        self._mask: Iterable[int] = ()
        self._ignored: frozenset[int] = frozenset()

    def __enter__(self) -> Signals:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
        ignored = (item for item in _TAKEN if signal.getsignal(item) is signal.SIG_IGN)
        self._ignored = frozenset(ignored)
        # Where it is ignored, children vanish without a status.
        if signal.SIGCHLD in self._ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while signal.sigtimedwait(_TAKEN, 0) is not None:
            pass  # it has come too late to mean anything
        if signal.SIGCHLD in self._ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def beside(self, function: Callable[[], T], name: str) -> Work[T]:
        """Work in a thread, for the end of which this one can wait while it takes signals.

        Raises TccacheError if no thread can be started.
        """
        try:
            return Work(function, name, ended=_wake)
        except RuntimeError as error:
            raise TccacheError(
                f"no thread can be started beside the program: {error}; see how many this user and"
                " this container may have"
            ) from error

    def wait_for(self, work: Work[T], seconds: float) -> bool:
        """Waits until work is done; whether it was within that time.

        A signal that would end this process does: KeyboardInterrupt for SIGINT, else SystemExit.
        """
        until = time.monotonic() + seconds
        while not work.is_done and (left := until - time.monotonic()) > 0:
            number = self._take(left)
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            if number is not None and number not in _HARMLESS:
                raise SystemExit(128 + number)
        return work.is_done

    def wait_unless_ended(self, work: Work[T], seconds: float) -> bool:
        """Waits until work is done; False after that time, or if a signal asks for the end."""
        until = time.monotonic() + seconds
        while not work.is_done and (left := until - time.monotonic()) > 0:
            if self._take(left) in ENDING:
                return False
        return work.is_done

    def run(self, program: str, command: Sequence[str], environment: Mapping[str, str]) -> Ended:
        """Runs a program to its end.

        Raises CommandNotExecutable if the kernel refuses it.
        """
        child = self._start(program, command, environment)
        while (ended := _reap(child)) is None:
            self._take(_LOOK_S, child)
        return ended

    def _start(self, program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
        try:
            return os.posix_spawn(
                program,
                list(command),
                dict(environment),
                setsigmask=self._mask,
                setsigdef=_DEFAULT_AGAIN,
            )
        except OSError as error:
            raise CommandNotExecutable(f"cannot run {program}: {error.strerror}") from None

    def _take(self, seconds: float, child: int | None = None) -> int | None:
        """The next signal, or None after so many seconds; a child gets it if it was not told."""
        taken = signal.sigtimedwait(_TAKEN, max(0.0, min(seconds, _LOOK_S)))
        if taken is None:
            return None
        sent_by_a_process = taken.si_code <= 0
        if child is not None and taken.si_signo in PASSED_ON and sent_by_a_process:
            with suppress(OSError):  # it may have changed its user
                os.kill(child, taken.si_signo)
        if taken.si_signo in self._ignored:
            return None
        if taken.si_signo == signal.SIGTSTP:
            _stop()
            return None
        return taken.si_signo


def _wake() -> None:
    """Ends the waiting for a signal."""
    os.kill(os.getpid(), signal.SIGCHLD)


def _stop() -> None:
    """Stops this process as if SIGTSTP had just come; returns when it is continued."""
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _reap(child: int) -> Ended | None:
    """How the child ended, or None while it runs.

    The first process of a container inherits orphans, which nobody else would reap.
    """
    if os.getpid() == 1:
        while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if found[0] == child:
                return Ended.of(os.waitstatus_to_exitcode(found[1]))
        return None
    pid, status = os.waitpid(child, os.WNOHANG)
    return Ended.of(os.waitstatus_to_exitcode(status)) if pid == child else None


def located(command: Sequence[str]) -> str:
    """The path of a command's program, looked up as a shell does.

    Raises UsageError for no command, CommandNotFound, CommandNotExecutable.
    """
    if not command:
        raise UsageError("no command was given: say what to run")
    name = command[0]
    if program := shutil.which(name):
        return program
    if shutil.which(name, mode=os.F_OK) or os.path.isdir(name):
        raise CommandNotExecutable(f"{name}: it is no program that may be run")
    raise CommandNotFound(f"{name}: command not found")
