"""Ed25519 keys and the files they lie in: PEM, as every tool reads it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cachesvc.core.errors import UntrustedError, UsageError
from cachesvc.core.guarded import read_bounded, read_guarded
from cachesvc.core.temporary import new_file, remove_left

_PUBLIC_BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]{1,40})-----")
_MAX_FILE_BYTES = 1 << 20
_SIGN_BIT = 0x80
# Points of small order, without the bit of their sign: anybody can sign anything for such a key.
# As in libsodium's ge25519_has_small_order, forms that are not reduced among them.
_WEAK = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
_PRIVATE_MODE, _PUBLIC_MODE = 0o600, 0o644


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key: its public half in hex, and how to sign. It is never shown."""

    public: str
    _key: Any = field(repr=False, compare=False)

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`, 64 bytes."""
        signature: bytes = self._key.sign(data)
        return signature


def is_signature(public: str, signature: str, data: bytes) -> bool:
    """Whether `signature` (hex) is that of `data` by the public key `public` (hex).

    By a key that anybody can sign for, nothing is.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = bytes.fromhex(public)
        if _is_weak(raw):
            return False
        key = Ed25519PublicKey.from_public_bytes(raw)
        key.verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):  # ValueError: not a point of the curve
        return False
    return True


def _is_weak(raw: bytes) -> bool:
    return raw[:-1] + bytes(byte & ~_SIGN_BIT for byte in raw[-1:]) in _WEAK


def make_key(file: Path) -> SigningKey:
    """Writes a new private key to `file`, for its owner only, and its public half to `file`.pub.

    Raises UsageError if either is there already: a key that is overwritten is gone.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public_file = public_path(file)
    remove_left(file.parent)
    for path in (file, public_file):
        if os.path.lexists(path):
            raise UsageError(f"{path} exists, and keys are never overwritten: name another file")
    _write_new(file, private, _PRIVATE_MODE)
    try:
        _write_new(public_file, _public_pem(key.public_key()), _PUBLIC_MODE)
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise
    return _signing_key(key)


def public_path(file: Path) -> Path:
    """Where the public half of a private key lies."""
    return file.with_name(f"{file.name}.pub")


def read_signing_key(file: Path) -> SigningKey:
    """The private key in a file. Raises what `read_guarded` raises for a secret, and UsageError if
    it holds none. Its group may read it, as it does where secrets are mounted."""
    try:
        data = read_guarded(file, "the file of a private key", _MAX_FILE_BYTES, secret=True)
    except UntrustedError:
        if holds_private_key(file):
            raise
        data = b""  # whoever can read it
    if b"PRIVATE KEY" not in data:
        raise UsageError(f"{file} holds no private key in PEM, which it takes to sign: {_MAKE}")
    return _signing_key(_private_key(data, file))


def holds_private_key(file: Path) -> bool:
    """Whether a file holds a private key, of whatever kind, and whoever could write it.

    Raises UsageError if it cannot be read.
    """
    return b"PRIVATE KEY" in read_bounded(file, "a file of keys", _MAX_FILE_BYTES)[0]


def read_public_keys(file: Path) -> frozenset[str]:
    """The public keys in a file, in hex; several blocks, one after the other, are several keys.

    Raises what `read_guarded` raises, and UsageError if it holds none.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = read_guarded(file, "the file of a public key", _MAX_FILE_BYTES)
    if b"PRIVATE KEY" in data:
        raise UsageError(
            f"{file} holds a private key; to trust it takes the public one, {public_path(file)}"
        )
    found: set[str] = set()
    for block in _PUBLIC_BLOCK.findall(data):
        try:
            key = load_pem_public_key(block)
        except Exception as error:  # the library tells damage by several kinds of error
            raise UsageError(f"{file} holds a block that is no public key: {error}") from None
        if not isinstance(key, Ed25519PublicKey):
            raise UsageError(f"{file} holds a public key that is not Ed25519: {_MAKE}")
        if _is_weak(key.public_bytes_raw()):
            raise UsageError(f"{file} holds a public key that anybody can sign for: {_MAKE}")
        found.add(_hex(key))
    if not found:
        raise UsageError(f"{file} holds no public key: {_MAKE}")
    return frozenset(found)


_MAKE = "make one with `tccache key new --out FILE`"


def _private_key(data: bytes, file: Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    kinds = {match.decode() for match in _BLOCK.findall(data)}
    if "ENCRYPTED PRIVATE KEY" in kinds:
        raise UsageError(
            f"{file} is encrypted with a passphrase, which nobody types in a pipeline: decrypt it"
            " with `openssl pkey` into a file that only its owner can read"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except Exception as error:  # as above
        text = "" if not kinds else f": {error}"
        raise UsageError(f"{file} holds no private key in PEM{text}: {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{file} holds a private key that is not Ed25519: {_MAKE}")
    return key


def _signing_key(key: Any) -> SigningKey:
    return SigningKey(_hex(key.public_key()), key)


def _hex(key: Any) -> str:
    raw: bytes = key.public_bytes_raw()
    return raw.hex()


def _public_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _write_new(file: Path, data: bytes, mode: int) -> None:
    """Writes a file that must not be there yet, whole or not at all.

    By a link, which overwrites nothing; where a file system has none, by a rename after a look.
    """
    try:
        opener = partial(os.open, mode=mode)
        with new_file(file.parent, opener) as (path, opened):
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
            try:
                os.link(path, file)
            except OSError:
                if os.path.lexists(file):
                    raise
                os.rename(path, file)
    except OSError as error:
        raise UsageError(f"cannot write the key file {file}: {error.strerror or error}") from None
