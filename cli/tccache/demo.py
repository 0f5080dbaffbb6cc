"""tccache demo: cold start, publication, warm start."""

from __future__ import annotations

from typing import Any

import click

import cachesvc
from tccache.bench import START_HEADER, start_cells
from tccache.options import common, sign_option, store_options
from tccache.output import Output, size, table


@click.command()
@click.argument("target", default="demo:gpt")
@store_options
@sign_option
@click.option("--runs", type=click.IntRange(1, 100), default=1, help="Samples per arm.  [1]")
@common
def demo(out: Output, target: str, runs: int, **options: Any) -> None:
    """Start TARGET cold, publish, start it warm, and compare.

    TARGET is demo:gpt, or module:function giving a cachesvc.Workload. Each start is a fresh
    process with directories of its own. Without --store a temporary local store is used.

    \b
    Example:
      tccache demo --runs 3
    """
    with out.progress() as progress:
        done = cachesvc.demo(target, runs=runs, progress=progress, **options)
    out.result(
        {
            "workload": done.workload,
            "runs": done.runs,
            "store": done.store,
            "environment": done.environment,
            "pack_bytes": done.pack_bytes,
            "arms": {arm.name: arm.to_json() for arm in done.arms},
            "ratios": {
                "cold_over_warm": {
                    "first_call": done.ratio("cold", "warm"),
                    "startup": done.startup_ratio("cold", "warm"),
                }
            },
        },
        _lines(done),
    )


def _lines(done: cachesvc.Measurement) -> list[str]:
    samples = "one sample per arm" if done.runs == 1 else f"{done.runs} samples per arm, medians"
    return [
        f"{done.workload} through {done.store}: {size(done.pack_bytes)} published, {samples}",
        "",
        *table(START_HEADER, map(start_cells, done.arms)),
        "",
        f"warm over cold: first call {done.ratio('cold', 'warm'):.1f} times faster,"
        f" process to result {done.startup_ratio('cold', 'warm'):.1f} times",
        *(f"  {arm.name}: {arm.samples[0].summary.splitlines()[0]}" for arm in done.arms),
    ]
