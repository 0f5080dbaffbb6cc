"""The group of verbs, and errors as exit codes."""

from __future__ import annotations

import os
import sys

import click

from cachesvc import TccacheError
from tccache.completion import completion
from tccache.demo import demo
from tccache.env import env
from tccache.lookup import lookup
from tccache.ls import ls
from tccache.pull import pull
from tccache.push import push
from tccache.rm import rm
from tccache.show import show
from tccache.verify import verify

INTERRUPTED = 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TCCACHE"},
    epilog="Exit codes: 0 success, also when a pull finds nothing; 1 error; 2 usage; 3 no bundle"
    " where one is required; 4 data or trust; 5 store; 6 access denied; 7 busy; 130 interrupted.",
)
@click.version_option(package_name="tccache", prog_name="tccache")
def group() -> None:
    """Start torch.compile'd models warm: move what the compiler made, prove that it is used."""


for command in (demo, push, pull, lookup, ls, show, rm, verify, env, completion):
    group.add_command(command)


def entry() -> None:
    """Runs the command line; ends the process with the exit code of what happened."""
    try:
        code = group.main(standalone_mode=False)
    except TccacheError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; without this, the interpreter complains at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
