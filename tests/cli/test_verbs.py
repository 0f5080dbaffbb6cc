"""What each verb does and says, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cachesvc
from cachesvc import Arm, Measurement, Sample, Verdict
from cachesvc.local.megafile import take_apart

Command = Callable[..., Any]

FIELDS = {
    "push": "bundle address segment units files bytes added carried pack_bytes superseded skipped"
    " warnings",
    "pull": "found bundles packs bytes seeded in_place kept repaired left_out set_aside artifacts"
    " directories pull_s seed_s notes",
    "lookup": "hit bundles units bytes pack_bytes left_out refused coverage proof",
    "ls": "bundles set_aside",
    "explain": "asked nearest would_hit differences unknown notes",
    "show": "bundles",
    "rm": "dry_run bundles objects bytes",
    "verify": "live ok bundles segments entries bytes problems orphans unknown marked dry_run"
    " repaired failure",
    "gc": "live dry_run deleted merged kept objects bytes bytes_left failure",
    "env": "digest components",
    "completion": "shell script",
    "demo": "workload runs store environment pack_bytes arms ratios",
}
LINES = {
    "push": ["push", "m", "--inductor-dir", "tree"],
    "pull": ["pull", "m"],
    "lookup": ["lookup", "m"],
    "ls": ["ls"],
    "explain": ["explain", "m"],
    "show": ["show", "m"],
    "rm": ["rm", "m", "--yes"],
    "verify": ["verify"],
    "gc": ["gc", "--yes"],
    "env": ["env"],
    "completion": ["completion", "bash"],
    "demo": ["demo"],
}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that was measured before: what it says is tested here, not what it does."""
    samples = {
        "cold": Sample("cold", Verdict.COLD, 8.0, 12.0, (("pull", 0.0),), 3, 2, 0.0, "cold: all"),
        "warm": Sample("warm", Verdict.WARM, 2.0, 6.0, (("pull", 0.1),), 0, 0, 0.0, "warm: none"),
    }
    arms = tuple(Arm(name, (sample,)) for name, sample in samples.items())
    done = Measurement("demo:gpt", 1, arms, "a temporary local store", 1_900_000, "e" * 64)
    monkeypatch.setattr(cachesvc, "demo", lambda *_, **__: done, raising=False)


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder but this library's own records, by path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): path.read_bytes() for path in found}
    return {name: data for name, data in named.items() if not name.startswith(".tccache/")}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("verb", FIELDS)
def test_json_is_one_object(tccache: Command, store: Path, verb: str) -> None:
    """Scripts read stdout whole: a schema with the verb's name, and fields that are only added."""
    ran = tccache(*LINES[verb], "--json", TCCACHE_STORE=str(store))
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["schema"] == f"tccache.{verb}/1"
    assert ran.json.keys() >= {*FIELDS[verb].split()}


def test_push_adds(tccache: Command, store: Path, tree: Path) -> None:
    """The first push says what it wrote and passed over; the second that nothing was missing."""
    (tree / "new.py").write_text("one more")
    line = ("push", "m", "--store", store, "--inductor-dir", tree)
    first, second = tccache(*line), tccache(*line)
    assert "added 1 of 3 units in 3 files" in first.out
    assert "  1 file passed over: temporary" in first.out
    assert "nothing to add, the store has all of 3 units" in second.out
    assert (first.code, first.err, second.code, second.err) == (0, "", 0, "")


def test_pull_brings_what_was_pushed(tccache: Command, store: Path, tree: Path) -> None:
    """The same bytes under the same names; the second pull finds all in place."""
    line = ("pull", "m", "--store", store, "--inductor-dir", "out")
    first, second = tccache(*line), tccache(*line)
    assert "2 units seeded, 0 in place" in first.out
    assert "0 units seeded, 2 in place" in second.out
    assert files(Path("out")) == {
        name: data for name, data in files(tree).items() if not name.endswith(".lock")
    }


def test_pull_without_directories_seeds_the_live_one(tccache: Command, store: Path) -> None:
    """The text says where it lies: under TCCACHE_HOME."""
    ran = tccache("pull", "m", "--store", store)
    assert f"  inductor: {Path('home').absolute()}/" in ran.out
    assert len(files(Path("home"))) >= 2


