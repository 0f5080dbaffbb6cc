"""tccache completion: the script that completes this command in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Example:
      tccache completion bash > ~/.local/share/bash-completion/completions/tccache
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}")
    root = context.find_root().command
    click.echo(kind(root, {}, "tccache", "_TCCACHE_COMPLETE").source())
