"""No rule, however meant, keeps the server busy: evaluation ends with an error when its steps are used up."""

from __future__ import annotations

import pytest

from kubemachinery import cel
from kubemachinery.cel import types
from kubemachinery.cel.values import Value

_NUMBERS = types.list_of(types.INT)
_VARIABLES = {"numbers": _NUMBERS, "text": types.STRING}


def evaluate(expression: str, numbers: int = 10_000, text: int = 100_000, steps: int = 1_000_000) -> Value:
    program = cel.compile(expression, _VARIABLES)
    assert isinstance(program, cel.Program), str(program)
    return program.evaluate({"numbers": list(range(numbers)), "text": "a" * text}, cel.StepBudget(steps))


@pytest.mark.parametrize(
    "expression",
    [
        "numbers.all(x, numbers.all(y, x + y >= 0))",
        "numbers.map(x, numbers.map(y, x * y)).size() > 0",
        "numbers.all(x, numbers == numbers)",
        "numbers.all(x, -1 in numbers || true)",
        "numbers.all(x, text + text != '')",
        "numbers.all(x, text.contains('b') || true)",
        "numbers.all(x, numbers.sum() > 0)",
        "numbers.all(x, (numbers + numbers).size() > 0)",
        "numbers.all(x, numbers.all(y, 1 / 0 == x))",
    ],
)
def test_work_that_multiplies_is_cut_short(expression: str) -> None:
    assert isinstance(evaluate(expression), cel.CostExceeded)


def test_a_result_that_explodes_is_refused_before_it_is_built() -> None:
    found = evaluate("text.replace('', text).size() > 0")
    assert isinstance(found, cel.CelError)
    assert "too long" in str(found)


def test_a_loop_that_stops_early_pays_only_for_what_it_saw() -> None:
    assert evaluate("numbers.all(x, numbers.exists(y, y == 0))", numbers=1_000, steps=20_000) is True


def test_a_budget_is_shared_by_evaluations() -> None:
    program = cel.compile("numbers.all(x, x >= 0)", _VARIABLES)
    assert isinstance(program, cel.Program)
    budget = cel.StepBudget(10_000)
    bindings = {"numbers": list(range(1_000)), "text": ""}
    answers = [program.evaluate(bindings, budget) for _ in range(5)]
    assert answers[0] is True
    assert isinstance(answers[-1], cel.CostExceeded)
