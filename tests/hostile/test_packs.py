"""Packs of strangers: not one byte comes out of them that the manifest does not vouch for."""

from __future__ import annotations

import io
import runpy
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry, Pack
from cachesvc.core.spelled import spelled
from cachesvc.local.places import Places
from cachesvc.local.seed import Seeder
from cachesvc.repository.pack import read_pack
from cachesvc.repository.tar import BLOCK, END, padding

from .tries import quick_and_slow, try_all

MADE = runpy.run_path(str(Path(__file__).parent / "make_corpus.py"))
FILES: dict[str, bytes] = MADE["FILES"]
WANTED = {path: Entry(path, len(data), digest_bytes(data)) for path, data in FILES.items()}
frame: Callable[..., bytes] = MADE["frame"]

NAMES = st.sampled_from([
    *FILES, "../x", "/x", "", ".", "x" * 100, "triton/K/k.cubin/", "triton/K/\udcff", "\x1b[2J",
    "triton/K/k.cubin\0x",
])  # fmt: skip
SIZES = st.sampled_from([
    b"", b"0", b"-1", b"7", b"00000000001 ", b"77777777777\0", b"\x80" + b"\0" * 10 + b"\x05",
    b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\xff" + b"\0" * 11, b"9", b"1 1", b"\xd9\xa3",
])  # fmt: skip
RECORDS = st.sampled_from([
    ("path", "triton/K/k.cubin"), ("path", "../x"), ("path", ""), ("path", "a\0b"), ("size", "0"),
    ("size", "502"), ("size", "-1"), ("size", "9" * 30), ("size", ""), ("GNU.sparse.name", "x"),
    ("linkpath", "/etc/passwd"), ("mtime", "1e999"), ("comment", "\n"), ("", ""),
    ("hdrcharset", "x"), ("path", "\udcff"),
])  # fmt: skip
KINDS = st.sampled_from([b"0", b"\0"]) | st.integers(0, 255).map(lambda kind: bytes([kind]))


@st.composite
def members(draw: st.DrawFn) -> bytes:
    """A member that is right, or has any of its fields wrong; or an extended header."""
    path = draw(st.sampled_from([*FILES]))
    right: bytes = MADE["member"](path, FILES[path])
    how = draw(st.sampled_from(["right", "right", "field", "field", "pax", "raw", "link"]))
    if how == "field":
        size = draw(st.none() | SIZES)
        path = draw(st.just(path) | NAMES)
        checksum = draw(st.none() | st.sampled_from([b"", b"000000\0 ", b"\xff" * 8]))
        made: bytes = MADE["member"](
            path, FILES.get(path, b""), kind=draw(KINDS), size=size, checksum=checksum
        )
        return made
    if how == "pax":
        records = draw(st.lists(RECORDS, max_size=3))
        header: bytes = MADE["pax"](*records, kind=draw(st.sampled_from([b"x", b"x", b"g"])))
        return header
    if how == "link":
        linked: bytes = MADE["member"](path, FILES[path], kind=draw(KINDS), link="/etc/passwd")
        return linked
    if how == "raw":
        block = bytearray(right[:BLOCK])
        for _ in range(draw(st.integers(1, 3))):
            block[draw(st.integers(0, BLOCK - 1))] = draw(st.integers(0, 255))
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        return bytes(block) + right[BLOCK:]
    return right


TARS = st.lists(members() | st.sampled_from([END, b"\0" * BLOCK, b"", b"x" * BLOCK]), max_size=8)


def check(data: bytes, unpacked: int) -> None:
    """Reads a pack; what comes out of it is what was wanted, whole, and nothing else comes out."""
    found: dict[str, bytes] = {}
    pack = Pack(len(data), digest_bytes(data), unpacked)
    try:
        for entry, stream in read_pack(io.BytesIO(data), pack, WANTED, "it"):
            assert entry.path not in found
            found[entry.path] = b"".join(iter(lambda s=stream: s.read(97), b""))  # type: ignore[misc]
            assert found[entry.path] == FILES[entry.path]
        assert found == FILES
    except IntegrityError as error:
        said = str(error)
    else:
        return
    assert said == spelled(said)
    assert len(said) < 1000


