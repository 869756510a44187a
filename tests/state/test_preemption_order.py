"""Which Workloads a preemptor must spare between two outside changes ([FS22])."""

from __future__ import annotations

import pytest

from pykueue.state.preemption_loops import LoopDetector
from pykueue.state.preemption_order import REPEATS_MAX, PreemptionOrder

TREE = ("q0", "q1")
OTHER = ("q9",)


@pytest.fixture
def loops() -> LoopDetector:
    return LoopDetector()


@pytest.fixture
def order(loops: LoopDetector) -> PreemptionOrder:
    return PreemptionOrder(loops)


def test_preemptor_is_spared_by_its_target_and_by_the_targets_of_its_target(order: PreemptionOrder) -> None:
    order.preempted(TREE, "a", ["b"])
    order.preempted(TREE, "b", ["c"])
    assert order.spared(TREE, "a") == frozenset()
    assert order.spared(TREE, "b") == {"a"}
    assert order.spared(TREE, "c") == {"a", "b"}


def test_target_is_spared_after_the_last_repetition(order: PreemptionOrder) -> None:
    for _ in range(REPEATS_MAX - 1):
        order.preempted(TREE, "a", ["b", "c"])
    assert order.spared(TREE, "a") == frozenset()
    order.preempted(TREE, "a", ["b"])
    assert order.spared(TREE, "a") == {"b"}


@pytest.mark.parametrize("cluster_queue", ["q1", None], ids=["in the tree", "anywhere"])
def test_outside_change_forgets_the_preemptions_of_the_tree(
    order: PreemptionOrder, loops: LoopDetector, cluster_queue: str | None
) -> None:
    order.preempted(TREE, "a", ["b"])
    loops.changed(cluster_queue)
    assert order.spared(TREE, "b") == frozenset()
    order.preempted(TREE, "b", ["a"])
    assert order.spared(TREE, "a") == {"b"}


def test_preemptions_of_another_tree_do_not_count_and_its_changes_forget_nothing(
    order: PreemptionOrder, loops: LoopDetector
) -> None:
    order.preempted(TREE, "a", ["b"])
    assert order.spared(OTHER, "b") == frozenset()
    loops.changed(OTHER[0])
    assert order.spared(TREE, "b") == {"a"}


def test_deleted_cluster_queue_is_forgotten_with_its_preemptions(order: PreemptionOrder) -> None:
    for queue in ("p", "q"):
        order.preempted((queue,), "a", ["b"])
    order.cluster_queue_deleted("q")
    assert len(order) == 1
    assert order.spared(("p",), "b") == {"a"}
    assert order.spared(("q",), "b") == frozenset()
