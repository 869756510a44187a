"""How a command that serves writes its log: `@log_options` gives it the same options as the others have."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class LoggingOptions:
    """What was asked for."""

    form: str
    level: str

    def start(self, role: Callable[[], str] = lambda: "") -> None:
        """Write the log to stderr from now on; `role` says which part this replica plays."""
        from pykueue.observe import logs

        form = logs.LogFormat(self.form or ("console" if sys.stderr.isatty() else "json"))
        logs.configure(sys.stderr, form=form, level=_LEVELS[self.level], role=role)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options, and hands what they say to the command as `told`."""

    @click.option(
        "--log-format",
        type=click.Choice(["json", "console"]),
        default=None,
        help="One line of JSON each, or lines for people. By default for people on a terminal, JSON elsewhere.",
    )
    @click.option(
        "--log-level", type=click.Choice(list(_LEVELS)), default=None, help="How much to log; warning by default."
    )
    @click.option("-v", "--verbose", is_flag=True, help="Log what happens; the same as --log-level info.")
    @functools.wraps(command)
    def asked(*arguments: Any, log_format: str | None, log_level: str | None, verbose: bool, **others: Any) -> None:
        level = log_level or ("info" if verbose else "warning")
        command(*arguments, told=LoggingOptions(log_format or "", level), **others)

    return asked
