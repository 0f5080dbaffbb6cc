"""push, pull and lookup by name, with directories and files that a user names."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.errors import (
    BundleNotFound,
    IntegrityError,
    StoreError,
    TccacheError,
    UsageError,
)
from cachesvc.core.manifest import Origin
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.local.host import read_environment
from cachesvc.local.in_use import is_in_use
from cachesvc.local.megafile import Artifact, put_together, take_apart
from cachesvc.repository.pack import Source
from cachesvc.repository.publish import Draft, Facts, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.runtime.directories import current
from cachesvc.start.lookup import lookup
from cachesvc.start.pull import Pulled, pull
from cachesvc.start.push import Pushed, push
from cachesvc.start.work import Work
from cachesvc.store.contract import Store
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.streams import Target
from cachesvc.store.wrapper import Wrapper

KERNEL = {"__grp__kernel.json": '{"child_paths": {"kernel.cubin": "%s/kernel.cubin"}}'}
INDUCTOR = {
    "ab/cabcdef.py": "code",
    "ab/cabcdef.main.cpp": "more code",
    "fxgraph/xy/fkey/entry": "graph",
    "aotautograd/akey/entry": "autograd",
    "locks/cabcdef.lock": "",
    "fxgraph/xy/fkey/.12.tmp": "half",
}
KEPT = {path for path in INDUCTOR if "lock" not in path and ".tmp" not in path}


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def read(folder: Path) -> dict[str, str]:
    """The files of a folder, without this library's own records."""
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: p.read_text() for name, p in found.items() if not name.startswith(".tccache")}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def inductor(tmp_path: Path) -> Path:
    return write(tmp_path / "inductor", INDUCTOR)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live directory of its own, and no store that a test did not name."""
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)


def test_directories_come_back_as_they_were(store: Path, inductor: Path, tmp_path: Path) -> None:
    """Byte for byte, without locks and temporaries; a moved Triton group finds its files."""
    triton = write(tmp_path / "triton", {"KEY/kernel.cubin": "binary"})
    write(triton / "KEY", {n: text % (triton / "KEY") for n, text in KERNEL.items()})
    pushed = push("name", store=store, inductor_dir=inductor, triton_dir=triton)
    assert (pushed.units, pushed.files) == (4, 6)
    assert dict(pushed.skipped) == {"temporary": 2}
    to = tmp_path / "there"
    pulled = pull("name", store=store, inductor_dir=to / "i", triton_dir=to / "t")
    assert read(to / "i") == {path: INDUCTOR[path] for path in KEPT}
    group = json.loads((to / "t/KEY/__grp__kernel.json").read_text())
    assert Path(group["child_paths"]["kernel.cubin"]).read_text() == "binary"
    assert dict(pulled.directories) == {"inductor": str(to / "i"), "triton": str(to / "t")}
    assert pulled.transfer.seeded == 4
    assert pull("name", store=store, inductor_dir=to / "i").transfer.in_place == 3


def test_a_second_push_of_the_same_writes_nothing(store: Path, inductor: Path) -> None:
    """And one with more units writes one segment that holds them all."""
    first = push("name", store=store, inductor_dir=inductor)
    assert push("name", store=store, inductor_dir=inductor).publication.segment is None
    write(inductor, {"fxgraph/xy/other/entry": "another graph"})
    added = push("name", store=store, inductor_dir=inductor).publication
    assert (added.added, added.carried) == (1, 3)
    assert added.superseded == (first.publication.segment,)
    assert lookup("name", store=store).units == 4


def test_only_what_is_asked_for_is_brought(store: Path, inductor: Path, tmp_path: Path) -> None:
    """Directories that were not named stay untouched, and are not said to hold anything."""
    logs = write(tmp_path / "logs", {"run/one.txt": "text"})
    push("name", store=store, inductor_dir=inductor, extra={"logs": logs, "vllm.v1": logs})
    pulled = pull("name", store=store, extra={"logs": tmp_path / "back"})
    assert read(tmp_path / "back") == {"run/one.txt": "text"}
    assert dict(pulled.directories) == {"extra/logs": str(tmp_path / "back")}
    assert not (tmp_path / "home").exists()


def test_extra_directories_are_checked(store: Path, tmp_path: Path) -> None:
    """A label that cannot be part of a path, and a directory that is not there."""
    for label in ("", "a/b", "..", ".hidden", "a b"):
        with pytest.raises(UsageError, match="cannot name an extra section"):
            push("name", store=store, extra={label: tmp_path})
    with pytest.raises(UsageError, match="is not a directory"):
        push("name", store=store, extra={"logs": tmp_path / "nowhere"})
    with pytest.raises(UsageError, match="is not a directory"):
        push("name", store=store, inductor_dir=tmp_path / "nowhere")


def test_without_directories_the_live_one_is_meant(
    store: Path, inductor: Path, tmp_path: Path
) -> None:
    """A pull fills it, a push from it has nothing to add; elsewhere it says who made the units."""
    push("name", store=store, inductor_dir=inductor)
    pulled = pull("name", store=store)
    live = dict(pulled.directories)["inductor"]
    assert live.startswith(str(tmp_path / "home"))
    assert read(Path(live)) == {path: INDUCTOR[path] for path in KEPT}
    assert push("name", store=store).publication.segment is None
    push("copy", store=tmp_path / "other")

    def origins(place: Path) -> set[str | None]:
        repository = Repository(DirectoryStore(place))
        (bundle,) = repository.bundles()
        segments = repository.read(bundle).segments
        return {unit.origin.segment for segment in segments for unit in segment.units}

    assert origins(tmp_path / "other") == origins(store)


def test_a_mega_cache_file_goes_through(store: Path, tmp_path: Path) -> None:
    """It is taken apart into units, so two files make a union; the file that comes back holds all
    artifacts of both."""
    artifacts = [Artifact("inductor", f"key{n}", b"x" * n) for n in range(3)]
    for number, some in enumerate((artifacts[:2], artifacts[1:])):
        file = tmp_path / f"mega-{number}"
        file.write_bytes(put_together(some))
        push("name", store=store, mega=file)
    pulled = pull("name", store=store, mega=tmp_path / "back" / "mega.bin")
    back = take_apart((tmp_path / "back" / "mega.bin").read_bytes(), "back")
    assert sorted(back) == artifacts
    assert pulled.artifacts == 3
    assert dict(pulled.directories) == {"megacache": str(tmp_path / "back" / "mega.bin")}


def test_no_artifact_no_mega_cache_file(store: Path, inductor: Path, tmp_path: Path) -> None:
    """Where the bundle has none, no file is written and none is said to be there."""
    push("name", store=store, inductor_dir=inductor)
    pulled = pull("name", store=store, mega=tmp_path / "mega.bin")
    assert (pulled.artifacts, pulled.directories) == (0, ())
    assert not (tmp_path / "mega.bin").exists()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (None, "cannot read the mega-cache file"),
        (b"", "is not a mega-cache file"),
        (b"garbage" * 10, "is not a mega-cache file"),
        (put_together([Artifact("inductor", "key", b"bytes")])[:-1], "not a whole one"),
        (put_together([]), "holds no artifact"),
    ],
    ids=["absent", "empty", "garbage", "cut", "nothing in it"],
)
def test_what_is_no_mega_cache_is_not_pushed(
    store: Path, tmp_path: Path, data: bytes | None, error: str
) -> None:
    """Nothing is written to the store for a file that torch could not load."""
    if data is not None:
        (tmp_path / "mega.bin").write_bytes(data)
    kind = UsageError if data is None else IntegrityError
    with pytest.raises(kind, match=error):
        push("name", store=store, mega=tmp_path / "mega.bin")
    assert not store.exists() or read(store) == {}


def test_nothing_found_is_no_error_unless_required(store: Path, inductor: Path) -> None:
    """A cold start is a normal day; who requires a bundle is told what is missing and where."""
    assert pull("name", store=store) == Pulled((), pull("name", store=store).transfer)
    assert not lookup("name", store=store).hit
    push("other", store=store, inductor_dir=inductor)
    assert not pull("name", store=store).found
    with pytest.raises(BundleNotFound, match=f"no bundle for name .* in {store}"):
        pull("name", store=store, require=True)
    assert pull("other", store=store, require=True).found


def test_nothing_to_publish_is_refused(store: Path, tmp_path: Path) -> None:
    """A bundle is never empty, whether the directory is or just holds nothing of use."""
    write(tmp_path / "empty", {"locks/a.lock": ""})
    with pytest.raises(TccacheError, match="nothing to publish under name/any/"):
        push("name", store=store, inductor_dir=tmp_path / "empty")
    with pytest.raises(TccacheError, match="nothing to publish"):
        push("name", store=store)
    assert not store.exists() or read(store) == {}


def test_names_and_labels(store: Path, inductor: Path) -> None:
    """A label takes the place of the name; what is no name is refused before anything happens."""
    push("anything goes, the label counts", store=store, label="label", inductor_dir=inductor)
    assert lookup("label", store=store).bundles[0].startswith("label/any/")
    assert pull("other", store=store, label="label").found
    for name in ("", "a/b", "../up", ".hidden", "x" * 129, "a b", "é"):
        with pytest.raises(UsageError, match="is not a bundle name"):
            push(name, store=store, inductor_dir=inductor)
        with pytest.raises(UsageError, match="is not a bundle name"):
            pull(name, store=store)
    with pytest.raises(UsageError, match="reads as a model digest"):
        push("a" * 64, store=store, inductor_dir=inductor)


def test_the_store_is_named_or_an_error(
    store: Path, inductor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCCACHE_STORE stands in for the argument."""
    with pytest.raises(UsageError, match="TCCACHE_STORE"):
        push("name", inductor_dir=inductor)
    monkeypatch.setenv("TCCACHE_STORE", str(store))
    push("name", inductor_dir=inductor)
    assert pull("name").found
    assert lookup("name").hit


