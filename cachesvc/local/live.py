"""The live directory: where a process's compiler reads and writes.

A directory that the user set is used, seeded without overwriting, never deleted. Otherwise there
is one for each environment under TCCACHE_HOME, else XDG_CACHE_HOME/tccache, else ~/.cache/tccache,
else a private temporary folder: the first that can be written and holds programs that may run.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cachesvc.core.errors import TccacheError
from cachesvc.local.places import RECORDS, Places, under

INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
TRITON = "TRITON_CACHE_DIR"
HOME = "TCCACHE_HOME"

_NETWORK = re.compile(r"^(nfs\d?|lustre|ceph|cifs|smb\w*|gpfs|beegfs|glusterfs|9p|fuse\..*|afs)$")


@dataclass(frozen=True, slots=True)
class Live:
    """A live directory: its places, what chose it, and what is to be said about it."""

    places: Places
    chosen_by: str
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        return self.places.root

    def folder(self, prefix: str) -> Path:
        """The directory of a section."""
        found = dict(self.places.folders).get(prefix)
        if found is None:
            raise TccacheError(f"the live directory {self.root} has no place for {prefix}")
        return found


def live_directory(environment: str, environ: Mapping[str, str]) -> Live:
    """The live directory for an environment (its digest) under these environment variables.

    Creates nothing of the user's; of its own candidates, the one chosen. Raises TccacheError if
    no candidate can be used.
    """
    if environ.get(INDUCTOR):
        live = _users(Path(environ[INDUCTOR]).absolute(), environ)
    else:
        root, chosen_by, passed_over = _own_root(environment, environ)
        live = Live(_with_triton(under(root), environ), chosen_by, passed_over)
    return Live(live.places, live.chosen_by, (*live.notes, *_warnings(live.root)))


def _users(root: Path, environ: Mapping[str, str]) -> Live:
    own = root / RECORDS
    # Device 0's folder is where Triton's files lie by default; the keys hold no device number.
    triton = Path(environ[TRITON]) if environ.get(TRITON) else root / "triton" / "0"
    folders = (
        ("inductor", root),
        ("triton", triton.absolute()),
        *((name, own / name) for name in ("megacache", "aot", "extra")),
    )
    return Live(Places(root, folders), INDUCTOR)


def _with_triton(places: Places, environ: Mapping[str, str]) -> Places:
    if not environ.get(TRITON):
        return places
    triton = Path(environ[TRITON]).absolute()
    folders = tuple(
        (name, triton if name == "triton" else folder) for name, folder in places.folders
    )
    return Places(places.root, folders)


def _own_root(environment: str, environ: Mapping[str, str]) -> tuple[Path, str, tuple[str, ...]]:
    passed_over: list[str] = []
    for home, chosen_by in _homes(environ):
        root = home / "live" / environment[:16]
        reason = _unusable(root)
        if reason is None:
            return root, chosen_by, tuple(passed_over)
        passed_over.append(f"{home} was passed over as live directory: {reason}")
    raise TccacheError(
        f"no usable live directory: {'; '.join(passed_over)}: set {HOME} to a directory on a local"
        " disk that can be written and run from"
    )


def home_directories(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Candidates for this library's own directory, best first, each with what names it."""
    if environ.get(HOME):
        yield Path(environ[HOME]).absolute(), HOME
    if environ.get("XDG_CACHE_HOME"):
        yield Path(environ["XDG_CACHE_HOME"]).absolute() / "tccache", "XDG_CACHE_HOME"
    if environ.get("HOME"):
        yield Path(environ["HOME"]).absolute() / ".cache" / "tccache", "HOME"


def _homes(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    yield from home_directories(environ)
    yield _temporary_home(), "the temporary directory"


def _temporary_home() -> Path:
    """One folder for each user in the temporary directory; a fresh one if its name is taken."""
    home = Path(tempfile.gettempdir()) / f"tccache-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(home)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            os.chmod(home, 0o700)
            return home
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="tccache-"))


def _unusable(root: Path) -> str | None:
    """Why a directory cannot be a live directory, or None; it exists afterwards."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        if os.statvfs(root).f_flag & os.ST_NOEXEC:
            return (
                "its file system is mounted noexec, and compiled libraries must be loaded from it"
            )
    except OSError as error:
        return error.strerror or str(error)
    return None


def _warnings(root: Path) -> Iterator[str]:
    kind = file_system(root, _mounts())
    if kind and _NETWORK.match(kind):
        yield (
            f"the live directory {root} is on a network file system ({kind}): compilers race and"
            f" lose files there; set {HOME} to a local disk"
        )


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def file_system(path: Path, mountinfo: str) -> str | None:
    """The type of the file system that holds `path`, from the text of /proc/self/mountinfo."""
    best, kind = "", None
    target = f"{path.absolute()}/"
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4] if fields.count(" ") >= 4 else ""
        point = point.replace("\\040", " ")
        if point and target.startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind
