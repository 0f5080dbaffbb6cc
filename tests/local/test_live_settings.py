"""Directories that the user set and nobody can build in: another one serves, and is named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachesvc.local.live import INDUCTOR, TRITON, live_directory

pytestmark = pytest.mark.usefixtures("fresh_homes")

ENVIRONMENT = "0123456789abcdef" * 4

SHOW = """
    found = live.live_directory(sys.argv[1], os.environ)
    folders = [str(found.folder(name)) for name in ("inductor", "triton")]
    show([folders, found.chosen_by, list(found.notes)])
"""


@pytest.mark.parametrize("below", ["", "below", "below/further"])
def test_a_file_in_the_way(tmp_path: Path, below: str) -> None:
    """Neither the file nor what would lie below it is a directory: our own is used instead."""
    (tmp_path / "file").write_text("")
    mine = tmp_path / "file" / below
    live = live_directory(ENVIRONMENT, {INDUCTOR: str(mine), "HOME": str(tmp_path)})
    assert live.chosen_by == "HOME"
    assert live.folder("inductor").is_relative_to(tmp_path / ".cache" / "tccache")
    (note,) = live.notes
    assert note == f"{INDUCTOR}={mine} was passed over: Not a directory"


def test_where_nothing_can_be_made_at_all() -> None:
    """A place that not even root can write to."""
    live = live_directory(ENVIRONMENT, {INDUCTOR: "/proc/cache"})
    assert live.chosen_by == "the temporary directory"
    assert live.notes[0].startswith(f"{INDUCTOR}=/proc/cache was passed over: ")


def test_triton_alone_is_passed_over(tmp_path: Path) -> None:
    """Inductor's directory stays the user's; Triton's is where it lies by default then."""
    (tmp_path / "file").write_text("")
    environ = {INDUCTOR: str(tmp_path / "mine"), TRITON: str(tmp_path / "file")}
    live = live_directory(ENVIRONMENT, environ)
    assert live.chosen_by == INDUCTOR
    assert live.folder("triton") == tmp_path / "mine" / "triton" / "0"
    (note,) = live.notes
    assert note == f"{TRITON}={tmp_path}/file was passed over: Not a directory"


def test_inductor_alone_is_passed_over(tmp_path: Path) -> None:
    """Triton's directory stays the user's."""
    (tmp_path / "file").write_text("")
    environ = {INDUCTOR: str(tmp_path / "file"), TRITON: str(tmp_path / "kernels")}
    live = live_directory(ENVIRONMENT, {**environ, "HOME": str(tmp_path)})
    assert live.chosen_by == "HOME"
    assert live.folder("triton") == tmp_path / "kernels"


def test_nothing_is_left_in_a_directory_that_was_tried(tmp_path: Path) -> None:
    """The user's directory is looked into and nothing else: no record, no probe."""
    (tmp_path / "mine").mkdir()
    environ = {INDUCTOR: str(tmp_path / "mine"), TRITON: str(tmp_path / "mine" / "kernels")}
    assert live_directory(ENVIRONMENT, environ).chosen_by == INDUCTOR
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("options", ["ro", "noexec"])
def test_a_real_mount(tmp_path: Path, options: str) -> None:
    """A directory of the image, mounted read-only, and a tmpfs as Docker mounts it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size=64k,{options}", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        environ = {INDUCTOR: str(disk / "mine"), "HOME": str(tmp_path)}
        live = live_directory(ENVIRONMENT, environ)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert live.chosen_by == "HOME"
    assert {"ro": "Read-only file system", "noexec": "noexec"}[options] in live.notes[0]


def test_a_directory_of_another_user(open_folder: Path, unprivileged: Callable[..., Any]) -> None:
    """A random UID in a container whose image sets the variable: both are passed over and named."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o555)
    environ = {
        "PATH": os.defpath,
        "TMPDIR": str(open_folder),
        INDUCTOR: str(closed / "inductor"),
        TRITON: str(closed),
    }
    folders, chosen_by, notes = unprivileged(SHOW, ENVIRONMENT, environ=environ)
    assert chosen_by == "the temporary directory"
    assert not any(Path(folder).is_relative_to(closed) for folder in folders)
    assert [note.partition("=")[0] for note in notes] == [INDUCTOR, TRITON]
    assert all(note.endswith("Permission denied") for note in notes)
