"""Cache trees made up for benchmarks, with the shape and the redundancy of real ones."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

REAL = Path(__file__).parent.parent / "tests" / "data" / "h200_cache.tar.xz"


def real_tree(folder: Path) -> Path:
    """The recorded H200 tree, unpacked."""
    with tarfile.open(REAL) as tar:
        tar.extractall(folder, filter="data")
    return folder


def enlarged(real: Path, target: Path, files: int) -> Path:
    """A tree of about `files` files: the recorded one, and copies of its Triton kernels.

    Each copy is another kernel to Triton and to a compressor: another key, other names in its
    texts, and one byte in 64 of its binaries changed, as in kernels of other shapes.
    """
    rng = random.Random(0)
    _copy(real / "inductor", target / "inductor")
    count = sum(1 for path in (target / "inductor").rglob("*") if path.is_file())
    generation = 0
    kernels = sorted(path for path in (real / "triton").iterdir() if path.is_dir())
    while count < files:
        for kernel in kernels:
            key = f"{generation:02d}{kernel.name[2:]}"
            count += _kernel(kernel, target / "triton" / key, generation, rng)
            if count >= files:
                break
        generation += 1
    return target


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            file = target / path.relative_to(source)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(path.read_bytes())


def _kernel(source: Path, target: Path, generation: int, rng: random.Random) -> int:
    target.mkdir(parents=True)
    for path in source.iterdir():
        data = path.read_bytes()
        if path.name.startswith("__grp__"):
            group = json.loads(data)
            children = group["child_paths"]
            group["child_paths"] = {
                name: str(target / Path(c).name) for name, c in children.items()
            }
            data = json.dumps(group).encode()
        elif path.suffix == ".cubin":
            data = _changed(data, rng)
        elif generation and path.suffix != ".so":
            data = data.replace(b"triton_", b"triton%d_" % generation)
        (target / path.name).write_bytes(data)
    return len(list(target.iterdir()))


def _changed(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(len(data) // 64):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)
