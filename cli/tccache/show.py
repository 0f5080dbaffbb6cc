"""tccache show: what a bundle holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.contents import MOST, contents_lines
from tccache.ls import listing_json
from tccache.options import common, store_options
from tccache.output import Output, counted, size

_KEY_DIGITS = 16


@click.command()
@click.argument("bundle")
@click.option("--graphs", is_flag=True, help="Also its graphs and kernels, read without running.")
@click.option("--all", is_flag=True, help="With --graphs: cut no list short.")
@click.option(
    "--code",
    metavar="KEY",
    help="Print the code of the graph or kernel with this key or name, or the start of one. With"
    " .FORM behind it another form: .fx of a graph, .ttir or .ptx of a Triton build.",
)
@store_options
@common
def show(out: Output, bundle: str, graphs: bool, code: str | None, **options: Any) -> None:
    """Show what the bundles hold that BUNDLE means.

    BUNDLE is a name, a model digest, or NAME/MODEL/ENVIRONMENT cut short anywhere, as ls shows it.

    \b
    Example:
      tccache show llama-prod --graphs --store s3://ml-cache/prod --trust release.key.pub
    """
    most = sys.maxsize if options.pop("all") else MOST
    if code is not None:
        _show_code(out, bundle, code, **options)
        return
    found = cachesvc.show(bundle, **options)
    for detail in found:
        out.warn(detail.refused)
    with out.progress() as progress:
        read = cachesvc.show_graphs(bundle, progress=progress, **options) if graphs else ()
    contents = {_where(item): item for item in read}
    fields: list[dict[str, Any]] = []
    lines: list[str] = []
    for detail in found:
        held = contents.get(_where(detail.listing))
        fields.append({**_json(detail), **(held.to_json() if held else {})})
        lines.extend(_lines(detail))
        lines.extend(contents_lines(held, most) if held else ())
    if graphs:
        lines.append(f"`tccache show {bundle} --code KEY` prints the code of a graph or kernel")
    out.result({"bundles": fields}, lines)


def _show_code(out: Output, bundle: str, asked: str, **options: Any) -> None:
    with out.progress() as progress:
        code = cachesvc.show_code(bundle, asked, progress=progress, **options)
    out.code({"bundles": [], "code": code.to_json()}, code.text)


def _where(bundle: cachesvc.Contents | cachesvc.Listing) -> tuple[str, str, str]:
    return bundle.name, bundle.model, bundle.environment


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
                "signers": list(item.signers),
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
        if segment.signers:
            yield f"    signed by {', '.join(key[:_KEY_DIGITS] for key in segment.signers)}"
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
