"""tccache gc: rid a store, or this machine, of what nobody needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.asking import ask, deletion_options, refuse_of_stores, require_terminal
from tccache.gc_live import collect_live
from tccache.options import common, sign_option, store_options
from tccache.output import Output, counted, size
from tccache.units import duration, size_in_bytes

_OF_STORES = (
    "store",
    "trust",
    "max_age",
    "revoked",
    "sign_with",
    "keep_last",
    "torch",
    "keep_tag",
    "untrusted",
    "merge",
    "grace",
)


@click.command()
@store_options
@sign_option
@click.option(
    "--keep-last",
    metavar="N",
    type=click.IntRange(min=1),
    help="Delete all but the last N models of each name and environment.",
)
@click.option(
    "--older-than",
    metavar="DURATION",
    callback=duration,
    help="Delete bundles to which nothing was written for so long, such as 30d.",
)
@click.option(
    "--torch",
    metavar="VERSION",
    multiple=True,
    help="Delete bundles of other versions of torch; 2.9 stands for 2.9.1 too. Repeatable.",
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=size_in_bytes,
    help="Delete the bundles written to longest ago, until no more than, say, 10GB are left.",
)
@click.option(
    "--keep-tag",
    metavar="TAG",
    multiple=True,
    help="Delete no bundle with this tag, whatever the other flags say. Repeatable.",
)
@click.option(
    "--untrusted",
    is_flag=True,
    help="Delete segments that no key of --trust has signed: rubbish, but also what others have"
    " pushed for those who trust them.",
)
@click.option(
    "--merge",
    is_flag=True,
    help="Make one segment of several, as pushes do with small ones. Needs the right to write.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    callback=duration,
    default="24h",
    show_default=True,
    help="Delete nothing that was written or superseded less long ago; 1h at least.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Not a store: this machine's live directories that no process uses, by --older-than (since"
    " last used) and --max-bytes.",
)
@deletion_options
@common
def gc(out: Output, live: bool, dry_run: bool, yes: bool, **options: Any) -> None:
    """Delete from a store what nobody needs any more.

    Superseded segments and packs without a manifest; whole bundles only by the flags that say so.
    What is not trusted counts for nothing, and goes only with its bundle. A bundle of which nothing
    is trusted goes by --max-bytes alone, and first. Times are those of the store's clock.

    \b
    Example:
      tccache gc --store s3://ml-cache/prod --trust release.key.pub --keep-last 3 --older-than 90d
    """
    if live:
        refuse_of_stores(_OF_STORES)
        limits = {"older_than_s": options["older_than"], "keep_bytes": options["max_bytes"]}
        collect_live(out, dry_run, yes, **limits)
        return
    shown = None
    if not (dry_run or yes):
        require_terminal()
        shown = _collect(out, options, dry_run=True)
        if shown.deleted or shown.merged:
            ask(_lines(shown), _deed(shown))
    done = _collect(out, options, dry_run=dry_run, agreed=shown)
    out.result(_json(done), _lines(done))
    if done.failure is not None:
        raise done.failure
    budget = options["max_bytes"]
    if budget is not None and done.bytes_left > budget:
        out.warn([_over(done, budget)])


def _over(done: cachesvc.Collected, budget: int) -> str:
    holds = "would hold" if done.dry_run else "holds"
    return (
        f"the store {holds} {size(done.bytes_left)}, which is more than {size(budget)}: what"
        " stays, and why, is under `kept`"
    )


def _collect(
    out: Output,
    options: dict[str, Any],
    *,
    dry_run: bool,
    agreed: cachesvc.Collected | None = None,
) -> cachesvc.Collected:
    with out.progress() as progress:
        return cachesvc.collect(
            store=options["store"],
            trust=options["trust"],
            policy=cachesvc.Policy(
                keep_last=options["keep_last"],
                older_than_s=options["older_than"],
                torch=options["torch"],
                max_bytes=options["max_bytes"],
                keep_tags=frozenset(options["keep_tag"]),
                untrusted=options["untrusted"],
            ),
            grace_s=options["grace"],
            merge=options["merge"],
            agreed=agreed,
            dry_run=dry_run,
            progress=progress,
        )


def _json(done: cachesvc.Collected) -> dict[str, Any]:
    return {
        "live": False,
        "dry_run": done.dry_run,
        "deleted": [
            {
                **_where(item.address),
                "segment": item.segment,
                "cause": item.cause,
                "reason": item.reason,
                "objects": [stat.key for stat in item.objects],
                "bytes": item.bytes,
            }
            for item in done.deleted
        ],
        "merged": [{**_where(address), "segments": number} for address, number in done.merged],
        "kept": [
            {**_where(item.address), "segment": item.segment, "reason": item.reason}
            for item in done.kept
        ],
        "objects": done.objects,
        "bytes": done.bytes,
        "bytes_left": done.bytes_left,
        "failure": None if done.failure is None else str(done.failure),
    }


def _where(address: Any) -> dict[str, str]:
    return {"name": address.name, "model": address.model, "environment": address.environment}


def _lines(done: cachesvc.Collected) -> Iterator[str]:
    deleted, merged = ("would delete", "would merge") if done.dry_run else ("deleted", "merged")
    for item in done.deleted:
        objects = f"{counted(len(item.objects), 'object')}, {size(item.bytes)}"
        yield f"{deleted} {item.address} {item.segment[:12]}: {item.reason}: {objects}"
    for address, number in done.merged:
        yield f"{merged} {counted(number, 'segment')} of {address}"
    for kept in done.kept:
        segment = "" if kept.segment is None else f" {kept.segment[:12]}"
        yield f"kept {kept.address}{segment}: {kept.reason}"
    yield f"{deleted} {_amount(done)}; {size(done.bytes_left)} left"


def _amount(done: cachesvc.Collected) -> str:
    return f"{counted(done.objects, 'object')}, {size(done.bytes)}"


def _deed(shown: cachesvc.Collected) -> str:
    delete = f"Delete {_amount(shown)}"
    merge = f"the segments of {counted(len(shown.merged), 'bundle')}"
    if not shown.merged:
        return delete
    return f"{delete}, and merge {merge}" if shown.deleted else f"Merge {merge}"
