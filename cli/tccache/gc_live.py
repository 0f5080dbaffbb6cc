"""gc --live: the live directories of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cachesvc
from tccache.asking import ask, require_terminal
from tccache.output import Output, counted, size


def collect_live(out: Output, dry_run: bool, yes: bool, **limits: Any) -> None:
    """Removes live directories that no process uses, and says which."""
    if not (dry_run or yes):
        require_terminal()
        planned = _collect(out, dry_run=True, **limits)
        if planned.removed or planned.leftovers:
            ask(_lines(planned), f"Delete {_amount(planned)}")
    done = _collect(out, dry_run=dry_run, **limits)
    out.result(_json(done), _lines(done))
    out.warn(done.notes)
    if not done.ok:
        raise cachesvc.TccacheError("; ".join(done.failed))


def _collect(out: Output, **options: Any) -> cachesvc.CollectedLive:
    with out.progress() as progress:
        return cachesvc.collect_live(progress=progress, **options)


def _json(done: cachesvc.CollectedLive) -> dict[str, Any]:
    return {
        "live": True,
        "dry_run": done.dry_run,
        "removed": [_item(item) for item in done.removed],
        "leftovers": [_item(item) for item in done.leftovers],
        "kept": [_item(item) for item in done.kept],
        "failed": list(done.failed),
        "notes": list(done.notes),
        "bytes": done.bytes,
    }


def _item(item: cachesvc.CollectedItem) -> dict[str, Any]:
    return {
        "path": item.path,
        "bytes": item.bytes,
        "last_used": item.last_used,
        "reason": item.reason,
    }


def _lines(done: cachesvc.CollectedLive) -> Iterator[str]:
    verb = "would delete" if done.dry_run else "deleted"
    for item in (*done.removed, *done.leftovers):
        yield f"{verb} {item.path}: {item.reason}, {size(item.bytes)}"
    for item in done.kept:
        yield f"kept {item.path}: {item.reason}, {size(item.bytes)}"
    yield f"{verb} {_amount(done)}"


def _amount(done: cachesvc.CollectedLive) -> str:
    folders = counted(len(done.removed), "live directory").replace("directorys", "directories")
    return f"{folders}, {counted(len(done.leftovers), 'leftover')}, {size(done.bytes)}"
