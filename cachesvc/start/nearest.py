"""Which bundle is the nearest to what is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from cachesvc.core.address import ANY_MODEL, Address, check_name
from cachesvc.core.components import Components
from cachesvc.core.daemon_pool import DaemonPool
from cachesvc.core.digest import DIGEST
from cachesvc.core.errors import BundleNotFound, UsageError
from cachesvc.core.explanation import Asked
from cachesvc.core.manifest import Manifest
from cachesvc.repository.listing import Bundle
from cachesvc.repository.repository import Refused, Repository
from cachesvc.start.bundles import matching
from cachesvc.start.target import model_address

_MOST = 32
_SHOWN_NAMES = 10
_READERS = 8

_SALT = "a salt is part of a model's digest: without a model it says nothing"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: its digests with the components that are known."""

    name: str | None
    digest: str | None
    model: Components | None
    environment: Components
    foreign: bool
    notes: tuple[str, ...] = ()

    @property
    def asked(self) -> Asked:
        return Asked(self.name, self.digest, self.environment.digest)

    def found(self, listed: Iterable[Bundle]) -> tuple[Bundle, ...]:
        """The bundles that a start here looks into: its model's, else those of the name alone.

        With a name and no model, all of this environment, as for a pull.
        """
        here = [b for b in listed if b.address.environment == self.environment.digest]
        if self.digest is None:
            return tuple(here)
        own = [bundle for bundle in here if bundle.address.model == self.digest]
        return tuple(own or [bundle for bundle in here if bundle.address.model == ANY_MODEL])


def subject_of(
    model: Any, label: str | None, salt: str | None, environment: Components, foreign: bool
) -> Subject:
    """What a caller means by a model, a target, a name or a digest; a target is loaded."""
    if isinstance(model, str) and ":" in model:
        from cachesvc.runtime.workloads import load_workload

        workload = load_workload(model)
        model, label = workload.model, label or workload.name
    if isinstance(model, str):
        text = model if label is None else label
        digest = text if DIGEST.fullmatch(text) else None
        name = None if digest else check_name(text)
        return Subject(name, digest, None, environment, foreign, (_SALT,) if salt else ())
    name, components = model_address(model, label, salt)
    return Subject(name, components.digest, components, environment, foreign)


def nearby(repository: Repository, subject: Subject) -> tuple[Bundle, ...]:
    """The bundles that could be near. Raises BundleNotFound if there are none."""
    bundles = tuple(b for b in repository.bundles(subject.name) if b.segments)
    if subject.name is None:
        bundles = tuple(b for b in bundles if b.address.model == subject.digest)
    if not bundles:
        raise BundleNotFound(_nothing(repository, subject))
    return bundles


def _nothing(repository: Repository, subject: Subject) -> str:
    """What is in the store instead of what was asked for."""
    known = [bundle.address for bundle in repository.bundles() if bundle.segments]
    names = sorted({address.name for address in known})
    same = sorted({address.name for address in known if address.model == subject.digest})
    close = get_close_matches(subject.name or "", names, n=3)
    if not names:
        there = "the store holds no bundle at all: push one"
    elif same:
        there = f"this very model lies there under {_some(same)}: give that name with --label"
    elif close:
        there = f"did you mean {' or '.join(close)}?"
    else:
        there = f"it holds {_some(names)}: see `tccache ls`"
    return f"no bundle of {subject.asked} in {repository.store.url}; {there}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def nearest(
    repository: Repository, subject: Subject, listed: Sequence[Bundle]
) -> tuple[Bundle | None, list[str]]:
    """The bundle that a start here finds, else the one with the fewest differences.

    Also what was refused meanwhile, and whether some bundles were not looked at.
    """
    notes: list[str] = []
    ordered = sorted(listed, key=lambda bundle: _distance(subject, bundle))
    found = subject.found(ordered)
    for bundle in found:
        manifest, refused = _glance(repository, bundle)
        if manifest is not None:
            return bundle, notes
        notes.extend(item.reason for item in refused)
    others = [bundle for bundle in ordered if bundle not in found]
    if len(others) > _MOST:
        notes.append(f"only the newest {_MOST} of {len(others)} bundles were compared")
    with DaemonPool(_READERS, "tccache-read") as pool:
        glances = list(pool.map(lambda bundle: _glance(repository, bundle), others[:_MOST]))
    seen = [(b, manifest) for b, (manifest, _) in zip(others, glances, strict=False) if manifest]
    notes.extend(item.reason for _, refused in glances for item in refused)
    best = min(seen, key=lambda item: _rank(subject, *item), default=None)
    return (best[0] if best else None), notes


def _distance(subject: Subject, bundle: Bundle) -> tuple[bool, bool, float]:
    """In which order to look, before anything is read."""
    address = bundle.address
    other_environment = address.environment != subject.environment.digest
    return other_environment, address.model != subject.digest, -bundle.modified.timestamp()


def _rank(subject: Subject, bundle: Bundle, manifest: Manifest) -> tuple[int, int, float]:
    """Fewest differences of the environment, then of the model, then the newest."""
    environment = manifest.environment.diff(subject.environment)
    model = manifest.model.diff(subject.model) if manifest.model and subject.model else ()
    return len(environment), len(model), -bundle.modified.timestamp()


def _glance(repository: Repository, bundle: Bundle) -> tuple[Manifest | None, list[Refused]]:
    """The newest manifest that can be read: any one tells what the address is made of."""
    refused: list[Refused] = []
    for listed in sorted(bundle.segments, key=lambda item: item.manifest.modified, reverse=True):
        reading = repository.read(replace(bundle, segments=(listed,)))
        if reading.segments:
            return reading.segments[0].manifest, refused
        refused.extend(reading.refused)
    return None, refused


def elsewhere(subject: Subject, listed: Iterable[Bundle], nearest: Address) -> Iterator[str]:
    """Says of a model that is not found here that it lies there for other environments."""
    others = {b.address.environment[:12] for b in listed if b.address.model == subject.digest}
    if others and nearest.model != subject.digest:
        yield f"this very model lies there for another environment: {_some(sorted(others))}"


def the_one(repository: Repository, text: str) -> Bundle:
    """The one bundle that a text means."""
    found = [bundle for bundle in matching(repository, text) if bundle.segments]
    if not found:
        raise BundleNotFound(
            f"no bundle {text} in {repository.store.url}: `tccache ls` shows what is there"
        )
    if len(found) > 1:
        raise UsageError(
            f"{text} means {len(found)} bundles: {_some([str(b.address) for b in found])}; name one"
            " as NAME/MODEL/ENVIRONMENT, each part cut short anywhere"
        )
    return found[0]
