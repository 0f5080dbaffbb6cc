"""Manifests from outside: what is right is read, what is wrong is refused with every issue."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.digest import canonical_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.manifest import Entry, Manifest, Origin, Pack, Unit, resolve
from cachesvc.core.proof import Proof
from cachesvc.core.report import Verdict
from cachesvc.core.requirement import Requirement

ENVIRONMENT = Components.of({"torch": "2.9.0", "device": "NVIDIA H200"})
MODEL = Components.of({"class": "GPT"})
SHA = "0f" * 32
OLDER = "ab" * 32
TIME = "2025-01-02T03:04:05.678901Z"

MANIFEST = Manifest(
    address=Address("gpt", MODEL.digest, ENVIRONMENT.digest),
    environment=ENVIRONMENT,
    model=MODEL,
    created=TIME,
    nonce="0123456789abcdef" * 2,
    units=(
        Unit(
            key="inductor/ab/cab",
            entries=(Entry("inductor/ab/cab.py", 10, SHA), Entry("inductor/ab/cab.so", 20, SHA)),
            origin=Origin(TIME, MODEL.digest, Components.of({"threads": "8"})),
            requires=(Requirement("isa", "avx2"), Requirement("glibc", "2.34")),
        ),
        Unit(
            key="triton/KEY",
            entries=(Entry("triton/KEY/kernel.cubin", 0, SHA),),
            origin=Origin("2024-12-31T00:00:00.000000Z", "any", segment=OLDER),
        ),
    ),
    pack=Pack(100, SHA, 4096),
    producer=Components.of({"tccache": "0.1.0"}),
    supersedes=(OLDER,),
    coverage=("(float32[8, 16])",),
    proof=Proof(47.4, 1.0, Verdict.WARM, ("outputs equal to eager",)),
    tags=("release",),
)


def fresh() -> dict[str, Any]:
    """The manifest as JSON, to be made hostile."""
    value: dict[str, Any] = json.loads(MANIFEST.to_bytes())
    return value


def issues_of(value: object) -> tuple[str, ...]:
    """What reading the value as a manifest finds wrong."""
    with pytest.raises(IntegrityError) as caught:
        Manifest.parse(json.dumps(value).encode(), "m")
    return caught.value.issues


def test_round_trip() -> None:
    """A manifest is read back equal, and written again to the same bytes."""
    data = MANIFEST.to_bytes()
    assert Manifest.parse(data) == MANIFEST
    assert Manifest.parse(data).to_bytes() == data
    assert canonical_json(json.loads(data)) == data


def test_units_share_their_origins() -> None:
    """An origin is written once, however many units have it."""
    units = tuple(
        Unit(f"triton/K{n}", (Entry(f"triton/K{n}/a", 1, SHA),), Origin(TIME, "any"))
        for n in range(5)
    )
    written = json.loads(_with(units=units).to_bytes())
    assert len(written["origins"]) == 1
    assert {unit["origin"] for unit in written["units"]} == {0}


def test_sizes() -> None:
    """Sizes are those of the entries."""
    assert [unit.size for unit in MANIFEST.units] == [30, 0]
    assert MANIFEST.size == 30
    assert [unit.section for unit in MANIFEST.units] == ["inductor", "triton"]


def test_resolve() -> None:
    """A unit that a segment held first is its own; a carried one keeps the segment it came from."""
    own, carried = MANIFEST.units
    assert resolve(own, SHA).origin.segment == SHA
    assert resolve(carried, SHA) is carried


def _with(**changes: Any) -> Manifest:
    fields = {name: getattr(MANIFEST, name) for name in MANIFEST.__slots__}
    return Manifest(**{**fields, **changes})


def test_a_bundle_without_a_model() -> None:
    """Where the address says `any`, the model has no components."""
    address = Address("gpt", "any", ENVIRONMENT.digest)
    manifest = _with(address=address, model=Components())
    assert Manifest.parse(manifest.to_bytes()) == manifest


def test_optional_fields_may_be_missing() -> None:
    """A proof, its parts and an origin's segment may be left out or null."""
    value = fresh()
    del value["origins"][0]["segment"]
    value["proof"] = {"verified": []}
    assert Manifest.parse(json.dumps(value).encode()).proof == Proof()
    for proof in ({"proof": None}, {}):
        value.pop("proof", None)
        assert Manifest.parse(json.dumps({**value, **proof}).encode()).proof is None


