"""The page of a bench: whole, readable without eyes, and quiet, whatever was measured."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import cachesvc
from cachesvc.core.bench import Bench, Failure
from cachesvc.core.components import Components
from cachesvc.core.errors import TccacheError, UsageError
from cachesvc.core.variant import Variant
from cachesvc.page.page import page_text

from .benches import BENCHES, make_arm, make_bench, make_trial
from .reading import Page

pytestmark = pytest.mark.xdist_group("page")

CHARTS = (
    "Where the seconds of a start go",
    "Call by call",
    "From which call on compiling pays",
    "What the bundle holds",
)
HOSTILE = "</title></svg><script>alert('1')</script>\"'&amp; $a$ _^{\x00\x1b[31m\ud800"
SPELLED = "</title></svg><script>alert('1')</script>\"'&amp; $a$ _^{\\x00\\x1b[31m\\ud800"


@cache
def page(name: str) -> Page:
    """A page by the name of its bench, drawn once."""
    return Page(page_text(BENCHES[name]()))


def small_bench() -> Bench:
    """A bench that is drawn quickly."""
    return BENCHES["only cold"]()


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_makes_a_whole_page(name: str) -> None:
    """Ended early, failed, without calls or a bundle: the page is well formed, each name in it is
    its own, and each reference leads to a place in it."""
    made = page(name)
    assert made.faults == []
    names = Counter(e.attributes["id"] for e in made.elements if "id" in e.attributes)
    assert [name for name, times in names.items() if times > 1] == []
    assert {reference[1:] for reference in made.references if reference != "data:,"} <= {*names}


@pytest.mark.parametrize("name", BENCHES)
def test_a_page_fetches_nothing(name: str) -> None:
    """It opens offline: no script, no address, and a policy that refuses both."""
    made = page(name)
    assert {reference[:1] for reference in made.references} <= {"#", "d"}
    assert {reference for reference in made.references if reference[0] == "d"} == {"data:,"}
    assert "http:" not in made.text
    assert "https:" not in made.text
    assert made.all("script") == []
    policies = [e.attributes["content"] for e in made.all("meta") if "http-equiv" in e.attributes]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]


@pytest.mark.parametrize("name", BENCHES)
def test_every_chart_has_words_that_stand_for_it(name: str) -> None:
    """A title, a description, and its numbers as a table."""
    made = page(name)
    captions = made.words("figcaption")
    for drawing, caption in zip(made.all("svg"), captions, strict=True):
        title, description = made.described(drawing)
        assert drawing.attributes["role"] == "img"
        assert title == caption
        assert len(description) > 60
    assert len(made.all("table", inside="details")) == len(captions) + bool(captions)


@pytest.mark.parametrize(
    ("name", "charts"),
    [
        ("complete", CHARTS),
        ("variants", ("The variants side by side", *CHARTS, *CHARTS, *CHARTS[:3])),
        ("nothing", ()),
        ("no trial", ()),
        ("no steady calls", (CHARTS[0], CHARTS[1], CHARTS[3])),
        ("no calls", (CHARTS[0], CHARTS[3])),
        ("one sample, no bundle", CHARTS[:3]),
        ("only eager", CHARTS[:2]),
    ],
)
def test_what_was_not_measured_is_not_drawn(name: str, charts: tuple[str, ...]) -> None:
    """Each chart that cannot be drawn is named, with the reason."""
    made = page(name)
    assert tuple(made.words("figcaption")) == charts
    missing = [e for e in made.all("p") if e.attributes.get("class") == "missing"]
    parts = len([e for e in made.all("section") if e.attributes.get("class") == "variant"])
    assert len(missing) == len(CHARTS) * parts - len([c for c in charts if c in CHARTS])


@pytest.mark.parametrize(
    ("chart", "units"),
    [
        ("variant1-stages", ["seconds from the start of the process (medians)"]),
        ("variant1-calls", ["seconds of the call (log scale)", "call, in order"]),
        ("variant1-break-even", ["seconds, all calls (log)", "number of calls (log scale)"]),
        ("variant1-bundle", ["bytes as the compiler's files, before packing"]),
    ],
)
def test_axes_name_their_units(chart: str, units: list[str]) -> None:
    """As text that can be selected and searched, not as outlines."""
    made = page("complete")
    (title,) = (e for e in made.all("title") if e.attributes.get("id") == f"{chart}-title")
    at = made.elements.index(title)
    drawn = []
    for element in made.elements[at:]:
        if "svg" not in element.inside:
            break
        drawn.append(element.words)
    assert {*units} <= {*drawn}


def test_the_headline() -> None:
    """What was measured, where, when, and how to measure it again."""
    made = page("complete")
    assert made.words("h1") == ["demo-gpt"]
    facts = dict(zip(made.words("dt"), made.words("dd"), strict=True))
    assert facts["samples of each arm"] == "3"
    assert facts["measured"] == "2026-03-01 12:00:00 UTC"
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["shapes"] == "8, 16"
    assert "tccache bench demo:gpt --size small --runs 3 --html page.html" in made.words("code")


def test_what_explains_the_figures() -> None:
    """What was chosen as regions stands with the variant, the context with the environment."""
    regions = "2 blocks of 1 kind: GPTBlock x 2"
    trial = replace(small_bench().trials[0], notes=(regions,))
    made = Page(page_text(make_bench(trial, context=Components.of({"threads": "7"}))))
    assert regions in made.words("li")
    facts = dict(zip(made.words("dt"), made.words("dd"), strict=True))
    assert facts["threads"] == "7"


def test_what_is_missing_stands_at_the_top() -> None:
    """An interrupted bench, and arms that gave no figure, are said before any figure is."""
    made = page("variants")
    told = [item.words for item in made.all("li")][:2]
    assert told == [
        "This bench was interrupted: it shows what had been measured until then.",
        "No figure for default+regions, warm: the arm turned out partial: 1 graph compiled",
    ]
    assert made.text.index(told[0]) < made.text.index("<svg")


def test_a_page_without_figures_says_so() -> None:
    """Also then the page opens and says why it is empty."""
    assert "Nothing was measured." in [item.words for item in page("nothing").all("li")]


def test_hostile_names_stay_words() -> None:
    """Nothing that a workload, a store or the compiler said becomes an element, neither in the
    page nor in a drawing; what no page may hold is spelled out."""
    figures = make_arm("cold").samples[0]
    call = replace(figures.calls[0], signature=HOSTILE, reason=HOSTILE)
    sample = replace(figures, calls=(call, *figures.calls[1:]), summary=HOSTILE)
    sample = replace(sample, stages=((HOSTILE, 3.0), *sample.stages))
    trial = make_trial(Variant(options=((HOSTILE, "x"),)))
    arms = (replace(make_arm("cold"), samples=(sample,)), make_arm("warm"))
    assert trial.bundle is not None
    bundle = replace(trial.bundle, address=HOSTILE, sections={HOSTILE: (1, 1, 1)})
    bench = make_bench(
        replace(trial, arms=arms, bundle=bundle, notes=(HOSTILE,)),
        target=HOSTILE,
        workload=HOSTILE,
        store=HOSTILE,
        command=HOSTILE,
        unit=HOSTILE,
        environment=Components.of({HOSTILE: HOSTILE, "torch": HOSTILE}),
        context=Components.of({HOSTILE: HOSTILE}),
        failures=(Failure(HOSTILE, HOSTILE, HOSTILE),),
    )
    made = Page(page_text(bench))
    made.text.encode()
    assert made.faults == []
    assert made.all("script") == []
    assert SPELLED in made.words("h1")
    assert SPELLED in made.words("code")
    assert any(f"because {SPELLED}" in words for words in made.words("desc"))
    assert any(words.startswith("</title></svg><sc") for words in made.words("text"))
    assert "\x00" not in made.text


def test_the_same_bench_makes_the_same_page() -> None:
    """No date, no random identifier: pages can be compared."""
    assert page_text(small_bench()) == page_text(small_bench())


def test_settings_of_the_caller_neither_count_nor_change() -> None:
    """A page looks the same in a program that draws in its own way, and that way stays."""
    import matplotlib

    expected = page_text(small_bench())
    with matplotlib.rc_context({"font.size": 31, "xtick.direction": "in"}):
        before = dict(matplotlib.rcParams)
        assert page_text(small_bench()) == expected
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("library", ["jinja2", "matplotlib.figure"])
def test_without_the_extra(library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Said before a bench begins and when a page is to be written, with the cure."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=r"pip install 'tccache\[report\]'"):
        cachesvc.check_page(tmp_path / "page.html")
    with pytest.raises(UsageError, match=rf"a page takes {library}, .*\[report\]'"):
        cachesvc.write_page(small_bench(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_written(tmp_path: Path) -> None:
    """In place of an older one, as UTF-8."""
    file = tmp_path / "page.html"
    file.write_text("older")
    cachesvc.check_page(file)
    cachesvc.write_page(small_bench(), file)
    assert file.read_text(encoding="utf-8") == page_text(small_bench())


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """Where, why, and what to do: before the bench where that can be known."""
    nowhere = tmp_path / "nowhere" / "page.html"
    with pytest.raises(UsageError, match=f"there is no folder {nowhere.parent} for the page"):
        cachesvc.check_page(nowhere)
    with pytest.raises(TccacheError, match=f"cannot write the page to {nowhere}: No such file"):
        cachesvc.write_page(small_bench(), nowhere)
    with pytest.raises(UsageError, match="is a folder: name the file"):
        cachesvc.check_page(tmp_path)


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole or not at all: a disk that fills while it is written takes nothing away."""
    file = tmp_path / "page.html"
    file.write_text("the old one")

    def full(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(TccacheError, match="No space left"):
        cachesvc.write_page(small_bench(), file)
    monkeypatch.undo()
    assert file.read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_outputs_that_differ_are_told_at_the_top() -> None:
    """A figure of an arm that computes something else is not to be believed."""
    bench = small_bench()
    (trial,) = bench.trials
    warm = trial.arms[-1]
    odd = replace(warm.samples[0], differences=("0: 3 values of 8 differ",))
    arms = (*trial.arms[:-1], replace(warm, samples=(odd, *warm.samples[1:])))
    text = page_text(replace(bench, trials=(replace(trial, arms=arms),)))
    assert "the output is not eager&#39;s: 0: 3 values of 8 differ." in text


@pytest.mark.parametrize("code", ["import cachesvc; cachesvc.write_page", "import tccache.main"])
def test_drawing_libraries_load_late(code: str) -> None:
    """Neither the library nor the command loads them, nor torch, before a page is drawn."""
    show = "import sys; print(*({'jinja2', 'matplotlib', 'torch'} & {*sys.modules}))"
    command = [sys.executable, "-c", f"{code}; {show}"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "\n"
