"""Starts on functions compiled ahead of time, and what becomes of one where none is right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cachesvc.core.tier import allowed
from cachesvc.start.attempt import Attempt
from cachesvc.start.bring import Brought
from cachesvc.start.choice import tier_reason
from cachesvc.start.functions import Functions
from cachesvc.start.options import Options

from .captures import CAPTURE, Captures, captures
from .conftest import Starts
from .test_publishing import keys

pytestmark = pytest.mark.xdist_group("start")

PLAIN = """
pair = lambda: {"encoder": Plain().eval(), "decoder": Other()}
def calls_of(models, *sizes):
    return [lambda m=m, n=n: m(ones(n, 4)) for m in models for n in sizes]
"""


@pytest.fixture(scope="session")
def ahead(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Captures:
    """Directories for batches of two and three, and a function for the first alone."""
    return captures(
        starts,
        tmp_path_factory.mktemp("ahead"),
        PLAIN
        + """
model = torch.compile(Plain().eval())
with torch.no_grad():
    model(ones(2, 4))
    torch._dynamo.reset()
    model(ones(3, 4))
cachesvc.push(model, store=given["store"], label="plain")
captured_now()
plain = Plain().eval()
result = {"plain": capture(plain, calls_of([plain], 2), "plain")}
""",
    )


@pytest.fixture(scope="session")
def parts(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> Captures:
    """Functions of two models together, and of a model that is compiled by its blocks."""
    return captures(
        starts,
        tmp_path_factory.mktemp("parts"),
        PLAIN
        + """
both, equal, unequal = pair(), Stack(Block), Stack(Numbered)
for stack in (equal, unequal):
    cachesvc.compile_regions(stack)
result = {
    "pair": capture(both, calls_of(both.values(), 2), "pair"),
    "equal": capture(equal, calls_of([equal], 2), "equal"),
    "unequal": capture(unequal, calls_of([unequal], 2), "unequal"),
}
""",
    )


def test_a_start_on_a_function(starts: Starts, ahead: Captures) -> None:
    """No graph is asked for; what was given is right; and the next start finds all in place."""
    script = (
        CAPTURE
        + """
model = Plain().eval()
report = start(model, [ones(2, 4)])
result = shown(report), right(model, model.inner, 2)
"""
    )
    for again in (False, True):
        home = ahead.captured.parent / "home"
        report, same = starts.run(script, store=ahead.store, label="plain", home=home)
        assert (report["verdict"], report["tier"], report["tier_reason"]) == ("warm", "aot", "")
        counts = report["counts"]
        assert (counts["aot_hits"], counts["aot_misses"]) == (1, 0)
        assert (counts["graphs"], counts["generated"]) == (0, 0)
        assert "1/1 calls compiled ahead of time, 0 compiled" in report["text"]
        assert report["notes"] == []
        assert same
        assert (report["transfer"]["in_place"], report["transfer"]["packs"]) == (
            (1, 0) if again else (0, report["transfer"]["packs"])
        )


@pytest.mark.slow
def test_what_was_captured(parts: Captures) -> None:
    """One function for each kind of call; equal blocks share theirs, and those that differ in what
    they use do not."""
    counted = {label: len(units) for label, units in parts.units.items()}
    assert counted == {"pair": 2, "equal": 1, "unequal": 3}
    assert not any(parts.reasons.values())


def test_a_call_that_no_function_covers(starts: Starts, ahead: Captures) -> None:
    """It is made by what the directories hold, and compiled where they hold nothing: once, counted
    by the report and by a monitor; the covered ones stay with their function."""
    report, settled, outcomes, same = starts.run(
        CAPTURE
        + """
model = torch.compile(Plain().eval())
plain = model._orig_mod.inner
report = start(model, calls=[[ones(n, 4)] for n in (2, 3)])
settled = start(torch.compile(Plain().eval()))
with cachesvc.monitor(report, model=model) as watching:
    same = right(model, plain, 5, 2, 5, 3, 5)
