"""Replaced pods, thrashing and starvation: what is counted, and when it is reported."""

from __future__ import annotations

import pytest
from msgspec import structs

from kubemachinery.meta import SECOND
from laws.random_clusters import NOW as CASE_NOW
from laws.random_clusters import ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.api import backfill
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorResource
from pykueue.core.workload import AssignedPodSet, Reservation, WorkloadInfo, WorkloadShape
from pykueue.state import troubles
from pykueue.state.preemption_loops import LoopDetector, PreemptionLoop
from pykueue.state.replaced_pods import WITHIN, PodLikeness
from pykueue.state.starts import StartCounts
from pykueue.state.thrashing import ThrashingDetector
from pykueue.state.world import World

NOW = 1_800_000_000 * SECOND
HOUR = 3600 * SECOND
SHAPE = WorkloadShape(())
QUEUES = ("q0",)


def reservation(key: str, *, at: int = NOW, cpu: int = 1, admitted: bool = True) -> Reservation:
    pods = (AssignedPodSet("main", 1, {"cpu": "default"}, (("cpu", cpu),)),)
    return Reservation(key, key, "q0", "lq", pods, reserved_at=at, admitted=admitted, shape=SHAPE)


# --- Pods that a controller creates again [LG3] -----------------------------------------------------------------------


class Pods:
    """A high-priority pod and a low-priority one, whose controllers create them again after each eviction."""

    def __init__(self) -> None:
        self.detector = LoopDetector()
        self.now = NOW
        self._made = 0

    def round(self, *, shape: WorkloadShape = SHAPE, pause: int = SECOND, name: str = "pod-low") -> None:
        """`ns/high` preempts the pod, which is deleted; another one arrives and reserves quota again."""
        held = reservation(f"ns/{name}-x{self._made:04d}-0a1b2")
        self.detector.reserved(held)
        likeness = PodLikeness.of(held.key, "lq", SHAPE)
        self.detector.preempted(
            QUEUES, "q0", "ns/high", (held.key,), self.now, [(held.key, held.cluster_queue, likeness)]
        )
        self.detector.released(held)
        if not self.detector.is_evicted_pod(held.key):
            self.detector.changed("q0")
        self.detector.forget(held.key)
        self.now += pause
        self._made += 1
        arrives = f"ns/{name}-x{self._made:04d}-0a1b2"
        if not self.detector.replaces_pod(arrives, PodLikeness.of(arrives, "lq", shape), self.now):
            self.detector.changed("q0")

    def loops(self) -> list[PreemptionLoop]:
        return self.detector.take_new()


def test_pods_created_again_are_a_likely_loop_in_the_third_round() -> None:
    pods = Pods()
    pods.round()
    pods.round()
    assert pods.loops() == []
    pods.round()
    (loop,) = pods.loops()
    assert loop.is_likely
    assert loop.title() == "likely preemption loop"
    pods.round()
    assert pods.loops() == []  # the same loop
    (current,) = pods.detector.loops()
    assert current.since == loop.since
    assert current.rounds == 4
    assert current.members != loop.members  # those of the last round, which exist


@pytest.mark.parametrize(
    "other",
    [{"shape": WorkloadShape(())}, {"pause": WITHIN + 1}],
    ids=["other requests", "after more than a minute"],
)
def test_pods_that_are_not_replacements_are_outside_changes(other: dict[str, object]) -> None:
    pods = Pods()
    for _ in range(6):
        pods.round(**other)  # type: ignore[arg-type]
    assert pods.loops() == []


def test_evicted_pod_without_a_replacement_counts_as_outside_change_after_a_minute() -> None:
    detector, held = LoopDetector(), reservation("ns/pod-a-x-00000")
    likeness = PodLikeness.of(held.key, "lq", SHAPE)
    detector.preempted(QUEUES, "q0", "ns/high", (held.key,), NOW, [(held.key, "q0", likeness)])
    assert detector.is_evicted_pod(held.key)
    before = detector.outside_changes(QUEUES)
    detector.preempted(QUEUES, "q0", "ns/high", ("ns/other",), NOW + WITHIN, [])
    assert detector.outside_changes(QUEUES) == before
    detector.preempted(QUEUES, "q0", "ns/high", ("ns/other",), NOW + WITHIN + 1, [])
    assert detector.outside_changes(QUEUES) == before + 1


