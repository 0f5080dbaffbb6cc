"""The keys of torch and Triton are read again as soon as a source has changed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fresh_processes import FreshProcesses

from cachesvc.runtime import keys, remembered


class Package:
    """A package on disk whose key is all of its sources, and how often it was computed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.computed = folder / "torch", 0
        self.records = folder / "records"
        self.put("__init__.py", "first")
        self.put("inner/module.py", "second")
        self.put("include/header.h", "third")
        module = ModuleType("torch")
        module.__file__ = str(self.folder / "__init__.py")
        self.module, self.key = module, self._key

    def put(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def _key(self) -> object:
        self.computed += 1
        return "".join(sorted(file.read_text() for file in self.folder.rglob("*.py"))).encode()

    def start(self) -> Any:
        """The key as a new process gets it."""
        keys._stamp.cache_clear()
        remembered._known.clear()
        codecache: Any = ModuleType("torch._inductor.codecache")
        codecache.torch_key = self.key
        keys._watch_torch(codecache)
        keys.keep_keys(self.records)
        return codecache.torch_key()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    monkeypatch.setattr(keys, "_hook", lambda: None)
    monkeypatch.setattr(keys._Kept, "folder", None)
    monkeypatch.setattr(remembered, "_known", {})
    found = Package(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", found.module)
    keys._stamp.cache_clear()
    return found


@pytest.fixture(autouse=True)
def _no_stamp_of_a_test() -> Any:
    yield
    keys._stamp.cache_clear()


def test_it_is_computed_once(package: Package) -> None:
    """By the first process on a machine; what the second takes is the same."""
    assert [package.start(), package.start()] == [b"firstsecond"] * 2
    assert package.computed == 1


def same_size(package: Package) -> None:
    """Other bytes of the same number, with the time of the ones before."""
    file = package.folder / "inner" / "module.py"
    before = file.stat()
    file.write_text("SECOND")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Package], None]] = {
    "edited": lambda package: package.put("inner/module.py", "another"),
    "of the same size and time": same_size,
    "added": lambda package: package.put("inner/more.py", "more"),
    "removed": lambda package: (package.folder / "inner" / "module.py").unlink(),
    "another version": lambda package: setattr(package.module, "__version__", "2"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(package: Package, change: str) -> None:
    """Of any source, however it came about; the new key is then kept."""
    package.start()
    CHANGES[change](package)
    assert package.start() == package._key()
    computed = package.computed
    package.start()
    assert package.computed == computed


def test_headers_do_not_matter(package: Package) -> None:
    """No key holds them, and they are most of the files."""
    package.start()
    package.put("include/header.h", "another")
    package.start()
    assert package.computed == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"torch": 1}', '{"torch": {"stamp": %s}}', '{"torch": %s}', "[" * 9999],
)
def test_a_file_that_is_none(package: Package, text: str) -> None:
    """Is computed anew, and written anew."""
    package.start()
    kept = json.loads((package.records / "remembered.json").read_text())["torch"]
    (package.records / "remembered.json").write_text(text.replace("%s", json.dumps(kept["stamp"])))
    assert package.start() == b"firstsecond"
    assert package.computed == 2
    package.start()
    assert package.computed == 2


def test_a_folder_that_cannot_be_written(package: Package, tmp_path: Path) -> None:
    """Costs what it costs without."""
    package.records = tmp_path / "file" / "records"
    (tmp_path / "file").write_text("")
    assert [package.start(), package.start()] == [b"firstsecond"] * 2
    assert package.computed == 2


def test_tritons_key_is_a_text(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept beside torch's, and neither takes the other's."""
    package.start()
    monkeypatch.setitem(sys.modules, "triton", package.module)
    triton: Any = ModuleType("triton.runtime.cache")
    triton.triton_key = lambda: "3.6-text"
    keys._watch_triton(triton)
    assert [triton.triton_key(), triton.triton_key()] == ["3.6-text"] * 2
    assert package.start() == b"firstsecond"
    assert package.computed == 1
    assert len(json.loads((package.records / "remembered.json").read_text())) == 2


def test_whoever_took_the_function_along(package: Package) -> None:
    """A module that imported it by its name has the kept key, too, and it is read once."""
    package.start()
    other: Any = ModuleType("torch._inductor.async_compile")
    other.torch_key = package.key
    keys._watch_torch(other)
    (package.records / "remembered.json").unlink()
    assert other.torch_key() == b"firstsecond"
    assert package.computed == 1


def test_another_kind_of_key(package: Package) -> None:
    """Neither bytes nor text: given on, never kept."""
    package.key = lambda: 7
    assert package.start() == 7
    assert not package.records.exists()


def test_another_torch() -> None:
    """A module without the function is left as it is."""
    module = ModuleType("torch._inductor.codecache")
    before = dict(vars(module))
    keys._watch_torch(module)
    assert vars(module) == before


REAL = """
from pathlib import Path
from torch._inductor import codecache
from cachesvc.runtime.keys import keep_keys

plain = codecache.torch_key()
keep_keys(Path("records"))
first, second = codecache.torch_key(), codecache.torch_key()
row = Path("records", "remembered.json").read_text()
result = [plain == first == second, plain.hex() in row]
"""


def test_torchs_own_key(fresh: FreshProcesses) -> None:
    """Is what comes back, and it is kept."""
    assert fresh.run(REAL) == [True, True]
