"""The exact evaluation: a tree walk, with CEL's rule that a determined result takes precedence over an error.

`a && b` is false if either side is false, even if the other side fails; `a || b` likewise with true; `all` and
`exists` are such chains. The compiled program stops at the first error instead; the expression is then evaluated by
this interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kubemachinery.cel import library
from kubemachinery.cel.ast import (
    Call,
    Expr,
    Ident,
    Index,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Select,
    Ternary,
)
from kubemachinery.cel.errors import CelError, CostExceeded, no_such_key, no_such_overload
from kubemachinery.cel.library.lists import sort
from kubemachinery.cel.types import TYPE_NAMES
from kubemachinery.cel.values import (
    NONE,
    Optional,
    StepBudget,
    Value,
    compare,
    conforms,
    equal,
    is_key,
    loop,
    member,
    paid,
    some,
)

Scope = Mapping[str, Value]


# --- What both ways of evaluating share ---------------------------------------------------------------------------


def select(operand: Value, name: str) -> Value:
    """`operand.name`."""
    if isinstance(operand, dict):
        if name not in operand:
            raise no_such_key(name)
        return operand[name]
    if isinstance(operand, Optional):
        return select_optional(operand, name)
    raise no_such_overload("select")


def select_optional(operand: Value, name: str) -> Optional:
    """`operand.?name`."""
    if isinstance(operand, Optional):
        return select_optional(operand.value, name) if operand.present else NONE
    if isinstance(operand, dict):
        return some(operand[name]) if name in operand else NONE
    raise no_such_overload("select")


def has(operand: Value, name: str) -> bool:
    """`has(operand.name)`."""
    if isinstance(operand, Optional):
        return operand.present and has(operand.value, name)
    if isinstance(operand, dict):
        return name in operand
    raise no_such_overload("has")


def index(operand: Value, key: Value) -> Value:
    """`operand[key]`."""
    if isinstance(operand, Optional):
        return index_optional(operand, key)
    if isinstance(operand, list):
        position = _position(key)
        if not 0 <= position < len(operand):
            raise CelError(f"index out of bounds: {position}")
        return operand[position]
    if isinstance(operand, dict):
        if not is_key(key) or key not in operand:
            raise no_such_key(key)
        return operand[key]
    raise no_such_overload("index")


def index_optional(operand: Value, key: Value) -> Optional:
    """`operand[?key]`."""
    if isinstance(operand, Optional):
        return index_optional(operand.value, key) if operand.present else NONE
    if isinstance(operand, list):
        position = _position(key)
        return some(operand[position]) if 0 <= position < len(operand) else NONE
    if isinstance(operand, dict):
        return some(operand[key]) if is_key(key) and key in operand else NONE
    raise no_such_overload("index")


def _position(key: Value) -> int:
    if isinstance(key, bool) or not isinstance(key, int | float) or key != int(key):
        raise CelError(f"invalid list index: {key!r}")
    return int(key)


def dispatch(budget: StepBudget, name: str, overloads: Iterable[library.Overload], args: tuple[Value, ...]) -> Value:
    """Call the first overload that accepts these values; with known types there is only one."""
    for overload in overloads:
        if all(map(conforms, args, overload.params)):
            return paid(budget, overload.function, *args) if overload.grows else overload.function(*args)
    raise no_such_overload(name)


# Methods of an optional that evaluate their argument only if there is no value.
LAZY: Final = frozenset({"or", "orValue"})


def is_present(optional: Value) -> bool:
    if isinstance(optional, Optional):
        return optional.present
    raise no_such_overload("an optional was expected")


def settled(optional: Optional, function: str) -> Value:
    return optional if function == "or" else optional.value


def as_bool(value: Value) -> bool:
    if type(value) is bool:
        return value
    raise no_such_overload("a bool was expected")


def elements(subject: Value) -> Iterable[Value]:
    """The values of a loop with one variable: the items of a list, the keys of a map."""
    if isinstance(subject, list | dict):
        return subject
    raise no_such_overload("a list or a map was expected")


def pairs(subject: Value) -> Iterable[tuple[Value, Value]]:
    """The values of a loop with two variables: indexes and items, or keys and values."""
    if isinstance(subject, list):
        return enumerate(subject)
    if isinstance(subject, dict):
        return subject.items()
    raise no_such_overload("a list or a map was expected")


def exactly_one(answers: Iterable[bool]) -> bool:
    return sum(1 for answer in answers if answer) == 1


def listed(items: Iterable[tuple[Value, bool]]) -> list[Value]:
    """The items of a list literal, of which those marked with `?` may be absent."""
    found = []
    for item, optional in items:
        if not optional:
            found.append(item)
        elif not isinstance(item, Optional):
            raise no_such_overload("an optional was expected")
        elif item.present:
            found.append(item.value)
    return found


def mapped(entries: Iterable[tuple[Value, Value, bool]]) -> dict[Value, Value]:
    """The entries of a map literal."""
    found: dict[Value, Value] = {}
    for key, value, optional in entries:
        if optional:
            if not isinstance(value, Optional):
                raise no_such_overload("an optional was expected")
            if not value.present:
                continue
            value = value.value
        if not is_key(key):
            raise CelError("unsupported key type")
        found[key] = value
    return found


def merged(maps: Iterable[Value]) -> dict[Value, Value]:
    """The one map that `transformMapEntry` makes of many."""
    return mapped((key, value, False) for each in maps for key, value in pairs(each))


def sorted_by(items: Value, keys: list[Value]) -> list[Value]:
    if not isinstance(items, list):
        raise no_such_overload("sortBy")
    sort(keys)  # complains about keys without an order
    order = sorted(range(len(keys)), key=_Sortable.of(keys))
    return [items[at] for at in order]


class _Sortable:
    """A sort key with CEL's order."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __lt__(self, other: _Sortable) -> bool:
        return compare(self.value, other.value) < 0

    @classmethod
    def of(cls, values: list[Value]) -> Callable[[int], _Sortable]:
        return lambda at: cls(values[at])


