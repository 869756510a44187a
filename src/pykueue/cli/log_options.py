"""Logging options of long-running commands: the decorator `@log_options`."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LoggingOptions(msgspec.Struct, frozen=True):
    """The chosen format and level."""

    form: str
    level: str

    def start(self, role: Callable[[], str] = lambda: "") -> None:
        """Write the log to stderr from now on; `role` returns the role of this replica."""
        from pykueue.observe import logs

        form = logs.LogFormat(self.form or ("console" if sys.stderr.isatty() else "json"))
        logs.configure(sys.stderr, form=form, level=_LEVELS[self.level], role=role)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command receives them as `logging_options`."""

    @click.option(
        "--log-format",
        type=click.Choice(["json", "console"]),
        default=None,
        help="console: text; json: one JSON object per line (default: console on a terminal, else json).",
    )
    @click.option(
        "--log-level", type=click.Choice(list(_LEVELS)), default=None, help="The log level (default: warning)."
    )
    @click.option("-v", "--verbose", is_flag=True, help="The same as --log-level info.")
    @functools.wraps(command)
    def asked(*arguments: Any, log_format: str | None, log_level: str | None, verbose: bool, **others: Any) -> None:
        level = log_level or ("info" if verbose else "warning")
        command(*arguments, logging_options=LoggingOptions(log_format or "", level), **others)

    return asked