LEVELS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "manifest": lambda m: m,
    "pack": lambda m: m["pack"],
    "proof": lambda m: m["proof"],
    "origin": lambda m: m["origins"][1],
    "unit": lambda m: m["units"][0],
    "requirement": lambda m: m["units"][0]["requires"][1],
    "entry": lambda m: m["units"][1]["entries"][0],
}


def test_unknown_fields_at_every_level() -> None:
    """What a newer writer adds anywhere is still there when the manifest is written again."""
    value = fresh()
    for name, level in LEVELS.items():
        level(value)["new"] = {"in": name, "list": [1, 2.5, None, "é"]}
    manifest = Manifest.parse(canonical_json(value))
    assert json.loads(manifest.to_bytes()) == value
    assert Manifest.parse(manifest.to_bytes()) == manifest


@pytest.mark.parametrize(
    ("number", "shown"),
    [(2, "2"), (0, "0"), ("1", "'1'"), (None, "None"), ([1], "a list"), (1.5, "1.5")],
)
def test_unknown_format(number: object, shown: str) -> None:
    """Another format is refused by its number, whatever else the manifest says, with advice."""
    for value in ({"format": number}, {**fresh(), "format": number}):
        with pytest.raises(IntegrityError, match=r"reads format 1: update tccache") as caught:
            Manifest.parse(json.dumps(value).encode(), "m")
        assert str(caught.value).startswith(f"m has format {shown};")


def test_no_format() -> None:
    """JSON that is no manifest at all is refused by its missing format."""
    with pytest.raises(IntegrityError, match="has format None"):
        Manifest.parse(b"{}")


