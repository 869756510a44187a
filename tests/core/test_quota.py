"""The arithmetic of the tree, on the example under TR14 in docs/rules/quota.md."""

from __future__ import annotations

import pytest

from pykueue.core import cohort, quota
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import CohortTree, QuotaNode
from pykueue.core.queue import CohortInfo, FlavorResource, QueueSpec, Quota

PAIR = FlavorResource("default", "cpu")


def tree_of(queues: dict[str, tuple[str, Quota]], cohorts: dict[str, tuple[str, Quota]]) -> CohortTree:
    forest = cohort.plan_trees(
        [QueueSpec(name, cohort=home, quotas={PAIR: quota}) for name, (home, quota) in queues.items()],
        {name: CohortInfo(name, parent, {PAIR: quota}) for name, (parent, quota) in cohorts.items()},
    )
    [plan] = forest.trees
    return CohortTree.build(plan)


@pytest.fixture
def example() -> dict[str, QuotaNode]:
    """Root R (0) over cohort X (10, lends 4) over queues a (6, lends 2) and b (4, borrows 3); queue c (5) under R."""
    tree = tree_of(
        {"a": ("X", Quota(6, lending_limit=2)), "b": ("X", Quota(4, borrowing_limit=3)), "c": ("R", Quota(5))},
        {"R": ("", Quota(0)), "X": ("R", Quota(10, lending_limit=4))},
    )
    nodes = {node.name: node for node in tree.nodes}
    log: quota.UndoLog = []
    quota.add(nodes["a"], 0, 5, log)
    quota.add(nodes["b"], 0, 6, log)
    return nodes


def figures(nodes: dict[str, QuotaNode], names: str = "aXR") -> list[int]:
    return [nodes[name].usage[0] for name in names]


def test_quota_lent_to_the_parent(example: dict[str, QuotaNode]) -> None:
    assert {name: node.subtree[0] for name, node in example.items()} == {"R": 9, "X": 16, "a": 6, "b": 4, "c": 5}
    assert {name: node.guaranteed[0] for name, node in example.items()} == {"R": 0, "X": 12, "a": 4, "b": 0, "c": 0}


def test_usage_counts_at_the_parent_only_beyond_guaranteed_quota(example: dict[str, QuotaNode]) -> None:
    assert figures(example) == [5, 7, 0]


def test_available_and_potential(example: dict[str, QuotaNode]) -> None:
    assert [quota.available(example[name], 0) for name in "abc"] == [14, 1, 9]
    assert [example[name].potential[0] for name in "abc"] == [25, 7, 9]


@pytest.mark.parametrize(("amount", "expected"), [(1, (0, True)), (6, (1, True)), (14, (2, False)), (15, (2, False))])
def test_the_level_is_the_height_of_the_lowest_cohort_that_holds_it(
    example: dict[str, QuotaNode], amount: int, expected: tuple[int, bool]
) -> None:
    assert quota.level(example["a"], 0, amount) == expected


def test_usage_is_added_removed_and_undone(example: dict[str, QuotaNode]) -> None:
    log: quota.UndoLog = []
    quota.add(example["a"], 0, 8, log)
    assert figures(example) == [13, 15, 3]
    assert [quota.available(example[name], 0) for name in "abc"] == [6, 1, 6]
    quota.remove(example["a"], 0, 10, log)
    assert figures(example) == [3, 6, 0]
    quota.undo(log, 0)
    assert figures(example) == [5, 7, 0]


def test_parent_over_quota_lowers_available_of_a_queue_that_neither_lends_nor_borrows() -> None:
    tree = tree_of({"x": ("C", Quota(4)), "y": ("C", Quota(4, borrowing_limit=0, lending_limit=0))}, {})
    nodes = {node.name: node for node in tree.nodes}
    quota.add(nodes["x"], 0, 7, [])
    assert quota.balance(nodes["C"], 0) == -3
    assert quota.available(nodes["y"], 0) == 1


def test_unlimited_quota_stays_unlimited_after_usage() -> None:
    tree = tree_of({"x": ("C", Quota(UNLIMITED)), "y": ("C", Quota(1))}, {})
    nodes = {node.name: node for node in tree.nodes}
    quota.add(nodes["x"], 0, 10**18, [])
    assert quota.available(nodes["y"], 0) == UNLIMITED


def test_usage_of_a_removed_flavor_still_counts_where_a_cohort_above_has_quota() -> None:
    tree = tree_of({"x": ("C", Quota(4)), "y": ("C", Quota(4))}, {})
    number = tree.number("gone", "cpu")
    quota.add(tree.queues["x"], number, 3, [])
    assert tree.root.usage[number] == 3


def test_cohort_cycles_and_cohorts_that_lead_into_them_are_left_out() -> None:
    forest = cohort.plan_trees(
        [QueueSpec("in", cohort="a"), QueueSpec("into", cohort="c"), QueueSpec("out", cohort="d")],
        {"a": CohortInfo("a", "b"), "b": CohortInfo("b", "a"), "c": CohortInfo("c", "a")},
    )
    assert forest.in_cohort_cycle == {"in", "into"}
    assert [plan.root for plan in forest.trees] == ["d"]
