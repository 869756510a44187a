"""Selectors: what they select, how they are spelt, what is wrong with them, and when two of them meet."""

from __future__ import annotations

import pytest

from kubemachinery import selectors
from kubemachinery.field_errors import ErrorType
from kubemachinery.meta import LabelSelector, LabelSelectorRequirement
from kubemachinery.selectors import Operator, Requirement, Selector, SelectorError


def demand(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.compile(None).matches({"a": "b"})
    assert selectors.compile(LabelSelector()).matches({"a": "b"})
    assert selectors.compile(LabelSelector()).matches({})


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (demand("a", "In", "x", "y"), {"a": "y"}, True),
        (demand("a", "In", "x"), {}, False),
        (demand("a", "In", ""), {"a": ""}, True),
        (demand("a", "NotIn", "x"), {"a": "y"}, True),
        (demand("a", "NotIn", "x"), {"a": "x"}, False),
        (demand("a", "NotIn", "x"), {}, True),
        (demand("a", "Exists"), {"a": ""}, True),
        (demand("a", "Exists"), {"b": "x"}, False),
        (demand("a", "DoesNotExist"), {"b": "x"}, True),
        (demand("a", "DoesNotExist"), {"a": "x"}, False),
        (demand("a", "Resembles", "x"), {"a": "x"}, False),
    ],
)
def test_each_operator_of_a_selector_object(selector: LabelSelector, labels: dict[str, str], selected: bool) -> None:
    assert selectors.compile(selector).matches(labels) is selected


def test_all_demands_must_hold() -> None:
    both = LabelSelector(
        match_labels={"a": "x"}, match_expressions=(LabelSelectorRequirement(key="b", operator="Exists"),)
    )
    assert selectors.compile(both).matches({"a": "x", "b": "y"})
    assert not selectors.compile(both).matches({"a": "x"})
    assert not selectors.compile(both).matches({"b": "y"})


@pytest.mark.parametrize(
    ("found", "selected"), [("3", True), ("2", False), ("x", False), (None, False), ("99999999999999999999", False)]
)
def test_gt_and_lt_compare_whole_numbers_of_64_bits(found: str | None, selected: bool) -> None:
    labels = {} if found is None else {"a": found}
    assert selectors.parse("a>2").matches(labels) is selected
    assert selectors.parse("a<4,a>2").matches(labels) is selected


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", ()),
        ("  ", ()),
        ("a=b", [("a", "In", ("b",))]),
        ("a == b", [("a", "In", ("b",))]),
        ("a!=b", [("a", "NotIn", ("b",))]),
        ("a in (x,y)", [("a", "In", ("x", "y"))]),
        ("a in ( x , y ) ", [("a", "In", ("x", "y"))]),
        ("a notin (x)", [("a", "NotIn", ("x",))]),
        ("a", [("a", "Exists", ())]),
        ("!a", [("a", "DoesNotExist", ())]),
        ("! a", [("a", "DoesNotExist", ())]),
        ("a=", [("a", "In", ("",))]),
        ("a in (,x)", [("a", "In", ("", "x"))]),
        ("a in ()", [("a", "In", ("",))]),
        ("a=in", [("a", "In", ("in",))]),
        ("a>1,b<2", [("a", "Gt", ("1",)), ("b", "Lt", ("2",))]),
        ("x.io/a=b,!c", [("x.io/a", "In", ("b",)), ("c", "DoesNotExist", ())]),
    ],
)
def test_the_text_form(text: str, requirements: list[tuple[str, str, tuple[str, ...]]]) -> None:
    assert selectors.parse(text) == Selector(tuple(Requirement(*r) for r in requirements))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=b,", "at character 5: found the end instead of a key"),
        (",a", "at character 1: found ','"),
        ("a b", "at character 3: found 'b' instead of an operator"),
        ("a in x", "at character 6: found 'x' instead of '('"),
        ("a in (x", "found the end instead of ',' or ')'"),
        ("a=b c", "found 'c' instead of ',' or the end"),
        ("in in (x)", "found 'in' instead of a key"),
        ("!", "found the end instead of a key"),
        ("a=b=c", "found '='"),
        ("a>x", "'a': operator Gt needs exactly one whole number"),
        ("-a=b", "'-a': the name must be letters"),
        ("a=-b", "'a': must be letters"),
    ],
)
def test_a_text_that_is_no_selector_is_refused_at_its_place(text: str, words: str) -> None:
    with pytest.raises(SelectorError) as refusal:
        selectors.parse(text)
    assert words in str(refusal.value)


