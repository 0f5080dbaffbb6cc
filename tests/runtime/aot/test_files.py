"""A captured function as files: what was written comes back, and anything else is an error."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cachesvc.core.digest import digest_bytes
from cachesvc.core.errors import IntegrityError
from cachesvc.runtime.aot.capture import NotCaptured
from cachesvc.runtime.aot.files import CODE, CONSTANTS, RECORD, Stored, read, read_code
from cachesvc.runtime.aot.function import Function


def test_what_was_written_comes_back(make: Any) -> None:
    """Its keys are equal, not only alike, and its code is code."""
    stored = make(constants={"_tensor_constant0": torch.ones(2)})
    assert (stored.call, stored.state, stored.kind) == (("call",), (True, None), "")
    assert stored.unit == f"aot/g/{stored.folder.name}"
    assert stored.facts["files"].keys() == {CODE, CONSTANTS}
    code, module, ledger = read_code(stored)
    assert (code.co_name, module.co_filename, ledger.co_filename) == (
        "forward",
        "<inductor>",
        "<ledger>",
    )


def test_the_same_again_takes_the_place(make: Any) -> None:
    """A function of one call lies in one folder; nothing of an older one is left in it."""
    first = make()
    (first.folder / "old.so").write_bytes(b"")
    assert make().folder == first.folder
    assert sorted(file.name for file in first.folder.iterdir()) == [CODE, RECORD]


def test_code_that_cannot_be_kept_leaves_nothing(make: Any, tmp_path: Path) -> None:
    """The capture has failed, with the reason, and there is no half of a function."""
    code = compile("f(1)", "<test>", "eval").replace(co_consts=(object(),))
    with pytest.raises(NotCaptured, match="cannot be kept: it is a object"):
        make(code=code)
    assert not list(tmp_path.iterdir())


def _record(change: Callable[[dict[str, Any]], object]) -> Callable[[Stored], None]:
    def made(stored: Stored) -> None:
        file = stored.folder / RECORD
        facts = json.loads(file.read_bytes())
        change(facts)
        file.write_text(json.dumps(facts))

    return made


def _bytes(name: str, data: bytes) -> Callable[[Stored], None]:
    return lambda stored: _write(stored.folder / name, data)


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


UNREADABLE: dict[str, Callable[[Stored], None]] = {
    "no record": lambda stored: (stored.folder / RECORD).unlink(),
    "an empty one": _bytes(RECORD, b""),
    "half of one": _bytes(RECORD, b'{"format": 2, "call": ["ca'),
    "bytes": _bytes(RECORD, b"\xff\x00"),
    "a list": _bytes(RECORD, b"[]"),
    "a deep one": _bytes(RECORD, b"[" * 100_000),
    "another format": _record(lambda facts: facts.update(format=1)),
    "no format": _record(lambda facts: facts.pop("format")),
    "no part": _record(lambda facts: facts.pop("part")),
    "a strange part": _record(lambda facts: facts.update(part=[""])),
    "no files": _record(lambda facts: facts.pop("files")),
    "strange files": _record(lambda facts: facts.update(files=[CODE])),
    "strange pins": _record(lambda facts: facts.update(pins=0)),
    "no call": _record(lambda facts: facts.pop("call")),
    "a strange call": _record(lambda facts: facts.update(call={"dtype": "sum"})),
}


@pytest.mark.parametrize("spoil", UNREADABLE.values(), ids=UNREADABLE)
def test_a_record_that_is_none(make: Any, spoil: Callable[[Stored], None]) -> None:
    """Is an IntegrityError that names the file, so that the function is left out."""
    stored = make()
    spoil(stored)
    with pytest.raises(IntegrityError, match=RECORD):
        read(stored.folder)


SPOILT: dict[str, Callable[[Stored], None]] = {
    "no code": lambda stored: (stored.folder / CODE).unlink(),
    "code cut short": lambda stored: os.truncate(stored.folder / CODE, 20),
    "other code": _bytes(CODE, b"N" * 99),
    "no constants": lambda stored: (stored.folder / CONSTANTS).unlink(),
    "constants cut short": lambda stored: os.truncate(stored.folder / CONSTANTS, 100),
    "no files told": _record(lambda facts: facts.update(files={})),
    "no inputs": _record(lambda facts: facts.pop("inputs")),
    "names that lead nowhere": _record(lambda facts: facts["names"].update(x=["module", "no.x"])),
    "no ledger": _record(lambda facts: facts.pop("ledger")),
    "a library that is not there": _record(lambda facts: facts["libraries"].update(k="k.so")),
    "a folder that is gone": lambda stored: shutil.rmtree(stored.folder),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_function_that_is_spoilt_is_not_loaded(
    make: Any, small: Any, spoil: Callable[[Stored], None]
) -> None:
    """Loading raises an exception, which whoever loads it takes for a reason; nothing is run."""
    stored = make(constants={"_tensor_constant0": torch.ones(2)})
    spoil(stored)
    again = read(stored.folder) if (stored.folder / RECORD).exists() else stored
    with pytest.raises(Exception, match=r".+"):
        Function(again, small.forward)


def test_a_library_of_other_bytes_is_not_loaded(make: Any, small: Any, tmp_path: Path) -> None:
    """One that was cut short would end the process as soon as it is mapped."""
    library = tmp_path / "abc.main.so"
    library.write_bytes(b"\x7fELF" + bytes(99))
    stored = make(libraries={"kernel": library})
    os.truncate(stored.folder / library.name, 50)
    with pytest.raises(IntegrityError, match="is not what was written"):
        Function(stored, small.forward)


@pytest.mark.parametrize("name", ["../outside.so", "/etc/passwd", "", "a\0b", "below/x.so"])
def test_a_file_that_lies_elsewhere(make: Any, small: Any, name: str) -> None:
    """A record cannot lead out of its function's folder, though the digest there be right."""
    stored = make()
    for file in (stored.folder.parent / "outside.so", stored.folder / "below" / "x.so"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"library")
    told = {"libraries": {"kernel": name}}
    files = {**stored.facts["files"], name: digest_bytes(b"library")}
    _record(lambda facts: facts.update(told, files=files))(stored)
    with pytest.raises(IntegrityError, match=r"tells of no file of its own|cannot be read"):
        Function(read(stored.folder), small.forward)


def test_files_that_nobody_may_write(make: Any, small: Any) -> None:
    """A function is only read: it loads from a directory that is read-only."""
    stored = make()
    for place in (*stored.folder.iterdir(), stored.folder):
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        (output,) = Function(read(stored.folder), small.forward)(small, torch.ones(3))
    finally:
        stored.folder.chmod(0o700)
    assert torch.equal(output, torch.full((3,), 2.0))
