"""tccache verify: check what is in a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import cachesvc
from tccache.options import common, store_options
from tccache.output import Output, counted, size


@click.command()
@click.argument("bundle", required=False)
@store_options
@common
def verify(out: Output, bundle: str | None, **options: Any) -> None:
    """Check every manifest, pack and file of a store by its digest.

    With BUNDLE only of the bundles that it means. Exit 4 if anything is not what it should be.

    \b
    Example:
      tccache verify --store s3://ml-cache/prod --trust store
    """
    with out.progress() as progress:
        done = cachesvc.verify(bundle, progress=progress, **options)
    out.result(
        {
            "ok": done.ok,
            "bundles": done.bundles,
            "segments": done.segments,
            "entries": done.entries,
            "bytes": done.bytes,
            "problems": list(done.problems),
            "orphans": list(done.orphans),
        },
        _lines(done),
    )
    if not done.ok:
        raise cachesvc.IntegrityError(
            f"{counted(len(done.problems), 'problem')} found: remove these bundles with"
            " `tccache rm` and push them again",
            done.problems,
        )


def _lines(done: cachesvc.Verification) -> Iterator[str]:
    yield (
        f"{'ok' if done.ok else 'not ok'}: {counted(done.bundles, 'bundle')},"
        f" {counted(done.segments, 'segment')}, {counted(done.entries, 'file')}, {size(done.bytes)}"
    )
    for problem in done.problems:
        yield f"  problem: {problem}"
    for orphan in done.orphans:
        yield f"  orphan, no manifest names it: {orphan}"
