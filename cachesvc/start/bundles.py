"""Which bundles a name, a digest or a model means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from cachesvc.core.address import ANY_MODEL, check_name
from cachesvc.core.components import Components, Difference
from cachesvc.core.context import op_packages
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UsageError
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import PackMissing, Repository
from cachesvc.start.target import (
    EnvironmentLike,
    Target,
    model_address,
    own_environment,
    resolve_environment,
)

T = TypeVar("T")
_MOST_NEIGHBOURS = 8
# Of bundles, also those of which nothing is trusted.
_MOST_LOOKED_AT = 256
_DIGITS = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The bundles that are meant, as listed; `foreign` if they are another machine's.

    `differences` are those of a neighbouring model, whose bundle stands in for the one that the
    store does not have.
    """

    bundles: tuple[Bundle, ...]
    foreign: bool
    differences: tuple[Difference, ...] = ()

    @property
    def is_loose(self) -> bool:
        """Whether they are of another model, or of a name alone."""
        named_only = any(bundle.address.model == ANY_MODEL for bundle in self.bundles)
        return bool(self.differences) or named_only

    @property
    def segments(self) -> tuple[str, ...]:
        """The names of all their segments."""
        return tuple(segment.name for bundle in self.bundles for segment in bundle.segments)


def select(
    repository: Repository,
    model: Any,
    *,
    label: str | None = None,
    environment: EnvironmentLike | None = None,
    salt: str | None = None,
) -> Selection:
    """The bundles of a name, a model digest or a model, in one environment. Reads a manifest only
    where it must be known whether anything of a model's bundle is trusted.

    `environment` may also be the first digits of a digest that the store holds; bundles of
    another machine are not checked against this one.
    """
    components = None
    if isinstance(model, str):
        listed = named(repository, model if label is None else label)
    else:
        name, components = model_address(model, label, salt)
        listed = repository.bundles(name)
    digest, foreign = _environment(environment, listed)
    here = tuple(b for b in listed if b.address.environment == digest and b.segments)
    if components is not None:
        here = _first_trusted(repository, _of_model(here, components.digest))
    return Selection(here, foreign)


def of_model(listed: Iterable[Bundle], goal: Target) -> Selection:
    """The bundle of a model among those of its name, else the one of the name alone."""
    return Selection(_of_model(_here(listed, goal), goal.address.model)[:1], goal.foreign)


def neighbour(
    repository: Repository, listed: Iterable[Bundle], goal: Target, context: Components
) -> Selection | None:
    """The newest bundle of another model among those of its name, or None.

    Only with the same salt and the same packages that register operators: their code is in no key
    of the compiler. Graphs that did not change are hit, and no others.
    """
    others = sorted(_here(listed, goal), key=lambda b: b.modified, reverse=True)
    readings = ((bundle, repository.read(bundle).segments) for bundle in others[:_MOST_LOOKED_AT])
    known = ((bundle, segments) for bundle, segments in readings if segments)
    for bundle, segments in islice(known, _MOST_NEIGHBOURS):
        model = segments[-1].manifest.model
        units = (unit for segment in segments for unit in segment.units)
        contexts = dict.fromkeys(unit.origin.context for unit in units)
        same = {op_packages(item) for item in contexts} == {op_packages(context)}
        if same and model.get("salt") == goal.model.get("salt"):
            return Selection((bundle,), goal.foreign, model.diff(goal.model))
    return None


def _here(listed: Iterable[Bundle], goal: Target) -> tuple[Bundle, ...]:
    environment = goal.address.environment
    return tuple(b for b in listed if b.address.environment == environment and b.segments)


def named(repository: Repository, text: str) -> tuple[Bundle, ...]:
    """Every bundle that a name, or a model digest of 64 digits, means."""
    if DIGEST.fullmatch(text):
        return tuple(b for b in repository.bundles() if b.address.model == text)
    return repository.bundles(check_name(text))


def _of_model(bundles: Iterable[Bundle], digest: str) -> tuple[Bundle, ...]:
    """The bundle of a model, and then the directories that were pushed under the name alone."""
    by_model = {bundle.address.model: bundle for bundle in bundles}
    return tuple(by_model[model] for model in (digest, ANY_MODEL) if model in by_model)


def _first_trusted(repository: Repository, bundles: Sequence[Bundle]) -> tuple[Bundle, ...]:
    """The first of these of which anything is trusted; where nothing is, the first."""
    if repository.trust.is_everyone:
        return tuple(bundles[:1])
    trusted = (bundle for bundle in bundles if repository.read(bundle).segments)
    return tuple(islice(trusted, 1)) or tuple(bundles[:1])


def _environment(environment: EnvironmentLike | None, listed: Iterable[Bundle]) -> tuple[str, bool]:
    if isinstance(environment, str) and _DIGITS.fullmatch(environment):
        known = {bundle.address.environment for bundle in listed}
        digest = check_environment(environment, known)
        return digest, digest != own_environment()
    components, foreign = resolve_environment(environment)
    return components.digest, foreign


def matching(repository: Repository, text: str) -> tuple[Bundle, ...]:
    """The bundles that a user means by a name, a model digest, or the path of an address.

    `NAME/MODEL/ENVIRONMENT` may be cut short anywhere, in each part too, as `ls` shows it.
    """
    name, _, rest = text.partition("/")
    model, _, environment = rest.partition("/")
    return tuple(
        bundle
        for bundle in named(repository, name)
        if bundle.address.model.startswith(model)
        and bundle.address.environment.startswith(environment)
    )


def check_environment(digest: str, known: Iterable[str]) -> str:
    """The one known environment digest that starts with `digest`; UsageError otherwise."""
    if DIGEST.fullmatch(digest):
        return digest
    fitting = {item for item in known if item.startswith(digest)} if len(digest) >= 4 else set()
    if len(fitting) == 1:
        return fitting.pop()
    raise UsageError(
        f"{digest!r} is not an environment digest: give all 64 hex digits, or the first ones of an"
        " environment that `tccache ls` shows"
    )


def again_if_moved(attempt: Callable[[], T]) -> T:
    """Calls once more if a pack went away between listing and reading, as when it was merged."""
    try:
        return attempt()
    except PackMissing:
        return attempt()
