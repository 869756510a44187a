"""What a process does for itself when it is a server."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal

from pykueue.controllers.assembly import Manager
from pykueue.observe import state_dump


def calm_collector() -> None:
    """Tell Python's garbage collector that this process is a server; call it once, when all is set up.

    Requests make many short-lived trees and no cycles. Left alone, the collector looks for cycles every few hundred
    objects and walks everything that is kept every now and then: a quarter of the time of a write, measured.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def dump_on_signal(manager: Manager) -> None:
    """Log the state of the scheduler at every SIGUSR2 from now on, as Kueue's manager does."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, state_dump.log_state, manager.world)


def allow_many_files() -> None:
    """Every connection is a file to the system, and the usual limit of a shell is soon reached by watches."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536, hard))
