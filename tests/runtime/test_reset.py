"""A call that failed on a bad cache entry is made again in the same process, and works."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from fresh_processes import FreshProcesses

pytestmark = pytest.mark.xdist_group("runtime")

FILL = """
with torch.no_grad():
    torch.compile(Fused())(ones())
"""

SETUP = """
from pathlib import Path
from cachesvc.local.damage import damaged_units, files_of
from cachesvc.local.layout import unit_key
from cachesvc.local.places import under
from cachesvc.local.quarantine import read_quarantine, restore, set_aside
from cachesvc.runtime import reset
from cachesvc.runtime.counters import Meter

AT = "2026-01-01T00:00:00.000000Z"
places = under(Path(given["root"]))
bare = Fused()
model = torch.compile(bare)

def call():
    with torch.no_grad():
        try:
            return bool(torch.allclose(model(ones()), bare(ones())))
        except Exception as error:
            return str(error)

def aside(units):
    return [item.unit for item in set_aside(places, units, at=AT)]
"""

POISON = """
#include <Python.h>
static PyObject *kernel(PyObject *self, PyObject *args)
{ PyErr_SetString(PyExc_RuntimeError, "poison"); return NULL; }
static PyMethodDef methods[] = {{"kernel", kernel, METH_VARARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "kernel", NULL, -1, methods};
PyMODINIT_FUNC PyInit_kernel(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def filled(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live directory in which Fused was compiled: a wrapper, a library, a graph."""
    root = tmp_path_factory.mktemp("filled")
    fresh.run(FILL, env=_env(root))
    return root


@pytest.fixture
def live(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "live"))


def _env(root: Path) -> dict[str, str | None]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(root / "inductor")}


def _one(live: Path, pattern: str) -> Path:
    (file,) = live.glob(pattern)
    return file


def _run(fresh: FreshProcesses, live: Path, script: str) -> Any:
    return fresh.run(SETUP + script, env=_env(live), given={"root": live})


@pytest.mark.parametrize(
    ("pattern", "said"), [("inductor/*/*.so", "file too short"), ("inductor/*/*.py", "call")]
)
def test_a_damaged_file_is_set_aside_and_made_again(
    fresh: FreshProcesses, live: Path, pattern: str, said: str
) -> None:
    """The first call raises; without the unit the second one compiles what is missing and is
    right; a process after it has nothing to do."""
    _one(live, pattern).write_bytes(b"")
    first, damaged, second, missing = _run(
        fresh,
        live,
        """
result = [call()]
damaged = {item.unit: item.reason for item in damaged_units(places)}
result += [aside(damaged), reset.forget_compiled(), call()]
result[2], result[3] = result[3], result[2]
""",
    )
    assert said in first
    assert len(damaged) == 1
    assert second is True
    assert missing == []
    assert _run(fresh, live, "result = [call(), len(damaged_units(places))]") == [True, 0]


@pytest.mark.slow
def test_a_library_that_kills_the_process_is_found_by_the_next(
    fresh: FreshProcesses, live: Path
) -> None:
    """Cut short behind its header it is mapped, and reading it is a signal that nobody catches: a
    strike is all that the dead process leaves."""
    library = _one(live, "inductor/*/*.so")
    library.write_bytes(library.read_bytes()[:8192])
    with pytest.raises(AssertionError, match=r"failed \(-7\)"):
        _run(fresh, live, "call()")
    again = "aside({item.unit: item.reason for item in damaged_units(places)})\nresult = call()"
    assert _run(fresh, live, again) is True


def test_poison_that_is_loaded_is_compiled_anew(fresh: FreshProcesses, live: Path) -> None:
    """A wrapper that raises while it is imported, with all units set aside: a cold call."""
    wrapper = _one(live, "inductor/*/*.py")
    wrapper.write_text(wrapper.read_text() + "\nraise ValueError('poison')\n")
    first, damaged, second, compiled = _run(
        fresh,
        live,
        """
result = [call(), len(damaged_units(places))]
aside({unit_key(path.split("/")): "raises" for path, _ in files_of(places)})
meter = Meter(None)
reset.forget_compiled()
result += [call(), meter.read().compiled]
""",
    )
    assert "poison" in first
    assert damaged == 0
    assert second is True
    assert compiled == 1


@pytest.mark.slow
def test_a_library_that_was_loaded_stays_but_for_a_start_apart(
    fresh: FreshProcesses, live: Path
) -> None:
    """Python never lets go of an extension module: the new file under the same name is not read.
    In directories of their own the same calls are free of it; the next process is, too."""
    library = _one(live, "inductor/*/*.so")
    library.unlink()
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-o", str(library)]
    command += ["-I", sysconfig.get_paths()["include"]]
    subprocess.run(command, input=POISON, text=True, check=True)
    first, second, within, after, directory = _run(
        fresh,
        live,
        """
result = [call()]
aside({unit_key(path.split("/")): "raises" for path, _ in files_of(places)})
reset.forget_compiled()
result.append(call())
with reset.apart():
    result.append(call())
result += [call(), os.environ["TORCHINDUCTOR_CACHE_DIR"]]
""",
    )
    assert "poison" in first
    assert "poison" in second
    assert within is after is True
    assert directory == str(live / "inductor")
    assert _run(fresh, live, "result = call()") is True


def test_a_model_at_fault_fails_everywhere_and_all_comes_back(
    fresh: FreshProcesses, live: Path
) -> None:
    """Then the units were innocent, and the directory is as it was."""
    before = {path: path.read_bytes() for path in live.rglob("*") if path.is_file()}
    failed, back, left = _run(
        fresh,
        live,
        """
aside({unit_key(path.split("/")): "raises" for path, _ in files_of(places)})
model = torch.compile(Failing())
units = [item.unit for item in read_quarantine(places.records)]
with reset.apart():
    result = [call()]
result += [sorted(restore(places, units)) == sorted(units), len(read_quarantine(places.records))]
""",
    )
    assert "no batch of 2" in failed
    assert back is True
    assert left == 0
    assert {path: path.read_bytes() for path in before} == before


def test_what_this_torch_lacks_is_named(fresh: FreshProcesses) -> None:
    """Private functions come and go: their absence is said, and no error."""
    missing = fresh.run(
        """
from cachesvc.runtime.reset import forget_compiled
import torch._inductor.utils as module
for name in ("clear_caches", "clear_inductor_caches"):
    vars(module).pop(name, None)
result = forget_compiled()
"""
    )
    assert missing == ["torch._inductor.utils.clear_caches"]
