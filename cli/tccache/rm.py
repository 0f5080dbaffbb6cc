"""tccache rm: delete bundles."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.asking import ask, deletion_options, require_terminal
from tccache.ls import listing_json, listing_lines
from tccache.options import common, store_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("bundle")
@store_options
@deletion_options
@common
def rm(out: Output, bundle: str, dry_run: bool, yes: bool, **options: Any) -> None:
    """Delete the bundles that BUNDLE means.

    BUNDLE is a name, a model digest, or NAME/MODEL/ENVIRONMENT cut short anywhere, as ls shows it.
    A push that merges at the same moment may bring the units back.

    \b
    Example:
      tccache rm llama-old --store s3://ml-cache/prod --trust release.key.pub --dry-run
    """
    if dry_run:
        done = cachesvc.remove(bundle, dry_run=True, **options)
    else:
        if not yes:
            _ask(bundle, options)
        done = cachesvc.remove(bundle, **options)
    out.result(
        {
            "dry_run": dry_run,
            "bundles": [listing_json(item) for item in done.bundles],
            "objects": done.objects,
            "bytes": done.bytes,
        },
        (
            *(listing_lines(done.bundles) if dry_run else ()),
            f"{'would delete' if dry_run else 'deleted'} {counted(len(done.bundles), 'bundle')},"
            f" {counted(done.objects, 'object')}, {size(done.bytes)}",
        ),
    )


def _ask(bundle: str, options: dict[str, Any]) -> None:
    """Returns if somebody at the terminal agrees."""
    require_terminal()
    planned = cachesvc.remove(bundle, dry_run=True, **options)
    deed = f"Delete {counted(planned.objects, 'object')}, {size(planned.bytes)}"
    ask(listing_lines(planned.bundles), deed)
