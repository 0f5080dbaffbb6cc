"""tccache rm: delete bundles."""

from __future__ import annotations

import sys
from typing import Any

import click

import cachesvc
from tccache.ls import listing_json, listing_lines
from tccache.options import common, store_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("bundle")
@store_options
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@common
def rm(out: Output, bundle: str, dry_run: bool, yes: bool, **options: Any) -> None:
    """Delete the bundles that BUNDLE means.

    BUNDLE is a name, a model digest, or NAME/MODEL/ENVIRONMENT cut short anywhere, as ls shows it.
    A push that merges at the same moment may bring the units back.

    \b
    Example:
      tccache rm llama-old --store s3://ml-cache/prod --trust store --dry-run
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
    if not sys.stdin.isatty():
        raise cachesvc.UsageError(
            "there is no terminal to ask at: give --yes, or --dry-run to see what would be deleted"
        )
    planned = cachesvc.remove(bundle, dry_run=True, **options)
    for line in listing_lines(planned.bundles):
        click.echo(line, err=True)
    objects = f"{counted(planned.objects, 'object')}, {size(planned.bytes)}"
    if not click.confirm(f"Delete {objects}?", err=True):
        raise cachesvc.TccacheError("nothing was deleted: the answer was no")
