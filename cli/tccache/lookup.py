"""tccache lookup: would this machine start warm?"""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.output import Output, common, size, store_options


@click.command()
@click.argument("model")
@store_options
@click.option("--label", metavar="NAME", help="Another name for the bundle than MODEL.")
@click.option(
    "--environment",
    metavar="ENV",
    help="Another machine's fingerprint: a file, or the first digits of its digest.",
)
@common("lookup")
def lookup(out: Output, model: str, **options: Any) -> None:
    """Say whether the store holds something for MODEL that this machine can use.

    Exit 0 if so, 3 if not. Nothing is brought.

    \b
    Example:
      tccache lookup llama-prod --store s3://ml-cache/prod --trust store && echo warm
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
        f"{model}: {found.units} units, {size(found.bytes)}, in {', '.join(found.bundles)}"
        if found.hit
        else "",
    )
    if not found.hit:
        raise cachesvc.BundleNotFound(
            f"no usable bundle for {model} and this environment: see `tccache ls {model}`"
        )
