"""The corpus: each hostile input is refused by its reason, or harms nothing, and nothing gets out.

`corpus/` was written by `make_corpus.py`, which says what each file is and what must come of it.
"""

from __future__ import annotations

import json
import os
import runpy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import cachesvc
from cachesvc.core.digest import digest_bytes
from cachesvc.core.spelled import spelled
from cachesvc.local.group import relocate
from cachesvc.local.layout import is_group
from cachesvc.local.megafile import take_apart

HERE = Path(__file__).parent
MADE = runpy.run_path(str(HERE / "make_corpus.py"))
EXPECTED: dict[str, str] = json.loads((HERE / "corpus" / "expected.json").read_text("utf-8"))
FILES: dict[str, bytes] = MADE["FILES"]
ENVIRONMENT = MADE["ENVIRONMENT"].digest
PLACE = f"bundles/hostile/any/{ENVIRONMENT}"


@dataclass
class Attack:
    """A store that a stranger has written, and a home with a canary beside it."""

    folder: Path
    files: dict[str, bytes]
    """What arrives if nothing is refused."""
    trust: str | None = None

    @property
    def live(self) -> Path:
        """The live directory: of the environment alone, or of a trusted key, too."""
        own = self.folder / "home" / "live"
        return next(own.glob(f"{ENVIRONMENT[:16]}*"), own / ENVIRONMENT[:16])

    def put(self, manifest: bytes, pack: bytes) -> None:
        place = self.folder / "store" / PLACE / digest_bytes(manifest)
        place.parent.mkdir(parents=True)
        place.with_suffix(".tar.zst").write_bytes(pack)
        place.with_suffix(".json").write_bytes(manifest)

    def put_files(self, files: dict[str, bytes], units: dict[str, list[str]]) -> None:
        """Puts a segment of these files that is right in all its sizes and digests."""
        tar = MADE["tar_of"](files)
        pack = MADE["frame"](tar)
        manifest = MADE["manifest_of"](files, pack, len(tar), units)
        self.put(json.dumps(manifest).encode(), pack)
        self.files = files

    def pull(self) -> None:
        place = self.folder / "store"
        cachesvc.pull("hostile", store=place, environment=ENVIRONMENT, trust=self.trust)

    def outside(self) -> dict[str, bytes]:
        """Every file but those of the live directory."""
        files = (f for f in self.folder.rglob("*") if f.is_file() and self.live not in f.parents)
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}

    def inside(self) -> dict[str, bytes]:
        """Every file of the live directory as an entry has it, records left out."""
        found = {
            str(f.relative_to(self.live)): f.read_bytes()
            for f in self.live.rglob("*")
            if not f.is_dir()
        }
        return {
            path: relocate(data, path) if is_group(path) else data
            for path, data in found.items()
            if os.path.dirname(path) != ".tccache"
        }


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attack:
    for name in ("home", "tmp", "store", "here"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "outside").write_text("canary")
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path / "here")
    for name in ("fsync", "fdatasync"):  # no power fails here
        monkeypatch.setattr(os, name, lambda descriptor: None)
    return Attack(tmp_path, dict(FILES))


def as_manifest(attack: Attack, data: bytes, _: str) -> None:
    """A manifest beside the pack that the good one names."""
    attack.put(data, MADE["frame"](MADE["tar_of"](FILES)))


def as_tar(attack: Attack, data: bytes, _: str) -> None:
    """A tar in a good frame."""
    as_pack(attack, MADE["frame"](data), "")


def as_pack(attack: Attack, data: bytes, _: str) -> None:
    """A pack that the manifest names by its size and digest, and calls as large as it may be."""
    most = sum(map(len, FILES.values())) + 4096 * len(FILES) + 65536
    attack.put(json.dumps(MADE["manifest_of"](FILES, data, most)).encode(), data)


def as_group(attack: Attack, data: bytes, _: str) -> None:
    attack.put_files(FILES | {MADE["GROUP"]: data}, MADE["UNITS"])


