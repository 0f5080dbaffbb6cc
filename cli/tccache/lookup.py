"""tccache lookup: would this machine start warm?"""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.options import common, store_options, target_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("model")
@store_options
@target_options
@common
def lookup(out: Output, model: str, **options: Any) -> None:
    """Say whether the store holds something usable here for MODEL.

    Exit 0 if so, 3 if not. Nothing is brought.

    \b
    Example:
      tccache lookup llama-prod --store s3://ml-cache/prod --trust release.key.pub && echo warm
    """
    found = cachesvc.lookup(model, **options)
    out.warn((*found.refused, *found.left_out))
    out.result(
        {
            "hit": found.hit,
            "bundles": list(found.bundles),
            "units": found.units,
            "bytes": found.bytes,
            "pack_bytes": found.pack_bytes,
            "left_out": list(found.left_out),
            "refused": list(found.refused),
            "coverage": list(found.coverage),
            "proof": found.proof.to_json() if found.proof else None,
        },
        _lines(model, found),
    )
    if not found.hit:
        raise cachesvc.BundleNotFound(
            f"no usable bundle for {model} and this environment: see `tccache ls {model}`"
        )


def _lines(model: str, found: cachesvc.Found) -> list[str]:
    if not found.hit:
        return []
    units = f"{counted(found.units, 'unit')}, {size(found.bytes)}"
    return [f"{model}: {units}, in {', '.join(found.bundles)}"]
