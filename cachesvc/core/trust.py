"""Whose segments are used, and for how long."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from cachesvc.core.digest import digest_json

KEY_DIGITS = 16
"""How many digits of a public key are shown to people."""

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class Trust:
    """What is asked of a segment before anything of it is used.

    keys: the public keys, 64 hex digits each, one of which must have signed it; None where whoever
        can write to the store is trusted.
    max_age_s: how many seconds ago it may have been made, by what its manifest says.
    revoked: names of segments that are not used any more, and public keys whose signatures count
        for nothing.
    """

    keys: frozenset[str] | None = None
    max_age_s: float | None = None
    revoked: frozenset[str] = frozenset()

    @property
    def accepted(self) -> frozenset[str]:
        """The keys whose signatures count."""
        return (self.keys or frozenset()) - self.revoked

    @property
    def is_everyone(self) -> bool:
        """Whether no signature is asked for."""
        return self.keys is None

    @property
    def digest(self) -> str | None:
        """Stands for what is asked of every segment; None where that is nothing.

        A record of what was verified holds under the same digest only. An age is not in it.
        """
        if self.keys is None and not self.revoked:
            return None
        keys = None if self.keys is None else sorted(self.keys)
        return digest_json([keys, sorted(self.revoked)])

    @property
    def weighs_signers(self) -> bool:
        """Whether it matters who has signed."""
        return self.keys is not None or bool(self.revoked)

    def signature_issue(self, signers: Collection[str]) -> str | None:
        """Why a manifest that these keys have signed is not used, and what to do; or None."""
        found = frozenset(signers)
        if found and found <= self.revoked:
            return f"is signed by {shown_keys(found)}, which is revoked: sign with another key"
        if self.keys is None or self.accepted & found:
            return None
        if not found:
            return "is not signed: have it signed with a key that is trusted here"
        return (
            f"is signed by {shown_keys(found)}, which is not trusted here: sign with a key that is,"
            " or trust this one too"
        )

    def since(self, now: datetime) -> str:
        """The time, as manifests write it, before which nothing may have been published."""
        if self.max_age_s is None:
            return ""
        try:
            return (now - timedelta(seconds=self.max_age_s)).strftime(_TIME)
        except OverflowError:  # longer ago than there are dates
            return ""

    def segment_issue(self, name: str, created: str, since: str) -> str | None:
        """Why a segment of this name, made at this time, is not used any more, or None."""
        if name in self.revoked:
            return "is revoked: publish another one"
        if created >= since:
            return None
        return (
            f"was made at {created}, longer ago than the {self.max_age_s:g} s that are allowed:"
            " publish it anew, or allow more"
        )


EVERYONE = Trust()
"""Asks for nothing: the store itself is trusted."""


def shown_keys(keys: Collection[str]) -> str:
    """Public keys for people: the first digits of each."""
    return ", ".join(key[:KEY_DIGITS] for key in sorted(keys))
