"""Structural schemas: what is unknown, what is absent, what is wrong, and what an update may leave alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubemachinery import cel, structural
from kubemachinery.cel.lexer import RESERVED
from kubemachinery.field_errors import ErrorType

Json = Any


def of(spec: dict[str, Json], **further: Json) -> structural.Structural:
    """A resource whose spec has this schema."""
    return structural.compile({"type": "object", "properties": {"spec": spec, **further}})


def thing(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties}


def found(spec_schema: dict[str, Json], value: Json, old: Json = None) -> list[tuple[str, str]]:
    """Paths and sorts of what is wrong with a resource whose spec has one field, `x`."""
    before = None if old is None else {"spec": {"x": old}}
    errors = of(thing(x=spec_schema)).validate({"spec": {"x": value}}, before)
    return [(error.path, error.type.value.removeprefix("FieldValue")) for error in errors]


# --- Unknown fields -----------------------------------------------------------------------------------------------


def test_unknown_fields_are_named_in_order_and_pruned() -> None:
    schema = of(thing(items={"type": "array", "items": thing(name={"type": "string"})}))
    tree = {"spec": {"zzz": 1, "items": [{"name": "a", "extra": {"deep": 1}}]}, "other": {}}
    assert schema.unknown_fields(tree) == ["other", "spec.items[0].extra", "spec.zzz"]
    assert schema.prune(tree) == {"spec": {"items": [{"name": "a"}]}}


def test_pruning_leaves_its_argument_alone_and_shares_what_stays() -> None:
    schema = of(thing(kept=thing(a={"type": "string"}), bare=thing()))
    tree = {"spec": {"kept": {"a": "x"}, "bare": {"b": 1}}}
    before = copy.deepcopy(tree)
    pruned = schema.prune(tree)
    assert tree == before
    assert pruned["spec"]["kept"] is tree["spec"]["kept"]
    assert schema.prune(pruned) is pruned


def test_pruning_keeps_api_version_kind_and_metadata() -> None:
    tree = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", "anything": 1}, "spec": {}}
    schema = of(thing())
    assert schema.prune(tree) is tree
    assert schema.unknown_fields(tree) == []


def test_unknown_fields_are_preserved_only_where_the_schema_allows_it() -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"strict": thing()}}
    tree = {"spec": {"any": {"thing": [1]}, "strict": {"unknown": 1}}}
    assert of(free).prune(tree) == {"spec": {"any": {"thing": [1]}, "strict": {}}}


def test_an_embedded_resource_keeps_its_identity_and_drops_unknown_metadata() -> None:
    inner = {**thing(spec=thing()), "x-kubernetes-embedded-resource": True}
    tree = {
        "spec": {
            "template": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a", "creationTimestamp": None, "zzz": 1},
                "spec": {"b": 1},
            }
        }
    }
    schema = of(thing(template=inner))
    assert schema.unknown_fields(tree) == ["spec.template.metadata.zzz", "spec.template.spec.b"]
    template = schema.prune(tree)["spec"]["template"]
    assert template == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}


def test_embedded_resource_requires_api_version_and_kind() -> None:
    inner = {**thing(spec=thing()), "x-kubernetes-embedded-resource": True}
    assert found(inner, {"kind": "no kind", "metadata": {"name": 5}}) == [
        ("spec.x.apiVersion", "Required"),
        ("spec.x.kind", "Invalid"),
        ("spec.x.metadata.name", "Invalid"),
    ]


# --- Defaults -----------------------------------------------------------------------------------------------------


def test_a_default_goes_only_into_an_object_that_exists() -> None:
    schema = of(thing(a={"type": "integer", "default": 1}, inner=thing(b={"type": "string", "default": "x"})))
    assert schema.default({}) == {}
    assert schema.default({"spec": {}}) == {"spec": {"a": 1}}
    assert schema.default({"spec": {"inner": {}}}) == {"spec": {"a": 1, "inner": {"b": "x"}}}


def test_a_default_may_bring_the_parent_of_another_default() -> None:
    inner = {**thing(b={"type": "string", "default": "x"}), "default": {}}
    assert of(thing(inner=inner)).default({"spec": {}}) == {"spec": {"inner": {"b": "x"}}}


def test_a_null_that_is_no_value_gives_way_to_the_default_or_goes() -> None:
    schema = of(
        thing(
            a={"type": "integer", "default": 1},
            b={"type": "integer"},
            c={"type": "integer", "nullable": True, "default": 1},
            map={"type": "object", "additionalProperties": {"type": "string"}},
        )
    )
    tree = {"spec": {"a": None, "b": None, "c": None, "map": {"k": None}, "unknown": None}}
    assert schema.default(tree) == {"spec": {"a": 1, "c": None, "map": {}, "unknown": None}}


def test_no_two_trees_share_a_default_and_a_complete_tree_comes_back_itself() -> None:
    schema = of(thing(list={"type": "array", "items": {"type": "string"}, "default": ["a"]}))
    one, other = schema.default({"spec": {}}), schema.default({"spec": {}})
    assert one["spec"]["list"] is not other["spec"]["list"]
    assert schema.default(one) is one


# --- Values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "good", "bad", "error_type"),
    [
        ({"type": "string"}, ["", "a"], [1, 1.5, True, None, [], {}], "TypeInvalid"),
        ({"type": "integer"}, [1, 2.0], [1.5, "1", True], "TypeInvalid"),
        ({"type": "number"}, [1, 1.5], ["1", False], "TypeInvalid"),
        ({"type": "boolean"}, [True, False], [0, "true"], "TypeInvalid"),
        ({"type": "array", "items": {"type": "string"}}, [[]], [{}, "a"], "TypeInvalid"),
        ({"type": "object"}, [{}], [[], ""], "TypeInvalid"),
        ({"type": "string", "nullable": True}, [None, "a"], [1], "TypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, [1, "a"], [1.5, True, None], "TypeInvalid"),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", ""], "NotSupported"),
        ({"type": "integer", "enum": [1]}, [1], [2], "NotSupported"),
        ({"type": "string", "nullable": True, "enum": ["a"]}, ["a"], [None], "NotSupported"),
        ({"type": "string", "maxLength": 2}, ["é€"], ["abc"], "TooLong"),
        ({"type": "string", "minLength": 2}, ["ab"], ["a"], "Invalid"),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b", "a\n"], "Invalid"),
        ({"type": "integer", "minimum": 1}, [1], [0], "Invalid"),
        ({"type": "integer", "maximum": 1}, [1], [2], "Invalid"),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [1.1], [1], "Invalid"),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, [0.9], [1.0], "Invalid"),
        ({"type": "integer", "multipleOf": 5}, [10], [11], "Invalid"),
        ({"type": "number", "multipleOf": 0.1}, [0.3], [0.35], "Invalid"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [[1]], [[1, 2]], "TooMany"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [[1]], [[]], "Invalid"),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [[1, 2]], [[1, 1]], "Invalid"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            [{}],
            [{"a": "", "b": ""}],
            "TooMany",
        ),
        (
            {"type": "object", "minProperties": 1, "x-kubernetes-preserve-unknown-fields": True},
            [{"a": 1}],
            [{}],
            "Invalid",
        ),
        (
            {"type": "string", "format": "date-time"},
            ["2024-02-29T23:59:59.5Z", "2024-01-01t00:00:00+01:00"],
            ["2023-02-29T00:00:00Z", "2024-01-01", "2024-01-01T24:00:00Z", "now"],
            "TypeInvalid",
        ),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "2024-1-1"], "TypeInvalid"),
        ({"type": "string", "format": "byte"}, ["aGVsbG8="], ["a", "a b="], "TypeInvalid"),
        ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-A456-426614174000"], ["x"], "TypeInvalid"),
        ({"type": "string", "format": "ipv4"}, ["10.0.0.1"], ["10.0.0.256", "::1"], "TypeInvalid"),
        ({"type": "string", "format": "ipv6"}, ["::1"], ["10.0.0.1", ":::"], "TypeInvalid"),
        ({"type": "string", "format": "cidr"}, ["10.0.0.0/8", "::/0"], ["10.0.0.0/33", "10.0.0.0"], "TypeInvalid"),
        ({"type": "string", "format": "email"}, ["a@b.org"], ["a", "@b"], "TypeInvalid"),
        ({"type": "string", "format": "uri"}, ["https://a.org/b", "/path"], ["a b", ""], "TypeInvalid"),
        ({"type": "string", "format": "hostname"}, ["a.example.com"], ["a_b", "-a"], "TypeInvalid"),
        ({"type": "string", "format": "duration"}, ["1h30m", "5 minutes"], ["soon", ""], "TypeInvalid"),
        ({"type": "string", "format": "mac"}, ["00:00:5e:00:53:01"], ["00:00"], "TypeInvalid"),
        ({"type": "string", "format": "k8s-short-name"}, ["a-b"], ["A", "a.b"], "TypeInvalid"),
        ({"type": "string", "format": "a-remark"}, ["anything"], [], ""),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_keyword_refuses_a_value_with_its_error_type(
    schema: dict[str, Json], good: list[Json], bad: list[Json], error_type: str
) -> None:
    assert [value for value in good if found(schema, value)] == []
    for value in bad:
        assert ("spec.x", error_type) in found(schema, value), value


@pytest.mark.parametrize(
    ("format_", "low", "high"),
    [("int32", -(2**31), 2**31 - 1), ("int64", -(2**63), 2**63 - 1), ("", -(2**63), 2**63 - 1)],
)
def test_an_integer_has_the_range_of_its_format(format_: str, low: int, high: int) -> None:
    schema = {"type": "integer", "format": format_}
    assert found(schema, low) == found(schema, high) == []
    assert len(found(schema, low - 1)) == len(found(schema, high + 1)) == len(found(schema, 1e30)) == 1


def test_paths_are_spelt_as_kubernetes_spells_them() -> None:
    leaf = {"type": "string", "maxLength": 1}
    schema = of(
        {
            **thing(
                list={"type": "array", "items": thing(leaf=leaf)},
                labels={"type": "object", "additionalProperties": leaf},
            ),
            "required": ["name"],
        }
    )
    errors = schema.validate({"spec": {"list": [{}, {"leaf": "xx"}], "labels": {"a/b": "xx"}}})
    assert [error.path for error in errors] == ["spec.list[1].leaf", "spec.labels.a/b", "spec.name"]
    assert str(errors[2]) == "spec.name: Required value"


def test_all_errors_are_reported_once() -> None:
    schema = {"type": "string", "maxLength": 1, "enum": ["a"], "allOf": [{"maxLength": 1}]}
    assert found(schema, "bb") == [("spec.x", "TooLong"), ("", "Invalid"), ("spec.x", "NotSupported")]


def test_alternatives() -> None:
    one = {"required": ["a"]}
    other = {"required": ["b"]}
    shape = thing(a={"type": "string"}, b={"type": "string"})
    both = {"a": "", "b": ""}
    neither: dict[str, str] = {}
    assert found({**shape, "anyOf": [one, other]}, both) == []
    # As with kube-apiserver, the summary has no field, and the nearest alternative names what it misses.
    assert found({**shape, "anyOf": [one, other]}, neither) == [("", "Invalid"), ("spec.x.a", "Required")]
    assert found({**shape, "oneOf": [one, other]}, {"a": ""}) == []
    assert found({**shape, "oneOf": [one, other]}, both) == [("", "Invalid")]
    assert found({**shape, "not": one}, {"b": ""}) == []
    assert found({**shape, "not": one}, {"a": ""}) == [("", "Invalid")]
    assert found({**shape, "allOf": [one, other]}, {"a": ""}) == [("spec.x.b", "Required"), ("", "Invalid")]


def test_the_usual_spelling_of_int_or_string() -> None:
    schema = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^[0-9]+$",
    }
    assert found(schema, 5) == found(schema, "5") == []
    assert found(schema, "five") == [("spec.x", "Invalid")]


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        (["a", "b"], []),
        (["a", "b", "a", "a"], [("spec.x[2]", "Duplicate")]),
        (["b", "b", "a", "a"], [("spec.x[1]", "Duplicate"), ("spec.x[3]", "Duplicate")]),
    ],
)
def test_a_set_has_no_value_twice(value: list[str], errors: list[tuple[str, str]]) -> None:
    assert found({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, value) == errors


def test_a_map_has_no_key_twice_and_shows_the_key() -> None:
    schema = {
        "type": "array",
        "items": thing(name={"type": "string"}, port={"type": "integer"}, other={"type": "string"}),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name", "port"],
    }
    same_name = [{"name": "a", "port": 1}, {"name": "a", "port": 2}]
    assert found(schema, same_name) == []
    errors = of(thing(x=schema)).validate({"spec": {"x": [*same_name, {"name": "a", "port": 1, "other": "o"}]}})
    assert [str(error) for error in errors] == ['spec.x[2]: Duplicate value: {"name":"a","port":1}']


# --- Updates ------------------------------------------------------------------------------------------------------

SHORT = {"type": "string", "maxLength": 1}


def test_an_update_may_leave_alone_what_was_invalid_and_nothing_else() -> None:
    schema = of(thing(a=SHORT, b=SHORT))
    old = {"spec": {"a": "too long"}}
    assert schema.validate({"spec": {"a": "too long", "b": "b"}}, old) == []
    changed = schema.validate({"spec": {"a": "too long too", "b": "too long"}}, old)
    assert [error.path for error in changed] == ["spec.a", "spec.b"]


def test_items_are_left_alone_by_their_key_and_otherwise_only_with_their_whole_list() -> None:
    keyed = {
        "type": "array",
        "items": thing(name={"type": "string"}, value=SHORT),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    bad = {"name": "bad", "value": "too long"}
    new = {"name": "new", "value": "x"}
    assert found(keyed, [new, bad], old=[bad]) == []
    assert found(keyed, [{**bad, "name": "renamed"}], old=[bad]) == [("spec.x[0].value", "TooLong")]
    atomic = {"type": "array", "items": keyed["items"]}
    assert found(atomic, [bad], old=[bad]) == []
    assert found(atomic, [bad, new], old=[bad]) == [("spec.x[0].value", "TooLong")]


def test_true_is_no_continuation_of_one() -> None:
    assert found({"type": "string"}, True, old=1) == [("spec.x", "TypeInvalid")]


def test_a_branch_that_only_failed_before_counts_as_fulfilled() -> None:
    schema = {**thing(a=SHORT, b=SHORT), "allOf": [{"properties": {"a": {"pattern": "^x$"}}}]}
    assert found(schema, {"a": "y", "b": "b"}, old={"a": "y"}) == []


def test_old_duplicates_excuse_new_ones() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    assert found(schema, ["a", "a", "b"], old=["a", "a"]) == []
    assert found(schema, ["a", "a"], old=["a"]) == [("spec.x[1]", "Duplicate")]


# --- Rules --------------------------------------------------------------------------------------------------------


def ruled(schema: dict[str, Json], *rules: str | dict[str, Json]) -> dict[str, Json]:
    entries = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": entries}


def errors_of(schema: dict[str, Json], value: Json, old: Json = None) -> list[str]:
    before = None if old is None else {"spec": {"x": old}}
    return [str(error) for error in of(thing(x=schema)).validate({"spec": {"x": value}}, before)]


def test_rule_is_evaluated_on_its_value() -> None:
    schema = ruled({"type": "integer"}, {"rule": "self % 2 == 0", "message": "must be even"})
    assert errors_of(schema, 4) == []
    assert errors_of(schema, 3) == ["spec.x: Invalid value: 3: must be even"]
    assert errors_of({"type": "object", "additionalProperties": schema}, {"a/b": 3}) == [
        "spec.x[a/b]: Invalid value: 3: must be even"
    ]
    assert errors_of({"type": "array", "items": schema}, [2, 3]) == ["spec.x[1]: Invalid value: 3: must be even"]


def test_a_rule_without_a_message_shows_itself() -> None:
    assert errors_of(ruled(thing(), "false"), {}) == ["spec.x: Invalid value: failed rule: false"]


def test_message_expression_replaces_the_message() -> None:
    schema = ruled({"type": "integer"}, {"rule": "self < 10", "messageExpression": "string(self) + ' is not below 10'"})
    assert errors_of(schema, 12) == ["spec.x: Invalid value: 12: 12 is not below 10"]
    broken = {"rule": "self < 10", "message": "too large", "messageExpression": "string(self / 0)"}
    assert errors_of(ruled({"type": "integer"}, broken), 12) == ["spec.x: Invalid value: 12: too large"]


@pytest.mark.parametrize(
    ("reason", "error_type"),
    [
        ("FieldValueRequired", ErrorType.REQUIRED),
        ("FieldValueForbidden", ErrorType.FORBIDDEN),
        ("FieldValueInvalid", ErrorType.INVALID),
        ("FieldValueDuplicate", ErrorType.DUPLICATE),
    ],
)
def test_a_rule_names_the_type_and_the_field_of_its_error(reason: str, error_type: ErrorType) -> None:
    rule = {"rule": "has(self.a.b)", "reason": reason, "fieldPath": ".a['b']"}
    schema = of(thing(x=ruled(thing(a=thing(b={"type": "string"})), rule)))
    errors = schema.validate({"spec": {"x": {"a": {}}}})
    assert [(error.path, error.type) for error in errors] == [("spec.x.a.b", error_type)]


def test_a_rule_that_fails_to_evaluate_is_an_error_too() -> None:
    assert errors_of(ruled(thing(a={"type": "integer"}), "self.a > 1"), {}) == [
        'spec.x: Invalid value: "object": no such key: a evaluating rule: self.a > 1'
    ]


def test_transition_rule_is_evaluated_only_on_updates() -> None:
    schema = ruled({"type": "string"}, {"rule": "self == oldSelf", "message": "must not change"})
    assert errors_of(schema, "a") == []
    assert errors_of(schema, "a", old="a") == []
    assert errors_of(schema, "b", old="a") == ['spec.x: Invalid value: "b": must not change']


def test_a_rule_is_compiled_for_the_first_value_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compiling(text: str, *types: Any, **options: Any) -> Any:
        compiled.append(text)
        return compile_(text, *types, **options)

    compile_ = cel.compile
    monkeypatch.setattr(cel, "compile", compiling)
    schema = of(thing(a=ruled({"type": "integer"}, "self > 1"), b=ruled({"type": "integer"}, "self > 2")))
    assert [error.path for error in schema.validate({"spec": {"a": 0}})] == ["spec.a"]
    assert compiled == ["self > 1"]
    assert [error.path for error in schema.validate({"spec": {"a": 0, "b": 0}})] == ["spec.a", "spec.b"]
    assert compiled == ["self > 1", "self > 2"]


def test_a_rule_about_a_change_finds_the_old_item_by_key() -> None:
    item = thing(name={"type": "string"}, size=ruled({"type": "integer"}, "self >= oldSelf"))
    schema = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    old = [{"name": "a", "size": 5}, {"name": "b", "size": 1}]
    new = [{"name": "b", "size": 2}, {"name": "c", "size": 0}, {"name": "a", "size": 4}]
    assert errors_of(schema, new, old) == ["spec.x[2].size: Invalid value: 4: failed rule: self >= oldSelf"]


def test_a_rule_may_do_without_an_old_value() -> None:
    rule = {"rule": "oldSelf.hasValue() ? self == oldSelf.value() : self == 'first'", "optionalOldSelf": True}
    schema = ruled({"type": "string"}, rule)
    assert errors_of(schema, "first") == []
    assert len(errors_of(schema, "second")) == 1
    assert errors_of(schema, "kept", old="kept") == []
    assert len(errors_of(schema, "first", old="kept")) == 1


def test_a_rule_is_not_held_against_what_an_update_left_alone() -> None:
    schema = ruled({"type": "array", "items": ruled({"type": "integer"}, "self > 0")}, "size(self) < 3")
    assert errors_of(schema, [0, 0, 0], old=[0, 0, 0]) == []
    assert len(errors_of(schema, [0, 0, 1], old=[0, 0, 0])) == 3


def test_rules_are_not_evaluated_on_an_invalid_object() -> None:
    schema = of(thing(x=ruled(thing(a={"type": "integer"}), "self.a > 1"), y={"type": "string"}))
    errors = schema.validate({"spec": {"x": {"a": 0}, "y": 5}})
    assert [(error.path, error.type) for error in errors] == [
        ("spec.y", ErrorType.TYPE_INVALID),
        ("", ErrorType.INVALID),
    ]


def test_rules_of_a_resource_see_its_name_and_little_more_of_its_metadata() -> None:
    root = ruled({"type": "object", "properties": {}}, "self.metadata.name.startsWith('a') && self.kind == 'Thing'")
    schema = structural.compile(root)
    assert schema.validate({"kind": "Thing", "metadata": {"name": "abc"}}) == []
    assert len(schema.validate({"kind": "Thing", "metadata": {"name": "xyz"}})) == 1
    assert structural.check_schema(ruled({"type": "object"}, "has(self.metadata.labels)")) != []


def test_names_that_cel_cannot_spell_are_escaped() -> None:
    schema = ruled(
        {
            "type": "object",
            "properties": {name: {"type": "integer"} for name in ("namespace", "a.b", "a-b", "a/b", "a__b")},
        },
        "self.__namespace__ + self.a__dot__b + self.a__dash__b + self.a__slash__b + self.a__underscores__b == 15",
    )
    assert errors_of(schema, {"namespace": 1, "a.b": 2, "a-b": 3, "a/b": 4, "a__b": 5}) == []


@pytest.mark.parametrize("word", sorted(RESERVED - {"true", "false", "null", "in"}))
def test_reserved_words_may_be_selected_as_they_are(word: str) -> None:
    """Since Kubernetes 1.31; the escaped spelling still works, and the property has one meaning."""
    schema = ruled(
        {"type": "object", "properties": {word: {"type": "integer"}}},
        f"has(self.{word}) && self.{word} == 1 && self.__{word}__ == self.{word}",
    )
    assert errors_of(schema, {word: 1}) == []
    assert len(errors_of(schema, {word: 2})) == 1
    assert len(errors_of(schema, {})) == 1


@pytest.mark.parametrize("word", ["true", "false", "null", "in"])
def test_words_that_are_tokens_need_the_escape(word: str) -> None:
    properties = {"type": "object", "properties": {word: {"type": "integer"}}}
    assert structural.check_schema(ruled(properties, f"self.{word} == 1")) != []
    assert errors_of(ruled(properties, f"self.__{word}__ == 1"), {word: 1}) == []


def test_reserved_word_is_no_field_where_the_schema_has_none() -> None:
    assert structural.check_schema(ruled({"type": "object"}, "self.namespace == 'a'")) != []


def test_rules_that_would_take_for_ever_end_with_an_error() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    schema = ruled(numbers, "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", "false")
    messages = errors_of(schema, list(range(2_000)))
    assert len(messages) == 1
    assert "too many steps" in messages[0]


def test_the_steps_of_one_object_are_bounded_together() -> None:
    inner = ruled({"type": "array", "items": {"type": "integer"}}, "self.all(a, self.all(b, a + b >= 0))")
    messages = errors_of({"type": "array", "items": inner}, [list(range(300))] * 40)
    assert len(messages) == 1
    assert "too many steps" in messages[0]


# --- Odd trees ----------------------------------------------------------------------------------------------------


def test_a_tree_nested_beyond_measure_is_refused() -> None:
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    free = {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}, "x-kubernetes-list-type": "set"}
    assert [error.type for error in of(thing(x=free)).validate({"spec": {"x": [deep, deep]}})] == [ErrorType.INVALID]


# --- Schemas that cannot be served --------------------------------------------------------------------------------

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("spec", "path", "error_type"),
    [
        ({}, "type", "Required"),
        ({"type": "strnig"}, "type", "NotSupported"),
        ({"type": "null"}, "type", "Forbidden"),
        ({"type": 5}, "type", "TypeInvalid"),
        ({"type": "array"}, "items", "Required"),
        ({"type": "object", "properties": []}, "properties", "TypeInvalid"),
        ({"type": "object", "properties": {"a": {}}}, "properties[a].type", "Required"),
        (
            {"type": "object", "properties": {"a": STRING}, "additionalProperties": STRING},
            "additionalProperties",
            "Forbidden",
        ),
        ({"type": "string", "pattern": "("}, "pattern", "Invalid"),
        ({"type": "string", "pattern": "(?=a)"}, "pattern", "Invalid"),
        ({"type": "string", "$ref": "#/x"}, "$ref", "Forbidden"),
        ({"type": "object", "patternProperties": {"a": STRING}}, "patternProperties", "Forbidden"),
        ({"type": "array", "items": STRING, "uniqueItems": True}, "uniqueItems", "Forbidden"),
        ({"type": "object", "anyOf": [{"type": "object"}]}, "anyOf[0].type", "Forbidden"),
        ({"type": "object", "not": {"properties": {"a": {"default": 1}}}}, "not.properties[a].default", "Forbidden"),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            "x-kubernetes-preserve-unknown-fields",
            "Invalid",
        ),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            "x-kubernetes-preserve-unknown-fields",
            "Invalid",
        ),
        ({"type": "string", "x-kubernetes-embedded-resource": True}, "type", "Invalid"),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, "properties", "Required"),
        ({"type": "string", "x-kubernetes-list-type": "set"}, "type", "Invalid"),
        ({"type": "array", "items": STRING, "x-kubernetes-list-type": "bag"}, "x-kubernetes-list-type", "NotSupported"),
        ({"type": "array", "items": STRING, "x-kubernetes-list-map-keys": ["a"]}, "x-kubernetes-list-type", "Required"),
        (
            {"type": "array", "items": thing(), "x-kubernetes-list-type": "map"},
            "x-kubernetes-list-map-keys",
            "Required",
        ),
        (
            {"type": "array", "items": thing(), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
            "x-kubernetes-list-map-keys",
            "Invalid",
        ),
        (
            {
                "type": "array",
                "items": thing(a=STRING),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a"],
            },
            "items.properties[a].default",
            "Required",
        ),
        (
            {"type": "array", "items": thing(), "x-kubernetes-list-type": "set"},
            "items.x-kubernetes-map-type",
            "Invalid",
        ),
        (
            {"type": "array", "items": {**STRING, "nullable": True}, "x-kubernetes-list-type": "set"},
            "items.nullable",
            "Forbidden",
        ),
        ({"type": "string", "x-kubernetes-map-type": "atomic"}, "type", "Invalid"),
        ({"type": "object", "x-kubernetes-map-type": "loose"}, "x-kubernetes-map-type", "NotSupported"),
        ({"type": "integer", "default": "a"}, "default", "TypeInvalid"),
        ({"type": "object", "default": {"a": 1}}, "default", "Invalid"),
        ({**thing(a={"type": "integer"}), "default": {"a": "x"}}, "default.a", "TypeInvalid"),
        (ruled({"type": "integer", "default": 5}, "self < 5"), "default", "Invalid"),
        (ruled(thing(), ""), "x-kubernetes-validations[0].rule", "Required"),
        (ruled(thing(), "self.a == 1"), "x-kubernetes-validations[0].rule", "Invalid"),
        (ruled(thing(), "size(self)"), "x-kubernetes-validations[0].rule", "Invalid"),
        (
            ruled(thing(), {"rule": "true", "messageExpression": "5"}),
            "x-kubernetes-validations[0].messageExpression",
            "Invalid",
        ),
        (ruled(thing(), {"rule": "true", "reason": "Because"}), "x-kubernetes-validations[0].reason", "NotSupported"),
        (ruled(thing(), {"rule": "true", "fieldPath": ".a"}), "x-kubernetes-validations[0].fieldPath", "Invalid"),
        (ruled(thing(), {"rule": "true", "message": "a\nb"}), "x-kubernetes-validations[0].message", "Invalid"),
        (
            ruled(thing(), {"rule": "true", "optionalOldSelf": True}),
            "x-kubernetes-validations[0].optionalOldSelf",
            "Invalid",
        ),
        (
            {"type": "array", "items": ruled(STRING, "self == oldSelf")},
            "items.x-kubernetes-validations[0].rule",
            "Invalid",
        ),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, dict) else "",
)
def test_a_schema_that_cannot_be_served_is_refused_with_its_path(
    spec: dict[str, Json], path: str, error_type: str
) -> None:
    errors = structural.check_schema({"type": "object", "properties": {"spec": spec}})
    assert [(error.path, error.type.value) for error in errors][:1] == [
        (f"openAPIV3Schema.properties[spec].{path}", f"FieldValue{error_type}")
    ]


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ([], ""),
        ({}, ".type"),
        ({"type": "string"}, ".type"),
        ({"type": "object", "additionalProperties": True}, ".additionalProperties"),
        ({"type": "object", "nullable": True}, ".nullable"),
        ({"type": "object", "properties": {"kind": {"type": "integer"}}}, ".properties[kind].type"),
        ({"type": "object", "properties": {"metadata": thing(labels={"type": "object"})}}, ".properties[metadata]"),
        ({"type": "object", "properties": {"kind": {**STRING, "default": "a"}}}, ".properties[kind].default"),
        ({"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]}, ".properties[a]"),
    ],
)
def test_the_root_of_a_resource_is_an_object_with_an_identity(root: Json, path: str) -> None:
    errors = structural.check_schema(root)
    assert errors[0].path == f"openAPIV3Schema{path}"


def test_a_whole_schema_that_can_be_served() -> None:
    spec = ruled(
        thing(
            name={"type": "string", "maxLength": 63, "pattern": "^[a-z]+$", "default": "main"},
            replicas={"type": "integer", "format": "int32", "minimum": 0},
            port={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            labels={"type": "object", "additionalProperties": {"type": "string"}},
            items={
                "type": "array",
                "items": {**thing(key=STRING), "required": ["key"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["key"],
            },
        ),
        {"rule": "!has(self.replicas) || self.replicas < 10", "message": "must be less than 10"},
        "has(self.name) == has(oldSelf.name)",
    )
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}}
    schema = {"type": "object", "required": ["spec"], "properties": {"metadata": metadata, "spec": spec}}
    assert structural.check_schema(schema) == []
    compiled = structural.compile(schema)
    tree = compiled.default(compiled.prune({"spec": {"replicas": 3, "zzz": 1}}))
    assert tree == {"spec": {"replicas": 3, "name": "main"}}
    assert compiled.validate(tree) == []
