"""What holds for field ownership whatever is applied: sets of paths are sets, and appliers own what they apply."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import ownership
from contracts.ownership import SequenceGenerator
from kubeserver.apply import Applied, ApplyTarget, Shape, apply, paths, track_update, values

Tree = dict[str, Any]

SHAPE = Shape.of(ownership.SCHEMA)
TARGET = ApplyTarget(ownership.API_VERSION, {ownership.API_VERSION: SHAPE})
NOW = "2026-01-01T00:00:00Z"

_ELEMENTS = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'v:"y"', "i:0"])
_PATHS = st.lists(st.lists(_ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=8)


def path_set(members: list[tuple[str, ...]]) -> paths.PathSet:
    """The set of these paths, built the long way."""
    out: paths.PathSet = {}
    for member in members:
        branch: paths.PathSet = {}
        for element in reversed(member):
            branch = {element: branch}
        out = paths.union(out, branch)
    return out


def members(tree: paths.PathSet, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    out = set()
    for element, node in tree.items():
        if element == paths.SELF:
            continue
        if paths.is_member(node):
            out.add((*prefix, element))
        out |= members(node, (*prefix, element))
    return out


def is_in_order(tree: paths.PathSet) -> bool:
    return list(tree) == sorted(tree) and all(map(is_in_order, tree.values()))


@given(_PATHS, _PATHS)
def test_the_operations_are_those_of_sets(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> None:
    one, other = path_set(left), path_set(right)
    assert members(one) == set(left)
    assert members(paths.union(one, other)) == set(left) | set(right)
    assert members(paths.intersection(one, other)) == set(left) & set(right)
    assert members(paths.difference(one, other)) == set(left) - set(right)
    assert paths.is_within(one, other) == (set(left) <= set(right))
    below = {path for path in left if not any(path[: len(top)] == top for top in right)}
    assert members(paths.without_below(one, other)) == below


@given(_PATHS)
def test_equal_sets_are_equal_trees_and_the_wire_form_is_understood(chosen: list[tuple[str, ...]]) -> None:
    one = path_set(chosen)
    assert one == path_set(list(reversed(chosen)))
    assert is_in_order(one)
    assert paths.is_path_set(one)
    assert len(list(paths.spelt(one))) == len(set(chosen))


def specs(seed: int) -> Tree:
    return SequenceGenerator(seed)._part(0.5)


def mixture(spec: Tree) -> Tree:
    return {"apiVersion": ownership.API_VERSION, "kind": ownership.KIND, "metadata": {"name": "one"}, "spec": spec}


def applied(live: Tree | None, spec: Tree, manager: str) -> Tree:
    outcome = apply(live, mixture(spec), manager=manager, force=True, target=TARGET, now=NOW)
    assert isinstance(outcome, Applied)
    assert all(is_in_order(entry["fieldsV1"]) for entry in outcome.tree["metadata"].get("managedFields", ()))
    return outcome.tree


seeds = st.integers(0, 10_000)


@settings(max_examples=60)
@given(seeds, seeds)
def test_a_forced_apply_gives_its_manager_all_it_asked_for(first: int, second: int) -> None:
    """Every path of the configuration has its value in the object afterwards."""
    live = applied(None, specs(first), "a")
    wanted = specs(second)
    after = applied(live, wanted, "b")
    kept = values.owned(mixture(wanted), SHAPE)
    changes = values.compare(mixture(wanted), after, SHAPE)
    assert paths.intersection(kept, changes.removed) == {}
    assert paths.intersection(kept, changes.modified) == {}


@settings(max_examples=60)
@given(seeds, seeds)
def test_applying_the_same_again_changes_nothing(first: int, second: int) -> None:
    live = applied(applied(None, specs(first), "a"), specs(second), "b")
    assert applied(live, specs(second), "b") == live


@settings(max_examples=60)
@given(seeds)
def test_what_one_manager_alone_applied_goes_when_it_applies_nothing(seed: int) -> None:
    live = applied(None, specs(seed), "a")
    after = applied(live, {}, "a")
    assert not after.get("spec")


@settings(max_examples=60)
@given(seeds, seeds)
def test_comparison_returns_exactly_the_difference(first: int, second: int) -> None:
    """Nothing is found between equal objects, and removed and added change places with the objects."""
    old, new = mixture(specs(first)), mixture(specs(second))
    assert values.compare(old, old, SHAPE) == values.NO_CHANGE
    there, back = values.compare(old, new, SHAPE), values.compare(new, old, SHAPE)
    assert (there.removed, there.modified, there.added) == (back.added, back.modified, back.removed)


@settings(max_examples=60)
@given(seeds, seeds)
def test_an_update_leaves_no_path_without_an_owner(first: int, second: int) -> None:
    """What a creator and then an updater wrote is owned by one of them."""
    one, two = mixture(specs(first)), mixture(specs(second))
    entries = track_update(None, one, manager="a", target=TARGET, now=NOW)
    live = {**one, "metadata": {"name": "one", "uid": "u", "managedFields": entries}}
    entries = track_update(live, two, manager="b", target=TARGET, now=NOW)
    together: paths.PathSet = {}
    for entry in entries:
        assert is_in_order(entry["fieldsV1"]), "what is stored depends on how it came about"
        together = paths.union(together, entry["fieldsV1"])
    wanted = values.owned({"spec": two["spec"]}, SHAPE)
    assert paths.is_within(wanted, together)