@pytest.mark.parametrize("tries", quick_and_slow(200, 4_000))
def test_any_tar(tries: int) -> None:
    """Members of every kind, size, name and check sum, in any order, with and without an end."""

    def one(parts: list[bytes]) -> None:
        tar = b"".join(parts)
        check(frame(tar), len(tar))

    try_all(tries, TARS, one)


def test_tars_of_right_members_are_read() -> None:
    """What is generated above is refused for what is wrong with it, not for how it is made."""
    tar = b"".join(MADE["member"](path, data) for path, data in FILES.items()) + END
    check(frame(tar), len(tar))
    pack = Pack(1, "0" * 64, len(tar))
    read = read_pack(io.BytesIO(frame(tar)), pack, WANTED, "it")
    assert {entry.path: stream.read() for entry, stream in read} == FILES


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Zstd frames around a good tar: other headers, blocks and neighbours."""
    tar = MADE["tar_of"](FILES)
    made: bytes = frame(
        tar[: draw(st.just(len(tar)) | st.integers(0, len(tar)))],
        log=draw(st.integers(10, 41)),
        size=draw(st.none() | st.sampled_from([0, 1, len(tar), 1 << 40, (1 << 64) - 1])),
        dictionary=draw(st.none() | st.integers(0, 2**32 - 1)),
        checksum=draw(st.sampled_from([b"", b"", b"1234", b"1"])),
        zeros=draw(st.sampled_from([0, 0, 1, 500])),
    )
    spoilt = bytearray(made)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, min(40, len(made) - 1)) | st.integers(0, len(made) - 1))
        spoilt[at] ^= 1 << draw(st.integers(0, 7))
    before = draw(st.sampled_from([b"", b"", MADE["skippable"](b"x"), frame(b""), b"x"]))
    return (
        before + bytes(spoilt) + draw(st.sampled_from([b"", b"", b"x", made, struct.pack("<I", 7)]))
    )


@pytest.mark.parametrize("tries", quick_and_slow(200, 4_000))
def test_any_frame(tries: int) -> None:
    """Windows, content sizes, dictionaries, check sums, bombs, neighbours, and bits changed."""
    unpacked = len(MADE["tar_of"](FILES))
    try_all(tries, frames() | st.binary(max_size=300), lambda data: check(data, unpacked))


def test_a_bomb_is_not_unpacked() -> None:
    """Of 16 GB of zeros in half a megabyte not more is decoded than the manifest says."""
    bomb = frame(MADE["member"]("extra/x/bomb", b"", size=b"77777777777"), zeros=1 << 17)
    assert len(bomb) < 600_000
    with pytest.raises(IntegrityError, match="unpacks to more bytes"):
        list(read_pack(io.BytesIO(bomb), Pack(len(bomb), "", 1 << 20), WANTED, "it"))


def test_headers_are_not_collected() -> None:
    """Extended headers without end, which would fill the memory, end at the second."""
    tar = b"".join(MADE["pax"]((f"comment{n}", "x" * 60_000)) for n in range(50))
    with pytest.raises(IntegrityError, match="two extended headers"):
        list(read_pack(io.BytesIO(frame(tar)), Pack(1, "", len(tar)), WANTED, "it"))


def test_a_group_is_not_read_whole_whatever_its_size(tmp_path: Path) -> None:
    """A Triton group of gigabytes is refused before its first byte is taken."""
    path = "triton/K/__grp__k.json"

    class Endless:
        def read(self, size: int = -1, /) -> bytes:
            raise AssertionError("it was read")

    places = Places(tmp_path, (("triton", tmp_path / "triton"),))
    with Seeder(places) as seeder, pytest.raises(IntegrityError, match="is no Triton group"):
        seeder.stage(Entry(path, 8 << 30, "0" * 64), Endless())
    assert not list((tmp_path / "triton").rglob("__grp__*"))


def test_blocks_end_where_members_do() -> None:
    """The tars that are made here are padded as tar asks."""
    assert all(len(MADE["member"](p, d)) % BLOCK == 0 for p, d in FILES.items())
    assert len(padding(1)) == BLOCK - 1
