"""Progress lines on stderr for operations that take long."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

# Operations that take longer than this report progress: early on a terminal, later in a log.
_PATIENCE_SECONDS: Final = 2.0
_PATIENCE_OF_LOGS_SECONDS: Final = 30.0
# If this environment variable is set, no operation reports progress: for output that is compared or mailed.
_NO_PROGRESS: Final = "PYKUEUE_NO_PROGRESS"
_YEAR_SECONDS: Final = 365 * 86_400.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that sets the progress text, printed to stderr once the operation takes long. On a terminal it
    is one line, removed at the end; elsewhere one line for each text."""
    doing, is_late = "", False
    speaking = threading.Lock()  # a thread, because the operation may block the event loop

    def late() -> None:
        nonlocal is_late
        with speaking:
            is_late = True
            _show(doing)

    def show(now_doing: str) -> None:
        nonlocal doing
        with speaking:
            is_new, doing = now_doing != doing, now_doing
            if is_late and is_new:
                _show(doing)

    timer = threading.Timer(_patience_seconds(), late)
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        if is_late:
            _wipe()


@contextmanager
def awaiting(what: str) -> Iterator[None]:
    """Report progress of one awaited operation, by a timer of the event loop."""
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
    """Print a line on stderr that remains when the progress line is removed."""
    _wipe()
    to_stderr(text)


def cleaned(text: str) -> str:
    """The text on one line, without control sequences for the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _patience_seconds() -> float:
    if os.environ.get(_NO_PROGRESS):
        return _YEAR_SECONDS
    return _PATIENCE_SECONDS if sys.stderr.isatty() else _PATIENCE_OF_LOGS_SECONDS


def _show(doing: str) -> None:
    if doing:
        is_terminal = sys.stderr.isatty()
        to_stderr(f"\r\x1b[K{doing} ..." if is_terminal else doing, nl=not is_terminal)


def _wipe() -> None:
    if sys.stderr.isatty():
        to_stderr("\r\x1b[K", nl=False)


def to_stderr(text: str, *, nl: bool = True) -> None:
    """Print to stderr. If its reader is gone (`2>&1 | head`), this text and all later ones are discarded, and the
    command or the server continues: nothing depends on them."""
    try:
        click.echo(text, err=True, nl=nl)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