def change(where: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Sets what lies at a path like `units.0.key`."""

    def apply(manifest: dict[str, Any]) -> None:
        *folders, name = where.split(".")
        item: Any = manifest
        for part in folders:
            item = item[int(part) if isinstance(item, list) else part]
        item[int(name) if isinstance(item, list) else name] = value

    return apply


def drop(where: str) -> Callable[[dict[str, Any]], None]:
    """Removes what lies at a path like `pack.size`."""

    def apply(manifest: dict[str, Any]) -> None:
        *folders, name = where.split(".")
        item: Any = manifest
        for part in folders:
            item = item[int(part) if isinstance(item, list) else part]
        del item[name]

    return apply


ENTRY = "units.0.entries.0"
UNIT = "units.0"
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    # Missing fields and wrong kinds.
    **{
        f"no {name}": (drop(name), f"{name}: is missing")
        for name in (
            "created", "nonce", "producer", "address", "environment", "model", "origins", "units",
            "pack", "supersedes", "coverage", "tags", "pack.size", "pack.sha256", "pack.unpacked",
            "address.name", "address.model", "address.environment", "proof.verified",
        )
    },
    **{
        f"{name} of a wrong kind": (change(name, 5), f"{name}: is of a wrong kind")
        for name in (
            "created", "nonce", "producer", "address", "environment", "model", "origins", "units",
            "pack", "supersedes", "coverage", "tags", "proof", "pack.sha256", "proof.verified",
        )
    },
    "units as an object": (change("units", {}), "units: is of a wrong kind"),
    "a unit that is a list": (change(UNIT, []), "units[0]: is not an object"),
    "an entry that is text": (change(ENTRY, "a"), "units[0].entries[0]: is not an object"),
    "an origin that is null": (change("origins.0", None), "origins[0]: is not an object"),
    "no path": (drop(f"{ENTRY}.path"), "units[0].entries[0].path: is missing"),
    "no size": (drop(f"{ENTRY}.size"), "units[0].entries[0].size: is missing"),
    "no digest": (drop(f"{ENTRY}.sha256"), "units[0].entries[0].sha256: is missing"),
    "no key": (drop(f"{UNIT}.key"), "units[0].key: is missing"),
    "no entries": (drop(f"{UNIT}.entries"), "units[0].entries: is missing"),
    "a component that is no text": (change("environment.torch", 2), "ment.torch: is not text"),
    "a tag that is no text": (change("tags.0", 7), "tags[0]: 7 has not the form asked"),
    # Text of a wrong form.
    "a day that does not exist": (change("created", "2025-02-30T00:00:00.000000Z"), "is no time"),
    "a time without microseconds": (change("created", "2025-02-03T00:00:00Z"), "has not the form"),
    "a time in other digits": (change("created", "٢٠٢٥-01-02T03:04:05.678901Z"), "not the form"),
    "a short nonce": (change("nonce", "00"), "nonce: '00' has not the form"),
    "an upper-case digest": (change("pack.sha256", SHA.upper()), "pack.sha256: "),
    "a digest with a line end": (change(f"{ENTRY}.sha256", SHA + "\n"), "entries[0].sha256: "),
    "a name that is a path": (change("address.name", "../gpt"), "address.name: '../gpt' has not"),
    "a superseded path": (change("supersedes.0", "../" + OLDER), "supersedes[0]: "),
    "an unknown verdict": (change("proof.verdict", "hot"), "proof.verdict: 'hot' has not the form"),
    "a requirement in capitals": (change(f"{UNIT}.requires.0.kind", "ISA"), "requires[0].kind: "),
    "a requirement of bytes": (change(f"{UNIT}.requires.0.value", "a\0"), "requires[0].value: "),
    # Numbers.
    "a negative size": (change(f"{ENTRY}.size", -1), "entries[0].size: -1 is not a size"),
    "a boolean size": (change(f"{ENTRY}.size", True), "entries[0].size: True is not a size"),
    "a fractional size": (change(f"{ENTRY}.size", 1.5), "entries[0].size: is of a wrong kind"),
    "a huge size": (change(f"{ENTRY}.size", 1 << 63), "entries[0].size: 9223372036854775808 is"),
    "a negative pack": (change("pack.size", -1), "pack.size: -1 is not a size"),
    "a boolean origin": (change(f"{UNIT}.origin", True), "units[0].origin: True is not a size"),
    "an origin too many": (change(f"{UNIT}.origin", 2), "units[0].origin: 2 is not an origin"),
    "negative seconds": (change("proof.cold_s", -1.0), "proof.cold_s: -1.0 is not a number"),
    "endless seconds": (change("proof.warm_s", 10**400), "proof.warm_s: 1000"),
    "a bomb": (change("pack.unpacked", 1 << 40), "pack.unpacked: 1099511627776 is more than"),
    # Nothing in it.
    "no unit": (change("units", []), "units: is empty"),
    "an empty unit": (change(f"{UNIT}.entries", []), "units[0].entries: is empty"),
    # The address.
    "another environment": (change("environment.torch", "2.9.1"), "address.environment: is not"),
    "another model": (change("model.class", "GPT2"), "address.model: is not the digest"),
    "a model under any": (change("address.model", "any"), "address.model: is not the digest"),
    "any with no model": (change("model", {}), "address.model: is not the digest"),
    "a fourth part": (change("address.region", "eu"), "address.region: is no part of an address"),
    # Paths.
    "a way up": (change(f"{ENTRY}.path", "inductor/ab/../../../x"), "starts with a dot"),
    "an absolute path": (change(f"{ENTRY}.path", "/etc/passwd"), "begin with a section"),
    "a backslash": (change(f"{ENTRY}.path", "inductor/ab/cab\\..\\x"), "or a backslash"),
    "a NUL": (change(f"{ENTRY}.path", "inductor/ab/cab.\0"), "a control character"),
    "a dot-file": (change(f"{ENTRY}.path", "inductor/ab/cab/.x"), "starts with a dot"),
    "an empty part": (change(f"{ENTRY}.path", "inductor/ab/cab//x"), "has an empty part"),
    "a long part": (change(f"{ENTRY}.path", "inductor/ab/cab." + "x" * 256), "longer than 255"),
    "a long path": (change(f"{ENTRY}.path", "inductor/ab/cab" + "/x" * 600), "longer than 1024"),
    "no section": (change(f"{ENTRY}.path", "etc/ab/cab"), "begin with a section"),
    "a section alone": (change(f"{ENTRY}.path", "inductor"), "names no file"),
    "a path twice": (change(f"{ENTRY}.path", "inductor/ab/cab.so"), "appears twice"),
    "another unit's path": (change(f"{ENTRY}.path", "triton/KEY/other"), "is not in its unit"),
    "a longer name": (change(f"{ENTRY}.path", "inductor/ab/cabin"), "is not in its unit"),
    # Keys.
    "a section as a key": (change(f"{UNIT}.key", "inductor"), "unit 'inductor': names no file"),
    "a key of dots": (change(f"{UNIT}.key", "inductor/.."), "unit 'inductor/..': has a part"),
    "an empty key": (change(f"{UNIT}.key", ""), "unit '': does not begin"),
    "a key twice": (
        change("units.1", {**fresh()["units"][0], "entries": fresh()["units"][1]["entries"]}),
        "unit 'inductor/ab/cab': appears twice",
    ),
    # What must be written again.
    "an unknown field without end": (
        change("new", json.loads("[" * 200 + "]" * 200)),
        "new: is nested deeper",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make_hostile", "issue"), HOSTILE.values(), ids=HOSTILE)
def test_hostile(make_hostile: Callable[[dict[str, Any]], None], issue: str) -> None:
    """Each thing that can be wrong is refused, and named with its place and its reason."""
    value = fresh()
    make_hostile(value)
    assert any(issue in found for found in issues_of(value)), issues_of(value)


def test_a_file_that_is_a_folder() -> None:
    """A file and a folder of one name cannot both be unpacked, in one unit or across units."""
    value = fresh()
    value["units"][0]["entries"] += [
        {"path": f"inductor/ab/cab{end}", "size": 0, "sha256": SHA} for end in ("", "/n/0", "/n")
    ]
    assert issues_of(value) == (
        "path 'inductor/ab/cab': is a file and a folder",
        "path 'inductor/ab/cab/n': is a file and a folder",
    )


def test_every_issue_is_listed() -> None:
    """All that is wrong is told at once, so that nobody mends a writer one error at a time."""
    value = fresh()
    for make_hostile in (
        drop("nonce"),
        change("pack.size", "big"),
        change("units.0.entries.0.path", "../../x"),
        change("units.1.entries.0.size", -5),
        change("units.1.origin", 9),
        change("environment.torch", "0"),
        change("tags", [1, "good", None]),
    ):
        make_hostile(value)
    assert len(issues_of(value)) == 8


def test_nothing_is_changed_by_reading() -> None:
    """Extra fields of an entry do not make it a lesser one: path, size and digest are checked."""
    value = fresh()
    value["units"][0]["entries"][0] |= {"new": 1, "path": "../x"}
    assert any("'../x'" in issue for issue in issues_of(value))
    value = copy.deepcopy(fresh())
    value["units"][0]["entries"][0]["new"] = 1
    (read, *_) = Manifest.parse(json.dumps(value).encode()).units[0].entries
    assert read == Entry("inductor/ab/cab.py", 10, SHA, (("new", "1"),))
