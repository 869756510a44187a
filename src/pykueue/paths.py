"""The default paths of `pykueue up` on this machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def data() -> Path:
    return Path("~/.pykueue").expanduser()


def kubeconfig() -> Path:
    """The kubeconfig of the last server started by `pykueue up`."""
    try:
        return Path(_last().read_text() or data() / "kubeconfig")
    except OSError:
        return data() / "kubeconfig"


def remember(kubeconfig: Path) -> None:
    """Record the kubeconfig of a server that has started. A home directory that is not writable is ignored."""
    with contextlib.suppress(OSError):
        data().mkdir(mode=0o700, exist_ok=True)
        # Atomically: commands read it at any time.
        draft = _last().with_name(f".{_last().name}.{os.getpid()}")
        draft.write_text(str(kubeconfig.absolute()))
        draft.replace(_last())


def _last() -> Path:
    return data() / "last-kubeconfig"
