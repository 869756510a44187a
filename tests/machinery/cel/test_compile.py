"""What does not compile, and the place that is named."""

from __future__ import annotations

import pytest

from kubemachinery import cel
from kubemachinery.cel import types

_SELF = types.ObjectType(
    "object",
    fields={
        "name": types.CelField("name", types.STRING),
        "count": types.CelField("count", types.INT),
        "__in__": types.CelField("in", types.STRING),
    },
)


def error(expression: str) -> cel.CompileError:
    found = cel.compile(expression, {"self": _SELF})
    assert isinstance(found, cel.CompileError), f"{expression} compiles"
    return found


@pytest.mark.parametrize(
    ("expression", "message", "line", "column"),
    [
        # Types that do not go together.
        ("1 == true", "no matching overload for '_==_' applied to (int, bool)", 1, 3),
        ("1 == 1.0", "no matching overload", 1, 3),
        ("1 + 1u", "no matching overload", 1, 3),
        ("'a' + 1", "no matching overload", 1, 5),
        ("self.name == null", "no matching overload", 1, 11),
        ("true ? 1 : 'a'", "no matching overload for '_?_:_'", 1, 6),
        ("1 && true", "expected a bool, found int", 1, 1),
        ("[1, 'a']", "expected int throughout, found string", 1, 1),
        ("[dyn(1), 2]", "expected dyn throughout, found int", 1, 1),
        ("{'a': 1, 'b': 'c'}", "throughout", 1, 1),
        ("self.count.map(x, x)", "works on a list or a map", 1, 11),
        ("[1].exists(x, x)", "expected a bool", 1, 15),
        ("1 in ['a']", "no matching overload for '@in'", 1, 3),
        ("'abc'[0]", "cannot be indexed", 1, 6),
        ("[1]['a']", "cannot be indexed by string", 1, 4),
        # Names.
        ("self.nmae", "undefined field 'nmae'", 1, 5),
        ("self.in", "expected 'name'", 1, 6),
        ("has(self.nmae)", "undefined field", 1, 9),
        ("other", "undeclared reference to 'other'", 1, 1),
        ("self.name.foo()", "undeclared reference to 'foo'", 1, 10),
        ("authorizer.group('').check('get').allowed()", "undeclared reference to 'authorizer'", 1, 1),
        ("[1].all(x, x > 0) && x > 0", "undeclared reference to 'x'", 1, 22),
        # Text.
        ("", "found the end", 1, 1),
        ("1 +", "found the end", 1, 4),
        ("true &&\n  (1 <", "found the end", 2, 7),
        ("'abc", "the string has no end", 1, 1),
        ("'a\nb'", "the string has no end", 1, 1),
        ("'\\q'", "unknown escape", 1, 2),
        ("1 # 2", "unexpected character '#'", 1, 3),
        ("for", "reserved word", 1, 1),
        ("9223372036854775808", "too large", 1, 1),
        ("18446744073709551616u", "too large", 1, 1),
        ("has(self)", "has() takes a field", 1, 1),
        ("[1].all(1, true)", "names its variable", 1, 9),
        ("Type{a: 1}", "cannot be constructed", 1, 5),
        # What is written out is read at once.
        ("self.name.matches('(')", "not a regular expression", 1, 10),
        ("self.name.matches('(?=a)')", "look-ahead is not part of RE2", 1, 10),
        ("duration('soon') == duration('1s')", "cannot read 'soon'", 1, 1),
        ("timestamp('2024-13-01T00:00:00Z') == timestamp(0)", "cannot read", 1, 1),
    ],
)
def test_the_place_and_the_reason(expression: str, message: str, line: int, column: int) -> None:
    found = error(expression)
    assert message in found.message
    assert (found.line, found.column) == (line, column)


def test_expression_must_have_the_required_type() -> None:
    assert isinstance(cel.compile("1 + 1", {}, result=types.BOOL), cel.CompileError)
    assert isinstance(cel.compile("dyn(1)", {}, result=types.BOOL), cel.Program)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5_000,
        "(" * 150 + "1" + ")" * 150,
        "!" * 50_000 + "true" + "x",
        "-" * 50_000,
        "1" + " + 1" * 5_000,
        "self" + ".a" * 5_000,
        "[" * 500 + "]" * 500,
        "true ? " * 3_000,
        "1" * 100_001,
    ],
)
def test_an_absurd_expression_is_refused_and_not_recursed_into(expression: str) -> None:
    assert isinstance(cel.compile(expression, {}), cel.CompileError)


def test_a_long_chain_of_conditions_is_not_deep() -> None:
    program = cel.compile(" || ".join(f"self.count == {n}" for n in range(2_000)), {"self": _SELF})
    assert isinstance(program, cel.Program)
    assert program.evaluate({"self": {"count": 1999}}, cel.StepBudget(10_000)) is True


def test_nesting_within_reason_compiles() -> None:
    text = "1"
    for _ in range(55):
        text = f"{{'a': {text}}}"
    program = cel.compile(f"size({text}) == 1", {})
    assert isinstance(program, cel.Program)
    assert program.evaluate({}, cel.StepBudget(10_000)) is True
