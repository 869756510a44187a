"""The scheduler's state in the log at a signal."""

from __future__ import annotations

import asyncio
import signal

from pykueue.controllers.assembly import Manager
from pykueue.observe import state_dump


def dump_on_signal(manager: Manager) -> None:
    """Log the state of the scheduler at every SIGUSR2 from now on, as Kueue's manager does."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, state_dump.log_state, manager.world)
