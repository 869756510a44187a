"""What takes long says what it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

# What takes longer than this shows that it goes on: at once to a person, and later in a log.
_PATIENCE_SECONDS: Final = 2.0
_PATIENCE_OF_LOGS_SECONDS: Final = 30.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on stderr what is being done, once it has taken a while. On a terminal it is one line, which is gone at the
    end; elsewhere a line for each new thing."""
    is_terminal = sys.stderr.isatty()
    doing, is_late = "", False
    speaking = threading.Lock()  # the clock is a thread of its own

    def show() -> None:
        if doing:
            click.echo(f"\r\x1b[K{doing} ..." if is_terminal else doing, err=True, nl=not is_terminal)

    def late() -> None:
        nonlocal is_late
        with speaking:
            is_late = True
            show()

    def told(now_doing: str) -> None:
        nonlocal doing
        with speaking:
            is_new, doing = now_doing != doing, now_doing
            if is_late and is_new:
                show()

    timer = threading.Timer(_PATIENCE_SECONDS if is_terminal else _PATIENCE_OF_LOGS_SECONDS, late)
    timer.daemon = True
    timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        if is_late and is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
