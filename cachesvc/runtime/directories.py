"""The directories that this process's compiler reads and writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from cachesvc.core.errors import UntrustedError
from cachesvc.local.filled_for import OTHER_TRUST, fill_for
from cachesvc.local.in_use import hold
from cachesvc.local.live import INDUCTOR, TRITON, Live, live_directory
from cachesvc.runtime.counters import compiled_so_far

_set_here: dict[str, str] = {}
_used: dict[str, Live] = {}


def of_process(environment: str, trust: str | None = None) -> Live:
    """The live directory that this process has used for an environment (its digest); where it has
    used none, the one that it would."""
    return _used.get(os.environ.get(INDUCTOR, "")) or current(environment, trust)


def current(environment: str, trust: str | None = None) -> Live:
    """The live directory for an environment and a trust (their digests), changing nothing.

    Before the first compile the variables are the user's, or what `use` has set, or what torch
    has: `torch.compile` sets its own default before anything is compiled. Afterwards they name the
    directories in effect, which cannot be left any more: UntrustedError is raised if they were
    filled under another trust.
    """
    environ = dict(os.environ)
    if not _are_settled():
        for name, own in (*_set_here.items(), (INDUCTOR, _torchs_default())):
            if environ.get(name) == own:
                environ.pop(name, None)
    live = live_directory(environment, environ, trust)
    if _are_settled() and environ.get(INDUCTOR) and live.chosen_by != INDUCTOR:
        _check_trust(environ[INDUCTOR], live)
    return live


def _check_trust(in_effect: str, passed_to: Live) -> None:
    reasons = [note for note in passed_to.notes if OTHER_TRUST in note]
    if reasons:
        raise UntrustedError(
            f"this process has compiled in {in_effect} before, and cannot use it any more:"
            f" {OTHER_TRUST}: say whom to trust at its first start"
        )


def _torchs_default() -> str | None:
    """The directory that torch takes by itself, unless this process was started with it."""
    module = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    default: Callable[[], str] | None = getattr(module, "default_cache_dir", None)
    try:
        folder = None if default is None else default()
    except (OSError, KeyError, ImportError):
        return None  # no temporary directory, or a user without a name: torch takes none either
    return None if folder is None or _started_with(f"{INDUCTOR}={folder}") else folder


def _started_with(setting: str) -> bool:
    """Whether a variable had this value when the process was started."""
    try:
        return setting.encode() in Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def is_late() -> bool:
    """Whether something was compiled before `use` could choose the directories."""
    return _are_settled() and os.environ.get(INDUCTOR) != _set_here.get(INDUCTOR, "")


def _are_settled() -> bool:
    """Whether something was compiled already, so that the directories in effect stay."""
    return compiled_so_far() > 0


def use(live: Live) -> None:
    """Makes the compiler of this process, and of its children, use the live directory.

    Sets the environment variables that torch and Triton read whenever they look into their
    caches; compile workers inherit them. Nobody removes the directory while this process lives.
    """
    hold(live.places)
    if live.trust is not None:
        fill_for(live.places, live.trust)  # also where nothing is brought
    _used[str(live.folder("inductor"))] = live
    for name, prefix in ((INDUCTOR, "inductor"), (TRITON, "triton")):
        folder = str(live.folder(prefix))
        if os.environ.get(name) != folder:
            os.environ[name] = folder
            _set_here[name] = folder


def triton_folder(live: Live) -> Path:
    """Triton's directory in effect."""
    return Path(os.environ.get(TRITON) or live.folder("triton"))
