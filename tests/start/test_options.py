"""What the caller of a warm start may ask for, each option with real starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cachesvc.core.errors import UsageError
from cachesvc.start import attempt
from cachesvc.start.bring import Brought
from cachesvc.start.options import DEADLINE, DEADLINE_S, checked, deadline_seconds
from tests.cli.silent_s3 import Bucket

from .conftest import Published, Starts
from .test_publishing import keys, manifests

pytestmark = pytest.mark.xdist_group("start")

FLAGS = (True, False, False)


@pytest.mark.parametrize("on_miss", ["", "Error", "cold", None])
def test_an_answer_to_a_miss_that_does_not_exist(on_miss: Any) -> None:
    """A typing error must not be found at the first miss: the message says what there is."""
    with pytest.raises(UsageError, match="say 'compile', 'eager' or 'error'"):
        checked(on_miss, None, flags=FLAGS)


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf"), "soon", "", []])
def test_a_deadline_that_is_none(deadline: Any) -> None:
    """No time at all, or no end of it, is no deadline."""
    with pytest.raises(UsageError, match="give a positive number of seconds"):
        checked("compile", deadline, flags=FLAGS)


def test_where_the_deadline_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given, else the variable, else five minutes."""
    assert deadline_seconds(None) == DEADLINE_S == 300
    monkeypatch.setenv(DEADLINE, "7.5")
    assert deadline_seconds(None) == 7.5
    assert deadline_seconds(2) == 2
    monkeypatch.setenv(DEADLINE, "")
    assert deadline_seconds(None) == DEADLINE_S


def test_a_mistake_in_a_variable_keeps_nobody_from_serving(
    starts: Starts, plain: Published
) -> None:
    """The caller's own word raises; an operator's variable becomes a note, and where the library is
    switched off nobody reads it."""
    raised, noted, disabled = starts.run(
        """
calls = [lambda: None]
result = []
try:
    start(Plain(), calls=calls, deadline="soon")
except cachesvc.UsageError as error:
    result.append(str(error))
for value in ("", "1"):
    os.environ["TCCACHE_DISABLE"] = value
    result.append(shown(start(Plain(), calls=calls)))
""",
        store=plain.store,
        label="plain",
        env={DEADLINE: "later"},
    )
    assert raised == "the deadline is 'soon': give a positive number of seconds"
    assert "the deadline is 'later': give a positive number of seconds" in noted["notes"]
    assert noted["first_call_s"] is not None
    assert not any("deadline" in note for note in disabled["notes"])


# on_miss

EAGER = """
from cachesvc.runtime.counters import Meter
from cachesvc.store.faulty import EVER, Fault, Faulty
from cachesvc.store.location import open_store

def double(x):
    return x @ x.t() + 1

class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.compile(Plain())

    def forward(self, x):
        return self.inner(x)

def forms():
    "Every way to compile a module, with what gives the same result and was never compiled."
    wrapped, changed, untouched = Plain(), Plain(), Plain()
    changed.compile()
    yield torch.compile(wrapped), wrapped.inner
    yield changed, changed.inner
    yield untouched, untouched.inner
    nested = Nested()
    yield nested, nested.inner._orig_mod.inner
    yield double, double

away = Faulty(open_store(given["store"]), [Fault("list", "before", count=EVER)])
meter = Meter(None)

def tried(model, bare, store):
    report = start(model, [ones()], store=store, on_miss="eager")
    with torch.no_grad():
        right = all(torch.equal(model(ones(n, 4)), bare(ones(n, 4))) for n in (2, 3))
    return [shown(report), right, meter.read().graphs]
"""


def test_on_a_miss_modules_run_as_they_were_written(starts: Starts, tmp_path: Path) -> None:
    """However they were compiled, with an empty store as with one that cannot be reached: nothing
    is compiled at the start or afterwards, the results are right, and others still compile."""
    found, others = starts.run(
        EAGER
        + """
stores = given["store"], away
result = [tried(model, bare, store) for store in stores for model, bare in forms()]
with torch.no_grad():
    torch.compile(Other())(ones())
result = [result, meter.read().graphs]
""",
        store=tmp_path / "store",
    )
    assert len(found) == 10
    for report, right, graphs in found:
        assert report["verdict"] == "eager"
        assert (right, graphs) == (True, 0)
        assert any(note.startswith("on_miss is eager") for note in report["notes"])
        assert report["published"] is None
    assert "the store has nothing for this model here" in found[0][0]["text"]
    assert "as planned" in found[-1][0]["text"]
    assert others == 1


