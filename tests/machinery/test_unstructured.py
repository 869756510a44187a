"""Reading and changing JSON that was not validated."""

from __future__ import annotations

import copy

import pytest

from kubemachinery import unstructured
from kubemachinery.unstructured import ABSENT

TREE = {"a": {"b": None, "c": 1}, "list": [{"x": 1}, "odd"]}


def test_reading_goes_as_far_as_the_tree_does() -> None:
    assert unstructured.get(TREE, "a", "c") == 1
    assert unstructured.get(TREE, "a", "c", "deeper") is None
    assert unstructured.get("odd", "a") is None


def test_null_is_not_nothing() -> None:
    assert unstructured.find(TREE, ("a", "b")) is None
    assert unstructured.find(TREE, ("a", "z")) is ABSENT


@pytest.mark.parametrize(("value", "read"), [(1, 1), (True, None), (1.0, None), ("1", None), (None, None)])
def test_a_whole_number_is_neither_a_truth_nor_a_fraction(value: object, read: int | None) -> None:
    assert unstructured.integer(value) == read


def test_entries_keep_their_positions_whatever_stands_between() -> None:
    assert list(unstructured.entries({"l": ["odd", {"x": 1}]}, "l")) == [(0, {}), (1, {"x": 1})]
    assert list(unstructured.entries({"l": "odd"}, "l")) == []


def test_changes_make_new_trees_and_share_the_rest() -> None:
    before = copy.deepcopy(TREE)
    changed = unstructured.put(TREE, ("a", "c"), 2)
    assert changed["a"] == {"b": None, "c": 2}
    assert changed["list"] is TREE["list"]
    assert unstructured.put({}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert unstructured.without(TREE, ("a", "c"))["a"] == {"b": None}
    assert unstructured.without(TREE, ("a", "z")) is TREE
    assert unstructured.changed(TREE, ("a", "c"), lambda value: value + 1)["a"]["c"] == 2
    assert unstructured.changed(TREE, ("a", "z"), lambda value: value + 1) is TREE
    assert before == TREE


def test_value_in_the_way_leaves_the_tree_unchanged() -> None:
    assert unstructured.put(TREE, ("list", "x"), 1) is TREE


def test_every_object_of_a_list_is_changed_and_nothing_else() -> None:
    double = unstructured.each(lambda entry: {"x": entry["x"] * 2})
    assert double(TREE["list"]) == [{"x": 2}, "odd"]
    assert double({"x": 1}) == {"x": 1}
