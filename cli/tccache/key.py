"""tccache key: the keys that sign what is pushed."""

from __future__ import annotations

from collections.abc import Iterator

import click

import cachesvc
from tccache.options import common
from tccache.output import Output


@click.group(invoke_without_command=True)
@click.pass_context
def key(context: click.Context) -> None:
    """Make and show the keys that sign what is pushed.

    A reader that trusts a public key uses only what its private key has signed, whoever can write
    to the store.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)


@key.command("new")
@click.option(
    "--out",
    "file",
    envvar="TCCACHE_KEY_NEW_OUT",
    required=True,
    metavar="FILE",
    type=click.Path(readable=False),
    help="Where the private key goes, for its owner only; the public one goes to FILE.pub.",
)
@common
def key_new(out: Output, file: str) -> None:
    """Make a new key: FILE signs, FILE.pub is what readers trust.

    Files that are there already are never overwritten. Keep FILE where only the pipeline that
    builds can read it.

    \b
    Example:
      tccache key new --out release.key
      tccache build app:workload --store s3://ml-cache/prod --sign-with release.key
      tccache pull llama-prod --store s3://ml-cache/prod --trust release.key.pub
    """
    made = cachesvc.make_key(file)
    out.result(made.to_json(), _lines(made))


@key.command("show")
@click.argument("file", type=click.Path(readable=False))
@common
def key_show(out: Output, file: str) -> None:
    """Show the public keys of FILE, a private key or one or several public ones.

    `tccache show` and `tccache verify` name who signed a segment by the first digits.

    \b
    Example:
      tccache key show release.key.pub
    """
    found = cachesvc.read_key(file)
    out.result(found.to_json(), _lines(found))


def _lines(found: cachesvc.Key) -> Iterator[str]:
    for public in found.public:
        yield f"public key {public}"
    yield f"  {found.file}{': the private half, which signs' if found.private else ''}"
    if found.public_file is not None:
        yield f"  {found.public_file}: what readers trust, by --trust or TCCACHE_TRUST"