def test_likeness_ignores_generated_parts_and_the_hash_of_the_workload() -> None:
    one, other = (
        PodLikeness.of(f"ns/{name}", "lq", SHAPE) for name in ("pod-train-bcdfg-1a2b3", "pod-train-xwz24-9f8e7")
    )
    assert one == other
    assert one != PodLikeness.of("ns/pod-serve-bcdfg-1a2b3", "lq", SHAPE)
    assert one != PodLikeness.of("ns/pod-train-bcdfg-1a2b3", "lq2", SHAPE)
    assert one != PodLikeness.of("other/pod-train-bcdfg-1a2b3", "lq", SHAPE)


def test_fingerprint_depends_on_the_amounts() -> None:
    """The same Workloads with other amounts are another state: a smaller admission is progress."""
    detector = LoopDetector()
    for cpu in (3, 2, 1, 4, 5):
        held = reservation("ns/b", cpu=cpu)
        detector.reserved(held)
        assert held.usage == ((FlavorResource("default", "cpu"), cpu),)
        detector.preempted(QUEUES, "q0", "ns/a", ("ns/b",), NOW)
        detector.released(held)
    assert detector.take_new() == []


# --- Thrashing [LG4] --------------------------------------------------------------------------------------------------


def preempted(detector: ThrashingDetector, times: int, *, every: int, ran: int, admitted: bool = True) -> int:
    """Preempt `ns/w` after it ran for a while, again and again; the time of the last preemption."""
    now = NOW
    for _ in range(times):
        detector.preempted(reservation("ns/w", at=now - ran, admitted=admitted), now)
        now += every
    return now - every


def test_thrashing_needs_five_preemptions_within_an_hour() -> None:
    detector = ThrashingDetector()
    now = preempted(detector, 4, every=600 * SECOND, ran=SECOND)
    assert detector.found(now) == []
    detector = ThrashingDetector()
    now = preempted(detector, 5, every=600 * SECOND, ran=SECOND)
    (found,) = detector.found(now)
    assert (found.workload, found.preemptions, found.ran) == ("ns/w", 5, 5 * SECOND)
    assert detector.found(now + HOUR) == []
    detector = ThrashingDetector()
    assert detector.found(preempted(detector, 9, every=1000 * SECOND, ran=SECOND)) == []


def test_workload_that_runs_for_more_than_a_tenth_does_not_thrash() -> None:
    detector = ThrashingDetector()
    assert detector.found(preempted(detector, 5, every=600 * SECOND, ran=100 * SECOND)) == []
    detector = ThrashingDetector()
    assert detector.found(preempted(detector, 5, every=600 * SECOND, ran=100 * SECOND, admitted=False))


def test_ended_workload_does_not_thrash() -> None:
    detector = ThrashingDetector()
    now = preempted(detector, 5, every=SECOND, ran=0)
    detector.forget("ns/w")
    assert detector.found(now) == []


# --- Starvation [LG7], [LG8] ------------------------------------------------------------------------------------------


def pending(key: str, queued: int, priority: int = 0) -> WorkloadInfo:
    return WorkloadInfo(key, key, SHAPE, local_queue="lq", cluster_queue="q0", created=queued, priority=priority)


@pytest.mark.parametrize(
    ("queued", "started", "priority", "counts"),
    [
        (NOW + 1, NOW + 2, 0, True),
        (NOW - 1, NOW + 2, 0, False),
        (NOW - 1, NOW + 2, -1, True),
        (NOW - 2, NOW - 1, -1, False),
        (NOW + 1, NOW + 2, 1, False),
    ],
    ids=["queued later", "queued earlier", "lower priority", "started before", "higher priority"],
)
def test_workload_is_passed_by_those_behind_it(queued: int, started: int, priority: int, counts: bool) -> None:
    starts = StartCounts()
    starts.started(pending("ns/other", queued, priority), started)
    assert starts.passed(pending("ns/w", NOW)) == int(counts)


