"""The fast evaluation: the expression as one generated Python expression, with Python's short circuits and loops.

The types of the checker determine the code: a field of an object becomes a look-up, a comparison of strings becomes
`==`, and a generic function is called only where types are unknown. JSON values are used unchanged and converted to
doubles or timestamps where one is used (`values.lifter`).

The program may raise any Python exception, also where CEL has a result (`a || b` with an error in `a`); the caller then
falls back to the interpreter. A value that it returns is correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery.cel import interpreter
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
from kubemachinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    TYPE_NAMES,
    UINT,
    CelType,
    ObjectType,
)
from kubemachinery.cel.values import Value, equal, lifter, loop, member, paid, some

Program = Callable[..., Value]

# Python compares these as CEL does, as long as both sides are of the one type.
_PLAIN: Final = frozenset({BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION, TYPE})
_ORDERS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}

_NAMES: Final[dict[str, object]] = {
    "__builtins__": {},
    "all": all,
    "any": any,
    "len": len,
    "is_present": interpreter.is_present,
    "as_bool": interpreter.as_bool,
    "dispatch": interpreter.dispatch,
    "elements": interpreter.elements,
    "equal": equal,
    "exactly_one": interpreter.exactly_one,
    "has": interpreter.has,
    "index": interpreter.index,
    "index_optional": interpreter.index_optional,
    "listed": interpreter.listed,
    "loop": loop,
    "mapped": interpreter.mapped,
    "member": member,
    "merged": interpreter.merged,
    "paid": paid,
    "pairs": interpreter.pairs,
    "select": interpreter.select,
    "select_optional": interpreter.select_optional,
    "some": some,
    "sorted_by": interpreter.sorted_by,
}


def compile_python(expr: Expr, variables: tuple[str, ...]) -> Program | None:
    """A function of the budget and the variables, in order; None when Python cannot compile the expression."""
    writer = _Writer({name: _Local(f"v_{name}", raw=True) for name in variables})
    body = writer.write(expr)
    params = ", ".join(["budget", *(f"v_{name}" for name in variables)])
    try:
        code = compile(f"lambda {params}: {body}", "<cel>", "eval")
    except (SyntaxError, RecursionError, MemoryError):
        return None  # nested deeper than Python reads
    program: Program = eval(code, {**_NAMES, **writer.constants})
    return program


class _Local:
    """A variable: what Python calls it, and whether it holds JSON that was not lifted."""

    def __init__(self, name: str, *, raw: bool) -> None:
        self.name = name
        self.raw = raw


class _Writer:
    def __init__(self, scope: dict[str, _Local]) -> None:
        self.scope = scope
        self.constants: dict[str, object] = {}
        self.loops = 0

    def constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def write(self, expr: Expr) -> str:
        """Python for the value of the expression."""
        code = self._code(expr)
        lift = lifter(expr.type) if self._is_raw(expr) else None
        return code if lift is None else f"{self.constant(lift)}({code})"

    def _is_raw(self, expr: Expr) -> bool:
        """Whether the expression reads unconverted JSON."""
        match expr:
            case Ident(name=name):
                return name in self.scope and self.scope[name].raw
            case Select(operand=operand, optional=False, test=False) | Index(operand=operand, optional=False):
                return operand.type.name != "optional_type" and self._is_raw(operand)
            case _:
                return False

    def _inside(self, expr: Expr) -> str:
        """Code for a value of which only members are read: it stays unconverted."""
        return self._code(expr) if self._is_raw(expr) else self.write(expr)

    def _code(self, expr: Expr) -> str:
        return _WRITE[type(expr)](self, expr)

    def bool_(self, expr: Expr) -> str:
        code = self.write(expr)
        return code if expr.type == BOOL else f"as_bool({code})"

    def literal(self, expr: Literal) -> str:
        value = expr.value
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return f"({value!r})"
        return self.constant(value)

    def ident(self, expr: Ident) -> str:
        local = self.scope.get(expr.name)
        return self.constant(TYPE_NAMES[expr.name]) if local is None else local.name

    def select(self, expr: Select) -> str:
        operand = expr.operand.type
        if expr.optional:
            return f"select_optional({self.write(expr.operand)}, {expr.json_name!r})"
        plain = isinstance(operand, ObjectType) or operand.name == "map"
        if expr.test:
            if plain:
                return f"({expr.json_name!r} in {self._inside(expr.operand)})"
            return f"has({self.write(expr.operand)}, {expr.json_name!r})"
        if plain:
            return f"{self._inside(expr.operand)}[{expr.json_name!r}]"
        return f"select({self.write(expr.operand)}, {expr.json_name!r})"

    def index(self, expr: Index) -> str:
        key = self.write(expr.index)
        if expr.optional:
            return f"index_optional({self.write(expr.operand)}, {key})"
        operand = expr.operand.type
        by_name = operand.name == "map" and expr.index.type == STRING
        by_position = operand.name == "list" and isinstance(expr.index, Literal) and _is_position(expr.index.value)
        if by_name or by_position:
            return f"{self._inside(expr.operand)}[{key}]"
        return f"index({self._inside(expr.operand)}, {key})"

    def call(self, expr: Call) -> str:
        types = [arg.type for arg in expr.args]
        alike = types[0] if types and all(type_ == types[0] for type_ in types) else None
        args = [self.write(arg) for arg in expr.args]
        if expr.function in interpreter.LAZY and expr.member:
            self.loops += 1
            name = f"v_{self.loops}_optional"
            value = name if expr.function == "or" else f"{name}.value"
            return f"(lambda {name}: {value} if is_present({name}) else {args[1]})({args[0]})"
        match expr.function:
            case "_==_" | "_!=_" as function:
                if alike in _PLAIN or self._compares_with_text(expr):
                    return f"({args[0]} {function.strip('_')} {args[1]})"
                return f"({'not ' if function == '_!=_' else ''}equal(budget, {args[0]}, {args[1]}))"
            case "@in":
                return self._membership(expr, args)
            case "!_" if alike == BOOL:
                return f"(not {args[0]})"
            case "size" if types[0].name in ("string", "bytes", "list", "map"):
                return f"len({self._inside(expr.args[0])})"
            case function if function in _ORDERS and alike in _PLAIN and alike != DOUBLE:
                return f"({args[0]} {_ORDERS[function]} {args[1]})"
        if len(expr.overloads) == 1 and not any(_is_dynamic(type_) for type_ in types):
            overload = expr.overloads[0]
            function = self.constant(overload.function)
            inner = ", ".join(args)
            return f"paid(budget, {function}, {inner})" if overload.grows else f"{function}({inner})"
        overloads = self.constant(tuple(expr.overloads))
        return f"dispatch(budget, {expr.function!r}, {overloads}, ({''.join(f'{arg}, ' for arg in args)}))"

    @staticmethod
    def _compares_with_text(expr: Call) -> bool:
        """A string equals only the same string, so Python's `==` is correct for any other operand."""
        return any(isinstance(arg, Literal) and isinstance(arg.value, str) for arg in expr.args)

    def _membership(self, expr: Call, args: list[str]) -> str:
        item, items = expr.args
        if item.type == STRING and items.type.name == "map":
            return f"({args[0]} in {self._inside(items)})"
        if item.type == STRING and isinstance(items, ListLiteral):
            texts = [each.value for each in items.items if isinstance(each, Literal)]
            if len(texts) == len(items.items):
                return f"({args[0]} in {self.constant(frozenset(texts))})"
        return f"member(budget, {args[0]}, {args[1]})"

    def logic(self, expr: Logic) -> str:
        word = " and " if expr.operator == "&&" else " or "
        return f"({word.join(self.bool_(operand) for operand in expr.operands)})"

    def ternary(self, expr: Ternary) -> str:
        return f"({self.write(expr.then)} if {self.bool_(expr.condition)} else {self.write(expr.otherwise)})"

    def list(self, expr: ListLiteral) -> str:
        items = [self.write(item) for item in expr.items]
        if not expr.optional:
            return f"[{', '.join(items)}]"
        marked = (f"({item}, {at in expr.optional})" for at, item in enumerate(items))
        return f"listed([{', '.join(marked)}])"

    def map(self, expr: MapLiteral) -> str:
        entries = (
            f"({self.write(key)}, {self.write(value)}, {at in expr.optional})"
            for at, (key, value) in enumerate(expr.entries)
        )
        return f"mapped([{', '.join(entries)}])"

    def macro(self, expr: Macro) -> str:
        if expr.name in ("optMap", "optFlatMap"):
            return self._optional_macro(expr)
        self.loops += 1
        locals_ = self._loop_variables(expr)
        subject = self._subject(expr)
        outer = self.scope
        self.scope = {**outer, **locals_}
        condition = f" if {self.bool_(expr.filter)}" if expr.filter is not None else ""
        is_question = expr.name in ("all", "exists", "exists_one", "filter")
        body = self.bool_(expr.body) if is_question else self.write(expr.body)
        kept = self.write(Ident(expr.variables[0], at=expr.at, type=_item_type(expr)))
        self.scope = outer
        names = ", ".join(local.name for local in locals_.values())
        each = f"for {names} in loop(budget, {subject}, {expr.cost}){condition}"
        match expr.name:
            case "all":
                return f"all({body} {each})"
            case "exists":
                return f"any({body} {each})"
            case "exists_one":
                return f"exactly_one([{body} {each}])"
            case "filter":
                return f"[{kept} {each} if {body}]"
            case "transformMap":
                return f"{{{names.partition(',')[0]}: {body} {each}}}"
            case "transformMapEntry":
                return f"merged([{body} {each}])"
            case "sortBy":
                return f"sorted_by({self.write(expr.subject)}, [{body} {each}])"
            case _:
                return f"[{body} {each}]"

    def _loop_variables(self, expr: Macro) -> dict[str, _Local]:
        """The items of a list of JSON are JSON still, and so are the values of a map; positions and keys are not."""
        raw = self._is_raw(expr.subject) and expr.name != "sortBy"
        raws = [False, raw] if len(expr.variables) == 2 else [raw and expr.subject.type.name == "list"]
        return {
            variable: _Local(f"v_{self.loops}_{variable}", raw=is_raw)
            for variable, is_raw in zip(expr.variables, raws, strict=True)
        }

    def _subject(self, expr: Macro) -> str:
        code = self.write(expr.subject) if expr.name == "sortBy" else self._inside(expr.subject)
        if len(expr.variables) == 2:
            return f"pairs({code})"
        return code if expr.subject.type.name in ("list", "map") else f"elements({code})"

    def _optional_macro(self, expr: Macro) -> str:
        """A loop over the one value of an optional: `(lambda o: f(o.value) if o.present else o)(subject)`."""
        self.loops += 1
        name = f"v_{self.loops}_optional"
        outer = self.scope
        self.scope = {**outer, expr.variables[0]: _Local(f"{name}.value", raw=False)}
        body = self.write(expr.body)
        self.scope = outer
        wrapped = f"some({body})" if expr.name == "optMap" else body
        return f"(lambda {name}: {wrapped} if {name}.present else {name})({self.write(expr.subject)})"


def _is_position(value: object) -> bool:
    return type(value) is int and value >= 0


def _item_type(expr: Macro) -> CelType:
    params = expr.subject.type.params
    return params[0] if params else expr.subject.type


def _is_dynamic(type_: CelType) -> bool:
    return type_.name == "dyn" or any(_is_dynamic(param) for param in type_.params)


_WRITE: Final[dict[type[Expr], Callable[..., str]]] = {
    Literal: _Writer.literal,
    Ident: _Writer.ident,
    Select: _Writer.select,
    Index: _Writer.index,
    Call: _Writer.call,
    Logic: _Writer.logic,
    Ternary: _Writer.ternary,
    ListLiteral: _Writer.list,
    MapLiteral: _Writer.map,
    Macro: _Writer.macro,
}
