"""When a Workload that needs a second pass is a head: at once, or for a failed node after the delay of the policy
[TS26]."""

from __future__ import annotations

from msgspec.structs import replace

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from lifecycle.workload_harness import START, WorkloadHarness, placed
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.core.policy import SchedulingPolicy
from pykueue.lifecycle import workload_changes
from pykueue.state.world import World

DELAYED = SchedulingPolicy(node_replacement_delay=SECOND)


def _placed(revision: int, *unhealthy: str) -> kueue.Workload:
    """An admitted Workload on node n1, and the nodes that it lists as unhealthy."""
    harness = (
        WorkloadHarness()
        .reserved()
        .with_condition(WorkloadCondition.ADMITTED, ConditionStatus.TRUE, "Admitted")
        .write((workload_changes.SetAdmission(placed("n1")),))
    )
    harness.write((workload_changes.SetUnhealthyNodes(tuple(kueue.UnhealthyNode(name=name) for name in unhealthy)),))
    found = harness.workload
    return replace(found, metadata=replace(found.metadata, resource_version=str(revision)))


def _is_due(world: World, now: Nanoseconds) -> bool:
    (head,) = world.second_passes.values()
    return head.may_compete(now)


def test_a_failed_node_is_replaced_after_the_delay() -> None:
    world = World(DELAYED)
    world.put(_placed(1, "n1"), START)
    assert world.next_wake() == START + SECOND
    assert not _is_due(world, START)
    assert _is_due(world, START + SECOND)


def test_the_delay_does_not_begin_again_with_another_read() -> None:
    world = World(DELAYED)
    world.put(_placed(1, "n1"), START)
    world.put(_placed(2, "n1"), START + SECOND // 2)
    assert world.next_wake() == START + SECOND
    world.put(_placed(3, "n1"), START + 2 * SECOND)
    assert _is_due(world, START + 2 * SECOND)


def test_a_node_that_comes_back_is_not_replaced_and_the_next_failure_waits_again() -> None:
    world, later = World(DELAYED), START + 60 * SECOND
    world.put(_placed(1, "n1"), START)
    world.put(_placed(2), START + SECOND // 2)
    assert not world.second_passes
    world.put(_placed(3, "n1"), later)
    assert world.next_wake() == later + SECOND


def test_without_a_delay_a_failed_node_is_replaced_at_once() -> None:
    world = World()
    world.put(_placed(1, "n1"), START)
    assert _is_due(world, START)
