"""What is imported when: nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def imported(code: str, *names: str, env_home: Path) -> dict[str, bool]:
    """Which modules a fresh interpreter has imported after running some code."""
    show = f"\nimport sys\nprint([name in sys.modules for name in {names!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code + show],
        env={"PATH": "/usr/bin:/bin", "TCCACHE_HOME": str(env_home), "HOME": str(env_home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(names, eval(done.stdout.splitlines()[-1]), strict=True))


def test_a_name_needs_no_torch(tmp_path: Path) -> None:
    """Pulling, pushing and looking up by name run in an init container, in a blink."""
    code = (
        "import cachesvc, os\n"
        f"os.makedirs({str(tmp_path / 'inductor')!r})\n"
        f"open({str(tmp_path / 'inductor' / 'file')!r}, 'w').close()\n"
        f"store = {str(tmp_path / 'store')!r}\n"
        f"cachesvc.push('name', store=store, inductor_dir={str(tmp_path / 'inductor')!r})\n"
        "assert cachesvc.lookup('name', store=store).hit\n"
        "assert cachesvc.pull('name', store=store).found\n"
        "assert cachesvc.verify(store=store).ok\n"
    )
    found = imported(code, "torch", "boto3", "triton", env_home=tmp_path / "home")
    assert found == {"torch": False, "boto3": False, "triton": False}


@pytest.mark.xdist_group("start")
def test_a_start_without_calls_does_not_import_the_compiler(tmp_path: Path) -> None:
    """Importing the module does not, nor does a start of a model that nobody has compiled: the
    seconds that this takes are the caller's to place."""
    code = (
        "import torch, cachesvc\n"
        "report = cachesvc.warm_start(torch.nn.Linear(2, 2), store='/nowhere/at/all')\n"
        "assert report.verdict == 'unproven', report\n"
    )
    found = imported(code, "torch", "torch._dynamo", "torch._inductor", env_home=tmp_path)
    assert found == {"torch": True, "torch._dynamo": False, "torch._inductor": False}
