"""Which directories a process's compiler uses: the user's, ours, or those in effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh_processes import FreshProcesses

pytestmark = pytest.mark.xdist_group("runtime")

FIND = """
from cachesvc.runtime import directories
def find():
    live = directories.current("e" * 64)
    return [str(live.folder("inductor")), str(live.folder("triton"))]
"""


def ours(home: Path) -> list[str]:
    root = home / "live" / ("e" * 16)
    return [str(root / "inductor"), str(root / "triton")]


def test_torchs_own_default_is_nobodys_choice(fresh: FreshProcesses, tmp_path: Path) -> None:
    """torch.compile sets the variable before anything is compiled; that is no wish of the user."""
    set_by_torch, found, used = fresh.run(
        FIND
        + """
names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
torch.compile(Plain())
result = [os.environ[names[0]], find()]
directories.use(directories.current("e" * 64))
result.append([os.environ[name] for name in names])
""",
        home=tmp_path,
    )
    assert Path(set_by_torch).name.startswith("torchinductor_")
    assert found == used == ours(tmp_path)


def test_a_directory_that_the_user_set_is_used(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Before the import of torch, or in the program before the first compile; Triton's lies inside
    unless it is set too."""
    found = fresh.run(
        FIND
        + """
torch.compile(Plain())
os.environ["TORCHINDUCTOR_CACHE_DIR"] = given["user"]
result = [find()]
os.environ["TRITON_CACHE_DIR"] = given["user"] + "-triton"
result.append(find())
""",
        given={"user": tmp_path / "user"},
    )
    user = str(tmp_path / "user")
    assert found == [[user, f"{user}/triton/0"], [user, f"{user}-triton"]]


def test_torchs_default_set_by_the_user_is_used(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Who starts the process with the variable has chosen, whatever the value."""
    default = tmp_path / "torchinductor_somebody"
    env = {
        "TMPDIR": str(tmp_path),
        "USER": "somebody",
        "LOGNAME": "somebody",
        "TORCHINDUCTOR_CACHE_DIR": str(default),
    }
    found, is_default = fresh.run(
        FIND
        + """
torch.compile(Plain())
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
result = [find(), default_cache_dir() == os.environ["TORCHINDUCTOR_CACHE_DIR"]]
""",
        env=env,
        own=True,
    )
    assert is_default
    assert found[0] == str(default)


def test_a_new_home_counts_until_the_first_compile(fresh: FreshProcesses, tmp_path: Path) -> None:
    """What we set ourselves is no wish of the user either; what is in effect stays."""
    found = fresh.run(
        FIND
        + """
result = []
for home in ("one", "two", "three"):
    os.environ["TCCACHE_HOME"] = given["homes"] + "/" + home
    directories.use(directories.current("e" * 64))
    result.append(find() + [directories.is_late()])
    if home == "two":
        with torch.no_grad():
            torch.compile(Plain())(ones())
""",
        given={"homes": tmp_path},
    )
    two = ours(tmp_path / "two")
    assert found == [[*ours(tmp_path / "one"), False], [*two, False], [*two, False]]


def test_late_is_who_comes_after_a_compile(fresh: FreshProcesses) -> None:
    """A start after a compile that nobody prepared; not a second one after a start of ours."""
    late = fresh.run(
        FIND
        + """
result = [directories.is_late()]
with torch.no_grad():
    torch.compile(Plain())(ones())
result.append(directories.is_late())
"""
    )
    assert late == [False, True]


def test_a_child_process_finds_its_parents_directory(fresh: FreshProcesses, tmp_path: Path) -> None:
    """Workers inherit the variables and share the records of what was seeded."""
    parent, child = fresh.run(
        FIND
        + """
import subprocess
live = directories.current("e" * 64)
directories.use(live)
code = (
    "from cachesvc.runtime import directories;"
    "live = directories.current('f' * 64);"
    "print(live.root, live.places.records)"
)
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
result = [f"{live.root} {live.places.records}", done.stdout.strip()]
""",
        home=tmp_path,
    )
    assert parent == child
