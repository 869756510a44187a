"""Log formats: JSON lines, or short lines for a terminal.

    logs.configure(stream, form=logs.LogFormat.JSON, role=lambda: "leader")

The `extra` of a record becomes fields of the JSON line, so that `log.info("admitted", extra={"workload": key})` can be
searched by Workload. Every JSON line has the role of the replica, because only one of several managers leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

import msgspec


class LogFormat(StrEnum):
    """The values of `--log-format`."""

    JSON = "json"
    CONSOLE = "console"


# The import packages of this program; other libraries keep their own handlers.
_PACKAGES: Final = ("kubemachinery", "kubeserver", "pykueue")
# The attributes of every record; all others come from `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the structured fields of a record (its `extra`)."""
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, role: Callable[[], str]) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            "replica-role": self._role(),
            **fields(record),
        }
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class ConsoleLines(logging.Formatter):
    """Time, message and fields; the level only from WARNING on."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        more = "".join(f" {name}={value}" for name, value in fields(record).items())
        text = f"{_time(record)[11:19]} {level}{record.getMessage()}{more}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure(
    stream: TextIO,
    *,
    form: LogFormat = LogFormat.CONSOLE,
    level: int = logging.INFO,
    role: Callable[[], str] = lambda: "",
) -> None:
    """Send the log of this program to a stream. Replaces an earlier configuration."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(role) if form is LogFormat.JSON else ConsoleLines())
    for package in _PACKAGES:
        root = logging.getLogger(package)
        root.handlers[:] = [handler]
        root.setLevel(level)
        root.propagate = False


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
