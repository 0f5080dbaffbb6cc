"""Writes the corpus of hostile inputs: `python tests/hostile/make_corpus.py tests/hostile/corpus`.

Each file is what a stranger may put into a store, or leave where tccache reads. Its suffix says
what it stands for, and `expected.json` what must come of it: part of the text of a refusal, or
"harmless", where everything arrives as it was pushed. Every input that was once mishandled is here.

NAME.manifest.json  a manifest, beside a good pack
NAME.tar            the tar in a pack that a good manifest lists
NAME.zst            a pack, whose size and digest its manifest says
NAME.grp            a Triton group, as an entry
NAME.artifact       an artifact of a mega-cache, as an entry
NAME.mega           a mega-cache file that a user hands to push
NAME.sig            the signature object of the good manifest, whose signer alone is trusted
NAME.RECORD.json    a record of the live directory: ledger, receipt, quarantine
"""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cachesvc.core.components import Components
from cachesvc.core.digest import canonical_json
from cachesvc.repository.tar import BLOCK, END, header, padding

HARMLESS = "harmless"
ENVIRONMENT = Components.of({"torch": "2.9.0", "device": "cpu"})
FILES = {
    "inductor/ab/cab.py": b"import torch\n" * 40,
    "triton/K/__grp__k.json": b'{"child_paths": {"k.cubin": "k.cubin"}}',
    "triton/K/k.cubin": b"\x7fELF" + bytes(500),
}
UNITS = {"inductor/ab/cab": ["inductor/ab/cab.py"], "triton/K": [*FILES][1:]}
GROUP, CUBIN = [*FILES][1:]
_BLOCK = 1 << 17
TIME = "2025-01-01T00:00:00.000000Z"

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
PUBLIC = KEY.public_key().public_bytes_raw().hex()
WEAK = {"zero": "00" * 32, "one": "01" + "00" * 31, "minus-one": "ec" + "ff" * 30 + "7f"}

Case = tuple[bytes, str]


class Runs:
    """What would write a file if anybody unpickled it."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, ("unpickled", "w")


RUNS = pickle.dumps(Runs())


def tar_of(files: dict[str, bytes]) -> bytes:
    """The tar of a good pack."""
    return b"".join(header(p, len(d)) + d + padding(len(d)) for p, d in files.items()) + END


def frame(
    data: bytes,
    *,
    log: int = 17,
    size: int | None = None,
    dictionary: int | None = None,
    checksum: bytes = b"",
    zeros: int = 0,
) -> bytes:
    """A zstd frame, made by hand so that no version of a library changes it: raw blocks.

    `log` is that of the window, `size` the content size that is claimed, `dictionary` the number of
    one; `zeros` are blocks of 128 KiB of zeros at its end, four bytes each.
    """
    flags = (0 if size is None else 0xC0) | (4 if checksum else 0)
    made = b"\x28\xb5\x2f\xfd" + bytes([flags | (0 if dictionary is None else 3), log - 10 << 3])
    made += b"" if dictionary is None else struct.pack("<I", dictionary)
    made += b"" if size is None else struct.pack("<Q", size)
    parts = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)] or [b""]
    blocks = [(0, len(part), part) for part in parts] + [(1, _BLOCK, b"\0")] * zeros
    for number, (kind, length, content) in enumerate(blocks, 1):
        head = (number == len(blocks)) | kind << 1 | length << 3
        made += head.to_bytes(3, "little") + content
    return made + checksum


def manifest_of(
    files: dict[str, bytes], pack: bytes, unpacked: int, units: dict[str, list[str]] = UNITS
) -> dict[str, Any]:
    """A good manifest of these files, in a pack of these bytes."""
    return {
        "format": 1,
        "created": TIME,
        "nonce": "0" * 32,
        "producer": {},
        "address": {"name": "hostile", "model": "any", "environment": ENVIRONMENT.digest},
        "environment": dict(ENVIRONMENT),
        "model": {},
        "origins": [{"created": TIME, "model": "any", "context": {}, "segment": None}],
        "units": [
            {
                "key": key,
                "origin": 0,
                "requires": [],
                "entries": [
                    {"path": p, "size": len(files[p]), "sha256": digest(files[p])} for p in paths
                ],
            }
            for key, paths in units.items()
        ],
        "pack": {"size": len(pack), "sha256": digest(pack), "unpacked": unpacked},
        "supersedes": [],
        "coverage": [],
        "proof": None,
        "tags": [],
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def good_manifest() -> dict[str, Any]:
    tar = tar_of(FILES)
    return manifest_of(FILES, frame(tar), len(tar))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The good manifest after a change."""
    manifest = good_manifest()
    change(manifest)
    return canonical_json(manifest)


