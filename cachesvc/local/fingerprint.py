"""What torch, Triton, Python and the platform say of themselves, read as text, never imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from cachesvc.core.errors import UsageError

_ASSIGNMENT = re.compile(
    r"""^(\w+)\s*(?::[^=\n]+)?=\s*(?:'([^'\n]*)'|"([^"\n]*)"|None)[ \t]*$""", re.MULTILINE
)
_TRITON_METADATA = re.compile(
    r"(?:pytorch_)?triton(?:_rocm|_xpu|_windows)?-(?P<version>[^-]+)\.dist-info"
)


class TorchNotFound(UsageError):
    """There is no torch for this interpreter, or it has no version file."""


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The version file of a torch: what it is and which runtime it was built for."""

    version: str
    git: str
    cuda: str = ""
    hip: str = ""
    xpu: str = ""

    @property
    def runtime(self) -> str:
        """One of "cuda 13.0", "rocm 6.4.43484-123eb5128", "xpu 20250301" or "cpu"."""
        named = (("rocm", self.hip), ("cuda", self.cuda), ("xpu", self.xpu))
        return next((f"{name} {version}" for name, version in named if version), "cpu")


def torch_folder() -> Path:
    """The torch package that `import torch` would load in this interpreter, without loading it.

    Raises TorchNotFound.
    """
    folder = package_folder("torch")
    if folder is None:
        raise TorchNotFound(
            f"there is no torch for {sys.executable or 'this interpreter'}: install it there "
            "(pip install torch), or run tccache with the interpreter that has it"
        )
    return folder


def package_folder(name: str) -> Path | None:
    """The folder of a top-level package on this interpreter's path, editable ones included."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        # ValueError: a stand-in without a spec was put into sys.modules.
        return None
    # A namespace package has no origin: a folder that merely has the name.
    return None if spec is None or not spec.origin else Path(spec.origin).parent


def read_torch(folder: Path) -> TorchBuild:
    """What `torch/version.py` says; the build writes it as plain assignments.

    Raises TorchNotFound where that file is missing or has no version.
    """
    path = folder / "version.py"
    values = assignments(_text(path))
    if not values.get("__version__"):
        raise TorchNotFound(
            f"{path} does not say which torch this is: build that source tree first, "
            "or run tccache from another folder"
        )
    return TorchBuild(
        version=values["__version__"],
        git=values.get("git_version", "unknown"),
        **{name: values.get(name, "") for name in ("cuda", "hip", "xpu")},
    )


def assignments(source: str) -> dict[str, str]:
    """The top-level `name = 'text'` lines of a Python source, annotated or not; None gives ""."""
    return {name: one or two for name, one, two in _ASSIGNMENT.findall(source)}


def triton_version(folder: Path | None) -> str:
    """The version of the Triton package in `folder`, "none" where there is none.

    The package itself says 3.6.0 also where the distribution is 3.6.0+git1234, a nightly: the
    metadata beside it tells them apart, if exactly one belongs to that version.
    """
    if folder is None:
        return "none"
    version = assignments(_text(folder / "__init__.py")).get("__version__", "")
    found = {name for name in _triton_distributions(folder.parent) if _extends(name, version)}
    return found.pop() if len(found) == 1 else version or "unknown"


def _triton_distributions(site: Path) -> list[str]:
    try:
        names = os.listdir(site)
    except OSError:
        return []
    matches = (_TRITON_METADATA.fullmatch(name) for name in names)
    return [match["version"] for match in matches if match]


def _extends(distribution: str, version: str) -> bool:
    return distribution == version or distribution.startswith((f"{version}+", f"{version}.post"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def python_abi(
    tag: str | None = sys.implementation.cache_tag,
    suffixes: Sequence[str] = EXTENSION_SUFFIXES,
    flags: str = getattr(sys, "abiflags", ""),
) -> str:
    """The ABI of this interpreter: "cpython-311-x86_64-linux-gnu".

    The suffix of extension modules holds it, with "d" for a debug and "t" for a free-threaded
    build; reading it there spares the import of sysconfig's data.
    """
    tag = tag or sys.implementation.name
    suffix = suffixes[0].lstrip(".").rpartition(".")[0] if suffixes else ""
    return suffix if suffix.startswith(tag) else f"{tag}{flags} {suffix}".rstrip()


def glibc_version(confstr: Callable[[str], str | None] = os.confstr) -> str | None:
    """The version of glibc ("2.36"); None on musl, which knows no such name."""
    try:
        answer = confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return None
    name, _, version = answer.partition(" ")
    return version if name == "glibc" and version else None


def platform_name(arch: str, glibc: str | None) -> str:
    """The kind of system: "linux-x86_64-glibc"; without a C library anywhere but on Linux."""
    libc = "" if sys.platform != "linux" else "-glibc" if glibc else "-musl"
    return f"{sys.platform}-{arch}{libc}"
