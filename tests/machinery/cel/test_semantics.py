"""The language: what each expression is worth, both by the compiled program and by the interpreter."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubemachinery import cel
from kubemachinery.cel import types
from kubemachinery.cel.values import Duration, Timestamp, UInt

_ITEM = types.ObjectType(
    "item", fields={"key": types.CelField("key", types.STRING), "value": types.CelField("value", types.INT)}
)
_FIELDS = {
    "name": types.STRING,
    "count": types.INT,
    "absent": types.INT,
    "ratio": types.DOUBLE,
    "ratios": types.list_of(types.DOUBLE),
    "since": types.TIMESTAMP,
    "tags": types.list_of(types.STRING),
    "labels": types.map_of(types.STRING, types.STRING),
    "port": types.DYN,
    "set": types.list_of(types.STRING, types.CelListShape()),
    "items": types.list_of(_ITEM, types.CelListShape(("key",))),
}
_SELF = types.ObjectType(
    "object",
    fields={
        **{name: types.CelField(name, type_) for name, type_ in _FIELDS.items()},
        "__namespace__": types.CelField("namespace", types.STRING),
        "a__dash__b": types.CelField("a-b", types.STRING),
    },
)
VARIABLES = {"self": _SELF, "oldSelf": _SELF, "any": types.DYN}
TREE: dict[str, Any] = {
    "name": "naïve",
    "count": 3,
    "ratio": 2,  # JSON has one way to write 2 and 2.0
    "ratios": [1, 2],
    "since": "2024-02-29T12:00:00Z",
    "tags": ["a", "b"],
    "labels": {"x": "1"},
    "port": "80",
    "set": ["p", "q"],
    "items": [{"key": "a", "value": 1}, {"key": "b", "value": 2}],
    "namespace": "team",
    "a-b": "dashed",
}
BINDINGS: dict[str, Any] = {
    "self": TREE,
    "oldSelf": {**TREE, "set": ["q", "p"], "items": TREE["items"][::-1]},
    "any": {"mixed": [1, "x", True], "none": None},
}


def evaluate(expression: str) -> Any:
    """The value, found both ways; the two must agree, in type too."""
    program = cel.compile(expression, VARIABLES)
    assert isinstance(program, cel.Program), str(program)
    fast = program.evaluate(BINDINGS, cel.StepBudget(100_000))
    slow = program.interpret(BINDINGS, cel.StepBudget(100_000))
    assert type(fast) is type(slow)
    if isinstance(fast, cel.CelError):
        assert str(fast) == str(slow)
    elif fast == fast:
        assert fast == slow
    return fast


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        # Arithmetic and precedence.
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / -2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("2 - 1 - 1", 0),
        ("- -1", 1),
        ("!!true", True),
        ("-9223372036854775808", -(2**63)),
        ("0x1F", 31),
        ("1e3", 1000.0),
        (".5 + 1.25", 1.75),
        ("5u / 2u", UInt(2)),
        ("1.0 / 0.0", math.inf),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("true ? 1 : 2", 1),
        ("false ? 1 : true ? 2 : 3", 2),
        # Equality and order: numbers compare by value once types are dynamic, and a bool is no number.
        ("dyn(1) == dyn(1.0)", True),
        ("dyn(1) == dyn(1u)", True),
        ("dyn(1) == dyn(true)", False),
        ("dyn(0) == dyn('')", False),
        ("[dyn(1)] == [dyn(true)]", False),
        ("{'a': 1, 'a': 2}", {"a": 2}),
        ("[1, 2] == [2, 1]", False),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", True),
        ("1 < 1.5", True),
        ("2u > 1", True),
        ("'abc' < 'abd'", True),
        ("false < true", True),
        ("null == null", True),
        ("self == null", False),
        ("double('nan') == double('nan')", False),
        ("[1, 2].exists(x, x == 3) != true", True),
        # Strings count code points.
        ("size(self.name)", 5),
        ("'\\u00e9\\n\\t\\x41\\101'", "é\n\tAA"),
        (r"r'\d'", "\\d"),
        ("b'\\xff\\377a'", b"\xff\xffa"),
        ('"""a\n"b" """', 'a\n"b" '),
        ("size(b'é')", 2),
        # Fields, maps, lists.
        ("self.__namespace__ + self.a__dash__b", "teamdashed"),
        ("self.labels.x == self.labels['x']", True),
        ("self.tags[1]", "b"),
        ("'b' in self.tags && !('z' in self.tags)", True),
        ("'x' in self.labels", True),
        ("has(self.count) && !has(self.absent) && has(self.labels.x) && !has(self.labels.y)", True),
        ("has(any.none) && any.none == null", True),
        ("{'a': {'b': 1}}.a.b", 1),
        # JSON numbers of a declared double are doubles, wherever they are met.
        ("self.ratio / 4.0", 0.5),
        ("self.ratios == [1.0, 2.0]", True),
        ("self.ratios.map(ratio, ratio / 4.0)", [0.25, 0.5]),
        ("self.ratios.filter(ratio, ratio > 1.0)", [2.0]),
        ("type(self.ratio) == double", True),
        # Lists that are sets or maps have no order.
        ("self.set == oldSelf.set", True),
        ("self.items == oldSelf.items", True),
        ("self == oldSelf", True),
        ("self.tags == ['b', 'a']", False),
        ("self.set + ['q', 'z'] == ['z', 'q', 'p']", True),
        # An int-or-string is what it is.
        ("type(self.port) == string ? int(self.port) : self.port", 80),
        ("any.mixed.map(x, type(x) == int)", [True, False, False]),
        # Macros.
        ("[1, 2].all(x, x > 0)", True),
        ("[].all(x, 1 / 0 == 1)", True),
        ("[1, 2].exists_one(x, x > 1)", True),
        ("[1, 2, 3].map(x, x > 1, x * x)", [4, 9]),
        ("{'a': 1, 'b': 2}.filter(k, k != 'a')", ["b"]),
        ("[[1], [2]].map(inner, inner.map(x, x + size(inner)))", [[2], [3]]),
        ("['x', 'y'].all(i, v, i < 2 && v != '')", True),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10)", {"b": 20}),
        ("['x', 'y'].transformList(i, v, v + string(i))", ["x0", "y1"]),
        ("['x'].transformMapEntry(i, v, {v: i})", {"x": 0}),
        ("['bb', 'a'].sortBy(x, size(x))", ["a", "bb"]),
        # Optionals.
        ("self.?absent.orValue(7)", 7),
        ("self.?labels.x.value()", "1"),
        ("self.?labels.y.hasValue()", False),
        ("self.labels[?'x'].orValue('') + self.labels[?'y'].orValue('-')", "1-"),
        ("self.tags[?5].hasValue()", False),
        ("optional.of(2).optMap(x, x * 2).value()", 4),
        ("optional.none().optFlatMap(x, optional.of(1)).hasValue()", False),
        ("[?optional.of(1), ?optional.none(), 2]", [1, 2]),
        ("{'a': 1}.?a.orValue(1 / 0)", 1),
        ("optional.of(1).or(optional.of(1 / 0)).value()", 1),
        ("{?'a': optional.of(1), ?'b': optional.none()}", {"a": 1}),
        ("optional.ofNonZeroValue('').or(optional.of('x')).value()", "x"),
        # Times.
        ("self.since", Timestamp(1709208000 * 10**9)),
        ("self.since + duration('24h') == timestamp('2024-03-01T12:00:00Z')", True),
        ("self.since - timestamp('2024-02-29T11:59:59.5Z')", Duration(500_000_000)),
        ("self.since.getDayOfYear()", 59),
        ("self.since.getHours('+05:30')", 17),
        ("duration('1h30m').getMinutes()", 90),
        ("string(duration('1.5s'))", "1.5s"),
        ("string(timestamp('2024-01-01T02:00:00.25+02:00') + duration('1h'))", "2024-01-01T03:00:00.25+02:00"),
        # Conversions.
        ("int(1.9) + int('-3') + int(2u)", 0),
        ("string(1.0) + string(0.1) + string(1e7) + string(true) + string(3u)", "10.11e+07true3"),
        ("double('1e-3')", 0.001),
        ("bool('t')", True),
        ("string(bytes('é'))", "é"),
        ("type(1) == int && type(type(1)) == type && type(null) == null_type", True),
        ("type(self.since) == google.protobuf.Timestamp", True),
    ],
)
def test_expressions_and_their_values(expression: str, value: object) -> None:
    found = evaluate(expression)
    assert not isinstance(found, cel.CelError), str(found)
    assert type(found) is type(value)
    assert found == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("9223372036854775807 + 1", "overflow"),
        ("-(-9223372036854775807 - 1)", "overflow"),
        ("-9223372036854775808 / -1", "overflow"),
        ("9223372036854775807 * 2", "overflow"),
        ("1u - 2u", "overflow"),
        ("uint(-1)", "overflow"),
        ("int(1e19)", "overflow"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("self.absent > 1", "no such key: absent"),
        ("self.labels['y']", "no such key: y"),
        ("self.tags[2]", "index out of bounds: 2"),
        ("self.tags[-1]", "index out of bounds: -1"),
        ("any.missing", "no such key"),
        ("any.mixed[1] + 1", "no such overload"),
        ("any.mixed.all(x, x > 0)", "no such overload"),
        ("dyn(1) && true", "no such overload"),
        ("[1, 2].exists_one(x, 1 / (x - 1) == 1)", "division by zero"),
        ("optional.none().value()", "dereference"),
        ("int('one')", "cannot read"),
        ("string(b'\\xff')", "UTF-8"),
        ("double('nan') < 1.0", "cannot be ordered"),
        ("'abc'.substring(2, 9)", "out of range"),
    ],
)
def test_expressions_without_a_value(expression: str, reason: str) -> None:
    found = evaluate(expression)
    assert isinstance(found, cel.CelError)
    assert reason in str(found)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("self.absent > 1 || true", True),
        ("true || self.absent > 1", True),
        ("self.absent > 1 && false", False),
        ("false && self.absent > 1", False),
        ("1 / 0 == 1 || 1 / 0 == 1 || true", True),
        ("[0, 1].exists(x, 1 / x == 1)", True),
        ("[0, 2].all(x, 1 / x > 0)", False),
        ("true ? 1 : 1 / 0", 1),
    ],
)
def test_a_decided_answer_outweighs_an_error_on_the_other_side(expression: str, value: object) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression", ["self.absent > 1 || false", "true && self.absent > 1", "[1, 0].all(x, 1 / x == 1)"]
)
def test_an_undecided_answer_is_the_error(expression: str) -> None:
    assert isinstance(evaluate(expression), cel.CelError)
