"""tccache verify: check what is in a store, or in the live directory of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.asking import ask, deletion_options, refuse_of_stores, require_terminal
from tccache.options import common, store_options
from tccache.output import Output, counted, size
from tccache.verify_live import verify_live


@click.command()
@click.argument("bundle", required=False)
@store_options
@click.option(
    "--repair",
    is_flag=True,
    help="Delete what no reader can ever use, so that the next push writes it again.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Not a store: the live directory that a start on this machine would use.",
)
@deletion_options
@common
def verify(out: Output, bundle: str | None, live: bool, **options: Any) -> None:
    """Check all that a store holds by its digests.

    Manifests, signatures, packs and their files; with BUNDLE only those of the bundles that it
    means. Exit 4 if anything is not what it should be. A repair deletes what is damaged, and packs
    without a manifest that are a day old; what is only not trusted, or of a newer format, stays.

    \b
    Example:
      tccache verify --store s3://ml-cache/prod --trust release.key.pub
    """
    repair, dry_run, yes = (options.pop(name) for name in ("repair", "dry_run", "yes"))
    if (dry_run or yes) and not repair:
        raise cachesvc.UsageError("--dry-run and --yes are for --repair: nothing else deletes")
    if live and bundle is not None:
        raise cachesvc.UsageError(f"{bundle} is in a store, and --live is about none: drop one")
    if live:
        refuse_of_stores(["store"])
        verify_live(out, options["trust"], repair, dry_run, yes)
    else:
        _verify_store(out, bundle, options, repair=repair, dry_run=dry_run, yes=yes)


def _verify_store(
    out: Output,
    bundle: str | None,
    options: dict[str, Any],
    *,
    repair: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    asks = repair and not (dry_run or yes)
    if asks:
        require_terminal()
    done = _verify(out, bundle, options, repair, dry_run=dry_run or asks)
    if asks and done.repaired:
        ask(_repair_lines(done, dry_run=True), f"Delete {_amount(done)}")
        done = _verify(out, bundle, {**options, "agreed": done}, repair)
    out.result(_json(done, dry_run), _lines(done, dry_run))
    if done.failure is not None:
        raise done.failure
    if not done.ok:
        raise cachesvc.IntegrityError(
            f"{counted(len(done.problems), 'problem')} found: `tccache verify --repair` deletes"
            " what is damaged, `tccache rm` a whole bundle; then push again",
            done.problems,
        )


def _verify(
    out: Output, bundle: str | None, options: dict[str, Any], repair: bool, dry_run: bool = False
) -> cachesvc.Verification:
    with out.progress() as progress:
        return cachesvc.verify(bundle, repair=repair, dry_run=dry_run, progress=progress, **options)


def _json(done: cachesvc.Verification, dry_run: bool) -> dict[str, Any]:
    return {
        "live": False,
        "ok": done.ok,
        "bundles": done.bundles,
        "segments": done.segments,
        "entries": done.entries,
        "bytes": done.bytes,
        "problems": list(done.problems),
        "orphans": list(done.orphans),
        "unknown": list(done.unknown),
        "marked": done.marked,
        "dry_run": dry_run,
        "repaired": [
            {
                "reason": item.reason,
                "objects": [stat.key for stat in item.objects],
                "bytes": item.bytes,
            }
            for item in done.repaired
        ],
        "failure": None if done.failure is None else str(done.failure),
    }


def _lines(done: cachesvc.Verification, dry_run: bool) -> Iterator[str]:
    yield (
        f"{'ok' if done.ok else 'not ok'}: {counted(done.bundles, 'bundle')},"
        f" {counted(done.segments, 'segment')}, {counted(done.entries, 'file')}, {size(done.bytes)}"
    )
    for problem in done.problems:
        yield f"  problem: {problem}"
    yield from _repair_lines(done, dry_run)
    for orphan in done.orphans:
        yield f"  orphan, no manifest names it: {orphan}"
    for name in done.unknown:
        yield f"  unknown, no name of a store's: {name}"
    if not done.marked:
        yield "  no tccache.json says the format: the next push says it"


def _repair_lines(done: cachesvc.Verification, dry_run: bool) -> Iterator[str]:
    verb = "would delete" if dry_run else "deleted"
    for item in done.repaired:
        for stat in item.objects:
            yield f"  {verb} {stat.key}: {item.reason}"


def _amount(done: cachesvc.Verification) -> str:
    objects = sum(len(item.objects) for item in done.repaired)
    return f"{counted(objects, 'object')}, {size(sum(item.bytes for item in done.repaired))}"
