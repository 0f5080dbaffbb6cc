"""The directories and files that a push reads and a pull writes, as a user names them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cachesvc.core.errors import IntegrityError, UsageError
from cachesvc.local.live import Live
from cachesvc.local.megafile import Artifact, take_apart
from cachesvc.start.given_path import directory

PathLike = str | os.PathLike[str]
_LABEL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Trees:
    """Cache directories by what they hold; all None means the live directory."""

    inductor: PathLike | None = None
    triton: PathLike | None = None
    mega: PathLike | None = None
    extra: Mapping[str, PathLike] = field(default_factory=dict)
    aot: PathLike | None = None

    def __bool__(self) -> bool:
        named = (self.inductor, self.triton, self.mega, self.aot)
        return bool(self.extra) or any(path is not None for path in named)

    def folders(self) -> Iterator[tuple[str, Path]]:
        """The directories, each with the entry-path prefix that it stands for."""
        for label, path in sorted(self.extra.items()):
            if not _LABEL.fullmatch(label):
                raise UsageError(f"{label!r} cannot name an extra section: use A-Z a-z 0-9 . _ -")
            yield f"extra/{label}", directory(path)
        if self.inductor is not None:
            yield "inductor", directory(self.inductor)
        if self.triton is not None:
            yield "triton", directory(self.triton)
        if self.aot is not None:
            yield "aot", directory(self.aot)

    def targets(self) -> Iterator[tuple[str, Path]]:
        """Where a pull puts what: the directories, and Triton's default one in Inductor's.

        Triton's keys hold no device number, so what is found in any device's folder goes to 0.
        """
        yield from self.folders()
        if self.inductor is not None and self.triton is None:
            yield "triton", directory(self.inductor) / "triton" / "0"

    def artifacts(self) -> tuple[Artifact, ...]:
        """What the mega-cache file holds; IntegrityError if it is none, UsageError if not there."""
        if self.mega is None:
            return ()
        path = directory(self.mega)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read the mega-cache file {path}: {error.strerror}") from None
        artifacts = take_apart(data, str(path))
        if not artifacts:
            raise IntegrityError(f"{path} holds no artifact: it was saved before anything compiled")
        return artifacts


def live_folders(live: Live) -> tuple[tuple[str, Path], ...]:
    """The compiler's directories in a live directory that exist."""
    return tuple(
        (prefix, folder)
        for prefix, folder in live.places.folders
        if prefix not in ("megacache", "aot") and folder.is_dir()
    )
