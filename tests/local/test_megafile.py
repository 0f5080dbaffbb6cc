"""Mega-cache files against torch's own serializer, in both directions, and against damage."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachesvc.core.errors import IntegrityError
from cachesvc.core.paths import path_issue
from cachesvc.local.layout import unit_key
from cachesvc.local.megafile import Artifact, put_together, take_apart

serializer: Any = pytest.importorskip("torch.utils._appending_byte_serializer")

TYPES = st.sampled_from(["inductor", "aot_autograd", "autotune", "pgo", "precompile", "new type"])
KEYS = st.one_of(st.sampled_from(["fkey", "ab/c.best_config"]), st.text(max_size=40))
GROUPS = st.lists(
    st.tuples(TYPES, st.lists(st.tuples(KEYS, st.binary(max_size=40)), max_size=4)), max_size=6
)
Group = tuple[str, list[tuple[str, bytes]]]

AMBIGUOUS = "two\nlines/../..~\0 " + "k" * 300


def written_by_torch(groups: Iterable[Group]) -> bytes:
    """As `_serialize_single_cache` of torch.compiler._cache writes groups of one type each."""

    def write(writer: Any, group: Group) -> None:
        kind, artifacts = group
        writer.write_str(kind)
        writer.write_uint64(len(artifacts))
        for key, content in artifacts:
            writer.write_str(key)
            writer.write_bytes(content)

    appending = serializer.AppendingByteSerializer(serialize_fn=write)
    appending.extend(groups)
    return bytes(appending.to_bytes())


def read_by_torch(data: bytes) -> list[Group]:
    """As `_deserialize_single_cache` reads them."""

    def read(reader: Any) -> Group:
        kind = reader.read_str()
        return kind, [(reader.read_str(), reader.read_bytes()) for _ in range(reader.read_uint64())]

    return list(serializer.AppendingByteSerializer.to_list(data, deserialize_fn=read))


def as_torch_keeps_them(groups: Iterable[Group]) -> set[tuple[str, str, bytes]]:
    """What lies in torch's caches after it wrote every artifact, one after the other.

    An FX graph and an AOTAutograd entry become a file named after their content; everything
    else one named after the key.
    """
    kept: dict[tuple[str, str, bytes], bytes] = {}
    for kind, artifacts in groups:
        for key, content in artifacts:
            guarded = kind in ("inductor", "aot_autograd")
            kept[kind, key, content if guarded else b""] = content
    return {(kind, key, content) for (kind, key, _), content in kept.items()}


@given(GROUPS)
def test_what_torch_wrote_is_read(groups: list[Group]) -> None:
    """Any types, keys and contents; a type in several groups; a key several times."""
    artifacts = take_apart(written_by_torch(groups), "mega")
    assert {tuple(artifact) for artifact in artifacts} == as_torch_keeps_them(groups)
    assert len(set(artifacts)) == len(artifacts)


@given(GROUPS)
def test_torch_reads_what_is_put_together(groups: list[Group]) -> None:
    """Each type once, since torch keeps the last group of a type, with all its artifacts."""
    artifacts = take_apart(written_by_torch(groups), "mega")
    read = read_by_torch(put_together(artifacts))
    assert len({kind for kind, _ in read}) == len(read)
    assert as_torch_keeps_them(read) == as_torch_keeps_them(groups)


@given(GROUPS)
def test_every_artifact_is_an_entry_of_a_unit(groups: list[Group]) -> None:
    """Whatever its key, its path is valid, its own, and in the unit of its type and key."""
    artifacts = take_apart(written_by_torch(groups), "mega")
    assert len({artifact.path for artifact in artifacts}) == len(artifacts)
    units = {unit_key(artifact.path.split("/")) for artifact in artifacts}
    assert len(units) == len({(artifact.type, artifact.key) for artifact in artifacts})
    for artifact in artifacts:
        assert path_issue(artifact.path) is None
        assert Artifact.from_bytes(artifact.to_bytes(), "entry") == artifact


def test_of_two_tuning_results_the_last_stands() -> None:
    """Results are recorded again as they get better; torch overwrites its file with each."""
    data = written_by_torch([("autotune", [("k", b"worse"), ("k", b"better")])])
    assert take_apart(data, "mega") == (Artifact("autotune", "k", b"better"),)


@pytest.mark.parametrize("kind", ["inductor", "aot_autograd"])
def test_both_sets_of_guards_are_kept(kind: str) -> None:
    """One graph compiled under two sets of guards: losing one would be a miss after a pull."""
    data = written_by_torch([(kind, [("k", b"even"), ("k", b"odd")]), (kind, [("k", b"even")])])
    artifacts = take_apart(data, "mega")
    assert {artifact.content for artifact in artifacts} == {b"even", b"odd"}
    assert len({unit_key(artifact.path.split("/")) for artifact in artifacts}) == 1


def test_torch_itself_would_lose_a_type_that_comes_twice() -> None:
    """A process that saves twice appends; reading the result, torch keeps the last group only."""
    data = written_by_torch([("pgo", [("a", b"1")]), ("pgo", [("b", b"2")])])
    assert dict(read_by_torch(data))["pgo"] == [("b", b"2")]
    assert [artifact.key for artifact in take_apart(data, "mega")] == ["a", "b"]


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "/etc/passwd", "ü", "~x", AMBIGUOUS])
def test_strange_keys_have_plain_paths(key: str) -> None:
    """Keys are torch's and may be any text; no two of them share a unit."""
    artifact = Artifact("pgo", key, b"content")
    assert path_issue(artifact.path) is None
    assert Artifact.from_bytes(artifact.to_bytes(), "entry") == artifact
    other = Artifact("pgo", key + "x", b"content")
    assert unit_key(artifact.path.split("/")) != unit_key(other.path.split("/"))


