"""Writes the golden store of format 1: `python tests/golden/make_v1.py tests/golden`.

`v1/` was written once and is never written again: it stands for the stores that are out there. The
test beside it reads that store, and compares what today's code writes with what was written then.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import sys
from pathlib import Path

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.manifest import Origin
from cachesvc.core.proof import Proof
from cachesvc.core.report import Verdict
from cachesvc.core.requirement import Capabilities, Requirement
from cachesvc.local.group import relocate
from cachesvc.local.layout import unit_key
from cachesvc.local.megafile import Artifact
from cachesvc.repository.pack import Source
from cachesvc.repository.publish import Draft, Facts, publish
from cachesvc.repository.repository import Reading, Repository
from cachesvc.store.contract import Store
from cachesvc.store.directory import DirectoryStore
from cachesvc.store.location import mark_format

ENVIRONMENT = Components.of(
    {
        "capability": "9.0",
        "device": "NVIDIA H200",
        "platform": "linux-x86_64-glibc",
        "python": "cpython-312-x86_64-linux-gnu",
        "runtime": "cuda 12.8",
        "torch": "2.9.0+cu128",
        "torch_git": "0fabc3ba44823f257e70ce397d989c8de5e362c1",
        "triton": "3.5.0",
    }
)
MODEL = Components.of({"class": "demo.GPT", "parameters": "ab" * 32, "größe": "klein"})
FIRST, SECOND, ALONE = (f"2025-01-0{day}T03:04:05.678901Z" for day in (1, 2, 3))

_random = random.Random(1)
_GROUP = {
    "child_paths": {
        "kernel.cubin": "/tmp/torchinductor_me/triton/0/KERNEL/kernel.cubin",
        "kernel.ttir": "/tmp/torchinductor_me/triton/0/KERNEL/kernel.ttir",
    }
}
_KERNEL = {
    "triton/KERNEL/__grp__kernel.json": relocate(json.dumps(_GROUP).encode(), "group"),
    "triton/KERNEL/kernel.cubin": b"\x7fELF" + _random.randbytes(3000),
    "triton/KERNEL/kernel.ttir": b"module { tt.return }\n" * 40,
}
_STEM = {
    "inductor/ab/cabstem.main.cpp": b"extern void kernel(float* out) {}\n" * 30,
    "inductor/ab/cabstem.main.so": b"\x7fELF" + _random.randbytes(2000),
}
_GRAPHS = {
    "inductor/fxgraph/cd/fcdkey/" + "n" * 255: b"a graph",
    "inductor/aotautograd/akey/entry": b"an entry",
}
_ADDED = {
    "inductor/fxgraph/ef/fefkey/graph": b"another graph",
    "aot/forward/0/function": b"a function",
    "aot/forward/0/lib/" + "folder/" * 20 + "model.so": b"\x7fELF" + bytes(100),
    "extra/engine/rank_0/größe (1).json": b"{}",
    "extra/engine/empty": b"",
}
_ARTIFACTS = (
    Artifact("inductor", "fcdkey", b"\x80\x04one set of guards"),
    Artifact("inductor", "fcdkey", b"\x80\x04another"),
    Artifact("pgo", "a key: of any text/..", b""),
)
_MEGA = {artifact.path: artifact.to_bytes() for artifact in _ARTIFACTS}
_NEEDS = {
    "inductor/ab/cabstem": (Requirement("isa", "avx2"), Requirement("glibc", "2.34")),
    "triton/KERNEL": (Requirement("driver", "12"),),
}

CONTENTS = {"gpt": {**_KERNEL, **_STEM, **_GRAPHS, **_ADDED}, "directories": {**_MEGA, **_KERNEL}}
"""What a reader finds, by the name of the bundle: the bytes of each entry."""


def write(store: Store) -> None:
    """Two pushes to one bundle, the second of which replaces the first; and one to another."""
    mark_format(store)
    gpt = Address("gpt", MODEL.digest, ENVIRONMENT.digest)
    _push(
        store,
        {**_KERNEL, **_STEM, **_GRAPHS},
        _facts(
            gpt,
            FIRST,
            coverage=("(float32[8, 16])",),
            proof=Proof(cold_s=47.4, verdict=Verdict.COLD),
            tags=("nightly",),
        ),
        Components.of({"config.max_autotune": "True", "threads": "8"}),
    )
    _push(
        store,
        _ADDED,
        _facts(
            gpt,
            SECOND,
            coverage=("(float32[1, 16])",),
            proof=Proof(47.4, 1.02, Verdict.WARM, ("outputs equal to eager", "fresh process")),
            tags=("release",),
        ),
        Components.of({"config.max_autotune": "True", "threads": "16"}),
    )
    lone = Address("directories", "any", ENVIRONMENT.digest)
    _push(store, CONTENTS["directories"], _facts(lone, ALONE), Components())


def _facts(address: Address, created: str, **said: object) -> Facts:
    return Facts(
        address=address,
        environment=ENVIRONMENT,
        model=Components() if address.model == "any" else MODEL,
        created=created,
        nonce=hashlib.md5(created.encode(), usedforsecurity=False).hexdigest(),
        producer=Components.of({"tccache": "0.1.0", "python": "3.12.1"}),
        **said,  # type: ignore[arg-type]
    )


def _push(store: Store, files: dict[str, bytes], facts: Facts, context: Components) -> None:
    units: dict[str, list[Source]] = {}
    for path, data in sorted(files.items()):
        found = Source(path, len(data), lambda data=data: io.BytesIO(data))  # type: ignore[misc]
        units.setdefault(unit_key(path.split("/")), []).append(found)
    origin = Origin(facts.created, facts.address.model, context)
    drafts = [Draft(key, tuple(s), origin, _NEEDS.get(key, ())) for key, s in units.items()]
    repository = Repository(store)
    bundle = repository.bundle(facts.address)
    reading = repository.read(bundle) if bundle else Reading(facts.address, ())
    publish(repository, facts, reading, drafts, Capabilities(unchecked=True))


def digests() -> dict[str, dict[str, str]]:
    """The SHA-256 of each entry, by bundle and path."""
    return {
        name: {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}
        for name, files in CONTENTS.items()
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write(DirectoryStore(target / "v1"))
    expected = json.dumps(digests(), indent=1, ensure_ascii=False, sort_keys=True)
    (target / "v1-expected.json").write_text(expected + "\n")
