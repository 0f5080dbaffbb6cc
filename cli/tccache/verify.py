"""tccache verify: check what is in a store."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.output import Output, common, size, store_options


@click.command()
@click.argument("bundle", required=False)
@store_options
@common("verify")
def verify(out: Output, bundle: str | None, **options: Any) -> None:
    """Check every manifest, pack and file of a store, or of BUNDLE, by its digest.

    Exit 4 if anything is not what it should be.

    \b
    Example:
      tccache verify --store s3://ml-cache/prod --trust store
    """
    with out.progress() as progress:
        done = cachesvc.verify(bundle, progress=progress, **options)
    out.result(
        {
            "ok": done.ok,
            "bundles": done.bundles,
            "segments": done.segments,
            "entries": done.entries,
            "bytes": done.bytes,
            "problems": list(done.problems),
            "orphans": list(done.orphans),
        },
        f"{'ok' if done.ok else 'not ok'}: {done.bundles} bundles, {done.segments} segments,"
        f" {done.entries} files, {size(done.bytes)}; {len(done.problems)} problems,"
        f" {len(done.orphans)} orphans",
    )
    if not done.ok:
        raise cachesvc.IntegrityError("; ".join(done.problems), done.problems)