def test_switched_off_nothing_is_done(
    store: Path, inductor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCCACHE_DISABLE: both say so, and touch neither store nor directories."""
    monkeypatch.setenv("TCCACHE_DISABLE", "1")
    assert "TCCACHE_DISABLE" in push("name", store=store, inductor_dir=inductor).warnings[0]
    assert "TCCACHE_DISABLE" in pull("name", store=store).notes[0]
    assert not store.exists()


def other_machine() -> dict[str, str]:
    return {**read_environment(), "device": "NVIDIA H200", "capability": "9.0"}


@pytest.fixture(params=["components", "printed file", "bare file", "digits"])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Every way to mean another machine's environment."""
    components = other_machine()
    if request.param == "components":
        return components
    if request.param == "digits":
        return Components.of(components).digest[:10]
    printed = request.param == "printed file"
    value = {"schema": "tccache.env/1", "components": components} if printed else components
    (tmp_path / "environment.json").write_text(json.dumps(value))
    return tmp_path / "environment.json"


def test_another_machines_environment(
    store: Path, inductor: Path, tmp_path: Path, foreign: object
) -> None:
    """What was pushed for it is found only by naming it, and moved as it is."""
    push("name", store=store, inductor_dir=inductor, environment=other_machine())
    assert not lookup("name", store=store).hit
    found = lookup("name", store=store, environment=foreign)  # type: ignore[arg-type]
    assert found.hit
    assert found.environment == Components.of(other_machine())
    pulled = pull("name", store=store, environment=foreign, inductor_dir=tmp_path / "to")  # type: ignore[arg-type]
    assert pulled.transfer.seeded == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read the environment"),
        ("text", "is not JSON"),
        ("[1]", "holds no environment"),
        ('{"torch": "2.13"}', "device is missing"),
        ('{"components": {"torch": 7}}', "torch is 7, not a text"),
        ('{"components": "text"}', "torch is missing"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_holds_no_environment(
    store: Path, inductor: Path, tmp_path: Path, content: str | None, reason: str
) -> None:
    """The message says what is wrong with it."""
    file = tmp_path / "environment.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=reason):
        push("name", store=store, inductor_dir=inductor, environment=file)
    with pytest.raises(UsageError, match=reason):
        lookup("name", store=store, environment=file)


def test_digits_that_mean_no_environment_of_the_store(store: Path, inductor: Path) -> None:
    """Digits of nothing, and too few of them to be digits at all."""
    push("name", store=store, inductor_dir=inductor)
    own = read_environment().digest
    assert lookup("name", store=store, environment=own[:8]).hit
    wrong = "0" if own[0] != "0" else "1"
    with pytest.raises(UsageError, match="is not an environment digest"):
        lookup("name", store=store, environment=wrong * 8)
    with pytest.raises(UsageError, match="cannot read the environment"):
        lookup("name", store=store, environment=own[:3])


def test_a_model_digest_finds_its_bundle_under_any_name(store: Path, tmp_path: Path) -> None:
    """64 digits are looked for in all names; a name brings every model under it."""
    models = [Components.of({"class": kind}) for kind in ("A", "B")]
    for model, path in zip(models, ("ab/a", "ab/b"), strict=True):
        address = Address("name", model.digest, read_environment().digest)
        publish_unit(store, address, path, model=model)
    assert len(pull("name", store=store, inductor_dir=tmp_path / "all").bundles) == 2
    (bundle,) = pull(models[0].digest, store=store, inductor_dir=tmp_path / "one").bundles
    assert bundle.startswith(f"name/{models[0].digest[:12]}")
    assert read(tmp_path / "one") == {"ab/a": "bytes"}


def publish_unit(
    place: Path,
    address: Address,
    path: str,
    requires: tuple[Requirement, ...] = (),
    model: Components = Components(),
) -> None:
    """Publishes a segment with one unit of one file."""
    created = "2030-01-01T00:00:00.000000Z"
    source = Source(f"inductor/{path}", 5, lambda: io.BytesIO(b"bytes"))
    draft = Draft(f"inductor/{path}", (source,), Origin(created, address.model), requires)
    facts = Facts(address, read_environment(), model, created, "0" * 32)
    publish(
        Repository(DirectoryStore(place)),
        facts,
        Reading(address, ()),
        [draft],
        Capabilities(unchecked=True),
    )


def test_units_that_do_not_fit_are_named(store: Path, inductor: Path, tmp_path: Path) -> None:
    """What needs more than this machine has is left out with both values; the rest is brought, and
    a push of this machine's own unit lives beside it."""
    address = Address("name", "any", read_environment().digest)
    publish_unit(store, address, "ab/alien", (Requirement("isa", "avx9000"),))
    with pytest.raises(BundleNotFound, match=r"left out, .*avx9000"):
        pull("name", store=store, require=True)
    assert "avx9000" in lookup("name", store=store).left_out[0]
    push("name", store=store, inductor_dir=inductor)
    pulled = pull("name", store=store, inductor_dir=tmp_path / "to", require=True)
    assert pulled.transfer.seeded == 3
    assert "inductor/ab/alien" in pulled.transfer.left_out[0]
    assert "ab/alien" not in read(tmp_path / "to")


def bad_manifest(store: Path, name: str = "name") -> Path:
    """Puts a manifest that is none into the bundle, under a name of the right form."""
    (folder,) = store.glob(f"bundles/{name}/any/*")
    file = folder / f"{'0' * 64}.json"
    file.write_text("{}")
    return file


def test_a_bad_manifest_is_named_and_the_good_ones_are_used(
    store: Path, inductor: Path, tmp_path: Path
) -> None:
    """One object of one bad writer does not take the bundle from everybody."""
    push("name", store=store, inductor_dir=inductor)
    bad_manifest(store)
    pulled = pull("name", store=store, inductor_dir=tmp_path / "to")
    assert pulled.transfer.seeded == 3
    assert len(pulled.notes) == 1
    assert "0" * 64 in pulled.notes[0]
    assert "0" * 64 in lookup("name", store=store).refused[0]
    pushed = push("name", store=store, inductor_dir=inductor)
    assert pushed.publication.segment is None
    assert "0" * 64 in pushed.warnings[0]


def test_only_bad_manifests_are_an_error(store: Path, inductor: Path, tmp_path: Path) -> None:
    """Nothing usable: the data is wrong, which is not the same as nothing there."""
    push("name", store=store, inductor_dir=inductor)
    bad = bad_manifest(store)
    for file in bad.parent.iterdir():
        if file != bad:
            file.unlink()
    with pytest.raises(IntegrityError, match="nothing usable was found"):
        pull("name", store=store, inductor_dir=tmp_path / "to")
    assert not (tmp_path / "to").exists()


class Moving(Wrapper):
    """A store in which something happens just before the first packs are fetched."""

    def __init__(self, inner: Store, happen: Callable[[], None], times: int = 1) -> None:
        super().__init__(inner)
        self._happen = happen
        self._left = times
        self.lists = 0

    def _list(self, prefix: str):  # type: ignore[no-untyped-def]
        self.lists += 1
        return super()._list(prefix)

    def _fetch(self, key: str, target: Target) -> int | None:
        if key.endswith(".tar.zst") and self._left:
            self._left -= 1
            self._happen()
        return super()._fetch(key, target)


def remove_segment(store: Path, pushed: Pushed, *suffixes: str) -> None:
    for suffix in suffixes:
        (file,) = store.rglob(f"{pushed.publication.segment}{suffix}")
        file.unlink()


def test_a_pack_that_went_away_is_looked_for_again(
    store: Path, inductor: Path, tmp_path: Path
) -> None:
    """Merged and deleted between listing and fetching: the second look finds the merged one."""
    first = push("name", store=store, inductor_dir=inductor)

    def merge() -> None:
        write(inductor, {"fxgraph/xy/other/entry": "another graph"})
        push("name", store=store, inductor_dir=inductor)
        remove_segment(store, first, ".json", ".tar.zst")

    moving = Moving(DirectoryStore(store), merge)
    pulled = pull("name", store=moving, inductor_dir=tmp_path / "to")
    assert pulled.transfer.seeded == 4
    assert moving.lists == 2


def test_a_pack_that_stays_away_is_an_error(store: Path, inductor: Path, tmp_path: Path) -> None:
    """One more look, no more; and nothing is seeded."""
    pushed = push("name", store=store, inductor_dir=inductor)
    remove_segment(store, pushed, ".tar.zst")
    moving = Moving(DirectoryStore(store), lambda: None)
    with pytest.raises(IntegrityError, match="its manifest names a pack"):
        pull("name", store=moving, inductor_dir=tmp_path / "to")
    assert moving.lists == 2
    assert read(tmp_path / "to") == {}


class Stuck(Wrapper):
    """Its packs come once it is told to send them."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked, self.told = threading.Event(), threading.Event()

    def _fetch(self, key: str, target: Target) -> int | None:
        if key.endswith(".tar.zst"):
            self.asked.set()
            assert self.told.wait(60)
        return super()._fetch(key, target)


def test_a_pull_that_is_left_behind_lets_go_of_its_directory(
    store: Path, inductor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that hangs on a store keeps no collector from the live directory once its time is up."""
    push("name", store=store, inductor_dir=inductor)
    stuck = Stuck(DirectoryStore(store))
    held = []

    def wait(work: Work[Any], seconds: float | None = None) -> bool:
        assert stuck.asked.wait(60)
        held.append(is_in_use(places))
        return work.is_done

    monkeypatch.setattr(Work, "wait", wait)
    places = current(read_environment().digest).places
    with pytest.raises(StoreError, match="nothing was brought"):
        pull("name", store=stuck, deadline=7)
    assert held == [True]
    assert not is_in_use(places)
    stuck.told.set()
    (thread,) = (item for item in threading.enumerate() if item.name == "tccache-start")
    thread.join(60)
    assert not thread.is_alive()
    assert read(places.root / "inductor") == {}


def test_a_damaged_library_is_left_out_and_named(store: Path, tmp_path: Path) -> None:
    """A library that no machine could load is not published; the rest is. Alone it is an error,
    also in a store that has other units."""
    tree = write(tmp_path / "tree", {"ab/cgood.py": "code", "cd/cbad.so": "no library"})
    pushed = push("name", store=store, inductor_dir=tree)
    assert pushed.publication.added == 1
    assert "inductor/cd/cbad is left out" in pushed.warnings[0]
    again = push("name", store=store, inductor_dir=tree)
    assert again.publication.segment is None
    assert "inductor/cd/cbad is left out" in again.warnings[0]
    (tree / "ab/cgood.py").unlink()
    with pytest.raises(IntegrityError, match=r"nothing to publish .*inductor/cd/cbad"):
        push("name", store=store, inductor_dir=tree)


def test_tags_and_coverage_are_kept(store: Path, inductor: Path) -> None:
    """Tags gather over pushes; an empty one is refused."""
    push("name", store=store, inductor_dir=inductor, tags=["nightly"])
    write(inductor, {"fxgraph/xy/other/entry": "another graph"})
    push("name", store=store, inductor_dir=inductor, tags=["v2"])
    repository = Repository(DirectoryStore(store))
    (bundle,) = repository.bundles()
    (segment,) = repository.read(bundle).segments
    assert segment.manifest.tags == ("nightly", "v2")
    with pytest.raises(UsageError, match="is no tag"):
        push("name", store=store, inductor_dir=inductor, tags=[""])
