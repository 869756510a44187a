"""`pykueue manager` that leads the API server to no webhooks, and records which part of it uses the processor.

    python _sampled_manager.py FILE ARGUMENTS...

FILE gets one line for each sample when the manager ends: the time, and the part of the program that ran. It imports
nothing else of the bench, and works with the source of older commits in PYTHONPATH.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

from pykueue import cli
from pykueue.webhooks import webhook_server

SAMPLE_SECONDS = 0.001  # the kernel may take more
_PACKAGES = ("kubemachinery", "pykueue", "kubeserver")
# Modules of the standard library that are work of their own, and not a detail of the function that calls them.
_OWN_WORK = ("ssl", "asyncio")

samples: list[tuple[float, str]] = []


def part_of(frame: FrameType | None) -> str:
    """The package that runs: the innermost of this project, of a distribution, or of the event loop."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        for package in _PACKAGES:
            if package in path.parts:
                return ".".join(path.with_suffix("").parts[path.parts.index(package) :][:3])
        if "site-packages" in path.parts:
            return path.parts[path.parts.index("site-packages") + 1]
        for name in _OWN_WORK:
            if name in (path.stem, path.parent.name):
                return name
        frame = frame.f_back
    return "others"


def sample(_number: int, frame: FrameType | None) -> None:
    samples.append((time.clock_gettime(time.CLOCK_MONOTONIC), part_of(frame)))


async def nowhere(served: webhook_server.WebhookServer) -> None:
    """No webhook is called."""


if __name__ == "__main__":
    webhook_server.WebhookServer.register = nowhere  # type: ignore[assignment, method-assign]
    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        cli.main(["manager", *sys.argv[2:]])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(sys.argv[1]).write_text("".join(f"{at} {part}\n" for at, part in samples))
