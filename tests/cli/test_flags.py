"""Flags, their environment variables, and the help that explains them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest

from tccache.main import group

Command = Callable[..., Any]
README = Path(__file__).parents[2] / "README.md"

VERBS = tuple(group.commands)


def leaves(commands: Mapping[str, click.Command], before: str = "") -> dict[str, click.Command]:
    """The commands that do something, by the words that call them."""
    found: dict[str, click.Command] = {}
    for name, command in commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= leaves(inner, f"{before}{name} ") if inner else {before + name: command}
    return found


LEAVES = leaves(group.commands)
SHARED = ("store", "trust", "revoked", "max-age", "json", "quiet", "verbose")
STORELESS = ("doctor", "env", "key new", "key show", "completion")
FILES = ("trust", "sign-with", "revoked")
NEEDED = {
    "demo": [],
    "run": ["m", "true"],
    "ls": [],
    "verify": [],
    "gc": [],
    "env": [],
    "completion": ["bash"],
    "key new": ["--out", "f"],
}
VALUES: dict[str, tuple[str, Any]] = {
    "tolerance": ("0.5", 0.5),
    "extra": ("a=x b=y", {"a": "x", "b": "y"}),
    **dict.fromkeys(("tag", "keep_tag", "torch"), ("one two", ("one", "two"))),
    **dict.fromkeys(("older_than", "grace"), ("30d", 2_592_000.0)),
    "keep_last": ("3", 3),
    "max_bytes": ("10GB", 10_000_000_000),
    **dict.fromkeys(("trust", "sign_with", "revoked"), ("one:two", ("one", "two"))),
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
    words = [*verb.split(), *line]
    with ExitStack() as contexts:
        context = contexts.enter_context(group.make_context("tccache", words))
        command: click.Command = group
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
            made = command.make_context(command.name, [*words], parent=context)
            context = contexts.enter_context(made)
        return context.params


def options() -> Iterator[tuple[str, click.Option]]:
    """Each flag of each verb."""
    for verb, command in LEAVES.items():
        yield from ((verb, item) for item in command.params if isinstance(item, click.Option))


def variable(*words: str) -> str:
    """The variable of a flag: TCCACHE, the verb and the flag."""
    return "_".join(("TCCACHE", *words)).replace(" ", "_").replace("-", "_").upper()


@pytest.mark.parametrize(("verb", "option"), [*options()], ids=str)
def test_every_flag_has_a_variable(
    monkeypatch: pytest.MonkeyPatch, verb: str, option: click.Option
) -> None:
    """TCCACHE_VERB_FLAG sets it, so a deployment needs no command line to change one."""
    flag = option.opts[0].removeprefix("--").replace("-", "_")
    text, value = ("1", True) if option.is_flag else VALUES.get(flag, ("text", "text"))
    monkeypatch.setenv(variable(verb, flag), text)
    line = [] if option.required else NEEDED.get(verb, ["m"])
    assert parsed(verb, *line)[str(option.name)] == value


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("verb", [verb for verb in LEAVES if verb not in STORELESS])
def test_shared_flags_have_a_variable_for_all_verbs(
    monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    """TCCACHE_FLAG counts, TCCACHE_VERB_FLAG counts more, and the command line most."""
    flag = name in ("json", "quiet", "verbose")
    several = name in FILES
    values = ("1", "0") if flag else ("all", "verb")
    line = NEEDED.get(verb, ["m"])
    field = name.replace("-", "_")

    def found(*given: str) -> object:
        value = parsed(verb, *given, *line)[field]
        return value[0] if several else value

    monkeypatch.setenv(variable(name), values[0])
    assert found() in (True, "all")
    monkeypatch.setenv(variable(verb, name), values[1])
    assert found() in (False, "verb")
    assert found(f"--{name}", *([] if flag else ["line"])) in (True, "line")


def test_help_names_the_flags_with_a_variable_for_all_verbs(tccache: Command) -> None:
    """All of them, and no others."""
    said = " ".join(tccache("--help").out.partition("TCCACHE_PULL_REQUIRE=1;")[2].split())
    named = re.findall(r"--[a-z-]+", said.partition(" for all verbs ")[0])
    shared = {
        option.opts[0]
        for verb in LEAVES.values()
        for option in verb.params
        if isinstance(option.envvar, list) and len(option.envvar) == 2
    }
    assert sorted(named) == sorted(shared)


def test_an_empty_variable_is_not_set(tccache: Command, store: Path) -> None:
    """As `TCCACHE_JSON= tccache ls` means in a shell."""
    ran = tccache("ls", TCCACHE_LS_STORE="", TCCACHE_STORE=str(store), TCCACHE_JSON="")
    assert ran.out.startswith("name ")


@pytest.mark.parametrize("verb", LEAVES)
def test_help_shows_an_example_that_parses(tccache: Command, verb: str) -> None:
    """-h and --help print the same, with a command line that this version takes."""
    ran = tccache(*verb.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert tccache(*verb.split(), "-h").out == ran.out
    example = re.search(r"Example:\n((?:    .*\n?)+)", ran.out)
    assert example is not None
    (command, *_) = re.split(r"&&|>|\n", example[1].replace("\\\n", " "))
    program, *line = shlex.split(command)
    words = verb.split()
    assert (program, line[: len(words)]) == ("tccache", words)
    parsed(verb, *line[len(words) :])


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