@pytest.mark.parametrize(
    "model",
    [
        "torch.compile(double)",
        "lambda x: compiled(x)",
        "lambda x: inner(x)",
        "Holding()",
    ],
)
def test_on_a_miss_functions_run_as_they_were_written(
    starts: Starts, tmp_path: Path, model: str
) -> None:
    """What `torch.compile` made of a function, and what calls such a function or a compiled module,
    cannot be changed in place: all of the process runs as it was written, and the report says so
    and what ends it."""
    report, right, graphs = starts.run(
        EAGER
        + """
compiled, inner = torch.compile(double), torch.compile(Plain())

class Holding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.call = torch.compile(double)

    def forward(self, x):
        return self.call(x)

"""
        + f"model = {model}\nresult = tried(model, model, given['store'])",
        store=tmp_path / "store",
        label="function",
    )
    assert report["verdict"] == "eager"
    assert (right, graphs) == (True, 0)
    assert 'until torch.compiler.set_stance("default")' in report["text"]


def test_several_models_on_a_miss(starts: Starts, tmp_path: Path) -> None:
    """Each runs as it was written; arguments alone are refused in the same words as ever."""
    report, told = starts.run(
        EAGER
        + """
models = {"a": torch.compile(Plain()), "b": torch.compile(Other())}
calls = [lambda m=m: m(ones()) for m in models.values()]
result = [
    shown(start(models, calls=calls, on_miss="eager")),
    shown(start(models, [ones()], on_miss="eager")),
]
""",
        store=tmp_path / "store",
    )
    assert report["verdict"] == "eager"
    assert len(report["calls"]) == 2
    assert "do not say which of several models is called" in told["text"]


