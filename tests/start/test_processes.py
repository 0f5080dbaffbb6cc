"""Forks, spawned workers, threads, and processes that end in the middle of a start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_processes import HERE, PRELUDE, QUICK

from cachesvc.repository.repository import Repository
from cachesvc.store.directory import DirectoryStore

from .conftest import START, Published, Starts

pytestmark = pytest.mark.xdist_group("start")

# A compile of one small graph takes a second; a busy machine makes it many.
PATIENCE_S = 120

# `Halting` is a store that stops at one kind of request until it is told to go on. `fork` runs a
# function in a fork and `answers` waits for what forks returned; one that hangs is killed.
TOOLS = (
    f"PATIENCE_S = {PATIENCE_S}"
    + """
import json, signal, threading
from cachesvc.store.location import open_store
from cachesvc.store.wrapper import Wrapper

class Halting(Wrapper):
    def __init__(self, url, verb="", suffix=""):
        super().__init__(open_store(url))
        self.at = verb, suffix
        self.begun, self.go = threading.Event(), threading.Event()

    def _halt(self, verb, key):
        if verb == self.at[0] and key.startswith("bundles/") and key.endswith(self.at[1]):
            self.begun.set()
            self.go.wait()

    def _fetch(self, key, target):
        self._halt("fetch", key)
        return super()._fetch(key, target)

    def _put(self, key, source):
        self._halt("put", key)
        super()._put(key, source)

def fork(function, *arguments):
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    status = 1
    try:
        signal.alarm(PATIENCE_S)
        os.write(writes, json.dumps(function(*arguments)).encode())
        status = 0
    except BaseException:
        __import__("traceback").print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)

def answers(*forks):
    found = []
    for child, reads in forks:
        with os.fdopen(reads, "rb") as pipe:
            text = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, f"a fork ended with {code}"
        found.append(json.loads(text))
    return found

class Thread(threading.Thread):
    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self.work, self.result, self.error = (lambda: function(*arguments)), None, None
        self.start()

    def run(self):
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error

    def outcome(self):
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a thread hangs"
        if self.error is not None:
            raise self.error
        return self.result

def right(model, *inputs):
    with torch.no_grad():
        eager = getattr(model, "_orig_mod", model)
        return bool(torch.allclose(model(*inputs), eager(*inputs)))
"""
)


def unfinished(home: Path) -> list[Path]:
    """What a pull that was not finished has left in the live directory."""
    return list(home.rglob(".tccache-stage-*"))


def seeded(home: Path) -> list[Path]:
    """Entries of Inductor's cache in the live directory."""
    return [path for path in home.rglob("fxgraph/*/*/*") if path.is_file()]


def manifests(store: Path) -> list[Path]:
    return list(store.rglob("bundles/*/*/*/*.json"))


def assert_consistent(store: Path) -> None:
    """Every manifest has its pack, and every bundle can be read."""
    for manifest in manifests(store):
        assert manifest.with_suffix(".tar.zst").exists()
    repository = Repository(DirectoryStore(store))
    assert not [r for bundle in repository.bundles() for r in repository.read(bundle).refused]


# --- forks


def test_a_server_that_starts_before_it_forks(starts: Starts, plain: Published) -> None:
    """Workers forked from a process that has started warm have its compiled model and its report;
    a report without calls settles in the worker."""
    report, workers = starts.run(
        TOOLS
        + """
model, later = torch.compile(Plain()), torch.compile(Plain())
report = start(model, [ones()])
unproven = start(later)

def worker():
    before = shown(unproven)["verdict"]
    done = right(model, ones()), right(later, ones())
    with torch.no_grad():
        torch._dynamo.reset()
        later(ones())
    return [*done, shown(report)["verdict"], before, shown(unproven)["verdict"]]

result = [shown(report), answers(*[fork(worker) for _ in range(3)])]
""",
        store=plain.store,
        label=plain.label,
    )
    assert report["verdict"] == "warm"
    assert workers == [[True, True, "warm", "unproven", "warm"]] * 3


