"""The golden store of format 1: what was once written is read for ever, and still written so."""

from __future__ import annotations

import hashlib
import io
import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.digest import canonical_json, digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Manifest
from cachesvc.core.merge import fewest_packs, merge
from cachesvc.core.report import Verdict
from cachesvc.core.requirement import Requirement
from cachesvc.core.trust import Trust
from cachesvc.local.group import localise
from cachesvc.local.megafile import Artifact
from cachesvc.repository.keys import read_public_keys
from cachesvc.repository.pack import copy
from cachesvc.repository.repository import Reading, Repository
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.location import check_format

HERE = Path(__file__).parent
EXPECTED: dict[str, dict[str, str]] = json.loads((HERE / "v1-expected.json").read_text("utf-8"))


@pytest.fixture
def golden() -> Repository:
    return Repository(DirectoryStore(HERE / "v1"))


@pytest.fixture
def copied(tmp_path: Path) -> DirectoryStore:
    """A copy that a test may spoil."""
    return DirectoryStore(shutil.copytree(HERE / "v1", tmp_path / "v1"))


def readings(repository: Repository) -> dict[str, Reading]:
    """The bundles by name."""
    return {b.address.name: repository.read(b) for b in repository.bundles()}


def contents(repository: Repository, reading: Reading, folder: Path) -> dict[str, bytes]:
    """The bytes of every entry of the union."""
    union = merge(unit for segment in reading.segments for unit in segment.units)
    found: dict[str, bytes] = {}
    for segment, units in fewest_packs(reading.segments, union).parts:
        repository.fetch(segment, folder / segment.name)
        entries = [entry for unit in units for entry in unit.entries]
        for entry, stream in repository.entries(segment, folder / segment.name, entries):
            target = io.BytesIO()
            copy(stream, target)
            found[entry.path] = target.getvalue()
    return found


def test_listed(golden: Repository) -> None:
    """The store carries the mark of format 1 and lists both bundles, whole."""
    assert check_format(golden.store)
    assert {b.address.name: len(b.segments) for b in golden.bundles()} == {
        "directories": 1,
        "gpt": 2,
    }
    assert not any(bundle.orphans for bundle in golden.bundles())
    assert all(s.pack and not s.signature for b in golden.bundles() for s in b.segments)


def test_every_byte(golden: Repository, tmp_path: Path) -> None:
    """Every entry of the union of each bundle has the digest that it was written with."""
    found = {
        name: contents(golden, reading, tmp_path) for name, reading in readings(golden).items()
    }
    assert {n: {p: digest_bytes(d) for p, d in f.items()} for n, f in found.items()} == EXPECTED


def test_manifest(golden: Repository) -> None:
    """Every field of the merged segment is read as it was meant."""
    reading = readings(golden)["gpt"]
    assert not reading.refused
    (segment,) = reading.segments
    manifest = segment.manifest
    assert manifest.created == "2025-01-02T03:04:05.678901Z"
    assert manifest.environment["device"] == "NVIDIA H200"
    assert manifest.model["größe"] == "klein"
    assert manifest.address.environment == manifest.environment.digest
    assert manifest.address.model == manifest.model.digest
    assert dict(manifest.producer) == {"python": "3.12.1", "tccache": "0.1.0"}
    assert manifest.coverage == ("(float32[1, 16])", "(float32[8, 16])")
    assert manifest.tags == ("nightly", "release")
    assert manifest.proof is not None
    assert (manifest.proof.cold_s, manifest.proof.warm_s) == (47.4, 1.02)
    assert manifest.proof.verdict is Verdict.WARM
    assert manifest.proof.verified == ("outputs equal to eager", "fresh process")
    assert len(manifest.supersedes) == 1


def test_units(golden: Repository) -> None:
    """Units keep their needs and their origins: the carried ones name the segment they are from."""
    (segment,) = readings(golden)["gpt"].segments
    units = {unit.key: unit for unit in segment.units}
    stem, added = units["inductor/ab/cabstem"], units["aot/forward/0"]
    assert stem.requires == (Requirement("isa", "avx2"), Requirement("glibc", "2.34"))
    assert stem.origin.segment == segment.manifest.supersedes[0]
    assert stem.origin.context["threads"] == "8"
    assert added.origin.segment == segment.name
    assert [str(d) for d in stem.origin.context.diff(added.origin.context)] == ["threads: 8 -> 16"]


def test_superseded(golden: Repository) -> None:
    """The replaced segment still lies in the store, is whole, and counts for nothing."""
    (bundle,) = golden.bundles("gpt")
    both = golden.read(bundle, superseded=True).segments
    assert len(both) == 2
    assert len(readings(golden)["gpt"].segments) == 1


def test_artifacts_and_groups(golden: Repository, tmp_path: Path) -> None:
    """Mega-cache artifacts and Triton groups inside the entries are read as they were written."""
    found = contents(golden, readings(golden)["directories"], tmp_path)
    artifacts = [
        Artifact.from_bytes(data, path)
        for path, data in found.items()
        if path.startswith("megacache/")
    ]
    assert sorted(artifacts) == [
        ("inductor", "fcdkey", b"\x80\x04another"),
        ("inductor", "fcdkey", b"\x80\x04one set of guards"),
        ("pgo", "a key: of any text/..", b""),
    ]
    group = json.loads(localise(found["triton/KERNEL/__grp__kernel.json"], Path("/live"), "group"))
    assert group["child_paths"] == {
        "kernel.cubin": "/live/kernel.cubin",
        "kernel.ttir": "/live/kernel.ttir",
    }


