"""A checkup of this machine: what keeps compilers from working here, and caches from being used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cachesvc.core.digest import Json
from cachesvc.core.errors import TccacheError
from cachesvc.core.finding import Finding
from cachesvc.core.temporary import temporary_folder
from cachesvc.local.caches import left_locks, other_caches
from cachesvc.local.fingerprint import TorchNotFound, package_folder, read_torch, torch_folder
from cachesvc.local.flags import FLAGS, flag_findings
from cachesvc.local.health import Directory
from cachesvc.local.host import read_environment
from cachesvc.local.live import HOME, INDUCTOR, TRITON, Live
from cachesvc.local.lock import is_held
from cachesvc.local.quarantine import read_quarantine
from cachesvc.local.toolchain import c_compiler, python_headers
from cachesvc.runtime.compiler import has_compiler
from cachesvc.runtime.directories import current
from cachesvc.start.access import access
from cachesvc.start.scope import scope_of

_NO_TEMPORARY = Finding(
    "no temporary directory",
    "disease",
    "neither TMPDIR nor /tmp is a directory that can be written, and compilers need one",
    cure="set TMPDIR to a directory on a local disk",
)


@dataclass
class Checkup:
    """The search on this machine: findings and facts as they come; `told` is their gist."""

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    has_torch: bool = True

    def look(self) -> None:
        self.findings += flag_findings(os.environ)
        self.facts["flags"] = {
            flag.name: os.environ[flag.name] for flag in FLAGS if os.environ.get(flag.name)
        }
        environment = self._torch()
        live = self._live(environment) if environment else None
        self._directories(live)
        self._compilers()
        if live is not None:
            self._left(live)
        self.findings += left_locks(os.environ)
        self._other_caches()

    def _torch(self) -> str | None:
        """This machine's environment digest; None where there is no torch."""
        try:
            build = read_torch(torch_folder())
            digest = read_environment().digest
        except TorchNotFound as error:
            self.has_torch = False
            self.findings.append(
                Finding("no torch", "disease", str(error), cure="install torch beside tccache")
            )
            self.facts["torch"] = None
            return None
        self.facts["torch"] = build.version
        self.told.append(f"torch {build.version}")
        return digest

    def _live(self, environment: str) -> Live | None:
        try:
            live = current(environment, scope_of(access()))
        except TccacheError as error:
            self.findings.append(
                Finding(
                    "no live directory",
                    "disease",
                    str(error),
                    cure=f"set {HOME} to a directory on a local disk",
                )
            )
            return None
        self.told.append(f"live directory {live.root}")
        return live

    def _directories(self, live: Live | None) -> None:
        """The directories that variables name, the temporary one, and the live directory."""
        found = [
            Directory(Path(os.environ[name]).absolute(), name, holds_others=name == HOME)
            for name in (HOME, INDUCTOR, TRITON)
            if os.environ.get(name)
        ]
        named = [str(item.path) for item in found]
        if live is not None and not any(live.root.is_relative_to(item.path) for item in found):
            found.append(Directory(live.root, "the live directory"))
        if temporary := temporary_folder():
            found.append(
                Directory(temporary, "the temporary directory", needed=False, holds_others=True)
            )
        else:
            self.findings.append(_NO_TEMPORARY)
        for item in found:
            self.findings += item.findings
        self.facts["directories"] = [item.facts for item in found]
        self.findings += _passed_over(live, named) if live else ()

    def _compilers(self) -> None:
        """What builds kernels. Triton's own compiler is looked for only where there is Triton."""
        headers = python_headers()
        self.facts["cpp_compiler"] = has_compiler()
        self.facts["python_headers"] = None if headers is None else str(headers)
        if not has_compiler():
            self.findings.append(
                Finding(
                    "no C++ compiler",
                    "disease",
                    "neither CXX nor g++ is a program on PATH: what no bundle brings cannot be"
                    " compiled, and runs as it was written",
                    cure="install g++, or set CXX",
                )
            )
        if headers is None:
            self.findings.append(
                Finding(
                    "no Python headers",
                    "disease",
                    "Python.h is not where compilers look for it, and what they build for torch"
                    " and Triton needs it",
                    cure="install the headers of this Python (Debian: python3-dev)",
                )
            )
        if package_folder("triton") is None:
            return
        self.facts["c_compiler"] = c_compiler(os.environ)
        if c_compiler(os.environ) is None:
            self.findings.append(
                Finding(
                    "no C compiler",
                    "disease",
                    "neither CC nor gcc nor clang is a program on PATH, and Triton builds a"
                    " launcher for the GPU with it",
                    cure="install gcc, or set CC",
                )
            )

    def _left(self, live: Live) -> None:
        """What earlier starts have left in the live directory."""
        aside = read_quarantine(live.places.records)
        self.facts["set_aside"] = [item.unit for item in aside]
        self.findings += (
            Finding(
                "set aside",
                "disease",
                f"it failed on this machine and is not used any more ({item.reason})",
                where=item.unit,
                cure="publish the model again from a machine where it works",
            )
            for item in aside
        )
        if is_held(live.places):
            self.findings.append(
                Finding(
                    "lock held",
                    "hint",
                    "a running process is seeding this directory, and others wait for it",
                    where=str(live.root),
                    cure="wait for it to end",
                )
            )

    def _other_caches(self) -> None:
        caches = tuple(other_caches(os.environ))
        self.findings += (item.finding for item in caches)
        self.facts["other_caches"] = [
            {
                "name": item.cache.name,
                "path": str(item.folder),
                "files": item.files,
                "bytes": item.bytes,
            }
            for item in caches
        ]


def _passed_over(live: Live, named: Iterable[str]) -> Iterator[Finding]:
    """What the search for a live directory came by, and no other finding tells."""
    for note in live.notes:
        if "passed over" in note and not any(path in note for path in named):
            cure = f"set {HOME} to a directory on a local disk, or leave it so"
            yield Finding("passed over", "hint", note, cure=cure)
