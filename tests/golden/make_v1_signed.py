"""Writes the signatures of the golden store: `python tests/golden/make_v1_signed.py tests/golden`.

`v1-signed/` was written once and is never written again, as `v1/`, whose manifests it signs with
keys that everybody knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cachesvc.repository.keys import SigningKey
from cachesvc.repository.signing import sign

KEYS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))


def write(golden: Path) -> None:
    """One signature object for each manifest, and both public keys in one file."""
    folder = golden / "v1-signed"
    folder.mkdir()
    signing = [SigningKey(key.public_key().public_bytes_raw().hex(), key) for key in KEYS]
    for manifest in (golden / "v1").rglob("*.json"):
        if manifest.name != "tccache.json":
            data = sign(manifest.read_bytes(), signing)
            (folder / f"{manifest.stem}.sig").write_bytes(data)
    blocks = (
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for key in KEYS
    )
    (folder / "keys.pub").write_bytes(b"# The keys of everybody\n" + b"".join(blocks))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