def with_paths(*paths: str, key: str = "triton/K") -> bytes:
    """A manifest with more files, all of the same bytes, in one unit."""
    entry = {"size": 1, "sha256": digest(b"x")}

    def change(manifest: dict[str, Any]) -> None:
        unit = {"key": key, "origin": 0, "requires": []}
        manifest["units"] = [{**unit, "entries": [{"path": path, **entry} for path in paths]}]

    return changed(change)


def replaced(old: bytes, new: bytes) -> bytes:
    data = canonical_json(good_manifest())
    assert old in data
    return data.replace(old, new, 1)


def manifests() -> Iterator[tuple[str, Case]]:
    """Manifests: their JSON, their paths, their numbers."""
    good = canonical_json(good_manifest())
    entry: Callable[[dict[str, Any]], dict[str, Any]] = lambda m: m["units"][0]["entries"][0]  # noqa: E731
    yield "good", (good, HARMLESS)
    yield "spaced", (json.dumps(good_manifest(), indent=3).encode(), HARMLESS)
    yield "unknown-fields", (changed(lambda m: m.update({"\u202e": [{}], "x": 1.5})), HARMLESS)
    yield "byte-order-mark", (b"\xef\xbb\xbf" + good, "is not JSON")
    yield "utf-16", (good.decode().encode("utf-16"), "is not JSON")
    yield "nul", (good + b"\0", "is not JSON")
    yield "deep-list", (b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deep")
    yield "deep-object", (b'{"x":' * 5000 + b"1" + b"}" * 5000, "nested too deep")
    deep: Any = 0
    for _ in range(40):
        deep = {"x": deep}
    yield "deep-field", (changed(lambda m: m.update(x=deep)), "nested deeper")
    yield "list", (b"[]", "not a JSON object")
    yield "nan", (replaced(b'"proof":null', b'"proof":{"cold_s":NaN}'), "not a finite number")
    yield "infinity", (replaced(b'"proof":null', b'"proof":{"cold_s":1e999}'), "not a finite")
    yield "digits", (replaced(b'"origin":0', b'"origin":' + b"9" * 5000), "is not JSON")
    yield "twice", (replaced(b'"tags":[]', b'"tags":[],"tags":[]'), "a name appears twice")
    yield "half-a-pair", (replaced(b'"tags":[]', b'"tags":["\\ud800"]'), "not valid Unicode")
    yield "true-format", (replaced(b'"format":1', b'"format":true'), "format: ")
    yield "format-2", (replaced(b'"format":1', b'"format":2'), "has format 2")
    yield "size-negative", (changed(lambda m: entry(m).update(size=-1)), "not a size")
    yield "size-huge", (changed(lambda m: entry(m).update(size=1 << 63)), "not a size")
    yield "size-true", (changed(lambda m: entry(m).update(size=True)), "not a size")
    yield "size-float", (changed(lambda m: entry(m).update(size=1.0)), "of a wrong kind")
    yield "origin-beyond", (changed(lambda m: m["units"][0].update(origin=7)), "is not an origin")
    yield "bomb", (changed(lambda m: m["pack"].update(unpacked=1 << 40)), "than its entries fill")
    yield "year-0", (replaced(TIME.encode(), b"0000" + TIME[4:].encode()), "is no time")
    yield "many-issues", (changed(lambda m: m.update(units=[{}] * 30_000)), "is missing")
    yield "unit-twice", (changed(lambda m: m["units"].append(m["units"][0])), "appears twice")
    yield "no-units", (changed(lambda m: m.update(units=[])), "units: is empty")
    yield (
        "address-part",
        (
            changed(lambda m: m["address"].update({"\x1b[2Jpart": "x"})),
            r"address.\x1b[2Jpart: is no part",
        ),
    )
    yield "elsewhere", (changed(lambda m: m["address"].update(name="other")), "belongs to other")
    yield "environment", (changed(lambda m: m["environment"].update(x="")), "not the digest")
    escapes = {
        "absolute": ("/etc/passwd", "does not begin with a section"),
        "parent": ("triton/../../x", "starts with a dot"),
        "dot": ("triton/K/./x", "starts with a dot"),
        "hidden": ("triton/K/.x", "starts with a dot"),
        "records": ("inductor/.tccache/ledger.json", "starts with a dot"),
        "empty-part": ("triton/K//x", "empty part"),
        "folder": ("triton/K/", "empty part"),
        "section": ("triton", "names no file"),
        "other-section": ("home/K/x", "does not begin with a section"),
        "case-of-section": ("Triton/K/x", "does not begin with a section"),
        "backslash": ("triton/K/..\\x", "backslash"),
        "nul-in-path": ("triton/K/x\0.so", "control character"),
        "escape": ("triton/K/\x1b[2J", "control character"),
        "escape-c1": ("triton/K/\x9b2J", "control character"),
        "direction": ("triton/K/x\u202egnp.so", "control character"),
        "line-end": ("triton/K/x\u2028", "control character"),
        "long-part": ("triton/K/" + "x" * 256, "longer than 255"),
        "long-part-bytes": ("triton/K/" + "\u00e4" * 128, "longer than 255"),
        "long-path": ("triton/K/" + "x/" * 600 + "x", "longer than 1024"),
        "foreign-unit": ("triton/L/x", "is not in its unit"),
        "unit-before": ("triton/Kx", "is not in its unit"),
    }
    for name, (path, text) in escapes.items():
        yield f"path-{name}", (with_paths(path), text)
        if "unit" not in name:
            yield f"key-{name}", (with_paths(path, key=path), text)
    yield "path-twice", (with_paths("triton/K/x", "triton/K/x"), "appears twice")
    yield "path-file-and-folder", (with_paths("triton/K/x", "triton/K/x/y"), "a file and a folder")


def member(
    path: str = CUBIN,
    data: bytes = FILES[CUBIN],
    *,
    kind: bytes = b"0",
    size: bytes | None = None,
    link: str = "",
    checksum: bytes | None = None,
) -> bytes:
    """One member by its header's fields, with a right checksum unless another is given."""
    block = bytearray(BLOCK)
    raw = path.encode("utf-8", "surrogateescape")[:100]
    block[: len(raw)] = raw
    block[100:108] = b"0000600\0"
    block[124:136] = (b"%011o\0" % len(data) if size is None else size).ljust(12, b"\0")
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157 : 157 + len(link)] = link.encode()
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block) if checksum is None else checksum
    return bytes(block) + data + padding(len(data))


