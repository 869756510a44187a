"""Signals that end a program in order."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal
from kubemachinery import process
signal.signal(signal.SIGHUP, signal.{disposition})
async def main():
    stop = process.stop_event()
    print("ready", signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True)
    await stop.wait()
    print("stopped in order", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("disposition", "numbers"),
    [
        ("SIG_DFL", [signal.SIGHUP]),
        ("SIG_DFL", [signal.SIGINT]),
        ("SIG_DFL", [signal.SIGTERM]),
        ("SIG_IGN", [signal.SIGHUP, signal.SIGTERM]),
    ],
)
def test_signals_that_end_a_program_in_order(disposition: str, numbers: list[signal.Signals]) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(disposition=disposition)], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == f"ready {disposition == 'SIG_IGN'}\n"
    for number in numbers:
        started.send_signal(number)
    assert started.communicate()[0] == "stopped in order\n"
    assert started.returncode == 0
