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
from typing import TYPE_CHECKING, Any

from cachesvc.core.digest import DIGEST
from cachesvc.core.duration import read_duration
from cachesvc.core.errors import UsageError
from cachesvc.core.guarded import read_guarded
from cachesvc.core.trust import Trust
from cachesvc.start.given_path import directory

if TYPE_CHECKING:
    from cachesvc.repository.keys import SigningKey

WORD = "store"
"""Trusts whoever can write to a store."""

_MAX_LIST_BYTES = 16 << 20
_COMMENT = re.compile(r"\s*(#.*)?")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _files(given: Paths, *, word: bool = False) -> tuple[str, ...]:
    """Files by absolute paths, as other processes are told the same; the word, if it may be one."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(several, Sequence) or not all(
        isinstance(i, str | os.PathLike) for i in several
    ):
        raise UsageError(f"{given!r:.80} names no file: give a path, or several in a list")
    if not several or not all(map(os.fspath, several)):
        raise UsageError(
            "an empty text, or a list of nothing, names no file and nobody to trust: drop it, or"
            " say whom or what"
        )
    return tuple(WORD if word and item == WORD else str(directory(item)) for item in several)


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
        for name in ("trust", "sign_with", "revoked"):  # one may be given as it is
            if given := getattr(self, name):
                object.__setattr__(self, name, _files(given, word=name == "trust"))
        if WORD in self.trust and len(self.trust) > 1:
            raise UsageError(
                f"trust is the word `{WORD}`, which trusts everyone who can write to the store, or"
                " files of public keys; not both"
            )
        if self.max_age_s is not None and not self.max_age_s > 0:
            raise UsageError(f"an age of {self.max_age_s} s is none: give more than 0")

    @property
    def is_said(self) -> bool:
        """Whether somebody vouches for what lies in a store that others can write to."""
        return bool(self.trust or self.sign_with)

    def signing_keys(self) -> tuple[SigningKey, ...]:
        """The private keys. Raises what `read_signing_key` raises, UsageError for too many."""
        if not self.sign_with:
            return ()
        from cachesvc.repository.keys import read_signing_key
        from cachesvc.repository.signing import MOST_SIGNATURES

        keys = {key.public: key for key in map(read_signing_key, map(Path, self.sign_with))}
        if len(keys) > MOST_SIGNATURES:
            raise UsageError(f"{len(keys)} keys sign; readers take {MOST_SIGNATURES} at most")
        return tuple(keys.values())

    @property
    def reading(self) -> Access:
        """What it says to who only reads: keys that sign matter where they are all it says."""
        return replace(self, sign_with=()) if self.trust else self

    @property
    def reads_files(self) -> bool:
        """Whether anything that is said lies in files."""
        return bool(self.sign_with or self.revoked or set(self.trust) - {WORD})

    def trusted(self, signing: Iterable[SigningKey]) -> Trust:
        """What is asked of segments, given the keys that sign here: without `trust`, that they have
        signed it.

        Raises what `read_public_keys` raises, and UsageError for a list that is none.
        """
        revoked = frozenset(line for file in self.revoked for line in _revoked(Path(file)))
        if self.trust == (WORD,) or not self.is_said:
            return Trust(None, self.max_age_s, revoked)
        if not self.trust:
            return Trust(frozenset(key.public for key in signing), self.max_age_s, revoked)
        from cachesvc.repository.keys import read_public_keys

        try:
            keys = frozenset(key for file in self.trust for key in read_public_keys(Path(file)))
        except UsageError as error:
            raise UsageError(
                f"{error}; whom to trust is said by files of public keys, or the word `{WORD}`"
            ) from None
        return Trust(keys, self.max_age_s, revoked)


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

    An Access says all of it, and only what is given beside it is changed. Raises UsageError for
    what is empty or contradicts itself.
    """
    if isinstance(trust, Access):
        changes: dict[str, Any] = {}
        if sign_with is not None:
            changes["sign_with"] = _files(sign_with)
        if max_age_s is not None:
            changes["max_age_s"] = max_age_s
        if revoked is not None:
            changes["revoked"] = _files(revoked)
        return replace(trust, **changes)
    age = os.environ.get("TCCACHE_MAX_AGE")
    return Access(
        trust=_said(trust, "TCCACHE_TRUST", word=True),
        sign_with=_said(sign_with, "TCCACHE_SIGN_WITH"),
        max_age_s=read_duration(age) if age and max_age_s is None else max_age_s,
        revoked=_said(revoked, "TCCACHE_REVOKED"),
    )


def _said(given: Paths | None, variable: str, *, word: bool = False) -> tuple[str, ...]:
    """What an argument says, or else an environment variable, in which colons part several."""
    if given is not None:
        return _files(given, word=word)
    parts = [part for part in os.environ.get(variable, "").split(os.pathsep) if part]
    return _files(parts, word=word) if parts else ()


def _revoked(file: Path) -> Iterator[str]:
    """The digests that a list names, each in a line, with a comment behind it or not."""
    text = read_guarded(file, "the list of what is revoked", _MAX_LIST_BYTES).decode(
        errors="replace"
    )
    for number, line in enumerate(text.splitlines(), 1):
        digest, rest = line[:64], line[64:]
        if DIGEST.fullmatch(digest) and _COMMENT.fullmatch(rest):
            yield digest
        elif not _COMMENT.fullmatch(line):
            raise UsageError(
                f"{file}, line {number}: {line!r:.80} is neither the name of a segment nor a public"
                " key, of 64 hex digits; `tccache show --json` and `tccache key show` tell them"
            )
