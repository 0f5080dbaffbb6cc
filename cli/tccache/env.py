"""tccache env: this machine's fingerprint."""

from __future__ import annotations

import click

import cachesvc
from tccache.output import Output, common


@click.command()
@common("env")
def env(out: Output) -> None:
    """Print the environment fingerprint of this machine: what must be equal for reuse.

    \b
    Example:
      tccache env --json > h200.json
    """
    components = cachesvc.read_environment()
    lines = [f"digest: {components.digest}"]
    lines += [f"{name}: {value}" for name, value in components.items()]
    out.result({"digest": components.digest, "components": dict(components)}, "\n".join(lines))
