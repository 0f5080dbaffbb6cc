"""Signed pushes and pulls by keys: of what is not signed nothing comes into a live directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.errors import TccacheError, UntrustedError, UsageError
from cachesvc.local.host import read_environment
from cachesvc.local.ledger import Ledger
from cachesvc.local.megafile import Artifact, put_together
from cachesvc.local.places import RECORDS
from cachesvc.start.access import access
from cachesvc.start.inspect import show
from cachesvc.start.keys import make_key
from cachesvc.start.lookup import lookup
from cachesvc.start.pull import Pulled, pull
from cachesvc.start.push import push

GOOD, EVIL, MINE = "fxgraph/xy/good", "fxgraph/xy/evil", "fxgraph/xy/mine"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TCCACHE_TRUST"):
        monkeypatch.delenv(name, raising=False)
    for key in "AB":
        make_key(tmp_path / key)


class Place:
    """A store, keys A and B, and the live directory of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def push(self, *units: str, key: str | None = None, **options: Any) -> str | None:
        """Publishes directories that hold these units, signed by a key or not."""
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        for unit in units:
            (tree / unit).mkdir(parents=True)
            (tree / unit / "entry").write_text(unit)
        said = access("store", self.folder / key) if key else "store"
        pushed = push("m", store=self.store, trust=said, inductor_dir=tree, **options)
        return pushed.publication.segment

    def pull(self, *keys: str, **options: Any) -> Pulled:
        said = [self.folder / f"{key}.pub" for key in keys] or "store"
        return pull("m", store=self.store, trust=said, **options)

    @property
    def live(self) -> Path:
        return self.folder / "home" / "live" / read_environment().digest[:16]

    def held(self) -> set[str]:
        """The units in the live directory."""
        inductor = self.live / "inductor"
        files = inductor.rglob("entry")
        return {file.parent.relative_to(inductor).as_posix() for file in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_signed_is_pulled_with_the_key(place: Place) -> None:
    """And is known from then on as signed."""
    place.push(GOOD, key="A")
    assert place.pull("A").transfer.seeded == 1
    assert place.held() == {GOOD}
    signers = Ledger.read(place.live / RECORDS).signers
    (public,) = make_public(place, "A")
    assert signers == {f"inductor/{GOOD}": frozenset({public})}
    again = place.pull("A", "B")
    assert (again.transfer.seeded, again.transfer.in_place, again.notes) == (0, 1, ())


def make_public(place: Place, name: str) -> tuple[str, ...]:
    from cachesvc.start.keys import read_key

    return read_key(place.folder / f"{name}.pub").public


@pytest.mark.parametrize("by", [None, "B"])
def test_what_is_not_signed_by_the_key_is_refused(place: Place, by: str | None) -> None:
    """By its class, with what to do; nothing of it was brought."""
    segment = place.push(EVIL, key=by)
    with pytest.raises(UntrustedError, match="nothing trusted") as caught:
        place.pull("A")
    assert str(segment) in str(caught.value)
    assert place.held() == set()
    assert lookup("m", store=place.store, trust=place.folder / "A.pub").hit is False


def test_beside_what_is_not_trusted(place: Place) -> None:
    """The trusted part is used, the other is told."""
    place.push(GOOD, key="A")
    evil = place.push(EVIL, key="B")
    pulled = place.pull("A")
    assert place.held() == {GOOD}
    assert [str(evil) in note and "not trusted here" in note for note in pulled.notes] == [True]


def test_a_directory_from_before_keys_were_trusted(place: Place) -> None:
    """What an earlier start has brought from anybody goes before the compiler sees it; what only
    lies there because the same was signed too stays."""
    place.push(EVIL, GOOD)
    place.pull()
    assert place.held() == {EVIL, GOOD}
    (place.live / "inductor" / MINE).mkdir(parents=True)
    (place.live / "inductor" / MINE / "entry").write_text("made here")
    place.push(GOOD, key="A")
    pulled = place.pull("A")
    assert place.held() == {GOOD, MINE}
    assert any("removed from" in note for note in pulled.notes)
    assert not any("removed from" in note for note in place.pull("A").notes)


def test_nothing_trusted_any_more(place: Place) -> None:
    """It goes even where nothing comes in its place."""
    place.push(EVIL)
    place.pull()
    with pytest.raises(UntrustedError):
        place.pull("A")
    assert place.held() == set()


def test_a_receipt_counts_for_those_who_ask_for_no_more(place: Place) -> None:
    """What was found in place under one trust is looked at again under another."""
    place.push(GOOD, key="A")
    place.pull()
    assert place.pull("A").notes != ()  # unsigned, as far as the first pull had looked
    assert place.pull("A").notes == ()
    with pytest.raises(UntrustedError):
        place.pull("B")
    assert place.held() == set()


def test_a_key_signs_what_was_made_here_alone(place: Place) -> None:
    """What others have pushed and this machine has pulled is not pushed again as one's own."""
    place.push(EVIL)
    place.pull()
    (place.live / "inductor" / MINE).mkdir(parents=True)
    (place.live / "inductor" / MINE / "entry").write_text("made here")
    said = access("store", place.folder / "A")
    pushed = push("m", store=place.store, trust=said)
    assert pushed.publication.added == 1
    assert any(EVIL in text and "not signed" in text for text in pushed.warnings)
    shutil.rmtree(place.folder / "home")
    place.pull("A")
    assert place.held() == {MINE}


def test_a_key_signs_again_what_it_has_signed(place: Place) -> None:
    """As where a bundle is copied to another store; a directory that the user names is signed by
    that."""
    place.push(GOOD, key="A")
    place.push(EVIL, key="B")
    place.pull("A", "B")
    elsewhere = place.folder / "elsewhere"
    pushed = push("m", store=elsewhere, sign_with=place.folder / "A")
    assert pushed.publication.added == 1
    assert any(EVIL in text for text in pushed.warnings)
    named = push(
        "m", store=elsewhere, sign_with=place.folder / "A", inductor_dir=place.live / "inductor"
    )
    assert named.publication.added == 1


def test_a_graph_that_came_in_a_mega_cache(place: Place) -> None:
    """Loading it leaves the graph in the live directory, under no record of ours; it is no less
    foreign, and neither is the artifact of a graph that was brought as files."""
    file = place.folder / "mega"
    file.write_bytes(put_together([Artifact("inductor", "fabc", b"a graph")]))
    push("m", store=place.store, trust="store", mega=file)
    place.pull()
    for unit in ("fxgraph/ab/fabc", MINE):
        (place.live / "inductor" / unit).mkdir(parents=True)
        (place.live / "inductor" / unit / "entry").write_text(unit)
    pushed = push("m", store=place.store, sign_with=place.folder / "A")
    assert pushed.publication.added == 1
    (manifest,) = (path.with_suffix(".json") for path in place.store.rglob("*.sig"))
    assert [unit["key"] for unit in json.loads(manifest.read_bytes())["units"]] == [
        f"inductor/{MINE}"
    ]


def test_nothing_that_a_key_may_sign(place: Place) -> None:
    """It says why there is nothing to publish."""
    place.push(EVIL)
    place.pull()
    with pytest.raises(TccacheError, match=r"nothing to publish.*not signed"):
        push("m", store=place.folder / "elsewhere", sign_with=place.folder / "A")
    assert not (place.folder / "elsewhere").exists()


def test_who_trusts_keys_signs(place: Place) -> None:
    """Else nobody like this process would use what it pushes; nothing is written."""
    with pytest.raises(UsageError, match="--sign-with"):
        push(
            "m",
            store=place.store,
            trust=place.folder / "A.pub",
            inductor_dir=place.folder,
        )
    assert not place.store.exists()


def test_revoked_and_too_old(place: Place) -> None:
    """Both refuse what is rightly signed; a revoked segment leaves the live directory, too."""
    segment = place.push(GOOD, key="A")
    place.pull("A")
    gone = place.folder / "gone"
    gone.write_text(f"{segment}\n")
    for said in (
        access(place.folder / "A.pub", revoked=gone),
        access("store", revoked=gone),
        access(place.folder / "A.pub", max_age_s=1e-6),
    ):
        with pytest.raises(UntrustedError, match=r"is revoked|was made at"):
            pull("m", store=place.store, trust=said)
        if said.revoked:
            assert place.held() == set()
            place.pull("A")
            assert place.held() == {GOOD}


def test_tampered_with_after_it_was_signed(place: Place) -> None:
    """A pack, a manifest or a signature of other bytes; each alone, and nothing is brought."""
    segment = place.push(GOOD, key="A")
    (manifest,) = place.store.rglob(f"{segment}.json")
    whole = {path: path.read_bytes() for path in manifest.parent.iterdir()}
    assert {path.name.partition(".")[2] for path in whole} == {"json", "sig", "tar.zst"}
    for path, data in whole.items():
        for changed in (data[:-1], bytes([data[0] ^ 1]) + data[1:], b""):
            path.write_bytes(changed)
            with pytest.raises(TccacheError) as caught:
                place.pull("A")
            assert caught.value.exit_code == 4
            assert place.held() == set()
        path.write_bytes(data)
    place.pull("A")
    assert place.held() == {GOOD}


def test_another_manifest_under_a_good_signature(place: Place) -> None:
    """A signature fits the bytes that were signed, at any name."""
    place.push(GOOD, key="A")
    (good,) = place.store.rglob("*.sig")
    evil = place.push(EVIL)
    shutil.copy(good, good.with_name(f"{evil}.sig"))
    pulled = place.pull("A")
    assert place.held() == {GOOD}
    assert any(str(evil) in note and "is not signed" in note for note in pulled.notes)


def test_a_bundle_is_shown_with_who_signed_it(place: Place) -> None:
    """Also to who does not trust by keys."""
    place.push(GOOD, key="A")
    place.push(EVIL)
    (detail,) = show("m", store=place.store)
    assert [segment.signers for segment in detail.segments] == [make_public(place, "A"), ()]


def test_what_a_signature_says_is_json(place: Place) -> None:
    """Public keys and signatures in hex, for other readers."""
    place.push(GOOD, key="A")
    (file,) = place.store.rglob("*.sig")
    said = json.loads(file.read_bytes())
    (one,) = said["signatures"]
    assert said["format"] == 1
    assert (one["algorithm"], (one["key"],)) == ("ed25519", make_public(place, "A"))
