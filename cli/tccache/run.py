"""tccache run: any program, with the caches that a store holds for it."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

import cachesvc
from tccache.options import common, sign_option, store_options
from tccache.output import Output, counted, printable


@click.command()
@click.argument("model")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@store_options
@sign_option
@click.option(
    "--publish/--no-publish",
    default=True,
    help="Put what CMD compiled into the store. Default: yes.",
)
@click.option(
    "--deadline",
    metavar="SECONDS",
    type=float,
    envvar=["TCCACHE_RUN_DEADLINE", "TCCACHE_DEADLINE"],
    help="Start CMD without the bundle after so long. Default: 300.",
)
@click.option(
    "--settle",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=10.0,
    help="Publish while CMD runs once nothing was added for so long. Default: 10.",
)
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30.0,
    help="Wait for the publication after CMD's end for so long at most. Default: 30.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, readable=False),
    help="Write what happened to this file, as JSON.",
)
@common
def run(
    out: Output, model: str, command: tuple[str, ...], report: str | None, **options: Any
) -> int:
    """Run CMD with what the store holds for MODEL.

    MODEL is a name, CMD everything after --. CMD needs no change: its compiler finds what other
    machines have compiled, and what it compiles itself is published. Its streams, signals and exit
    code are its own (128+N if it died of signal N, 127 if there is no such program, 126 if it
    cannot be run); what goes wrong with the store is a warning. At its end a line on stderr tells
    what was used; --json makes that line one JSON object.

    \b
    Example:
      tccache run llama-prod --store s3://ml-cache/prod --trust release.key.pub -- python serve.py
    """
    ran = cachesvc.run(
        model,
        command,
        progress=_progress(out),
        warn=lambda text: _say(f"warning: {text}"),
        **options,
    )
    text = json.dumps({"schema": "tccache.run/1", **_fields(ran)})
    if report is not None:
        try:
            Path(report).write_text(text + "\n")
        except OSError as error:
            _say(f"warning: cannot write {report}: {error.strerror}")
    if out.json:
        _echo(text)
    elif ran.live is not None and not out.quiet:
        _say(_line(ran))
    return ran.exit_code


def _progress(out: Output) -> Any:
    """Each step in a line of its own: the program may write to the same terminal at any time."""
    shown = out.verbose or (sys.stderr.isatty() and not out.quiet)
    return _say if shown else lambda text: None


def _say(text: str) -> None:
    _echo(f"tccache run: {text}")


def _echo(text: str) -> None:
    with suppress(OSError):  # a full or closed stderr must not change what the program's end means
        click.echo(printable(text), err=True)


def _fields(ran: cachesvc.Ran) -> dict[str, Any]:
    transfer = ran.transfer
    return {
        "name": ran.name,
        "exit_code": ran.exit_code,
        "signal": ran.signal,
        "seconds": ran.seconds,
        "live": ran.live,
        "bundles": list(ran.bundles),
        "packs": transfer.packs,
        "bytes": transfer.bytes,
        "seeded": transfer.seeded,
        "kept": transfer.kept,
        "left_out": list(transfer.left_out),
        "set_aside": list(transfer.set_aside),
        "pull_s": transfer.pull_s,
        "seed_s": transfer.seed_s,
        "in_place": ran.in_place,
        "used": ran.used,
        "own": ran.own,
        "own_used": ran.own_used,
        "added": ran.added,
        "inert": ran.is_inert,
        "published": [
            {
                "bundle": str(publication.address),
                "segment": publication.segment,
                "added": publication.added,
                "pack_bytes": publication.pack_bytes,
            }
            for publication in ran.published
        ],
        "notes": list(ran.notes),
    }


def _line(ran: cachesvc.Ran) -> str:
    brought = f"{counted(ran.in_place, 'unit')} in place{_use(ran.in_place, ran.used)}"
    parts = [brought if ran.bundles else "nothing brought"]
    if ran.own:
        parts.append(f"{ran.own} of this machine's own{_use(ran.own, ran.own_used)}")
    parts.append(f"{ran.added} added")
    return f"{ran.name}: {', '.join(parts)}{_meaning(ran)}{_published(ran)}"


def _use(units: int, used: int | None) -> str:
    if not units:
        return ""
    return ", use cannot be told" if used is None else f", {used} used"


def _meaning(ran: cachesvc.Ran) -> str:
    if ran.is_inert:
        return "; inert: nothing of it was used"
    if not ran.added and (ran.used or ran.own_used):
        return "; nothing was missing"
    return ""


def _published(ran: cachesvc.Ran) -> str:
    if not ran.published:
        return ""
    added = sum(publication.added for publication in ran.published)
    segment = ran.published[-1].segment or ""
    return f"; published {counted(added, 'unit')} in segment {segment[:12]}"
