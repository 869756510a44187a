"""Edge cases with more than one pod set, or inside a cycle (EC1 to EC40)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pykueue.api.kube import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration
from pykueue.api.kueue import FlavorFungibilityPreference as Preference
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import cohort, cycle
from pykueue.core.cohort import CohortTree
from pykueue.core.cycle import Cycle, Head
from pykueue.core.decision import Admit, Decision, Evict, PreemptionMode, SecondPassFailed, Wait
from pykueue.core.flavor_assigner import scaled
from pykueue.core.flavor_fit import GranularMode, is_preferred
from pykueue.core.policy import GATES, SchedulingPolicy
from pykueue.core.queue import FlavorResource, FlavorSpec, PreemptionPolicies, QueueSpec, Quota, ResourceGroupInfo
from pykueue.core.resource_order import in_visiting_order
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import (
    DomainPods,
    NodeTerms,
    TopologyCache,
    TopologyFlavor,
    TopologyPlacement,
    TopologyRequest,
)
from pykueue.core.workload import (
    AssignedPodSet,
    PodSetResources,
    Reservation,
    ScanPosition,
    WorkloadDetails,
    WorkloadInfo,
    WorkloadShape,
)

NO_TERMS = NodeTerms()


def snapshot_of(*specs: QueueSpec, flavors: Mapping[str, FlavorSpec] | None = None) -> Snapshot:
    snapshot = Snapshot(TopologyCache())
    for plan in cohort.plan_trees(specs, {}).trees:
        tree = CohortTree.build(plan)
        for spec in plan.members():
            snapshot.queues[spec.name] = Queue(spec, tree.queues[spec.name])
            for group in spec.groups:
                for flavor in group.flavors:
                    snapshot.flavors[flavor] = (flavors or {}).get(flavor, FlavorSpec(flavor))
    return snapshot


def queue_spec(name: str, cohort: str = "", **flavors: Mapping[str, int]) -> QueueSpec:
    resources = frozenset(resource for of_flavor in flavors.values() for resource in of_flavor)
    return QueueSpec(
        name,
        cohort=cohort,
        groups=(ResourceGroupInfo(resources, tuple(flavors)),),
        quotas={
            FlavorResource(flavor, resource): Quota(amount)
            for flavor, of_flavor in flavors.items()
            for resource, amount in of_flavor.items()
        },
    )


def pod_set(
    name: str, count: int = 1, group: str | None = None, terms: NodeTerms = NO_TERMS, **requests: int
) -> PodSetResources:
    total = {resource: amount * count for resource, amount in requests.items()}
    return PodSetResources(name, count, count, in_visiting_order(total), group=group, terms=terms)


def decide(
    snapshot: Snapshot, *pod_sets: PodSetResources, queue: str = "q", policy: SchedulingPolicy | None = None
) -> Decision:
    workload = WorkloadInfo("ns/w", "u", WorkloadShape(pod_sets), cluster_queue=queue)
    [decision] = cycle.run(snapshot, [Head(workload)], policy or SchedulingPolicy(), 0)
    return decision


def flavors_of(decision: Decision) -> dict[str, dict[str, str]]:
    assert isinstance(decision, Admit)
    return {assigned.name: dict(assigned.flavors) for assigned in decision.pod_sets}


def test_ec26_usage_of_the_first_pod_set_counts_for_the_second() -> None:
    snapshot = snapshot_of(queue_spec("q", first={"cpu": 5}, second={"cpu": 5}))
    decision = decide(snapshot, pod_set("a", cpu=4), pod_set("b", cpu=4))
    assert flavors_of(decision) == {"a": {"cpu": "first"}, "b": {"cpu": "second"}}


def test_ec27_pod_sets_of_one_group_share_the_flavor_that_holds_them_all() -> None:
    snapshot = snapshot_of(queue_spec("q", first={"cpu": 5, "gpu": 0}, second={"cpu": 5, "gpu": 4}))
    decision = decide(snapshot, pod_set("leader", group="g", cpu=1), pod_set("workers", group="g", cpu=1, gpu=4))
    assert flavors_of(decision) == {"leader": {"cpu": "second"}, "workers": {"cpu": "second", "gpu": "second"}}


def required(*terms: tuple[str, str]) -> NodeTerms:
    return NodeTerms(
        required_affinity=NodeSelector(
            node_selector_terms=tuple(
                NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator="In", values=(value,)),))
                for key, value in terms
            )
        )
    )


@pytest.mark.parametrize(
    ("terms", "is_eligible"),
    [
        (required(("zone", "north")), False),
        (required(("zone", "south")), True),
        (required(("zone", "north"), ("arch", "arm")), True),  # the second term has no label of this flavor
    ],
)
def test_ec24_affinity_counts_only_where_every_term_has_labels_of_the_flavor(
    terms: NodeTerms, is_eligible: bool
) -> None:
    snapshot = snapshot_of(queue_spec("q", f={"cpu": 5}), flavors={"f": FlavorSpec("f", {"zone": "south"})})
    decision = decide(snapshot, pod_set("main", terms=terms, cpu=1))
    assert isinstance(decision, Admit) is is_eligible


def test_malformed_affinity_is_reported_and_affects_no_other_workload() -> None:
    broken = NodeTerms(
        required_affinity=NodeSelector(
            node_selector_terms=(
                NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="zone", operator="Near"),)),
            )
        )
    )
    snapshot = snapshot_of(queue_spec("q", f={"cpu": 5}), flavors={"f": FlavorSpec("f", {"zone": "south"})})
    decision = decide(snapshot, pod_set("main", terms=broken, cpu=1))
    assert isinstance(decision, Wait)
    assert decision.reason == "NoMatchingFlavor"
    assert isinstance(decide(snapshot, pod_set("main", cpu=1)), Admit)


def test_the_flavors_own_tolerations_count_for_its_pods() -> None:
    from pykueue.api.kube import Taint

    taint = Taint(key="spot", value="yes", effect="NoSchedule")
    tolerates = (Toleration(key="spot", operator="Exists"),)
    for tolerations, is_eligible in (((), False), (tolerates, True)):
        flavor = FlavorSpec("f", taints=(taint,), tolerations=tolerations)
        decision = decide(snapshot_of(queue_spec("q", f={"cpu": 5}), flavors={"f": flavor}), pod_set("m", cpu=1))
        assert isinstance(decision, Admit) is is_eligible


def test_pods_are_counted_where_the_queue_covers_them() -> None:
    snapshot = snapshot_of(queue_spec("q", f={"cpu": 9, "pods": 3}))
    decision = decide(snapshot, pod_set("main", count=3, cpu=1))
    assert isinstance(decision, Admit)
    assert dict(decision.pod_sets[0].requests) == {"cpu": 3, "pods": 3}
    assert isinstance(decide(snapshot, pod_set("main", count=4, cpu=1)), Wait)


def test_scan_continues_behind_the_flavor_where_the_last_one_stopped() -> None:
    """[FL20], [FL21] Even behind one that fit (W4)."""
    snapshot = snapshot_of(queue_spec("q", one={"cpu": 5}, two={"cpu": 5}, three={"cpu": 5}))
    workload = WorkloadInfo("ns/w", "u", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="q")
    chosen = []
    for _ in range(4):
        [decision] = cycle.run(snapshot, [Head(workload)], SchedulingPolicy(), 0)
        workload.scan_position = decision.scan_position  # as `state` stores it
        chosen.append(flavors_of(decision)["main"]["cpu"])
    assert chosen == ["one", "two", "three", "one"]


def test_scan_position_is_dropped_when_it_is_old_and_quota_may_have_been_released() -> None:
    snapshot = snapshot_of(queue_spec("q", one={"cpu": 5}, two={"cpu": 5}))
    shape = WorkloadShape((pod_set("main", cpu=1),))
    for generation, age, starts_at in ((0, 5, "two"), (1, 1, "two"), (1, 2, "one")):
        snapshot.queues["q"].generation = generation
        workload = WorkloadInfo("ns/w", "u", shape, cluster_queue="q")
        workload.scan_position = ScanPosition(({"cpu": 0},), queue_generation=0, pop_cycle=0, shape=shape)
        workload.pop_cycle = age
        [decision] = cycle.run(snapshot, [Head(workload)], SchedulingPolicy(), 0)
        assert flavors_of(decision)["main"]["cpu"] == starts_at


class Poison:
    """A list of unhealthy nodes that raises when a decision reads it, after the nomination."""

    def __bool__(self) -> bool:
        raise ZeroDivisionError("poison")


POISON = WorkloadDetails(unhealthy_nodes=cast(Any, Poison()))


def test_a_head_that_cannot_be_evaluated_does_not_change_the_decision_of_another() -> None:
    """`a` continues its scan at the second flavor, where an earlier entry takes its target, so that it is assigned
    again from the first one. The cycle that starts over without the poison head must continue at the second, too."""
    takes_back = PreemptionPolicies(reclaim_within_cohort=PreemptionPolicy.ANY)
    specs = (
        replace(queue_spec("a", "c", f0={"cpu": 4}, f1={"cpu": 4}), preemption=takes_back),
        replace(queue_spec("b", "c", f1={"cpu": 4}), preemption=takes_back),
        queue_spec("poison", "c", f2={"cpu": 4}),
        queue_spec("victim", "c", f1={"cpu": 0}),
    )

    def decided(*names: str) -> dict[str, Decision]:
        snapshot = snapshot_of(*specs)
        held = Reservation("ns/v", "v", "victim", "lq", (AssignedPodSet("main", 1, {"cpu": "f1"}, (("cpu", 8),)),))
        snapshot.queues["victim"].add_reservation(held)
        snapshot.assume(snapshot.queues["victim"], held.usage_by_number)
        heads = [
            Head(
                WorkloadInfo(
                    f"ns/{name}", name, WorkloadShape((pod_set("main", cpu=4),)), cluster_queue=name, priority=priority
                )
            )
            for name, priority in (("b", 2), ("a", 1), ("poison", 0))
            if name in names
        ]
        for head in heads:
            workload = head.workload
            if workload.key == "ns/a":
                workload.scan_position = ScanPosition(
                    ({"cpu": 0},), queue_generation=0, pop_cycle=0, shape=workload.shape
                )
            if workload.key == "ns/poison":
                workload.details = POISON
        return {each.workload: each for each in cycle.run(snapshot, heads, SchedulingPolicy(), 0)}

    alone, beside = decided("a", "b"), decided("a", "b", "poison")
    assert isinstance(alone["ns/a"], Wait)
    assert beside["ns/a"] == alone["ns/a"]
    assert beside["ns/b"] == alone["ns/b"]
    assert isinstance(beside["ns/poison"].failure, ZeroDivisionError)


@pytest.mark.parametrize("details", [POISON, WorkloadDetails(checks=cast(Any, (None,)))], ids=["processing", "refusal"])
@pytest.mark.parametrize("is_reserved", [False, True])
def test_the_exception_of_an_evaluation_that_failed_is_part_of_the_decision(
    details: WorkloadDetails, is_reserved: bool
) -> None:
    held = Reservation("ns/w", "u", "q", "lq", (AssignedPodSet("main", 1, {"cpu": "f"}, (("cpu", 1),)),))
    workload = WorkloadInfo(
        "ns/w",
        "u",
        WorkloadShape((pod_set("main", cpu=1),)),
        cluster_queue="q",
        details=details,
        reservation=held if is_reserved else None,
    )
    [decision] = cycle.run(snapshot_of(queue_spec("q", f={"cpu": 4})), [Head(workload)], SchedulingPolicy(), 0)
    assert isinstance(decision, SecondPassFailed if is_reserved else Wait)
    assert decision.failure is not None
    assert decision.failure.__traceback__ is not None


def test_decisions_are_in_scheduling_order() -> None:
    """By how far they borrow, then priority, then age; heads that are not nominated come last."""
    specs = [queue_spec(name, "c", f={"cpu": 2}) for name in "abcd"]
    heads = [
        Head(WorkloadInfo("ns/borrows", "1", WorkloadShape((pod_set("main", cpu=3),)), cluster_queue="a", priority=9)),
        Head(WorkloadInfo("ns/young", "2", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="b", created=2)),
        Head(WorkloadInfo("ns/old", "3", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="c", created=1)),
        Head(
            WorkloadInfo(
                "ns/urgent", "4", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="d", created=3, priority=1
            )
        ),
        Head(
            WorkloadInfo(
                "ns/nowhere", "0", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="missing", priority=99
            )
        ),
    ]
    decisions = cycle.run(snapshot_of(*specs), heads, SchedulingPolicy(), 0)
    assert [each.workload for each in decisions] == ["ns/urgent", "ns/old", "ns/young", "ns/borrows", "ns/nowhere"]


def test_w16_a_claim_beyond_the_borrowing_limit_never_lowers_usage() -> None:
    spec = queue_spec("q", cohort="c", f={"cpu": 4})
    limited = QueueSpec(
        "q", cohort="c", groups=spec.groups, quotas={FlavorResource("f", "cpu"): Quota(4, borrowing_limit=0)}
    )
    for departures, claimed in ((True, 0), (False, -1)):
        snapshot = snapshot_of(limited, queue_spec("other", cohort="c", f={"cpu": 9}))
        queue = snapshot.queues["q"]
        held = Reservation("ns/v", "v", "q", "lq", (AssignedPodSet("main", 1, {"cpu": "f"}, (("cpu", 5),)),))
        queue.add_reservation(held)
        snapshot.assume(queue, held.usage_by_number)
        running = Cycle(snapshot, SchedulingPolicy(departures=departures), 0)
        workload = WorkloadInfo("ns/w", "u", WorkloadShape((pod_set("main", cpu=1),)), cluster_queue="q")
        running.run([Head(workload)])
        assert [dict(usage) for _, usage, _ in running.claims] == [{0: claimed}]


@pytest.mark.parametrize(("is_owned_by_pod", "outcome"), [(True, Admit), (False, Evict)])
def test_pod_owned_workload_keeps_its_placement_when_its_node_is_lost(
    is_owned_by_pod: bool, outcome: type[Decision]
) -> None:
    """The second pass only clears the list of unhealthy nodes; any other Workload without a replacement is evicted
    ([TS24])."""
    snapshot = snapshot_of(queue_spec("q", f={"cpu": 4}), flavors={"f": FlavorSpec("f", topology="t")})
    snapshot.topology_cache.put_flavor(TopologyFlavor("f", "t", ("kubernetes.io/hostname",)))
    placement = TopologyPlacement(("kubernetes.io/hostname",), (DomainPods(("n1",), 1),))
    held = Reservation(
        "ns/w", "u", "q", "lq", (AssignedPodSet("main", 1, {"cpu": "f"}, (("cpu", 1),), placement),), admitted=True
    )
    workload = WorkloadInfo(
        "ns/w",
        "u",
        WorkloadShape(
            (PodSetResources("main", 1, 1, (("cpu", 1),), pod=(("cpu", 1),), topology_request=TopologyRequest()),)
        ),
        cluster_queue="q",
        details=WorkloadDetails(unhealthy_nodes=("n1",), is_owned_by_pod=is_owned_by_pod),
        reservation=held,
    )
    [decision] = cycle.run(snapshot, [Head(workload)], SchedulingPolicy(), 0)
    assert isinstance(decision, outcome)
    if isinstance(decision, Admit):
        assert decision.pod_sets[0].placement == placement


def test_every_gate_of_the_policy_is_a_field_of_it() -> None:
    for field, gate in GATES.items():
        for value in (True, False):
            assert getattr(SchedulingPolicy().with_gates({gate: value}), field) is value


@pytest.mark.parametrize(
    ("a", "b", "by_borrowing", "by_preemption"),
    [
        ((PreemptionMode.FIT, 0), (PreemptionMode.NO_FIT, 0), True, True),
        ((PreemptionMode.NO_FIT, 0), (PreemptionMode.NO_CANDIDATES, 9), False, False),
        (
            (PreemptionMode.NO_CANDIDATES, 0),
            (PreemptionMode.FIT, 2),
            False,
            False,
        ),  # EC23: a flavor without candidates is not preferred, whatever the preference
        ((PreemptionMode.PREEMPT, 0), (PreemptionMode.FIT, 1), False, True),
        ((PreemptionMode.RECLAIM, 0), (PreemptionMode.PREEMPT, 0), True, True),
        ((PreemptionMode.FIT, 1), (PreemptionMode.FIT, 0), False, False),
        ((PreemptionMode.FIT, 0), (PreemptionMode.FIT, 0), False, False),
    ],
)
def test_preferred_of_two_flavors(
    a: tuple[PreemptionMode, int], b: tuple[PreemptionMode, int], by_borrowing: bool, by_preemption: bool
) -> None:
    assert is_preferred(GranularMode(*a), GranularMode(*b), Preference.BORROWING_OVER_PREEMPTION) is by_borrowing
    assert is_preferred(GranularMode(*a), GranularMode(*b), Preference.PREEMPTION_OVER_BORROWING) is by_preemption


def test_scaling_counts_whole_pods() -> None:
    """[AM17]"""
    assert scaled((("cpu", 10),), 3, 2) == ((("cpu", 6),), 2)
    assert scaled((("cpu", 0),), 0, 5) == ((("cpu", 0),), 0)