# --- The interpreter ----------------------------------------------------------------------------------------------


def evaluate(expr: Expr, scope: Scope, budget: StepBudget) -> Value:
    """The value of the expression; raises `CelError`."""
    return _Interpreter(budget).value(expr, scope)


class _Interpreter:
    def __init__(self, budget: StepBudget) -> None:
        self.budget = budget

    def value(self, expr: Expr, scope: Scope) -> Value:
        return _EVALUATE[type(expr)](self, expr, scope)

    def literal(self, expr: Literal, scope: Scope) -> Value:
        return expr.value

    def ident(self, expr: Ident, scope: Scope) -> Value:
        return scope[expr.name] if expr.name in scope else TYPE_NAMES[expr.name]

    def select(self, expr: Select, scope: Scope) -> Value:
        operand = self.value(expr.operand, scope)
        if expr.test:
            return has(operand, expr.json_name)
        return select_optional(operand, expr.json_name) if expr.optional else select(operand, expr.json_name)

    def index(self, expr: Index, scope: Scope) -> Value:
        operand, key = self.value(expr.operand, scope), self.value(expr.index, scope)
        return index_optional(operand, key) if expr.optional else index(operand, key)

    def call(self, expr: Call, scope: Scope) -> Value:
        if expr.function in LAZY and expr.member:
            optional = self.value(expr.args[0], scope)
            return settled(optional, expr.function) if is_present(optional) else self.value(expr.args[1], scope)
        args = tuple(self.value(arg, scope) for arg in expr.args)
        match expr.function:
            case "_==_":
                return equal(self.budget, *args)
            case "_!=_":
                return not equal(self.budget, *args)
            case "@in":
                return member(self.budget, *args)
            case name:
                return dispatch(self.budget, name, expr.overloads, args)

    def logic(self, expr: Logic, scope: Scope) -> bool:
        return self._decide((self._attempt(operand, scope) for operand in expr.operands), expr.operator == "||")

    def _attempt(self, expr: Expr, scope: Scope) -> bool | CelError:
        try:
            return as_bool(self.value(expr, scope))
        except CostExceeded:
            raise
        except CelError as error:
            return error

    @staticmethod
    def _decide(answers: Iterable[bool | CelError], decisive: bool) -> bool:
        """The determining value if there is one; otherwise the first error; otherwise the other value."""
        error: CelError | None = None
        for answer in answers:
            if answer is decisive:
                return decisive
            if isinstance(answer, CelError):
                error = error or answer
        if error is not None:
            raise error
        return not decisive

    def ternary(self, expr: Ternary, scope: Scope) -> Value:
        return self.value(expr.then if as_bool(self.value(expr.condition, scope)) else expr.otherwise, scope)

    def list(self, expr: ListLiteral, scope: Scope) -> Value:
        return listed((self.value(item, scope), at in expr.optional) for at, item in enumerate(expr.items))

    def map(self, expr: MapLiteral, scope: Scope) -> Value:
        return mapped(
            (self.value(key, scope), self.value(value, scope), at in expr.optional)
            for at, (key, value) in enumerate(expr.entries)
        )

    def macro(self, expr: Macro, scope: Scope) -> Value:
        subject = self.value(expr.subject, scope)
        if expr.name in ("optMap", "optFlatMap"):
            if not isinstance(subject, Optional):
                raise no_such_overload(expr.name)
            if not subject.present:
                return NONE
            value = self.value(expr.body, {**scope, expr.variables[0]: subject.value})
            return some(value) if expr.name == "optMap" else value
        scopes = self._scopes(expr, subject, scope)
        match expr.name:
            case "all" | "exists":
                return self._decide((self._attempt(expr.body, inner) for _, inner in scopes), expr.name == "exists")
            case "exists_one":
                return exactly_one([as_bool(self.value(expr.body, inner)) for _, inner in scopes])
            case "filter":
                return [item for item, inner in scopes if as_bool(self.value(expr.body, inner))]
            case "sortBy":
                return sorted_by(subject, [self.value(expr.body, inner) for _, inner in scopes])
            case "transformMap":
                return {item[0]: self.value(expr.body, inner) for item, inner in scopes}
            case "transformMapEntry":
                return merged([self.value(expr.body, inner) for _, inner in scopes])
            case _:  # map, transformList
                return [self.value(expr.body, inner) for _, inner in scopes]

    def _scopes(self, expr: Macro, subject: Value, scope: Scope) -> Iterator[tuple[Value, Scope]]:
        """Each element that the filter accepts, with the scope in which the body is evaluated."""
        two = len(expr.variables) == 2
        for item in loop(self.budget, pairs(subject) if two else elements(subject), expr.cost):
            bound = zip(expr.variables, item if two else (item,), strict=True)
            inner = {**scope, **dict(bound)}
            if expr.filter is None or as_bool(self.value(expr.filter, inner)):
                yield item, inner


_EVALUATE: Final[dict[type[Expr], Callable[..., Value]]] = {
    Literal: _Interpreter.literal,
    Ident: _Interpreter.ident,
    Select: _Interpreter.select,
    Index: _Interpreter.index,
    Call: _Interpreter.call,
    Logic: _Interpreter.logic,
    Ternary: _Interpreter.ternary,
    ListLiteral: _Interpreter.list,
    MapLiteral: _Interpreter.map,
    Macro: _Interpreter.macro,
}
