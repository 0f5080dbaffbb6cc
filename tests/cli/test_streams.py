"""Streams that are closed, full, no terminal or one: each in a child process of its own."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
Start = Callable[..., Any]

CODES = {"moves": re.compile(r"\x1b\["), "colours": re.compile(r"\x1b\[[0-9;]*m")}


def closed(*numbers: int) -> str:
    """Code that starts the command anew without these streams, as `>&-` in a shell does."""
    closing = "\n".join(f"os.close({number})" for number in numbers)
    again = "os.execv(sys.executable, [sys.executable, '-m', 'tccache', *sys.argv[1:]])"
    return f"import os, sys\n{closing}\n{again}"


@pytest.mark.parametrize("line", [["env"], ["env", "--json"], ["--help"], ["completion", "zsh"]])
def test_a_reader_that_left(start: Start, line: list[str]) -> None:
    """`tccache ... | head -1` ends at once, without a word."""
    read, write = os.pipe()
    os.close(read)
    with start(*line, stdout=write) as process:
        os.close(write)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize("line", [["env"], ["env", "--json"], ["--help"], ["--version"]])
def test_a_full_disk_behind_stdout(child: Command, line: list[str]) -> None:
    """Exit 1: whoever reads the file later must not take half a result for one."""
    with open("/dev/full", "wb") as full:
        ran = child(*line, stdout=full)
    assert ran.code == 1
    assert ran.is_one_error
    assert "No space left" in ran.err


@pytest.mark.parametrize(("line", "code"), [(["env"], 0), (["ls"], 2), (["push"], 2)])
def test_a_full_disk_behind_stderr(child: Command, line: list[str], code: int) -> None:
    """What cannot be said does not change the exit code."""
    with open("/dev/full", "wb") as full:
        assert child(*line, stderr=full).code == code


def test_closed_streams(child: Command, store: Path) -> None:
    """A daemon's children often have none: the work is done, and nothing is said."""
    ran = child("pull", "m", "--store", store, first=closed(0, 1, 2))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert child("pull", "m", "--store", store, "--require", first=closed(2)).code == 0
    assert child("ls", first=closed(1, 2)).code == 2


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_that_are_no_text(child: Command, tree: Path, locale: str) -> None:
    """A directory name in another encoding is pushed and told, also in an ASCII locale."""
    odd = os.fsdecode(b"caf\xe9 \xff")
    tree.rename(odd)
    env = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    settings = {"env": env, "errors": "surrogateescape"}
    assert child("push", "m", "--store", "s", "--inductor-dir", odd, **settings).code == 0
    for directory, code in ((odd, 0), (f"{odd}/nope", 2)):
        ran = child("push", "m", "--store", "s", "--inductor-dir", directory, **settings)
        assert ran.code == code
        assert "Traceback" not in ran.err
    ran = child("pull", "m", "--store", "s", "--inductor-dir", odd, **settings)
    assert ran.out.startswith("m: 0 units seeded, 2 in place")


def on_terminal(start: Start, *line: str | Path, answer: str = "", **env: str) -> tuple[int, str]:
    """The exit code, and what a person sees on a terminal; `answer` is typed at a question."""
    ours, theirs = pty.openpty()
    seen = b""
    with start(*line, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        while data := _read(ours):
            seen += data
            if answer and seen.rstrip().endswith(b"[y/N]:"):
                os.write(ours, answer.encode())
                answer = ""
    os.close(ours)
    return process.returncode, seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says EIO when the other side is closed
        return b""


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (([], {"TERM": "xterm"}), {"moves", "colours"}),
        (([], {"TERM": "xterm", "NO_COLOR": "1"}), {"moves"}),
        (([], {"TERM": "dumb"}), set()),
        ((["--quiet"], {"TERM": "xterm"}), set()),
        ((["--verbose"], {"TERM": "xterm"}), set()),
    ],
)
def test_progress_on_a_terminal(
    start: Start, tree: Path, wish: tuple[list[str], dict[str, str]], expected: set[str]
) -> None:
    """A line that moves, unless the terminal cannot or the user does not want it."""
    flags, env = wish
    line = ("push", "m", "--store", "s", "--inductor-dir", tree, *flags)
    code, seen = on_terminal(start, *line, **env)
    assert code == 0
    assert expected == {name for name, code in CODES.items() if code.search(seen)}
    assert "added 2 of 2 units" in seen


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("n\n", 1, "nothing was done"),
        ("\n", 1, "nothing was done"),
        ("\x04", 130, "interrupted"),
        ("y\n", 0, "deleted 1 bundle"),
    ],
    ids=["no", "default", "end of input", "yes"],
)
def test_rm_asks(start: Start, store: Path, answer: str, code: int, words: str) -> None:
    """On a terminal it lists what would go and deletes only after a yes."""
    ended, seen = on_terminal(start, "rm", "m", "--store", store, answer=answer)
    assert "m     any" in seen
    assert "Delete 2 objects, " in seen
    assert words in seen.splitlines()[-1]
    assert ended == code
    assert any(store.glob("bundles/m/*")) is (code != 0)