@pytest.fixture(scope="module")
def unused(starts: Starts, plain: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose bundle named `mixed` is Plain's directory, of no use to others."""
    store = tmp_path_factory.mktemp("unused") / "store"
    starts.run(
        'cachesvc.push("mixed", store=given["store"], inductor_dir=given["inductor"])',
        store=store,
        given={"inductor": f"{plain.report['live']}/inductor"},
    )
    return store


def test_a_bundle_that_proves_to_be_of_no_use(starts: Starts, unused: Path) -> None:
    """Only the calls show it: with "eager" they have compiled by then and the start is inert; with
    "error" the caller learns of it with the whole report as the reason, and can serve all the
    same."""
    eager, error, again = starts.run(
        """
model = torch.compile(Other())
result = [shown(start(model, [ones()], on_miss="eager"))]
torch._dynamo.reset()
torch._inductor.config.epilogue_fusion = False
try:
    start(model, [ones()], on_miss="error")
except cachesvc.BundleNotFound as error:
    result.append(str(error))
result.append(shown(start(model, [ones()])))
""",
        store=unused,
        label="mixed",
    )
    assert eager["verdict"] == "inert"
    assert error.startswith("inert: ")
    assert "1 graphs were compiled here" in error
    assert again["first_call_s"] is not None


def test_an_error_instead_of_a_miss(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """BundleNotFound where there is nothing, what the store raised where it failed, and no example
    call is made then; what goes wrong with the calls is a note as ever."""
    raised, made, report = starts.run(
        EAGER
        + """
made = []
def tell(**options):
    try:
        report = start(torch.compile(Plain()), on_miss="error", **options)
        return shown(report)["verdict"]
    except Exception as error:
        return [type(error).__name__, str(error)]

calls = [lambda: made.append(1)]
result = [
    [
        tell(calls=calls, label="nobody"),
        tell(calls=calls, store=away),
        tell(calls=calls, store="s3://bucket"),
        tell(calls=calls, store=given["store"], label="no/name"),
    ],
    list(made),
]
report = start(torch.compile(Plain()), calls=[["text"], 7], on_miss="error")
result.append(shown(report))
""",
        store=plain.store,
        label="plain",
    )
    assert [kind for kind, _ in raised] == [
        "BundleNotFound",
        "StoreError",
        "UntrustedError",
        "UsageError",
    ]
    assert "the store has nothing for this model here" in raised[0][1]
    assert made == []
    assert any("call failed" in note for note in report["notes"])


@pytest.mark.parametrize("on_miss", ["eager", "error"])
def test_a_hit_is_a_hit(starts: Starts, plain: Published, on_miss: str) -> None:
    """What to do at a miss changes nothing where there is none, and a start that compiles a part
    is no miss either."""
    report = starts.run(
        """
calls = [[ones(2, 4)], [ones(3, 4)]]
result = shown(start(torch.compile(Plain()), calls=calls, on_miss=given["on_miss"]))
""",
        store=plain.store,
        label="plain",
        given={"on_miss": on_miss},
    )
    assert report["verdict"] == "partial"
    assert [call["verdict"] for call in report["calls"]] == ["warm", "inert"]
    assert report["notes"] == []


# deadline

HANGING = """
import threading
from cachesvc.store.location import open_store
from cachesvc.store.wrapper import Wrapper

class Hanging(Wrapper):
    def __init__(self, inner, hangs):
        super().__init__(inner)
        self.hangs, self.stuck, self.go = hangs, threading.Event(), threading.Event()

    def _wait(self, key):
        if key.endswith(self.hangs):
            self.stuck.set()
            assert self.go.wait(200)

    def _fetch(self, key, target):
        self._wait(key)
        return super()._fetch(key, target)

    def _list(self, prefix):
        self._wait(prefix)
        return super()._list(prefix)

def lying(folder):
    "All that lies there, but for the lock: a start that comes too late may still take it."
    files = (path for path in Path(folder).rglob("*") if not path.is_dir())
    kept = sorted(path for path in files if path.parts[-2:] != (".tccache", "lock"))
    return [[str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in kept]

def left_behind():
    return [thread for thread in threading.enumerate() if thread.name == "tccache-start"]

from pathlib import Path
store = Hanging(open_store(given["store"]), given["hangs"])
"""


@pytest.mark.parametrize("hangs", ["tccache.json", "bundles/plain/", ".json", ".tar.zst"])
def test_a_store_that_hangs(starts: Starts, plain: Published, tmp_path: Path, hangs: str) -> None:
    """At each step of a pull: the start goes on while the store has not answered, the note says so,
    and nothing enters the live directory when it answers after all; the next start is warm."""
    report, at_work, before, after, later = starts.run(
        HANGING
        + """
report = start(Plain(), calls=[lambda: None], store=store, deadline=0.3)
assert store.stuck.is_set() and not store.go.is_set()
threads, before = left_behind(), lying(given["home"])
result = [shown(report), len(threads), before]
store.go.set()
for thread in threads:
    thread.join(200)
result += [lying(given["home"]), shown(start(torch.compile(Plain()), [ones()]))]
""",
        store=plain.store,
        label="plain",
        home=tmp_path / "home",
        given={"hangs": hangs, "home": tmp_path / "home"},
    )
    assert at_work == 1
    assert report["first_call_s"] is not None
    assert report["bundle"] is None
    assert any("the start went on without the bundle" in note for note in report["notes"])
    assert before == after
    assert not any("/fxgraph/" in path for path, *_ in after)
    assert later["verdict"] == "warm"


def test_while_a_start_that_was_left_behind_still_hangs(
    starts: Starts, plain: Published, tmp_path: Path
) -> None:
    """It does not keep the live directory to itself: another start, of a store that answers, is
    warm meanwhile; and one that wants an error, of the store that hangs, gets it in time."""
    hung, error, warm = starts.run(
        HANGING
        + """
calls = [lambda: None]
hung = shown(start(Plain(), calls=calls, store=store, deadline=0.3))
try:
    start(Plain(), calls=calls, store=store, deadline=0.3, on_miss="error")
except cachesvc.StoreError as caught:
    error = str(caught)
result = hung, error, shown(start(torch.compile(Plain()), [ones()], deadline=100))
assert store.stuck.is_set() and len(left_behind()) == 2
store.go.set()
""",
        store=plain.store,
        label="plain",
        given={"hangs": ".tar.zst"},
    )
    for text in (hung["text"], error):
        assert "the start went on without the bundle" in text
    assert warm["verdict"] == "warm"


@pytest.fixture
def silent() -> Iterator[Bucket]:
    """An S3 that accepts requests and never answers."""
    with Bucket("GET") as bucket:
        yield bucket


def test_an_s3_that_never_answers(starts: Starts, silent: Bucket) -> None:
    """The variable's deadline; and the end of the process does not wait for it either."""
    report = starts.run(
        'result = shown(start(Plain(), calls=[lambda: None], trust="store"))',
        store=silent.url,
        env={DEADLINE: "2"},
        own=True,
    )
    assert silent.stuck.is_set()
    assert report["first_call_s"] is not None
    assert any("the start went on without the bundle" in note for note in report["notes"])


# publish

PUBLISH = """
model = torch.compile(Plain(), dynamic=False)
report = start(model, calls=[[ones(n, 4)] for n in given["sizes"]], publish=True)
ended = report.publishing and report.publishing.wait(200)
result = [shown(report), ended]
"""


def test_a_start_that_compiled_publishes_it(starts: Starts, tmp_path: Path) -> None:
    """Cold it publishes all, partial its addition, beside the caller; the next start elsewhere is
    warm with both, and publishes nothing."""

    def run(*sizes: int) -> Any:
        how = {"store": tmp_path / "store", "given": {"sizes": sizes}}
        report, ended = starts.run(PUBLISH, label="published", **how)
        return report["verdict"], report["published"], ended

    verdict, state, ended = run(2)
    assert (verdict, ended) == ("cold", True)
    (manifest,) = manifests(tmp_path / "store", "published")
    assert manifest.coverage == ("(float32[2, 4])",)
    verdict, addition, ended = run(2, 3)
    assert (verdict, ended) == ("partial", True)
    assert state.startswith("segment ")
    assert addition.startswith("segment ") != state
    assert run(3, 2) == ("warm", None, None)


def test_a_publication_that_fails(starts: Starts, tmp_path: Path) -> None:
    """A store that may only be read: said in the report, and the start is as it would have been."""
    report = starts.run(
        """
from cachesvc.store.location import open_store
from cachesvc.store.read_only import ReadOnly

os.makedirs(given["place"])
store = ReadOnly(open_store(given["place"]))
model, made = torch.compile(Plain()), []
report = start(model, [ones()], store=store, publish=True)
assert report.publishing.wait(200)
result = shown(report)
""",
        given={"place": tmp_path / "store"},
    )
    assert report["verdict"] == "cold"
    assert report["published"].startswith("failed: ")
    assert f"publication: {report['published']}" in report["text"]
    assert list((tmp_path / "store").iterdir()) == []


def test_what_keeps_a_start_from_publishing(starts: Starts, tmp_path: Path) -> None:
    """Without calls there is nothing yet, which the report says, with what to do; and what this
    library or torch gets wrong on the way is a note, never an error."""
    without, broken = starts.run(
        """
def fail():
    raise RuntimeError("no artifacts today")

model = torch.compile(Plain())
result = [shown(start(model, publish=True))]
torch.compiler.save_cache_artifacts = fail
result.append(shown(start(model, [ones()], publish=True)))
""",
        store=tmp_path / "store",
    )
    assert without["published"] is broken["published"] is None
    assert any("call push(model, report=report) after some" in n for n in without["notes"])
    assert broken["verdict"] == "cold"
    (note,) = (note for note in broken["notes"] if note.startswith("nothing is published: "))
    assert note.endswith("RuntimeError: no artifacts today")


def test_a_call_on_code_from_before_publishes_nothing(starts: Starts, plain: Published) -> None:
    """It was made, so nobody is told that no call was."""
    report = starts.run(
        """
model = torch.compile(Plain())
with torch.no_grad():
    model(ones())
result = shown(start(model, [ones()], publish=True))
""",
        store=plain.store,
        label="plain",
    )
    assert report["verdict"] == "unproven"
    assert not any("no call was made" in note for note in report["notes"])


# fallback

TWO = """
class Two(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.second = torch.nn.Linear(3, width)

    def forward(self, x):
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.second(y)

def two(width):
    return torch.compile(Two(width).eval())

none = {"calls": [lambda: None]}
"""


@pytest.fixture(scope="module")
def neighbour(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a bundle of two graphs."""
    store = tmp_path_factory.mktemp("neighbour") / "store"
    starts.run(
        TWO + "model = two(4)\npush(model, start(model, [ones()]))", store=store, label="two"
    )
    return store


def test_a_changed_model_hits_on_what_did_not_change(
    starts: Starts, neighbour: Path, tmp_path: Path
) -> None:
    """One layer is another: one graph of two comes from the old bundle, the report says whose it
    is and in what it differs; what is published for the new model holds that graph and its own,
    not the other one of the old model."""
    store = tmp_path / "store"
    shutil.copytree(neighbour, store)
    script = (
        TWO
        + """
bare = Two(5).eval()
model = torch.compile(bare)
report = start(model, [ones()], publish=True)
with torch.no_grad():
    right = torch.allclose(model(ones()), bare(ones()))
ended = report.publishing and report.publishing.wait(200)
result = [shown(report), right]
"""
    )
    old = keys(store, "two")
    report, right = starts.run(script, store=store, label="two")
    assert right
    assert report["verdict"] == "partial"
    assert report["fallback"]
    assert report["counts"]["graph_hits"] == report["counts"]["graph_misses"] == 1
    (note,) = (note for note in report["notes"] if note.startswith("fallback: "))
    assert "second.weight" in note
    assert report["published"].startswith("segment ")
    units = [{unit.key for unit in manifest.units} for manifest in manifests(store, "two")]
    assert len(units) == 2
    (new,) = (found for found in units if found != old)
    for layer in ("inductor/fxgraph/", "inductor/aotautograd/", "megacache/inductor/"):
        before, after = ({key for key in found if key.startswith(layer)} for found in (old, new))
        assert len(before) == len(after) == 2
        assert len(before & after) == 1
    again, right = starts.run(script, store=store, label="two")
    assert (again["verdict"], again["fallback"], right) == ("warm", False, True)


def test_a_changed_graph_hits_on_its_kernels(starts: Starts, fused: Published) -> None:
    """One graph, of other sizes inside: it is compiled, and its C++ library is found."""
    report = starts.run(
        """
class Wider(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.inner(x)).sum()

result = shown(start(torch.compile(Wider()), [ones(2, 8)]))
""",
        store=fused.store,
        label="fused",
    )
    assert report["verdict"] == "partial"
    assert report["fallback"]
    assert report["counts"]["graph_hits"] == report["counts"]["cpp_builds"] == 0
    assert report["counts"]["cpp_hits"] == report["counts"]["graph_misses"] == 1


def test_when_no_other_models_bundle_serves(starts: Starts, neighbour: Path) -> None:
    """Not if the caller does not want it, nor with another salt, nor with operators that the
    process of the bundle did not have; in each case nothing is brought."""
    found = starts.run(
        TWO
        + """
model = two(5)
result = [
    shown(start(model, fallback=False, **none)),
    shown(start(model, salt="other", **none)),
    shown(start(model, **none)),
]

@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

result.append(shown(start(model, **none)))
""",
        store=neighbour,
        label="two",
    )
    assert [report["fallback"] for report in found] == [False, False, True, False]
    for report in (found[0], found[1], found[3]):
        assert report["bundle"] is None
        assert report["transfer"]["seeded"] == report["transfer"]["in_place"] == 0
        assert any("the store has nothing for this model here" in n for n in report["notes"])


def test_a_bundle_of_which_a_part_was_made_with_other_operators(
    starts: Starts, neighbour: Path, tmp_path: Path
) -> None:
    """Their code is in no key: not a graph of that bundle serves another model."""
    shutil.copytree(neighbour, tmp_path / "store")
    how: dict[str, Any] = {"store": tmp_path / "store", "label": "two"}
    starts.run(
        TWO
        + """
@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

model = two(4)
push(model, start(model, [ones(3, 4)]))
""",
        **how,
    )
    (manifest,) = manifests(tmp_path / "store", "two")
    assert len({unit.origin.context for unit in manifest.units}) == 2
    report = starts.run(TWO + "result = shown(start(two(5), **none))", **how)
    assert not report["fallback"]
    assert report["bundle"] is None


# salt, several models, training, functions


def test_a_salt_is_another_address(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """Given or by variable it is the same one; without it nothing of that bundle is found."""
    script = """
model = torch.compile(Plain())
report = start(model, [ones()], publish=True, **given["options"])
report.publishing and report.publishing.wait(200)
result = shown(report)
"""

    def run(options: dict[str, str], env: dict[str, str | None]) -> Any:
        how: dict[str, Any] = {"given": {"options": options}, "env": env, "label": "salted"}
        return starts.run(script, store=tmp_path / "store", **how)

    assert run({"salt": "engine 3"}, {})["verdict"] == "cold"
    by_variable = run({}, {"TCCACHE_SALT": "engine 3"})
    assert by_variable["verdict"] == "warm"
    assert run({"salt": ""}, {"TCCACHE_SALT": "engine 3"})["verdict"] == "cold"
    (first, second) = manifests(tmp_path / "store", "salted")
    assert first.address.model != second.address.model
    assert {first.model.get("salt"), second.model.get("salt")} == {"engine 3", None}


@pytest.mark.parametrize("several", ["[encoder, head]", '{"encoder": encoder, "head": head}'])
def test_several_models(starts: Starts, tmp_path: Path, several: str) -> None:
    """One bundle for all of them, whose calls say which is called: warm on the second start, with
    the counts of each call."""
    script = f"""
encoder, head = torch.compile(Plain()), torch.compile(Other())

def encode():
    return encoder(ones())

def decode():
    return head(ones())

report = start({several}, calls=[encode, decode, encode], publish=True)
report.publishing and report.publishing.wait(200)
result = shown(report)
"""
    cold, warm = (starts.run(script, store=tmp_path / "store") for _ in range(2))
    assert (cold["verdict"], warm["verdict"]) == ("cold", "warm")
    assert warm["name"] == "Plain-Other"
    assert warm["coverage"] == ["call encode", "call decode", "call encode"]
    assert [call["counts"]["graph_hits"] for call in warm["calls"]] == [1, 1, 0]
    assert [call["verdict"] for call in warm["calls"]] == ["warm"] * 3


def test_arguments_for_several_models(starts: Starts, tmp_path: Path) -> None:
    """Nobody knows whose they are: the note says how to write it."""
    report = starts.run(
        "result = shown(start([Plain(), Other()], [ones()]))", store=tmp_path / "store"
    )
    assert report["verdict"] == "unproven"
    assert "calls=[lambda: encoder(batch), lambda: decoder(state)]" in report["text"]


def test_a_training_step_with_a_compiled_optimizer(starts: Starts, tmp_path: Path) -> None:
    """Forward, backward and update: three graphs in the first call, none in the second, and all of
    them come from the bundle at the next start."""
    script = """
model = torch.compile(Plain())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
update = torch.compile(optimizer.step)

def step():
    with torch.enable_grad():
        model(ones()).sum().backward()
    update()
    optimizer.zero_grad()

report = start(model, calls=[step, step], publish=True)
report.publishing and report.publishing.wait(200)
result = shown(report)
"""
    cold, warm = (starts.run(script, store=tmp_path / "store") for _ in range(2))
    assert (cold["verdict"], warm["verdict"]) == ("cold", "warm")
    assert [call["counts"]["graph_misses"] for call in cold["calls"]] == [3, 0]
    assert [call["counts"]["graph_hits"] for call in warm["calls"]] == [3, 0]
    assert warm["counts"]["native_builds"] == 0


def test_functions(starts: Starts, tmp_path: Path) -> None:
    """A plain one is called as `torch.compile` will make it, and one that calls a compiled model as
    it is: compiled as a whole it would be another graph than the one that is served."""
    script = """
from cachesvc.runtime.counters import Meter
model = torch.compile(Plain())

def serve(x):
    print("serving")
    return model(x).argmax().item()

reports = [
    start(function, [ones(*shape)], label=label, publish=True)
    for function, shape, label in ((square, (2, 2), "plain"), (serve, (2, 4), "serve"))
]
for report in reports:
    report.publishing and report.publishing.wait(200)
meter = Meter(None)
with torch.no_grad():
    torch.compile(square)(ones(2, 2))
    serve(ones())
result = [*map(shown, reports), meter.read().graphs]
"""
    *cold, compiled = starts.run(script, store=tmp_path / "store")
    assert [report["verdict"] for report in cold] == ["cold", "cold"]
    assert compiled == 0
    *warm, _ = starts.run(script, store=tmp_path / "store")
    assert [report["verdict"] for report in warm] == ["warm", "warm"]
    assert warm[1]["counts"]["graphs"] == 1
    assert warm[1]["counts"]["graph_breaks"] == 0


def test_switched_off_no_option_does_anything(starts: Starts, tmp_path: Path) -> None:
    """The calls are made, nothing is raised, and store, directories, threads and torch are left
    alone."""
    verdicts, published, changed, threads = starts.run(
        """
import threading
before, threads = dict(os.environ), threading.active_count()
options = [
    {"on_miss": "error"}, {"on_miss": "eager"}, {"publish": True}, {"check": True},
    {"deadline": 0.001}, {"fallback": False}, {"salt": "s"}, {"trust": "everyone"},
    {"store": "nosuch://store"}, {"label": "no/name"},
]
reports = [start(square, calls=[lambda: square(ones(2, 2))], **given) for given in options]
result = [
    [report.verdict for report in reports],
    [report.publishing for report in reports],
    {name: value for name, value in os.environ.items() if before.get(name) != value},
    threading.active_count() - threads,
]
""",
        store=tmp_path / "store",
        env={"TCCACHE_DISABLE": "1"},
        home=tmp_path / "home",
    )
    assert set(verdicts) == {"eager"}
    assert set(published) == {None}
    assert changed == {}
    assert threads == 0
    assert list(tmp_path.iterdir()) == []


def test_each_call_is_told(starts: Starts, plain: Published, tmp_path: Path) -> None:
    """Its signature, whether the bundle was made with such a call, and its own counts; without a
    bundle nobody knows what is covered."""
    covered, unknown = starts.run(
        """
model = torch.compile(Plain())
result = [
    shown(start(model, calls=[[ones(2, 4)], {"x": ones(2, 4)}, [ones(3, 4)]])),
    shown(start(Plain(), calls=[lambda: None], label="nobody", store=given["empty"])),
]
""",
        store=plain.store,
        label="plain",
        given={"empty": tmp_path},
    )
    calls = covered["calls"]
    assert [c["signature"] for c in calls][0::2] == ["(float32[2, 4])", "(float32[3, 4])"]
    assert calls[1]["signature"] == "(x=float32[2, 4])"
    assert [call["covered"] for call in calls] == [True, False, False]
    assert [call["verdict"] for call in calls] == ["warm", "warm", "inert"]
    assert [call["counts"]["graph_hits"] for call in calls] == [1, 0, 0]
    assert [call["counts"]["graph_misses"] for call in calls] == [0, 0, 1]
    assert "a call like (float32[3, 4])" in covered["text"]
    assert "a call like (x=float32[2, 4])" not in covered["text"]
    assert [call["covered"] for call in unknown["calls"]] == [None]


@pytest.mark.parametrize("filled", [False, True])
def test_headers_are_spared_where_graphs_lie_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled: bool
) -> None:
    """Of an earlier start here, though the store has nothing: the compiler is not run for a header
    that no kernel needs. In an empty directory it is, as kernels will be built."""
    spared: list[bool] = []
    monkeypatch.setattr(attempt, "spare_all", lambda records: spared.append(True))
    monkeypatch.setenv("TCCACHE_HOME", str(tmp_path))
    start = attempt.Attempt(torch.nn.Linear(2, 2))
    folder = start.locate().folder("inductor") / "fxgraph"
    if filled:
        folder.mkdir(parents=True)
    start.take(Brought())
    assert spared == ([True] if filled else [])
