"""Tokens to an expression: the grammar of CEL, and its macros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from kubemachinery.cel import lexer
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
from kubemachinery.cel.errors import ExpressionError
from kubemachinery.cel.lexer import Token

DEPTH_MAX: Final = 60
CHAIN_MAX: Final = 100

# Operators from loose to tight; all of one row bind to the left.
_OPERATORS: Final = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_LEVELS: Final = {operator: level for level, row in enumerate(_OPERATORS) for operator in row}


class _Loop(msgspec.Struct, frozen=True):
    """The form of a macro: the number of its variables, and whether a filter may precede the body."""

    variables: int
    filtered: bool = False


_MACROS: Final[dict[tuple[str, int], _Loop]] = {
    **{(name, 2): _Loop(1) for name in ("all", "exists", "exists_one", "filter", "map", "sortBy")},
    **{(name, 3): _Loop(2) for name in ("all", "exists", "existsOne")},
    ("map", 3): _Loop(1, filtered=True),
    **{(name, 3): _Loop(2) for name in ("transformList", "transformMap", "transformMapEntry")},
    **{(name, 4): _Loop(2, filtered=True) for name in ("transformList", "transformMap", "transformMapEntry")},
    **{(name, 2): _Loop(1) for name in ("optMap", "optFlatMap")},
}


def parse(text: str) -> Expr:
    """Parse the text to an expression; raises `ExpressionError`."""
    parser = _Parser(lexer.tokens(text))
    expr = parser.expression()
    parser.expect("end")
    return expr


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.next = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self, kind: str) -> Token | None:
        token = self.token
        if token.kind != kind:
            return None
        self.next += 1
        return token

    def expect(self, kind: str) -> Token:
        token = self.take(kind)
        if token is None:
            found = self.token
            shown = "the end" if found.kind == "end" else repr(found.value if found.value is not None else found.kind)
            raise ExpressionError(f"expected {'the end' if kind == 'end' else repr(kind)}, found {shown}", found.at)
        return token

    def name(self) -> Token:
        if self.token.kind != "name":
            self.expect("name")
        return self.expect("name")

    def nested(self, expr: Callable[[], Expr]) -> Expr:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise ExpressionError("the expression is nested too deeply", self.token.at)
        result = expr()
        self.depth -= 1
        return result

    def expression(self) -> Expr:
        return self.nested(self._ternary)

    def _ternary(self) -> Expr:
        condition = self._binary(0)
        question = self.take("?")
        if question is None:
            return condition
        then = self._binary(0)
        self.expect(":")
        return Ternary(condition, then, self.expression(), at=question.at)

    def _binary(self, loosest: int) -> Expr:
        """Operands joined by operators that bind at least as tightly as those of a level."""
        left = self._unary()
        links = 0
        while (level := _LEVELS.get(self.token.kind, -1)) >= loosest:
            token = self.expect(self.token.kind)
            right = self._binary(level + 1)
            if token.kind in ("||", "&&"):
                left = self._chained(left, token, right)
                continue
            links += 1
            if links > CHAIN_MAX:
                raise ExpressionError("too many operators in a row", token.at)
            left = Call("@in" if token.kind == "in" else f"_{token.kind}_", [left, right], at=token.at)
        return left

    @staticmethod
    def _chained(left: Expr, token: Token, right: Expr) -> Expr:
        """`a || b || c` is one chain of three, however long; only parentheses make it deep."""
        if isinstance(left, Logic) and left.operator == token.kind:
            left.operands.append(right)
            return left
        return Logic(token.kind, [left, right], at=token.at)

    def _unary(self) -> Expr:
        token = self.token
        if token.kind == "-" and self._is_number(self.tokens[self.next + 1]):
            self.next += 1
            return self._member(self._number(negative=True))
        for operator, function in (("!", "!_"), ("-", "-_")):
            if self.take(operator):
                times = 1
                while self.token.kind == operator and not (
                    operator == "-" and self._is_number(self.tokens[self.next + 1])
                ):
                    self.next += 1
                    times += 1
                inner = self.nested(self._unary)
                # Two of them undo each other, though they still insist on the type.
                for _ in range(1 if times % 2 else 2):
                    inner = Call(function, [inner], at=token.at)
                return inner
        return self._member(self._primary())

    @staticmethod
    def _is_number(token: Token) -> bool:
        return token.kind == "literal" and type(token.value) in (int, float)

    def _number(self, *, negative: bool = False) -> Literal:
        token = self.expect("literal")
        value = token.value
        assert isinstance(value, int | float)
        if negative:
            value = -value
        if type(value) is int and not lexer.INT_MIN <= value <= lexer.INT_MAX:
            raise ExpressionError("the integer is too large", token.at)
        return Literal(value, at=token.at)

    def _primary(self) -> Expr:
        token = self.token
        match token.kind:
            case "literal":
                if self._is_number(token):
                    return self._number()
                self.next += 1
                return Literal(token.value, at=token.at)
            case "(":
                self.next += 1
                inner = self.expression()
                self.expect(")")
                return inner
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "." | "name":
                leading_dot = self.take(".") is not None
                name = str(self.name().value)
                if name in lexer.RESERVED:
                    raise ExpressionError(f"{name!r} is a reserved word", token.at)
                if self.token.kind == "(":
                    return self._call(name, token.at)
                return Ident(f".{name}" if leading_dot else name, at=token.at)
            case _:
                self.expect("name")
                raise AssertionError

    def _member(self, expr: Expr) -> Expr:
        links = 0
        while True:
            links += 1
            if links > CHAIN_MAX:
                raise ExpressionError("too many selections in a row", self.token.at)
            if dot := self.take("."):
                optional = self.take("?") is not None
                name = str(self.name().value)
                if self.token.kind == "(" and not optional:
                    expr = self._method(expr, name, dot.at)
                else:
                    expr = Select(expr, name, optional=optional, at=dot.at)
            elif bracket := self.take("["):
                optional = self.take("?") is not None
                expr = Index(expr, self.expression(), optional=optional, at=bracket.at)
                self.expect("]")
            elif self.token.kind == "{" and isinstance(expr, Ident | Select):
                raise ExpressionError("messages cannot be constructed here", self.token.at)
            else:
                return expr

    def _arguments(self) -> list[Expr]:
        self.expect("(")
        args: list[Expr] = []
        while self.token.kind != ")":
            args.append(self.expression())
            if not self.take(","):
                break
        self.expect(")")
        return args

    def _call(self, name: str, at: int) -> Expr:
        args = self._arguments()
        if name == "has" and len(args) == 1:
            field = args[0]
            if not isinstance(field, Select) or field.test or field.optional:
                raise ExpressionError("has() takes a field, as in has(self.name)", at)
            return Select(field.operand, field.field, test=True, at=field.at)
        return Call(name, args, at=at)

    def _method(self, subject: Expr, name: str, at: int) -> Expr:
        args = self._arguments()
        loop = _MACROS.get((name, len(args)))
        if loop is None:
            return Call(name, [subject, *args], member=True, at=at)
        variables = []
        for arg in args[: loop.variables]:
            if not isinstance(arg, Ident):
                raise ExpressionError(f"{name}() names its variable first", arg.at)
            variables.append(arg.name)
        if len(set(variables)) < len(variables):
            raise ExpressionError(f"{name}() names one variable twice", at)
        filter_ = args[loop.variables] if loop.filtered else None
        name = "exists_one" if name == "existsOne" else name
        return Macro(name, subject, tuple(variables), args[-1], filter_, at=at)

    def _list(self) -> Expr:
        at = self.expect("[").at
        items: list[Expr] = []
        optional = set()
        while self.token.kind != "]":
            if self.take("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self.take(","):
                break
        self.expect("]")
        return ListLiteral(items, frozenset(optional), at=at)

    def _map(self) -> Expr:
        at = self.expect("{").at
        entries: list[tuple[Expr, Expr]] = []
        optional = set()
        while self.token.kind != "}":
            if self.take("?"):
                optional.add(len(entries))
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.take(","):
                break
        self.expect("}")
        return MapLiteral(entries, frozenset(optional), at=at)
