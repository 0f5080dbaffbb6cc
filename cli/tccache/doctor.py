"""tccache doctor: what keeps this machine, and a model, from starting warm."""

from __future__ import annotations

import click

import cachesvc
from tccache.options import common
from tccache.output import Output

SICK = 1


@click.command()
@click.argument("target", required=False)
@click.option(
    "--trace",
    metavar="DIR",
    type=click.Path(file_okay=False, readable=False),
    help="Keep torch's structured trace of both starts there, for tlparse.",
)
@click.option("--strict", is_flag=True, help="Exit 1 if a disease was found.")
@common
def doctor(out: Output, target: str | None, *, trace: str | None, strict: bool) -> int:
    """Examine this machine and TARGET, and name each cure.

    TARGET is module:function giving a cachesvc.Workload, demo:NAME or hf:ARCH. It is started twice
    in fresh processes, cold and on what the first start has left: graph breaks, recompiles, what no
    cache keeps and what was done again are told. Without TARGET torch is not imported.

    Exit 0 with an answer, whatever it is; with --strict 1 if a disease was found.

    \b
    Example:
      tccache doctor app:workload --trace traces
    """
    with out.progress() as progress:
        found = cachesvc.doctor(target, trace=trace, progress=progress)
    out.result(found.to_json(), found.sentences)
    return SICK if strict and not found.healthy else 0
