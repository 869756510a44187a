"""Tests that run on the event loop of asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest
import uvloop

P = ParamSpec("P")


def on_both_loops(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the event loop of asyncio and on uvloop, which is the one of programs."""

    @pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def run(loop: Callable[[], asyncio.AbstractEventLoop], *args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(test(*args, **kwargs))

    parameters = inspect.signature(test).parameters.values()
    loop_parameter = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop_parameter, *parameters])  # type: ignore[attr-defined]
    run.pytestmark += getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