def test_workload_of_the_same_second_does_not_pass() -> None:
    starts = StartCounts()
    for key in ("ns/a", "ns/y"):
        starts.started(pending(key, NOW), NOW + 1)
    assert starts.passed(pending("ns/w", NOW)) == 0


@pytest.mark.parametrize("priority", [0, -1])
def test_reservation_that_is_decided_again_counts_once(priority: int) -> None:
    starts = StartCounts()
    for at in (NOW + 2, NOW + 3):
        starts.started(pending("ns/other", NOW + 1, priority), at)
    assert starts.passed(pending("ns/w", NOW)) == 1


def test_starts_of_other_cluster_queues_do_not_count() -> None:
    starts, other = StartCounts(), pending("ns/other", NOW + 1)
    other.cluster_queue = "q1"
    starts.started(other, NOW + 2)
    assert starts.passed(pending("ns/w", NOW)) == 0


def test_number_of_kept_starts_is_bounded() -> None:
    starts = StartCounts()
    for number in range(20_000):
        starts.started(pending(f"ns/{number}", NOW + number), NOW + number)
    assert 4096 <= starts.passed(pending("ns/w", NOW - 1)) <= 8192


@pytest.mark.parametrize(
    ("p90", "expected"),
    [(None, 24), (NOW + 2 * HOUR, 24), (NOW + 8 * HOUR, 24), (NOW + 10 * HOUR, 30), (NOW - HOUR, 24)],
    ids=["no forecast", "short forecast", "three times are the limit", "long forecast", "forecast in the past"],
)
def test_wait_is_too_long_after_three_times_the_first_p90(p90: int | None, expected: int) -> None:
    assert troubles.long_wait(24 * HOUR, NOW, p90) == expected * HOUR


def test_message_for_one_namespace_omits_names_of_others() -> None:
    message = "preemption loop: a/x preempts b/y, b/y preempts a/x; 3 rounds without any other change"
    assert troubles.within(message, "a") == (
        "preemption loop: a/x preempts another Workload, another Workload preempts a/x; 3 rounds without any other change"
    )


ANNOTATION = "annotation pykueue.io/backfill on ClusterQueue q"


@pytest.mark.parametrize(
    ("gate", "annotated", "helps"),
    [
        (True, True, "more quota in ClusterQueue q would admit it"),
        (True, False, f"{ANNOTATION} would plan its start"),
        (False, True, "the gate PlannedBackfill, which is off, would plan its start"),
        (
            False,
            False,
            f"{ANNOTATION} and the gate PlannedBackfill, which is off, would plan its start",
        ),
    ],
)
def test_starving_workload_has_what_would_help(gate: bool, annotated: bool, helps: str) -> None:
    """[LG7] Every holder of quota has a limit; ten Workloads behind the first one start and end."""
    case = QueueCase("q", "", (QuotaCase(4, None, None),), "Never", "Never", strict=False)
    running, waits = WorkloadCase(1, "q", 1, 0, 90_000, "f0"), WorkloadCase(2, "q", 4, 0, 90_000)
    world = World(SchedulingPolicy(planned_backfill=gate))
    for thing in ClusterCase((), (case,), (running, waits), fair=False).things():
        world.put(thing, CASE_NOW)
    for number in range(3, 13):
        later = WorkloadCase(number, "q", 1, 0, 0)
        world.put(later.thing(), CASE_NOW)
        while world.decide(CASE_NOW):
            pass
        assert later.key in world.reservations
        world.drop(later.thing())
    if annotated:  # only now: planned starts would not have let the others pass
        queue = case.thing()
        metadata = structs.replace(queue.metadata, annotations={backfill.MODE: "EASY"})
        world.put(structs.replace(queue, metadata=metadata), CASE_NOW)
    [found] = troubles.starving(world, case.name, CASE_NOW, troubles.StarvationRules(has_limit=lambda key: True))
    assert found.workload == waits.key
    assert found.message.endswith(f"have started; {helps}")
