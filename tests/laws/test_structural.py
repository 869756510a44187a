"""Laws of schemas and expressions: whatever the tree, and whatever the rule."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubemachinery import cel, structural
from kubemachinery.cel import re2, types

Json = Any

LAW = settings(max_examples=100)

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(allow_nan=False), st.text(max_size=4)
)
NAMES = st.sampled_from(["a", "b", "name", "items", "spec", "metadata", "x"])
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=4)


def _object(properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": properties}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Json]:
    """Schemas that can be served, without rules."""
    kind = draw(
        st.sampled_from(["string", "integer", "object", "map", "array", "any"] if depth else ["string", "integer"])
    )
    schema: dict[str, Json]
    match kind:
        case "string":
            schema = {"type": "string", "maxLength": draw(st.integers(0, 3))}
            if draw(st.booleans()):
                schema["default"] = ""
        case "integer":
            schema = {"type": "integer", "minimum": draw(st.integers(-2, 2))}
            if draw(st.booleans()):
                schema["default"] = 2
        case "object":
            schema = _object(draw(st.dictionaries(NAMES, schemas(depth=depth - 1), max_size=3)))
            schema["required"] = sorted(draw(st.sets(NAMES, max_size=2)))
        case "map":
            schema = {"type": "object", "additionalProperties": draw(schemas(depth=depth - 1))}
        case "array":
            schema = {"type": "array", "items": draw(schemas(depth=depth - 1)), "maxItems": draw(st.integers(0, 3))}
        case _:
            schema = {"x-kubernetes-preserve-unknown-fields": True}
    schema["nullable"] = draw(st.booleans())
    return schema


RESOURCES = st.dictionaries(st.sampled_from(["spec", "status", "x"]), schemas(), max_size=3).map(_object)


@LAW
@given(RESOURCES, OBJECTS)
def test_pruning_settles_at_once_and_changes_no_argument(schema: Json, tree: Json) -> None:
    compiled = structural.compile(schema)
    before = copy.deepcopy(tree)
    pruned = compiled.prune(tree)
    assert tree == before
    assert compiled.prune(pruned) is pruned
    assert compiled.unknown_fields(pruned) == []
    assert bool(compiled.unknown_fields(tree)) is (pruned is not tree)


@LAW
@given(RESOURCES, OBJECTS)
def test_defaulting_settles_at_once_and_adds_nothing_unknown(schema: Json, tree: Json) -> None:
    compiled = structural.compile(schema)
    before = copy.deepcopy(tree)
    filled = compiled.default(tree)
    assert tree == before
    assert compiled.default(filled) is filled
    assert set(compiled.unknown_fields(filled)) <= set(compiled.unknown_fields(tree))


@LAW
@given(RESOURCES, OBJECTS, OBJECTS)
def test_an_update_never_finds_more_than_a_create(schema: Json, tree: Json, old: Json) -> None:
    compiled = structural.compile(schema)
    created = compiled.validate(tree)
    assert set(map(str, compiled.validate(tree, old))) <= set(map(str, created))
    unchanged = compiled.validate(tree, tree)
    # What a resource calls itself is never excused; everything else is, if nothing changed.
    assert unchanged == []


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "default", "enum", "anyOf", "allOf", "not", "required", "pattern", "format"),
        *("additionalProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"),
        *("x-kubernetes-validations", "rule", "fieldPath", "maxLength", "nullable", "metadata"),
    ]
)
WORDS = SCALARS | st.sampled_from(
    ["object", "array", "string", "integer", "map", "set", "self == oldSelf", "size(self) > 0"]
)
ODD = st.recursive(WORDS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYWORDS, inner), max_leaves=12)


@LAW
@given(ODD, TREES)
def test_no_schema_however_odd_raises(schema: Json, tree: Json) -> None:
    structural.check_schema(schema)
    compiled = structural.compile(schema)
    compiled.validate(compiled.default(compiled.prune(tree)))


# --- Expressions --------------------------------------------------------------------------------------------------

_SELF = types.ObjectType(
    "object",
    fields={
        "a": types.CelField("a", types.INT),
        "b": types.CelField("b", types.list_of(types.INT)),
        "name": types.CelField("name", types.STRING),
        "x": types.CelField("x", types.DOUBLE),
        "items": types.CelField("items", types.map_of(types.STRING, types.STRING)),
    },
)
VARIABLES = {"self": _SELF, "d": types.DYN}

# How an expression of a type is made: from nothing, and from others. `{bool}` stands for an expression of that type;
# `{bool:n}` for one that may use the loop variable n, an int.
_LEAVES = {
    "bool": ["true", "false", "has(self.a)", "has(self.items.a)", "has(d.a)", "d.a", "d == null"],
    "int": ["0", "1", "-2", "9223372036854775807", "self.a", "self.b[0]", "d.b[0]", "d", "size(self.name)"],
    "double": ["0.5", "-2.0", "self.x", "d.x", "double(self.a)"],
    "string": ["''", "'a'", "self.name", "self.items.a", "self.items['b']", "d.name", "string(self.x)"],
    "list": ["[]", "[1, 2]", "self.b", "d.b", "[self.a]", "d"],
    "dyn": [
        "d",
        "d.a",
        "d[0]",
        "dyn(1)",
        "dyn(1.0)",
        "dyn(2u)",
        "dyn(true)",
        "dyn('a')",
        "null",
        "dyn([1])",
        "dyn(self.b)",
    ],
}
_LARGER = {
    "bool": [
        *("!{bool}", "({bool} && {bool})", "({bool} || {bool})", "({bool} ? {bool} : {bool})"),
        *("({int} < {int})", "({int} == {int})", "({double} >= {int})", "({string} == {string})", "({list} == {list})"),
        *("({dyn} == {dyn})", "({dyn} != {dyn})", "({dyn} < {dyn})", "({int} in {list})", "({string} in self.items)"),
        *("{list}.all(n, {bool:n})", "{list}.exists(n, {bool:n})", "{list}.exists_one(n, {bool:n})"),
        *("{string}.startsWith({string})", "{string}.matches('a|b+')", "self.?a.hasValue()", "({dyn} in {dyn})"),
    ],
    "int": [
        *("({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "-{int}"),
        *(
            "size({list})",
            "size({string})",
            "{list}[{int}]",
            "({bool} ? {int} : {int})",
            "int({double})",
            "int({string})",
        ),
        *("{list}.sum()", "self.?a.orValue({int})", "{list}[?{int}].orValue({int})", "({dyn} + {int})"),
    ],
    "double": ["({double} + {double})", "({double} / {double})", "double({int})", "({bool} ? {double} : {double})"],
    "string": [
        *("({string} + {string})", "string({int})", "string({double})", "{string}.substring({int})"),
        *("{string}.charAt({int})", "({bool} ? {string} : {string})", "{string}.replace({string}, {string})"),
    ],
    "list": [
        *("{list}.map(n, {int:n})", "{list}.filter(n, {bool:n})", "({list} + {list})", "[{int}, {int}]"),
        *(
            "{list}.map(n, {bool:n}, {int:n})",
            "{list}.sort()",
            "{list}.transformList(i, n, {int:n})",
            "{list}.distinct()",
        ),
    ],
    "dyn": [
        "dyn({int})",
        "dyn({double})",
        "dyn({bool})",
        "dyn({string})",
        "dyn({list})",
        "({dyn} + {dyn})",
        "{dyn}[{dyn}]",
    ],
}


@st.composite
def expressions(draw: st.DrawFn, kind: str = "", depth: int = 4, variable: str = "") -> str:
    kind = kind or draw(st.sampled_from(sorted(_LEAVES)))
    leaves = [*_LEAVES[kind], *([variable] if variable and kind == "int" else [])]
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(leaves))
    template = draw(st.sampled_from(_LARGER[kind]))

    def inner(match: re.Match[str]) -> str:
        return draw(expressions(match[1], depth - 1, match[2] or variable))

    return re.sub(r"\{(\w+)(?::(\w+))?\}", inner, template)


EXPRESSIONS = expressions()


def _agree(one: Json, other: Json) -> bool:
    if isinstance(one, cel.CelError) or isinstance(other, cel.CelError):
        return isinstance(one, cel.CelError) and isinstance(other, cel.CelError)
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and repr(one) == repr(other)


WELL_TYPED = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-3, 3),
        "b": st.lists(st.integers(-3, 3), max_size=3),
        "name": st.text(max_size=3),
        "x": st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False),
        "items": st.dictionaries(st.sampled_from("ab"), st.text(max_size=2), max_size=2),
    },
)


@settings(LAW, max_examples=300)
@given(EXPRESSIONS, WELL_TYPED, TREES)
def test_the_compiled_program_and_the_interpreter_agree(expression: str, tree: Json, anything: Json) -> None:
    program = cel.compile(expression, VARIABLES)
    if isinstance(program, cel.Program):
        bindings = {"self": tree, "d": anything}
        fast = program.evaluate(bindings, cel.StepBudget(50_000))
        slow = program.interpret(bindings, cel.StepBudget(50_000))
        assert _agree(fast, slow), (fast, slow)


@settings(LAW, max_examples=300)
@given(EXPRESSIONS, TREES, TREES)
def test_no_evaluation_raises_even_on_data_that_denies_its_types(expression: str, tree: Json, other: Json) -> None:
    program = cel.compile(expression, VARIABLES)
    if isinstance(program, cel.Program):
        program.evaluate({"self": tree, "d": other}, cel.StepBudget(50_000))


@LAW
@given(st.text(alphabet="selfab.?[](){}'\"\\+-*/<>=!&|,:1290 u\n", max_size=30))
def test_no_text_raises(text: str) -> None:
    cel.compile(text, VARIABLES)


@LAW
@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "^", "$", r"\b"]),
        lambda inner: st.one_of(
            st.builds("{}{}".format, inner, inner),
            st.builds("({}|{})".format, inner, inner),
            st.builds("({})*".format, inner),
            st.builds("({})?".format, inner),
            st.builds("({}){{1,2}}".format, inner),
        ),
        max_leaves=6,
    ),
    st.text(alphabet="ab1-", max_size=8),
)
def test_the_linear_engine_agrees_with_a_backtracking_one(pattern: str, text: str) -> None:
    compiled = re2.compile(pattern)
    expected = re.search(pattern, text)
    assert compiled.search(text) is (expected is not None)
    assert (compiled.find(text) is None) is (expected is None)