def pax(*records: tuple[str, str], kind: bytes = b"x") -> bytes:
    """An extended header."""
    lines = b""
    for name, value in records:
        rest = f" {name}={value}\n".encode("utf-8", "surrogateescape")
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        lines += str(length).encode() + rest
    return member("././@PaxHeader", lines, kind=kind)


def tars() -> Iterator[tuple[str, Case]]:
    """Tars: kinds of members, sizes, names, headers."""
    before = tar_of({path: data for path, data in FILES.items() if path != CUBIN})[: -len(END)]
    right, data = member(), FILES[CUBIN]
    yield "as-is", (before + right + END, HARMLESS)
    yield "extra-member", (before + right + member("../../outside") + END, HARMLESS)
    yield "extra-absolute", (member("/tmp/outside") + before + right + END, HARMLESS)
    yield "trailing", (before + right + END + member(), HARMLESS)
    yield "no-end", (before + right, "ends too early")
    yield "half-an-end", (before + right + bytes(BLOCK), HARMLESS)
    yield "cut-header", (before + right[:300], "ends too early")
    yield "cut-data", (before + right[:700], "ends too early")
    kinds = {
        "hard-link": tarfile.LNKTYPE, "symbolic-link": tarfile.SYMTYPE, "device": tarfile.CHRTYPE,
        "block-device": tarfile.BLKTYPE, "folder": tarfile.DIRTYPE, "pipe": tarfile.FIFOTYPE,
        "contiguous": tarfile.CONTTYPE, "sparse": tarfile.GNUTYPE_SPARSE,
        "gnu-long-name": tarfile.GNUTYPE_LONGNAME, "gnu-long-link": tarfile.GNUTYPE_LONGLINK,
        "solaris": b"X", "unknown": b"Z", "high": b"\xff",
    }  # fmt: skip
    for name, kind in kinds.items():
        bad = member(kind=kind, link="/etc/passwd")
        yield f"kind-{name}", (before + bad + END, "no plain file")
    yield "kind-old", (before + member(kind=b"\0") + END, HARMLESS)
    yield "kind-slash", (before + member(CUBIN + "/") + END, "no plain file")
    sizes = {
        "negative": (b"\xff" * 12, "with the size"),
        "base-256": (b"\x80" + len(data).to_bytes(11, "big"), HARMLESS),
        "huge": (b"\x80" + b"\xff" * 11, "with the size"),
        "eight-gb": (b"77777777777\0", "with another size"),
        "zero": (b"0", "with another size"),
        "empty": (b"\0" * 12, "with another size"),
        "letters": (b"12x", "damaged header"),
        "minus": (b"-1", "damaged header"),
        "nul-between": (b"1\x002", "damaged header"),
    }
    for name, (size, text) in sizes.items():
        yield f"size-{name}", (before + member(size=size) + END, text)
    yield "checksum", (before + member(checksum=b"000000\0 ") + END, "damaged header")
    yield "twice", (before + right + right + END, "twice")
    yield "name-latin", (before + member("triton/K/\udce4") + END, "damaged header")
    yield "pax-path", (before + pax(("path", CUBIN)) + member("x") + END, HARMLESS)
    yield "pax-other-path", (before + pax(("path", "../x")) + right + END, "lacks 1 entries")
    yield "pax-size", (before + pax(("size", "9")) + right + END, "with another size")
    yield "pax-size-huge", (before + pax(("size", "9" * 25)) + right + END, "with the size")
    yield "pax-size-minus", (before + pax(("size", "-9")) + right + END, "with the size")
    yield "pax-sparse", (before + pax(("GNU.sparse.major", "1")) + right + END, "no plain file")
    yield "pax-global", (before + pax(("path", "../x"), kind=b"g") + right + END, HARMLESS)
    yield "pax-twice", (before + pax(("size", "9")) + pax(("a", "b")) + right + END, "two extended")
    yield "pax-nothing", (before + pax(("path", CUBIN)) + END, "lacks 1 entries")
    yield "pax-damaged", (before + member("p", b"99 x=y\n", kind=b"x") + right + END, "damaged ext")
    yield "pax-digits", (before + member("p", b"9" * 5000 + b" x=y\n", kind=b"x") + END, "damaged")
    yield (
        "pax-huge",
        (
            before
            + member("p", b"", kind=b"x", size=b"\x80" + (1 << 40).to_bytes(11, "big"))
            + END,
            "of unlikely size",
        ),
    )
    yield "other-bytes", (before + member(data=bytes(len(data))) + END, "does not have the digest")
    yield "nothing", (b"", "ends too early")
    yield "only-an-end", (END, "lacks 3 entries")
    yield "text", (b"this is no tar at all\n" * 100, "damaged header")