def _comparable(store: DirectoryStore) -> list[dict[str, Any]]:
    """The manifests without what zstd's version decides: the pack, and digests of manifests."""
    repository = Repository(store)
    found = []
    for bundle in repository.bundles():
        for segment in repository.read(bundle, superseded=True).segments:
            value = json.loads(segment.manifest.to_bytes())
            value["pack"] = {**value["pack"], "size": 0, "sha256": ""}
            value["supersedes"] = len(value["supersedes"])
            value["origins"] = [{**o, "segment": bool(o["segment"])} for o in value["origins"]]
            found.append(value)
    return sorted(found, key=lambda value: str(value["created"]))


def test_still_written_so(tmp_path: Path) -> None:
    """The same pushes give the same manifests today: a change of format cannot slip in."""
    today = DirectoryStore(tmp_path / "today")
    runpy.run_path(str(HERE / "make_v1.py"))["write"](today)
    assert _comparable(today) == _comparable(DirectoryStore(HERE / "v1"))


def test_manifests_are_canonical() -> None:
    """The bytes in the store are those that reading and writing again gives."""
    files = sorted((HERE / "v1" / "bundles").rglob("*.json"))
    assert len(files) == 3
    for file in files:
        assert Manifest.parse(file.read_bytes()).to_bytes() == file.read_bytes()


def test_the_documented_example() -> None:
    """The manifest that the format's page shows is one: a writer can start from it."""
    page = (HERE.parents[1] / "docs" / "format.md").read_text("utf-8")
    example = page.rpartition("```json\n")[2].partition("```")[0]
    manifest = Manifest.parse(example.encode())
    assert {unit.section for unit in manifest.units} == {"aot", "inductor", "triton"}


def test_another_reader(tmp_path: Path) -> None:
    """Whoever has JSON, SHA-256 and tar, and the page about the format, gets every byte."""
    manifests = {file: json.loads(file.read_bytes()) for file in (HERE / "v1").rglob("*/*.json")}
    older = {name for manifest in manifests.values() for name in manifest["supersedes"]}
    found: dict[str, dict[str, str]] = {}
    for file, manifest in manifests.items():
        pack = file.with_suffix(".tar.zst")
        assert sha256(file.read_bytes()) == file.stem
        assert sha256(pack.read_bytes()) == manifest["pack"]["sha256"]
        if file.stem in older:
            continue
        folder = tmp_path / file.stem
        folder.mkdir()
        subprocess.run(["tar", "--zstd", "-xf", pack, "-C", folder], check=True)
        entries = [entry for unit in manifest["units"] for entry in unit["entries"]]
        name = manifest["address"]["name"]
        found[name] = {e["path"]: sha256((folder / e["path"]).read_bytes()) for e in entries}
        assert found[name] == {entry["path"]: entry["sha256"] for entry in entries}
    assert found == EXPECTED


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_manifest_of_format_2(copied: DirectoryStore) -> None:
    """A segment of another format is refused by its number; its neighbours are still read."""
    (bundle,) = Repository(copied).bundles("directories")
    (listed,) = bundle.segments
    old = json.loads(copied.get(listed.manifest.key, limit=1 << 20) or b"")
    data = canonical_json({**old, "format": 2, "units": "of another kind"})
    copied.put(f"{bundle.address.prefix}{digest_bytes(data)}.json", data)
    reading = readings(Repository(copied))["directories"]
    assert [segment.name for segment in reading.segments] == [listed.name]
    (refused,) = reading.refused
    assert refused.segment == digest_bytes(data)
    assert "has format 2; this version reads format 1: update tccache" in refused.reason


def test_a_store_of_format_2(copied: DirectoryStore) -> None:
    """A store that bears the mark of another format is refused by its number."""
    copied.delete("tccache.json")
    copied.put("tccache.json", b'{"format":2}')
    with pytest.raises(IntegrityError, match=r"has format 2 and this version reads format 1"):
        check_format(copied)


@pytest.fixture
def signed(copied: DirectoryStore) -> DirectoryStore:
    """The golden store with the signatures that were written for it."""
    for manifest in Path(copied.path).rglob("*.json"):
        if manifest.name != "tccache.json":
            name = f"{manifest.stem}.sig"
            shutil.copy(HERE / "v1-signed" / name, manifest.with_name(name))
    return copied


def test_the_signatures_are_still_right(signed: DirectoryStore, tmp_path: Path) -> None:
    """Every byte is read by who trusts either of the keys, and none by who trusts another one."""
    keys = read_public_keys(HERE / "v1-signed" / "keys.pub")
    assert len(keys) == 2
    for key in keys:
        repository = Repository(signed, Trust(frozenset({key})))
        found = {n: contents(repository, r, tmp_path) for n, r in readings(repository).items()}
        assert {n: {p: digest_bytes(d) for p, d in f.items()} for n, f in found.items()} == EXPECTED
    other = Repository(signed, Trust(frozenset({"0" * 64})))
    assert not any(reading.segments for reading in readings(other).values())


def test_signatures_are_still_written_so(tmp_path: Path) -> None:
    """Byte for byte: Ed25519 signs the same bytes by the same key in one way only."""
    shutil.copytree(HERE / "v1", tmp_path / "v1")
    runpy.run_path(str(HERE / "make_v1_signed.py"))["write"](tmp_path)
    written = {path.name: path.read_bytes() for path in (tmp_path / "v1-signed").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (HERE / "v1-signed").iterdir()}
    assert len(written) == 4