result = shown(report), settled.to_json(), watching.to_json()["outcomes"], same
""",
        store=ahead.store,
        label="plain",
    )
    counts = report["counts"]
    assert (report["verdict"], report["tier"]) == ("warm", "aot")
    assert (counts["aot_hits"], counts["aot_misses"], counts["graphs"]) == (1, 1, 1)
    assert (counts["graph_misses"], counts["native_builds"]) == (0, 0)
    assert "1/2 calls compiled ahead of time, 1/1 graphs from cache, 0 compiled" in report["text"]
    assert [call["counts"]["aot_hits"] for call in report["calls"]] == [1, 0]
    settled_counts = {
        name: settled["counts"][name] for name in ("aot_hits", "aot_misses", "graphs")
    }
    assert settled_counts == {"aot_hits": 1, "aot_misses": 4, "graphs": 1}
    assert outcomes == {"compiled": 1}
    assert same


@pytest.mark.slow
def test_the_rest_comes_when_the_compiler_does(starts: Starts, ahead: Captures) -> None:
    """A start on functions brings these alone, and nothing of the compiler is imported; before the
    first call that no function covers the directories are there."""
    report, imported, before, after, same = starts.run(
        CAPTURE
        + """
compiler = ("torch._dynamo", "torch._inductor", "triton", "sympy")
model = Plain().eval()
report = start(model, [ones(2, 4)])
imported = [name for name in compiler if name in sys.modules]
graphs = Path(report.live, "inductor", "fxgraph")
before = graphs.is_dir()
same = right(model, model.inner, 2, 3)
result = report.to_json(), imported, before, graphs.is_dir(), same
""",
        store=ahead.store,
        label="plain",
        own=True,
    )
    assert (report["verdict"], report["tier"], imported) == ("warm", "aot", [])
    assert (before, after) == (False, True)
    assert same


@pytest.mark.parametrize(
    ("tier", "variable", "taken"),
    [
        ("no-aot", None, "directories"),
        (None, "directories", "directories"),
        ("aot", "directories", "aot"),
    ],
)
def test_the_tier_that_is_asked_for(
    starts: Starts, ahead: Captures, tier: str | None, variable: str | None, taken: str
) -> None:
    """What the caller says, else TCCACHE_TIER; functions alone bring nothing for other calls."""
    reason = "" if taken == "aot" else f"the tier was set to {tier or variable}"
    report, filled = starts.run(
        f"""
report = start(Plain().eval(), tier={tier!r})
result = shown(report), os.path.isdir(os.path.join(report.live, "inductor", "fxgraph"))
""",
        store=ahead.store,
        label="plain",
        env={"TCCACHE_TIER": variable},
    )
    assert (report["tier"], report["tier_reason"]) == (taken, reason)
    assert filled == (taken == "directories")
    if reason:
        assert f"tier {taken}: {reason}" in report["text"]


def test_a_tier_that_does_not_exist(starts: Starts, ahead: Captures) -> None:
    """The caller's own word raises, as it does in a build; an operator's variable, too."""
    raised = starts.run(
        """
result = []
for make in (lambda: start(Plain().eval(), tier="fast"), lambda: start(Plain().eval())):
    try:
        make()
    except cachesvc.UsageError as error:
        result.append(str(error))