def skippable(data: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A50, len(data)) + data


def packs() -> Iterator[tuple[str, Case]]:
    """Packs: windows, frames, sizes that lie."""
    tar = tar_of(FILES)
    good = frame(tar)
    yield "good", (good, HARMLESS)
    yield "content-size", (frame(tar, size=len(tar)), HARMLESS)
    yield "window-27", (frame(tar, log=27), HARMLESS)
    yield "window-28", (frame(tar, log=28), "is not a pack")
    yield "window-41", (frame(tar, log=41), "is not a pack")
    yield "two-frames", (good + good, HARMLESS)
    yield "halves", (frame(tar[:1000]) + frame(tar[1000:]), HARMLESS)
    yield "trailing", (good + b"anything", HARMLESS)
    yield "skippable-before", (skippable(b"x" * 100) + good, HARMLESS)
    yield "skippable-only", (skippable(b"x" * 100), "ends too early")
    yield "dictionary", (frame(tar, dictionary=7), "is not a pack")
    yield "cut", (good[:900], "ends too early")
    yield "checksum", (frame(tar, checksum=b"1234"), "is not a pack")
    yield "empty", (b"", "ends too early")
    yield "magic-only", (good[:4], "ends too early")
    yield "not-zstd", (tar, "is not a pack")
    yield "gzip", (b"\x1f\x8b" + good[2:], "is not a pack")
    bomb = tar[: -len(END)] + member("extra/x/bomb", size=b"777777777\0", data=b"")
    yield "bomb", (frame(bomb, zeros=800), "unpacks to more bytes")
    yield "bomb-first", (frame(b"", zeros=8000), "unpacks to more bytes")
    yield "content-size-less", (frame(tar, size=100), "is not a pack")
    yield "content-size-more", (frame(tar, size=1 << 50), "is not a pack")
    yield "reserved-block", (good[:6] + bytes([good[6] | 6]) + good[7:], "is not a pack")


