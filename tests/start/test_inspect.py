"""list, show, remove, verify; and that no damage to a store goes unnoticed or reaches a disk."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from cachesvc.core.errors import BundleNotFound, IntegrityError, UsageError
from cachesvc.local.host import read_environment
from cachesvc.start.inspect import list_bundles, remove, show
from cachesvc.start.pull import pull
from cachesvc.start.push import push
from cachesvc.start.verify import verify


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


FILES = {
    "ab/cabcdef.py": "code" * 100,
    "fxgraph/xy/fkey/entry": "graph",
    "aotautograd/akey/entry": "autograd",
}
LATER = {"fxgraph/xy/later/entry": "another graph"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one bundle of two segments, the second of which supersedes the first, and one
    bundle of another name."""
    folder = tmp_path_factory.mktemp("filled")
    tree = write(folder / "tree", FILES)
    push("name", store=folder / "store", inductor_dir=tree, tags=["first"])
    write(tree, LATER)
    push("name", store=folder / "store", inductor_dir=tree)
    push("name.two", store=folder / "store", extra={"logs": write(folder / "x", {"a": "b"})})
    return folder / "store"


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "store")
    return tmp_path / "store"


def test_list(store: Path) -> None:
    """Every bundle with its live and its superseded segments, and the bytes of all its objects."""
    one, two = list_bundles(store=store)
    assert (one.name, one.model, one.segments) == ("name", "any", 2)
    assert (two.name, two.segments) == ("name.two", 1)
    assert one.environment == read_environment().digest
    files = [path.stat().st_size for path in store.glob("bundles/name/**/*") if path.is_file()]
    assert one.bytes == sum(files)
    assert list_bundles("name", store=store) == (one,)
    assert list_bundles("nothing", store=store) == ()
    assert list_bundles(f"name/an/{one.environment[:5]}", store=store) == (one,)
    with pytest.raises(UsageError):
        list_bundles("no such/name", store=store)


def test_show(store: Path) -> None:
    """The union of the live segments: sections, sizes, tags; the superseded one is not shown."""
    (detail,) = show("name", store=store)
    assert detail.sections == {"inductor": (4, 4, 426)}
    assert len(detail.segments) == 1
    assert detail.segments[0].supersedes == 1
    assert detail.tags == ("first",)
    assert detail.environment == dict(read_environment())
    assert detail.refused == ()
    with pytest.raises(BundleNotFound, match="no bundle nothing in"):
        show("nothing", store=store)


def test_remove(store: Path) -> None:
    """A dry run deletes nothing and counts the same; afterwards the bundle is gone, the other is
    not, and a pull is a clean miss."""
    planned = remove("name", store=store, dry_run=True)
    assert len(list_bundles(store=store)) == 2
    assert remove("name", store=store) == planned
    assert planned.objects == 4
    assert planned.bytes == planned.bundles[0].bytes
    assert [item.name for item in list_bundles(store=store)] == ["name.two"]
    assert not pull("name", store=store, inductor_dir=store.parent / "to").found
    with pytest.raises(BundleNotFound):
        remove("name", store=store)


def test_verify_counts_what_it_has_read(store: Path) -> None:
    """A sound store: superseded segments are checked too, no problem, no orphan."""
    checked = verify(store=store)
    assert checked.ok
    assert (checked.bundles, checked.segments, checked.entries) == (2, 3, 8)
    packs = [path.stat().st_size for path in store.rglob("*.tar.zst")]
    assert checked.bytes == sum(packs)
    assert checked.orphans == ()
    assert verify("name.two", store=store).entries == 1
    with pytest.raises(BundleNotFound):
        verify("nothing", store=store)


def test_packs_without_a_manifest_are_orphans(store: Path) -> None:
    """What a killed pusher leaves is listed, and is no problem to readers."""
    manifest = next(path for path in store.glob("bundles/name.two/**/*.json"))
    manifest.unlink()
    checked = verify(store=store)
    assert checked.ok
    assert [Path(key).suffixes for key in checked.orphans] == [[".tar", ".zst"]]
    assert not pull("name.two", store=store, extra={"logs": store.parent / "to"}).found


def test_verify_names_every_problem(store: Path) -> None:
    """Not only the first one."""
    for pack in store.rglob("*.tar.zst"):
        pack.write_bytes(b"garbage")
    problems = verify(store=store).problems
    assert len(problems) == 3
    assert all("does not have the size and digest" in problem for problem in problems)


DAMAGE = ("flip", "cut", "empty", "grow", "remove", "swap")


def damage(file: Path, kind: str, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    if kind == "flip":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[chance.randrange(len(data)) :]
    elif kind == "empty":
        data.clear()
    elif kind == "grow":
        data += chance.randbytes(chance.randrange(1, 100))
    elif kind == "swap":
        others = [p for p in file.parent.iterdir() if p.suffix == file.suffix and p != file]
        data[:] = others[0].read_bytes() if others else b"{}"
    if kind == "remove":
        file.unlink()
    else:
        file.write_bytes(data)


def seen(store: Path) -> bool:
    """Whether verify notices that something is not as it was."""
    try:
        checked = verify(store=store)
    except IntegrityError:
        return True
    return not checked.ok or bool(checked.orphans) or checked.segments < 3


@pytest.mark.parametrize("kind", DAMAGE)
def test_no_damage_goes_unseen_or_reaches_a_disk(filled: Path, tmp_path: Path, kind: str) -> None:
    """Every object flipped, cut, emptied, grown, removed, swapped with another: verify sees it; a
    pull brings all that is right, or nothing at all, byte for byte."""
    chance = random.Random(f"damage {kind}")
    names = sorted(p.relative_to(filled).as_posix() for p in filled.rglob("*") if p.is_file())
    assert len(names) == 7
    rounds = 6 if kind in ("flip", "cut") else 1
    for number, name in enumerate(names * rounds):
        store = tmp_path / f"store-{number}"
        shutil.copytree(filled, store)
        damage(store / name, kind, chance)
        # A store without a mark is one to which nothing was pushed yet: a mark carries no data.
        assert seen(store) or (name, kind) == ("tccache.json", "remove"), name
        to = tmp_path / f"to-{number}"
        with suppress(IntegrityError):
            pull("name", store=store, inductor_dir=to)
        brought = {
            p.relative_to(to).as_posix(): p.read_text()
            for p in to.rglob("*")
            if p.is_file() and not p.relative_to(to).as_posix().startswith(".tccache")
        }
        # The first segment holds all but the later unit: without the second it is live again.
        assert brought in ({**FILES, **LATER}, FILES, {}), name


def test_a_store_of_another_format_is_refused_by_every_verb(store: Path, tmp_path: Path) -> None:
    """Nothing is read from it and nothing is written into it."""
    (store / "tccache.json").write_text(json.dumps({"format": 2}))
    tree = write(tmp_path / "tree", FILES)
    before = sorted(store.rglob("*"))
    for verb in (
        lambda: list_bundles(store=store),
        lambda: show("name", store=store),
        lambda: remove("name", store=store),
        lambda: verify(store=store),
        lambda: pull("name", store=store),
        lambda: push("name", store=store, inductor_dir=tree),
    ):
        with pytest.raises(IntegrityError, match="has format 2"):
            verb()
    assert sorted(store.rglob("*")) == before