""",
        store=ahead.store,
        label="plain",
        env={"TCCACHE_TIER": "no-"},
    )
    assert [text.partition(":")[0] for text in raised] == [
        "the tier is 'fast'",
        "the tier is 'no-'",
    ]


BUNDLE = Brought(newest="plain/m/e", tier="directories")


@pytest.mark.parametrize(
    ("brought", "functions", "tier", "reason"),
    [
        (Brought(), None, "auto", ""),
        (BUNDLE, (("aot/m/f",), ["a note"]), "auto", ""),
        (BUNDLE, ((), ["one", "two", "three"]), "auto", "one; two"),
        (BUNDLE, ((), []), "auto", "no function could be put into the model"),
        (BUNDLE, None, "no-aot", "the tier was set to no-aot"),
        (
            BUNDLE,
            None,
            "auto",
            "the bundle holds no function compiled ahead of time: tccache build makes them",
        ),
    ],
)
def test_why_the_tier_is_no_better(
    brought: Brought, functions: tuple[tuple[str, ...], list[str]] | None, tier: str, reason: str
) -> None:
    """A sentence for each case; none where functions are in use, or nothing was found at all."""
    attempt = Attempt(None, options=Options(tier=allowed(tier)), brought=brought)
    if functions is not None:
        armed = Functions.__new__(Functions)
        armed.units, armed.notes = functions
        attempt.functions = armed
    assert tier_reason(attempt) == reason


def test_another_model_gets_no_functions(starts: Starts, ahead: Captures) -> None:
    """It has the name and not the digest: the bundle's directories serve it, and no function."""
    report = starts.run(
        """
model = Plain().eval()
model.mark = 1
result = shown(start(model))
""",
        store=ahead.store,
        label="plain",
    )
    assert (report["tier"], report["fallback"]) == ("directories", True)
    assert report["tier_reason"].startswith("functions are of one model")


@pytest.mark.parametrize(
    ("env", "before", "named"),
    [
        ({"TORCHINDUCTOR_PERMUTE_FUSION": "1"}, "", "variable TORCHINDUCTOR_PERMUTE_FUSION"),
        ({}, "torch._inductor.config.epilogue_fusion = False", "inductor epilogue_fusion"),
    ],
)
def test_settings_that_differ_leave_functions_out(
    starts: Starts, ahead: Captures, env: dict[str, str], before: str, named: str
) -> None:
    """With other settings the compiler would have made something else: the start goes on from the
    directories, says what differs, and sets nothing aside; functions alone are a miss."""
    report, raised = starts.run(
        before
        + """
result = [shown(start(Plain().eval()))]
try:
    start(Plain().eval(), tier="aot", on_miss="error")
except cachesvc.BundleNotFound as error:
    result.append(str(error))
""",
        store=ahead.store,
        label="plain",
        env=env,
    )
    assert (report["tier"], report["set_aside"]) == ("directories", [])
    assert f"is not used: the context differs, {named}" in report["tier_reason"]
    assert named in raised


@pytest.mark.slow
def test_several_models_have_functions(starts: Starts, parts: Captures) -> None:
    """Each model calls its own; the calls are callables."""
    report, same = starts.run(
        CAPTURE
        + PLAIN
        + """
models = pair()
report = start(models, calls=calls_of(models.values(), 2))
expected = models["decoder"].second(models["decoder"].first(ones(2, 4)))
same = right(models["encoder"], models["encoder"].inner, 2)
result = report.to_json(), same and torch.allclose(models["decoder"](ones(2, 4)), expected)
""",
        store=parts.store,
        label="pair",
    )
    assert (report["verdict"], report["tier"]) == ("warm", "aot")
    assert (report["counts"]["aot_hits"], report["counts"]["graphs"]) == (2, 0)
    assert same


def test_however_the_model_is_compiled(starts: Starts, ahead: Captures) -> None:
    """By `torch.compile` or in place, before the start: the functions stand before the compiled
    call, which they leave as it was."""
    found = starts.run(
        CAPTURE
        + """
def forms():
    wrapped, changed = Plain().eval(), Plain().eval()
    changed.compile()
    yield torch.compile(wrapped), wrapped
    yield changed, changed
result = []
for model, inside in forms():
    report = start(model, [ones(2, 4)])
    result.append([report.to_json(), right(model, inside.inner, 2, 3)])
""",
        store=ahead.store,
        label="plain",
    )
    for report, same in found:
        assert (report["tier"], report["counts"]["aot_hits"]) == ("aot", 1)
        assert report["counts"]["graphs"] == 0
        assert same


