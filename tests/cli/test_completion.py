"""Completion scripts, given to the shells that are there, and completion itself in bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tccache.main import group

Command = Callable[..., Any]
SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `tccache` is this checkout's, wherever it is installed."""
    program = tmp_path / "bin" / "tccache"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tccache "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_its_script(tccache: Command, shell: str) -> None:
    """No syntax error at the next login."""
    ran = tccache("completion", shell)
    assert ran.code == 0
    Path("script").write_text(ran.out)
    subprocess.run([shell, "-n", "script"], check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_json_holds_the_same_script(tccache: Command, shell: str) -> None:
    """For programs that install it."""
    told = tccache("completion", shell, "--json").json
    assert told["script"].rstrip("\n") == tccache("completion", shell).out.rstrip("\n")
    assert told["shell"] == shell


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pu"], ["push", "pull"]),
        ([""], [*group.commands]),
        (["push", "--in"], ["--inductor-dir"]),
        (["rm", "--d"], ["--dry-run"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_completion_in_bash(
    tccache: Command, on_path: dict[str, str], words: list[str], expected: list[str]
) -> None:
    """What bash is told when the user presses the tabulator."""
    Path("script").write_text(tccache("completion", "bash").out)
    ask = 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tccache_completion tccache'
    done = subprocess.run(
        ["bash", "-c", f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"', "bash", "tccache", *words],
        env=on_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected
