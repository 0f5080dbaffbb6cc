"""tccache build: compile, verify, publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.options import (
    common,
    salt_option,
    sign_option,
    slim_option,
    store_options,
    tier_option,
)
from tccache.output import Output, counted, size, table


@click.command()
@click.argument("target")
@store_options
@sign_option
@click.option("--label", metavar="NAME", help="Another name for the bundle than the workload's.")
@salt_option
@click.option("--tag", multiple=True, metavar="TEXT", help="A tag to record. Repeatable.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    help="How far outputs may lie from eager ones, relative to the greatest value in a tensor;"
    " for every floating dtype.  [float32 1e-4, bfloat16 and float16 2e-2, float64 1e-7]",
)
@click.option("--dry-run", is_flag=True, help="Do all but the publication; needs no store.")
@slim_option
@tier_option
@common
def build(out: Output, target: str, tag: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Compile TARGET, verify it in a fresh process, publish it.

    TARGET is module:function giving a cachesvc.Workload, or demo:gpt. Its calls are made in fresh
    processes: eagerly; compiled, from empty directories; and from the bundle, in another working
    directory and HOME, as a serving process would. What does not start warm there, or gives other
    outputs than eager torch, is not published, and the reason is said. Calls that torch can compile
    ahead of time are published as functions, too, which skip the compiler whole.

    \b
    Example:
      tccache build app:workload --store s3://ml-cache/prod --sign-with release.key --tag v42
    """
    with out.progress() as progress:
        built = cachesvc.build(target, tags=tag, dry_run=dry_run, progress=progress, **options)
    out.warn(built.warnings)
    out.result(built.to_json(), _lines(built))


def _lines(built: cachesvc.Built) -> Iterator[str]:
    yield (
        f"{built.address}: {built.verdict}, first result {built.warm_s:.2f} s"
        f" (cold was {built.cold_s:.2f} s)"
    )
    yield f"  {_published(built)}"
    if built.aot_s is not None:
        functions = counted(built.functions, "function")
        yield f"  {functions} compiled ahead of time, first result {built.aot_s:.2f} s"
    for text in (*built.verified, *built.reasons, *_against(built)):
        yield f"  {text}"
    yield ""
    yield from table(("call", "eager", "cold", "warm", "greatest difference"), _rows(built))


def _against(built: cachesvc.Built) -> Iterator[str]:
    """Why there are no functions, or none for some calls."""
    yield from (f"not ahead of time, {reason}" for reason in built.aot_reasons)


def _published(built: cachesvc.Built) -> str:
    found = f"{counted(built.units, 'unit')} in {counted(built.files, 'file')}, {size(built.bytes)}"
    if built.dry_run:
        return f"nothing is published in a dry run: {found}"
    if built.segment is None:
        return f"nothing to add, the store has all of {found}"
    return (
        f"added {built.added} of {found}; pack {size(built.pack_bytes)},"
        f" segment {built.segment[:12]}"
    )


def _rows(built: cachesvc.Built) -> Iterator[tuple[str, ...]]:
    for call in built.calls:
        seconds = (f"{value:.2f} s" for value in (call.eager_s, call.cold_s, call.warm_s))
        apart = "-" if call.difference is None else f"{call.difference:.2g}"
        yield (call.signature, *seconds, f"{apart}{' (random)' if call.random else ''}")
