"""tccache show: what a bundle holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.ls import listing_json
from tccache.options import common, store_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("bundle")
@store_options
@common
def show(out: Output, bundle: str, **options: Any) -> None:
    """Show what the bundles hold that BUNDLE means.

    BUNDLE is a name, a model digest, or NAME/MODEL/ENVIRONMENT cut short anywhere, as ls shows it.

    \b
    Example:
      tccache show llama-prod --store s3://ml-cache/prod --trust store
    """
    found = cachesvc.show(bundle, **options)
    for detail in found:
        out.warn(detail.refused)
    out.result(
        {"bundles": [_json(detail) for detail in found]},
        [line for detail in found for line in _lines(detail)],
    )


def _json(detail: cachesvc.Detail) -> dict[str, Any]:
    return {
        **listing_json(detail.listing),
        "components": {"environment": detail.environment, "model": detail.model},
        "live_segments": [
            {
                "name": item.name,
                "created": item.created,
                "units": item.units,
                "pack_bytes": item.pack_bytes,
                "unpacked_bytes": item.unpacked_bytes,
                "supersedes": item.supersedes,
            }
            for item in detail.segments
        ],
        "sections": {
            name: {"units": units, "files": files, "bytes": total}
            for name, (units, files, total) in detail.sections.items()
        },
        "requirements": list(detail.requirements),
        "coverage": list(detail.coverage),
        "tags": list(detail.tags),
        "proof": detail.proof.to_json() if detail.proof else None,
        "refused": list(detail.refused),
    }


def _lines(detail: cachesvc.Detail) -> Iterator[str]:
    listing = detail.listing
    yield f"{listing.name}/{listing.model}/{listing.environment}"
    for name, value in detail.environment.items():
        yield f"  {name}: {value}"
    for segment in detail.segments:
        yield (
            f"  segment {segment.name[:12]} of {segment.created}: {counted(segment.units, 'unit')},"
            f" {size(segment.unpacked_bytes)} in a pack of {size(segment.pack_bytes)}"
        )
    for name, (units, files, total) in detail.sections.items():
        yield f"  {name}: {counted(units, 'unit')}, {counted(files, 'file')}, {size(total)}"
    if detail.requirements:
        yield f"  needs: {', '.join(detail.requirements)}"
    for call in detail.coverage:
        yield f"  covers: {call}"
    if detail.proof and detail.proof.cold_s is not None:
        yield f"  cold first call: {detail.proof.cold_s:.1f} s"
    if detail.tags:
        yield f"  tags: {', '.join(detail.tags)}"
