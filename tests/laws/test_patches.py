"""Laws of patches: a patch made from two trees turns the first into the second, and changes neither of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery import patches

keys = st.sampled_from(["a", "b", "c", "", "/", "~", "0", "-"])
scalars = st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
    )


any_tree = trees(st.none() | scalars)
tree_without_null = trees(scalars)


def text(tree: Any) -> bytes:
    """Equality that distinguishes true from 1, as Python's == does not."""
    return msgspec.json.encode(tree, order="sorted")


@given(any_tree, any_tree)
def test_a_json_patch_made_from_two_trees_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    untouched = text(before)
    operations = patches.make(before, after)
    patched = patches.apply(before, operations)
    assert text(patched) == text(after)
    assert text(before) == untouched
    assert (operations == []) == patches.same(before, after)


@given(tree_without_null, tree_without_null)
def test_a_merge_patch_made_from_two_trees_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    untouched = text(before)
    merged = patches.merge(before, patches.make_merge(before, after))
    assert text(merged) == text(after)
    assert text(before) == untouched


@given(any_tree, any_tree)
def test_applying_a_merge_patch_twice_is_applying_it_once(target: Any, patch: Any) -> None:
    once = patches.merge(target, patch)
    assert text(patches.merge(once, patch)) == text(once)


@given(any_tree, any_tree)
def test_sameness_is_having_the_same_sorted_text(a: Any, b: Any) -> None:
    assert patches.same(a, b) is (text(a) == text(b))
    assert patches.same(a, a)


pointers = st.lists(keys, max_size=3).map(lambda parts: patches.pointer(*parts))
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": pointers},
    optional={"from": pointers, "value": any_tree},
)


@given(any_tree, st.lists(operations, max_size=5))
def test_any_operations_give_a_tree_or_a_patch_error_and_leave_the_target_alone(target: Any, given_: list[Any]) -> None:
    before = text(target), text(given_)
    with suppress(patches.PatchError):
        text(patches.apply(target, given_))
    assert (text(target), text(given_)) == before
