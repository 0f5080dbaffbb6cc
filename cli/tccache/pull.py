"""tccache pull: from a store into cache directories."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.options import common, store_options, target_options, tree_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("model")
@store_options
@target_options
@tree_options
@click.option("--require", is_flag=True, help="Exit 3 if there is nothing to pull.")
@click.option(
    "--deadline",
    metavar="SECONDS",
    type=float,
    envvar=["TCCACHE_PULL_DEADLINE", "TCCACHE_DEADLINE"],
    help="Exit 5 after so long, with nothing brought. Default: none.",
)
@common
def pull(out: Output, model: str, extra: dict[str, str], **options: Any) -> None:
    """Bring what the store holds for MODEL to this machine.

    MODEL is a name or a model digest. Without directories the live directory is seeded. Nothing
    is overwritten. Finding nothing is not an error: a cold start is a normal day.

    \b
    Example:
      tccache pull llama-prod --store s3://ml-cache/prod --trust release.key.pub
    """
    with out.progress() as progress:
        pulled = cachesvc.pull(model, extra=extra, progress=progress, **options)
    transfer = pulled.transfer
    aside = [f"set aside on this machine, {text}" for text in transfer.set_aside]
    out.warn((*pulled.notes, *transfer.left_out, *aside))
    out.result(
        {
            "found": pulled.found,
            "bundles": list(pulled.bundles),
            "packs": transfer.packs,
            "bytes": transfer.bytes,
            "seeded": transfer.seeded,
            "in_place": transfer.in_place,
            "kept": transfer.kept,
            "repaired": transfer.repaired,
            "left_out": list(transfer.left_out),
            "set_aside": list(transfer.set_aside),
            "artifacts": pulled.artifacts,
            "directories": dict(pulled.directories),
            "pull_s": transfer.pull_s,
            "seed_s": transfer.seed_s,
            "notes": list(pulled.notes),
        },
        _lines(model, pulled),
    )


def _lines(model: str, pulled: cachesvc.Pulled) -> list[str]:
    if not pulled.found:
        return [f"{model}: nothing in the store for this environment; the next start is cold"]
    transfer = pulled.transfer
    if not transfer.present + transfer.kept:
        return [f"{model}: {', '.join(pulled.bundles)} has nothing for the directories named"]
    kept = f", {transfer.kept} of this machine's own kept" if transfer.kept else ""
    seconds = transfer.pull_s + transfer.seed_s
    return [
        f"{model}: {counted(transfer.seeded, 'unit')} seeded, {transfer.in_place} in place{kept};"
        f" {size(transfer.bytes)} in {seconds:.2f} s",
        *(f"  {prefix}: {folder}" for prefix, folder in pulled.directories),
    ]