@pytest.mark.slow
@pytest.mark.parametrize(("label", "kind"), [("equal", "Block"), ("unequal", "Numbered")])
def test_blocks_of_a_model(starts: Starts, parts: Captures, label: str, kind: str) -> None:
    """Each block of a model that is compiled by regions calls a function that is right for it."""
    report, same = starts.run(
        CAPTURE
        + f"""
plain, model = Stack({kind}), Stack({kind})
model.load_state_dict(plain.state_dict())
cachesvc.compile_regions(model)
report = start(model, [ones(2, 4)])
result = report.to_json(), right(model, plain, 2)
""",
        store=parts.store,
        label=label,
    )
    assert (report["verdict"], report["tier"]) == ("warm", "aot")
    assert (report["counts"]["aot_hits"], report["counts"]["graphs"]) == (3, 0)
    assert same


DAMAGE = (
    CAPTURE
    + """
def damage(file):
    "Changes a byte in place: the file looks as it did."
    before, data = file.stat(), bytearray(file.read_bytes())
    if file.name == "function.json":
        at = data.index(b'"format": ') + len(b'"format": ')
        data[at] = ord("9")
    else:
        data[len(data) // 2] ^= 1
    with open(file, "r+b") as opened:
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
"""
)

SERVED = """
model = Plain().eval()
report = start(model, [ones(2, 4)])
result = shown(report), right(model, model.inner, 2, 3)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [("code.bin", "is not what was written"), ("function.json", "format 9 is not")],
)
def test_a_function_that_was_published_damaged(
    starts: Starts, ahead: Captures, tmp_path: Path, name: str, said: str
) -> None:
    """It is left out with the reason and set aside, and the start goes on from the directories; the
    next one does not even load it."""
    store, home = Path(shutil.copytree(ahead.bare, tmp_path / "store")), tmp_path / "home"
    how: dict[str, Any] = {"store": store, "label": "plain"}
    damaged = shutil.copytree(ahead.captured / "plain", tmp_path / "damaged")
    starts.run(
        DAMAGE
        + f"""
folder = Path(given["damaged"])
(file,) = folder.rglob({name!r})
damage(file)
add(Plain().eval(), "plain", folder)
""",
        given={"damaged": damaged},
        **how,
    )
    (unit,) = ahead.units["plain"]
    for again in (False, True):
        report, same = starts.run(DAMAGE + SERVED, home=home, **how)
        assert (report["verdict"], report["tier"]) == ("warm", "directories")
        assert (report["counts"]["aot_hits"], report["counts"]["aot_misses"]) == (0, 0)
        (aside,) = report["set_aside"]
        assert aside.startswith(f"{unit}: ")
        assert said in aside
        loaded = f"{unit} is not used: " in report["tier_reason"]
        assert loaded is not again
        assert report["tier_reason"]
        assert same


def test_a_function_that_was_damaged_on_this_disk(
    starts: Starts, ahead: Captures, tmp_path: Path
) -> None:
    """It is found out at its load, whatever the file looks like, and set aside; the next start
    brings it again, as it was published."""
    how: dict[str, Any] = {"store": ahead.store, "label": "plain", "home": tmp_path / "home"}
    starts.run("start(Plain().eval())", **how)
    damaged, healed, known = (
        starts.run(DAMAGE + before + SERVED, **how)
        for before in (
            "(file,) = Path(os.environ['TCCACHE_HOME']).rglob('code.bin')\ndamage(file)\n",
            "",
            "",
        )
    )
    for report, same in (damaged, healed, known):
        assert report["verdict"] == "warm"
        assert same
    assert [r["tier"] for r, _ in (damaged, healed, known)] == ["directories", "aot", "aot"]
    assert "is not what was written" in damaged[0]["tier_reason"]
    assert known[0]["transfer"]["in_place"] == 1


def test_a_function_that_fails_at_its_call(starts: Starts, ahead: Captures, tmp_path: Path) -> None:
    """The call is made by the compiled path, once and rightly; the function is not called again, is
    set aside and told, and the next start does without it."""
    how: dict[str, Any] = {"store": ahead.store, "label": "plain", "home": tmp_path / "home"}
    failing = """
from cachesvc.runtime.aot.function import Function
failed = []
def fail(self, *args, **kwargs):
    failed.append(1)
    raise RuntimeError("no such kernel")
