"""Whom a caller trusts, and with which keys publications are signed: from arguments and
TCCACHE_TRUST, TCCACHE_SIGN_WITH, TCCACHE_MAX_AGE, TCCACHE_REVOKED.

What is said by an argument counts alone; the variables say what the arguments leave out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cachesvc.core.digest import DIGEST
from cachesvc.core.duration import read_duration
from cachesvc.core.errors import UsageError
from cachesvc.core.trust import Trust

if TYPE_CHECKING:
    from cachesvc.repository.keys import SigningKey

WORD = "store"
"""Trusts whoever can write to a store."""

_MAX_LIST_BYTES = 16 << 20
_COMMENT = re.compile(r"\s*(#.*)?")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Access:
    """How a store is used; where one is given, no environment variable is asked.

    trust: the word `store`, or files of public keys, one of which must have signed what is used;
        empty where nobody said anything.
    sign_with: files of private keys; each signs what is published. Without `trust` these keys
        themselves are trusted.
    max_age_s: how many seconds ago what is used may have been published.
    revoked: files that list what is not used any more: names of segments, and public keys.
    """

    trust: tuple[str, ...] = ()
    sign_with: tuple[str, ...] = ()
    max_age_s: float | None = None
    revoked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if WORD in self.trust and len(self.trust) > 1:
            raise UsageError(
                f"trust is the word `{WORD}`, which trusts everyone who can write to the store, or"
                " files of public keys; not both"
            )
        if self.max_age_s is not None and not self.max_age_s > 0:
            raise UsageError(f"an age of {self.max_age_s} s is none")

    @property
    def is_said(self) -> bool:
        """Whether somebody vouches for what lies in a store that others can write to."""
        return bool(self.trust or self.sign_with)

    def signing_keys(self) -> tuple[SigningKey, ...]:
        """The private keys. Raises what `read_signing_key` raises."""
        if not self.sign_with:
            return ()
        from cachesvc.repository.keys import read_signing_key

        keys = {key.public: key for key in map(read_signing_key, map(Path, self.sign_with))}
        return tuple(keys.values())

    def trusted(self, signing: Iterable[SigningKey]) -> Trust:
        """What is asked of segments, given the keys that sign here: who signs trusts its own.

        Raises what `read_public_keys` raises, and UsageError for a list that is none.
        """
        revoked = frozenset(line for file in self.revoked for line in _revoked(Path(file)))
        if self.trust == (WORD,) or not self.is_said:
            return Trust(None, self.max_age_s, revoked)
        keys = {key.public for key in signing}
        if self.trust:
            from cachesvc.repository.keys import read_public_keys

            keys |= {key for file in self.trust for key in read_public_keys(Path(file))}
        return Trust(frozenset(keys), self.max_age_s, revoked)


PRIVATE = Access(trust=(WORD,))
"""For a store of this process's own, whatever the environment says of others."""

TrustLike = Paths | Access


def access(
    trust: TrustLike | None = None,
    sign_with: Paths | None = None,
    *,
    max_age_s: float | None = None,
    revoked: Paths | None = None,
) -> Access:
    """How a store is used: what is said here, and what the environment says of the rest.

    An Access stays as it is but for the keys that sign. Raises UsageError for what is empty or
    contradicts itself.
    """
    if isinstance(trust, Access):
        return trust if sign_with is None else replace(trust, sign_with=_files(sign_with))
    age = os.environ.get("TCCACHE_MAX_AGE")
    return Access(
        trust=_said(trust, "TCCACHE_TRUST"),
        sign_with=_said(sign_with, "TCCACHE_SIGN_WITH"),
        max_age_s=read_duration(age) if age and max_age_s is None else max_age_s,
        revoked=_said(revoked, "TCCACHE_REVOKED"),
    )


def _said(given: Paths | None, variable: str) -> tuple[str, ...]:
    """What an argument says, or else an environment variable, in which colons part several."""
    if given is not None:
        return _files(given)
    return _files([part for part in os.environ.get(variable, "").split(os.pathsep) if part])


def _files(given: Paths) -> tuple[str, ...]:
    """The word as it is, files by absolute paths: other processes are told the same."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    texts = [os.fspath(item) for item in several]
    if not all(texts):
        raise UsageError("an empty text names neither a key nor whom to trust")
    return tuple(t if t == WORD else str(Path(t).expanduser().absolute()) for t in texts)


def _revoked(file: Path) -> Iterator[str]:
    """The digests that a list names, each in a line, with a comment behind it or not."""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(_MAX_LIST_BYTES)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the list of what is revoked, {file}: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        digest, rest = line[:64], line[64:]
        if DIGEST.fullmatch(digest) and _COMMENT.fullmatch(rest):
            yield digest
        elif not _COMMENT.fullmatch(line):
            raise UsageError(
                f"{file}, line {number}: {line!r:.80} is neither the name of a segment nor a public"
                " key, of 64 hex digits"
            )
