"""The manifest: the JSON that describes one segment. Writing it is the commit.

`Manifest.parse` is the only way in for text from outside. It accepts exactly format 1, keeps
fields that it does not know, and reports every issue that it finds. `docs/format.md` says what
each field means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from cachesvc.core.address import ANY_MODEL, NAME, Address
from cachesvc.core.components import Components
from cachesvc.core.digest import DIGEST, canonical_json
from cachesvc.core.errors import IntegrityError
from cachesvc.core.fields import (
    MAX_INTEGER,
    Extra,
    Fields,
    Issues,
    load_object,
    named,
    shown,
    with_extra,
)
from cachesvc.core.paths import belongs, folders_of, path_issue
from cachesvc.core.proof import Proof
from cachesvc.core.requirement import Requirement

FORMAT = 1
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
"""UTC with microseconds: text order is time order."""

MEMBER_BYTES, TAIL_BYTES = 4096, 65536
"""The most that a pack's tar may hold beside each entry's own bytes, and after the last entry."""

_NONCE = re.compile(r"[0-9a-f]{32}")
_MODEL = re.compile(rf"{ANY_MODEL}|{DIGEST.pattern}")
_KIND = re.compile(r"[a-z0-9_-]{1,32}")
_VALUE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ENTRY_FIELDS = {"path", "size", "sha256"}


class Entry(NamedTuple):
    """One file of a unit as it lies in the pack: `size` in bytes, `sha256` in hex."""

    path: str
    size: int
    sha256: str
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Who made a unit. `segment` is None in the segment that first held it."""

    created: str
    model: str
    context: Components = Components()
    segment: str | None = None
    extra: Extra = ()

    def to_json(self) -> dict[str, Any]:
        known = {
            "created": self.created,
            "model": self.model,
            "context": dict(self.context),
            "segment": self.segment,
        }
        return with_extra(known, self.extra)


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest thing the compiler uses whole, with what it needs and where it comes from."""

    key: str
    entries: tuple[Entry, ...]
    origin: Origin
    requires: tuple[Requirement, ...] = ()
    extra: Extra = ()

    @property
    def section(self) -> str:
        return self.key.partition("/")[0]

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(entry.size for entry in self.entries)

    @property
    def rank(self) -> tuple[int, str, str]:
        """Among units of one key the greatest rank wins: most files, then youngest.

        A total order, so that merging is commutative, associative and idempotent. A unit that
        holds all files of another and more has more files, so it always replaces it.
        """
        return (len(self.entries), self.origin.created, self.origin.segment or "")

    def to_json(self, origin: int) -> dict[str, Any]:
        known = {
            "key": self.key,
            "origin": origin,
            "requires": [_requirement_json(need) for need in self.requires],
            "entries": [_entry_json(entry) for entry in self.entries],
        }
        return with_extra(known, self.extra)


def _requirement_json(need: Requirement) -> dict[str, Any]:
    return with_extra({"kind": need.kind, "value": need.value}, need.extra)


def _entry_json(entry: Entry) -> dict[str, Any]:
    known = {"path": entry.path, "size": entry.size, "sha256": entry.sha256}
    return with_extra(known, entry.extra) if entry.extra else known


@dataclass(frozen=True, slots=True)
class Pack:
    """The bytes of a segment: compressed `size` and `sha256`, and `unpacked` bytes of its tar."""

    size: int
    sha256: str
    unpacked: int
    extra: Extra = ()

    def to_json(self) -> dict[str, Any]:
        known = {"size": self.size, "sha256": self.sha256, "unpacked": self.unpacked}
        return with_extra(known, self.extra)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One segment's description. `model` is empty where the address says `any`."""

    address: Address
    environment: Components
    model: Components
    created: str
    nonce: str
    units: tuple[Unit, ...]
    pack: Pack
    producer: Components = Components()
    supersedes: tuple[str, ...] = ()
    coverage: tuple[str, ...] = ()
    proof: Proof | None = None
    tags: tuple[str, ...] = ()
    extra: Extra = ()

    @property
    def size(self) -> int:
        """Bytes of all entries of all units."""
        return sum(unit.size for unit in self.units)

    def to_bytes(self) -> bytes:
        """The canonical JSON; its SHA-256 is the segment's name."""
        origins = tuple(dict.fromkeys(unit.origin for unit in self.units))
        number = {origin: index for index, origin in enumerate(origins)}
        known = {
            "format": FORMAT,
            "created": self.created,
            "nonce": self.nonce,
            "producer": dict(self.producer),
            "address": {
                "name": self.address.name,
                "model": self.address.model,
                "environment": self.address.environment,
            },
            "environment": dict(self.environment),
            "model": dict(self.model),
            "origins": [origin.to_json() for origin in origins],
            "units": [unit.to_json(number[unit.origin]) for unit in self.units],
            "pack": self.pack.to_json(),
            "supersedes": list(self.supersedes),
            "coverage": list(self.coverage),
            "proof": self.proof and self.proof.to_json(),
            "tags": list(self.tags),
        }
        return canonical_json(with_extra(known, self.extra))

    @classmethod
    def parse(cls, data: bytes, what: str = "manifest") -> Manifest:
        """The manifest in `data`; raises IntegrityError listing every issue.

        An unknown format is refused by its number before anything else is looked at.
        """
        raw = load_object(data, what)
        if raw.get("format") != FORMAT:
            raise IntegrityError(
                f"{what} has format {shown(raw.get('format'))}; this version reads format {FORMAT}:"
                " update tccache, or use a store written by this version"
            )
        issues = Issues()
        manifest = _read(Fields(raw, "", issues))
        issues.raise_if_any(what)
        assert manifest is not None  # noqa: S101 - _read answers None only beside an issue
        return manifest


