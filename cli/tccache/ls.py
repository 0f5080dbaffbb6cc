"""tccache ls: the bundles of a store."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.options import common, store_options
from tccache.output import Output, size, table


@click.command()
@click.argument("model", required=False)
@store_options
@common
def ls(out: Output, model: str | None, **options: Any) -> None:
    """List the bundles of a store, or those of MODEL.

    Also what was set aside on this machine, because it failed when it was loaded or called.

    \b
    Example:
      tccache ls --store s3://ml-cache/prod --trust release.key.pub
    """
    found = cachesvc.list_bundles(model, **options)
    aside = cachesvc.list_set_aside(trust=options["trust"])
    out.result(
        {
            "bundles": [listing_json(item) for item in found],
            "set_aside": [_aside_json(item) for item in aside],
        },
        [*listing_lines(found), *(f"set aside on this machine: {item}" for item in aside)],
    )


def _aside_json(item: cachesvc.SetAside) -> dict[str, Any]:
    return {"unit": item.unit, "reason": item.reason, "at": item.at, "segment": item.segment}


def listing_json(item: cachesvc.Listing) -> dict[str, Any]:
    """One bundle as JSON values."""
    return {
        "name": item.name,
        "model": item.model,
        "environment": item.environment,
        "segments": item.segments,
        "bytes": item.bytes,
        "modified": item.modified.isoformat(),
    }


def listing_lines(found: tuple[cachesvc.Listing, ...]) -> list[str]:
    """The bundles as a table."""
    if not found:
        return ["no bundles"]
    rows = (
        (
            item.name,
            item.model[:12],
            item.environment[:12],
            str(item.segments),
            size(item.bytes),
            item.modified.strftime("%Y-%m-%d %H:%M:%S"),
        )
        for item in found
    )
    return table(("name", "model", "environment", "segments", "size", "modified (UTC)"), rows)
