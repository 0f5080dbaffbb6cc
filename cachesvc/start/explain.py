"""explain: why a start here finds its bundle, or does not; compare: two bundles side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachesvc.core.address import Address
from cachesvc.core.changes import narrowed
from cachesvc.core.components import Components, Difference
from cachesvc.core.errors import IntegrityError
from cachesvc.core.explanation import AREAS, Asked, Explanation, Need
from cachesvc.core.manifest import Manifest, Unit
from cachesvc.core.requirement import Unmet
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Repository
from cachesvc.start.access import TrustLike
from cachesvc.start.bundles import neighbour
from cachesvc.start.nearest import Subject, elsewhere, nearby, nearest, subject_of, the_one
from cachesvc.start.progress import Progress, quiet
from cachesvc.start.settings import StoreLike, open_repository
from cachesvc.start.target import EnvironmentLike, Target, resolve_environment
from cachesvc.start.transfer import Holdings, capabilities, holdings

_SHOWN_CALLS = 5

_NO_MODEL = (
    "a name or a digest does not say which model starts, nor with which settings: give"
    " module:function, or call cachesvc.explain(model) where it starts"
)
_ANY_MODEL = "the bundle was pushed under its name alone, so it does not say of which model it is"
_NO_CONTEXT = "the bundle does not say with which settings it was compiled"
_FOREIGN = "the settings and the abilities of another machine are not known here"
_NO_TORCH = "torch cannot be imported here, so the settings of this process are not known"


def explain(
    model: Any,
    *,
    store: StoreLike | None = None,
    trust: TrustLike | None = None,
    label: str | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
    progress: Progress = quiet,
) -> Explanation:
    """What differs between this process and the nearest bundle, old value and new.

    `model` is a model, or several; the text of a target that gives a Workload (`module:function`,
    `demo:NAME`), which is loaded here; a name; or a model digest. With a name or a digest alone
    there is no model to compare, and the explanation says so. `environment` is another machine's
    fingerprint; then neither this process's context nor this host's abilities count. `salt` is the
    user's own part of the model digest, TCCACHE_SALT unless given.

    The context is that of the calling process: call it where the model would start. Nothing is
    brought and nothing is written. Raises BundleNotFound if the store has nothing under the name;
    UsageError, UntrustedError, IntegrityError, StoreError, AccessDenied.
    """
    repository = open_repository(store, trust)
    components, foreign = resolve_environment(environment)
    progress("identify the model")
    subject = subject_of(model, label, salt, components, foreign)
    progress("read the manifests")
    return _explained(repository, subject, nearby(repository, subject))


def compare(
    a: str, b: str, *, store: StoreLike | None = None, trust: TrustLike | None = None
) -> Explanation:
    """What differs between two bundles; old is a's side, new is b's.

    Each is named as `show` takes it: a name, a model digest, or NAME/MODEL/ENVIRONMENT cut short
    anywhere. Raises BundleNotFound if there is none, UsageError if several are meant,
    IntegrityError if a bundle cannot be read.
    """
    repository = open_repository(store, trust)
    (old, before), (new, after) = (_whole(repository, the_one(repository, t)) for t in (a, b))
    address = after.address
    return _compared(
        _Side.of(before, old),
        _Side.of(after, new),
        Explanation(
            asked=Asked(address.name, address.model, address.environment),
            nearest=before.address,
            would_hit=None,
            requirements=tuple(_other_needs(old.units.values(), new.units.values())),
            notes=tuple(item.reason for found in (old, new) for item in found.refused),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """What is compared, of a bundle or of this process: no model, no contexts if not known."""

    environment: Components
    model: Components | None
    contexts: tuple[Components, ...] = ()
    why_no_model: str = _ANY_MODEL
    why_no_context: str = _NO_CONTEXT

    @classmethod
    def of(cls, manifest: Manifest, found: Holdings) -> _Side:
        units = (unit for segment in found.segments for unit in segment.units)
        contexts = dict.fromkeys(unit.origin.context for unit in units if unit.origin.context)
        return cls(manifest.environment, manifest.model or None, tuple(contexts))


def _compared(old: _Side, new: _Side, said: Explanation) -> Explanation:
    """The explanation with what differs between two sides, and what is not known of them."""
    unknown: dict[str, str] = {}
    for side in (old, new):
        if side.model is None:
            unknown["model"] = side.why_no_model
        if not side.contexts:
            unknown["context"] = side.why_no_context
    model = old.model.diff(new.model) if old.model and new.model else ()
    return replace(
        said,
        environment=old.environment.diff(new.environment),
        model=narrowed(model),
        context=_fewest(old.contexts, new.contexts),
        unknown=(*unknown, *said.unknown),
        notes=tuple(dict.fromkeys((*said.notes, *unknown.values()))),
    )


def _fewest(old: Sequence[Components], new: Sequence[Components]) -> tuple[Difference, ...]:
    """The differences of the two contexts that are nearest to each other."""
    pairs = (before.diff(after) for before in old for after in new)
    return min(pairs, key=len, default=())


def _this_side(subject: Subject, bundle: Manifest) -> _Side:
    """This process as it is compared with a bundle; its own digest says all of a model."""
    same = subject.digest == bundle.address.model
    context = None if subject.foreign else _own_context()
    return _Side(
        subject.environment,
        bundle.model if same else subject.model,
        () if context is None else (context,),
        why_no_model=_NO_MODEL,
        why_no_context=_FOREIGN if subject.foreign else _NO_TORCH,
    )


def _own_context() -> Components | None:
    try:
        from cachesvc.runtime.context import read_context
    except (ImportError, OSError):  # OSError: one of its libraries cannot be loaded
        return None
    return read_context()


def _explained(repository: Repository, subject: Subject, listed: Sequence[Bundle]) -> Explanation:
    bundle, notes = nearest(repository, subject, listed)
    said = Explanation(subject.asked, None, would_hit=False, notes=(*subject.notes, *notes))
    if bundle is None:
        return replace(said, unknown=AREAS)
    found, manifest = _whole(repository, bundle, foreign=subject.foreign)
    hit = _would_hit(repository, subject, listed, found)
    said = replace(
        said,
        nearest=manifest.address,
        would_hit=hit,
        requirements=tuple(_needs(found, foreign=subject.foreign)),
        unknown=("requirements",) if subject.foreign else (),
        notes=(
            *said.notes,
            *(item.reason for item in found.refused),
            *elsewhere(subject, listed, manifest.address),
            *(_coverage(found) if hit else _standing_in(repository, subject, listed)),
        ),
    )
    return _compared(_Side.of(manifest, found), _this_side(subject, manifest), said)


def _whole(
    repository: Repository, bundle: Bundle, *, foreign: bool = True
) -> tuple[Holdings, Manifest]:
    """All that a bundle holds, and its newest manifest; IntegrityError if none can be read."""
    found = holdings(repository, (bundle,), foreign=foreign)
    if found.newest is None:
        reasons = "; ".join(item.reason for item in found.refused)
        raise IntegrityError(f"{bundle.address} cannot be read: {reasons or 'it is gone'}")
    return found, found.newest


def _would_hit(
    repository: Repository, subject: Subject, listed: Iterable[Bundle], nearest: Holdings
) -> bool:
    """Whether a start here finds a unit that it can use, in the nearest bundle or in another."""
    (reading,) = nearest.readings
    found = subject.found(listed)
    if any(bundle.address == reading.address for bundle in found) and nearest.units:
        return True
    others = (bundle for bundle in found if bundle.address != reading.address)
    return any(holdings(repository, (b,), foreign=subject.foreign).units for b in others)


def _standing_in(
    repository: Repository, subject: Subject, listed: Iterable[Bundle]
) -> Iterator[str]:
    """The bundle that a start takes in the place of the one that is missing."""
    if subject.name is None or subject.model is None or subject.foreign:
        return
    from cachesvc.runtime.context import read_context

    address = Address(subject.name, subject.model.digest, subject.environment.digest)
    goal = Target(address, subject.environment, subject.model)
    chosen = neighbour(repository, listed, goal, read_context())
    if chosen is not None:
        yield (
            f"a start falls back to {chosen.bundles[0].address}: the graphs that did not change"
            " come from there"
        )


def _coverage(found: Holdings) -> Iterator[str]:
    """For which calls the bundle was made: others compile, though nothing differs."""
    calls = sorted({call for segment in found.segments for call in segment.manifest.coverage})
    if calls:
        more = f" and {len(calls) - _SHOWN_CALLS} more" if len(calls) > _SHOWN_CALLS else ""
        yield f"the bundle covers the calls {'; '.join(calls[:_SHOWN_CALLS])}{more}"


def _needs(found: Holdings, *, foreign: bool) -> Iterator[Need]:
    """What units of a bundle need and this host lacks, where nothing else stands in for them."""
    units = [unit for segment in found.segments for unit in segment.units]
    host = capabilities(units, foreign=foreign)
    lacking: dict[Unmet, set[str]] = {}
    for unit in units:
        if unit.key not in found.units:
            for unmet in host.unmet(unit.requires):
                lacking.setdefault(unmet, set()).add(unit.key)
    for unmet in sorted(lacking, key=lambda unmet: unmet.requirement):
        need = unmet.requirement
        yield Need(need.kind, need.value, unmet.have, len(lacking[unmet]))


def _other_needs(old: Iterable[Unit], new: Iterable[Unit]) -> Iterator[Need]:
    """The requirements that only one of two bundles has."""
    before, after = (Counter(n for unit in units for n in unit.requires) for units in (old, new))
    for need in sorted(before.keys() ^ after.keys()):
        was, now = (need.value if need in side else None for side in (before, after))
        yield Need(need.kind, was, now, before[need] + after[need])
