"""CEL, the expression language of Kubernetes: compiled against types, evaluated within a budget.

    program = cel.compile("self.minCount <= self.count", {"self": some_object_type}, result=types.BOOL)
    if isinstance(program, cel.CompileError): ...         # has the message and the position
    answer = program.evaluate({"self": tree}, cel.StepBudget(1_000_000))
    if isinstance(answer, cel.CelError): ...              # no value; has the reason

The stages: `lexer`, `parser` (to the nodes of `ast`), `checker` (types from `types`, functions from `library`), then
`compiler`, which generates Python, and `interpreter`, which evaluates again when the generated code raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from kubemachinery.cel import ast, checker, interpreter, parser, types
from kubemachinery.cel.compiler import compile_python
from kubemachinery.cel.errors import CelError, CompileError, CostExceeded, ExpressionError
from kubemachinery.cel.types import CelType
from kubemachinery.cel.values import Lift, StepBudget, Value, lifter

__all__ = ["CelError", "CompileError", "CostExceeded", "Program", "StepBudget", "compile", "types"]


class Program:
    """A compiled expression."""

    def __init__(self, text: str, expr: ast.Expr, variables: Mapping[str, CelType]) -> None:
        self.text = text
        self.type = expr.type
        self._expr = expr
        self._variables = variables
        self._names = tuple(variables)
        self._fast = compile_python(expr, self._names)
        self._uses = {each.name for each in ast.walk(expr) if isinstance(each, ast.Ident)}

    @cached_property
    def _lifts(self) -> dict[str, Lift]:
        return {name: lift for name, type_ in self._variables.items() if (lift := lifter(type_))}

    def uses(self, variable: str) -> bool:
        """Whether the expression mentions a variable."""
        return variable in self._uses

    def evaluate(self, bindings: Mapping[str, Value], budget: StepBudget) -> Value | CelError:
        """The value, or a `CelError`. A variable without a binding is an error, too."""
        start = budget.left
        try:
            if self._fast is not None:
                return self._fast(budget, *[bindings[name] for name in self._names])
        except CostExceeded as error:
            return error
        except Exception:  # the interpreter determines the result that CEL defines
            budget.left = start
        return self.interpret(bindings, budget)

    def interpret(self, bindings: Mapping[str, Value], budget: StepBudget) -> Value | CelError:
        """The value by the slow and exact way."""
        try:
            scope = {
                name: self._lifts[name](value) if name in self._lifts else value for name, value in bindings.items()
            }
            return interpreter.evaluate(self._expr, scope, budget)
        except CelError as error:
            return error
        except Exception as error:
            # Data that does not have the declared types, or is nested too deeply.
            return CelError(f"the expression does not fit the data: {type(error).__name__}")


def compile(text: str, variables: Mapping[str, CelType], *, result: CelType | None = None) -> Program | CompileError:
    """Compiles an expression over variables of these types; with `result`, the type that its value must have."""
    try:
        expr = checker.check(parser.parse(text), variables)
        if result is not None and not types.assignable(expr.type, result, {}):
            raise ExpressionError(f"the expression must be a {result}, but is a {expr.type}", 0)
    except ExpressionError as error:
        return CompileError(error.message, error.at, text)
    except RecursionError:
        return CompileError("the expression is nested too deeply", 0, text)
    return Program(text, expr, variables)
