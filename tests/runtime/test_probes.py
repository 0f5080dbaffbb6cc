"""Libraries are looked up before anything is asked; what is not found is built as ever."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from cachesvc.runtime import instructions, probes


class Isa:
    """Vector instructions as torch has them."""

    def __init__(self, needs: str, **optional: bool) -> None:
        self.needs = needs
        vars(self).update(optional)

    def __str__(self) -> str:
        return self.needs

    def key(self) -> str:
        extra = "+bf16" if getattr(self, "_is_avx512_bf16_supported", False) else ""
        return self.needs.split()[-1] + extra


AMX = Isa("avx512 amx_tile", _is_amx_fp16_supported=False, _is_avx512_bf16_supported=False)
AVX512 = Isa("avx512", _is_avx512_bf16_supported=False)
AVX2 = Isa("avx2")


class Torch:
    """The part of Inductor that looks libraries up, and what was asked of its compiler."""

    def __init__(self, folder: Path, flags: list[str]) -> None:
        self.folder, self.probed, self.built, self.ahead = folder, 0, [], 0
        self.builds = 0
        self.able = [AVX2]
        self.isa = ModuleType("torch._inductor.cpu_vec_isa")
        vars(self.isa).update(
            x86_isa_checker=lambda: flags,
            supported_vec_isa_list=[AMX, AVX512, AVX2],
            valid_vec_isa_list=self._probe,
        )
        self.cache = ModuleType("torch._inductor.codecache")
        vars(self.cache).update(write=self._write, CppCodeCache=self._loader())

    def _probe(self) -> list[Isa]:
        self.probed += 1
        return self.able

    def _write(self, content: str, extension: str) -> tuple[str, str]:
        return content, str(self.folder / f"{content}.{extension}")

    def _loader(self) -> Any:
        torch = self

        class CppCodeCache:
            cache: ClassVar[dict[str, Any]] = {}

            @classmethod
            def load_async(cls, source: str, submit_fn: Any = None) -> Any:
                isa = torch.isa.valid_vec_isa_list()[0]
                key, path = torch.cache.write(f"{source}-{isa.key()}", "main.cpp")
                library = Path(path).with_suffix(".so")
                if submit_fn and key not in cls.cache and not library.exists():
                    submit_fn()
                cls.cache.setdefault(key, lambda: torch.load(library))
                return cls.cache[key]

        return CppCodeCache

    def load(self, library: Path) -> str:
        if not library.exists():
            self.built.append(library.name)
            self.builds += 1
            library.touch()
        return library.name

    def there(self, name: str) -> None:
        (self.folder / name).touch()

    def start(self, source: str) -> str:
        def ahead() -> None:
            self.ahead += 1

        return str(self.cache.CppCodeCache.load_async(source, submit_fn=ahead)())


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What torch.cpu says; a CPU with everything but AMX unless a test changes it."""
    cpu = SimpleNamespace(_is_avx512_bf16_supported=lambda: True, _init_amx=lambda: False)
    monkeypatch.setattr(instructions, "torch", SimpleNamespace(cpu=cpu))
    monkeypatch.setattr(instructions.platform, "machine", lambda: "x86_64")
    return cpu


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: SimpleNamespace) -> Torch:
    """With its look-ups watched, and a compiler on PATH."""
    found = Torch(tmp_path, ["avx2", "avx512"])
    monkeypatch.setattr(probes, "has_compiler", lambda: True)
    monkeypatch.setattr(probes, "cpp_builds", lambda: found.builds)
    monkeypatch.setattr(probes, "_hook", lambda: None)
    probes._spare_instructions(found.isa)
    probes._spare_library(found.cache)
    probes.spare_probes()
    return found


def test_what_lies_there_is_found(torch: Torch) -> None:
    """Under the best that the CPU has, and nothing is probed."""
    torch.there("kernel-avx512+bf16.main.so")
    assert torch.start("kernel") == "kernel-avx512+bf16.main.so"
    assert (torch.probed, torch.built, torch.ahead) == (0, [], 0)


