"""JSON of any shape, and sound objects with something wrong somewhere inside."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["-1", "a", "@", "True", "1e999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
json_objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)

# Where to go in a tree: each number chooses the next branch.
routes = st.lists(st.integers(0, 9), min_size=1, max_size=9)


def replaced(tree: Any, route: list[int], value: Any) -> Any:
    """`tree` with `value` in place of what the route leads to; it ends early where there is nowhere to go."""
    if not route or not isinstance(tree, dict | list) or not tree:
        return value
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = keys[route[0] % len(keys)]
    below = replaced(tree[key], route[1:], value)
    if isinstance(tree, dict):
        return {**tree, key: below}
    return [below if index == key else entry for index, entry in enumerate(tree)]
