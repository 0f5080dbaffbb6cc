"""Which whole bundles a store is to be rid of."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cachesvc.core.address import Address
from cachesvc.core.errors import UsageError
from cachesvc.repository.grace import Grace
from cachesvc.repository.listing import Bundle

_PARTS = re.compile(r"[.+]")
_VERSION = re.compile(r"\s*\d")
_UNREAD = "holds nothing that is trusted here and can be read"


@dataclass(frozen=True, slots=True)
class Policy:
    """A bundle goes if any of these says so, and stays whatever they say if a tag pins it.

    A bundle of which nothing is trusted and can be read goes by `max_bytes` alone, and first: which
    tags it has is not known.

    keep_last: of each name and environment only so many models stay, those last written to.
    older_than_s: bundles go to which nothing was written for so many seconds.
    torch: bundles of other versions of torch go; 2.9 stands for 2.9.1 too, and not for 2.90.
    max_bytes: the bundles that were written to longest ago go, until no more bytes are left. What
        is not trusted beside what is does not count.
    keep_tags: bundles that have one of these tags stay.
    untrusted: segments go that nobody who is trusted has signed: rubbish, and what others have
        pushed for those who trust them.
    Raises UsageError for what cannot be meant.
    """

    keep_last: int | None = None
    older_than_s: float | None = None
    torch: tuple[str, ...] = ()
    max_bytes: int | None = None
    keep_tags: frozenset[str] = frozenset()
    untrusted: bool = False

    def __post_init__(self) -> None:
        least = {"keep_last": 1, "older_than_s": 0, "max_bytes": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not value >= bound:
                raise UsageError(f"{name} is {value}: give {bound} or more")
        for version in self.torch:
            if not _VERSION.match(version):
                raise UsageError(f"{version!r:.80} is no version of torch: give 2.9, or 2.9.1")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bundle as policy sees it: what is left of it otherwise, in bytes, and what it says.

    What is not `trusted` says nothing, also of what pins it. It pushes nothing else out, and makes
    room first: whoever can write to a store must not be able to choose what its janitor deletes.
    `counted` is the part of the bundle that counts, where that is not all of it.
    """

    bundle: Bundle
    bytes: int
    trusted: bool = True
    counted: Bundle | None = None
    torch: str | None = None
    tags: frozenset[str] = frozenset()

    @property
    def modified(self) -> datetime:
        """When the newest object that counts was written."""
        return (self.counted or self.bundle).modified


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which bundles go and why, and which ones stay though a rule was against them."""

    gone: Mapping[Address, str] = field(default_factory=dict)
    kept: Mapping[Address, str] = field(default_factory=dict)


def apply(policy: Policy, candidates: Sequence[Candidate], grace: Grace) -> Verdicts:
    """What the policy says of these bundles, which are all that the store has."""
    ruled = _ruled(policy, candidates, grace)
    spared = {c.bundle.address: why for c in candidates if (why := _spared(policy, c, grace))}
    unread = {c.bundle.address: _UNREAD for c in candidates if c.bundle.segments and not c.trusted}
    safe = unread | spared
    gone = {address: why for address, why in ruled.items() if address not in safe}
    gone |= _over_budget(policy, [c for c in candidates if c.bundle.address not in gone], spared)
    left = [c for c in candidates if c.bundle.address not in gone]
    against = _too_much(policy, left) | ruled
    kept = {
        c.bundle.address: f"{safe[c.bundle.address]}, though it {against[c.bundle.address]}"
        for c in left
        if c.bundle.address in safe and c.bundle.address in against
    }
    return Verdicts(gone, kept)


def _ruled(policy: Policy, candidates: Sequence[Candidate], grace: Grace) -> dict[Address, str]:
    """The bundles that a rule other than the budget is against, with its reason."""
    reasons: dict[Address, list[str]] = {}
    surplus = set(_surplus(policy, candidates))
    for candidate in candidates:
        address = candidate.bundle.address
        said = [*_old(policy, candidate, grace), *_other_torch(policy, candidate)]
        if address in surplus:
            said.append(f"is not among the last {policy.keep_last} of its name and environment")
        if said:
            reasons[address] = said
    return {address: " and ".join(said) for address, said in reasons.items()}


def _old(policy: Policy, candidate: Candidate, grace: Grace) -> Iterator[str]:
    age = grace.age_s(candidate.modified)
    if policy.older_than_s is not None and age > policy.older_than_s:
        yield f"was last written to {age / 86_400:.1f} days ago"


def _other_torch(policy: Policy, candidate: Candidate) -> Iterator[str]:
    version = candidate.torch
    if policy.torch and version is not None:
        parts = _parts(version)
        if not any(parts[: len(_parts(spec))] == _parts(spec) for spec in policy.torch):
            yield f"is of torch {version}"


def _parts(version: str) -> list[str]:
    return [part for part in _PARTS.split(version.strip()) if part]


def _surplus(policy: Policy, candidates: Iterable[Candidate]) -> Iterator[Address]:
    if policy.keep_last is None:
        return
    models: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        address = candidate.bundle.address
        if candidate.trusted:
            models.setdefault((address.name, address.environment), []).append(candidate)
    for found in models.values():
        newest = sorted(found, key=lambda candidate: candidate.modified, reverse=True)
        yield from (candidate.bundle.address for candidate in newest[policy.keep_last :])


def _spared(policy: Policy, candidate: Candidate, grace: Grace) -> str | None:
    """Why a bundle stays, whatever the rules say."""
    if pins := sorted(policy.keep_tags & candidate.tags):
        return f"has the tag {pins[0]}"
    if not grace.is_over(candidate.bundle.modified):
        return "was written to within the grace time"
    return None


def _over_budget(
    policy: Policy, left: Sequence[Candidate], spared: Container[Address]
) -> dict[Address, str]:
    """Of the bundles that are left, those that make room: the ones last written to longest ago."""
    if policy.max_bytes is None:
        return {}
    surplus = sum(candidate.bytes for candidate in left) - policy.max_bytes
    gone: dict[Address, str] = {}
    for candidate in sorted(left, key=lambda item: (item.trusted, item.modified)):
        if surplus > 0 and candidate.bytes and candidate.bundle.address not in spared:
            surplus -= candidate.bytes
            gone[candidate.bundle.address] = "makes room: the store holds more than it may"
    return gone


def _too_much(policy: Policy, left: Sequence[Candidate]) -> dict[Address, str]:
    """What would have to go to keep the budget, were nothing spared."""
    if policy.max_bytes is None or sum(c.bytes for c in left) <= policy.max_bytes:
        return {}
    return {c.bundle.address: "takes room of which there is too little" for c in left if c.bytes}
