"""The shapes of an expression. The checker writes into each node its type, and into each call what it calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubemachinery.cel.types import DYN, CelType

if TYPE_CHECKING:
    from kubemachinery.cel.library import Overload


@dataclass(eq=False, kw_only=True)
class Expr:
    at: int
    type: CelType = DYN


@dataclass(eq=False)
class Literal(Expr):
    value: object


@dataclass(eq=False)
class Ident(Expr):
    name: str


@dataclass(eq=False)
class Select(Expr):
    """`operand.field`, `operand.?field`; with `test`, `has(operand.field)`."""

    operand: Expr
    field: str
    optional: bool = False
    test: bool = False
    json_name: str = ""


@dataclass(eq=False)
class Index(Expr):
    """`operand[index]`, `operand[?index]`."""

    operand: Expr
    index: Expr
    optional: bool = False


@dataclass(eq=False)
class Call(Expr):
    """A call of a function, a method (the receiver is the first argument) or an operator (a name such as `_+_`)."""

    function: str
    args: list[Expr]
    member: bool = False
    overloads: list[Overload] = field(default_factory=list)


@dataclass(eq=False)
class Logic(Expr):
    """A chain of `&&` or of `||`."""

    operator: str
    operands: list[Expr]


@dataclass(eq=False)
class Ternary(Expr):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(eq=False)
class ListLiteral(Expr):
    items: list[Expr]
    optional: frozenset[int] = frozenset()


@dataclass(eq=False)
class MapLiteral(Expr):
    entries: list[tuple[Expr, Expr]]
    optional: frozenset[int] = frozenset()


@dataclass(eq=False)
class Macro(Expr):
    """A comprehension: `subject.name(variable, body)`, with a second variable, filter or value where it has one.

    `optMap` and `optFlatMap` are loops over at most one value.
    """

    name: str
    subject: Expr
    variables: tuple[str, ...]
    body: Expr
    filter: Expr | None = None
    cost: int = 1


def children(expr: Expr) -> list[Expr]:
    """The expressions directly inside."""
    match expr:
        case Select(operand=operand):
            return [operand]
        case Index(operand=operand, index=index):
            return [operand, index]
        case Call(args=args):
            return args
        case Logic(operands=operands):
            return operands
        case Ternary(condition=condition, then=then, otherwise=otherwise):
            return [condition, then, otherwise]
        case ListLiteral(items=items):
            return items
        case MapLiteral(entries=entries):
            return [part for entry in entries for part in entry]
        case Macro(subject=subject, body=body, filter=condition):
            return [subject, body, *([condition] if condition is not None else [])]
        case _:
            return []


def walk(expr: Expr) -> list[Expr]:
    """The expression and all its subexpressions."""
    found = [expr]
    for each in found:
        found.extend(children(each))
    return found
