"""Fresh processes for samples: each with directories of its own, and nothing of the caller's."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.core.temporary import holds
from cachesvc.local.live import HOME, INDUCTOR, TRITON
from cachesvc.local.mounts import is_noexec
from cachesvc.local.privacy import SHARED
from cachesvc.local.whole import check_space
from cachesvc.repository.scratch import scratch
from cachesvc.start.program import Ended
from cachesvc.start.sample import SampleSpec, spec_text
from cachesvc.start.target import SALT

SAMPLE = "cachesvc.start.sample"
_ROOM = 16_000_000
"""Bytes that even a small compile needs."""
_FROM_NOTHING = ("cold", "megacache")

# The child must neither inherit a cache, nor a setting of this library, nor be switched off.
_CACHES = (INDUCTOR, TRITON)
_REMOTE = "_REMOTE_CACHE"
_KEPT = (SALT, "TCCACHE_DEBUG", SHARED)

# What programs look for under HOME and a model may be made of: it stays where it is.
_UNDER_HOME = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "AWS_CONFIG_FILE": ".aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "NETRC": ".netrc",
}


@contextmanager
def workplace(purpose: str) -> Iterator[Path]:
    """A temporary folder for samples, whose directories lie in it.

    Raises TccacheError if there is no room for it, or if what they compile could not be loaded
    from there.
    """
    with scratch(purpose) as folder:
        if is_noexec(folder):
            raise TccacheError(
                f"{folder.parent} is on a file system that is mounted noexec, and what is"
                " compiled there must be loaded: set TMPDIR to a directory that can be run from"
            )
        yield folder


def run_sample(
    spec: SampleSpec,
    home: Path,
    *,
    elsewhere: bool = False,
    salt: str | None = None,
    caches: Path | None = None,
) -> dict[str, Any]:
    """The outcome of one fresh process that has `home` for its directories.

    With `elsewhere` it has another working directory and another HOME than this process, as a
    serving process on another machine would; modules are found as they are here. `caches` are the
    compiler's directories that it is told to use: its own, for a start from nothing. Raises
    UsageError if the target is none, TccacheError with the end of the process's own words if it
    fails otherwise.
    """
    told = caches or (home if spec.arm in _FROM_NOTHING else None)
    environ = fresh_environment(home, caches=told, elsewhere=elsewhere, salt=salt)
    text = spec_text(replace(spec, spawned=time.monotonic()))
    own = home / "work"
    own.mkdir(exist_ok=True)
    away = elsewhere or spec.target.startswith("demo:")
    place = " from another working directory and HOME" if elsewhere else ""
    failing = f"the {spec.arm} start of {spec.target}{place} failed"
    cwd = own if away else None
    return run_program(SAMPLE, text, home, environ=environ, cwd=cwd, failing=failing)


def run_program(
    program: str,
    spec: str,
    home: Path,
    *,
    environ: Mapping[str, str],
    cwd: Path | None,
    failing: str,
) -> dict[str, Any]:
    """What a module of this library, run as the main program of a fresh process, leaves as JSON.

    The module is given two files: the spec's text, and the one to write. An outcome with a field
    `error` says what went wrong, with `usage` true if the caller is to blame: it is raised as
    TccacheError, or UsageError, behind the words `failing`; and so is a process that ends without
    an outcome, with the end of its own words. A disk that is full is told.
    """
    spec_file, result_file = home / "spec.json", home / "result.json"
    spec_file.write_text(spec)
    ended, said = execute(program, spec_file, result_file, environ, cwd)
    outcome = _read(result_file)
    if ended.exit_code or not outcome or "error" in outcome:
        reason = outcome.get("error") or _how(ended, said)
        kind = UsageError if outcome.get("usage") else TccacheError
        raise kind(f"{failing}: {reason}{_full(home)}")
    return dict(outcome)


def _full(home: Path) -> str:
    """What a compiler's words may not say: that the disk of the process is full."""
    try:
        check_space({home: _ROOM})
    except TccacheError as error:
        return f"; {error}; TMPDIR says where samples are made"
    return ""


def _read(result_file: Path) -> dict[str, Any]:
    """The outcome; empty if none was written, or not the whole of it."""
    try:
        return dict(json.loads(result_file.read_text()))
    except (OSError, ValueError):
        return {}


def execute(
    program: str, spec_file: Path, result_file: Path, environ: Mapping[str, str], cwd: Path | None
) -> tuple[Ended, str]:
    """Runs a program on its two files; how it ended, and what it said on stderr."""
    command = [sys.executable, "-m", program, str(spec_file), str(result_file)]
    done = subprocess.run(
        command,
        env=environ,
        cwd=cwd,
        pass_fds=holds(),
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    return Ended.of(done.returncode), done.stderr


def _how(ended: Ended, said: str) -> str:
    """How a process ended that left no word of its own."""
    if ended.signal is not None:
        name = signal.Signals(ended.signal).name
        guess = " (was there too little memory?)" if ended.signal == signal.SIGKILL else ""
        return f"it was killed by {name}{guess}"
    return said.strip()[-2000:] or f"exit {ended.exit_code}"


def fresh_environment(
    home: Path,
    *,
    caches: Path | None = None,
    elsewhere: bool = False,
    salt: str | None = None,
) -> Mapping[str, str]:
    """The variables of a process with directories under `home`, and none of the caller's caches.

    `caches` is the folder of the compiler's directories, where the process is to be told them.
    """
    kept = {name: value for name, value in os.environ.items() if _is_inherited(name)}
    temporary = (caches or home) / "tmp"
    for folder in (home / "home", temporary):
        folder.mkdir(parents=True, exist_ok=True)
    # Torch keeps its precompiled headers in TMPDIR: they belong to the compiler's directories.
    kept |= {HOME: str(home / "home"), "TMPDIR": str(temporary), "PYTHONPATH": _module_path()}
    if salt is not None:
        kept[SALT] = salt
    if caches is not None:
        kept |= {INDUCTOR: str(caches / "inductor"), TRITON: str(caches / "triton")}
    return {**kept, **_another_home(home)} if elsewhere else kept


def _is_inherited(name: str) -> bool:
    if name in _CACHES or name.endswith(_REMOTE):
        return False
    return name in _KEPT or not name.startswith("TCCACHE_")


def _module_path() -> str:
    """Where this process's children find modules, from any working directory."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([os.getcwd(), *map(os.path.abspath, filter(None, given))]))


def _another_home(home: Path) -> dict[str, str]:
    """Another HOME, and where what lay under the one before still is."""
    before = Path.home()
    named = {name: str(before / place) for name, place in _UNDER_HOME.items()}
    named["PYTHONUSERBASE"] = site.getuserbase()
    unset = {name: value for name, value in named.items() if name not in os.environ}
    other = home / "user"
    other.mkdir(exist_ok=True)
    return {**unset, "HOME": str(other)}
