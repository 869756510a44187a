"""Strategic merge patches, word by word, and as a real kube-apiserver was seen to apply them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubemachinery import patches, strategic_merge
from kubeserver.builtin import decoding, defaults
from kubeserver.builtin_types import schemas

Tree = dict[str, Any]

_TEXT = {"type": "string"}
SCHEMA: Tree = {
    "type": "object",
    "properties": {
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "finalizers": {"type": "array", "items": _TEXT, "x-kubernetes-patch-strategy": "merge"},
        "args": {"type": "array", "items": _TEXT},
        "containers": {
            "type": "array",
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object", "properties": {"name": _TEXT, "image": _TEXT, "cpu": _TEXT}},
        },
    },
}


def containers(*names: str) -> list[Tree]:
    return [{"name": name, "image": "old"} for name in names]


def names(tree: Tree) -> list[str]:
    return [one["name"] for one in tree["containers"]]


def test_items_merge_by_their_key() -> None:
    tree = strategic_merge.merge(
        {"containers": containers("a", "b")}, {"containers": [{"name": "b", "cpu": "1"}]}, SCHEMA
    )
    assert tree["containers"] == [{"name": "a", "image": "old"}, {"name": "b", "image": "old", "cpu": "1"}]


def test_a_new_item_comes_before_the_ones_that_the_patch_does_not_name() -> None:
    tree = strategic_merge.merge({"containers": containers("a")}, {"containers": [{"name": "b"}]}, SCHEMA)
    assert names(tree) == ["b", "a"]


def test_scalar_items_merge_by_value_where_the_schema_requires_it() -> None:
    tree = strategic_merge.merge({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, SCHEMA)
    assert sorted(tree["finalizers"]) == ["a", "b", "c"]


def test_any_other_list_is_replaced() -> None:
    assert strategic_merge.merge({"args": ["a", "b"]}, {"args": ["c"]}, SCHEMA) == {"args": ["c"]}


def test_null_removes() -> None:
    assert strategic_merge.merge({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None}}, SCHEMA) == {
        "labels": {"b": "2"}
    }


def test_an_item_is_deleted_by_its_key() -> None:
    patch = {"containers": [{"$patch": "delete", "name": "a"}]}
    assert names(strategic_merge.merge({"containers": containers("a", "b")}, patch, SCHEMA)) == ["b"]


def test_a_list_is_replaced_on_demand() -> None:
    patch = {"containers": [{"$patch": "replace"}, {"name": "c"}]}
    assert names(strategic_merge.merge({"containers": containers("a", "b")}, patch, SCHEMA)) == ["c"]


def test_a_map_is_replaced_or_emptied_on_demand() -> None:
    assert strategic_merge.merge({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, SCHEMA) == {
        "labels": {"b": "2"}
    }
    assert strategic_merge.merge({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, SCHEMA) == {"labels": {}}


def test_only_the_retained_keys_stay() -> None:
    patch = {"containers": [{"name": "a", "cpu": "1", "$retainKeys": ["name", "cpu"]}]}
    tree = strategic_merge.merge({"containers": containers("a")}, patch, SCHEMA)
    assert tree["containers"] == [{"name": "a", "cpu": "1"}]


def test_the_order_of_items_can_be_set_and_others_keep_their_place_before_the_named() -> None:
    patch = {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}
    assert names(strategic_merge.merge({"containers": containers("a", "b", "c")}, patch, SCHEMA)) == ["b", "c", "a"]


def test_plain_values_are_deleted_from_a_list() -> None:
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"]}
    assert strategic_merge.merge({"finalizers": ["a", "b"]}, patch, SCHEMA) == {"finalizers": ["b"]}


def test_directives_are_removed_from_new_values() -> None:
    patch = {"containers": [{"name": "a", "image": "new", "cpu": None}, {"$patch": "delete", "name": "b"}]}
    assert strategic_merge.merge({}, patch, SCHEMA) == {"containers": [{"name": "a", "image": "new"}]}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ([], "is an object"),
        ({"labels": {"$patch": "shuffle"}}, "shuffle"),
        ({"containers": [{"image": "x"}]}, "without its 'name'"),
        ({"containers": [{"$patch": "delete"}]}, "without its 'name'"),
        ({"containers": [{"$patch": "merge", "name": "a"}]}, "merge"),
        ({"containers": ["a"]}, "items of different types"),
        ({"$retainKeys": "labels"}, "a list of keys"),
        ({"$retainKeys": [], "labels": {}}, "does not list"),
        ({"$setElementOrder/containers": {}}, "is a list"),
        ({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}, "another order"),
        ({"$deleteFromPrimitiveList/finalizers": "a"}, "is a list"),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused_with_the_reason(patch: Any, why: str) -> None:
    live = {"labels": {"a": "1"}, "containers": containers("a"), "finalizers": ["a"]}
    with pytest.raises(patches.PatchError, match=why):
        strategic_merge.merge(live, patch, SCHEMA)


def test_neither_argument_is_changed() -> None:
    live = {"labels": {"a": "1"}, "containers": containers("a", "b")}
    patch = {"labels": {"a": None}, "containers": [{"name": "a", "cpu": "1"}, {"$patch": "delete", "name": "b"}]}
    before = repr((live, patch))
    strategic_merge.merge(live, patch, SCHEMA)
    assert repr((live, patch)) == before


_RECORDED = Path(__file__).parents[1] / "server" / "recorded" / "strategic.jsonl"


_LINES = _RECORDED.read_bytes().splitlines()


@pytest.mark.parametrize("number", range(len(_LINES)))
def test_recorded_patches_come_out_alike(number: int) -> None:
    row = msgspec.json.decode(_LINES[number])
    patched = strategic_merge.merge(row["before"], row["patch"], schemas.inlined("core.v1.PodTemplate"))
    ours = defaults.default("core.v1.PodTemplate", decoding.read("core.v1.PodTemplate", patched))
    assert ours == row["after"]
