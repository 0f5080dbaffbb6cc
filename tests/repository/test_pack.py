"""Packs: every tool can list them, equal sources give equal packs, and no wrong byte gets out."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import subprocess
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard

from cachesvc.core.errors import IntegrityError, TccacheError
from cachesvc.core.manifest import Entry, Pack
from cachesvc.repository.pack import (
    WINDOW_LOG,
    ChangedWhilePacked,
    Source,
    copy,
    read_pack,
    write_pack,
)
from cachesvc.repository.tar import END, header, padding

FILES = {
    "inductor/ab/cab.py": b"import torch\n" * 500,
    "inductor/ab/empty": b"",
    "inductor/fxgraph/ab/K/" + "n" * 255: os.urandom(3000),
    "inductor/" + "folder/" * 100 + "deep": b"deep",
    "triton/K/kernel.cubin": random.Random(1).randbytes(5000),
    "triton/L/kernel.cubin": random.Random(1).randbytes(5000),
    "extra/x/größe": b"not ASCII",
}


def source(path: str, data: bytes) -> Source:
    return Source(path, len(data), lambda: io.BytesIO(data))


def pack_of(files: dict[str, bytes], target: Path) -> tuple[Pack, dict[str, Entry]]:
    return write_pack([source(path, data) for path, data in files.items()], target)


def read(data: bytes, pack: Pack, wanted: Iterable[Entry]) -> dict[str, bytes]:
    """The wanted entries by path, each read to its end."""
    index = {entry.path: entry for entry in wanted}
    found: dict[str, bytes] = {}
    for entry, stream in read_pack(io.BytesIO(data), pack, index, "the pack"):
        target = io.BytesIO()
        copy(stream, target)
        found[entry.path] = target.getvalue()
    return found


def packed(tar: bytes, *, log: int = 10) -> tuple[bytes, Pack]:
    """A pack around a tar of somebody else's making."""
    parameters = zstandard.ZstdCompressionParameters(window_log=log)
    encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = encoder.compress(tar) + encoder.flush()
    return data, Pack(len(data), hashlib.sha256(data).hexdigest(), len(tar))


def member(path: str, data: bytes, size: int | None = None) -> bytes:
    return header(path, len(data) if size is None else size) + data + padding(len(data))


def entry(path: str, data: bytes) -> Entry:
    return Entry(path, len(data), hashlib.sha256(data).hexdigest())


