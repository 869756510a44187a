"""Checks of the arguments of Python calls: a wrong type is a UsageError with the name of the argument."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, SupportsIndex

from kubemachinery.errors import UsageError


def job_name(given: object) -> str:
    if not isinstance(given, str):
        raise UsageError(f"job must be the name of a job, not {given!r}")
    return given


def timeout(given: object) -> float | None:
    """A number of seconds; None is no limit."""
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool) or math.isnan(given):
        raise UsageError(f"timeout_seconds must be a number of seconds, not {given!r}")
    return float(given)


def whole_number(given: object, name: str, least: int) -> int:
    # Whole numbers of other libraries, such as NumPy, are no int.
    number = None if isinstance(given, bool) or not isinstance(given, SupportsIndex) else operator.index(given)
    if number is None or number < least:
        raise UsageError(f"{name} must be a whole number of at least {least}, not {given!r}")
    return number


def objects(given: Sequence[object]) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for one in given:
        if not isinstance(one, Mapping):
            raise UsageError(f"an object must be a mapping, as of a manifest, not {one!r}")
        found.append(one)
    return tuple(found)


def environment(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"environment must map names to values, such as {{'LEVEL': 'debug'}}, not {given!r}")
    return given


def time(given: object, name: str) -> str | datetime | None:
    if given is None or isinstance(given, str | datetime):
        return given
    raise UsageError(f"{name} must be a text such as 'monday' or '-30d', or a datetime, not {given!r}")


def text(given: object, name: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{name} must be a text, not {given!r}")
    return given


def words(given: object, name: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence | set | frozenset):
        raise UsageError(f"{name} must be a list of texts, not {given!r}")
    return tuple(text(word, name) for word in given)


def amounts(given: object, name: str) -> list[str]:
    """Amounts by resource, as RESOURCE=QUANTITY."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{name} must map resources to quantities, such as {{'cpu': 4}}, not {given!r}")
    return [f"{resource}={amount}" for resource, amount in given.items()]
