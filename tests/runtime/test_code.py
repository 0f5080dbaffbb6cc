"""Digests of code, and the name of the main program."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachesvc.runtime.describe import Describer


def code_digest(function: object) -> str:
    """What stands in a model digest for the code that runs when a function is called."""
    return Describer().codes(function)


def defined(source: str, file: str = "somewhere.py") -> Any:
    scope: dict[str, Any] = {}
    exec(compile(source, file, "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return x + 2",
        "def f(x): return x - 1",
        "def f(x): return g(x)",
        "def f(*x): return x + 1",
        "def f(x): return (lambda y: y)(x) + 1",
        "def f(x): return x + 1.0",
        "def f(x): return x + True",
        "async def f(x): return x + 1",
    ],
)
def test_what_runs_counts(source: str) -> None:
    """A constant, its type, an operation, a name, a signature: each has a digest of its own."""
    assert code_digest(defined(source)) != code_digest(defined("def f(x): return x + 1"))


def test_where_it_lies_does_not_count() -> None:
    """File, line, comments, annotations and names of local variables are left aside."""
    moved = defined(
        "\n\n# moved\ndef f(y: int) -> int:\n    # one more\n    return y + 1\n", "b.py"
    )
    assert code_digest(moved) == code_digest(defined("def f(x): return x + 1"))


def test_what_a_function_wraps_counts() -> None:
    """A decorator hides neither its own code nor the function's."""

    def plain(x: int) -> int:
        return x

    def other(x: int) -> int:
        return -x

    def wrapped(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: int) -> Any:
            return function(*args)

        return inner

    assert len({code_digest(f) for f in (plain, other, wrapped(plain), wrapped(other))}) == 4


def test_what_wraps_itself_ends() -> None:
    """A function that claims to wrap itself is no trouble."""

    def loop() -> None: ...

    loop.__wrapped__ = loop  # type: ignore[attr-defined]
    assert code_digest(loop)


def test_built_in_functions_have_no_code() -> None:
    """They are all alike: their name tells them apart, not their digest."""
    assert code_digest(print) == code_digest(None) == ""


def test_the_hash_seed_does_not_count() -> None:
    """A set among the constants has another order in each process, and the same digest."""
    code = (
        "from cachesvc.runtime.describe import Describer\n"
        "print(Describer().codes(lambda x: x in {'a', 'b', 'c', 'd', 'e', ('f', 1)}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(found) == 1


def test_the_main_program_has_the_name_it_is_imported_by(tmp_path: Path) -> None:
    """A class published by a module's function is found by the same file run as a program."""
    (tmp_path / "app.py").write_text(
        "from cachesvc.runtime.code import class_name\n"
        "class Net: ...\n"
        "if __name__ == '__main__':\n"
        "    print(class_name(Net))\n"
    )
    for command in (
        ["app.py"],
        ["-m", "app"],
        ["-c", "import app; print(app.class_name(app.Net))"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == "app.Net\n"