def groups() -> Iterator[tuple[str, Case]]:
    """Triton groups: where their paths lead."""

    def of(children: object, **more: object) -> bytes:
        return json.dumps({"child_paths": children, **more}).encode()

    yield "good", (of({"k.cubin": "k.cubin"}), HARMLESS)
    yield "more-fields", (of({"k.cubin": "k.cubin"}, x=[[1]]), HARMLESS)
    leads = {
        "absolute": "/etc/passwd", "parent": "..", "climbs": "../../x", "below": "x/y", "empty": "",
        "hidden": ".x", "nul": "x\0y", "backslash": "..\\x", "long": "x" * 256, "escape": "\x1b[2J",
        "half-a-pair": "\ud800",
    }  # fmt: skip
    for name, child in leads.items():
        yield f"child-{name}", (of({"k.cubin": child}), "names a child outside its folder")
    for name, data in {
        "list": b"[]", "no-children": b"{}", "children-list": of(["x"]),
        "child-number": of({"a": 1}),
        "cut": of({"k.cubin": "k.cubin"})[:-3], "empty": b"", "number": b"1", "bytes": b"\xff\xfe",
        "deep": b'{"child_paths":' * 5000, "twice-over": of({}) * 2,
    }.items():  # fmt: skip
        yield name, (data, "is not a Triton group")


def artifacts() -> Iterator[tuple[str, Case]]:
    """Entries of a mega-cache."""

    def of(line: bytes, content: bytes = RUNS) -> bytes:
        return b"tccache-artifact/1 " + line + b"\n" + content

    yield "good", (of(b'{"key":"k","type":"inductor"}'), HARMLESS)
    yield "odd-key", (of(b'{"key":"../../../x\\u0000","type":"/"}'), HARMLESS)
    for name, line in {
        "half-a-pair": b'{"key":"\\ud800","type":"inductor"}', "no-key": b'{"type":"inductor"}',
        "twice": b'{"key":"a","key":"b","type":"x"}', "number": b'{"key":1,"type":"x"}',
        "list": b"[]", "empty": b"", "deep": b"[" * 5000, "bytes": b"\xff",
        "utf-16": '{"key":"k","type":"x"}'.encode("utf-16"),
    }.items():  # fmt: skip
        yield name, (of(line), "is not a mega-cache artifact")
    yield "pickle", (RUNS, "is not a mega-cache artifact")


