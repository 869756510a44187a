"""Regular expressions, in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery.cel import re2
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.values import Value


def _compiled(pattern: str) -> re2.Pattern:
    try:
        return re2.compile(pattern)
    except re2.PatternError as error:
        raise CelError(f"{pattern!r} is not a regular expression: {error}") from None


def _bounded(function: Callable[..., Value]) -> Callable[..., Value]:
    def call(text: str, pattern: str, *args: int) -> Value:
        try:
            return function(text, _compiled(pattern), *args)
        except re2.TooCostly as error:
            raise CelError(str(error)) from None

    return call


@_bounded
def _matches(text: str, pattern: re2.Pattern) -> bool:
    return pattern.search(text)


@_bounded
def _find(text: str, pattern: re2.Pattern) -> str:
    span = pattern.find(text)
    return "" if span is None else text[span[0] : span[1]]


@_bounded
def _find_all(text: str, pattern: re2.Pattern, limit: int = -1) -> list[str]:
    return [text[begin:end] for begin, end in pattern.find_all(text, limit)]


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "matches(string, string) -> bool": _matches,
    "string.matches(string) -> bool": _matches,
    "string.find(string) -> string": _find,
    "string.findAll(string) -> list<string>": _find_all,
    "string.findAll(string, int) -> list<string>": _find_all,
}
