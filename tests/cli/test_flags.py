"""Flags, their environment variables, and the help that explains them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tccache.main import group

Command = Callable[..., Any]
README = Path(__file__).parents[2] / "README.md"

VERBS = tuple(group.commands)
SHARED = ("store", "trust", "json", "quiet", "verbose")
STORELESS = ("doctor", "env", "completion")
NEEDED = {
    "demo": [],
    "run": ["m", "true"],
    "ls": [],
    "verify": [],
    "env": [],
    "completion": ["bash"],
}
VALUES: dict[str, tuple[str, Any]] = {
    "tolerance": ("0.5", 0.5),
    "extra": ("a=x b=y", {"a": "x", "b": "y"}),
    "tag": ("one two", ("one", "two")),
    "runs": ("3", 3),
    "calls": ("7", 7),
    "arms": ("warm, local", ("warm", "local")),
    "modes": ("max-autotune", ("max-autotune",)),
    "shapes": ("1,2", (1, 2)),
    "options": ("a=1,b=x c=true", ((("a", 1), ("b", "x")), (("c", True),))),
    "margin": ("0.1", 0.1),
    "html": ("page.html", Path("page.html")),
    "baseline": ("before.json", Path("before.json")),
    **dict.fromkeys(("deadline", "settle", "patience"), ("1.5", 1.5)),
}


def parsed(verb: str, *line: str) -> dict[str, Any]:
    """What the verb would be called with."""
    with group.make_context("tccache", [verb, *line]) as outer:
        command = group.commands[verb]
        with command.make_context(verb, [*line], parent=outer) as inner:
            return inner.params


def options() -> Iterator[tuple[str, click.Option]]:
    """Each flag of each verb."""
    for verb, command in group.commands.items():
        yield from ((verb, item) for item in command.params if isinstance(item, click.Option))


@pytest.mark.parametrize(("verb", "option"), [*options()], ids=str)
def test_every_flag_has_a_variable(
    monkeypatch: pytest.MonkeyPatch, verb: str, option: click.Option
) -> None:
    """TCCACHE_VERB_FLAG sets it, so a deployment needs no command line to change one."""
    flag = option.opts[0].removeprefix("--").replace("-", "_")
    text, value = ("1", True) if option.is_flag else VALUES.get(flag, ("text", "text"))
    monkeypatch.setenv(f"TCCACHE_{verb}_{flag}".upper(), text)
    assert parsed(verb, *NEEDED.get(verb, ["m"]))[str(option.name)] == value


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in STORELESS])
def test_shared_flags_have_a_variable_for_all_verbs(
    monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    """TCCACHE_FLAG counts, TCCACHE_VERB_FLAG counts more, and the command line most."""
    flag = name in ("json", "quiet", "verbose")
    values = ("1", "0") if flag else ("all", "verb")
    line = NEEDED.get(verb, ["m"])
    monkeypatch.setenv(f"TCCACHE_{name.upper()}", values[0])
    assert parsed(verb, *line)[name] in (True, "all")
    monkeypatch.setenv(f"TCCACHE_{verb.upper()}_{name.upper()}", values[1])
    assert parsed(verb, *line)[name] in (False, "verb")
    given = [f"--{name}"] if flag else [f"--{name}", "line"]
    assert parsed(verb, *given, *line)[name] in (True, "line")


def test_an_empty_variable_is_not_set(tccache: Command, store: Path) -> None:
    """As `TCCACHE_JSON= tccache ls` means in a shell."""
    ran = tccache("ls", TCCACHE_LS_STORE="", TCCACHE_STORE=str(store), TCCACHE_JSON="")
    assert ran.out.startswith("name ")


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example_that_parses(tccache: Command, verb: str) -> None:
    """-h and --help print the same, with a command line that this version takes."""
    ran = tccache(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert tccache(verb, "-h").out == ran.out
    example = re.search(r"Example:\n((?:    .*\n?)+)", ran.out)
    assert example is not None
    (command, *_) = re.split(r"&&|>", example[1].replace("\\\n", " "))
    program, named, *line = shlex.split(command)
    assert (program, named) == ("tccache", verb)
    parsed(verb, *line)


def test_the_list_of_verbs_is_whole(tccache: Command) -> None:
    """A line for each verb in the order of use, none cut short on a narrow terminal."""
    out = tccache("--help").out
    listed = out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE)) == VERBS
    assert "..." not in listed
    assert tccache("-h").out == out


def test_no_verb_is_wrong_usage(tccache: Command) -> None:
    """The help goes to stderr: nothing was asked for, so stdout stays empty."""
    ran = tccache()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: tccache ")


def test_version(tccache: Command) -> None:
    """The one of the installed package."""
    from importlib.metadata import version

    assert tccache("--version").out == f"tccache, version {version('tccache')}\n"


def test_python_runs_it_too(child: Command) -> None:
    """`python -m tccache` is the same command under the same name."""
    first = "import runpy\nrunpy.run_module('tccache', run_name='__main__')"
    ran = child("pull", first=first)
    assert (ran.code, ran.out) == (2, "")
    assert "see `tccache pull --help`" in ran.err


def test_verbose_says_each_step(tccache: Command, tree: Path) -> None:
    """On stderr, a line each, terminal or not; a quiet run and a silent one say nothing there."""
    line = ("push", "m", "--inductor-dir", tree, "--store")
    assert tccache(*line, "a", "-v").err == "read the cache directories\npack 2 units\n"
    assert tccache(*line, "b", "-q").err == ""
    assert tccache(*line, "c").err == ""
    assert tccache(*line, "d", TCCACHE_VERBOSE="1").err.startswith("read the cache")


def test_every_flag_of_the_readme_exists() -> None:
    """A reader who copies a flag from the table of verbs is not told that there is none."""
    rows = re.findall(r"^\| `tccache .*$", README.read_text(), re.MULTILINE)
    named = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)}
    assert named
    known = {flag for _, o in options() for flag in (*o.opts, *o.secondary_opts)}
    assert named <= known
