"""Publication: a push adds one segment or nothing; readers see all of it or nothing of it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import canonical_json, digest_bytes
from cachesvc.core.errors import IntegrityError, StoreError, TccacheError
from cachesvc.core.manifest import Origin
from cachesvc.core.proof import Proof
from cachesvc.core.report import Verdict
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.repository import publish as module
from cachesvc.repository.listing import object_key
from cachesvc.repository.pack import ChangedWhilePacked
from cachesvc.repository.publish import Draft, Publication
from cachesvc.repository.repository import PackMissing
from cachesvc.store.contract import Store
from cachesvc.store.counting import Counting
from cachesvc.store.faulty import Fault, Faulty
from cachesvc.store.location import open_store
from cachesvc.store.streams import Source as Stored
from cachesvc.store.wrapper import Wrapper

from .clocked import Units, write_segment

BIG = Capabilities(isa=frozenset({"avx2", "avx512f"}))


class Watched(Wrapper):
    """Notes the keys that are put, in order."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.puts: list[str] = []

    def _put(self, key: str, source: Stored) -> None:
        super()._put(key, source)
        self.puts.append(key)


def test_the_first_push(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """A push writes the pack and then the manifest, whose digest is the name of both."""
    desk = make_desk(Watched(anywhere))
    wrote = desk.push(desk.draft("triton/K", a=b"1", b=b""), desk.draft("triton/L", c=b"2"))
    pack, manifest = (object_key(desk.address, wrote.segment, kind) for kind in ("tar.zst", "json"))
    assert desk.store.puts == [pack, manifest]
    assert digest_bytes(anywhere.get(manifest, limit=1 << 20) or b"") == wrote.segment
    assert wrote.pack_bytes == len(anywhere.get(pack, limit=1 << 20) or b"")
    assert (wrote.added, wrote.carried, wrote.unpacked_bytes) == (2, 0, 2)
    assert desk.contents() == {"triton/K/a": b"1", "triton/K/b": b"", "triton/L/c": b"2"}


def test_a_covered_push_writes_nothing(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """Units that the store has, though with other bytes, are not written again."""
    desk = make_desk(Counting(anywhere))
    desk.push(desk.draft("triton/K", a=b"1", b=b"2"), desk.draft("triton/L", a=b"3"))
    desk.store.calls.clear()
    again = desk.push(desk.draft("triton/K", a=b"other", b=b"bytes"))
    assert again == Publication(desk.address, None)
    assert desk.store.calls["put"] == 0
    assert desk.store.calls["fetch"] == 1


def test_additions_are_merged(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """What is new comes with all that was there, in one segment that replaces the older ones."""
    desk = make_desk(anywhere)
    first = desk.push(desk.draft("triton/K", a=b"1"))
    second = desk.push(desk.draft("triton/K", a=b"x"), desk.draft("triton/L", a=b"2"))
    third = desk.push(desk.draft("triton/M", a=b"3"))
    assert (second.added, second.carried) == (1, 1)
    assert (third.added, third.carried) == (1, 2)
    assert second.superseded == (first.segment,)
    assert third.superseded == tuple(sorted([first.segment, second.segment]))
    assert [s.name for s in desk.read().segments] == [third.segment]
    assert desk.contents() == {"triton/K/a": b"1", "triton/L/a": b"2", "triton/M/a": b"3"}


def test_a_unit_with_more_files_replaces(desk: Any) -> None:
    """A unit that grew since it was stored replaces the stored one whole; no file is mixed."""
    desk.push(desk.draft("inductor/ab/c", py=b"old", so=b"old"), desk.draft("triton/K", a=b"1"))
    grown = desk.draft("inductor/ab/c", best_config=b"new", py=b"new", so=b"new")
    wrote = desk.push(grown)
    assert (wrote.added, wrote.carried) == (1, 1)
    assert desk.contents() == {
        "inductor/ab/c/best_config": b"new",
        "inductor/ab/c/py": b"new",
        "inductor/ab/c/so": b"new",
        "triton/K/a": b"1",
    }


def test_two_at_once(anywhere: Store, make_desk: Callable[..., Any]) -> None:
    """Two pushers who see nothing of each other lose nothing, and the next push merges them."""
    desk = make_desk(anywhere)
    before = desk.read()
    one = desk.push(desk.draft("triton/K", a=b"1"), reading=before)
    two = desk.push(desk.draft("triton/L", a=b"2"), reading=before)
    assert {s.name for s in desk.read().segments} == {one.segment, two.segment}
    assert desk.contents() == {"triton/K/a": b"1", "triton/L/a": b"2"}
    merged = desk.push(desk.draft("triton/M", a=b"3"))
    assert set(merged.superseded) == {one.segment, two.segment}
    assert [s.name for s in desk.read().segments] == [merged.segment]
    assert len(desk.contents()) == 3


def test_two_mergers_at_once(desk: Any) -> None:
    """Two pushes that both replace the same segment stay both live, and all units are there."""
    desk.push(desk.draft("triton/K", a=b"1"))
    seen = desk.read()
    for letter in "LM":
        desk.push(desk.draft(f"triton/{letter}", a=b"2"), reading=seen)
    assert len(desk.read().segments) == 2
    assert set(desk.contents()) == {"triton/K/a", "triton/L/a", "triton/M/a"}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_union_in_any_order(order: tuple[int, ...], desk: Any) -> None:
    """Whoever writes first, the union of equal keys is the same, and merging keeps it."""
    drafts = [
        [desk.draft("triton/K", a=b"0"), desk.draft("triton/L", a=b"0", b=b"0")],
        [desk.draft("triton/K", a=b"1", b=b"1"), desk.draft("triton/L", a=b"1")],
        [desk.draft("triton/K", a=b"2"), desk.draft("triton/M", a=b"2")],
    ]
    before = desk.read()
    for number in order:
        desk.push(*drafts[number], reading=before)
    union = {
        "triton/K/a": b"1",
        "triton/K/b": b"1",
        "triton/L/a": b"0",
        "triton/L/b": b"0",
        "triton/M/a": b"2",
    }
    assert desk.contents() == union
    desk.push(desk.draft("triton/N", a=b""))
    assert len(desk.read().segments) == 1
    assert desk.contents() == {**union, "triton/N/a": b""}


@pytest.mark.parametrize("failure", ["before", "after"])
@pytest.mark.parametrize("write", [1, 2])
@pytest.mark.parametrize("had", [{}, {"triton/K/a": b"1"}], ids=["empty", "filled"])
def test_a_crash_at_every_write(
    had: dict[str, bytes], write: int, failure: Any, anywhere: Store, make_desk: Callable[..., Any]
) -> None:
    """A pusher that dies at a write, landed or not, leaves all of its push or nothing of it."""
    desk = make_desk(anywhere)
    if had:
        desk.push(desk.draft("triton/K", a=b"1"))
    desk.store = Faulty(anywhere, [Fault("put", failure, first=write)])
    with pytest.raises(StoreError):
        desk.push(desk.draft("triton/L", a=b"2"))
    desk.store = anywhere
    landed = write == 2 and failure == "after"
    assert desk.contents() == had | ({"triton/L/a": b"2"} if landed else {})
    assert not desk.read().refused
    desk.push(desk.draft("triton/L", a=b"2"))
    assert desk.contents() == had | {"triton/L/a": b"2"}


def test_nothing_to_publish(desk: Any) -> None:
    """A bundle is never empty: a push without units is refused, and nothing is written."""
    with pytest.raises(TccacheError, match=r"nothing to publish under gpt/any/.*: no unit was"):
        desk.push()
    assert desk.keys() == []


@pytest.mark.parametrize(
    ("key", "name"), [("triton/.K", "a"), ("other/K", "a"), ("triton/K", "../../x")]
)
def test_what_readers_would_refuse_is_not_written(key: str, name: str, desk: Any) -> None:
    """A manifest that no reader would take never gets into the store, nor does its pack."""
    with pytest.raises(IntegrityError, match="the manifest to be published"):
        desk.push(desk.draft(key, **{name: b"1"}))
    assert desk.keys() == []


def test_a_file_that_changes_is_not_published(desk: Any) -> None:
    """A file that something still writes to stops the push before anything is in the store."""
    draft = desk.draft("triton/K", a=b"1")
    (good,) = draft.sources
    changed = dataclasses.replace(draft, sources=(dataclasses.replace(good, size=2),))
    with pytest.raises(ChangedWhilePacked):
        desk.push(changed)
    assert desk.keys() == []


@pytest.mark.parametrize("damage", ["other", "cut", "flipped", "gone", "entries"])
def test_what_is_damaged_is_not_merged(desk: Any, damage: str) -> None:
    """Bytes that are not what their manifest says are never carried into a segment, and do not keep
    anybody from pushing: they stay beside, and the push names them."""
    units = {"triton/K": {"a": b"1"}}
    if damage == "entries":
        segment = _with_other_digests(desk.store, desk.address, units)
    else:
        segment = write_segment(desk.store, units, address=desk.address)
        _damage(desk.store, object_key(desk.address, segment, "tar.zst"), damage)
    whole = write_segment(desk.store, {"triton/M": {"a": b"3"}}, address=desk.address)
    wrote = desk.push(desk.draft("triton/L", a=b"2"))
    assert (wrote.added, wrote.carried, wrote.superseded) == (1, 1, (whole,))
    (warning,) = wrote.warnings
    said = f"segment {segment[:12]} is damaged, so it stays beside the new one: "
    assert warning.startswith(said)
    assert {found.name for found in desk.read().segments} == {segment, wrote.segment}
    again = desk.push(desk.draft("triton/N", a=b"4"))
    assert (again.carried, len(again.warnings)) == (2, 1)


def test_many_damaged_packs(desk: Any) -> None:
    """However many there are, each is brought once."""
    for number in range(5):
        name = write_segment(desk.store, {f"triton/K{number}": {"a": b"1"}}, address=desk.address)
        _damage(desk.store, object_key(desk.address, name, "tar.zst"), "flipped")
    seen = desk.read()
    desk.store = Counting(desk.store)
    wrote = desk.push(desk.draft("triton/L", a=b"2"), reading=seen)
    assert (wrote.carried, wrote.superseded, len(wrote.warnings)) == (0, (), 5)
    assert desk.store.calls["fetch"] == 5


def test_a_segment_that_is_gone_is_not_damaged(desk: Any) -> None:
    """As a janitor deletes it: what is there now has to be read again, or its units were lost."""
    segment = desk.push(desk.draft("triton/K", a=b"1")).segment
    seen = desk.read()
    for kind in ("json", "tar.zst"):
        desk.store.delete(object_key(desk.address, segment, kind))
    with pytest.raises(PackMissing):
        desk.push(desk.draft("triton/L", a=b"2"), reading=seen)
    assert desk.keys() == []


def _damage(store: Store, key: str, how: str) -> None:
    data = _taken(store, key)
    if how != "gone":
        others = {"other": b"other", "cut": data[:-1], "flipped": bytes([data[0] ^ 1]) + data[1:]}
        store.put(key, others[how])


def _with_other_digests(store: Store, address: Address, units: Units) -> str:
    """A segment whose pack is what its manifest says, and whose entries are not."""
    name = write_segment(store, units, address=address)
    told, pack = (_taken(store, object_key(address, name, kind)) for kind in ("json", "tar.zst"))
    manifest = json.loads(told)
    for entry in manifest["units"][0]["entries"]:
        entry["sha256"] = "0" * 64
    data = json.dumps(manifest).encode()
    name = digest_bytes(data)
    store.put(object_key(address, name, "tar.zst"), pack)
    store.put(object_key(address, name, "json"), data)
    return name


def _taken(store: Store, key: str) -> bytes:
    data = store.get(key, limit=1 << 20)
    store.delete(key)
    return data or b""


def test_large_packs_are_left_alone(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the packs are larger than a push may fetch, it writes its additions beside them."""
    first = desk.push(desk.draft("triton/K", a=b"1"))
    monkeypatch.setattr(module, "MERGE_LIMIT_BYTES", first.pack_bytes - 1)
    desk.store = Counting(desk.store)
    second = desk.push(desk.draft("triton/L", a=b"2"))
    assert (second.added, second.carried, second.superseded) == (1, 0, ())
    assert desk.store.calls["fetch"] == 1
    assert len(desk.read().segments) == 2
    assert desk.contents() == {"triton/K/a": b"1", "triton/L/a": b"2"}


def test_small_packs_beside_a_large_one(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Additions to a large bundle are merged with each other, so segments do not pile up."""
    large = desk.push(desk.draft("triton/K", a=bytes(range(256)) * 20))
    monkeypatch.setattr(module, "MERGE_LIMIT_BYTES", large.pack_bytes - 1)
    for number in range(5):
        desk.push(desk.draft(f"triton/L{number}", a=b"%d" % number))
    live = desk.read().segments
    assert len(live) == 2
    assert large.segment in {segment.name for segment in live}
    assert len(desk.contents()) == 6


def test_units_for_other_hosts_stay_beside(desk: Any) -> None:
    """A segment with a unit that this host cannot use is not merged, nor does it cover anything."""
    desk.host = BIG
    large = desk.push(desk.draft("inductor/ab/c", "avx512f", so=b"512"))
    desk.host = Capabilities(isa=frozenset({"avx2"}))
    assert desk.usable() == set()
    small = desk.push(desk.draft("inductor/ab/c", "avx2", so=b"2"))
    assert (small.added, small.superseded) == (1, ())
    assert {s.name for s in desk.read().segments} == {large.segment, small.segment}


def test_units_that_fit_more_hosts_are_not_lost(desk: Any) -> None:
    """A host that can use both versions of a unit does not take the modest one from the others."""
    modest = Capabilities(isa=frozenset({"avx2"}))
    before = desk.read()
    desk.push(desk.draft("inductor/ab/c", "avx2", so=b"2"), reading=before)
    desk.push(desk.draft("inductor/ab/c", "avx2", "avx512f", so=b"512"), reading=before)
    desk.host = BIG
    for letter in "KLM":
        desk.push(desk.draft(f"triton/{letter}", a=b"1"))
    desk.host = modest
    assert "inductor/ab/c" in desk.usable()
    assert len(desk.read().segments) == 2


def test_a_grown_unit_that_needs_more_stays_beside_too(desk: Any) -> None:
    """The same for a unit that is pushed: with more files and more needs it replaces nothing."""
    desk.push(desk.draft("inductor/ab/c", "avx2", so=b"2"))
    desk.host = BIG
    desk.push(desk.draft("inductor/ab/c", "avx2", "avx512f", py=b"", so=b"512"))
    desk.host = Capabilities(isa=frozenset({"avx2"}))
    assert desk.usable() == {"inductor/ab/c"}


def test_a_unit_that_needs_less_replaces(desk: Any) -> None:
    """A grown unit that every host can use which could use the old one replaces it."""
    desk.host = BIG
    desk.push(desk.draft("inductor/ab/c", "avx2", "avx512f", so=b"512"))
    desk.push(desk.draft("inductor/ab/c", "avx2", py=b"", so=b"2"))
    assert len(desk.read().segments) == 1
    assert desk.contents() == {"inductor/ab/c/py": b"", "inductor/ab/c/so": b"2"}


def test_a_file_that_became_a_folder(desk: Any) -> None:
    """A unit that cannot lie beside the new ones gives way, and the manifest stays readable."""
    desk.push(_file(desk, "extra/x/a", b=b"in a folder"), desk.draft("triton/K", a=b"1"))
    wrote = desk.push(_file(desk, "extra/x", a=b"a file"))
    assert (wrote.added, wrote.carried) == (1, 1)
    assert desk.contents() == {"extra/x/a": b"a file", "triton/K/a": b"1"}


def _file(desk: Any, folder: str, **file: bytes) -> Draft:
    """A unit that is one file, as those of other programs' directories are."""
    draft: Draft = desk.draft(folder, **file)
    return dataclasses.replace(draft, key=draft.sources[0].path)


def test_facts_are_carried_on(desk: Any) -> None:
    """Calls and tags add up over pushes; the youngest proof stands until there is a new one."""
    cold = Proof(cold_s=47.0, verdict=Verdict.COLD)
    desk.push(desk.draft("triton/K", a=b""), coverage=("(b)",), tags=("one",), proof=cold)
    desk.push(desk.draft("triton/L", a=b""), coverage=("(a)",), tags=("two",))
    (segment,) = desk.read().segments
    assert segment.manifest.coverage == ("(a)", "(b)")
    assert segment.manifest.tags == ("one", "two")
    assert segment.manifest.proof == cold
    warm = dataclasses.replace(cold, warm_s=1.0, verdict=Verdict.WARM)
    desk.push(desk.draft("triton/M", a=b""), proof=warm)
    assert desk.read().segments[0].manifest.proof == warm


def test_the_proof_of_a_large_segment_is_known(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Additions beside a large segment carry its proof, since readers ask the youngest manifest."""
    desk.push(desk.draft("triton/K", a=b""), proof=Proof(cold_s=47.0))
    monkeypatch.setattr(module, "MERGE_LIMIT_BYTES", 0)
    desk.push(desk.draft("triton/L", a=b""))
    assert [s.manifest.proof for s in desk.read().segments] == [Proof(cold_s=47.0)] * 2


def test_origins_are_carried_on(desk: Any) -> None:
    """A carried unit still names the segment that first held it, and what compiled it."""
    context = Components.of({"threads": "8"})
    draft = desk.draft("triton/K", a=b"1")
    origin = Origin("2024-01-01T00:00:00.000000Z", "ab" * 32, context)
    first = desk.push(dataclasses.replace(draft, origin=origin))
    for letter in "LM":
        desk.push(desk.draft(f"triton/{letter}", a=b""))
    (segment,) = desk.read().segments
    unit = next(unit for unit in segment.manifest.units if unit.key == "triton/K")
    assert unit.origin == dataclasses.replace(origin, segment=first.segment)


def test_requirements_are_carried_on(desk: Any) -> None:
    """A carried unit still needs what it needed."""
    desk.push(desk.draft("inductor/ab/c", "avx2", so=b""))
    desk.push(desk.draft("triton/K", a=b""))
    units = {unit.key: unit for unit in desk.read().segments[0].manifest.units}
    assert units["inductor/ab/c"].requires == (Requirement("isa", "avx2"),)


def _rewrite(desk: Any, segment: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Puts a changed manifest in place of a segment's, as a newer version would have written it."""
    old = [object_key(desk.address, segment, kind) for kind in ("json", "tar.zst")]
    manifest = json.loads(desk.store.get(old[0], limit=1 << 20))
    change(manifest)
    data = canonical_json(manifest)
    name = digest_bytes(data)
    desk.store.put(object_key(desk.address, name, "tar.zst"), desk.store.get(old[1], limit=1 << 20))
    desk.store.put(object_key(desk.address, name, "json"), data)
    for key in old:
        desk.store.delete(key)
    return name


def test_unknown_fields_are_carried_on(desk: Any) -> None:
    """What a newer version said of a bundle and its units is still said after we merged it.

    Except of the pack: that is another one now.
    """

    def newer(manifest: dict[str, Any]) -> None:
        unit = manifest["units"][0]
        origin = manifest["origins"][unit["origin"]]
        for place in (manifest, manifest["proof"], origin, unit, unit["requires"][0]):
            place["new"] = {"x": [1, None]}
        unit["entries"][0]["new"] = "entry"
        manifest["pack"]["index"] = [0]

    first = desk.push(desk.draft("inductor/ab/c", "avx2", so=b"1"), proof=Proof(cold_s=1.0))
    _rewrite(desk, first.segment, newer)
    desk.push(desk.draft("triton/K", a=b"2"))
    (segment,) = desk.read().segments
    merged = json.loads(segment.manifest.to_bytes())
    unit = next(unit for unit in merged["units"] if unit["key"] == "inductor/ab/c")
    origin = merged["origins"][unit["origin"]]
    for place in (merged, merged["proof"], origin, unit, unit["requires"][0]):
        assert place["new"] == {"x": [1, None]}
    assert unit["entries"][0]["new"] == "entry"
    assert "index" not in merged["pack"]


def test_unknown_fields_of_two_segments(desk: Any) -> None:
    """Where two segments say different things in an unknown field, the youngest stands."""
    before = desk.read()
    for number in range(2):
        wrote = desk.push(desk.draft(f"triton/K{number}", a=b""), reading=before)
        _rewrite(desk, wrote.segment, lambda manifest: manifest.update(new=number))  # noqa: B023
    desk.push(desk.draft("triton/L", a=b""))
    (segment,) = desk.read().segments
    assert segment.manifest.extra == (("new", "1"),)


def test_a_requirement_that_nobody_knows_stays_beside(desk: Any) -> None:
    """A unit with a need of a newer version is neither used nor merged away."""
    first = desk.push(desk.draft("inductor/ab/c", "avx2", so=b"1"))
    name = _rewrite(
        desk,
        first.segment,
        lambda m: m["units"][0]["requires"].append({"kind": "npu", "value": "1"}),
    )
    desk.push(desk.draft("triton/K", a=b""))
    assert name in {segment.name for segment in desk.read().segments}
    assert desk.usable() == {"triton/K"}


def test_a_disk_without_room(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push that cannot write its pack says where and what to do, and leaves the store alone."""
    monkeypatch.setattr(module, "write_pack", _full)
    with pytest.raises(TccacheError, match=r"cannot write to /tmp/x: No space left.*TMPDIR"):
        desk.push(desk.draft("triton/K", a=b"1"))
    assert desk.keys() == []


def test_no_temporary_directory(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any writable temporary directory is told so, not shown a traceback."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(TccacheError, match=r"cannot write to /nowhere.*set TMPDIR"):
        desk.push(desk.draft("triton/K", a=b"1"))


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device", "/tmp/x")


RACER = """
import sys
from pathlib import Path
from cachesvc.store.location import open_store
sys.path.insert(0, sys.argv[1])
from conftest import Desk
desk = Desk(open_store(sys.argv[2]), Path(sys.argv[3]), clock=100 * int(sys.argv[4]))
for number in range(4):
    desk.push(desk.draft(f"triton/K{sys.argv[4]}x{number}", a=b"1" * 100, b=b""))
"""


def test_real_processes_racing(tmp_path: Path, make_desk: Callable[..., Any]) -> None:
    """Four processes push four times each into one directory: nobody fails, no unit is lost."""
    here, store = Path(__file__).parent, tmp_path / "raced"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, here, store, tmp_path, str(number)],
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    assert [racer.communicate()[1].decode() for racer in racers] == [""] * 4
    desk = make_desk(open_store(store), clock=1000)
    names = {f"triton/K{racer}x{number}" for racer in range(4) for number in range(4)}
    assert desk.usable() == names
    assert not desk.read().refused
    desk.push(desk.draft("triton/L", a=b""))
    assert len(desk.read().segments) == 1
    assert {path.rpartition("/")[0] for path in desk.contents()} == names | {"triton/L"}