def test_what_a_lesser_compiler_built_is_found(torch: Torch) -> None:
    """By torch's own probes, once the look-up has found nothing; after that it is not tried."""
    torch.there("kernel-avx2.main.so")
    torch.there("other-avx512+bf16.main.so")
    torch.there("other-avx2.main.so")
    assert torch.start("kernel") == "kernel-avx2.main.so"
    assert torch.start("other") == "other-avx2.main.so"
    assert (torch.probed, torch.built) == (2, [])


def test_what_is_missing_is_built_as_ever(torch: Torch) -> None:
    """Probed, ahead in a worker, and nothing is left of the look-up that would build alone."""
    torch.able = [torch.isa.supported_vec_isa_list[1]]
    torch.able[0]._is_avx512_bf16_supported = True
    try:
        assert torch.start("kernel") == "kernel-avx512+bf16.main.so"
    finally:
        torch.able[0]._is_avx512_bf16_supported = False
    assert (torch.probed, torch.ahead) == (1, 1)
    assert torch.built == ["kernel-avx512+bf16.main.so"]


def test_a_look_up_that_fails(torch: Torch) -> None:
    """Because of what it guessed: torch does it by itself, and what it raises is raised."""
    torch.isa.x86_isa_checker = lambda: 1 / 0  # type: ignore[attr-defined]
    torch.there("kernel-avx2.main.so")
    assert torch.start("kernel") == "kernel-avx2.main.so"
    torch.able = []
    probes.spare_probes()
    with pytest.raises(IndexError):
        torch.start("kernel")


def test_after_a_build_everything_is_asked(torch: Torch) -> None:
    """A process that builds is a cold one, until its next start."""
    torch.there("kernel-avx512+bf16.main.so")
    torch.builds += 1
    torch.able = [AVX512]
    torch.start("kernel")
    assert torch.probed == 1
    probes.spare_probes()
    torch.start("kernel")
    assert torch.probed == 1


def test_without_a_compiler_nothing_is_tried(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a start looks for libraries in another way."""
    monkeypatch.setattr(probes, "has_compiler", lambda: False)
    probes.spare_probes()
    torch.there("kernel-avx512+bf16.main.so")
    torch.start("kernel")
    assert torch.probed == 1


def test_amx_is_asked_of_the_system(torch: Torch, says: SimpleNamespace) -> None:
    """A kernel with tiles may run only where Linux has given them to the process."""
    torch.isa.x86_isa_checker = lambda: ["avx2", "avx512", "amx_tile"]  # type: ignore[attr-defined]
    keys = [isa.key() for isa in instructions.without_probe(torch.isa)]
    assert keys == ["avx512+bf16", "avx2"]
    says._init_amx = lambda: True
    keys = [isa.key() for isa in instructions.without_probe(torch.isa)]
    assert keys == ["amx_tile+bf16", "avx512+bf16", "avx2"]


def test_torchs_own_values_stay(torch: Torch) -> None:
    """What its probes will find out is not put into them."""
    instructions.without_probe(torch.isa)
    assert AVX512._is_avx512_bf16_supported is False  # type: ignore[attr-defined]


def test_another_kind_of_cpu(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch probes nothing there, and is asked."""
    monkeypatch.setattr(instructions.platform, "machine", lambda: "aarch64")
    torch.there("kernel-avx2.main.so")
    assert torch.start("kernel") == "kernel-avx2.main.so"
    assert torch.probed == 1


@pytest.mark.parametrize("missing", ["write", "CppCodeCache"])
def test_a_torch_that_lacks_something(tmp_path: Path, missing: str) -> None:
    """Nothing is put there and nothing raises."""
    found = Torch(tmp_path, [])
    delattr(found.cache, missing)
    before = dict(vars(found.cache))
    probes._spare_library(found.cache)
    assert vars(found.cache) == before
    del found.isa.valid_vec_isa_list
    probes._spare_instructions(found.isa)
    assert not hasattr(found.isa, "valid_vec_isa_list")


def test_a_torch_without_the_list(torch: Torch) -> None:
    """Then torch is asked within the look-up, too."""
    del torch.isa.supported_vec_isa_list
    torch.there("kernel-avx2.main.so")
    assert torch.start("kernel") == "kernel-avx2.main.so"
    assert torch.probed == 1
