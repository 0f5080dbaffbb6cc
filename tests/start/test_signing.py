"""Signed pushes and pulls by keys: of what is not signed nothing comes into a live directory."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError, UntrustedError, UsageError
from cachesvc.local.host import read_environment
from cachesvc.local.ledger import Ledger
from cachesvc.local.megafile import Artifact, put_together
from cachesvc.local.places import RECORDS
from cachesvc.runtime import directories
from cachesvc.runtime.directories import current
from cachesvc.start.access import access
from cachesvc.start.bundles import neighbour
from cachesvc.start.goods import from_trees
from cachesvc.start.graphs import show_code
from cachesvc.start.inspect import show
from cachesvc.start.keys import make_key
from cachesvc.start.lookup import lookup
from cachesvc.start.publishing import facts_of, publish_goods
from cachesvc.start.pull import Pulled, pull
from cachesvc.start.push import push
from cachesvc.start.scope import scope_of
from cachesvc.start.settings import open_repository
from cachesvc.start.target import Target, target
from cachesvc.start.transfer import holdings
from cachesvc.start.trees import Trees

GOOD, EVIL, MINE = "fxgraph/xy/good", "fxgraph/xy/evil", "fxgraph/xy/mine"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    # Whatever tests before these have compiled in this process.
    monkeypatch.setattr(directories, "_are_settled", lambda: False)
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

    def live(self, *keys: str) -> Path:
        """Inductor's part of the live directory of who trusts these keys."""
        said = access([self.folder / f"{key}.pub" for key in keys] or "store")
        return current(read_environment().digest, scope_of(said)).folder("inductor")

    def held(self, *keys: str) -> set[str]:
        """The units in that directory."""
        inductor = self.live(*keys)
        files = inductor.rglob("entry")
        return {file.parent.relative_to(inductor).as_posix() for file in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_signed_is_pulled_with_the_key(place: Place) -> None:
    """And is known from then on as signed."""
    place.push(GOOD, key="A")
    assert place.pull("A").transfer.seeded == 1
    assert place.held("A") == {GOOD}
    signers = Ledger.read(place.live("A").parent / RECORDS).signers
    (public,) = make_public(place, "A")
    assert signers == {f"inductor/{GOOD}": frozenset({public})}
    again = place.pull("A")
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
    assert place.held("A") == set()
    assert lookup("m", store=place.store, trust=place.folder / "A.pub").hit is False
    with pytest.raises(UntrustedError, match=str(segment)):
        show_code("m", "evil", store=place.store, trust=place.folder / "A.pub")


def test_beside_what_is_not_trusted(place: Place) -> None:
    """The trusted part is used, the other is told."""
    place.push(GOOD, key="A")
    evil = place.push(EVIL, key="B")
    pulled = place.pull("A")
    assert place.held("A") == {GOOD}
    assert [str(evil) in note and "not trusted here" in note for note in pulled.notes] == [True]


def test_a_directory_from_before_keys_were_trusted(place: Place) -> None:
    """What was brought from anybody stays apart: whoever trusts keys has a directory of its own,
    one for each set of keys, and what is revoked there starts a new one."""
    place.push(EVIL)
    place.push(GOOD, key="A")
    place.pull()
    assert place.held() == {EVIL, GOOD}
    place.pull("A")
    assert place.held("A") == {GOOD}
    assert place.held() == {EVIL, GOOD}
    gone = place.folder / "gone"
    gone.write_text(f"{'0' * 64}\n")
    said = access(place.folder / "A.pub", revoked=gone)
    assert pull("m", store=place.store, trust=said).transfer.seeded == 1
    with pytest.raises(UntrustedError):
        place.pull("B")
    assert place.held("B") == set()


@pytest.mark.parametrize("first", [(), ("A",)])
def test_a_directory_that_the_user_set(
    place: Place, monkeypatch: pytest.MonkeyPatch, first: tuple[str, ...]
) -> None:
    """It is filled under one trust for all its life, and passed over under any other, told."""
    place.push(GOOD, key="A")
    own = place.folder / "own"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(own))
    other: tuple[str, ...] = ("A", "B") if first else ("A",)
    assert dict(place.pull(*first).directories)["inductor"] == str(own)
    pulled = place.pull(*other)
    assert dict(pulled.directories)["inductor"] != str(own)
    assert any("passed over" in note and "another trust" in note for note in pulled.notes)
    again = place.pull(*first)
    assert (dict(again.directories)["inductor"], again.transfer.seeded) == (str(own), 0)
    if first:
        assert dict(place.pull().directories)["inductor"] != str(own)


