"""How the log reads: JSON lines for machines, short lines for people.

    logs.configure(stream, form=logs.LogFormat.JSON, role=lambda: "leader")

A record's `extra` becomes fields of the JSON line, so that `log.info("admitted", extra={"workload": key})` can be
searched by Workload. The role of the replica is on every line: of two managers one leads, and a log must say which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

import msgspec


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


# What every record has, whoever writes it; everything else came with `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the writer of a record wanted to say beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class JsonLines(logging.Formatter):
    """One JSON object a line."""

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
    """The time, the message, what belongs to it; the level only when something is wrong."""

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
    """Send everything that this program logs to a stream. Replaces what was configured before."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(role) if form is LogFormat.JSON else ConsoleLines())
    root = logging.getLogger("pykueue")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
