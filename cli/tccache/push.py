"""tccache push: existing cache directories and mega-cache files into a store."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.output import Output, common, size, store_options, tree_options


@click.command()
@click.argument("model")
@store_options
@tree_options
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="A tag to record. Repeatable.")
@common("push")
def push(out: Output, model: str, extra: dict[str, str], **options: Any) -> None:
    """Publish cache directories under the name MODEL.

    Without directories the live directory of this machine is pushed. A push adds: what the store
    has is not written again.

    \b
    Example:
      tccache push llama-prod --store s3://ml-cache/prod --trust store \\
        --inductor-dir /tmp/torchinductor_me --triton-dir ~/.triton/cache
    """
    with out.progress() as progress:
        pushed = cachesvc.push(model, extra=extra, progress=progress, **options)
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
        _text(pushed),
    )


def _text(pushed: cachesvc.Pushed) -> str:
    publication = pushed.publication
    skipped = "".join(f", {count} {reason} files skipped" for reason, count in pushed.skipped)
    found = f"{pushed.units} units in {pushed.files} files, {size(pushed.bytes)}{skipped}"
    if publication.segment is None:
        return f"{publication.address}: nothing to add, the store has all of {found}"
    return (
        f"{publication.address}: added {publication.added} of {found};"
        f" pack {size(publication.pack_bytes)}, segment {publication.segment[:12]}"
    )
