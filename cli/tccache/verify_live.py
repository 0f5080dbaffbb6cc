"""verify --live: the live directory of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cachesvc
from tccache.asking import ask, require_terminal
from tccache.output import Output, counted, size


def verify_live(out: Output, trust: Any, repair: bool, dry_run: bool, yes: bool) -> None:
    """Checks the live directory; a repair removes what is damaged, if somebody agrees."""
    asks = repair and not (dry_run or yes)
    if asks:
        require_terminal()
    done = _verify(out, trust, repair and yes and not dry_run)
    if asks and (done.problems or done.moved or done.leftovers):
        ask(_found_lines(done), f"Delete {_amount(done)}")
        done = _verify(out, trust, True)
    out.result(_json(done, dry_run), _lines(done))
    out.warn([*done.notes, *done.failed])
    if not done.ok:
        found = len(done.problems) + len(done.moved)
        raise cachesvc.IntegrityError(
            f"{counted(found, 'problem')} found: `tccache verify --live --repair` removes what is"
            " damaged, and the next start brings or compiles it again",
            [str(problem) for problem in done.problems],
        )


def _verify(out: Output, trust: Any, repair: bool) -> cachesvc.LiveVerification:
    with out.progress() as progress:
        return cachesvc.verify_live(trust=trust, repair=repair, progress=progress)


def _json(done: cachesvc.LiveVerification, dry_run: bool) -> dict[str, Any]:
    return {
        "live": True,
        "dry_run": dry_run,
        "ok": done.ok,
        "path": done.path,
        "units": done.units,
        "files": done.files,
        "bytes": done.bytes,
        "problems": [
            {"unit": item.unit, "problems": list(item.problems)} for item in done.problems
        ],
        "moved": list(done.moved),
        "changed": list(done.changed),
        "leftovers": list(done.leftovers),
        "removed": list(done.removed),
        "put_right": list(done.put_right),
        "failed": list(done.failed),
        "notes": list(done.notes),
    }


def _lines(done: cachesvc.LiveVerification) -> Iterator[str]:
    yield (
        f"{'ok' if done.ok else 'not ok'}: {done.path}: {counted(done.units, 'unit')},"
        f" {counted(done.files, 'file')}, {size(done.bytes)}"
    )
    yield from _found_lines(done)
    for unit in done.removed:
        yield f"  deleted {unit}"
    for unit in done.put_right:
        yield f"  put right: {unit}"


def _found_lines(done: cachesvc.LiveVerification) -> Iterator[str]:
    for problem in done.problems:
        yield f"  problem: {problem}"
    for unit in done.moved:
        yield f"  moved, its paths lead elsewhere: {unit}"
    for path in done.changed:
        yield f"  written again since it was seeded, and whole: {path}"
    for path in done.leftovers:
        yield f"  left by a killed process: {path}"


def _amount(done: cachesvc.LiveVerification) -> str:
    units = counted(len(done.problems), "damaged unit")
    leftovers = counted(len(done.leftovers), "leftover")
    return f"{units}, {leftovers}, and put {counted(len(done.moved), 'moved group')} right"