def test_a_triton_directory_that_the_user_set(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was brought to it from anybody is neither used nor signed by who trusts keys."""
    tree = place.folder / "kernels"
    make(tree / "KERNEL")
    push("m", store=place.store, trust="store", triton_dir=tree)
    place.push(GOOD, key="A")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place.folder / "triton"))
    assert place.pull().transfer.seeded == 2
    assert (place.folder / "triton" / "KERNEL" / "entry").exists()
    pulled = place.pull("A")
    assert any("TRITON_CACHE_DIR" in note and "another trust" in note for note in pulled.notes)
    make(place.live("A") / MINE)
    pushed = push("m", store=place.folder / "elsewhere", sign_with=place.folder / "A")
    assert (pushed.units, pushed.publication.added) == (2, 2)


def test_directories_that_are_named(place: Place) -> None:
    """The same holds for them; there is nothing to pass them over for."""
    place.push(GOOD, key="A")
    place.pull(inductor_dir=place.folder / "named")
    with pytest.raises(UntrustedError, match="name another directory"):
        place.pull("A", inductor_dir=place.folder / "named")
    place.pull("A", inductor_dir=place.folder / "other")
    with pytest.raises(UntrustedError, match="name another directory"):
        place.pull(inductor_dir=place.folder / "other")


def test_a_receipt_counts_for_those_who_ask_for_no_more(place: Place) -> None:
    """What was found in place is looked at again where an age is asked for."""
    place.push(GOOD, key="A")
    for _ in range(2):
        assert place.pull("A").notes == ()
    said = access(place.folder / "A.pub", max_age_s=1e-6)
    with pytest.raises(UntrustedError, match="was made at"):
        pull("m", store=place.store, trust=said)


def test_a_key_signs_what_was_made_here_alone(place: Place) -> None:
    """What others have pushed, and this machine has pulled as it trusts them too, is not pushed
    as one's own; what this key has signed is, as where a bundle is copied to another store."""
    place.push(GOOD, key="A")
    place.push(EVIL, key="B")
    both = [place.folder / "A.pub", place.folder / "B.pub"]
    place.pull("A", "B")
    make(place.live("A", "B") / MINE)
    pushed = push("m", store=place.folder / "elsewhere", trust=access(both, place.folder / "A"))
    assert pushed.publication.added == 2
    assert [EVIL in text and "not signed" in text for text in pushed.warnings] == [True]
    shutil.rmtree(place.folder / "home")
    pull("m", store=place.folder / "elsewhere", trust=place.folder / "A.pub")
    assert place.held("A") == {GOOD, MINE}


def test_what_anybody_may_have_filled_is_not_signed(place: Place) -> None:
    """Not even what seems to be made here: code that has run may have left anything. What the user
    names is signed, as that is what a flag means."""
    place.push(EVIL)
    place.pull()
    make(place.live() / MINE)
    said = access("store", place.folder / "A")
    with pytest.raises(UsageError, match=r"cannot be signed.*name the directories"):
        push("m", store=place.store, trust=said)
    named = push("m", store=place.store, trust=said, inductor_dir=place.live())
    assert named.publication.added == 2


def make(unit: Path) -> None:
    """What a compiler leaves."""
    unit.mkdir(parents=True)
    (unit / "entry").write_text("made here")


def test_a_graph_that_came_in_a_mega_cache(place: Place) -> None:
    """Loading it leaves the graph in the live directory, under no record of ours; it is no less
    foreign, and neither is the artifact of a graph that was brought as files."""
    file = place.folder / "mega"
    file.write_bytes(put_together([Artifact("inductor", "fabc", b"a graph")]))
    push("m", store=place.store, trust=access("store", place.folder / "B"), mega=file)
    both = [place.folder / "A.pub", place.folder / "B.pub"]
    place.pull("A", "B")
    for unit in ("fxgraph/ab/fabc", MINE):
        make(place.live("A", "B") / unit)
    elsewhere = place.folder / "elsewhere"
    pushed = push("m", store=elsewhere, trust=access(both, place.folder / "A"))
    assert pushed.publication.added == 1
    (manifest,) = (path.with_suffix(".json") for path in elsewhere.rglob("*.sig"))
    assert [unit["key"] for unit in json.loads(manifest.read_bytes())["units"]] == [
        f"inductor/{MINE}"
    ]


def test_nothing_that_a_key_may_sign(place: Place) -> None:
    """It says why there is nothing to publish."""
    place.push(EVIL, key="B")
    place.pull("A", "B")
    both = [place.folder / "A.pub", place.folder / "B.pub"]
    with pytest.raises(TccacheError, match=r"nothing to publish.*not signed"):
        push("m", store=place.folder / "elsewhere", trust=access(both, place.folder / "A"))
    assert not (place.folder / "elsewhere").exists()


@pytest.mark.parametrize("revoked", [False, True])
def test_a_key_that_is_not_trusted_here_does_not_sign(place: Place, revoked: bool) -> None:
    """Readers like this one would pass over what it wrote, and each push would write it again."""
    gone = place.folder / "gone"
    gone.write_text(f"{make_public(place, 'A')[0]}\n" if revoked else "")
    trusted = place.folder / ("A.pub" if revoked else "B.pub")
    with pytest.raises(UsageError, match="not trusted here, or is revoked"):
        push(
            "m",
            store=place.store,
            trust=access(trusted, place.folder / "A", revoked=gone),
            inductor_dir=place.folder,
        )
    assert not place.store.exists()


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


def test_what_a_revoked_list_alone_asks_for_is_no_signature(place: Place) -> None:
    """A directory that was filled for anybody but one is not signed either."""
    (place.folder / "gone").write_text("")
    place.push(EVIL)
    said = access("store", place.folder / "A", revoked=place.folder / "gone")
    pull("m", store=place.store, trust=said)
    with pytest.raises(UsageError, match="cannot be signed"):
        push("m", store=place.store, trust=said)


def test_rubbish_hides_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle of which nothing is trusted is passed over, as if it were not there: under the
    model's own address, and as the neighbour that may serve."""
    place.push(GOOD, key="A")
    model = torch.nn.Linear(2, 2)
    goal = target(model, label="m")
    for number in range(20):
        components = Components.of({"class": f"other {number}"}) if number else goal.model
        rubbish(place, goal, components)
    found = pull(model, label="m", store=place.store, trust=place.folder / "A.pub")
    assert found.transfer.seeded == 1
    assert lookup(model, label="m", store=place.store, trust=place.folder / "A.pub").units == 1
    repository = open_repository(place.store, place.folder / "A.pub")
    assert repository.keys == ()
    listed = repository.bundles("m")
    assert len(listed) == 21
    goal = replace(goal, model=Components.of({"class": "none of these"}))
    chosen = neighbour(repository, listed, goal, Components())
    assert chosen is not None
    assert [bundle.address.model for bundle in chosen.bundles] == ["any"]


def rubbish(place: Place, goal: Target, components: Components) -> None:
    """A younger unsigned bundle of another model."""
    address = replace(goal.address, model=components.digest)
    tree = place.folder / "rubbish"
    make(tree / EVIL) if not tree.exists() else None
    publish_goods(
        open_repository(place.store, "store"),
        replace(goal, address=address, model=components),
        facts_of(replace(goal, address=address, model=components)),
        lambda: from_trees(Trees(tree, None, None, {})),
    )


def test_what_others_have_pushed_covers_nothing_that_a_key_signs(place: Place) -> None:
    """So a program run with a key publishes what it made, though an unsigned segment has it."""
    place.push(MINE)
    said = access("store", place.folder / "A")
    repository = open_repository(place.store, said, signs=True)
    (bundle,) = repository.bundles("m")
    found = holdings(repository, [bundle], foreign=False, signed=True)
    assert set(found.units) == {f"inductor/{MINE}"}
    assert found.signed_by(repository.signing) == {}
    assert set(found.signed_by(frozenset())) == set(found.units)


def test_revoked_and_too_old(place: Place) -> None:
    """Both refuse what is rightly signed, and nothing of it is in the live directory."""
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
    for said in (access(place.folder / "A.pub", revoked=gone), access("store", revoked=gone)):
        live = current(read_environment().digest, scope_of(said))
        assert not list(live.root.rglob("entry"))


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
            assert place.held("A") == set()
        path.write_bytes(data)
    place.pull("A")
    assert place.held("A") == {GOOD}


def test_another_manifest_under_a_good_signature(place: Place) -> None:
    """A signature fits the bytes that were signed, at any name."""
    place.push(GOOD, key="A")
    (good,) = place.store.rglob("*.sig")
    evil = place.push(EVIL)
    shutil.copy(good, good.with_name(f"{evil}.sig"))
    pulled = place.pull("A")
    assert place.held("A") == {GOOD}
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
