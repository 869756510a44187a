"""The type checker: gives every expression its type and every call its overloads; an error has its position."""

from __future__ import annotations

from collections.abc import Mapping

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
    walk,
)
from kubemachinery.cel.errors import CelError, ExpressionError
from kubemachinery.cel.lexer import RESERVED
from kubemachinery.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TYPE,
    TYPE_NAMES,
    Bindings,
    CelType,
    ObjectType,
    assignable,
    join,
    list_of,
    map_of,
    optional_of,
    resolve,
)
from kubemachinery.cel.values import type_of


def check(expr: Expr, variables: Mapping[str, CelType]) -> Expr:
    """Type the expression in place; return it, because a dotted name may be replaced by one identifier.

    Raises `ExpressionError` at the first error.
    """
    return _Checker(dict(variables)).typed(expr)


def _shown(types: list[CelType]) -> str:
    return f"({', '.join(map(str, types))})"


class _Checker:
    def __init__(self, scope: dict[str, CelType]) -> None:
        self.scope = scope

    def typed(self, expr: Expr) -> Expr:
        match expr:
            case Literal(value=value):
                expr.type = type_of(value)
            case Ident():
                expr.type = self._ident(expr)
            case Select():
                return self._select(expr)
            case Index():
                expr.operand = self.typed(expr.operand)
                expr.index = self.typed(expr.index)
                expr.type = self._index(expr)
            case Call():
                self._call(expr)
            case Logic():
                expr.operands = [self._condition(operand) for operand in expr.operands]
                expr.type = BOOL
            case Ternary():
                self._ternary(expr)
            case ListLiteral():
                self._list(expr)
            case MapLiteral():
                self._map(expr)
            case Macro():
                self._macro(expr)
            case _:
                raise AssertionError(expr)
        return expr

    def _condition(self, expr: Expr) -> Expr:
        expr = self.typed(expr)
        if not assignable(expr.type, BOOL, {}):
            raise ExpressionError(f"expected a bool, found {expr.type}", expr.at)
        return expr

    # --- Names and fields -----------------------------------------------------------------------------------------

    def _ident(self, expr: Ident) -> CelType:
        name = expr.name.removeprefix(".")
        if name in self.scope:
            expr.name = name
            return self.scope[name]
        if name in TYPE_NAMES:
            expr.name = name
            return TYPE
        raise ExpressionError(f"undeclared reference to {name!r}", expr.at)

    def _dotted(self, expr: Expr) -> str | None:
        """`a.b.c` as one name, unless it begins with a variable."""
        if isinstance(expr, Ident):
            return None if expr.name in self.scope else expr.name.removeprefix(".")
        if isinstance(expr, Select) and not expr.optional and not expr.test:
            prefix = self._dotted(expr.operand)
            return None if prefix is None else f"{prefix}.{expr.field}"
        return None

    def _select(self, expr: Select) -> Expr:
        name = self._dotted(expr)
        if name in TYPE_NAMES and name is not None:
            return Ident(name, at=expr.at, type=TYPE)
        expr.operand = self.typed(expr.operand)
        operand = expr.operand.type
        inner = operand.params[0] if operand.name == "optional_type" else operand
        found = self._field(expr, inner)
        if expr.test:
            expr.type = BOOL
        elif expr.optional or inner is not operand:
            expr.type = optional_of(found)
        else:
            expr.type = found
        return expr

    def _field(self, expr: Select, operand: CelType) -> CelType:
        expr.json_name = expr.field
        if isinstance(operand, ObjectType):
            declared = operand.fields.get(expr.field)
            if declared is None and expr.field in RESERVED:
                # Since Kubernetes 1.31 a reserved word may also be selected unescaped, besides `__namespace__`.
                declared = operand.fields.get(f"__{expr.field}__")
            if declared is None:
                raise ExpressionError(f"undefined field {expr.field!r}", expr.at)
            expr.json_name = declared.json_name
            return declared.type
        if operand.name == "map":
            if not assignable(STRING, operand.params[0], {}):
                raise ExpressionError(f"a {operand} has no fields", expr.at)
            return operand.params[1]
        if operand == DYN:
            return DYN
        raise ExpressionError(f"a {operand} has no fields", expr.at)

    def _index(self, expr: Index) -> CelType:
        operand = expr.operand.type
        inner = operand.params[0] if operand.name == "optional_type" else operand
        if inner.name == "list":
            key, found = INT, inner.params[0]
        elif inner.name == "map":
            key, found = inner.params
        elif inner == DYN:
            key, found = DYN, DYN
        else:
            raise ExpressionError(f"a {operand} cannot be indexed", expr.at)
        if not assignable(expr.index.type, key, {}):
            raise ExpressionError(f"a {inner} cannot be indexed by {expr.index.type}", expr.at)
        return optional_of(found) if expr.optional or inner is not operand else found

    # --- Calls ----------------------------------------------------------------------------------------------------

    def _call(self, expr: Call) -> None:
        if expr.member and (name := self._dotted(expr.args[0])) is not None:
            qualified = f"{name}.{expr.function}"
            if library.overloads(qualified, member=False):
                expr.function, expr.member, expr.args = qualified, False, expr.args[1:]
        expr.args = [self.typed(arg) for arg in expr.args]
        types = [arg.type for arg in expr.args]
        if expr.function in ("_==_", "_!=_"):
            if join(*types) is None:
                raise self._no_overload(expr, types)
            expr.type = BOOL
            return
        if expr.function == "@in":
            self._membership(expr, types)
            return
        known = library.overloads(expr.function, member=expr.member)
        if not known:
            raise ExpressionError(f"undeclared reference to {expr.function!r}", expr.at)
        results = []
        for overload in known:
            bound: Bindings = {}
            if len(overload.params) == len(types) and all(
                assignable(type_, param, bound) for type_, param in zip(types, overload.params, strict=True)
            ):
                expr.overloads.append(overload)
                results.append(resolve(overload.signature.result, bound))
        if not expr.overloads:
            raise self._no_overload(expr, types)
        expr.type = results[0] if all(result == results[0] for result in results) else DYN
        self._check_literals(expr)

    @staticmethod
    def _check_literals(expr: Call) -> None:
        """What is written out can be read now, rather than fail for every object."""
        if expr.function == "matches" and isinstance(expr.args[1], Literal):
            probe: list[object] = ["", expr.args[1].value]
        elif expr.function in ("timestamp", "duration") and isinstance(expr.args[0], Literal):
            probe = [expr.args[0].value]
        else:
            return
        try:
            expr.overloads[0].function(*probe)
        except CelError as error:
            raise ExpressionError(str(error), expr.at) from None

    def _membership(self, expr: Call, types: list[CelType]) -> None:
        item, items = types
        if items.name == "list" or items.name == "map":
            if join(item, items.params[0]) is None:
                raise self._no_overload(expr, types)
        elif items != DYN:
            raise self._no_overload(expr, types)
        expr.type = BOOL

    @staticmethod
    def _no_overload(expr: Call, types: list[CelType]) -> ExpressionError:
        return ExpressionError(f"no matching overload for {expr.function!r} applied to {_shown(types)}", expr.at)

    def _ternary(self, expr: Ternary) -> None:
        expr.condition = self._condition(expr.condition)
        expr.then = self.typed(expr.then)
        expr.otherwise = self.typed(expr.otherwise)
        common = join(expr.then.type, expr.otherwise.type)
        if common is None:
            types = [BOOL, expr.then.type, expr.otherwise.type]
            raise ExpressionError(f"no matching overload for '_?_:_' applied to {_shown(types)}", expr.at)
        expr.type = common

    # --- Literals -------------------------------------------------------------------------------------------------

    def _list(self, expr: ListLiteral) -> None:
        expr.items = [self.typed(item) for item in expr.items]
        expr.type = list_of(self._elements(expr.items, expr))

    def _map(self, expr: MapLiteral) -> None:
        expr.entries = [(self.typed(key), self.typed(value)) for key, value in expr.entries]
        keys = [key.type for key, _ in expr.entries]
        values = [value for _, value in expr.entries]
        expr.type = map_of(self._common(keys, expr.at), self._elements(values, expr))

    def _elements(self, elements: list[Expr], literal: ListLiteral | MapLiteral) -> CelType:
        plain = [each.type for at, each in enumerate(elements) if at not in literal.optional]
        known = next((type_ for type_ in plain if type_ != DYN), None)
        if known is not None and DYN in plain:
            raise ExpressionError(
                f"expected {plain[0]} throughout, found {known if plain[0] == DYN else DYN}", literal.at
            )
        types = [self._unwrapped(each, at in literal.optional) for at, each in enumerate(elements)]
        return self._common(types, literal.at)

    @staticmethod
    def _unwrapped(expr: Expr, optional: bool) -> CelType:
        if not optional or expr.type == DYN:
            return expr.type
        if expr.type.name != "optional_type":
            raise ExpressionError(f"expected an optional, found {expr.type}", expr.at)
        return expr.type.params[0]

    @staticmethod
    def _common(types: list[CelType], at: int) -> CelType:
        """Kubernetes requires one element type throughout a literal."""
        common: CelType | None = None
        for type_ in types:
            joined = type_ if common is None else join(common, type_)
            if joined is None:
                raise ExpressionError(f"expected {common} throughout, found {type_}", at)
            common = joined
        return DYN if common is None else common

    # --- Macros ---------------------------------------------------------------------------------------------------

    def _macro(self, expr: Macro) -> None:
        expr.subject = self.typed(expr.subject)
        inner = _Checker({**self.scope, **self._loop_variables(expr)})
        if expr.filter is not None:
            expr.filter = inner._condition(expr.filter)
        expects_bool = expr.name in ("all", "exists", "exists_one", "filter")
        expr.body = inner._condition(expr.body) if expects_bool else inner.typed(expr.body)
        expr.type = self._macro_result(expr)
        inside = [*walk(expr.body), *(walk(expr.filter) if expr.filter is not None else [])]
        expr.cost = len(inside)

    def _loop_variables(self, expr: Macro) -> dict[str, CelType]:
        subject = expr.subject.type
        if expr.name in ("optMap", "optFlatMap"):
            if subject.name != "optional_type" and subject != DYN:
                raise ExpressionError(f"{expr.name}() works on an optional, not on a {subject}", expr.at)
            return {expr.variables[0]: subject.params[0] if subject.params else DYN}
        pairs: tuple[CelType, CelType]
        if subject.name == "list" and expr.name != "transformMapEntry":
            pairs = (INT, subject.params[0])
            single = subject.params[0]
        elif subject.name in ("list", "map"):
            pairs = subject.params if subject.name == "map" else (INT, subject.params[0])  # type: ignore[assignment]
            single = pairs[0]
        elif subject == DYN:
            pairs, single = (DYN, DYN), DYN
        else:
            raise ExpressionError(f"{expr.name}() works on a list or a map, not on a {subject}", expr.at)
        if len(expr.variables) == 1:
            return {expr.variables[0]: single}
        return dict(zip(expr.variables, pairs, strict=True))

    def _macro_result(self, expr: Macro) -> CelType:
        body, subject = expr.body.type, expr.subject.type
        match expr.name:
            case "all" | "exists" | "exists_one":
                return BOOL
            case "filter":
                return list_of(subject.params[0]) if subject.params else list_of(DYN)
            case "map" | "transformList":
                return list_of(body)
            case "transformMap":
                key = subject.params[0] if subject.name == "map" else INT if subject.name == "list" else DYN
                return map_of(key, body)
            case "transformMapEntry":
                return body if body.name == "map" else map_of(DYN, DYN)
            case "sortBy":
                return list_of(subject.params[0]) if subject.name == "list" else list_of(DYN)
            case "optMap":
                return optional_of(body)
            case _:
                if body.name != "optional_type" and body != DYN:
                    raise ExpressionError(f"optFlatMap() makes an optional, not a {body}", expr.body.at)
                return body
