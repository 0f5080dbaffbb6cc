"""tccache explain: what differs between this machine and the nearest bundle."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any

import click

import cachesvc
from tccache.options import common, salt_option, store_options, target_options
from tccache.output import Output


@click.command()
@click.argument("model")
@click.argument("other", required=False)
@store_options
@target_options
@salt_option
@common
def explain(
    out: Output,
    model: str,
    other: str | None,
    *,
    label: str | None,
    environment: str | None,
    salt: str | None,
    **options: Any,
) -> None:
    """Name what differs between MODEL here and the nearest bundle.

    MODEL is module:function giving a cachesvc.Workload, or demo:gpt; or a name or a digest, which
    tell nothing of the model's own components. With OTHER, both are bundles as show takes them,
    and are compared with each other.

    Exit 0 with an answer, whatever it is; 3 if the store has nothing under that name.

    \b
    Example:
      tccache explain app:workload --store s3://ml-cache/prod --trust release.key.pub
    """
    if other is not None:
        if label is not None or environment is not None:
            raise click.UsageError("two bundles are named in full: no --label, no --environment")
        explained = cachesvc.compare(model, other, **options)
    else:
        with out.progress() as progress, redirect_stdout(sys.stderr):
            _find_modules_here(model)
            explained = cachesvc.explain(
                model,
                label=label,
                environment=environment,
                salt=salt,
                progress=progress,
                **options,
            )
    out.result(explained.to_json(), explained.sentences)


def _find_modules_here(model: str) -> None:
    """A target's module may lie in the working directory, as for `python -m`."""
    if ":" in model and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