def test_every_kind_of_tree_travels(tccache: Command, tree: Path, mega: Path) -> None:
    """Inductor, Triton, a mega-cache file and another program's cache, in one push and pull."""
    kernel = Path("triton") / "KEY"
    kernel.mkdir(parents=True)
    (kernel / "launcher.json").write_text("{}")
    trees = ("--inductor-dir", tree, "--triton-dir", "triton", "--mega", mega)
    pushed = tccache("push", "all", "--store", "s", *trees, "--extra", f"helion={tree}")
    assert pushed.code == 0, pushed.err
    back = ("--inductor-dir", "i", "--triton-dir", "t", "--mega", "m", "--extra", "helion=e")
    pulled = tccache("pull", "all", "--store", "s", *back, "--json")
    assert pulled.json["artifacts"] == 2
    assert {*pulled.json["directories"]} == {"inductor", "triton", "megacache", "extra/helion"}
    assert files(Path("t")) == files(Path("triton"))
    assert files(Path("e")).keys() == files(Path("i")).keys()
    whole = take_apart(Path("m").read_bytes(), "m")
    assert {(item.key, item.content) for item in whole} == {("k1", b"one"), ("k2", b"two")}


def test_finding_nothing_is_a_normal_day(tccache: Command, store: Path) -> None:
    """A pull exits 0 and says that the start will be cold; with --require it exits 3."""
    ran = tccache("pull", "other", "--store", store)
    assert (ran.code, ran.err) == (0, "")
    assert "the next start is cold" in ran.out
    required = tccache("pull", "other", "--store", store, "--require")
    assert required.code == 3
    assert required.is_one_error


def test_pull_of_a_section_that_nobody_pushed(tccache: Command, store: Path) -> None:
    """It says so, instead of counting zeros; the file named is not written."""
    ran = tccache("pull", "m", "--store", store, "--mega", "none.bin")
    assert ran.code == 0
    assert "has nothing for the directories named" in ran.out
    assert not Path("none.bin").exists()


def test_lookup_answers_by_exit_code(tccache: Command, store: Path) -> None:
    """0 with the bundle named, 3 with an object that says no."""
    assert tccache("lookup", "m", "--store", store).out.startswith("m: 2 units, ")
    miss = tccache("lookup", "other", "--store", store, "--json")
    assert (miss.code, miss.json["hit"]) == (3, False)
    assert miss.err.startswith("error: ")


def test_ls_lists_bundles(tccache: Command, store: Path) -> None:
    """A line for each under a header; a name without bundles is no error."""
    header, line = tccache("ls", "--store", store).out.splitlines()
    assert header.startswith("name  model  environment")
    assert line.startswith("m     any    ")
    assert tccache("ls", "other", "--store", store).out == "no bundles\n"
    assert tccache("ls", "--store", "not-there-yet").out == "no bundles\n"


