"""What holds for all strategic merge patches."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import patching
from kubemachinery import patches, strategic_merge
from kubeserver.builtin_types import schemas
from laws.json_trees import json_objects, json_values

SCHEMA = schemas.inlined("core.v1.PodTemplate")
seeds = st.integers(0, 10_000)


@settings(max_examples=60)
@given(seeds)
def test_a_patch_of_nothing_changes_nothing(seed: int) -> None:
    tree = patching.pod_template("one", seed)
    assert strategic_merge.merge(tree, {}, SCHEMA) == tree


@settings(max_examples=60)
@given(seeds)
def test_an_object_patched_with_itself_stays(seed: int) -> None:
    tree = patching.pod_template("one", seed)
    assert strategic_merge.merge(tree, tree, SCHEMA) == tree


@settings(max_examples=100)
@given(seeds, seeds)
def test_no_list_has_an_item_twice_and_no_word_of_a_patch_is_left(seed: int, other: int) -> None:
    tree: Any = patching.pod_template("one", seed)
    for patch in patching.patches(other, 3):
        try:
            tree = strategic_merge.merge(tree, patch, SCHEMA)
        except patches.PatchError:
            continue
        spec = tree["template"]["spec"]
        for field, key in (("containers", "name"), ("volumes", "name"), ("hostAliases", "ip")):
            names = [item[key] for item in spec.get(field) or ()]
            assert len(names) == len(set(names))
        assert len(tree["metadata"].get("finalizers", ())) == len(set(tree["metadata"].get("finalizers", ())))
        assert "$patch" not in spec
        assert not [key for key in spec if key.startswith("$")]


@given(json_objects, json_values)
def test_any_json_is_a_patch_or_is_refused(tree: dict[str, Any], patch: Any) -> None:
    before = repr((tree, patch))
    with contextlib.suppress(patches.PatchError):
        strategic_merge.merge(tree, patch, SCHEMA)
    assert repr((tree, patch)) == before
