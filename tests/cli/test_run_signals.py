"""`tccache run` and signals: to the program, before it, after it, from a terminal, as process 1."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from .silent_s3 import Bucket

Start = Callable[..., Any]

ADD = 'mkdir -p "$TORCHINDUCTOR_CACHE_DIR/ab"; echo kernel > "$TORCHINDUCTOR_CACHE_DIR/ab/cnew.py"'

# Prints the name of each signal it gets, and ends with the code 5 after SIGUSR2.
LISTENER = """
import os, signal
names = "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH SIGCONT SIGTSTP".split()
def got(number, _):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGUSR2:
        raise SystemExit(5)
for name in names:
    signal.signal(getattr(signal, name), got)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def test_signals_are_passed_on(start: Start) -> None:
    """Each that a program may ask for, once; and the exit code is what it makes of them."""
    others = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    line = ("run", "m", "--store", "s", "--", sys.executable, "-c", LISTENER)
    with start(*line) as process:
        assert process.stdout.readline() == "ready\n"
        for number in (*others, signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR2):
            process.send_signal(number)
            assert process.stdout.readline() == f"{number.name}\n"
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, "")


def test_stopped_and_continued_with_its_program(start: Start) -> None:
    """SIGTSTP stops both, as a shell's job control needs it."""
    line = ("run", "m", "--store", "s", "--", sys.executable, "-c", LISTENER)
    # A group whose parent is elsewhere in the session: the kernel stops no orphaned group.
    with start(*line, first="import os\nos.setpgid(0, 0)") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTSTP)
        assert process.stdout.readline() == "SIGTSTP\n"
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "SIGCONT\n"
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=60)
    assert process.returncode == 5


def test_ignored_signals_stay_ignored(start: Start) -> None:
    """As under nohup; and the program has the default for what Python ignores in itself."""
    line = ("run", "m", "--store", "s", "--", "sed", "-n", "/^Sig[BI]/p", "/proc/self/status")
    with start(*line, first=NOHUP) as process:
        out, _ = process.communicate(timeout=60)
    masks = dict(re.findall(r"(Sig\w+):\s*([0-9a-f]+)", out))
    assert int(masks["SigBlk"], 16) == 0
    assert int(masks["SigIgn"], 16) & (1 << (signal.SIGHUP - 1) | 1 << (signal.SIGPIPE - 1)) == 1


NOHUP = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)"


def test_an_ignored_signal_ends_nothing(start: Start, store: Path) -> None:
    """The terminal is closed while this command, under nohup, still pulls: the program is started
    all the same."""
    records = next(_live()) / ".tccache"
    records.mkdir(parents=True)
    line = ("run", "m", "--store", store, "--verbose", "--", "touch", "ran")
    with FileLock(records / "lock") as lock, start(*line, first=NOHUP) as process:
        assert process.stderr.readline() == "tccache run: look for bundles of m\n"
        process.send_signal(signal.SIGHUP)
        lock.release()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert Path("ran").exists()


def test_an_ignored_signal_is_the_programs(start: Start) -> None:
    """A server that is told by SIGHUP to read its settings again is told so under nohup too."""
    line = ("run", "m", "--store", "s", "--", sys.executable, "-c", LISTENER)
    with start(*line, first=NOHUP) as process:
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGHUP, signal.SIGUSR2):
            process.send_signal(number)
            assert process.stdout.readline() == f"{number.name}\n"
        process.communicate(timeout=60)
    assert process.returncode == 5


def test_ctrl_c_on_a_terminal_comes_once(start: Start) -> None:
    """The terminal tells the whole group, so nothing is passed on; this process outlives it."""
    terminal, slave = pty.openpty()
    own = "import os, fcntl, termios\nos.setsid()\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    line = ("run", "m", "--store", "s", "--", sys.executable, "-c", LISTENER)
    with start(*line, first=own, stdin=slave, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == "ready\n"
        os.write(terminal, b"\x03")
        assert process.stdout.readline() == "SIGINT\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "SIGUSR1\n"
        os.write(terminal, b"\x1c")
        assert process.stdout.readline() == "SIGQUIT\n"
        process.send_signal(signal.SIGUSR2)
        out, _ = process.communicate(timeout=60)
    os.close(terminal)
    os.close(slave)
    assert (process.returncode, out) == (5, "SIGUSR2\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_program(start: Start, store: Path, number: int) -> None:
    """Ends the command while it pulls; the program is not started, no temporary file stays."""
    records = next(_live()) / ".tccache"
    records.mkdir(parents=True)
    line = ("run", "m", "--store", store, "--verbose", "--", "touch", "ran")
    with FileLock(records / "lock"), start(*line) as process:
        assert process.stderr.readline() == "tccache run: look for bundles of m\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, "")
    assert not Path("ran").exists()
    assert not os.listdir("tmp")


def _live() -> Iterator[Path]:
    from cachesvc import read_environment

    yield Path("home").absolute() / "live" / read_environment().digest[:16]


def test_a_signal_ends_the_publication(start: Start) -> None:
    """The program has ended: its exit code stands, nothing waits for the store."""
    with Bucket("PUT") as bucket:
        line = ("run", "m", "--store", bucket.url, "--trust", "store", "--", "sh", "-c")
        with start(*line, f"{ADD}; exit 3") as process:
            assert bucket.stuck.wait(60)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "the publication was not finished" in err
    assert not os.listdir("tmp")


ORPHANS = """
import os, signal, sys
def stat(pid):
    try:
        return open(f"/proc/{pid}/stat").read()
    except OSError:
        return ""
reading, writing = os.pipe()
if os.fork() == 0:
    orphan = os.fork()
    if orphan == 0:
        signal.pause()
    os.write(writing, str(orphan).encode())
    os._exit(0)
orphan = int(os.read(reading, 99))
os.wait()
assert stat(orphan).split()[3] == "1", stat(orphan)
os.kill(orphan, signal.SIGKILL)
while stat(orphan):
    os.sched_yield()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
os.kill(1, signal.SIGTERM)
while True:
    signal.pause()
"""


def test_as_the_first_process_of_a_container(start: Start) -> None:
    """Orphans are reaped, and a signal to process 1 reaches the program."""
    inside = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*inside, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may not make a process namespace")
    entry = "from tccache.main import entry\nentry()"
    done = subprocess.run(
        [
            *(*inside, sys.executable, "-c", entry, "run", "m", "--store", "s", "--"),
            *(sys.executable, "-c", ORPHANS),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (5, "tccache run: m: nothing brought, 0 added\n")


def test_a_parent_that_ignores_its_children(start: Start) -> None:
    """Some supervisors do; the exit code is the program's all the same."""
    ignoring = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    with start("run", "m", "--store", "s", "--", "sh", "-c", "exit 7", first=ignoring) as process:
        process.communicate(timeout=60)
    assert process.returncode == 7
