"""Quantities of Kubernetes: `quantity("1Gi")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery import quantity
from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.library.standard import INT_MAX, INT_MIN
from kubemachinery.cel.values import Value, declare
from kubemachinery.quantity import Quantity

declare(Quantity, types.QUANTITY)


def _parse(text: str) -> Quantity:
    try:
        return quantity.parse(text)
    except quantity.QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except quantity.QuantityError:
        return False
    return True


def _is_integer(value: Quantity) -> bool:
    """Whether Kubernetes' type holds it as an integer; it does not try to reduce a fraction."""
    return not value.wide and value.scale >= 0 and INT_MIN <= value.rounded() <= INT_MAX


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise CelError("cannot convert value to integer")
    return value.rounded()


def _as_float(value: Quantity) -> float:
    try:
        return value.unscaled * 10.0**value.scale
    except OverflowError:
        return float("inf") if value.sign > 0 else float("-inf")


def _compare(left: Quantity, right: Quantity) -> int:
    return (left > right) - (left < right)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "quantity(string) -> Quantity": _parse,
    "isQuantity(string) -> bool": _is_quantity,
    "sign(Quantity) -> int": lambda value: value.sign,
    "Quantity.isInteger() -> bool": _is_integer,
    "Quantity.asInteger() -> int": _as_integer,
    "Quantity.asApproximateFloat() -> double": _as_float,
    "Quantity.isGreaterThan(Quantity) -> bool": lambda left, right: left > right,
    "Quantity.isLessThan(Quantity) -> bool": lambda left, right: left < right,
    "Quantity.compareTo(Quantity) -> int": _compare,
    "Quantity.add(Quantity) -> Quantity": lambda left, right: left + right,
    "Quantity.add(int) -> Quantity": lambda left, right: left + Quantity(right),
    "Quantity.sub(Quantity) -> Quantity": lambda left, right: left - right,
    "Quantity.sub(int) -> Quantity": lambda left, right: left - Quantity(right),
}
