"""tccache bench: measured starts and calls, as a table, JSON, a page, or a gate."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import cachesvc
from tccache.options import common, sign_option, store_options
from tccache.output import Output, counted, size, table

FAILED = 1
INTERRUPTED = 130


class _List(click.ParamType):  # type: ignore[type-arg] # generic from click 8.2 on alone
    """Values with commas between them, each read by another type."""

    name = "list"

    def __init__(self, each: click.ParamType[Any]) -> None:
        self._each = each

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._each.convert(part.strip(), param, ctx) for part in value.split(","))


def _options(
    _: click.Context, __: click.Parameter, values: Sequence[str]
) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """Each value is one set of options: NAME=VALUE,NAME=VALUE, or a JSON object."""
    return tuple(map(_set, values))


def _set(text: str) -> tuple[tuple[str, Any], ...]:
    if not text.startswith("{"):
        return tuple(map(_pair, text.split(",")))
    try:
        return tuple(json.loads(text).items())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a JSON object") from None


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


@click.command()
@click.argument("target")
@store_options
@sign_option
@click.option("--runs", type=click.IntRange(1, 100), default=3, help="Samples per arm.  [3]")
@click.option(
    "--arms",
    type=_List(click.Choice(cachesvc.ARMS)),
    default=",".join(cachesvc.ARMS),
    metavar="ARM,...",
    help=f"Which starts to measure, of {', '.join(cachesvc.ARMS)}; eager and cold always are."
    "  [all]",
)
@click.option(
    "--calls",
    type=click.IntRange(1, 100_000),
    default=20,
    help="Rounds of calls after the first one; after three, only for three seconds.  [20]",
)
@click.option(
    "--modes",
    type=_List(click.Choice(cachesvc.MODES)),
    metavar="MODE,...",
    help=f"Modes of torch.compile to compare, of {', '.join(cachesvc.MODES)}.",
)
@click.option(
    "--options",
    "inductor",
    envvar="TCCACHE_BENCH_OPTIONS",
    multiple=True,
    callback=_options,
    metavar="NAME=VALUE,...",
    help="Options of Inductor in place of a mode, such as max_autotune=true, or a JSON object."
    " Repeatable.",
)
@click.option("--regions", is_flag=True, help="Each also with only its repeated blocks compiled.")
@click.option("--dynamic", is_flag=True, help="Each also compiled with dynamic=True.")
@click.option(
    "--shapes",
    type=_List(click.IntRange(1)),
    metavar="N,...",
    help="Lengths, a call for each: batch sizes, or tokens of a prompt.",
)
@click.option("--train", is_flag=True, help="Training steps instead of inference.")
@click.option("--size", metavar="SIZE", help="Of demo: and hf: workloads: tiny, small or large.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with charts; needs the extra `report`.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(dir_okay=False, readable=False, path_type=Path),
    help="An earlier --json: exit 1 if a ratio of arms is worse than there by more than --margin.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, max_open=True),
    default=cachesvc.MARGIN,
    help=f"How much smaller a ratio may be, as a part.  [{cachesvc.MARGIN}]",
)
@common
def bench(
    out: Output,
    target: str,
    html: Path | None,
    baseline: Path | None,
    margin: float,
    **given: Any,
) -> int:
    """Measure starts and calls of TARGET.

    TARGET is demo:mlp, demo:gpt, demo:resnet, hf:ARCH, or module:function giving a
    cachesvc.Workload. Each sample is a fresh process with directories of its own; the arms take
    turns: eager (nothing is compiled), cold (an empty directory), warm (a pull into an empty
    directory), local (a directory filled already), megacache (torch's own mega-cache alone), aot
    (functions compiled ahead of time, no compiler loaded). What
    a label says is checked by the compiler's counters. Ctrl-C ends the measuring, and reports what
    was measured.

    Exit code 1 if an arm failed, or if --baseline finds a regression.

    \b
    Example:
      tccache bench demo:gpt --modes default,max-autotune --regions --html out.html
    """
    before = None if baseline is None else cachesvc.read_baseline(baseline, target)
    if html is not None:
        cachesvc.check_page(html)
    with out.progress() as progress:
        done = cachesvc.bench(
            target,
            runs=given["runs"],
            variants=tuple(_variants(given)),
            options=cachesvc.WorkloadOptions(given["size"], given["shapes"] or (), given["train"]),
            arms=given["arms"],
            calls=given["calls"],
            store=given["store"],
            trust=given["trust"],
            progress=progress,
        )
    done = dataclasses.replace(done, command=_command(given["store"], done.store))
    compared = None if before is None else cachesvc.gate(done, before, margin)
    told = {"baseline": compared.to_json()} if compared else {}
    out.result({**done.to_json(), **told}, [*_lines(done), *_gate_lines(compared)])
    if html is not None:
        cachesvc.write_page(done, html)
    out.warn(map(str, done.failures) if out.json else ())
    if done.interrupted:
        return INTERRUPTED
    return FAILED if done.failures or (compared and compared.regressions) else 0


def _command(given: str | None, store: str) -> str:
    """What makes the same again; the store as it is told, without passwords."""
    line = ["tccache", *sys.argv[1:]]
    prefix = f"{click.get_current_context().auto_envvar_prefix}_"
    variables = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(prefix)]
    text = shlex.join([*sorted(variables), *line])
    return text.replace(given, store) if given else text


def _variants(given: dict[str, Any]) -> Iterator[cachesvc.Variant]:
    """Every way to compile that was asked for; whole and as it comes before regions and dynamic."""
    modes = given["modes"] or (() if given["inductor"] else ("default",))
    ways = [{"mode": mode} for mode in modes] + [{"options": each} for each in given["inductor"]]
    dynamics = (None, True) if given["dynamic"] else (None,)
    regions = (False, True) if given["regions"] else (False,)
    for way, dynamic, regional in itertools.product(ways, dynamics, regions):
        yield cachesvc.Variant(**way, dynamic=dynamic, regions=regional)


def _lines(done: cachesvc.Bench) -> Iterator[str]:
    samples = "one sample per arm" if done.runs == 1 else f"{done.runs} samples per arm, medians"
    yield f"{done.target} through {done.store}; {samples}"
    if done.interrupted:
        yield "interrupted: fewer samples than asked for"
    for trial in done.trials:
        yield ""
        bundle = f": a bundle of {size(trial.bundle.bytes)}" if trial.bundle else ""
        yield f"{trial.variant.label}{bundle}"
        yield from (f"  {line}" for note in trial.notes for line in note.splitlines())
        yield from table(_HEADER, [_row(done, trial, arm) for arm in trial.arms])
        yield from _ratio_lines(trial)
        yield from _doubts(done, trial)
    for failure in done.failures:
        yield f"not measured: {failure}"


START_HEADER = ("start", "first call", "process to result", "verdict", "compiled", "native builds")
_HEADER = (*START_HEADER, "steady call", "per second", "peak memory", "pays from call")


def start_cells(arm: cachesvc.Arm) -> tuple[str, ...]:
    """What there is to tell of an arm's starts, a cell for each word of the header."""
    return (
        arm.name,
        str(arm.first_call_s),
        str(arm.startup_s),
        arm.verdict.value,
        str(max(sample.compiled for sample in arm.samples)),
        str(max(sample.native_builds for sample in arm.samples)),
    )


def _row(done: cachesvc.Bench, trial: cachesvc.Trial, arm: cachesvc.Arm) -> tuple[str, ...]:
    steady, rate = arm.steady_s, done.throughput(arm)
    return (
        *start_cells(arm),
        "" if steady is None else f"{steady.median * 1000:.2f} ms",
        "" if rate is None else f"{rate:.1f} {done.unit}",
        _memory(arm),
        _pays(trial, arm),
    )


def _memory(arm: cachesvc.Arm) -> str:
    sizes = (("", arm.peak_bytes), ("GPU ", arm.device_peak_bytes))
    return ", ".join(f"{place}{size(number)}" for place, number in sizes if number is not None)


def _pays(trial: cachesvc.Trial, arm: cachesvc.Arm) -> str:
    """The break-even call, from the first call and from the start of the process; with `about`
    where noise decides."""
    found = None if arm.name == "eager" else trial.break_even(arm)
    if found is None:
        return ""
    first, startup = (
        "never" if number is None else str(number) for number in (found.first_call, found.startup)
    )
    calls = first if first == startup else f"{first} ({startup} with the process)"
    return calls if found.certain or found.first_call is None else f"about {calls}"


def _ratio_lines(trial: cachesvc.Trial) -> Iterator[str]:
    for name, ratios in trial.ratios().items():
        slow, _, fast = name.partition("_over_")
        if slow == "cold":
            yield (
                f"  {fast} over cold: first call {ratios['first_call']:.1f} times faster,"
                f" process to result {ratios['startup']:.1f} times"
            )


def _doubts(done: cachesvc.Bench, trial: cachesvc.Trial) -> Iterator[str]:
    """What the figures of an arm do not say by themselves."""
    for arm in trial.arms:
        if len(arm.samples) < done.runs:
            yield f"  {arm.name}: {counted(len(arm.samples), 'sample')} of {done.runs}"
        if arm.differences:
            more = f"; and {len(arm.differences) - 1} more" if len(arm.differences) > 1 else ""
            yield f"  {arm.name}: the output is not eager's: {arm.differences[0]}{more}"


def _gate_lines(compared: cachesvc.Comparison | None) -> Iterator[str]:
    if compared is None:
        return
    yield ""
    yield from compared.notes
    for change in compared.regressions:
        yield f"regression: {change}"
    if not compared.regressions:
        count = len(compared.changes)
        yield f"no regression: {count} ratios within {compared.margin:.0%} of the baseline's"
