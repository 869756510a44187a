"""Runtime values, their equality and order.

Most CEL values are plain Python values: bool, int, float, str, bytes, None, list, dict. The other types are here.
Python's equality differs from CEL's: in CEL a bool is not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError, CostExceeded, no_such_overload
from kubemachinery.cel.types import CelType

Value = Any


class UInt(int):
    """An unsigned 64-bit integer; equal to the int of the same number, but not of its type."""

    __slots__ = ()


@dataclass(frozen=True, order=True, slots=True)
class Timestamp:
    """A moment, in nanoseconds since the epoch, and the zone in which it was written; that is only for writing it
    back.
    """

    nanoseconds: int
    zone_minutes: int = field(default=0, compare=False)


class Duration(msgspec.Struct, frozen=True, order=True):
    nanoseconds: int


class Optional(msgspec.Struct, frozen=True):
    """A value that may be absent; `present` distinguishes null from absent."""

    value: Value = None
    present: bool = False


NONE: Final = Optional()


def some(value: Value) -> Optional:
    return Optional(value, True)


class UnorderedList(list[Value]):
    """A list from a schema without significant order: a set, or a map by keys."""

    __slots__ = ("shape",)

    def __init__(self, items: Iterable[Value], shape: types.CelListShape) -> None:
        super().__init__(items)
        self.shape = shape

    def key(self, item: Value) -> Value:
        if not self.shape.keys:
            return item
        return [item.get(name) for name in self.shape.keys] if isinstance(item, dict) else item


# --- Steps --------------------------------------------------------------------------------------------------------


class StepBudget:
    """The remaining cost budget, shared by several evaluations."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise CostExceeded("the expression takes too many steps")


def loop(budget: StepBudget, items: Iterable[Value], cost: int) -> Iterator[Value]:
    """The items, each paid for before it is looked at."""
    for item in items:
        budget.left -= cost
        if budget.left < 0:
            raise CostExceeded("the expression takes too many steps")
        yield item


def paid(budget: StepBudget, function: Callable[..., Value], *args: Value) -> Value:
    """Call a function with a cost that grows with its arguments: ten characters or one item are a step."""
    steps = 1
    for arg in args:
        if isinstance(arg, str | bytes):
            steps += len(arg) // 10
        elif isinstance(arg, list | dict):
            steps += len(arg)
    budget.spend(steps)
    return function(*args)


# --- Types of values ----------------------------------------------------------------------------------------------

_TYPES: dict[type, CelType] = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
    list: types.TYPE_NAMES["list"],
    UnorderedList: types.TYPE_NAMES["list"],
    dict: types.TYPE_NAMES["map"],
    Timestamp: types.TIMESTAMP,
    Duration: types.DURATION,
    Optional: types.TYPE_NAMES["optional_type"],
    CelType: types.TYPE,
}


def declare(python_type: type, type_: CelType) -> None:
    """Declare the CEL type of the values of a Python type."""
    _TYPES[python_type] = type_


def type_of(value: Value) -> CelType:
    return _TYPES[type(value)]


def conforms(value: Value, expected: CelType) -> bool:
    """Whether a value may be passed to a parameter; elements of lists and maps are not checked."""
    if expected == types.DYN or isinstance(expected, types.TypeParam):
        return True
    if isinstance(expected, types.ObjectType):
        return isinstance(value, dict)
    return _TYPES[type(value)].name == expected.name


# --- Equality and order -------------------------------------------------------------------------------------------

_PLAIN: Final = frozenset({str, bytes, type(None), bool})


def equal(budget: StepBudget, left: Value, right: Value) -> bool:
    """CEL's equality: numbers by value across types, true is not 1, lists and maps by their elements."""
    left_type, right_type = type(left), type(right)
    if left_type in _PLAIN or right_type in _PLAIN:
        return left_type is right_type and bool(left == right)
    if isinstance(left, list):
        return isinstance(right, list) and _lists_equal(budget, left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _maps_equal(budget, left, right)
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present is right.present and equal(budget, left.value, right.value)
    return bool(left == right)


def _lists_equal(budget: StepBudget, left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    budget.spend(len(left))
    if isinstance(left, UnorderedList):
        return _unordered_equal(budget, left, right)
    return all(equal(budget, one, other) for one, other in zip(left, right, strict=True))


def _unordered_equal(budget: StepBudget, left: UnorderedList, right: list[Value]) -> bool:
    others = {identity(left.key(item)): item for item in right}
    missing = object()
    return all(
        (other := others.get(identity(left.key(item)), missing)) is not missing and equal(budget, item, other)
        for item in left
    )


def _maps_equal(budget: StepBudget, left: dict[Value, Value], right: dict[Value, Value]) -> bool:
    if len(left) != len(right):
        return False
    budget.spend(len(left))
    return all(key in right and equal(budget, value, right[key]) for key, value in left.items())


def identity(value: Value) -> object:
    """Something hashable, the same for values that `equal` calls equal."""
    if isinstance(value, list):
        return (list, tuple(identity(item) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, identity(item)) for key, item in value.items()))
    return (type(value) is bool, value)


def member(budget: StepBudget, item: Value, items: Value) -> bool:
    """`item in items`."""
    if isinstance(items, list):
        budget.spend(len(items))
        return any(equal(budget, item, other) for other in items)
    if isinstance(items, dict):
        return is_key(item) and item in items
    raise no_such_overload("@in")


def is_key(value: Value) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and value.is_integer())


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1 for values that have an order."""
    if is_numeric(left) and is_numeric(right):
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
    elif type(left) is not type(right) or isinstance(left, list | dict | Optional | CelType | None):
        raise no_such_overload("compare")
    return int(left > right) - int(left < right)


def is_numeric(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- Values that come from JSON -----------------------------------------------------------------------------------

Lift = Callable[[Value], Value]
_LIFTS: dict[CelType, Lift] = {types.DOUBLE: lambda value: float(value) if type(value) is int else value}


def declare_lift(type_: CelType, lift: Lift) -> None:
    """The conversion of a JSON value to a type that JSON does not have."""
    _LIFTS[type_] = lift


def lifter(type_: CelType) -> Lift | None:
    """Turns a JSON value into a value of its declared type; None where it is one already.

    JSON writes the double 1.0 as 1, and timestamps as strings; expressions must not notice.
    """
    lift = _compound_lifter(type_) if type_.params or isinstance(type_, types.ObjectType) else _LIFTS.get(type_)
    if lift is None:
        return None
    return lambda value: None if value is None else lift(value)


def _compound_lifter(type_: CelType) -> Lift | None:
    if isinstance(type_, types.ObjectType):
        fields = {each.json_name: lift for each in type_.fields.values() if (lift := lifter(each.type))}
        if not fields:
            return None
        return lambda value: {name: fields[name](item) if name in fields else item for name, item in value.items()}
    inner = lifter(type_.params[-1])
    if type_.name == "list":
        shape = type_.shape
        if shape is not None:
            return lambda value: UnorderedList(map(inner, value) if inner else value, shape)
        return (lambda value: [inner(item) for item in value]) if inner else None
    if type_.name == "map" and inner:
        return lambda value: {key: inner(item) for key, item in value.items()}
    return None
