"""Errors of CEL expressions.

CompileError          a syntax or type error, with its position; a value
CelError              a runtime error that CEL defines; a value
└── CostExceeded      the cost budget is exhausted
"""

from __future__ import annotations

import msgspec


class CompileError(msgspec.Struct, frozen=True):
    """A syntax or type error of an expression, at an offset in characters."""

    message: str
    at: int
    text: str

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    @property
    def column(self) -> int:
        return self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


class ExpressionError(Exception):
    """Raised inside lexer, parser and checker; `compile` turns it into a `CompileError`."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class CelError(Exception):
    """An evaluation that has no value: a missing key, an overflow, no overload for these values."""


class CostExceeded(CelError):
    """The evaluation took more steps than allowed."""


def no_such_key(key: object) -> CelError:
    return CelError(f"no such key: {key}")


def no_such_overload(function: str) -> CelError:
    return CelError(f"no such overload: {function}")