def test_workers_that_start_after_the_fork(starts: Starts, plain: Published) -> None:
    """Four at once with one empty live directory: one brings the units, the others find them in
    place, all are warm."""
    workers = starts.run(
        TOOLS
        + """
reads, writes = os.pipe()

def worker():
    os.read(reads, 1)
    model = torch.compile(Plain())
    return [shown(start(model, [ones()])), right(model, ones())]

forks = [fork(worker) for _ in range(4)]
os.write(writes, b"gogo")
result = answers(*forks)
""",
        store=plain.store,
        label=plain.label,
    )
    reports = [report for report, _ in workers]
    assert [done for _, done in workers] == [True] * 4
    assert [report["verdict"] for report in reports] == ["warm"] * 4
    assert sorted(report["transfer"]["packs"] for report in reports) == [0, 0, 0, 1]
    assert all(not note for report in reports for note in report["notes"])


def test_a_fork_while_a_publication_is_under_way(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """The fork starts warm by itself and may publish; the parent's publication is finished."""
    worker, parent = starts.run(
        TOOLS
        + """
halting = Halting(given["other"], "put", ".tar.zst")
report = start(torch.compile(Plain()), [ones()], store=halting, publish=True)
assert halting.begun.wait(PATIENCE_S)

def worker():
    torch._dynamo.reset()
    model = torch.compile(Plain())
    again = start(model, [ones()])
    pushed = cachesvc.push(model, store=given["third"], label="plain")
    return [shown(again), right(model, ones()), shown(report)["published"], pushed.units]

found = answers(fork(worker))
halting.go.set()
assert report.publishing.wait(PATIENCE_S)
result = [found[0], shown(report)]
""",
        store=plain.store,
        label=plain.label,
        given={"other": str(tmp_path / "other"), "third": str(tmp_path / "third")},
    )
    again, done, state, units = worker
    assert again["verdict"] == "warm"
    assert done
    assert state == "left behind in another process"
    assert units > 0
    assert parent["published"].startswith("segment ")
    assert_consistent(tmp_path / "other")
    assert_consistent(tmp_path / "third")


def test_a_fork_while_a_pull_is_under_way(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """A thread of the parent holds the live directory: the fork waits for it no longer than its
    deadline and serves cold, and the parent's pull is finished as if nothing had been."""
    home = tmp_path / "home"
    worker, parent = starts.run(
        TOOLS
        + """
halting = Halting(given["store"], "fetch", ".tar.zst")
model = torch.compile(Plain())
thread = Thread(lambda: start(model, [ones()], store=halting))
assert halting.begun.wait(PATIENCE_S)

def worker():
    mine = torch.compile(Plain())
    return [shown(start(mine, [ones()], deadline=0.3)), right(mine, ones())]

found = answers(fork(worker))
halting.go.set()
result = [found[0], shown(thread.outcome())]
""",
        store=plain.store,
        label=plain.label,
        home=home,
    )
    report, done = worker
    assert done
    assert report["bundle"] is None
    assert any("the deadline of 0." in note for note in report["notes"]), report["notes"]
    assert parent["transfer"]["packs"] == 1
    assert unfinished(home) == []


# --- threads


def test_starts_of_two_models_in_two_threads(starts: Starts, plain: Published) -> None:
    """Both are right. The compiler's counters are those of the process, so a verdict may look
    worse than its start was, never better."""
    warm, cold, done = starts.run(
        TOOLS
        + """
first, second = torch.compile(Plain()), torch.compile(Other())
threads = [Thread(start, first, [ones()]), Thread(lambda: start(second, [ones()], label="other"))]
reports = [shown(thread.outcome()) for thread in threads]
result = [*reports, [right(first, ones()), right(second, ones())]]
""",
        store=plain.store,
        label=plain.label,
    )
    assert done == [True, True]
    assert warm["verdict"] in ("warm", "partial")
    assert cold["verdict"] in ("cold", "partial")


def test_two_starts_of_one_model_in_two_threads(starts: Starts, plain: Published) -> None:
    """Both come to an end, one of them brings the bundle, and nothing is compiled."""
    reports, done = starts.run(
        TOOLS
        + """
model = torch.compile(Plain())
threads = [Thread(start, model, [ones()]) for _ in range(2)]
result = [[shown(thread.outcome()) for thread in threads], right(model, ones())]
""",
        store=plain.store,
        label=plain.label,
    )
    assert done
    assert sorted(report["transfer"]["packs"] for report in reports) == [0, 1]
    assert sum(report["counts"]["graph_misses"] for report in reports) == 0
    assert "warm" in [report["verdict"] for report in reports]
    assert {report["verdict"] for report in reports} <= {"warm", "unproven"}


def test_a_start_in_another_thread_than_the_first(starts: Starts, plain: Published) -> None:
    """The calls are made as that thread is set: gradients there, none in the first thread; and both
    are left as they were."""
    verdict, there, here = starts.run(
        TOOLS
        + """
def settings():
    return [torch.is_grad_enabled(), torch.get_num_threads(), torch.is_autocast_enabled("cpu")]

def work():
    torch.set_grad_enabled(False)
    report = cachesvc.warm_start(
        torch.compile(Plain()), [ones()], store=given["store"], label="plain"
    )
    return shown(report)["verdict"], settings()

with torch.autocast("cpu"):
    before = settings()
    verdict, there = Thread(work).outcome()
    result = [verdict, there, [before, settings()]]
""",
        store=plain.store,
        label=plain.label,
    )
    assert verdict == "warm"
    assert there[0] is False
    assert there[2] is False
    assert here[0] == here[1]
    assert here[0][0] is True


def test_an_eager_call_is_eager_in_its_own_thread_only(starts: Starts) -> None:
    """What another thread serves meanwhile stays compiled, and two such calls that overlap leave
    no thread eager behind them."""
    result = starts.run(
        TOOLS
        + """
from cachesvc.runtime.eager import eagerly
backend_calls = []

def backend(graph, inputs):
    def run(*arguments):
        backend_calls.append(threading.current_thread().name)
        return graph(*arguments)
    return run

compiled = torch.compile(square, backend=backend, fullgraph=True)
compiled(ones(2, 2))
backend_calls.clear()
entered, served, overlapped, left = (threading.Event() for _ in range(4))

def first():
    with eagerly():
        entered.set()
        assert served.wait(PATIENCE_S) and overlapped.wait(PATIENCE_S)
        compiled(ones(2, 2))
    left.set()

def second():
    assert entered.wait(PATIENCE_S)
    with eagerly():
        overlapped.set()
        assert left.wait(PATIENCE_S)
        compiled(ones(2, 2))

threads = [Thread(first), Thread(second)]
assert entered.wait(PATIENCE_S)
compiled(ones(2, 2))
during = len(backend_calls)
served.set()
for thread in threads:
    thread.outcome()
compiled(ones(2, 2))
with torch.compiler.set_stance("force_eager"), eagerly():
    compiled(ones(2, 2))
compiled(ones(2, 2))
result = [during, len(backend_calls)]
"""
    )
    assert result == [1, 3]


def test_two_calls_apart_from_the_bundle_at_once(starts: Starts, tmp_path: Path) -> None:
    """Each has its own empty directories, one after the other, and the process has its own back."""
    inside, after = starts.run(
        TOOLS
        + """
from cachesvc.runtime.reset import apart
os.environ["TORCHINDUCTOR_CACHE_DIR"] = given["own"]
inside = []

def work():
    with apart():
        inside.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        entered.set()
        ended.wait(0.2)
        inside.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])

entered, ended = threading.Event(), threading.Event()
threads = [Thread(work), Thread(work)]
for thread in threads:
    thread.outcome()
result = [inside, os.environ["TORCHINDUCTOR_CACHE_DIR"]]
""",
        given={"own": str(tmp_path / "own")},
    )
    assert inside[0] == inside[1] != inside[2] == inside[3]
    assert after == str(tmp_path / "own")


def test_a_start_beside_a_running_event_loop(starts: Starts, plain: Published) -> None:
    """In an executor the loop goes on meanwhile; called in the loop itself it only blocks it."""
    reports, ticks = starts.run(
        TOOLS
        + """
import asyncio

async def main():
    ticked, ended, ticks = asyncio.Event(), False, 0

    async def tick():
        nonlocal ticks
        while not ended:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    loop = asyncio.get_running_loop()
    model = torch.compile(Plain())
    first = await loop.run_in_executor(None, start, model, [ones()])
    ended = True
    await ticking
    torch._dynamo.reset()
    return [shown(first), shown(start(model, [ones()]))], ticks

result = asyncio.run(main())
""",
        store=plain.store,
        label=plain.label,
    )
    assert [report["verdict"] for report in reports] == ["warm", "warm"]
    assert ticks > 2


# --- ranks


@pytest.mark.slow
def test_ranks_that_publish_at_once(starts: Starts, tmp_path: Path) -> None:
    """Three processes compile the same graph and one more each and publish beside their calls:
    all end, and the next start finds the union."""
    store = tmp_path / "store"
    ranks = starts.run(
        TOOLS
        + """
import pathlib
reads, writes = os.pipe()

def rank(number):
    os.environ["TCCACHE_HOME"] = os.path.join(given["homes"], str(number))
    model = torch.compile(Plain(), dynamic=False)
    os.read(reads, 1)
    report = start(model, calls=[[ones()], [ones(3 + number, 4)]], publish=True)
    assert report.publishing.wait(PATIENCE_S)
    return shown(report)

forks = [fork(rank, number) for number in range(3)]
os.write(writes, b"gogogo")
result = answers(*forks)
""",
        store=store,
        label="ranks",
        given={"homes": str(tmp_path / "homes")},
    )
    assert [rank["verdict"] in ("cold", "partial") for rank in ranks] == [True] * 3
    assert all(rank["published"].startswith("segment") for rank in ranks), ranks
    assert_consistent(store)
    last = starts.run(
        """
model = torch.compile(Plain(), dynamic=False)
result = shown(start(model, calls=[[ones()], *([ones(3 + n, 4)] for n in range(3))]))
""",
        store=store,
        label="ranks",
    )
    assert last["verdict"] == "warm"
    assert [call["covered"] for call in last["calls"]] == [True] * 4


# --- spawned workers, and those of a DataLoader

PROGRAM = """
import json, multiprocessing, os, sys
import torch, cachesvc
from torch.utils.data import DataLoader, Dataset
from tiny_models import Plain, ones

model = torch.compile(Plain())
with torch.no_grad():
    report = cachesvc.warm_start(model, [ones()], label="plain", publish=True)

def say(kind, *values):
    with open(os.path.join(sys.argv[1], f"{kind}-{os.getpid()}"), "w") as file:
        told = [report.verdict, report.transfer.seeded, report.publishing is None]
        json.dump([*told, *values], file)

class Data(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        say("worker")
        return ones(4) * index

def work(number):
    with torch.no_grad():
        say("spawned", torch.allclose(model(ones()), model._orig_mod(ones())))

def main():
    right = []
    for method in ("fork", "spawn"):
        how = {"num_workers": 2, "multiprocessing_context": method}
        for batch in DataLoader(Data(), batch_size=2, **how):
            with torch.no_grad():
                right.append(torch.allclose(model(batch), model._orig_mod(batch)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(work, [0])
    say("main", right)

if __name__ == "__main__":
    main()
"""


def environment(home: Path, store: Path) -> dict[str, str]:
    """That of an interpreter of its own, with a store."""
    return {
        **os.environ,
        **QUICK,
        "PYTHONPATH": str(HERE),
        "TCCACHE_HOME": str(home),
        "TCCACHE_STORE": str(store),
    }


def test_the_program_is_found_behind_torch() -> None:
    """What the compiler's keys are made of is the same in a program that imported multiprocessing
    before torch, as every spawned worker has."""
    said = ran("""
import multiprocessing, pickle, torch
from cachesvc.runtime.spawned import find_program_last

find_program_last()
print(b"torch._utils" in pickle.dumps(torch.contiguous_format))
""")
    assert said == "True\n"


@pytest.mark.slow
def test_spawned_workers_and_those_of_a_data_loader(plain: Published, tmp_path: Path) -> None:
    """They start warm as they import the program, or inherit its start; none of them seeds or
    publishes, and the program ends without a word."""
    program, said = tmp_path / "program.py", tmp_path / "said"
    program.write_text(PROGRAM)
    said.mkdir()
    before = sorted(plain.store.rglob("*"))
    done = subprocess.run(
        [sys.executable, str(program), str(said)],
        env=environment(tmp_path / "home", plain.store),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    found = {file.name: json.loads(file.read_text()) for file in said.iterdir()}
    workers = [name for name in found if name.startswith("worker")]
    spawned = [name for name in found if name.startswith("spawned")]
    (main,) = (value for name, value in found.items() if name.startswith("main"))
    assert (len(workers), len(spawned), len(found)) == (4, 1, 6)
    assert {value[0] for value in found.values()} == {"warm"}, found
    assert all(value[2] for value in found.values())
    assert sorted(found[name][1] for name in workers) == [0, 0, main[1], main[1]]
    assert main[1] > 0
    assert main[3] == [True] * 8
    assert found[spawned[0]][1:] == [0, True, True]
    assert sorted(plain.store.rglob("*")) == before


# --- interrupts


def test_an_interrupt_while_the_bundle_is_brought(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """KeyboardInterrupt is the caller's; what was on its way is dropped, and the next start of the
    same process finds nothing in its way."""
    home = tmp_path / "home"
    interrupted, again = starts.run(
        TOOLS
        + """
import pathlib
halting = Halting(given["store"], "fetch", ".tar.zst")
model = torch.compile(Plain())

def interrupt():
    assert halting.begun.wait(PATIENCE_S)
    os.kill(os.getpid(), signal.SIGINT)

Thread(interrupt)
try:
    start(model, [ones()], store=halting)
    interrupted = []
except KeyboardInterrupt:
    interrupted = ["interrupted"]
halting.go.set()
for thread in threading.enumerate():
    if thread.name == "tccache-start":
        thread.join(PATIENCE_S)
interrupted += map(str, pathlib.Path(given["home"]).rglob("fxgraph/*/*/*"))
interrupted += map(str, pathlib.Path(given["home"]).rglob(".tccache-stage-*"))
result = [interrupted, shown(start(model, [ones()]))]
""",
        store=plain.store,
        label=plain.label,
        home=home,
        given={"home": str(home)},
    )
    assert interrupted == ["interrupted"]
    assert again["verdict"] == "warm"
    assert again["notes"] == []


def test_an_interrupt_while_the_model_is_called(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """In the midst of a compile, and in the caller's own code: it comes through, no start is taken
    for a dead one, and the same call made again is right."""
    home = tmp_path / "home"
    came, left, right, after = starts.run(
        TOOLS
        + """
import pathlib
from torch._inductor.graph import GraphLowering
codegen, came = GraphLowering.codegen, []

def interrupted(*arguments):
    GraphLowering.codegen = codegen
    signal.raise_signal(signal.SIGINT)

def leave():
    raise SystemExit(3)

model = torch.compile(Plain())
GraphLowering.codegen = interrupted
for calls in ([[ones(3, 4)]], [lambda: signal.raise_signal(signal.SIGINT)], [leave]):
    try:
        start(model, calls=calls)
    except BaseException as error:
        came.append(type(error).__name__)
left = [path.name for path in pathlib.Path(given["home"]).rglob("starts/*")]
report = shown(start(model, calls=[[ones(3, 4)]]))
result = [came, left, right(model, ones(3, 4)), report]
""",
        store=plain.store,
        label=plain.label,
        home=home,
        given={"home": str(home)},
    )
    assert came == ["KeyboardInterrupt", "KeyboardInterrupt", "SystemExit"]
    assert left == []
    assert right
    assert after["counts"]["graph_misses"] == 1
    assert after["notes"] == []
    assert after["set_aside"] == []


# --- the end of the process

PULLING = (
    PRELUDE
    + "given = {'store': os.environ['TCCACHE_STORE'], 'label': 'plain'}\n"
    + START
    + TOOLS
    + """
halting = Halting(given["store"], "fetch", ".tar.zst")
model = torch.compile(Plain())
thread = Thread(lambda: start(model, [ones()], store=halting))
assert halting.begun.wait(PATIENCE_S)
"""
)

PUBLISHING = (
    PRELUDE
    + "given = {'store': os.environ['TCCACHE_STORE'], 'label': 'plain'}\n"
    + START
    + TOOLS
    + """
import atexit
import cachesvc.start.beside as beside
halting = Halting(given["store"], "put", sys.argv[1])
with torch.no_grad():
    report = start(torch.compile(Plain()), [ones()], store=halting, publish=True)
assert halting.begun.wait(PATIENCE_S)
"""
)


def began(script: str, home: Path, store: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment(home, store),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what came on stderr."""
    try:
        _, told = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, told


@pytest.mark.slow
def test_a_process_that_ends_while_it_pulls(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """From a store that hangs: its own way to end is how it ends, at once and without a word of
    this library; nothing has been seeded, and the next start clears what was staged."""
    ways = {
        "sys.exit(0)": (0, ""),
        "raise RuntimeError('our own')": (1, "our own"),
        "os._exit(3)": (3, ""),
        "os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()": (-signal.SIGTERM, ""),
    }
    homes = {way: tmp_path / str(number) for number, way in enumerate(ways)}
    begun = {way: began(PULLING + way, homes[way], plain.store) for way in ways}
    for way, process in begun.items():
        code, told = ended(process)
        assert code == ways[way][0], told
        assert ways[way][1] in told
        assert told == "" or (told.count("Traceback") == 1 and "tccache" not in told)
        assert seeded(homes[way]) == []
    report = starts.run(
        "result = shown(start(torch.compile(Plain()), [ones()]))",
        store=plain.store,
        label=plain.label,
        home=homes["os._exit(3)"],
    )
    assert report["verdict"] == "warm"
    assert report["notes"] == []
    assert unfinished(homes["os._exit(3)"]) == []


@pytest.mark.slow
def test_a_process_that_ends_while_it_publishes(tmp_path: Path) -> None:
    """The end waits for what can be finished; a store that hangs holds nobody, nor does a signal,
    and no reader sees half a bundle."""
    hanging = "beside.EXIT_PATIENCE_S = 0.1"
    ways: dict[str, tuple[str, str, int, int]] = {
        "finishes": ("atexit.register(halting.go.set)", ".tar.zst", 0, 1),
        "hangs at the pack": (hanging, ".tar.zst", 0, 0),
        "hangs at the manifest": (hanging, ".json", 0, 0),
        "killed": (
            "os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()",
            ".tar.zst",
            -signal.SIGTERM,
            0,
        ),
    }
    begun = {
        name: began(PUBLISHING + way, tmp_path / name / "home", tmp_path / name / "store", suffix)
        for name, (way, suffix, _, _) in ways.items()
    }
    for name, process in begun.items():
        _, _, code, bundles = ways[name]
        assert ended(process) == (code, ""), name
        assert len(manifests(tmp_path / name / "store")) == bundles, name
        assert_consistent(tmp_path / name / "store")


# --- what a fork inherits

INHERITED = """
import os, sys, threading
from pathlib import Path
from cachesvc.repository.scratch import scratch

at_work, go = threading.Event(), threading.Event()

def work():
    with scratch("test") as folder:
        (folder / "pack").write_bytes(b"half")
        folders.append(folder)
        at_work.set()
        go.wait()
    folders.append(folder)

folders = []
thread = threading.Thread(target=work)
thread.start()
at_work.wait()
child = os.fork()
if child == 0:
    sys.exit(0)
status = os.waitpid(child, 0)[1]
kept = (folders[0] / "pack").exists()
go.set()
thread.join()
print(status, kept, folders[1].exists())
"""


def ran(script: str, *arguments: object, status: int = 0) -> str:
    """What a script prints in an interpreter of its own; nothing may come on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


def test_a_fork_that_ends_leaves_its_parents_scratch_alone() -> None:
    """A worker that ends while the server publishes: the pack that is being written stays."""
    assert ran(INHERITED) == "0 True False\n"


def test_scratch_goes_with_its_process_after_the_last_wait() -> None:
    """A publication in its last seconds still has its folder; afterwards nothing is left."""
    folder, there = ran("""
import threading
from cachesvc.repository.scratch import scratch
from cachesvc.start.beside import Beside

begun, ending = threading.Event(), threading.Event()

def push():
    with scratch("test") as folder:
        begun.set()
        ending.wait()
        print(folder, folder.exists(), flush=True)
        threading.Event().wait()

import cachesvc.start.beside as module
module.EXIT_PATIENCE_S = 1
beside = Beside(push)
begun.wait()
join = beside.wait
beside.wait = lambda timeout: (ending.set(), join(timeout))
""").split()
    assert there == "True"
    assert not os.path.exists(folder)


def test_a_lock_does_not_live_on_in_a_fork(tmp_path: Path) -> None:
    """A server is killed while a thread of it seeds, and a worker that it forked lives on: the
    live directory is free."""
    said = ran(
        """
import os, signal, sys, threading
from pathlib import Path
from cachesvc.local.places import under
from cachesvc.local.seed import Seeder

places = under(Path(sys.argv[1]))
held, worker_is_up = os.pipe()
stays, end = os.pipe()
server = os.fork()
if server == 0:
    os.close(end)
    at_work = threading.Event()
    def seed():
        with Seeder(places):
            at_work.set()
            threading.Event().wait()
    threading.Thread(target=seed, daemon=True).start()
    at_work.wait()
    if os.fork() == 0:
        os.write(worker_is_up, b"x")
        os.read(stays, 1)
        os._exit(0)
    threading.Event().wait()
os.read(held, 1)
os.kill(server, signal.SIGKILL)
os.waitpid(server, 0)
with Seeder(places, patience_s=0):
    print("free")
""",
        tmp_path,
    )
    assert said == "free\n"


def test_a_client_of_a_bucket_is_not_shared_with_a_fork() -> None:
    """Two processes that use one connection get each other's answers."""
    said = ran("""
import os, signal, threading
import cachesvc.store.s3 as s3

store = s3.S3Store("s3://bucket")
made, go = threading.Event(), threading.Event()

class Slow:
    def __init__(self, options):
        made.set()
        if not go.is_set():
            go.wait()

s3._wire = Slow
thread = threading.Thread(target=lambda: store._wire)
thread.start()
made.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    go.set()
    os._exit(0 if isinstance(store._wire, Slow) else 1)
status = os.waitpid(child, 0)[1]
go.set()
thread.join()
own = store._wire
assert store._wire is own
child = os.fork()
if child == 0:
    os._exit(0 if store._wire is not own else 1)
print(status, os.waitpid(child, 0)[1])
""")
    assert said == "0 0\n"


def test_values_that_are_kept_hold_no_lock_over_a_fork() -> None:
    """One thread works out a digest, a list of units or the records of a bundle while the process
    forks: the fork works out its own."""
    said = ran("""
import os, signal, threading
import cachesvc.core.components as module
from cachesvc.core.components import Components

digest_json = module.digest_json
at_work, go = threading.Event(), threading.Event()

def slow(value):
    if threading.current_thread() is not threading.main_thread():
        at_work.set()
        go.wait()
    return digest_json(value)

module.digest_json = slow
thread = threading.Thread(target=lambda: Components.of({"a": "b"}).digest)
thread.start()
at_work.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    Components.of({"c": "d"}).digest
    os._exit(0)
print(os.waitpid(child, 0)[1])
go.set()
thread.join()
""")
    assert said == "0\n"


@pytest.mark.slow
def test_a_publication_imports_nothing_beside_the_caller(
    starts: Starts, fused: Published, tmp_path: Path
) -> None:
    """A fork while a thread imports inherits a lock on that module that nobody releases: whatever
    the publication needs was imported before."""
    late = starts.run(
        TOOLS
        + """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name == "tccache-publish":
            late.append(name)

late = []
sys.meta_path.insert(0, Finder())
model = torch.compile(Fused())
with torch.no_grad():
    model(ones())
from cachesvc.start.push import push_beside
report = start(model, [ones()], store=given["empty"])
publishing = push_beside(model, report, store=given["empty"], trust=None, label="fused", salt=None)
assert publishing.wait(PATIENCE_S)
result = [late, publishing.state()]
""",
        home=fused.home,
        given={"empty": str(tmp_path / "store")},
    )
    assert late[1].startswith("segment ")
    assert late[0] == []
