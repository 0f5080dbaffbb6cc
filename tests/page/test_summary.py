"""What a bench says in sentences and in its two tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachesvc.core.bench import Trial
from cachesvc.core.variant import Variant
from cachesvc.page import wording
from cachesvc.page.arms_table import arms_table, samples_table
from cachesvc.page.summary import sentences, troubles

from .benches import FIGURES, make_arm, make_bench, make_trial


def _trial(**figures: dict[str, float]) -> Trial:
    """The usual trial, some figures of some arms being others."""
    arms = (make_arm(n, figures=replace(f, **figures.get(n, {}))) for n, f in FIGURES.items())  # type: ignore[arg-type]
    return replace(make_trial(), arms=tuple(arms))


def test_a_bench_in_sentences() -> None:
    """Warm beside cold at both boundaries, compiled beside eager, and when it pays."""
    assert sentences(make_bench(), make_trial()) == (
        "Warm, the first call takes 3.84 s instead of 38.2 s (9.95 times faster).",
        "From the start of the process to the first result it takes 9.50 s instead of 43.9 s (4.62"
        " times faster).",
        "After that, a compiled call takes 6.63 ms instead of 10.4 ms eager (1.57 times faster).",
        "Compiling pays, against eager: cold from call 9,803, warm from call 963; with the whole"
        " start counted: cold from call 10,551, warm from call 1,731.",
        "The bundle takes 1.91 MB in the store.",
    )


def test_what_did_not_help_is_said_as_plainly() -> None:
    """Slower is called slower, and never is called never."""
    trial = _trial(warm={"first_s": 40.0, "steady_s": 0.0204}, cold={"steady_s": 0.0102})
    told = sentences(make_bench(), trial)
    assert told[0] == "Warm, the first call takes 40.0 s instead of 38.2 s (1.05 times slower)."
    assert told[2].endswith("20.8 ms instead of 10.4 ms eager (2.00 times slower).")
    assert told[3] == (
        "Compiling pays, against eager: cold never, warm never; with the whole start counted: cold"
        " never, warm never."
    )


def test_no_difference_is_no_gain() -> None:
    """Two in a hundred is within what seconds vary."""
    trial = _trial(warm={"first_s": 38.0})
    assert sentences(make_bench(), trial)[0].endswith("38.0 s instead of 38.2 s (about the same).")


def test_sentences_of_what_was_measured() -> None:
    """Nothing is said of arms that are missing."""
    eager = Trial(Variant(), (make_arm("eager"),))
    assert sentences(make_bench(), eager) == ()
    cold = Trial(Variant(), (make_arm("cold", calls=2),))
    assert sentences(make_bench(), cold) == ()


def test_a_complete_bench_has_no_troubles() -> None:
    """The warning at the top means something."""
    assert troubles(make_bench()) == ()


def test_troubles() -> None:
    """Few samples are no claim, and fewer than asked for are counted."""
    uneven = replace(make_trial(), arms=(make_arm("eager"), make_arm("cold", runs=2)))
    nothing = Trial(Variant("max-autotune"), ())
    assert troubles(make_bench(uneven, nothing)) == (
        "default: fewer than 3 samples, cold 2.",
        "max-autotune: no arm was measured.",
        "Fewer than 3 samples of an arm: take these figures as sizes, not as claims.",
    )


def test_the_table_of_arms() -> None:
    """Median, least and most; what an arm has no figure for stays a dash."""
    table = arms_table(make_bench(), make_trial())
    cold = {
        name: (cell.text, cell.note) for name, cell in zip(table.header, table.rows[1], strict=True)
    }
    assert cold == {
        "arm": ("cold", ""),
        "verdict": ("cold", ""),
        "first call": ("38.2 s", "35.9 s to 40.5 s"),
        "process to result": ("43.9 s", "41.2 s to 46.5 s"),
        "graphs compiled": ("3", ""),
        "native builds": ("17", ""),
        "steady call": ("6.53 ms", "6.53 ms to 6.53 ms"),
        "throughput": ("156,863", "tokens per second"),
        "pays from call": ("9,803", "whole start: 10,551"),
        "peak memory": ("1.91 GB", ""),
        "difference from eager": ("3.1e-07", ""),
    }
    bare = make_arm("cold", runs=1, calls=2)
    sample = replace(bare.samples[0], peak_bytes=None, difference=None)
    alone = arms_table(make_bench(), Trial(Variant(), (replace(bare, samples=(sample,)),)))
    assert [cell.text for cell in alone.rows[0][6:]] == ["\N{EN DASH}"] * 5


def test_memory_of_a_gpu() -> None:
    """The tensors on the GPU stand beneath the memory of the process."""
    arm = make_arm("warm", runs=1)
    sample = replace(arm.samples[0], device_peak_bytes=3_000_000_000)
    trial = Trial(Variant(), (replace(arm, samples=(sample,)),))
    (row,) = arms_table(make_bench(), trial).rows
    assert row[9].note == "on the GPU 3.00 GB"


def test_every_sample_has_a_row() -> None:
    """Raw: each process with its own seconds."""
    table = samples_table(make_bench(make_trial(), make_trial(Variant("max-autotune"))))
    assert len(table.rows) == 2 * 4 * 3
    assert [cell.text for cell in table.rows[3]][:6] == [
        "default, cold",
        "1",
        "cold",
        "35.9080",
        "41.2410",
        "0.006528",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 s"),
        (2.5e-7, "0.25 µs"),
        (0.00025, "250 µs"),
        (0.0124, "12.4 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (3.84, "3.84 s"),
        (9.996, "10.0 s"),
        (38.24, "38.2 s"),
        (99.96, "100 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    """Three digits that count, in the unit that suits."""
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1912, "1.91 kB"), (8_400_000, "8.40 MB"), (2e9, "2.00 GB")],
)
def test_size(value: int, text: str) -> None:
    """Bytes in powers of ten, as stores count them."""
    assert wording.size(value) == text


def test_shortened() -> None:
    """A label is one line of bounded length."""
    assert wording.shortened("a\nb", 5) == "a b"
    assert wording.shortened("abcdef", 5) == "abcd…"
