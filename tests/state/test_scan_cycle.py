"""A Workload with two pod sets whose scan of flavors alternates between two positions."""

from __future__ import annotations

import msgspec
import pytest

from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.api import kueue
from pykueue.core.decision import Admit, Wait
from pykueue.state.world import World

# They hold 1 of the 3 CPUs of f0, and all of f1; nothing preempts them.
HOLDER = WorkloadCase(1, "q", 1, 9, 30, "f0")
OTHER = WorkloadCase(4, "q", 1, 9, 30, "f1")
BEHIND = WorkloadCase(3, "q", 1, 1, 10)


def pair() -> kueue.Workload:
    """A head of 1 CPU, and workers of 2 CPUs, which only f0 could have."""
    alone = WorkloadCase(2, "q", 1, 1, 20).thing()
    (head,) = alone.spec.pod_sets
    workers = msgspec.structs.replace(WorkloadCase(2, "q", 2, 1, 20).thing().spec.pod_sets[0], name="workers")
    spec = msgspec.structs.replace(alone.spec, pod_sets=(msgspec.structs.replace(head, name="head"), workers))
    return msgspec.structs.replace(alone, spec=spec)


def world_of(*, strict: bool = False) -> World:
    quotas = (QuotaCase(3, None, None), QuotaCase(1, None, None))
    queue = QueueCase("q", "", quotas, "LowerPriority", "Never", strict=strict)
    world = ClusterCase((), (queue,), (HOLDER, OTHER, BEHIND), fair=False).world()
    world.put(pair(), NOW)
    return world


def decided(world: World) -> list[tuple[str, str]]:
    """Decisions until there are none."""
    found: list[tuple[str, str]] = []
    for _ in range(20):
        decisions = world.decide(NOW)
        if not decisions:
            return found
        for decision in decisions:
            assert isinstance(decision, Admit | Wait)
            found.append((type(decision).__name__, decision.workload.rpartition("/")[2]))
    pytest.fail(f"decisions go on: {found}")


def test_the_next_workload_has_its_turn() -> None:
    """[FL22]"""
    assert decided(world_of())[-1] == ("Admit", "w3")


def test_it_is_admitted_when_quota_is_released() -> None:
    """[FL22]"""
    world = world_of()
    decided(world)
    world.drop(HOLDER.thing())
    world.drop(OTHER.thing())
    assert ("Admit", "w2") in decided(world)


def test_no_workload_overtakes_it_in_a_strict_queue() -> None:
    """[FL22]"""
    world = world_of(strict=True)
    assert {name for _, name in decided(world)} == {"w2"}
    world.drop(HOLDER.thing())
    assert decided(world)[:1] == [("Admit", "w2")]
