"""Where `pykueue up` keeps everything on this machine unless it is told otherwise, and where others look for it."""

from __future__ import annotations

from pathlib import Path


def data() -> Path:
    return Path("~/.pykueue").expanduser()


def kubeconfig() -> Path:
    """The way to the server that was started last."""
    return data() / "kubeconfig"