def mega_of(*groups: tuple[bytes, list[tuple[bytes, bytes]]], version: int = 1) -> bytes:
    """A mega-cache file with a right check sum: types, keys, contents."""
    body = struct.pack(">Q", version)
    for kind, items in groups:
        body += struct.pack(">Q", len(kind)) + kind + struct.pack(">Q", len(items))
        for key, content in items:
            body += struct.pack(">Q", len(key)) + key + struct.pack(">Q", len(content)) + content
    return checked(body)


def checked(body: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(body)) + body


def megas() -> Iterator[tuple[str, Case]]:
    """Mega-cache files."""
    kind, key = b"aW5kdWN0b3I=", b"aw=="  # inductor, k
    good = mega_of((kind, [(key, RUNS)]))
    yield "good", (good, HARMLESS)
    yield "odd-names", (mega_of((b"Ly4uLw==", [(b"Li4vLi4veA==", RUNS)])), HARMLESS)
    yield "type-twice", (mega_of((kind, [(key, RUNS)]), (kind, [(key, b"2")])), HARMLESS)
    yield "nothing", (mega_of(), "holds no artifact")
    yield "no-artifacts", (mega_of((kind, [])), "holds no artifact")
    yield "check-sum", (good[:-1] + b"!", "not a mega-cache file")
    yield "version", (mega_of((kind, [(key, RUNS)]), version=2), "of version 2")
    yield "empty", (b"", "not a mega-cache file")
    yield "short", (good[:11], "not a mega-cache file")
    yield "pickle", (RUNS, "not a mega-cache file")
    yield "count", (checked(good[4:32] + b"\xff" * 8 + good[40:]), "cut short")
    yield "length", (checked(good[4:12] + b"\xff" * 8 + good[20:]), "cut short")
    yield "end", (checked(good[4:-1]), "cut short")
    yield "more", (checked(good[4:] + b"\0"), "cut short")
    yield "no-base64", (mega_of((b"!", [(key, RUNS)])), "not Base64 text")
    yield "base64-bytes", (mega_of((b"/w==", [(key, RUNS)])), "not Base64 text")
    yield "not-ascii", (mega_of((b"\xff\xff\xff\xff", [(key, RUNS)])), "not Base64 text")


def signatures() -> Iterator[tuple[str, Case]]:
    """What lies in the place of the signatures of the good manifest, where a key is trusted."""
    data = canonical_json(good_manifest())
    right = {"algorithm": "ed25519", "key": PUBLIC, "signature": KEY.sign(data).hex()}

    def of(*found: object, **more: object) -> bytes:
        return json.dumps({"format": 1, "signatures": found, **more}).encode()

    yield "good", (of(right), HARMLESS)
    yield "twice", (of(right, right), HARMLESS)
    yield "unknown-fields", (of({**right, "x": [1]}, y={}), HARMLESS)
    yield "another-algorithm", (of({"algorithm": "x", "key": "", "signature": ""}, right), HARMLESS)
    for name, key in WEAK.items():
        yield (
            f"weak-key-{name}",
            (of({**right, "key": key, "signature": key + "00" * 32}), "signed"),
        )
    for name, change in {
        "of-other-bytes": {"signature": KEY.sign(data + b" ").hex()},
        "other-key": {"key": OTHER.public_key().public_bytes_raw().hex()},
        "by-another-key": {
            "key": OTHER.public_key().public_bytes_raw().hex(),
            "signature": OTHER.sign(data).hex(),
        },
        "no-point": {"key": "02" * 32},
        "zeros": {"signature": "00" * 64},
        "not-reduced": {"signature": not_reduced(right["signature"])},
        "algorithm-case": {"algorithm": "ED25519"},
    }.items():
        yield name, (of({**right, **change}), "signed")
    for name, change in {
        "key-case": {"key": PUBLIC.upper()},
        "key-short": {"key": PUBLIC[:-1]},
        "key-line-end": {"key": PUBLIC + "\n"},
        "key-list": {"key": [PUBLIC]},
        "signature-short": {"signature": right["signature"][:-2]},
        "signature-long": {"signature": right["signature"] + "00"},
        "signature-null": {"signature": None},
        "escape": {"key": "\x1b[2J"},
    }.items():
        yield name, (of({**right, **change}), "is not valid")
    yield "none", (of(), "is not signed")
    yield "many", (of(*[right] * 65), "signatures: has more than")
    yield "format-2", (of(right, format=2), "has format 2")
    yield "format-true", (of(right, format=True), "format: ")
    yield "half-a-pair", (of(right, x="\ud800"), "not valid Unicode")
    yield "list", (json.dumps([right]).encode(), "not a JSON object")
    yield "deep", (b'{"signatures":' * 4000, "nested too deep")
    yield "large", (of(right) + b" " * 65536, "more than the 65536 allowed")
    yield "raw", (KEY.sign(data), "is not JSON")
    yield "empty", (b"", "is not JSON")


