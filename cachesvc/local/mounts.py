"""The file system that holds a path: its type, and whether programs may run from it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cachesvc.local.whole import existing

_LOCAL_FUSE = "fuse-overlayfs|gocryptfs|encfs|mergerfs|squashfuse|snapfuse"
_NETWORK = re.compile(
    r"nfs\d?|lustre|ceph|cifs|smb\w*|gpfs|beegfs|glusterfs|wekafs|pvfs2|9p|afs"
    rf"|fuse\.(?!({_LOCAL_FUSE})$).*"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path) -> str | None:
    """The type of the network file system that a path lies on, links followed; None on others."""
    kind = file_system_of(path)
    return kind if kind and _NETWORK.fullmatch(kind) else None


def file_system_of(path: Path) -> str | None:
    """The type of the file system that a path lies on, links followed; None if it is not known."""
    return file_system(Path(os.path.realpath(path)), _mountinfo())


def is_noexec(path: Path) -> bool:
    """Whether nothing may be run from where a path is, or would be."""
    try:
        return bool(os.statvfs(existing(path)).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def file_system(path: Path, mountinfo: str) -> str | None:
    """The type of the file system that holds an absolute path, from /proc/self/mountinfo.

    Of two file systems mounted on one point the later one counts: it hides the other.
    """
    best, kind = "", None
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = _mount_point(fields)
        if point and f"{path}/".startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _mount_point(fields: str) -> str:
    """The fifth field; the kernel writes spaces and the like as octal numbers."""
    parts = fields.split(" ")
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), parts[4]) if len(parts) > 4 else ""


def _mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""