def _read(fields: Fields) -> Manifest | None:
    fields.integer("format")
    issues = fields.issues
    environment = Components.of(fields.mapping("environment"))
    model = Components.of(fields.mapping("model"))
    address = _address(fields.child("address"), environment, model)
    units = _units(fields, fields.each("origins", _origin))
    manifest_fields: dict[str, Any] = {
        "environment": environment,
        "model": model,
        "created": _time(fields, "created"),
        "nonce": fields.text("nonce", _NONCE),
        "producer": Components.of(fields.mapping("producer")),
        "units": units,
        "pack": _pack(fields.child("pack"), units),
        "supersedes": fields.texts("supersedes", DIGEST),
        "coverage": fields.texts("coverage"),
        "proof": Proof.read(proof) if (proof := fields.optional_child("proof")) else None,
        "tags": fields.texts("tags"),
        "extra": fields.rest(),
    }
    _check_units(units, issues)
    return None if address is None or issues.count else Manifest(address, **manifest_fields)


def _time(fields: Fields, name: str) -> str:
    before = fields.issues.count
    text = fields.text(name, TIME)
    try:
        if fields.issues.count == before:
            datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    except ValueError:
        fields.issues.add(fields.at(name), f"{text} is no time")
    return text


def _address(fields: Fields, environment: Components, model: Components) -> Address | None:
    """The address; an unknown part is refused, since with it this would be another place."""
    before = fields.issues.count
    name = fields.text("name", NAME)
    model_digest = fields.text("model", _MODEL)
    environment_digest = fields.text("environment", DIGEST)
    if environment_digest != environment.digest:
        fields.issues.add(fields.at("environment"), "is not the digest of the environment")
    if model_digest != (model.digest if model else ANY_MODEL):
        fields.issues.add(fields.at("model"), "is not the digest of the model")
    for part, _ in fields.rest():
        fields.issues.add(fields.at(named(part)), "is no part of an address")
    if fields.issues.count > before:
        return None
    return Address(name, model_digest, environment_digest)


def _pack(fields: Fields, units: tuple[Unit, ...]) -> Pack:
    """The pack's facts; its tar cannot be larger than its entries make it."""
    pack = Pack(
        size=fields.integer("size"),
        sha256=fields.text("sha256", DIGEST),
        unpacked=fields.integer("unpacked"),
        extra=fields.rest(),
    )
    most = sum(unit.size + MEMBER_BYTES * len(unit.entries) for unit in units) + TAIL_BYTES
    if pack.unpacked > most:
        fields.issues.add(fields.at("unpacked"), f"{pack.unpacked} is more than its entries fill")
    return pack


def _origin(fields: Fields) -> Origin:
    return Origin(
        created=_time(fields, "created"),
        model=fields.text("model", _MODEL),
        context=Components.of(fields.mapping("context")),
        segment=fields.optional_text("segment", DIGEST),
        extra=fields.rest(),
    )


def _units(fields: Fields, origins: tuple[Origin, ...]) -> tuple[Unit, ...]:
    def unit(item: Fields) -> Unit:
        number = item.integer("origin")
        if number >= len(origins):
            fields.issues.add(item.at("origin"), f"{number} is not an origin of this manifest")
        return Unit(
            key=item.text("key"),
            entries=_entries(item),
            origin=origins[number] if number < len(origins) else Origin("", ANY_MODEL),
            requires=item.each("requires", _requirement),
            extra=item.rest(),
        )

    before = fields.issues.count
    units = fields.each("units", unit)
    if not units and fields.issues.count == before:
        fields.issues.add("units", "is empty")
    return units


def _requirement(fields: Fields) -> Requirement:
    return Requirement(fields.text("kind", _KIND), fields.text("value", _VALUE), fields.rest())


def _entries(unit: Fields) -> tuple[Entry, ...]:
    before = unit.issues.count
    entries = unit.each("entries", _careful_entry, _plain_entry)
    if not entries and unit.issues.count == before:
        unit.issues.add(unit.at("entries"), "is empty")
    return entries


def _plain_entry(raw: Any) -> Entry | None:
    """The entry if it has just the known fields, all well formed: the case of every real file."""
    if type(raw) is not dict or raw.keys() != _ENTRY_FIELDS:
        return None
    path, size, sha256 = raw["path"], raw["size"], raw["sha256"]
    plain = type(path) is str and type(size) is int and type(sha256) is str
    if plain and 0 <= size <= MAX_INTEGER and DIGEST.fullmatch(sha256):
        return Entry(path, size, sha256)
    return None


def _careful_entry(fields: Fields) -> Entry:
    return Entry(
        fields.text("path"), fields.integer("size"), fields.text("sha256", DIGEST), fields.rest()
    )


def _check_units(units: tuple[Unit, ...], issues: Issues) -> None:
    """Keys and paths are well formed and unique, each path in its unit and none a folder too."""
    keys: set[str] = set()
    paths: set[str] = set()
    for unit in units:
        issue = "appears twice" if unit.key in keys else path_issue(unit.key)
        if issue:
            issues.add(f"unit {shown(unit.key)}", issue)
        keys.add(unit.key)
        for path, *_ in unit.entries:
            issue = path_issue(path) or _placement_issue(path, unit.key, paths)
            if issue:
                issues.add(f"path {shown(path)}", issue)
            paths.add(path)
    for path in sorted(folders_of(paths) & paths):
        issues.add(f"path {shown(path)}", "is a file and a folder")


def _placement_issue(path: str, unit: str, seen: set[str]) -> str | None:
    if path in seen:
        return "appears twice"
    return None if belongs(path, unit) else f"is not in its unit {shown(unit)}"


def resolve(unit: Unit, segment: str) -> Unit:
    """The unit with its origin's segment spelled out: `segment` where it was None."""
    if unit.origin.segment is not None:
        return unit
    return replace(unit, origin=replace(unit.origin, segment=segment))
