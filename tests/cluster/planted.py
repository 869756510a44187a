"""`pykueue` with a bug in it: `python planted.py BUG manager …`. Tests of faults have to notice each of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from kubemachinery.client.leader_election import LeaderElector
from pykueue import cli
from pykueue.controllers import reservation_writer


def _a_lost_answer_frees() -> None:
    """What was not answered is taken for refused, and its quota is given to the next."""
    reservation_writer._may_have_been_applied = lambda error: False


def _a_lost_lease_is_not_noticed() -> None:
    """A former leader continues although another manager leads."""

    async def renew_nothing(self: LeaderElector, *arguments: Any, **more: Any) -> None:
        await asyncio.Event().wait()

    LeaderElector.may_write = lambda self: True  # type: ignore[method-assign]
    LeaderElector._renew = renew_nothing  # type: ignore[method-assign]


BUGS: Final[dict[str, Callable[[], None]]] = {
    "a lost answer frees": _a_lost_answer_frees,
    "a lost lease is not noticed": _a_lost_lease_is_not_noticed,
}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    cli.main()