Function.__call__ = fail
"""
    (unit,) = ahead.units["plain"]
    first, same, failures = starts.run(
        CAPTURE + failing + SERVED + "result += (len(failed),)", **how
    )
    assert (first["verdict"], first["tier"], failures) == ("warm", "directories", 1)
    assert (first["counts"]["aot_hits"], first["counts"]["aot_misses"]) == (0, 1)
    assert "has failed and is not used any more: RuntimeError: no such kernel" in first["text"]
    assert [text.partition(":")[0] for text in first["set_aside"]] == [unit]
    assert same
    second, same = starts.run(CAPTURE + SERVED, **how)
    assert (second["verdict"], second["tier"], same) == ("warm", "directories", True)
    assert "no such kernel" in second["set_aside"][0]


CHECKED = """
model = Plain().eval()
report = start(model, [ones(2, 4)], check=True)
result = shown(report), right(model, model.inner, 2, 3)
"""


def test_outputs_are_compared_with_eager_ones(starts: Starts, ahead: Captures) -> None:
    """The call to compare with goes past the function that it is to judge."""
    report, same = starts.run(CAPTURE + CHECKED, store=ahead.store, label="plain")
    assert report["calls"][0]["checked"] == "equal to an eager call"
    assert (report["tier"], report["counts"]["aot_hits"]) == ("aot", 1)
    assert report["counts"]["aot_misses"] == 0
    assert same


def test_a_function_with_a_wrong_output(starts: Starts, ahead: Captures, tmp_path: Path) -> None:
    """The check finds it out: the output is made again without it, and it is set aside."""
    lying = """
from cachesvc.runtime.aot.function import Function
honest = Function.__call__
Function.__call__ = lambda self, *args, **kwargs: honest(self, *args, **kwargs) + 1
"""
    report, same = starts.run(
        CAPTURE + lying + CHECKED, store=ahead.store, label="plain", home=tmp_path / "home"
    )
    (unit,) = ahead.units["plain"]
    assert "without the caches; with them not equal" in report["calls"][0]["checked"]
    assert unit in [text.partition(":")[0] for text in report["set_aside"]]
    assert report["tier"] != "aot"
    assert same


def test_a_start_on_functions_publishes_nothing(
    starts: Starts, ahead: Captures, tmp_path: Path
) -> None:
    """What they did is in the store already; what was compiled beside them is added, and they stay
    as they are there."""
    store = ahead.copy(tmp_path)
    before = keys(store, "plain")
    published, added = starts.run(
        """
published = start(Plain().eval(), [ones(2, 4)], publish=True, on_miss="error").publishing is None
report = start(Plain().eval(), calls=[[ones(n, 4)] for n in (2, 5)], publish=True)
assert report.publishing.wait(60)
result = published, shown(report)
""",
        store=store,
        label="plain",
    )
    assert published
    assert (added["verdict"], added["tier"]) == ("partial", "aot")
    assert added["published"].startswith("segment ")
    after = keys(store, "plain")
    assert after > before
    assert not any(key.startswith("aot/") for key in after - before)


def test_functions_of_a_live_directory_are_not_pushed(
    starts: Starts, ahead: Captures, tmp_path: Path
) -> None:
    """Nobody has verified them here: a push takes what the compiler made, and no function."""
    home = tmp_path / "home"
    starts.run("start(Plain().eval(), [ones(2, 4)])", store=ahead.store, label="plain", home=home)
    assert list((home / "live").rglob("function.json"))
    starts.run("cachesvc.push('plain', store=given['store'])", store=tmp_path / "other", home=home)
    assert keys(tmp_path / "other", "plain")
    assert not keys(tmp_path / "other", "plain", "aot/")


def test_a_pull_brings_functions(starts: Starts, ahead: Captures, tmp_path: Path) -> None:
    """By the name alone, as an init container does it: the start afterwards finds all in place."""
    report = starts.run(
        """
