"""tccache env: this machine's fingerprint."""

from __future__ import annotations

import click

import cachesvc
from tccache.options import common
from tccache.output import Output


@click.command()
@common
def env(out: Output) -> None:
    """Print the environment fingerprint of this machine.

    Bundles are reused only where all of it is equal.

    \b
    Example:
      tccache env --json > h200.json
    """
    components = cachesvc.read_environment()
    lines = [f"{name}: {value}" for name, value in components.items()]
    out.result(
        {"digest": components.digest, "components": dict(components)},
        (f"digest: {components.digest}", *lines),
    )
