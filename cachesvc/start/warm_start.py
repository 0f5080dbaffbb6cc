"""warm_start: before a model's first call, bring what some machine has compiled, and prove it.

Nothing here raises for what goes wrong with the cache, unless the caller asked for it: the worst
case is the cold start that there would have been anyway, with the reason in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachesvc.core.errors import BundleNotFound, TccacheError, unexpected
from cachesvc.core.report import Report, Verdict
from cachesvc.start.access import Paths, TrustLike, access
from cachesvc.start.attempt import Attempt
from cachesvc.start.options import Options, checked
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.prove import prove
from cachesvc.start.settings import DISABLED, StoreLike, is_disabled
from cachesvc.start.target import named_models

_MADE_SOMETHING = (Verdict.COLD, Verdict.PARTIAL, Verdict.INERT)


def warm_start(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    calls: Iterable[Any] | None = None,
    store: StoreLike | None = None,
    label: str | None = None,
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    salt: str | None = None,
    on_miss: str = "compile",
    deadline: float | None = None,
    fallback: bool = True,
    publish: bool = False,
    check: bool = False,
    tier: str | None = None,
    progress: Progress = quiet,
) -> Report:
    """Starts a model warm from a store, before or after `torch.compile`, in place.

    `model` is a module or a function, or several: a sequence, or a mapping by name. `inputs` are
    the arguments of one example call, `calls` several: a sequence of arguments, a mapping of
    keyword arguments, or a callable without arguments each (a whole training step, or a call of
    one of several models). They are made after seeding, with gradients and autocast as they are set
    around this function, and prove the start. Without them the report is `unproven` and settles by
    itself at the model's first calls.

    `label` names the bundle (default: the model's class). The store is TCCACHE_STORE, the caller's
    own part of the model digest (`salt`) TCCACHE_SALT, unless given. `trust` (TCCACHE_TRUST) is one
    or several files of public keys, or the word "store", which trusts whoever can write there; or
    an `Access`, which says more. `sign_with` (TCCACHE_SIGN_WITH) are files of private keys that
    sign what is published.

    on_miss: what to do where no unit of a bundle can be seeded: "compile" starts cold, "eager"
        lets the model run as it was written, "error" raises BundleNotFound, or what went wrong.
        Whether a bundle that was seeded is of use shows at the calls: where nothing of it was used
        they have compiled, and "error" raises then, too.
    deadline: seconds for everything before the first call (default TCCACHE_DEADLINE, else 300).
        Once it has passed the start goes on without the bundle and nothing enters the live
        directory any more.
    fallback: where the store has nothing for this very model, the newest bundle of the same name
        serves what did not change, if salt and packages with operators are equal.
    publish: a start that had to compile, or found what it needs on this machine alone, publishes
        what it made, beside the caller;
        `report.publishing` tells how it goes, and the end of the process waits for it, 30 s at
        most.
    check: compares the output of each call with the record in the bundle, or with an eager call
        where weights or inputs are others. A bundle whose output is wrong is set aside, and the
        calls are made again without it.
    tier: what may be used of a bundle (default TCCACHE_TIER, else "auto"): "aot" for functions
        compiled ahead of time, which skip the compiler whole, "directories", "megacache"; several
        with commas; "no-aot" for all but that. "auto" takes the best that the bundle holds and that
        fits; the report says which, and why not a better one. A module that has such functions
        calls them from then on, where they are right for the call, and is compiled for others.

    Never raises for the cache, the store or the calls unless on_miss is "error": the report says
    what went wrong. A call that fails is made again, first as it was written; where several
    processes compute together, or other models were compiled before, less is tried. Raises
    UsageError for an option that does not exist, or no model. Where TCCACHE_DISABLE is
    set, nothing is touched and the calls are made as they are.
    """
    named_models(model)
    options = checked(on_miss, deadline, flags=(fallback, publish, check), tier=tier)
    if is_disabled():
        attempt = Attempt(model, label, salt, Options(), progress, notes=[DISABLED])
        return prove(attempt, inputs, calls, hooked=False)
    attempt = Attempt(model, label, salt, options, progress)
    attempt.prepare(store, trust, sign_with)
    report = prove(attempt, inputs, calls)
    if on_miss == "error" and report.verdict in (Verdict.COLD, Verdict.INERT):
        raise BundleNotFound(str(report))
    if not publish:
        return report
    return _published(
        report, model, store=store, trust=trust, sign_with=sign_with, label=label, salt=salt
    )


def observe(model: Any, *, calls: Iterable[Any]) -> Report:
    """Makes the calls with whatever directories are in effect, and reports what was counted.

    Nothing is pulled: this is how a start without this library looks from inside.
    """
    attempt = Attempt(model)
    attempt.locate()
    return prove(attempt, None, calls)


def _published(
    report: Report,
    model: Any,
    *,
    store: StoreLike | None,
    trust: TrustLike | None,
    sign_with: Paths | None,
    label: str | None,
    salt: str | None,
) -> Report:
    """The report, with the publication of what the start made under way."""
    if report.verdict is Verdict.UNPROVEN:
        why = "no call asked the compiler for anything" if report.called else "no call was made"
        note = f"nothing is published: {why}; call push(model, report=report) after some"
        return replace(report, notes=(*report.notes, note))
    if report.made_apart:
        note = "nothing is published: a call was only right outside the live directory"
        return replace(report, notes=(*report.notes, note))
    unpublished = report.verdict is Verdict.WARM and report.bundle is None
    if report.verdict not in _MADE_SOMETHING and not unpublished:
        return report
    from cachesvc.start.push import push_beside

    try:
        said = access(trust, sign_with)
        publishing = push_beside(model, report, store=store, trust=said, label=label, salt=salt)
    except TccacheError as error:
        return replace(report, notes=(*report.notes, f"nothing is published: {error}"))
    except Exception as error:  # serving must start, whatever this library gets wrong
        note = unexpected(error)
        return replace(report, notes=(*report.notes, f"nothing is published: {note}"))
    return replace(report, publishing=publishing)
