"""tccache completion: the script that completes this command in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tccache.options import common
from tccache.output import Output


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion(out: Output, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    Example:
      tccache completion bash > ~/.local/share/bash-completion/completions/tccache
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "tccache", "_TCCACHE_COMPLETE").source()
    out.result({"shell": shell, "script": script}, script.splitlines())