pulled = cachesvc.pull("plain", store=given["store"])
result = shown(start(Plain().eval(), [ones(2, 4)]))
""",
        store=ahead.store,
        label="plain",
        home=tmp_path / "home",
    )
    assert (report["verdict"], report["tier"]) == ("warm", "aot")
    assert (report["transfer"]["packs"], report["transfer"]["in_place"]) == (0, 1)


@pytest.mark.parametrize(
    "options", [pytest.param("", marks=pytest.mark.slow), ", fullgraph=True, dynamic=False"]
)
def test_a_model_that_is_compiled_after_its_start(
    starts: Starts, ahead: Captures, options: str
) -> None:
    """Calls of what `torch.compile` makes of it then go to the functions, too; the others to the
    graph that it would have without them, and what is compiled around a call stays compiled."""
    report, later, same = starts.run(
        CAPTURE
        + f"""
model = Plain().eval()
report = start(model, [ones(2, 4)])
from cachesvc.runtime.counters import Meter
meter = Meter(None)
before = meter.read()
compiled = torch.compile(model{options})
same = right(compiled, model.inner, 2, 3, 2, 3)
step = torch.compile(lambda x: compiled(x) + 1)
with torch.no_grad():
    same = same and torch.allclose(step(ones(2, 4)), model.inner(ones(2, 4)) + 1)
counts = meter.read().minus(before)
result = report.to_json(), [getattr(counts, n) for n in (
    "aot_hits", "aot_misses", "graphs", "graph_hits", "autograd_hits"
)], same
""",
        store=ahead.store,
        label="plain",
    )
    assert report["tier"] == "aot"
    assert later == [2, 2, 2, 1, 1]
    assert same


@pytest.mark.slow
def test_ten_thousand_calls(starts: Starts, ahead: Captures) -> None:
    """Of five shapes that no function covers and one that one does, in any order: each output is
    right, each uncovered shape is asked for once, and every call is counted."""
    counts, made, outcomes, wrong = starts.run(
        CAPTURE
        + """
import random
from cachesvc.runtime.counters import Meter
torch.manual_seed(0)
model = Plain().eval()
report = start(model)
compiled = torch.compile(model, dynamic=False)
batches = {n: torch.randn(n, 4) for n in (2, 3, 5, 6, 7, 8)}
order = random.Random(0).choices(list(batches), weights=(5, 1, 1, 1, 1, 1), k=10_000)
meter, wrong = Meter(None), 0
before = meter.read()
with torch.no_grad(), cachesvc.monitor(report, model=model) as watching:
    expected = {n: model.inner(batch) for n, batch in batches.items()}
    for n in order:
        wrong += not torch.allclose(compiled(batches[n]), expected[n])
counts = meter.read().minus(before)
made = {n: order.count(n) for n in batches}
result = [counts.aot_hits, counts.aot_misses, counts.graphs], made, watching.to_json(), wrong
""",
        store=ahead.store,
        label="plain",
    )
    assert wrong == 0
    assert counts == [made["2"], 10_000 - made["2"], 5]
    assert outcomes["outcomes"] == {"compiled": 4, "hit": 1}


@pytest.mark.slow
def test_a_kernel_that_was_cut_short(starts: Starts, tmp_path: Path) -> None:
    """A library of which half is there would end the process: it is never loaded, and set aside;
    the call is compiled."""
    found = captures(
        starts,
        tmp_path,
        PLAIN
        + """
model = Fused().eval()
result = {"fused": capture(model, calls_of([model], 2), "fused")}
""",
    )
    (unit,) = found.units["fused"]
    report, same = starts.run(
        CAPTURE
        + """
model = Fused().eval()
report = start(model)
for library in Path(os.environ["TCCACHE_HOME"]).rglob("aot/*/*/*.so"):
    os.truncate(library, library.stat().st_size // 2)
from cachesvc.start import bring
bring.Receipt.in_place = lambda _: True  # as if the file had been cut since
model = Fused().eval()
report = start(model, [ones(2, 4)])
expected = torch.relu(model.inner(ones(2, 4))).sum()
result = shown(report), torch.allclose(model(ones(2, 4)), expected)
""",
        store=found.store,
        label="fused",
    )
    assert [text.partition(":")[0] for text in report["set_aside"]] == [unit]
    assert "is not what was written" in report["set_aside"][0]
    assert report["counts"]["aot_hits"] == 0
    assert same