def test_a_very_long_key_comes_back() -> None:
    """The header has no limit of its own: what was written can be read."""
    artifact = Artifact("pgo", "k" * 200_000, b"\n\n")
    assert Artifact.from_bytes(artifact.to_bytes(), "entry") == artifact


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"tccache-artifact/1 ",
        b"tccache-artifact/1 \n",
        b"tccache-artifact/1 {}\n",
        b"tccache-artifact/1 []\n",
        b'tccache-artifact/1 {"type":"pgo"}\n',
        b'tccache-artifact/1 {"type":"pgo","key":7}\n',
        b'tccache-artifact/1 {"type":["pgo"],"key":"k"}\n',
        b'tccache-artifact/1 {"type":"pgo","key":"k"}',
        b'tccache-artifact/2 {"type":"pgo","key":"k"}\n',
        b"tccache-artifact/1 " + b"[" * 100_000 + b"\n",
        b"tccache-artifact/1 \xff\n",
    ],
)
def test_what_is_no_artifact_is_refused(data: bytes) -> None:
    """An entry's bytes are not trusted to be what their path says."""
    with pytest.raises(IntegrityError, match="entry is not a mega-cache artifact"):
        Artifact.from_bytes(data, "entry")


def sealed(body: bytes) -> bytes:
    """The body behind a right checksum, as damage before the checksum would leave it."""
    return zlib.crc32(body).to_bytes(4, "big") + body


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


WHOLE = written_by_torch([("inductor", [("k", b"content")])])
VERSION = number(1)
TEXT = base64.b64encode(b"pgo")
KIND = number(len(TEXT)) + TEXT


@given(st.integers(0, len(WHOLE) - 1))
def test_a_cut_file_is_refused(size: int) -> None:
    """Wherever a copy stopped."""
    with pytest.raises(IntegrityError):
        take_apart(WHOLE[:size], "mega")


@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_a_flipped_bit_is_found(bit: int) -> None:
    """The checksum covers every byte, its own included."""
    flipped = bytearray(WHOLE)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(IntegrityError):
        take_apart(bytes(flipped), "mega")


@given(st.binary(max_size=200))
def test_garbage_is_refused_even_behind_a_right_checksum(body: bytes) -> None:
    """Nothing but an IntegrityError comes of any bytes; the empty file is the one exception."""
    try:
        artifacts = take_apart(sealed(VERSION + body), "mega")
    except IntegrityError:
        return
    assert set(take_apart(put_together(artifacts), "mega")) == set(artifacts)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (number(2), "version 2"),
        (VERSION + KIND, "cut short"),
        (VERSION + KIND + number(1 << 60), "cut short"),
        (VERSION + number(1 << 63), "cut short"),
        (VERSION + number(3) + b"\xff\xff\xff" + number(0), "not Base64 text"),
        (VERSION + number(4) + base64.b64encode(b"\xff\xff\xff") + number(0), "not Base64 text"),
        (VERSION + b"\0", "cut short"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, message: str) -> None:
    """Another version, a count or length past the end, a name that is none."""
    with pytest.raises(IntegrityError, match=message):
        take_apart(sealed(body), "mega")


def test_a_file_without_artifacts_is_read_as_that() -> None:
    """torch writes none, but it is a whole file: the caller says what is wrong with it."""
    assert take_apart(sealed(VERSION), "mega") == ()
    assert read_by_torch(put_together([])) == []


def test_a_real_file(h200_tree: Path) -> None:
    """An H200's mega-cache: the artifacts that its recorder counted, each key once."""
    artifacts = take_apart((h200_tree / "mega.bin").read_bytes(), "mega")
    recorded = json.loads((h200_tree / "origin.json").read_text())["mega"]
    kinds = [artifact.type for artifact in artifacts]
    assert recorded == {"inductor": 4, "autotune": 9, "aot_autograd": 3}
    assert {kind: kinds.count(kind) for kind in recorded} == {**recorded, "autotune": 7}
