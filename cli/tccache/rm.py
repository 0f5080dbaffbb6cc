"""tccache rm: delete bundles."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.ls import listing_json, listing_text
from tccache.output import Output, common, size, store_options


@click.command()
@click.argument("bundle")
@store_options
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@common("rm")
def rm(out: Output, bundle: str, dry_run: bool, yes: bool, **options: Any) -> None:
    """Delete the bundles that BUNDLE means: a name, a model digest, or NAME/MODEL/ENVIRONMENT.

    A push that merges at the same moment may bring the units back.

    \b
    Example:
      tccache rm llama-old --store s3://ml-cache/prod --trust store --dry-run
    """
    planned = cachesvc.remove(bundle, dry_run=True, **options)
    if not dry_run and not yes:
        click.echo(listing_text(planned.bundles), err=True)
        click.confirm(
            f"Delete {planned.objects} objects, {size(planned.bytes)}?", abort=True, err=True
        )
    done = planned if dry_run else cachesvc.remove(bundle, **options)
    out.result(
        {
            "dry_run": dry_run,
            "bundles": [listing_json(item) for item in done.bundles],
            "objects": done.objects,
            "bytes": done.bytes,
        },
        f"{'would delete' if dry_run else 'deleted'} {len(done.bundles)} bundles,"
        f" {done.objects} objects, {size(done.bytes)}",
    )
