"""tccache push: existing cache directories and mega-cache files into a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.options import (
    common,
    sign_option,
    slim_option,
    store_options,
    target_options,
    tree_options,
)
from tccache.output import Output, counted, size


@click.command()
@click.argument("model")
@store_options
@sign_option
@target_options
@tree_options
@click.option("--tag", multiple=True, metavar="TEXT", help="A tag to record. Repeatable.")
@slim_option
@common
def push(
    out: Output, model: str, extra: dict[str, str], tag: tuple[str, ...], **options: Any
) -> None:
    """Publish cache directories under the name MODEL.

    Without directories the live directory of this machine is pushed. A push adds: what the store
    has is not written again.

    \b
    Example:
      tccache push llama-prod --store s3://ml-cache/prod --sign-with release.key \\
        --inductor-dir /tmp/torchinductor_me --triton-dir ~/.triton/cache
    """
    with out.progress() as progress:
        pushed = cachesvc.push(model, extra=extra, tags=tag, progress=progress, **options)
    publication = pushed.publication
    out.warn(pushed.warnings)
    out.result(
        {
            "bundle": str(publication.address),
            "address": {
                "name": publication.address.name,
                "model": publication.address.model,
                "environment": publication.address.environment,
            },
            "segment": publication.segment,
            "units": pushed.units,
            "files": pushed.files,
            "bytes": pushed.bytes,
            "added": publication.added,
            "carried": publication.carried,
            "pack_bytes": publication.pack_bytes,
            "superseded": list(publication.superseded),
            "skipped": dict(pushed.skipped),
            "warnings": list(pushed.warnings),
        },
        _lines(pushed),
    )


def _lines(pushed: cachesvc.Pushed) -> Iterator[str]:
    done = pushed.publication
    files = f"{counted(pushed.files, 'file')}, {size(pushed.bytes)}"
    found = f"{counted(pushed.units, 'unit')} in {files}"
    if done.segment is None:
        yield f"{done.address}: nothing to add, the store has all of {found}"
    else:
        yield (
            f"{done.address}: added {done.added} of {found};"
            f" pack {size(done.pack_bytes)}, segment {done.segment[:12]}"
        )
    for reason, count in pushed.skipped:
        yield f"  {counted(count, 'file')} passed over: {reason}"
