"""Where `pykueue up` keeps everything on this machine unless it is told otherwise, and where others look for it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def data() -> Path:
    return Path("~/.pykueue").expanduser()


def kubeconfig() -> Path:
    """The way to the server that was started last."""
    try:
        return Path(_last().read_text())
    except OSError:
        return data() / "kubeconfig"


def remember(kubeconfig: Path) -> None:
    """Leave word of a server that has just started. Where the home cannot be written, nobody looks there either."""
    with contextlib.suppress(OSError):
        data().mkdir(mode=0o700, exist_ok=True)
        _last().write_text(str(kubeconfig.absolute()))


def _last() -> Path:
    return data() / "last-kubeconfig"
