"""Union of segments by example: which unit stays, which segments count, which packs are fetched."""

from __future__ import annotations

import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.manifest import Entry, Manifest, Origin, Pack, Unit
from cachesvc.core.merge import Occupied, Segment, covers, fewest_packs, live, merge
from cachesvc.core.requirement import Requirement

EARLY, LATE = "2025-01-01T00:00:00.000000Z", "2025-06-01T00:00:00.000000Z"
ONE, TWO = "1" * 64, "2" * 64


def unit(
    key: str = "triton/K", files: int = 1, created: str = EARLY, segment: str | None = None
) -> Unit:
    """A unit with so many files; its bytes are its segment's."""
    entries = tuple(Entry(f"{key}/f{n}", n, segment or ONE) for n in range(files))
    return Unit(key, entries, Origin(created, "any", segment=segment))


def segment(
    name: str, *units: Unit, size: int = 1, created: str = EARLY, older: str = ""
) -> Segment:
    """A segment of that one-letter name, which supersedes those of the letters in `older`."""
    manifest = Manifest(
        address=Address("gpt", "any", Components().digest),
        environment=Components(),
        model=Components(),
        created=created,
        nonce="0" * 32,
        units=units,
        pack=Pack(size, ONE, 0),
        supersedes=tuple(letter * 64 for letter in older),
    )
    return Segment(name * 64, manifest)


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [
        (unit(files=1, created=LATE), unit(files=2, created=EARLY)),
        (unit(created=EARLY, segment=TWO), unit(created=LATE, segment=ONE)),
        (unit(segment=ONE), unit(segment=TWO)),
    ],
    ids=["more files", "younger", "greater segment"],
)
def test_which_unit_stays(lesser: Unit, greater: Unit) -> None:
    """Of one key the unit with most files stays, then the youngest, then the greater segment's."""
    assert merge([lesser, greater]) == merge([greater, lesser]) == {"triton/K": greater}


def test_equal_claims_with_other_needs() -> None:
    """Even where two units differ in nothing but their needs, the order of reading decides not."""
    one, other = unit(), Unit("triton/K", unit().entries, unit().origin, (Requirement("isa", "a"),))
    assert merge([one, other]) == merge([other, one])


def test_a_file_that_became_a_folder() -> None:
    """Of units that cannot lie in one tree the lesser is left out, and all others stay."""
    file = Unit("extra/x/a", (Entry("extra/x/a", 1, ONE),), Origin(EARLY, "any"))
    folder = Unit("extra/x/a/b", (Entry("extra/x/a/b", 1, ONE),), Origin(LATE, "any"))
    assert set(merge([file, folder, unit()])) == {"extra/x/a/b", "triton/K"}


@pytest.mark.parametrize(
    ("paths", "clashes"),
    [(["a/b"], True), (["a"], True), (["a/b/c"], True), (["a/c", "b"], False), ([], False)],
)
def test_occupied(paths: list[str], clashes: bool) -> None:
    """A tree with a/b has no room for a/b again, for a file a, nor for files below a/b."""
    occupied = Occupied()
    occupied.add(["a/b"])
    assert occupied.clashes(paths) is clashes


@pytest.mark.parametrize(("held", "files", "covered"), [(2, 2, True), (2, 1, True), (1, 2, False)])
def test_covers(held: int, files: int, covered: bool) -> None:
    """A held unit with as many files makes another of its key needless; none covers nothing."""
    assert covers(unit(files=held), files) is covered
    assert not covers(None, files)


def test_live_is_what_none_supersedes() -> None:
    """What a segment supersedes, itself or through others, is not live."""
    a, b = segment("a", unit()), segment("b", unit(), created=LATE, older="a")
    c = segment("c", unit(), created=LATE, older="ab")
    beside = segment("d", unit())
    assert live([c, b, beside, a]) == (beside, c)
    assert live([c, a]) == (c,)
    assert live([a]) == (a,)
    assert live([]) == ()


def test_segments_spell_out_their_origin() -> None:
    """A unit that a segment was the first to hold names that segment once it is read."""
    own, carried = segment("a", unit("triton/K"), unit("triton/L", segment=TWO)).units
    assert own.origin.segment == "a" * 64
    assert carried.origin.segment == TWO


def test_one_pack_rather_than_two() -> None:
    """A merged pack that holds all is fetched alone, though smaller ones hold its parts."""
    k, m = unit("triton/K"), unit("triton/M")
    small = [segment("a", k, size=1), segment("b", m, size=1)]
    merged = segment("c", k, m, size=100)
    cover = fewest_packs([*small, merged], merge([k, m]))
    assert [part.name for part, _ in cover.parts] == [merged.name]


def test_the_smaller_of_two_packs() -> None:
    """Of two packs that give as much, the smaller one is fetched."""
    k = unit("triton/K")
    cover = fewest_packs([segment("a", k, size=9), segment("b", k, size=3)], {k.key: k})
    assert [part.name for part, _ in cover.parts] == ["b" * 64]


def test_only_the_wanted_version() -> None:
    """A pack that holds another version of a unit gives it not: versions are never mixed."""
    old, new = unit(segment=ONE), unit(created=LATE, segment=TWO)
    cover = fewest_packs([segment("a", old), segment("b", new, size=99)], merge([old, new]))
    assert [(part.name, units) for part, units in cover.parts] == [("b" * 64, (new,))]


def test_what_no_pack_holds_is_not_promised() -> None:
    """A wanted unit that no segment holds is missing in the cover, for the caller to see."""
    assert fewest_packs([segment("a", unit())], {"triton/X": unit("triton/X")}).units == ()
    assert fewest_packs([], {"triton/X": unit("triton/X")}).units == ()
