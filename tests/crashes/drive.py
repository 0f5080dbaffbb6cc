"""Runs a scene over and over, each time with another fate for one of its changes to the disk.

    LD_PRELOAD=disk.so python drive.py FOLDER EVERY SCENE,... [ERRNO...]

Without errors to be raised the process is killed. Everything is imported once, and each run is a
fork of this process: hundreds take seconds. EVERY=1 tries each change, EVERY=7 each seventh. What
is wrong comes out as JSON, with the number of runs of each scene.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COUNT, BEFORE, AFTER, HALF, ERROR, ONCE = range(6)
CHANGES, OPENS, READS, REMOVES, THREADS = 1, 2, 4, 8, 16
PATIENCE_S = 60

# What fails with an error from the chosen call on: a full disk still lets go of files.
FAILING = {
    errno.ENOSPC: (ERROR, CHANGES),
    errno.EDQUOT: (ERROR, CHANGES),
    errno.EROFS: (ERROR, CHANGES | REMOVES),
    errno.EMFILE: (ERROR, OPENS),
    errno.EIO: (ONCE, CHANGES | REMOVES | READS),
    errno.EAGAIN: (ERROR, THREADS),
    errno.ENOMEM: (ONCE, THREADS),
}


class Driver:
    """One scene in a folder, whose beginning is kept beside it."""

    def __init__(self, folder: Path, scene: Any, every: int) -> None:
        self.root = folder / "disk"
        self.kept = folder / "kept"
        self.scene = scene
        self.every = every
        self.wrong: list[str] = []
        self.library = ctypes.CDLL(None)

    def begin(self) -> None:
        """Prepares the scene, and finds out what a run without trouble comes to."""
        (self.root / "tmp").mkdir(parents=True)
        tempfile.tempdir = None
        tempfile.gettempdir()  # now, as Python tries it out by a file that nobody can know later
        self.forked(self.scene.prepare)
        shutil.copytree(self.root, self.kept, symlinks=True)
        told = self.act()
        if told != "done":
            raise SystemExit(f"the scene fails by itself: {told}")
        self.end = self.scene.settled()

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root, symlinks=True)

    def journal(self, kinds: int) -> list[str]:
        """The calls of these kinds that the scene makes, in order."""
        self.restore()
        log = self.kept.with_name("journal")
        with open(log, "wb") as file:
            self.forked(self.scene.act, (0, COUNT, 0, kinds, file.fileno()))
        return log.read_text().splitlines()

    def kills(self) -> int:
        """A kill before each change, half-way through each write, and after the last one."""
        calls = self.journal(CHANGES | REMOVES)
        halves = [n for n, call in enumerate(calls, 1) if call.startswith("write ")]
        fates = [(n, BEFORE) for n in range(1, len(calls) + 1)]
        fates += [(n, HALF) for n in halves] + [(len(calls), AFTER)]
        fates = fates[:: self.every]
        for number, fate in fates:
            where = f"{'half of ' if fate == HALF else ''}{number} {calls[number - 1]}"
            self.restore()
            status = self.forked(self.scene.act, (number, fate, 0, CHANGES | REMOVES, -1))
            if not os.WIFSIGNALED(status) and number < len(calls):
                self.wrong.append(f"{where}: not killed")
            self.looks(where)
            self.heals(where)
        return len(fates)

    def faults(self, code: int) -> int:
        """An error at each call, told in one sentence, with nothing half-written left."""
        fate, kinds = FAILING[code]
        calls = list(enumerate(self.journal(kinds), 1))[:: self.every]
        for number, call in calls:
            where = f"{errno.errorcode[code]} at {number} {call}"
            self.restore()
            told = self.act((number, fate, code, kinds, -1))
            if not told.startswith(("done", "said")):
                self.wrong.append(f"{where}: {told}")
            if code in (errno.ENOSPC, errno.EDQUOT):
                self.wrong += [f"{where}: left {name}" for name in self.scene.left()]
            self.looks(where)
            self.heals(where)
        return len(calls)

    def looks(self, where: str) -> None:
        """What a reader sees after the trouble must be whole."""
        self.wrong += [f"{where}: {issue}" for issue in self.scene.look()]

    def heals(self, where: str) -> None:
        """The same again, without trouble, comes to the end; and what comes later tidies up."""
        self.scene.grow_old()
        if (told := self.act()) != "done":
            self.wrong.append(f"{where}: a rerun says {told}")
        if (found := self.scene.settled()) != self.end:
            self.wrong.append(f"{where}: a rerun comes to {difference(found, self.end)}")
        if self.scene.left():
            self.forked(self.scene.later)
        self.wrong += [f"{where}: {name} stays for ever" for name in self.scene.left()]

    def act(self, arms: tuple[int, ...] | None = None) -> str:
        """`done`, what the scene said of an error that is to be expected, or the traceback."""
        from cachesvc.core.errors import TccacheError

        said = self.kept.with_name("said")

        def told() -> None:
            try:
                self.scene.act()
                text = "done"
            except TccacheError as error:
                text = f"said {error}"
            except BaseException:
                text = traceback.format_exc()
            self.library.disk_disarm()
            said.write_text(text)

        said.unlink(missing_ok=True)
        status = self.forked(told, arms)
        if said.exists() and status == 0:
            return said.read_text()
        return f"it ended with status {status}"

    def forked(self, function: Callable[[], None], arms: tuple[int, ...] | None = None) -> int:
        """The status of a fork that calls a function and ends as a program does."""
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_S)  # it never hangs: that would be SIGALRM
            code = 1
            try:
                if arms is not None:
                    self.library.disk_arm(os.fsencode(self.root), *arms)
                function()
                atexit._run_exitfuncs()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return os.waitpid(child, 0)[1]


def difference(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    keys = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    return ", ".join(f"{key}: {found.get(key)!r}, not {expected.get(key)!r}" for key in keys[:3])


def main(folder: str, every: str, names: str, *codes: str) -> None:
    from scenes import SCENES

    runs, wrong = {}, []
    for name in names.split(","):
        place = Path(folder, name)
        driver = Driver(place, SCENES[name](place), int(every))
        driver.begin()
        runs[name] = sum(driver.faults(int(code)) for code in codes) if codes else driver.kills()
        wrong += driver.wrong
    json.dump({"runs": runs, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
