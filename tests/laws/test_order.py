"""Every order is total: it does not depend on the order in which objects arrive."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from laws.random_clusters import NOW, ClusterCase, clusters
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import ordering, resource_order
from pykueue.core.decision import Requeue
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.workload import WorkloadInfo, WorkloadShape
from pykueue.state.pending_queue import PendingQueue
from pykueue.state.world import World

SMALL = settings(max_examples=60)
SHAPES = [WorkloadShape(()), WorkloadShape(())]

workloads = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 1)), max_size=12
)


def made(rows: list[tuple[int, int, str, int]]) -> list[WorkloadInfo]:
    return [
        WorkloadInfo(f"ns/w{n}", uid, SHAPES[shape], local_queue="lq", priority=priority, created=created)
        for n, (priority, created, uid, shape) in enumerate(rows)
    ]


@SMALL
@given(workloads, st.randoms())
def test_heads_come_by_priority_time_and_uid_however_they_arrived(
    rows: list[tuple[int, int, str, int]], rng: random.Random
) -> None:
    queue = PendingQueue("q")
    arrived = made(rows)
    rng.shuffle(arrived)
    for workload in arrived:
        queue.put(workload, NOW)
    popped = []
    while (head := queue.pop()) is not None:
        popped.append(head)
    assert popped == sorted(arrived, key=ordering.in_queue)


@SMALL
@given(workloads, st.lists(st.sampled_from(Requeue), max_size=20))
def test_a_pending_workload_is_in_exactly_one_place(
    rows: list[tuple[int, int, str, int]], reasons: list[Requeue]
) -> None:
    queue = PendingQueue("q")
    keys = {workload.key for workload in made(rows)}
    for workload in made(rows):
        queue.put(workload, NOW)
    for reason in reasons:
        head = queue.pop()
        if head is None:
            queue.release(lambda _: True)
            continue
        queue.requeue(head, reason, QuotaReservedReason.WAITING_FOR_QUOTA, NOW)
        places = [w.key for w in queue.active()] + [w.key for w in queue.parked()] + list(queue.in_flight)
        assert sorted(places) == sorted(keys)
        assert len(queue) == len(keys)
    queue.release(lambda _: True)
    assert {workload.key for workload in queue.active()} == keys - queue.in_flight.keys()


@dataclass
class _Entry:
    workload: WorkloadInfo
    level: int
    is_preemptor: bool = False


@SMALL
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=8), st.randoms())
def test_entries_are_ordered_alike_from_any_order(rows: list[tuple[int, int, int]], rng: random.Random) -> None:
    entries = [
        _Entry(WorkloadInfo(f"ns/w{n}", f"u{n}", SHAPES[0], priority=priority, created=created), level)
        for n, (priority, created, level) in enumerate(rows)
    ]

    def in_order() -> list[_Entry]:
        return sorted(
            entries, key=lambda entry: ordering.classical_rank(cast("ordering.OrderedEntry", entry), SchedulingPolicy())
        )

    first = in_order()
    rng.shuffle(entries)
    assert in_order() == first


@SMALL
@given(clusters(), st.randoms())
def test_decisions_do_not_depend_on_the_order_of_events(case: ClusterCase, rng: random.Random) -> None:
    expected = case.world().decide(NOW)
    things = list(case.things())
    rng.shuffle(things)
    world = World(case.policy)
    for thing in things:
        world.put(thing, NOW)
    decided = world.decide(NOW)
    if case.fair:  # the order of trees among themselves means nothing there
        decided, expected = sorted(decided, key=repr), sorted(expected, key=repr)
    assert list(map(repr, decided)) == list(map(repr, expected))


def test_resources_are_visited_in_the_order_of_their_hashes() -> None:
    names = ["cpu", "pods", "memory", "nvidia.com/gpu", "ephemeral-storage"]
    assert sorted(names, key=resource_order.visiting_order) == [
        "ephemeral-storage",
        "memory",
        "nvidia.com/gpu",
        "pods",
        "cpu",
    ]
