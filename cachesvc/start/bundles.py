"""Which bundles a name, a digest or a model means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cachesvc.core.address import ANY_MODEL, Address, check_name
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import UsageError
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import PackMissing, Repository

T = TypeVar("T")


def for_model(repository: Repository, name: str, model: str, environment: str) -> tuple[Bundle, ...]:
    """The bundle of a model, else the directories that were pushed under the name alone."""
    exact = _at(repository, Address(name, model, environment))
    return exact or _at(repository, Address(name, ANY_MODEL, environment))


def for_name(repository: Repository, name: str, environment: str) -> tuple[Bundle, ...]:
    """Every model's bundle under a name for one environment: an init container has no model."""
    return tuple(
        bundle
        for bundle in repository.bundles(check_name(name))
        if bundle.address.environment == environment and bundle.segments
    )


def matching(repository: Repository, text: str) -> tuple[Bundle, ...]:
    """The bundles that a user means by a name, a model digest, or the path of an address.

    `NAME/MODEL/ENVIRONMENT` may be cut short anywhere, in each part too, as `ls` shows it.
    """
    if DIGEST.fullmatch(text):
        return tuple(b for b in repository.bundles() if b.address.model == text)
    name, _, rest = text.partition("/")
    model, _, environment = rest.partition("/")
    found = repository.bundles(check_name(name))
    return tuple(
        bundle
        for bundle in found
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


def _at(repository: Repository, address: Address) -> tuple[Bundle, ...]:
    bundle = repository.bundle(address)
    return () if bundle is None or not bundle.segments else (bundle,)


def again_if_moved(attempt: Callable[[], T]) -> T:
    """Calls once more if a pack went away between listing and reading, as when it was merged."""
    try:
        return attempt()
    except PackMissing:
        return attempt()