def test_ls_names_what_was_set_aside_here(
    tccache: Command, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that failed on this machine, with the reason, below the bundles."""
    aside = cachesvc.SetAside("inductor/aa/caa", "it raised", "2026-01-01T00:00:00.000000Z", ())
    monkeypatch.setattr(cachesvc, "list_set_aside", lambda **_: (aside,), raising=False)
    lines = tccache("ls", "--store", store).out.splitlines()
    assert lines[-1] == "set aside on this machine: inductor/aa/caa: it raised"
    (told,) = tccache("ls", "--store", store, "--json").json["set_aside"]
    assert told["unit"] == "inductor/aa/caa"


def test_show_tells_what_a_bundle_holds(tccache: Command, store: Path, tree: Path) -> None:
    """Its environment, segments, sections and tags."""
    tccache("push", "m2", "--store", store, "--inductor-dir", tree, "--tag", "release 7")
    ran = tccache("show", "m2", "--store", store)
    for words in ("  device: ", "  segment ", "  inductor: 2 units, 2 files", "  tags: release 7"):
        assert words in ran.out


def test_a_tag_cannot_steer_the_terminal(tccache: Command, tree: Path) -> None:
    """Whoever pushes chooses tags; their control characters are spelled out, in text and errors."""
    line = ("push", "m", "--store", "s", "--inductor-dir", tree)
    tccache(*line, "--tag", "\x1b[31mred\x07\nm/any/fake")
    ran = tccache("show", "m", "--store", "s")
    assert r"tags: \x1b[31mred\x07\nm/any/fake" in ran.out
    assert "\x1b" not in ran.out


def test_a_bundle_is_named_as_ls_shows_it(tccache: Command, store: Path) -> None:
    """NAME/MODEL/ENVIRONMENT, cut short anywhere."""
    environment = tccache("env", "--json").json["digest"]
    for bundle in ("m", "m/any", f"m/any/{environment[:12]}", f"m/any/{environment}"):
        assert tccache("show", bundle, "--store", store).code == 0, bundle
    assert tccache("show", "m/any/ffff", "--store", store).code == 3


def test_a_dry_run_deletes_nothing(tccache: Command, store: Path) -> None:
    """It lists what would go."""
    ran = tccache("rm", "m", "--store", store, "--dry-run")
    assert "m     any" in ran.out
    assert "would delete 1 bundle, 2 objects" in ran.out
    assert tccache("lookup", "m", "--store", store).code == 0


def test_yes_deletes_without_asking(tccache: Command, store: Path) -> None:
    """Once; the second time there is nothing, which is exit 3."""
    assert "deleted 1 bundle, 2 objects" in tccache("rm", "m", "--store", store, "--yes").out
    assert tccache("rm", "m", "--store", store, "--yes").code == 3


def test_nobody_to_ask_is_no_consent(tccache: Command, store: Path) -> None:
    """Without a terminal and without --yes nothing is deleted, and nothing waits."""
    ran = tccache("rm", "m", "--store", store)
    assert ran.code == 2
    assert ran.is_one_error
    assert "--yes" in ran.err
    assert tccache("lookup", "m", "--store", store).code == 0


def test_verify_finds_a_flipped_byte(tccache: Command, store: Path) -> None:
    """Exit 4; the problem is a line of the result, and in the JSON."""
    (pack,) = store.rglob("*.tar.zst")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    ran = tccache("verify", "--store", store)
    assert ran.code == 4
    assert ran.out.startswith("not ok: 1 bundle, 1 segment")
    assert f"\n  problem: bundles/m/any/{pack.parent.name}" in ran.out
    assert ran.err.startswith("error: 1 problem found: ")
    told = tccache("verify", "m", "--store", store, "--json")
    assert (told.code, told.json["ok"], len(told.json["problems"])) == (4, False, 1)


def test_verify_names_orphans(tccache: Command, store: Path) -> None:
    """What a killed push left is told, and is no problem."""
    (pack,) = store.rglob("*.tar.zst")
    pack.with_name(f"{'0' * 64}.tar.zst").write_bytes(b"left behind")
    ran = tccache("verify", "--store", store)
    assert ran.code == 0
    assert f"  orphan, no manifest names it: bundles/m/any/{pack.parent.name}/000" in ran.out


def test_another_machines_environment(tccache: Command, tree: Path, foreign: Path) -> None:
    """Named by its file it is pushed for and pulled; by its first digits, looked up and pulled."""
    line = ("--store", "s", "--inductor-dir")
    tccache("push", "m", *line, tree, "--environment", foreign)
    (bundle,) = tccache("ls", "--store", "s", "--json").json["bundles"]
    assert tccache("lookup", "m", "--store", "s").code == 3
    digest = bundle["environment"]
    for number, environment in enumerate((foreign, digest, digest[:8])):
        assert tccache("lookup", "m", "--store", "s", "--environment", environment).code == 0
        pulled = tccache("pull", "m", *line, f"out-{number}", "--environment", environment)
        assert "2 units seeded" in pulled.out


def test_env_is_what_environment_takes(tccache: Command, tree: Path) -> None:
    """The file that `tccache env --json` wrote stands for the machine that wrote it."""
    ran = tccache("env", "--json")
    Path("here.json").write_text(ran.out)
    line = ("push", "m", "--store", "s", "--inductor-dir", tree, "--environment", "here.json")
    assert tccache(*line, "--json").json["address"]["environment"] == ran.json["digest"]
    assert f"digest: {ran.json['digest']}" in tccache("env").out.splitlines()


def test_label_names_the_bundle(tccache: Command, store: Path, tree: Path) -> None:
    """It takes the place of MODEL for push, pull and lookup."""
    line = ("--store", store, "--label", "other")
    assert tccache("push", "m", *line, "--inductor-dir", tree).out.startswith("other/any/")
    assert tccache("lookup", "m", *line).code == 0
    assert tccache("pull", "m", *line).code == 0


@pytest.mark.usefixtures("measured")
def test_demo_shows_a_table(tccache: Command) -> None:
    """A row for each start with its verdict, and the two ratios."""
    out = tccache("demo").out
    for words in (
        "demo:gpt through a temporary local store: 1.9 MB published, one sample per arm",
        "cold   8.00 s      12.00 s            cold     3         2",
        "first call 4.0 times faster, process to result 2.0 times",
        "  warm: warm: none",
    ):
        assert words in out


@pytest.mark.usefixtures("measured")
def test_demo_json_has_samples_and_ratios(tccache: Command) -> None:
    """Every number of the table can be read by a program."""
    told = tccache("demo", "--json").json
    assert told["arms"]["warm"]["first_call_s"]["samples"] == [2.0]
    assert told["ratios"]["cold_over_warm"] == {"first_call": 4.0, "startup": 2.0}