def test_round_trip(tmp_path: Path) -> None:
    """What was packed comes back byte by byte, and the manifest's facts are those of the file."""
    pack, entries = pack_of(FILES, tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    assert entries == {path: entry(path, content) for path, content in FILES.items()}
    assert (pack.size, pack.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert read(data, pack, entries.values()) == FILES


def test_only_what_is_wanted(tmp_path: Path) -> None:
    """A reader takes some entries out of a pack without the others; none wanted gives none."""
    pack, entries = pack_of(FILES, tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    path = "triton/K/kernel.cubin"
    assert read(data, pack, [entries[path]]) == {path: FILES[path]}
    assert read(data, pack, []) == {}


def test_every_tool_reads_it(tmp_path: Path) -> None:
    """`tar --zstd` lists and unpacks a pack, and `zstd -d` decodes it, without a flag."""
    file = tmp_path / "pack.tar.zst"
    pack, _ = pack_of(FILES, file)
    run = partial(subprocess.run, check=True, capture_output=True)
    names = run(["tar", "--zstd", "--quoting-style=literal", "-tf", file]).stdout.decode()
    assert set(names.splitlines()) == set(FILES)
    run(["tar", "--zstd", "-xf", file, "-C", tmp_path])
    assert {path: (tmp_path / path).read_bytes() for path in FILES} == FILES
    assert len(run(["zstd", "-d", "--stdout", file]).stdout) == pack.unpacked
    run(["zstd", "-t", file])


def test_frame(tmp_path: Path) -> None:
    """A pack is one frame with a window of 128 MiB and a checksum."""
    pack_of(FILES, tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    frame = zstandard.get_frame_parameters(data)
    assert frame.window_size == 1 << 27 == 1 << WINDOW_LOG
    assert frame.has_checksum
    decoder = zstandard.ZstdDecompressor().decompressobj()
    decoder.decompress(data)
    assert decoder.eof
    assert not decoder.unused_data


def test_equal_sources_give_equal_packs(tmp_path: Path) -> None:
    """Neither the order in which files are found nor their times or owners are in a pack."""
    one = pack_of(FILES, tmp_path / "one")
    two = pack_of(dict(reversed(FILES.items())), tmp_path / "two")
    assert one == two
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_similar_files_lie_together(tmp_path: Path) -> None:
    """Files of one kind and name follow each other, so that small windows see them too."""
    names = [
        "triton/A/k.ptx",
        "triton/A/k.cubin",
        "triton/B/k.ptx",
        "triton/B/k.cubin",
        "extra/x/a",
    ]
    pack, entries = pack_of(dict.fromkeys(names, b""), tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    assert list(read(data, pack, entries.values())) == [
        "extra/x/a", "triton/A/k.cubin", "triton/B/k.cubin", "triton/A/k.ptx", "triton/B/k.ptx",
    ]  # fmt: skip


def test_repeated_binaries_cost_nothing(tmp_path: Path) -> None:
    """The same binary far away in the pack is stored once: the long window sees it."""
    binary, between = os.urandom(1 << 20), os.urandom(12 << 20)
    files = {"aot/f/a.bin": binary, "aot/f/b.bin": between, "aot/f/c.bin": binary}
    pack, _ = pack_of(files, tmp_path / "pack")
    assert pack.size < len(binary) + len(between) + (64 << 10)


@pytest.mark.parametrize("change", [b"", b"1234", b"123456", b"1" * (1 << 21)])
def test_a_file_that_changes_size(tmp_path: Path, change: bytes) -> None:
    """A file that shrank or grew since it was seen is never packed as if it were whole."""
    changed = Source("triton/K/f", 5, lambda: io.BytesIO(change))
    with pytest.raises(ChangedWhilePacked, match=r"triton/K/f changed while it was packed.*again"):
        write_pack([changed], tmp_path / "pack")


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    """A file that somebody removed since it was seen counts as changed."""
    gone = Source("triton/K/f", 5, partial(open, tmp_path / "gone", "rb"))
    with pytest.raises(ChangedWhilePacked):
        write_pack([gone], tmp_path / "pack")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file without permission is named, with what to do; the error is not the system's own."""

    def denied() -> BinaryIO:
        raise PermissionError(errno.EACCES, "Permission denied", "/cache/f")

    with pytest.raises(TccacheError, match=r"cannot read /cache/f: Permission denied: make it"):
        write_pack([Source("triton/K/f", 5, denied)], tmp_path / "pack")


SMALL = {"triton/K/a": b"some text, some text", "triton/K/b": bytes(range(256)), "triton/K/c": b""}


def test_cut_anywhere(tmp_path: Path) -> None:
    """A pack that ends too early gives no entry that is not whole, and is refused."""
    pack, entries = pack_of(SMALL, tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    for end in range(len(data) - 8):
        with pytest.raises(IntegrityError, match="the pack"):
            read(data[:end], pack, entries.values())


def test_flipped_anywhere(tmp_path: Path) -> None:
    """With any one bit of a pack changed, what is read is right, or refused: never wrong."""
    pack, entries = pack_of(SMALL, tmp_path / "pack")
    data = (tmp_path / "pack").read_bytes()
    choice = random.Random(7)
    refused = 0
    for place in range(len(data)):
        spoilt = bytearray(data)
        spoilt[place] ^= 1 << choice.randrange(8)
        try:
            assert read(bytes(spoilt), pack, entries.values()) == SMALL
        except IntegrityError:
            refused += 1
    assert refused > len(data) // 2


def test_a_flipped_tar(tmp_path: Path) -> None:
    """The same where the frame is right and its content is not: digests stand behind it."""
    tar = b"".join(member(path, data) for path, data in SMALL.items()) + END
    wanted = [entry(path, data) for path, data in SMALL.items()]
    choice = random.Random(7)
    for place in range(0, len(tar) - len(END), 3):
        spoilt = bytearray(tar)
        spoilt[place] ^= 1 << choice.randrange(8)
        data, pack = packed(bytes(spoilt))
        with suppress(IntegrityError):
            assert read(data, pack, wanted) == SMALL


def test_the_last_byte_waits_for_the_digest() -> None:
    """A reader that stops at the size it knows has checked the digest all the same."""
    data, pack = packed(member("triton/K/a", b"wrong") + END)
    wanted = {"triton/K/a": entry("triton/K/a", b"right")}
    reading = read_pack(io.BytesIO(data), pack, wanted, "the pack")
    _, stream = next(reading)
    assert stream.read(4) == b"wron"
    with pytest.raises(IntegrityError, match="triton/K/a does not have the digest"):
        stream.read(1)


def test_a_wrong_empty_file() -> None:
    """An empty file whose entry has another digest is refused though there is nothing to read."""
    data, pack = packed(member("triton/K/a", b"") + END)
    with pytest.raises(IntegrityError, match="does not have the digest"):
        read(data, pack, [Entry("triton/K/a", 0, "0" * 64)])


A, B = "triton/K/a", "triton/K/b"
WANTED = [entry(A, b"content")]
LINK = tarfile.TarInfo(A)
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"
DEVICE = tarfile.TarInfo("triton/K/dev")
DEVICE.type = tarfile.CHRTYPE

WRONG_TARS = {
    "an entry twice": (member(A, b"content") + member(A, b"content") + END, "twice"),
    "an entry twice, the other one first": (member(A, b"CONTENT") * 2 + END, "digest"),
    "an entry that never comes": (member(B, b"content") + END, "lacks 1 entries, first triton/K/a"),
    "nothing at all": (END, "lacks 1 entries"),
    "a larger entry": (member(A, b"content!") + END, "another size"),
    "a smaller entry": (member(A, b"conten") + END, "another size"),
    "other bytes": (member(A, b"CONTENT") + END, "does not have the digest"),
    "a link for an entry": (LINK.tobuf(tarfile.PAX_FORMAT) + END, "no plain file"),
    "a link beside": (member(A, b"content") + LINK.tobuf() + END, "no plain file"),
    "a device beside": (DEVICE.tobuf() + member(A, b"content") + END, "no plain file"),
    "no end": (member(A, b"content"), "ends too early"),
    "no tar": (b"hello" * 300, "damaged header"),
    "nothing": (b"", "ends too early"),
}


@pytest.mark.parametrize(("tar", "reason"), WRONG_TARS.values(), ids=WRONG_TARS)
def test_wrong_tars(tar: bytes, reason: str) -> None:
    """A pack that does not hold each wanted entry once, as a file, in its size, is refused."""
    data, pack = packed(tar)
    with pytest.raises(IntegrityError, match=reason):
        read(data, pack, WANTED)


def test_names_that_lead_elsewhere_are_nobody_s() -> None:
    """Members that no manifest names are passed over, whatever their names; nothing is unpacked."""
    tar = member("../../x", b"1") + member("/etc/passwd", b"2") + member(A, b"content") + END
    data, pack = packed(tar)
    assert read(data, pack, WANTED) == {A: b"content"}


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04" * 10, b"\x28\xb5\x2f\xfd"])
def test_no_packs(data: bytes) -> None:
    """Bytes that are no zstd frame are refused."""
    with pytest.raises(IntegrityError, match="the pack is not a pack"):
        read(data, Pack(len(data), "", 10), WANTED)


@pytest.mark.parametrize("short", [1, 512, 1024, 1 << 20])
def test_bombs(short: int) -> None:
    """Decoding stops at the size said: what unpacks to more is refused when it gets there."""
    data, pack = packed(member(B, bytes(4 << 20)) + member(A, b"content") + END, log=20)
    assert pack.size < 10_000
    said = Pack(pack.size, pack.sha256, pack.unpacked - short - len(END))
    with pytest.raises(IntegrityError, match="unpacks to more bytes than its manifest says"):
        read(data, said, WANTED)


@pytest.mark.parametrize("log", [28, 30])
def test_large_windows(log: int) -> None:
    """A frame that would make a reader reserve more than 128 MiB is refused."""
    data, pack = packed(member(A, b"content") + END, log=log)
    with pytest.raises(IntegrityError, match="the pack is not a pack"):
        read(data, pack, WANTED)
    data, pack = packed(member(A, b"content") + END, log=27)
    assert read(data, pack, WANTED) == {A: b"content"}
