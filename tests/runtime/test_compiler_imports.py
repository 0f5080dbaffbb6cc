"""The compiler's imports beside the program, apart from the imports of other threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# A torch of a few lines: its module `slow` ends its import once another thread waits at the gate.
MODULES = {
    "__init__": "",
    "slow": "import story\nstory.begun.set()\nassert story.go.wait(60)\nstory.told.append('slow')",
    "other": "import story\nstory.told.append('other')",
    "broken": "raise ImportError('no compiler in this torch')",
    "endless": "import story\nstory.begun.set()\nassert story.go.wait(60)\nimport torch.other",
}
STORY = """
import threading
begun, go, told = threading.Event(), threading.Event(), []
class Telling(threading.Event):
    def wait(self, timeout=None):
        go.set()
        return super().wait(timeout)
"""
PRELUDE = """
import importlib._bootstrap as bootstrap, os, sys, threading, story
from cachesvc.runtime.compiler_imports import Gate, ImportsEnded, close_gate
untouched = bootstrap._find_and_load
def beside(*names, over=lambda: False, raised=[]):
    def work():
        try:
            gate = close_gate(over)
            gate._opened = story.Telling()
            gate.import_all(names)
        except BaseException as error:
            raised.append(type(error).__name__)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "torch").mkdir()
    for name, code in MODULES.items():
        (folder / "torch" / f"{name}.py").write_text(code)
    (folder / "story.py").write_text(STORY)
    return folder


def ran(script: str, packages: Path) -> str:
    """What a fresh interpreter prints that finds these packages first."""
    code = f"import sys; sys.path.insert(0, {str(packages)!r})\n{PRELUDE}{script}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_another_thread_waits_with_a_module_of_torch(packages: Path) -> None:
    """It has every other package at once, and torch's module after the compiler's."""
    script = """
import torch
thread = beside("torch.slow")
assert story.begun.wait(60)
import colorsys
assert not story.go.is_set()
import torch.other
thread.join()
print(story.told, bootstrap._find_and_load is untouched, Gate.closed)
"""
    assert ran(script, packages) == "['slow', 'other'] True None"


def test_the_programs_import_of_torch_comes_first(packages: Path) -> None:
    """Nothing of it is imported before, nor while it is half imported."""
    script = """
asked, enough = [], threading.Event()
def over():
    asked.append(Gate.closed)
    if len(asked) == 3:
        enough.set()
    return False
thread = beside("torch.other", over=over)
assert enough.wait(60)
print(asked[:3])
import torch
thread.join()
print(story.told)
"""
    assert ran(script, packages) == "[None, None, None]\n['other']"


def test_who_is_in_the_middle_of_an_import_is_waited_for(packages: Path) -> None:
    """The gate closes only when no thread imports a module of torch."""
    script = """
import torch
first = threading.Thread(target=lambda: __import__("torch.slow"))
first.start()
assert story.begun.wait(60)
asked = []
def over():
    asked.append(Gate.closed)
    if len(asked) == 3:
        story.go.set()
    return False
beside("torch.other", over=over).join()
first.join()
print(story.told, asked[:3])
"""
    assert ran(script, packages) == "['slow', 'other'] [None, None, None]"


def test_a_fork_waits_for_the_imports(packages: Path) -> None:
    """A child whose parent was in the middle of them could never import these modules."""
    script = """
import torch
thread = beside("torch.slow")
assert story.begun.wait(60)
child = os.fork()
if child == 0:
    import torch.slow, torch.other
    os._exit(story.told != ["slow", "other"] or Gate.closed is not None)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert ran(script, packages) == "0"


def test_imports_that_nobody_wants_any_more(packages: Path) -> None:
    """They break off at the next module, or before they have begun, and the gate is open."""
    script = """
raised, state = [], []
beside("torch.other", over=lambda: True, raised=raised).join()
import torch
thread = beside("torch.endless", over=lambda: bool(state), raised=raised)
assert story.begun.wait(60)
state.append("over")
story.go.set()
thread.join()
print(raised, story.told, bootstrap._find_and_load is untouched)
"""
    assert ran(script, packages) == "['ImportsEnded', 'ImportsEnded'] [] True"


def test_a_torch_without_these_modules(packages: Path) -> None:
    """What an import raises is the thread's own, and the gate is open afterwards."""
    script = """
import torch
raised = []
beside("torch.broken", raised=raised).join()
import torch.other
print(raised, story.told)
"""
    assert ran(script, packages) == "['ImportError'] ['other']"


def test_a_python_that_imports_in_another_way(packages: Path) -> None:
    """Others cannot be kept apart, so nothing is imported beside them."""
    script = """
import torch
del bootstrap._module_locks
print(close_gate(lambda: False))
"""
    assert ran(script, packages) == "None"


REAL = """
import sys, threading, torch
from cachesvc.runtime.compiler_imports import close_gate
done = []
def work():
    close_gate(lambda: False).import_all()
    done.append("torch._inductor.compile_fx" in sys.modules)
thread = threading.Thread(target=work)
thread.start()
threading.Event().wait({delay})
import torch._inductor.config, torch._inductor.async_compile
thread.join()
print(done)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.3, 0.5])
def test_the_circles_of_torch(delay: float) -> None:
    """Two threads that enter the compiler at different places, at different times; without the gate
    most of these end in an ImportError in both."""
    done = subprocess.run(
        [sys.executable, "-c", REAL.format(delay=delay)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("[True]\n", 0), done.stderr
