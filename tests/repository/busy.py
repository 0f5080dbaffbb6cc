"""One process at a store that others push to, pull from and collect at the same time.

Run as a program: ROLE STORE FOLDER NUMBER GRACE_S. It works until FOLDER/stop exists, then prints
what it did as JSON. Times are scaled down as a whole: a pusher gives up after half of the grace
time, and who took longer than that to read may find a pack gone, twice. Nothing else is excused.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from cachesvc.core.address import Address
from cachesvc.core.components import Components
from cachesvc.core.errors import StoreError
from cachesvc.core.manifest import Origin
from cachesvc.core.merge import fewest_packs, merge
from cachesvc.core.requirement import Capabilities
from cachesvc.repository import publish as publishing
from cachesvc.repository.pack import Source
from cachesvc.repository.policy import Policy
from cachesvc.repository.publish import Draft, Facts, publish
from cachesvc.repository.repository import PackMissing, Reading, Repository
from cachesvc.start.bundles import again_if_moved
from cachesvc.start.clock import nonce, now
from cachesvc.start.collect import collect_in
from cachesvc.store.location import open_store

ENVIRONMENT = Components.of({"torch": "2.9.0"})
ADDRESSES = tuple(Address(name, "any", ENVIRONMENT.digest) for name in ("a", "b"))
KEYS = 5


class Worker:
    """What the roles share: the store, the folder of records, what was done and what failed."""

    def __init__(self, store: str, folder: str, number: str, grace_s: str) -> None:
        self.repository = Repository(open_store(store))
        self.folder = Path(folder)
        self.number = int(number)
        self.grace_s = float(grace_s)
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.rounds = 0

    def work(self, role: Callable[[Worker], None]) -> None:
        while not (self.folder / "stop").exists():
            began = monotonic()
            try:
                role(self)
            except Exception as error:
                slow = monotonic() - began >= self.grace_s / 2
                if slow and isinstance(error, PackMissing):
                    self.done["too slow"] += 1
                else:
                    self.failures.append(traceback.format_exc())
            self.rounds += 1

    def read(self, address: Address) -> Reading:
        bundle = self.repository.bundle(address)
        return Reading(address, ()) if bundle is None else self.repository.read(bundle, signed=True)


def push(worker: Worker) -> None:
    """Publishes a unit of its own with one file more than the last time, and writes that down."""
    publishing.PUSH_S = worker.grace_s / 2
    if worker.number % 2:
        publishing.MERGE_LIMIT_BYTES = 0  # its additions alone, as where packs are large
    address = ADDRESSES[worker.rounds % len(ADDRESSES)]
    turn = worker.rounds // len(ADDRESSES)
    key, files = f"triton/P{worker.number}K{turn % KEYS}", 1 + turn // KEYS
    sources = tuple(Source(f"{key}/{n}", 6, lambda: io.BytesIO(b"kernel")) for n in range(files))
    facts = Facts(address, ENVIRONMENT, Components(), now(), nonce())
    draft = Draft(key, sources, Origin(facts.created, "any"))

    def attempt() -> None:
        publish(worker.repository, facts, worker.read(address), [draft], Capabilities())

    try:
        again_if_moved(attempt)
    except StoreError as error:
        if "could be taken for rubbish" not in str(error):
            raise
        worker.done["gave up"] += 1
        return
    with open(worker.folder / f"pushed-{worker.number}", "a") as record:
        record.write(f"{address.name} {key} {files}\n")
    worker.done["pushed"] += 1


def pull(worker: Worker) -> None:
    """Brings all of a bundle as a pull does; whatever was pushed before must be there."""
    address = ADDRESSES[worker.rounds % len(ADDRESSES)]
    promised = recorded(worker.folder, address)
    found = again_if_moved(partial(_bring, worker, address))
    missing = {key for key, files in promised.items() if found.get(key, 0) < files}
    assert not missing, f"{address.name} lacks {missing}"
    worker.done["pulled"] += 1


def recorded(folder: Path, address: Address) -> dict[str, int]:
    """The units that were pushed, each with its number of files."""
    lines = (line for file in folder.glob("pushed-*") for line in file.read_text().splitlines(True))
    whole = (line.split() for line in lines if line.endswith("\n"))
    return {key: int(files) for name, key, files in whole if name == address.name}


def _bring(worker: Worker, address: Address) -> dict[str, int]:
    reading = worker.read(address)
    union = merge(unit for segment in reading.segments for unit in segment.units)
    found: dict[str, int] = {}
    with TemporaryDirectory() as folder:
        for segment, units in fewest_packs(reading.segments, union).parts:
            pack = Path(folder, segment.name)
            worker.repository.fetch(segment, pack)
            wanted = [entry for unit in units for entry in unit.entries]
            for _, stream in worker.repository.entries(segment, pack, wanted):
                assert stream.read() == b"kernel"
            found |= {unit.key: len(unit.entries) for unit in units}
    assert found.keys() == union.keys()
    return found


def gc(worker: Worker) -> None:
    """Collects, and merges every other time."""
    merges = worker.rounds % 2 == 0
    done = collect_in(worker.repository, Policy(), worker.grace_s, merge=merges)
    if done.failure is not None:
        raise done.failure
    worker.done["deleted"] += done.objects
    worker.done["merged"] += sum(number for _, number in done.merged)


if __name__ == "__main__":
    worker = Worker(*sys.argv[2:])
    worker.work({"push": push, "pull": pull, "gc": gc}[sys.argv[1]])
    sys.stdout.write(json.dumps({"done": worker.done, "failures": worker.failures}))
