"""Keys in files: made for their owner only, never overwritten, and read with care."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cachesvc.core.errors import UntrustedError, UsageError
from cachesvc.repository.keys import (
    is_signature,
    make_key,
    public_path,
    read_public_keys,
    read_signing_key,
)


def test_a_key_is_read_as_it_was_made(tmp_path: Path) -> None:
    """Both halves name the same key, and what one signs the other knows."""
    file = tmp_path / "a.key"
    made = make_key(file)
    again = read_signing_key(file)
    assert made.public == again.public
    assert read_public_keys(public_path(file)) == {made.public}
    assert again.sign(b"text") == made.sign(b"text")
    assert is_signature(made.public, made.sign(b"text").hex(), b"text")
    assert not is_signature(made.public, made.sign(b"text").hex(), b"texts")
    assert made != make_key(tmp_path / "b.key")


def test_other_tools_read_it(tmp_path: Path) -> None:
    """openssl finds the same key in both files, and takes a signature for right."""
    file = tmp_path / "a.key"
    made = make_key(file)
    (tmp_path / "text").write_bytes(b"text")
    (tmp_path / "signature").write_bytes(made.sign(b"text"))
    shown = subprocess.run(
        ["openssl", "pkey", "-in", file, "-pubout"], capture_output=True, check=True
    )
    assert shown.stdout == public_path(file).read_bytes()
    line = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public_path(file), "-rawin"]
    files = ["-in", tmp_path / "text", "-sigfile", tmp_path / "signature"]
    subprocess.run([*line, *files], capture_output=True, check=True)


def test_the_private_half_is_never_shown(tmp_path: Path) -> None:
    """Not by its repr, which ends up in logs."""
    file = tmp_path / "a.key"
    made = make_key(file)
    body = file.read_text().split("\n")[1]
    assert made.public in repr(made)
    assert "_key" not in repr(made)
    assert body not in repr(made)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_it(tmp_path: Path, umask: int) -> None:
    """Whatever the umask lets others do; the public half is for all as far as it lets them."""
    before = os.umask(umask)
    try:
        make_key(tmp_path / "a.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a.key.pub").stat().st_mode) == 0o644 & ~umask


@pytest.mark.parametrize("name", ["a.key", "a.key.pub"])
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_nothing_is_overwritten(tmp_path: Path, name: str, kind: str) -> None:
    """A key that is gone is gone; a link is not followed. Nothing is left of what was begun."""
    taken = tmp_path / name
    if kind == "file":
        taken.write_text("mine")
    elif kind == "link":
        taken.symlink_to(tmp_path / "elsewhere")
    else:
        taken.mkdir()
    with pytest.raises(UsageError, match="exists"):
        make_key(tmp_path / "a.key")
    assert list(tmp_path.iterdir()) == [taken]
    assert kind != "file" or taken.read_text() == "mine"


def test_where_no_key_can_be_written(tmp_path: Path) -> None:
    """It says which file, and leaves nothing."""
    with pytest.raises(UsageError, match=r"cannot write the key file .*missing/a\.key"):
        make_key(tmp_path / "missing" / "a.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mode", "readable"), [(0o640, True), (0o644, False), (0o660, False)])
def test_a_private_key_that_others_know_is_none(tmp_path: Path, mode: int, readable: bool) -> None:
    """A group may be meant, as for a mounted secret; everybody never is."""
    file = tmp_path / "a.key"
    make_key(file)
    file.chmod(mode)
    if readable:
        read_signing_key(file)
        return
    with pytest.raises(UntrustedError, match="chmod 600"):
        read_signing_key(file)
    with pytest.raises(UsageError, match="no private key"):  # whoever can read that
        read_signing_key(public_path(file))


def test_a_public_key_that_others_could_exchange(tmp_path: Path) -> None:
    """It is no word of whom to trust."""
    make_key(tmp_path / "a.key")
    (tmp_path / "a.key.pub").chmod(0o666)
    with pytest.raises(UntrustedError, match="chmod go-w"):
        read_public_keys(tmp_path / "a.key.pub")


def test_several_public_keys_in_a_file(tmp_path: Path) -> None:
    """As while one key takes over from another; what stands between the blocks is a comment."""
    one, two = make_key(tmp_path / "1"), make_key(tmp_path / "2")
    both = tmp_path / "both.pub"
    text = [(tmp_path / name).read_text() for name in ("1.pub", "2.pub")]
    both.write_text(f"# since spring\n{text[0]}# until spring\n{text[1]}{text[1]}")
    assert read_public_keys(both) == {one.public, two.public}


def _pem(kind: str) -> bytes:
    private = ed25519.Ed25519PrivateKey.generate()
    other = rsa.generate_private_key(65537, 2048)
    pkcs8, spki = PrivateFormat.PKCS8, PublicFormat.SubjectPublicKeyInfo
    made = {
        "encrypted": private.private_bytes(Encoding.PEM, pkcs8, BestAvailableEncryption(b"x")),
        "private RSA": other.private_bytes(Encoding.PEM, pkcs8, NoEncryption()),
        "public RSA": other.public_key().public_bytes(Encoding.PEM, spki),
        "private": private.private_bytes(Encoding.PEM, pkcs8, NoEncryption()),
        "public": private.public_key().public_bytes(Encoding.PEM, spki),
        "ssh": private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        "damaged public": b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "damaged private": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "empty": b"",
        "noise": bytes(range(256)),
    }
    return made[kind]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("encrypted", "passphrase"),
        ("private RSA", "not Ed25519"),
        ("public", "which it takes to sign"),
        ("damaged private", "no private key"),
        ("ssh", "no private key"),
        ("empty", "tccache key new"),
        ("noise", "no private key"),
    ],
)
def test_what_is_no_private_key(tmp_path: Path, kind: str, said: str) -> None:
    """Each kind of mistake is told as what it is, and by the file."""
    file = tmp_path / "key"
    file.write_bytes(_pem(kind))
    file.chmod(0o600)
    with pytest.raises(UsageError, match=said) as caught:
        read_signing_key(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("private", r"takes the public one, .*key\.pub"),
        ("encrypted", "takes the public one"),
        ("public RSA", "not Ed25519"),
        ("damaged public", "no public key"),
        ("ssh", "holds no public key"),
        ("empty", "tccache key new"),
        ("noise", "holds no public key"),
    ],
)
def test_what_is_no_public_key(tmp_path: Path, kind: str, said: str) -> None:
    """One good block beside a bad one does not make the file good either."""
    file = tmp_path / "key"
    file.write_bytes(_pem(kind))
    with pytest.raises(UsageError, match=said):
        read_public_keys(file)
    if "public" in kind:
        file.write_bytes(_pem("public") + _pem(kind))
        with pytest.raises(UsageError):
            read_public_keys(file)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device", "large"])
def test_what_is_no_file_with_a_key(tmp_path: Path, kind: str) -> None:
    """It is refused at once: nobody waits at a pipe, and nothing endless is read."""
    file = tmp_path / "key"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "large":
        file.write_bytes(bytes(1 << 21))
        file.chmod(0o600)
    for read in (read_public_keys, read_signing_key):
        with pytest.raises(UsageError, match=str(file)):
            read(file)


def test_a_key_behind_a_link(tmp_path: Path) -> None:
    """Mounted secrets are links."""
    made = make_key(tmp_path / "a.key")
    (tmp_path / "link").symlink_to("a.key")
    assert read_signing_key(tmp_path / "link").public == made.public


@pytest.mark.parametrize("key", ["02" * 32, "ff" * 32, "not hex", ""])
def test_a_key_that_is_none_has_signed_nothing(key: str) -> None:
    """It is an answer, no error."""
    assert not is_signature(key, "00" * 64, b"text")


_WEAK = [
    *("00" * 32, "00" * 31 + "80", "01" + "00" * 31),
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]


@pytest.mark.parametrize("key", _WEAK)
def test_a_key_that_anybody_can_sign_for(tmp_path: Path, key: str) -> None:
    """A point of small order fits made-up signatures of some texts; none of them counts, and nobody
    trusts such a key by a file that holds it."""
    texts = [str(number).encode() for number in range(64)]
    raw = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    made_up = "01" + "00" * 63
    assert any(_fits(raw, made_up, text) for text in texts)
    assert not any(is_signature(key, made_up, text) for text in texts)
    pem = raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "weak.pub").write_bytes(pem)
    with pytest.raises(UsageError, match="anybody can sign"):
        read_public_keys(tmp_path / "weak.pub")


def _fits(key: ed25519.Ed25519PublicKey, signature: str, text: bytes) -> bool:
    try:
        key.verify(bytes.fromhex(signature), text)
    except InvalidSignature:
        return False
    return True
