"""The guard delays the preemption that would begin the fourth round of a loop [LG6]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubemachinery import yaml_documents
from kubemachinery.meta import SECOND
from pykueue.analysis import planner
from pykueue.analysis.planner import Progress, SchedulingPlan
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core.decision import Preempt, Wait
from pykueue.core.workload import AssignedPodSet, Reservation
from pykueue.state.preemption_loops import DELAY_MAX, DELAY_MIN, ROUNDS, LoopDetector

NOW = 1_800_000_000 * SECOND
CASES = sorted((Path(__file__).parent / "loops").glob("livelock-*.yaml"))
QUEUES = ("q0", "q1")


def begun(path: Path, *, guard: bool = True, departures: bool = True) -> SchedulingPlan:
    case = planner.read(yaml_documents.read(path))
    policy = replace(case.configured.policy, preemption_progress=False, loop_guard=guard)
    return planner.begin(replace(case, configured=replace(case.configured, policy=policy)), NOW, departures=departures)


def rested(made: SchedulingPlan, now: int = NOW, cycles: int = 200) -> list[Any]:
    """Run cycles until one changes nothing; the decisions."""
    before = len(made.cycles)
    for _ in range(cycles):
        if planner.advance(made, now) in (Progress.STILL, Progress.OVER):
            return [decision for cycle in made.cycles[before:] for decision in cycle]
    raise AssertionError(f"no rest within {cycles} cycles")


def preemptions(decisions: list[Any]) -> list[str]:
    return [each.workload for each in decisions if isinstance(each, Preempt)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("departures", [False, True], ids=["as Kueue", "as the manager"])
def test_livelocks_come_to_rest_with_the_guard(path: Path, departures: bool) -> None:
    made = begun(path, departures=departures)
    waits = [each for each in rested(made) if isinstance(each, Wait) and "is delayed until" in each.message]
    assert waits
    assert made.loop is not None
    assert made.loop.sentence() in waits[-1].message
    assert waits[-1].reason is QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decisions_are_the_same_until_the_fourth_round(path: Path) -> None:
    """LG-L3: without a loop the guard changes nothing, so its cycles begin with those of a world without it."""
    guarded, free = begun(path), begun(path, guard=False)
    rested(guarded)
    delayed = next(
        number
        for number, cycle in enumerate(guarded.cycles)
        if any(isinstance(each, Wait) and "is delayed" in each.message for each in cycle)
    )
    for _ in range(delayed):
        planner.advance(free, NOW)
    assert guarded.cycles[:delayed] == free.cycles[:delayed]
    assert free.loop is not None


def test_delay_ends_and_doubles_up_to_ten_minutes() -> None:
    made, now = begun(CASES[0]), NOW
    rested(made, now)
    delays = []
    for _ in range(12):
        due = made.world.next_wake()
        assert due is not None
        assert not preemptions(rested(made, due - 1))
        delays.append(due - now)
        now = due
        assert preemptions(rested(made, now))
    assert delays[0] == DELAY_MIN
    assert max(delays) == DELAY_MAX
    assert delays == sorted(delays)


def test_preemptor_starts_at_once_when_quota_is_raised() -> None:
    made = begun(CASES[0])
    rested(made)
    assert made.world.next_wake() is not None
    for queue in list(made.world.cluster_queues.values()):
        (group,) = queue.spec.resource_groups
        (flavor,) = group.flavors
        quotas = tuple(msgspec.structs.replace(each, nominal_quota="1000") for each in flavor.resources)
        raised = msgspec.structs.replace(group, flavors=(msgspec.structs.replace(flavor, resources=quotas),))
        spec = msgspec.structs.replace(queue.spec, resource_groups=(raised,))
        made.world.put(msgspec.structs.replace(queue, spec=spec), NOW)
    rested(made)
    assert set(made.world.reservations) == set(made.workloads)
    assert made.world.next_wake() is None


def test_outside_change_elsewhere_ends_the_delay() -> None:
    """An arrival behind the heads changes no head, so no cycle would run for it."""
    made = begun(CASES[0])
    rested(made)
    workload = min(made.workloads.values(), key=lambda each: each.spec.priority or 0)
    named = msgspec.structs.replace(workload.metadata, name="late", uid="late", resource_version="")
    late = msgspec.structs.replace(workload, metadata=named)
    made.workloads = {**made.workloads, "default/late": late}
    made.world.put(late, NOW)
    assert preemptions(rested(made))


HELD = Reservation("ns/b", "b", "q1", "lq", (AssignedPodSet("main", 1, {"cpu": "f"}, (("cpu", 1),)),))


def decided_often(detector: LoopDetector, times: int) -> None:
    """`ns/b` is preempted, stops and reserves quota again, so often."""
    for _ in range(times):
        detector.preempted(QUEUES, "q0", "ns/a", ("ns/b",), NOW)
        detector.released(HELD)
        detector.reserved(HELD)


def test_preemption_that_is_decided_again_before_its_target_stops_is_one_round() -> None:
    """An admission that is read after the preemption of its Workload was decided has no condition of an eviction."""
    detector = LoopDetector()
    detector.reserved(HELD)
    for _ in range(2 * ROUNDS):
        detector.preempted(QUEUES, "q0", "ns/a", ("ns/b",), NOW)
        detector.replaced(HELD, HELD)
    assert detector.take_new() == []
    assert detector.delayed_until(QUEUES, "ns/a", ("ns/b",), NOW) is None


def test_guard_delays_only_what_was_decided_three_times() -> None:
    detector = LoopDetector()
    decided_often(detector, ROUNDS - 1)
    assert detector.delayed_until(QUEUES, "ns/a", ("ns/b",), NOW) is None
    decided_often(detector, 1)
    assert detector.delayed_until(QUEUES, "ns/a", ("ns/b",), NOW) == NOW + DELAY_MIN
    assert detector.delayed_until(QUEUES, "ns/a", ("ns/c",), NOW) is None
    assert detector.next_due == NOW + DELAY_MIN
    assert list(detector.take_due(NOW)) == []
    detector.changed("q1")
    assert list(detector.take_due(NOW)) == ["q0"]
    assert detector.delayed_until(QUEUES, "ns/a", ("ns/b",), NOW) is None


def test_disabled_detector_finds_nothing_and_still_counts_outside_changes() -> None:
    detector = LoopDetector(enabled=False)
    decided_often(detector, 10)
    assert detector.take_new() == []
    before = detector.outside_changes(QUEUES)
    detector.changed("q1")
    assert detector.outside_changes(QUEUES) == before + 1
