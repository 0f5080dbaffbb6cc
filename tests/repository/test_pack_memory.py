"""Packs larger than memory should hold: a gigabyte passes through in a bounded window."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
LIMIT_KIB = 200 << 10

# The peak of the process's own memory, not `ru_maxrss`: that one begins with what the parent had.
CHILD = """
import json, sys
from functools import partial
from pathlib import Path
from cachesvc.core.manifest import Entry, Pack
from cachesvc.repository.pack import Source, read_pack, write_pack

work, tree, pack, facts = sys.argv[1], *map(Path, sys.argv[2:])

def write():
    files = sorted(tree.iterdir())
    sources = (Source(f"extra/x/{f.name}", f.stat().st_size, partial(open, f, "rb")) for f in files)
    made, entries = write_pack(sources, pack)
    said = [made.size, made.sha256, made.unpacked]
    facts.write_text(json.dumps([said, list(entries.values())]))

def read():
    made, rows = json.loads(facts.read_text())
    entries = {row[0]: Entry(*row[:3]) for row in rows}
    size = 0
    with open(pack, "rb") as source:
        for entry, stream in read_pack(source, Pack(*made), entries, "pack"):
            while data := stream.read(1 << 20):
                size += len(data)
    assert size == sum(entry.size for entry in entries.values()), size

{"write": write, "read": read, "nothing": lambda: None}[work]()
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def _tree(folder: Path) -> Path:
    """A gigabyte: random files, a large file of text, and copies of binaries far apart."""
    folder.mkdir()
    choice = random.Random(0)
    binaries = [choice.randbytes(8 * MIB) for _ in range(8)]
    text = b"".join(b"%d: some line of text\n" % n for n in range(45_000))
    with open(folder / "large.txt", "wb") as file:
        file.writelines(text for _ in range(300))
    for number in range(48):
        (folder / f"{number}.bin").write_bytes(binaries[number % 8])
    for number in range(32):
        (folder / f"{number}.random").write_bytes(choice.randbytes(10 * MIB))
    return folder


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Packing and reading a gigabyte takes at most 200 MiB more than importing the code for it."""
    tree = _tree(tmp_path / "tree")
    assert sum(file.stat().st_size for file in tree.iterdir()) > 950 * MIB

    def peak(work: str) -> int:
        places = (tree, tmp_path / "pack", tmp_path / "facts")
        command = [sys.executable, "-c", CHILD, work, *places]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    empty, write, read = peak("nothing"), peak("write"), peak("read")
    assert write - empty <= LIMIT_KIB, f"packing took {(write - empty) >> 10} MiB"
    assert read - empty <= LIMIT_KIB, f"reading took {(read - empty) >> 10} MiB"
