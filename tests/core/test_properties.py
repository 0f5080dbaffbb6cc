"""What holds for all manifests, units and segments, over generated ones."""

from __future__ import annotations

import copy
import json
from itertools import permutations
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import canonical_json, digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import Extra
from cachesvc.core.manifest import Entry, Manifest, Origin, Pack, Unit
from cachesvc.core.merge import Segment, fewest_packs, live, merge
from cachesvc.core.outputs import OutputRecord, TensorRecord, rounded
from cachesvc.core.paths import folders_of
from cachesvc.core.proof import Proof
from cachesvc.core.report import Verdict
from cachesvc.core.requirement import Requirement

SIZES = st.integers(0, 9) | st.just(2**63 - 1)
DIGESTS = st.sampled_from(["a" * 64, "0b" * 32, "9" * 64])
TIMES = st.datetimes().map(lambda time: time.isoformat(timespec="microseconds") + "Z")
FEW_TIMES = st.sampled_from(["2025-01-01T00:00:00.000000Z", "2025-01-01T00:00:00.000001Z"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e99, 1e99) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
EXTRAS: st.SearchStrategy[Extra] = st.sampled_from([(), (), (("x-new", '{"a":[1,2.5,null]}'),)])
ANY_EXTRAS: st.SearchStrategy[Extra] = st.dictionaries(TEXT.map("x-{}".format), JSON).map(
    lambda fields: tuple(sorted((k, canonical_json(v).decode()) for k, v in fields.items()))
)
COMPONENTS = st.dictionaries(TEXT, TEXT, max_size=2).map(Components.of)
REQUIREMENTS = st.builds(
    Requirement, st.sampled_from(["isa", "glibc", "new"]), st.sampled_from(["avx2", "2.34"]), EXTRAS
)
CONTEXTS = st.sampled_from([Components(), Components.of({"threads": "8"})])
ORIGINS = st.builds(
    Origin, FEW_TIMES, st.sampled_from(["any", "c" * 64]), CONTEXTS, st.none() | DIGESTS, EXTRAS
)
NUMBERS = st.floats().map(rounded)
SAMPLED = st.builds(
    TensorRecord, TEXT, st.sampled_from(["float32", "int64", "str"]),
    st.lists(st.integers(0, 9), max_size=3).map(tuple), NUMBERS.filter(lambda n: n >= 0),
    st.lists(NUMBERS, max_size=16).map(tuple), EXTRAS,
)  # fmt: skip
OUTPUTS = st.builds(
    OutputRecord, TEXT, st.just("") | DIGESTS, st.just("") | DIGESTS,
    st.lists(SAMPLED, max_size=3).map(tuple), st.integers(0, 99),
    st.none() | st.floats(0, 1), EXTRAS,
)  # fmt: skip
KEYS = st.sampled_from(
    ["inductor/ab/cab", "inductor/fxgraph/ab/K", "triton/K", "extra/x/y", "aot/f/g"]
)
NAMES = st.sets(st.sampled_from([".py", ".so", "/n0", "/n1", "/deep/er"]), min_size=1)


@st.composite
def units(draw: st.DrawFn) -> Unit:
    """A unit of one of a few keys, so that keys, files and origins clash often."""
    key = draw(KEYS)
    paths = sorted(key + name for name in draw(NAMES))
    return Unit(
        key=key,
        entries=tuple(Entry(path, draw(SIZES), draw(DIGESTS), draw(EXTRAS)) for path in paths),
        origin=draw(ORIGINS),
        requires=tuple(draw(st.lists(REQUIREMENTS, max_size=2))),
        extra=draw(EXTRAS),
    )  # fmt: skip


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """A manifest with every field filled."""
    environment = draw(COMPONENTS)
    model = draw(COMPONENTS)
    number = st.none() | st.floats(0, 1e9)
    held = draw(st.lists(units(), min_size=1, max_size=4, unique_by=lambda unit: unit.key))
    return Manifest(
        address=Address("gpt", model.digest if model else "any", environment.digest),
        environment=environment,
        model=model,
        created=draw(TIMES),
        nonce=f"{draw(st.integers(0, 2**128 - 1)):032x}",
        units=tuple(held),
        pack=Pack(draw(SIZES), draw(DIGESTS), draw(st.integers(0, 9)), draw(EXTRAS)),
        producer=draw(COMPONENTS),
        supersedes=tuple(draw(st.lists(DIGESTS, max_size=2))),
        coverage=tuple(draw(st.lists(TEXT, max_size=2))),
        proof=draw(
            st.none()
            | st.builds(
                Proof, number, number, st.none() | st.sampled_from(Verdict),
                st.lists(TEXT, max_size=2).map(tuple),
                st.lists(OUTPUTS, max_size=2).map(tuple), EXTRAS,
            )
        ),
        tags=tuple(draw(st.lists(TEXT, max_size=2))),
        extra=draw(ANY_EXTRAS),
    )  # fmt: skip


@given(manifests())
def test_round_trip(manifest: Manifest) -> None:
    """Every manifest reads back equal and is written again to the same bytes."""
    data = manifest.to_bytes()
    assert Manifest.parse(data) == manifest
    assert Manifest.parse(data).to_bytes() == data


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: what holds it, and under which name."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for name, inner in list(items):
        found.append((value, name))
        if isinstance(inner, dict | list):
            found += _places(inner)
    return found


@given(manifests(), st.data())
def test_nothing_but_manifest_or_integrity_error(manifest: Manifest, data: st.DataObject) -> None:
    """However a manifest is spoilt, it is read as one that can be written again, or refused."""
    value = copy.deepcopy(json.loads(manifest.to_bytes()))
    for _ in range(data.draw(st.integers(1, 3))):
        folder, name = data.draw(st.sampled_from(_places(value)))
        if data.draw(st.booleans()):
            folder[name] = data.draw(
                JSON | st.sampled_from(["../x", "a/b", [[]], {"a": {}}, -1, 2**70])
            )
        elif isinstance(folder, dict):
            del folder[name]
    try:
        read = Manifest.parse(json.dumps(value).encode())
    except IntegrityError:
        return
    assert Manifest.parse(read.to_bytes()) == read


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no manifest are refused, whatever they are."""
    try:
        Manifest.parse(data)
    except IntegrityError:
        return
    raise AssertionError(data)


GROUPS = st.lists(units(), max_size=4)


@given(st.lists(units(), max_size=3))
def test_merge_is_commutative(held: list[Unit]) -> None:
    """The union is the same in whatever order the units are met."""
    assert all(merge(order) == merge(held) for order in permutations(held))


@given(GROUPS, GROUPS, GROUPS)
def test_merge_is_associative(one: list[Unit], two: list[Unit], three: list[Unit]) -> None:
    """Merging by steps gives what merging at once gives, so pushes converge in any order."""
    whole = merge([*one, *two, *three])
    assert merge([*merge([*one, *two]).values(), *three]) == whole
    assert merge([*one, *merge([*two, *three]).values()]) == whole


@given(GROUPS)
def test_merge_is_idempotent(held: list[Unit]) -> None:
    """Merging what is merged changes nothing, nor does meeting a unit twice."""
    once = merge(held)
    assert merge(once.values()) == once
    assert merge([*held, *held]) == once


@given(GROUPS)
def test_units_stay_whole(held: list[Unit]) -> None:
    """A union holds one unit for each key, just as one of the segments holds it."""
    union = merge(held)
    assert set(union) == {unit.key for unit in held}
    for key, unit in union.items():
        assert unit in held
        assert unit.key == key
        assert all(unit.rank >= other.rank for other in held if other.key == key)


LAYOUTS = st.sets(st.sampled_from(["a", "a/b", "a/b/c", "d", "d.x", "d/e"]), min_size=1)


@given(st.lists(st.tuples(LAYOUTS, FEW_TIMES), max_size=5))
def test_a_union_can_lie_in_one_tree(trees: list[tuple[set[str], str]]) -> None:
    """Units of directories whose files became folders never end up beside each other."""
    held = [
        Unit(f"extra/x/{name}", (Entry(f"extra/x/{name}", 1, "a" * 64),), Origin(time, "any"))
        for names, time in trees
        for name in names
    ]
    unions = {tuple(sorted(merge(order))) for order in (held, held[::-1])}
    assert len(unions) == 1
    paths = {entry.path for unit in merge(held).values() for entry in unit.entries}
    assert not paths & folders_of(paths)
    assert merge(merge(held).values()) == merge(held)


@st.composite
def histories(draw: st.DrawFn) -> list[Segment]:
    """Segments as pushes write them: each may supersede earlier ones, with all those did."""
    segments: list[Segment] = []
    for number in range(draw(st.integers(0, 4))):
        merged = draw(st.sets(st.sampled_from(segments))) if segments else set[Segment]()
        manifest = Manifest(
            address=Address("gpt", "any", Components().digest),
            environment=Components(),
            model=Components(),
            created=draw(FEW_TIMES),
            nonce=f"{number:032x}",
            units=tuple(draw(st.lists(units(), min_size=1, max_size=3, unique_by=lambda u: u.key))),
            pack=Pack(draw(SIZES), "a" * 64, 0),
            supersedes=tuple(
                sorted({name for s in merged for name in (s.name, *s.manifest.supersedes)})
            ),
        )
        segments.append(Segment(digest_bytes(manifest.to_bytes()), manifest))
    return segments


@given(histories(), st.randoms())
def test_live(segments: list[Segment], random: Any) -> None:
    """Live are those that none supersedes, by time, in whatever order they were listed."""
    alive = live(segments)
    older = {name for segment in segments for name in segment.manifest.supersedes}
    assert {segment.name for segment in alive} == {s.name for s in segments} - older
    assert [s.manifest.created for s in alive] == sorted(s.manifest.created for s in alive)
    shuffled = list(segments)
    random.shuffle(shuffled)
    assert live(shuffled) == alive
    assert live(alive) == alive


@given(histories(), st.data())
def test_deleting_superseded_segments_changes_nothing(
    segments: list[Segment], data: st.DataObject
) -> None:
    """Whichever superseded segments a janitor has deleted so far, the live ones are the same."""
    alive = live(segments)
    left = [s for s in segments if s in alive or data.draw(st.booleans())]
    assert live(left) == alive


@given(histories())
def test_fewest_packs_cover(segments: list[Segment]) -> None:
    """Every wanted unit comes from just one pack, which holds it in the wanted version."""
    wanted = merge(unit for segment in segments for unit in segment.units)
    cover = fewest_packs(segments, wanted)
    assert sorted(unit.key for unit in cover.units) == sorted(wanted)
    for segment, taken in cover.parts:
        assert taken
        held = {unit.key: unit for unit in segment.units}
        assert all(held[unit.key].entries == wanted[unit.key].entries for unit in taken)


@given(histories())
def test_one_pack_is_enough_if_it_holds_all(segments: list[Segment]) -> None:
    """Where one pack holds all that is wanted, it is the only one fetched."""
    assume(segments)
    for segment in segments:
        wanted = {unit.key: unit for unit in segment.units}
        cover = fewest_packs(segments, wanted)
        assert len(cover.parts) == 1
        (chosen, _taken) = cover.parts[0]
        assert chosen.manifest.pack.size <= segment.manifest.pack.size