def as_artifact(attack: Attack, data: bytes, _: str) -> None:
    attack.put_files({"megacache/t/k/c": data}, {"megacache/t/k": ["megacache/t/k/c"]})


def as_mega(attack: Attack, data: bytes, _: str) -> None:
    (attack.folder / "outside.mega").write_bytes(data)


def as_signature(attack: Attack, data: bytes, _: str) -> None:
    """What lies beside the good manifest, for a reader that trusts one key."""
    attack.put(
        MADE["canonical_json"](MADE["good_manifest"]()), MADE["frame"](MADE["tar_of"](FILES))
    )
    (manifest,) = (attack.folder / "store").rglob("*.json")
    manifest.with_suffix(".sig").write_bytes(data)
    key = MADE["KEY"].public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (attack.folder / "key.pub").write_bytes(pem)
    attack.trust = str(attack.folder / "key.pub")


def as_record(attack: Attack, data: bytes, name: str) -> None:
    """A record, as the last start is said to have left it."""
    record = attack.live / ".tccache" / f"{name.split('.')[1]}.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(data)
    attack.put_files(FILES, MADE["UNITS"])


PLANTED: dict[str, Callable[[Attack, bytes, str], None]] = {
    "manifest.json": as_manifest,
    "tar": as_tar,
    "zst": as_pack,
    "grp": as_group,
    "artifact": as_artifact,
    "mega": as_mega,
    "sig": as_signature,
    "ledger.json": as_record,
    "quarantine.json": as_record,
}


def act(attack: Attack, kind: str) -> None:
    """What a user does with it."""
    if kind == "mega":
        trees: dict[str, Any] = {"mega": attack.folder / "outside.mega"}
        cachesvc.push("hostile", store=attack.folder / "mine", environment=_environment(), **trees)
    elif kind == "artifact":
        target = attack.live / "mega"
        cachesvc.pull(
            "hostile", store=attack.folder / "store", environment=ENVIRONMENT, mega=target
        )
        assert take_apart(target.read_bytes(), "it")[0].content == MADE["RUNS"]
        target.unlink()
        attack.files = {}
    else:
        attack.pull()


def _environment() -> dict[str, str]:
    return {
        "torch": "2.11.0", "torch_git": "70d99e9", "triton": "3.6.0", "runtime": "cuda-13.0",
        "device": "NVIDIA H200", "capability": "9.0", "python": "cpython-312-x86_64-linux-gnu",
        "platform": "linux-x86_64-glibc",
    }  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, id=n) for n in sorted(EXPECTED)])
def test_hostile_input(attack: Attack, name: str) -> None:
    """It is refused by its reason, with nothing left of it; or all that arrives is right. Either
    way nothing is unpickled, and no file outside the live directory is written or changed."""
    kind = name.partition(".")[2]
    PLANTED[kind](attack, (HERE / "corpus" / name).read_bytes(), name)
    before = attack.outside()
    expected = EXPECTED[name]
    if expected == "harmless":
        act(attack, kind)
        if kind != "mega":
            assert attack.inside() == attack.files
    else:
        with pytest.raises(cachesvc.TccacheError) as caught:
            act(attack, kind)
        said = str(caught.value)
        assert caught.value.exit_code == 4
        assert expected in said
        assert said == spelled(said)
        assert len(said) < 10_000
        assert not attack.inside()
    after = {path: data for path, data in attack.outside().items() if path[:5] != "mine/"}
    assert after == before


def test_the_corpus_is_what_its_generator_makes() -> None:
    """Every file is there, byte by byte, with what must come of it; several of each kind."""
    made = MADE["corpus"]()
    assert {name: text for name, (_, text) in made.items()} == EXPECTED
    found = {file.name: file.read_bytes() for file in (HERE / "corpus").iterdir()}
    del found["expected.json"], found[".gitattributes"]
    assert found == {name: data for name, (data, _) in made.items()}
    kinds = Counter(name.partition(".")[2] for name in made)
    assert kinds.keys() == PLANTED.keys()
    assert min(kinds.values()) >= 9
    assert sum(kinds.values()) > 200
