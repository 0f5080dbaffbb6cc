"""The group of verbs, and what went wrong as one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from cachesvc import TccacheError
from tccache.bench import bench
from tccache.build import build
from tccache.completion import completion
from tccache.demo import demo
from tccache.doctor import doctor
from tccache.env import env
from tccache.explain import explain
from tccache.gc import gc
from tccache.key import key
from tccache.lookup import lookup
from tccache.ls import ls
from tccache.output import printable
from tccache.pull import pull
from tccache.push import push
from tccache.rm import rm
from tccache.run import run as run_verb
from tccache.show import show
from tccache.verify import verify

DEBUG = "TCCACHE_DEBUG"
FAILED = 1
USAGE = 2
INTERRUPTED = 130


class InOrder(click.Group):
    """A group whose help lists the verbs in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    invoke_without_command=True,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TCCACHE"},
    epilog="Exit codes: 0 success, also when a pull finds nothing; 1 error; 2 usage; 3 no bundle"
    " where one is required; 4 data or trust; 5 store; 6 access denied; 7 busy; 130 interrupted;"
    " 143 terminated.\n\n"
    "Every flag may also be given as TCCACHE_VERB_FLAG, such as TCCACHE_PULL_REQUIRE=1;"
    " --store, --trust, --max-age, --revoked, --sign-with, --deadline, --salt, --slim, --tier,"
    " --json, --quiet and --verbose for all verbs as TCCACHE_FLAG, such as TCCACHE_STORE."
    " TCCACHE_DEBUG=1 shows where an error comes from.",
)
@click.version_option(package_name="tccache", prog_name="tccache")
@click.pass_context
def group(context: click.Context) -> None:
    """Start torch.compile'd models warm: move what the compiler made, prove that it is used."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)


for command in (
    demo,
    build,
    run_verb,
    push,
    pull,
    lookup,
    explain,
    doctor,
    ls,
    show,
    rm,
    verify,
    gc,
    bench,
    env,
    key,
    completion,
):
    group.add_command(command)


def entry() -> None:
    """Runs the command line of this process; ends it with the exit code of what happened."""
    signal.signal(signal.SIGTERM, _terminate)
    _open_streams()
    code = run()
    _let_go()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; the exit code of what happened. Trouble is one sentence on stderr."""
    try:
        code = group.main(arguments, prog_name="tccache", standalone_mode=False)
    except TccacheError as error:
        return _fail(error, str(error), error.exit_code)
    except click.ClickException as error:
        return _fail(error, _usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(error, f"{error.strerror or error}{where}; {DEBUG}=1 shows where", FAILED)
    except Exception as error:
        text = (
            f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where, please report it"
        )
        return _fail(error, text, FAILED)
    return code if isinstance(code, int) else 0


def _fail(error: Exception, text: str, code: int) -> int:
    if os.environ.get(DEBUG):
        _complain("".join(traceback.format_exception(error)).rstrip())
    _complain(f"error: {text}")
    return code


def _usage(error: click.ClickException) -> str:
    """A usage error in one line, with where to read on."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    return f"{text} (see `{context.command_path} --help`)" if context else text


def _complain(text: str) -> None:
    with suppress(OSError):  # a full or closed stderr must not change the exit code
        click.echo(printable(text), err=True)


def _terminate(number: int, _: object) -> NoReturn:
    """SIGTERM unwinds as an interrupt does, so that no temporary file or child stays behind."""
    raise SystemExit(128 + number)


def _open_streams() -> None:
    """Streams that were closed before the start lead nowhere, not into the next file opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends


def _let_go() -> None:
    """Drops output that cannot be written: the interpreter would try again, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
