"""File systems: whether a directory is on a network file system, where the locks of SQLite do not hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"})


def network_filesystem(directory: Path) -> str:
    """The kind of network file system that a directory is on; "" on any other."""
    kind = filesystem(directory, _mounts())
    return kind if kind in _NETWORK else ""


def filesystem(directory: Path, mounts: Iterable[str]) -> str:
    """The kind of file system below a directory, from lines of `/proc/mounts`; "" where it is unknown."""
    best, kind = "", ""
    place = f"{directory.resolve()}/"
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").rstrip("/") + "/"
        if place.startswith(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _mounts() -> Iterable[str]:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
