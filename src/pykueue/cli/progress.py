"""What takes long says what it does."""

from __future__ import annotations

import asyncio
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
    doing, is_late = "", False
    speaking = threading.Lock()  # the clock is a thread of its own

    def late() -> None:
        nonlocal is_late
        with speaking:
            is_late = True
            _show(doing)

    def told(now_doing: str) -> None:
        nonlocal doing
        with speaking:
            is_new, doing = now_doing != doing, now_doing
            if is_late and is_new:
                _show(doing)

    timer = threading.Timer(_patience_seconds(), late)
    timer.daemon = True
    timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        if is_late:
            _wipe()


@contextmanager
def awaiting(what: str) -> Iterator[None]:
    """The same for one thing that is awaited: the loop itself notices that it takes long."""
    is_late = False

    def late() -> None:
        nonlocal is_late
        is_late = True
        _show(what)

    timer = asyncio.get_running_loop().call_later(_patience_seconds(), late)
    try:
        yield
    finally:
        timer.cancel()
        if is_late:
            _wipe()


def aside(text: str) -> None:
    """Say something on stderr that stays, whatever is being done."""
    _wipe()
    click.echo(text, err=True)


def _patience_seconds() -> float:
    return _PATIENCE_SECONDS if sys.stderr.isatty() else _PATIENCE_OF_LOGS_SECONDS


def _show(doing: str) -> None:
    if doing:
        is_terminal = sys.stderr.isatty()
        click.echo(f"\r\x1b[K{doing} ..." if is_terminal else doing, err=True, nl=not is_terminal)


def _wipe() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