def not_reduced(signature: str) -> str:
    """The same signature with a scalar that is larger by the group's order."""
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(bytes.fromhex(signature[64:]), "little") + order
    return signature[:64] + scalar.to_bytes(32, "little").hex()


def records() -> Iterator[tuple[str, Case]]:
    """Records of a live directory: whatever they say, a start goes the long way and is right."""
    ledger = {"version": 1, "triton": "", "rows": {}, "origins": [], "units": {}}
    values: dict[str, object] = {
        "list": [], "number": 1, "rows-list": {**ledger, "rows": []},
        "row-short": {**ledger, "rows": {"a/b": [1]}},
        "row-path": {**ledger, "rows": {"inductor": ["x", 1, 1, 1], "": ["x", 1, 1, 1]}},
        "row-infinite": {**ledger, "rows": {"a/b": ["x", float("inf"), 1, 1]}},
        "origin-beyond": {**ledger, "units": {"triton/K": 3}},
        "origin-text": {**ledger, "origins": ["x"], "units": {"triton/K": "0"}},
        "signers": {**ledger, "signers": {"triton/K": 5}},
        "version": {**ledger, "version": "1"},
    }  # fmt: skip
    for name, value in values.items():
        yield f"{name}.ledger", (json.dumps(value).encode(), HARMLESS)
    aside: dict[str, object] = {
        "unit": "triton/K", "reason": "\x1b[2J", "at": TIME, "sha256s": [], "segment": None,
    }  # fmt: skip
    for name, change in {
        "path": {"unit": "../../x"}, "unit-number": {"unit": 5}, "digests": {"sha256s": 5},
        "digest": {"sha256s": [5]}, "half-a-pair": {"unit": "triton/\ud800"},
        "control": {"unit": "triton/\x1b[2J"}, "other": {"unit": "triton/K", "sha256s": ["x"]},
    }.items():  # fmt: skip
        value = {"version": 1, "units": [{**aside, **change}]}
        yield f"{name}.quarantine", (json.dumps(value).encode(), HARMLESS)
    for kind in ("ledger", "quarantine"):
        yield f"deep.{kind}", (b"[" * 5000, HARMLESS)
        yield f"bytes.{kind}", (b"\xff\xfe\0", HARMLESS)
        yield f"empty.{kind}", (b"", HARMLESS)


KINDS: dict[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    "manifest.json": manifests,
    "tar": tars,
    "zst": packs,
    "grp": groups,
    "artifact": artifacts,
    "mega": megas,
    "sig": signatures,
    "json": records,
}


def corpus() -> dict[str, Case]:
    """Every input by its file's name, with what must come of it."""
    return {f"{name}.{kind}": case for kind, make in KINDS.items() for name, case in make()}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    for old in target.iterdir():
        if old.name != ".gitattributes":
            old.unlink()
    cases = corpus()
    for name, (data, _) in cases.items():
        (target / name).write_bytes(data)
    table = json.dumps({name: text for name, (_, text) in sorted(cases.items())}, indent=1)
    (target / "expected.json").write_text(table + "\n")
