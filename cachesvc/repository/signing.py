"""Signatures over manifests: Ed25519, in an object beside the manifest.

What is signed are the manifest's exact bytes. They name the pack's digest and the address, so a
signature says all about a segment; it says nothing about how old it may be. Anyone can add or
take away a signature of their own, so a missing or foreign one is never an accusation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachesvc.core.digest import DIGEST, canonical_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import Fields, Issues, load_object, shown
from cachesvc.repository.keys import SigningKey, is_signature

FORMAT = 1
MOST_SIGNATURES = 64
ALGORITHM = "ed25519"

_SIGNATURE = re.compile(r"[0-9a-f]{128}")


def sign(manifest: bytes, keys: Iterable[SigningKey]) -> bytes:
    """The signature object for a manifest's exact bytes, signed by each of the keys."""
    signatures = [
        {"algorithm": ALGORITHM, "key": key.public, "signature": key.sign(manifest).hex()}
        for key in sorted(keys, key=lambda key: key.public)
    ]
    return canonical_json({"format": FORMAT, "signatures": signatures})


def signers(manifest: bytes, signature: bytes, where: str) -> frozenset[str]:
    """The public keys, in hex, whose signatures of these bytes are right.

    Signatures that are wrong, or of an algorithm that this version does not know, count for
    nothing. Raises IntegrityError if the object is none that holds signatures.
    """
    return frozenset(
        key
        for algorithm, key, text in _read(signature, where)
        if algorithm == ALGORITHM and is_signature(key, text, manifest)
    )


def wrong_signatures(manifest: bytes, signature: bytes, where: str) -> tuple[str, ...]:
    """The public keys, in hex, by which there is a signature that is none of these bytes.

    Raises IntegrityError as `signers` does.
    """
    return tuple(
        key
        for algorithm, key, text in _read(signature, where)
        if algorithm == ALGORITHM and not is_signature(key, text, manifest)
    )


def _read(signature: bytes, where: str) -> tuple[tuple[str, str, str], ...]:
    """Algorithm, key and signature of each that the object holds."""
    raw = load_object(signature, where)
    if raw.get("format") != FORMAT:
        raise IntegrityError(
            f"{where} has format {shown(raw.get('format'))}; this version reads format {FORMAT}:"
            " update tccache"
        )
    issues = Issues()
    fields = Fields(raw, "", issues)
    fields.integer("format")
    found = fields.each("signatures", _signature)
    if len(found) > MOST_SIGNATURES:
        issues.add("signatures", f"has more than {MOST_SIGNATURES}")
    issues.raise_if_any(where)
    return found


def _signature(fields: Fields) -> tuple[str, str, str]:
    """Algorithm, key and signature; of an unknown algorithm the forms are not known either."""
    algorithm = fields.text("algorithm")
    known = algorithm == ALGORITHM
    key = fields.text("key", DIGEST if known else None)
    signature = fields.text("signature", _SIGNATURE if known else None)
    return algorithm, key, signature
