"""Signatures over manifests: Ed25519, in an object beside the manifest.

What is signed are the manifest's exact bytes. They name the pack's digest and the address, so a
signature says all about a segment; it says nothing about how old it may be. Anyone can add or
take away a signature of their own, so a missing or foreign one is never an accusation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cachesvc.core.digest import DIGEST, canonical_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import Fields, Issues, load_object, shown
from cachesvc.repository.keys import SigningKey, is_signature

FORMAT = 1
MOST_SIGNATURES = 16
ALGORITHM = "ed25519"

_SIGNATURE = re.compile(r"[0-9a-f]{128}")


def sign(manifest: bytes, keys: Iterable[SigningKey]) -> bytes:
    """The signature object for a manifest's exact bytes, signed by each of the keys."""
    signatures = [
        {"algorithm": ALGORITHM, "key": key.public, "signature": key.sign(manifest).hex()}
        for key in sorted(keys, key=lambda key: key.public)
    ]
    return canonical_json({"format": FORMAT, "signatures": signatures})


@dataclass(frozen=True, slots=True)
class Signature:
    """What a signature object says: public keys and their signatures, both in hex."""

    entries: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, data: bytes, where: str) -> Signature:
        """The object in `data`; raises IntegrityError if it is none that holds signatures.

        Signatures of algorithms that this version does not know count for nothing.
        """
        raw = load_object(data, where)
        if raw.get("format") != FORMAT:
            raise IntegrityError(
                f"{where} has format {shown(raw.get('format'))}; this version reads format"
                f" {FORMAT}: update tccache"
            )
        issues = Issues()
        fields = Fields(raw, "", issues)
        fields.integer("format")
        found = fields.each("signatures", _signature)
        if len(found) > MOST_SIGNATURES:
            issues.add("signatures", f"has more than {MOST_SIGNATURES}")
        issues.raise_if_any(where)
        return cls(tuple((key, text) for algorithm, key, text in found if algorithm == ALGORITHM))

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are said to have signed."""
        return frozenset(key for key, _ in self.entries)

    def signers(self, manifest: bytes, asked: Collection[str] | None = None) -> frozenset[str]:
        """The keys, of those asked about or of all, whose signatures of these bytes are right."""
        return frozenset(
            key
            for key, text in dict.fromkeys(self.entries)
            if (asked is None or key in asked) and is_signature(key, text, manifest)
        )

    def wrong(self, manifest: bytes) -> tuple[str, ...]:
        """The keys by which there is a signature that is none of these bytes."""
        return tuple(key for key, text in self.entries if not is_signature(key, text, manifest))


def _signature(fields: Fields) -> tuple[str, str, str]:
    """Algorithm, key and signature; of an unknown algorithm the forms are not known either."""
    algorithm = fields.text("algorithm")
    known = algorithm == ALGORITHM
    key = fields.text("key", DIGEST if known else None)
    signature = fields.text("signature", _SIGNATURE if known else None)
    return algorithm, key, signature