def test_selector_errors_have_their_field() -> None:
    tree = {
        "matchLabels": {"good": "x", "bad key": "x", "value": "not good"},
        "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Gt", "values": ["1"]},
            {"key": "/", "operator": "NotIn", "values": ["x", "_"]},
            {"key": "a", "operator": "Exists"},
        ],
    }
    errors = [(error.path, error.type) for error in selectors.check(tree, "spec.selector")]
    assert errors == [
        ("spec.selector.matchLabels", ErrorType.INVALID),
        ("spec.selector.matchLabels[value]", ErrorType.INVALID),
        ("spec.selector.matchExpressions[0].values", ErrorType.REQUIRED),
        ("spec.selector.matchExpressions[1].values", ErrorType.FORBIDDEN),
        ("spec.selector.matchExpressions[2].operator", ErrorType.NOT_SUPPORTED),
        ("spec.selector.matchExpressions[3].key", ErrorType.INVALID),
        ("spec.selector.matchExpressions[3].key", ErrorType.INVALID),
        ("spec.selector.matchExpressions[3].values[1]", ErrorType.INVALID),
    ]
    assert selectors.check(None, "spec.selector") == ()
    assert selectors.check({}, "spec.selector") == ()


@pytest.mark.parametrize(
    "tree",
    [
        "x",
        {"matchLabels": []},
        {"matchLabels": {"a": 1}},
        {"matchExpressions": {}},
        {"matchExpressions": ["x"]},
        {"matchExpressions": [{"key": 1}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]},
    ],
)
def test_selector_of_the_wrong_type_is_an_error_and_does_not_raise(tree: object) -> None:
    assert [error.type for error in selectors.check(tree, "s")] == [ErrorType.TYPE_INVALID]


@pytest.mark.parametrize(
    ("a", "b", "together"),
    [
        (LabelSelector(), LabelSelector(), True),
        (None, LabelSelector(), False),
        (LabelSelector(match_labels={"t": "a"}), LabelSelector(match_labels={"t": "b"}), False),
        (LabelSelector(match_labels={"t": "a"}), LabelSelector(match_labels={"u": "b"}), True),
        (demand("t", "In", "a", "b"), demand("t", "NotIn", "a"), True),
        (demand("t", "In", "a"), demand("t", "NotIn", "a"), False),
        (demand("t", "Exists"), demand("t", "DoesNotExist"), False),
        (demand("t", "NotIn", "a"), demand("t", "DoesNotExist"), True),
        (demand("t", "NotIn", "a"), demand("t", "Exists"), True),
        (demand("t", "In", "a"), demand("t", "DoesNotExist"), False),
        (demand("t", "In"), LabelSelector(), False),
    ],
)
def test_two_selectors_overlap_when_some_labels_satisfy_both(
    a: LabelSelector | None, b: LabelSelector | None, together: bool
) -> None:
    assert selectors.overlaps(a, b) is together
    assert selectors.overlaps(b, a) is together


@pytest.mark.parametrize(
    ("text", "satisfiable"),
    [
        ("a>5,a<7", True),
        ("a>5,a<6", False),
        ("a>5,a<7,a!=6", True),  # 06 is a number too
        ("a<0", False),  # no label value starts with a minus
        ("a>9223372036854775807", False),
        ("a>5,!a", False),
        ("a>5,a in (x,9)", True),
        ("a>5,a in (x,3)", False),
    ],
)
def test_overlap_considers_numbers(text: str, satisfiable: bool) -> None:
    assert selectors.parse(text).overlaps(selectors.EVERYTHING) is satisfiable


def test_every_spelling_of_a_number_can_be_forbidden() -> None:
    spellings = tuple("6".zfill(width) for width in range(1, 64))
    six = selectors.parse("a>5,a<7")
    assert not six.overlaps(Selector((Requirement("a", Operator.NOT_IN, spellings),)))
    assert six.overlaps(Selector((Requirement("a", Operator.NOT_IN, spellings[1:]),)))


def test_a_selector_of_exact_labels() -> None:
    assert selectors.exactly({"a": "x"}).matches({"a": "x", "b": "y"})
    assert not selectors.exactly({"a": "x"}).matches({"a": "z"})


def test_field_selectors_compare_fields_and_take_an_absent_one_for_empty() -> None:
    selector = selectors.parse_fields("metadata.name=a,spec.node!=b,status.phase==,")
    assert selector.matches({"metadata.name": "a"})
    assert not selector.matches({"metadata.name": "a", "spec.node": "b"})
    assert not selector.matches({"metadata.name": "a", "status.phase": "Running"})
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("spec.node") is None
    assert selectors.parse_fields("").matches({})


def test_a_backslash_in_a_field_selector_keeps_commas_and_equals_signs_in_the_value() -> None:
    (requirement,) = selectors.parse_fields(r"a=x\,y\=z\\").requirements
    assert requirement == ("a", "x,y=z\\", True)


@pytest.mark.parametrize("text", ["a", "a=b=c", "a=\\x", "a=b\\", "a=b,c"])
def test_a_text_that_is_no_field_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        selectors.parse_fields(text)
