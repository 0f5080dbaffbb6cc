"""The tar reader: regular files whole and in order, and nothing else."""

from __future__ import annotations

import io
import random
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError
from cachesvc.repository.tar import BLOCK, END, header, padding, read_tar

FILES = {
    "inductor/ab/c.py": b"print(1)\n" * 100,
    "inductor/ab/empty": b"",
    "inductor/ab/" + "x" * 255: b"long part",
    "inductor/" + "folder/" * 30 + "deep": b"long path",
    "extra/x/größe": b"not ASCII",
    "triton/K/block": bytes(BLOCK),
}


def written(files: dict[str, bytes]) -> bytes:
    """A tar as packs hold it."""
    parts = (header(p, len(d)) + d + padding(len(d)) for p, d in files.items())
    return b"".join(parts) + END


def read(data: bytes) -> dict[str, bytes]:
    """All files of a tar by our reader."""
    return {member.path: member.read() for member in read_tar(io.BytesIO(data), "pack")}


def by_tarfile(format: int, *members: tarfile.TarInfo, data: bytes = b"12345") -> bytes:
    """A tar as Python's own library writes it."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as tar:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return target.getvalue()


def test_round_trip() -> None:
    """Long names, names that are not ASCII and empty files come back as they were, in order."""
    assert list(read(written(FILES)).items()) == list(FILES.items())


def test_tarfile_reads_it() -> None:
    """Another reader of tar sees the same files with the same bytes."""
    with tarfile.open(fileobj=io.BytesIO(written(FILES))) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        assert found == FILES
        assert {(m.mode, m.mtime, m.uid, m.gid, m.uname) for m in tar} == {(0o600, 0, 0, 0, "")}


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_tars_of_other_writers(format: int) -> None:
    """POSIX tars that another program wrote are read, times and owners in extended headers too."""
    member = tarfile.TarInfo("triton/K/" + "a" * 90 + "/f")
    member.mtime, member.uname = 1234567.5, "somebody"  # type: ignore[assignment]
    if format == tarfile.USTAR_FORMAT:
        member.mtime = 1234567
    assert read(by_tarfile(format, member)) == {member.name: b"12345"}


def test_global_headers_are_passed_over() -> None:
    """A header about the whole tar names no file."""
    target = io.BytesIO()
    pax = {"comment": "made by somebody", "path": "elsewhere"}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT, pax_headers=pax) as tar:
        member = tarfile.TarInfo("triton/K/f")
        tar.addfile(member)
    assert read(target.getvalue()) == {"triton/K/f": b""}


def test_what_nobody_reads_is_passed_over() -> None:
    """Files that are not asked for, or only in part, do not disturb those that follow."""
    found = []
    for member in read_tar(io.BytesIO(written(FILES)), "pack"):
        member.read(3)
        found.append(member.path)
    assert found == list(FILES)


@pytest.mark.parametrize(
    "type",
    [
        tarfile.LNKTYPE,
        tarfile.SYMTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.DIRTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        tarfile.GNUTYPE_SPARSE,
        tarfile.GNUTYPE_LONGNAME,
        b"Z",
    ],
)
def test_no_other_members(type: bytes) -> None:
    """Links, devices, folders, sparse files and what nobody knows are refused by their name."""
    member = tarfile.TarInfo("triton/K/odd")
    member.type, member.linkname = type, "/etc/passwd"
    data = member.tobuf(tarfile.USTAR_FORMAT) + written(FILES)
    with pytest.raises(IntegrityError, match=r"pack is not a pack: .*'triton/K/odd'.*no plain"):
        read(data)


def test_no_sparse_files_in_new_clothes() -> None:
    """A sparse file that pax describes is no plain file."""
    member = tarfile.TarInfo("triton/K/odd")
    member.pax_headers = {"GNU.sparse.realsize": "1000000000000"}
    with pytest.raises(IntegrityError, match="no plain file"):
        read(by_tarfile(tarfile.PAX_FORMAT, member))


def test_no_headers_without_end() -> None:
    """An extended header that would fill the memory is refused before it is read."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 8 << 30
    with pytest.raises(IntegrityError, match="unlikely size"):
        read(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))


@pytest.mark.parametrize(
    "records",
    [b"5 a=b\n", b"-6 a=b\n", b"0 a=b\n", b"6 ab\n\n", b"x a=b\n", b"nothing", b"7 \xff=b\n"],
)
def test_damaged_extended_headers(records: bytes) -> None:
    """Lines of an extended header that are not `length name=value` are refused."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, len(records)
    data = member.tobuf(tarfile.USTAR_FORMAT) + records + padding(len(records)) + written(FILES)
    with pytest.raises(IntegrityError, match="damaged extended header"):
        read(data)


@pytest.mark.parametrize("size", ["-1", "1e3", "", "9" * 30, "٣"])
def test_impossible_sizes(size: str) -> None:
    """A size that is no number of bytes is refused."""
    member = tarfile.TarInfo("triton/K/f")
    member.pax_headers = {"size": size}
    with pytest.raises(IntegrityError, match="with the size"):
        read(by_tarfile(tarfile.PAX_FORMAT, member))


def test_a_negative_size_in_the_header() -> None:
    """A header whose size is below nothing is refused; it would make a reader walk backwards."""
    member = tarfile.TarInfo("triton/K/f")
    member.size = -512
    with pytest.raises(IntegrityError, match="with the size"):
        read(member.tobuf(tarfile.GNU_FORMAT) + END)


def test_cut_anywhere() -> None:
    """However much is missing at the end, what is read is refused, never taken for all."""
    data = written({"triton/K/a": b"x" * 700, "triton/K/b": b"y" * 100})
    for end in range(0, len(data) - len(END), 37):
        with pytest.raises(IntegrityError, match="ends too early"):
            read(data[:end])


def test_flipped_anywhere() -> None:
    """With any one bit changed a tar is read or refused; no other error comes out."""
    data = written({"triton/K/a": b"x" * 100, "triton/K/" + "n" * 120: b"y" * 100})
    choice = random.Random(0)
    for place in range(len(data)):
        spoilt = bytearray(data)
        spoilt[place] ^= 1 << choice.randrange(8)
        with suppress(IntegrityError):
            read(bytes(spoilt))


@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no tar are refused, whatever they are."""
    with suppress(IntegrityError):
        read(data)
