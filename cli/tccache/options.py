"""The flags that several verbs have, each with its environment variable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

import cachesvc
from tccache.output import Output

Verb = Callable[..., Any]


def common(function: Verb) -> Verb:
    """Adds --json, --quiet and --verbose, and gives the verb an `Output`."""

    @functools.wraps(function)
    def run(json: bool, quiet: bool, verbose: bool, **options: Any) -> Any:
        _refuse_empty(click.get_current_context())
        return function(out=Output(function.__name__, json, quiet, verbose), **options)

    for option in (
        _shared(run, "--verbose", "-v", is_flag=True, help="Say each step on stderr."),
        _shared(run, "--quiet", "-q", is_flag=True, help="No progress."),
        _shared(run, "--json", is_flag=True, help="Print one JSON object."),
    ):
        option(run)
    return run


def _refuse_empty(context: click.Context) -> None:
    """An empty value is a shell variable that was not set, never a wish for the default."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise click.BadParameter("it is empty", context, parameter)


def _shared(function: Verb, flag: str, *short: str, **settings: Any) -> Callable[[Verb], Verb]:
    """An option that several verbs have: its variable for this verb counts, else that for all."""
    verb, name = function.__name__.upper(), flag.removeprefix("--").replace("-", "_").upper()
    return click.option(
        flag, *short, envvar=[f"TCCACHE_{verb}_{name}", f"TCCACHE_{name}"], **settings
    )


def store_options(function: Verb) -> Verb:
    """Adds --store, and what says whom to trust: --trust, --max-age and --revoked.

    The verb gets one `trust` for all of that.
    """

    @functools.wraps(function)
    def run(
        trust: tuple[str, ...], max_age: str | None, revoked: tuple[str, ...], **options: Any
    ) -> Any:
        said = cachesvc.access(
            trust or None,
            options.pop("sign_with", None) or None,
            max_age_s=None if max_age is None else cachesvc.read_duration(max_age),
            revoked=revoked or None,
        )
        return function(trust=said, **options)

    for option in (
        _files(
            run,
            "--revoked",
            help="Use nothing that this list names: segments or public keys, a line each."
            " Repeatable. Default: TCCACHE_REVOKED.",
        ),
        _shared(
            run,
            "--max-age",
            metavar="DURATION",
            help="Use nothing that was published longer ago than, say, 30d. Default:"
            " TCCACHE_MAX_AGE.",
        ),
        _files(
            run,
            "--trust",
            metavar="FILE.pub|store",
            help="Use what one of these public keys has signed (repeatable), or `store`: all that"
            " lies there, from whoever can write to it. A pull runs the pusher's code. Default:"
            " TCCACHE_TRUST.",
        ),
        _shared(
            run,
            "--store",
            metavar="URL",
            help="Where bundles are: a directory, s3://BUCKET/PREFIX, or another fsspec URL."
            " Default: TCCACHE_STORE.",
        ),
    ):
        option(run)
    return run


def sign_option(function: Verb) -> Verb:
    """Adds --sign-with, below `store_options`, which takes it along."""
    option = _files(
        function,
        "--sign-with",
        help="Sign what is published with this private key, see `tccache key new`. Repeatable."
        " Default: TCCACHE_SIGN_WITH.",
    )
    option(function)
    return function


def _files(function: Verb, flag: str, **settings: Any) -> Callable[[Verb], Verb]:
    """An option that takes several files; in its variable they are parted as PATH is."""
    shape = {"metavar": "FILE", **settings}
    return _shared(function, flag, multiple=True, type=click.Path(readable=False), **shape)


def target_options(function: Verb) -> Verb:
    """Adds the options that say which bundle is meant: --label and --environment."""
    for option in (
        click.option(
            "--environment",
            metavar="ENV",
            type=click.Path(readable=False),
            help="Another machine's fingerprint: the file that `tccache env --json` wrote there"
            " (for lookup and pull also the first digits of its digest).",
        ),
        click.option("--label", metavar="NAME", help="Another name for the bundle than MODEL."),
    ):
        option(function)
    return function


def salt_option(function: Verb) -> Verb:
    """Adds --salt."""
    option = _shared(
        function,
        "--salt",
        metavar="TEXT",
        help="Your own part of the model's digest, for what tccache cannot see. Default:"
        " TCCACHE_SALT.",
    )
    option(function)
    return function


def slim_option(function: Verb) -> Verb:
    """Adds --slim."""
    option = _shared(
        function,
        "--slim",
        is_flag=True,
        help="Leave out the texts that a Triton kernel came from (.ttir .ttgir .llir .ptx .source):"
        " no start reads them.",
    )
    option(function)
    return function


def tier_option(function: Verb) -> Verb:
    """Adds --tier."""
    option = _shared(
        function,
        "--tier",
        metavar="TIERS",
        help="What may be used: auto, or of aot, directories, megacache one or several with commas,"
        " or no-TIER for all but one. Default: TCCACHE_TIER, else auto.",
    )
    option(function)
    return function


def tree_options(function: Verb) -> Verb:
    """Adds the options that name cache directories and files."""
    folder = click.Path(file_okay=False, readable=False)
    for option in (
        click.option(
            "--extra",
            multiple=True,
            metavar="NAME=DIR",
            callback=_pairs,
            help="Another program's cache directory, under a name of your choice. Repeatable.",
        ),
        click.option(
            "--mega",
            metavar="FILE",
            type=click.Path(dir_okay=False, readable=False),
            help="A mega-cache file.",
        ),
        click.option("--triton-dir", metavar="DIR", type=folder, help="Triton's cache directory."),
        click.option(
            "--inductor-dir", metavar="DIR", type=folder, help="Inductor's cache directory."
        ),
    ):
        option(function)
    return function


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, _equals, folder = value.partition("=")
        if not (name and folder):
            raise click.BadParameter(f"{value!r} is not NAME=DIR")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice")
        pairs[name] = folder
    return pairs
