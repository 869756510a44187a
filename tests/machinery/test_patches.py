"""Patches: the examples of RFC 7386 and RFC 6902, and what keeps a hostile patch small."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery import patches
from kubemachinery.patches import Fault, PatchError


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_as_rfc_7386_lists_them(target: Any, patch: Any, merged: Any) -> None:
    assert patches.merge(target, patch) == merged


def test_a_merge_patch_leaves_its_target_alone_and_shares_what_it_does_not_touch() -> None:
    target: dict[str, Any] = {"spec": {"a": 1, "deep": {"x": 1}}, "status": {"b": 2}}
    merged = patches.merge(target, {"spec": {"a": 2}})
    assert target == {"spec": {"a": 1, "deep": {"x": 1}}, "status": {"b": 2}}
    assert merged["status"] is target["status"]
    assert merged["spec"]["deep"] is target["spec"]["deep"]


def test_a_merge_patch_is_made_of_what_differs_and_null_for_what_is_gone() -> None:
    before = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2]}
    after = {"b": {"c": 1, "d": 3}, "e": [1, 2, 3], "f": True}
    assert patches.make_merge(before, after) == {"a": None, "b": {"d": 3}, "e": [1, 2, 3], "f": True}
    assert patches.make_merge(before, before) == {}


def test_true_is_not_one() -> None:
    assert not patches.same({"a": [True]}, {"a": [1]})
    assert patches.same({"a": 1, "b": 2.0}, {"b": 2, "a": 1})
    assert patches.make_merge({"a": 1}, {"a": True}) == {"a": True}


@pytest.mark.parametrize(
    ("target", "operation", "patched"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "qux"}, {"foo": "bar", "baz": "qux"}),
        ({"foo": ["a", "b"]}, {"op": "add", "path": "/foo/1", "value": "x"}, {"foo": ["a", "x", "b"]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/-", "value": ["x"]}, {"foo": ["a", ["x"]]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/1", "value": "x"}, {"foo": ["a", "x"]}),
        ({"foo": 1}, {"op": "add", "path": "", "value": [1]}, [1]),
        ({"foo": 1}, {"op": "add", "path": "/foo", "value": None}, {"foo": None}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/1"}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/0", "value": 9}, {"a": [9, 2]}),
        ({"a": {"x": 1}, "b": {}}, {"op": "move", "from": "/a/x", "path": "/b/y"}, {"a": {}, "b": {"y": 1}}),
        ({"a": [1, 2, 3]}, {"op": "move", "from": "/a/0", "path": "/a/2"}, {"a": [2, 3, 1]}),
        ({"a": {"x": 1}}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": {"x": 1}}, {"op": "test", "path": "/a", "value": {"x": 1}}, {"a": {"x": 1}}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": 10}, {"/": 9, "~1": 10}),
        # A null is expected where nothing is, as kube-apiserver reads it.
        ({"a": {}}, {"op": "test", "path": "/a/b", "value": None}, {"a": {}}),
        ({"a": None}, {"op": "test", "path": "/a", "value": None}, {"a": None}),
        ({"": 1}, {"op": "replace", "path": "/", "value": 2}, {"": 2}),
        ({"a": 1}, {"op": "remove", "path": ""}, None),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": ""}, {"b": 1}),
        ({"a": {"b": 1}}, {"op": "copy", "from": "", "path": "/c"}, {"a": {"b": 1}, "c": {"a": {"b": 1}}}),
        ({"a": {"b": 1}, "c": 2}, {"op": "move", "from": "/a", "path": "/a"}, {"a": {"b": 1}, "c": 2}),
        ({"a": [1, 2]}, {"op": "move", "from": "/a/0", "path": "/a/0"}, {"a": [1, 2]}),
    ],
)
def test_each_operation_of_a_json_patch(target: Any, operation: dict[str, Any], patched: Any) -> None:
    assert patches.apply(target, [operation]) == patched


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ({"op": "add", "path": "/x/y", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "add", "path": "/list/5", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "add", "path": "/list/01", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "add", "path": "/text/x", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "remove", "path": "/x"}, Fault.NOT_APPLICABLE),
        ({"op": "remove", "path": "/list/-"}, Fault.NOT_APPLICABLE),
        ({"op": "replace", "path": "/x", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "move", "from": "/x", "path": "/y"}, Fault.NOT_APPLICABLE),
        ({"op": "move", "from": "/x", "path": "/x"}, Fault.NOT_APPLICABLE),
        ({"op": "move", "from": "/map", "path": "/map/inner"}, Fault.NOT_APPLICABLE),
        # Without it, the map that moves up into its place would take it.
        ({"op": "move", "from": "/maps/0", "path": "/maps/0/inner"}, Fault.NOT_APPLICABLE),
        ({"op": "remove", "path": "/text/x"}, Fault.NOT_APPLICABLE),
        ({"op": "test", "path": "/text", "value": "other"}, Fault.TEST_FAILED),
        ({"op": "test", "path": "/one", "value": True}, Fault.TEST_FAILED),
        ({"op": "test", "path": "/one", "value": None}, Fault.TEST_FAILED),
        ({"op": "test", "path": "/x", "value": 1}, Fault.NOT_APPLICABLE),
        ({"op": "test", "path": "/x/y", "value": None}, Fault.NOT_APPLICABLE),
        ({"op": "test", "path": "/list/5", "value": None}, Fault.NOT_APPLICABLE),
        ({"op": "add", "path": "/y"}, Fault.MALFORMED),
        ({"op": "spam", "path": "/y"}, Fault.MALFORMED),
        ({"op": ["add"], "path": "/y"}, Fault.MALFORMED),
        ({"op": "remove"}, Fault.MALFORMED),
        ({"op": "remove", "path": "y"}, Fault.MALFORMED),
        ({"op": "remove", "path": "/~2"}, Fault.MALFORMED),
        ({"op": "add", "path": "/a" * 600, "value": 1}, Fault.MALFORMED),
        ("remove", Fault.MALFORMED),
    ],
)
def test_an_operation_that_cannot_be_applied_is_named_with_its_place(operation: Any, fault: Fault) -> None:
    target = {"list": [1, 2], "text": "t", "map": {"a": 1}, "one": 1, "maps": [{}, {}]}
    with pytest.raises(PatchError) as refusal:
        patches.apply(target, [{"op": "add", "path": "/new", "value": 1}, operation])
    assert refusal.value.fault is fault
    assert refusal.value.index == 1
    if isinstance(operation, dict):
        assert refusal.value.pointer == operation.get("path")
    assert "operation 1" in str(refusal.value)
    assert target == {"list": [1, 2], "text": "t", "map": {"a": 1}, "one": 1, "maps": [{}, {}]}


def test_a_json_patch_shares_what_it_does_not_touch_and_leaves_the_target_alone() -> None:
    target: dict[str, Any] = {"spec": {"list": [{"a": 1}, {"b": 2}]}, "status": {"c": 3}}
    patched = patches.apply(target, [{"op": "replace", "path": "/spec/list/0/a", "value": 9}])
    assert target["spec"]["list"][0] == {"a": 1}
    assert patched["spec"]["list"][1] is target["spec"]["list"][1]
    assert patched["status"] is target["status"]


def test_a_copied_value_and_its_origin_are_two_things() -> None:
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/y", "value": 2},
        {"op": "add", "path": "/b/z", "value": 3},
    ]
    assert patches.apply({"a": {}}, operations) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "z": 3}}


def test_a_value_from_the_patch_is_not_changed_by_later_operations() -> None:
    value: dict[str, Any] = {}
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/a", "value": value},
        {"op": "add", "path": "/a/x", "value": 1},
    ]
    assert patches.apply({}, operations) == {"a": {"x": 1}}
    assert value == {}


def test_a_patch_has_at_most_ten_thousand_operations() -> None:
    operation = {"op": "add", "path": "/a", "value": 1}
    assert patches.apply({}, [operation] * 10_000) == {"a": 1}
    with pytest.raises(PatchError, match="10001 operations"):
        patches.apply({}, [operation] * 10_001)
    with pytest.raises(PatchError, match="a list of operations"):
        patches.apply({}, {"op": "add"})  # type: ignore[arg-type]


def test_copies_of_copies_stop_before_they_fill_the_memory() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/k{i}"} for i in range(60)]
    with pytest.raises(PatchError, match="copies more than"):
        patches.apply({"a": {"text": "x" * 100}}, doubling)


def test_moves_cannot_nest_a_tree_beyond_what_can_be_written() -> None:
    """Each pair hangs everything so far under forty more levels."""
    deep = "/a" * 40
    operations: list[dict[str, Any]] = []
    for _ in range(100):
        tower: dict[str, Any] = {}
        for _ in range(40):
            tower = {"a": tower}
        operations += [
            {"op": "add", "path": "/next", "value": tower},
            {"op": "move", "from": "/top", "path": "/next" + deep + "/b"},
            {"op": "move", "from": "/next", "path": "/top"},
        ]
    with pytest.raises(PatchError, match="nested too deeply"):
        patches.apply({"top": {}}, operations)
    assert "top" in patches.apply({"top": {}}, operations[:36])  # 12 times 41 levels


def test_a_diff_names_what_is_gone_and_what_changed_its_kind() -> None:
    assert patches.make({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}) == [{"op": "remove", "path": "/a/b"}]
    assert patches.make({"a": [1]}, {"a": {"x": 1}}) == [{"op": "replace", "path": "/a", "value": {"x": 1}}]
    assert patches.make({"a": 1}, {"a": [1]}) == [{"op": "replace", "path": "/a", "value": [1]}]


def test_a_diff_of_lists_keeps_what_is_alike_at_both_ends() -> None:
    assert patches.make([1, 2, 3, 4], [1, 9, 3, 4]) == [{"op": "replace", "path": "/1", "value": 9}]
    assert patches.make([1, 2, 3], [1, 2, 5, 3]) == [{"op": "add", "path": "/2", "value": 5}]
    assert patches.make([1, 2, 2], [1, 2]) == [{"op": "remove", "path": "/2"}]
    assert patches.make([1, 2, 3, 9, 4, 5], [1, 7, 8, 4, 5]) == [
        {"op": "replace", "path": "/1", "value": 7},
        {"op": "replace", "path": "/2", "value": 8},
        {"op": "remove", "path": "/3"},
    ]
    assert patches.make([1, 2, 3], [3]) == [{"op": "remove", "path": "/1"}, {"op": "remove", "path": "/0"}]
    assert patches.make({"a/b": {"~": 1}}, {"a/b": {"~": 2}}) == [{"op": "replace", "path": "/a~1b/~0", "value": 2}]
    assert patches.make({"a": 1}, {"a": 1}) == []
