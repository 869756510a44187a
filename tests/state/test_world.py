"""The World: objects are put and dropped in any order, and the state equals the objects."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import msgspec
import pytest

from kubemachinery import meta
from laws.random_clusters import NAMESPACE, NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, figures
from lifecycle.workload_harness import placed
from pykueue.api import kube, kueue
from pykueue.core.cohort import CohortTree, TreePlan
from pykueue.core.decision import Admit, Preempt, SecondPassFailed, Wait
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.core.queue import FlavorResource
from pykueue.state import audit, scheduling_scope, specs
from pykueue.state.assumed import WriteStage
from pykueue.state.intake import WatchedObject, is_watched
from pykueue.state.world import World


def queue_of(name: str = "q", nominal: int = 4, cohort: str = "") -> QueueCase:
    return QueueCase(name, cohort, (QuotaCase(nominal, None, None),), "Never", "Never", strict=False)


def small(*workloads: WorkloadCase, nominal: int = 4) -> World:
    return ClusterCase((), (queue_of(nominal=nominal),), workloads, fair=False).world()


def at_revision(workload: WorkloadCase, revision: str) -> kueue.Workload:
    thing = workload.thing()
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, resource_version=revision))


WAITING = WorkloadCase(1, "q", 3, 0, 0)


def test_an_old_read_does_not_free_quota_that_was_just_given() -> None:
    world = small()
    world.put(at_revision(WAITING, "5"), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    world.put(at_revision(WAITING, "5"), NOW)
    assert WAITING.key in world.reservations
    world.written(WAITING.key, "7")
    world.put(at_revision(WAITING, "6"), NOW)
    assert figures(world) == {"queue q f0": 3000}
    world.put(at_revision(WAITING, "8"), NOW)  # another client removed the reservation
    assert WAITING.key not in world.reservations
    assert figures(world) == {}


def test_an_event_older_than_the_last_read_releases_no_quota() -> None:
    """Seed 429 of the simulation: a direct read settled the reservation, and then the watch delivered an older revision."""
    world = small()
    world.put(at_revision(WAITING, "5"), NOW)
    world.decide(NOW)
    world.put(at_revision(msgspec_holding(WAITING), "7"), NOW)
    assert not world.is_assumed(WAITING.key)
    world.put(at_revision(WAITING, "6"), NOW)
    assert figures(world) == {"queue q f0": 3000}


def test_a_lost_answer_keeps_the_quota_until_a_read_settles_it() -> None:
    world = small()
    world.put(at_revision(WAITING, "5"), NOW)
    world.decide(NOW)
    world.lost(WAITING.key)
    world.put(at_revision(WAITING, "5"), NOW)
    assert world.write_stage(WAITING.key) is WriteStage.UNKNOWN
    assert figures(world) == {"queue q f0": 3000}
    world.put(at_revision(msgspec_holding(WAITING), "6"), NOW)
    assert not world.is_assumed(WAITING.key)
    assert figures(world) == {"queue q f0": 3000}


def msgspec_holding(workload: WorkloadCase) -> WorkloadCase:
    return WorkloadCase(workload.number, workload.queue, workload.cpu, workload.priority, workload.created, "f0")


def test_a_refused_write_gives_the_quota_back_and_wakes_those_that_wait_for_it() -> None:
    second = WorkloadCase(2, "q", 3, 0, 0)
    world = small(WAITING, second)
    world.decide(NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait)
    world.refuse(WAITING.key)
    assert figures(world) == {}
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    assert decision.workload == second.key


def local_queue(stop_policy: str, cluster_queue: str = "q") -> kueue.LocalQueue:
    return kueue.LocalQueue(
        metadata=meta.ObjectMeta(name="q", namespace=NAMESPACE),
        spec=kueue.LocalQueueSpec(cluster_queue=cluster_queue, stop_policy=stop_policy),
    )


def test_a_stopped_local_queue_removes_its_workloads_and_a_resumed_one_returns_them() -> None:
    world = small(WAITING)
    world.put(local_queue("Hold"), NOW)
    assert world.decide(NOW) == []
    assert len(world.queues["q"]) == 0
    world.put(local_queue("None"), NOW)
    assert [type(decision) for decision in world.decide(NOW)] == [Admit]


def test_workloads_are_tried_in_the_cluster_queue_that_their_recreated_local_queue_names() -> None:
    queues = [
        QueueCase(name, "c", (QuotaCase(n, 0, None),), "Never", "Never", strict=False)
        for name, n in (("q", 1), ("r", 3))
    ]
    world = ClusterCase((), tuple(queues), (WAITING,), fair=False).world()
    assert [type(decision) for decision in world.decide(NOW)] == [Wait]
    world.drop(local_queue("None"))
    assert world.decide(NOW) == []
    world.put(local_queue("None", "r"), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    assert decision.cluster_queue == "r"


def test_quota_that_a_drained_local_queue_releases_requeues_the_workloads_of_its_tree() -> None:
    """The Workload that releases it is in no queue any more; its reservation names the ClusterQueue (decision 0020)."""
    holder = WorkloadCase(0, "q", 3, 0, 1, "f0")
    world = ClusterCase(
        (), (queue_of("q", 3, "c"), queue_of("r", 0, "c")), (holder, WorkloadCase(1, "r", 3, 0, 0)), fair=False
    ).world()
    while world.decide(NOW):
        pass
    assert world.queues["r"].is_parked(f"{NAMESPACE}/w1")
    world.put(local_queue("HoldAndDrain"), NOW)
    assert world.decide(NOW) == []
    world.put(WorkloadCase(0, "q", 3, 0, 1).thing(), NOW)
    assert [(type(d), d.workload) for d in world.decide(NOW)] == [(Admit, f"{NAMESPACE}/w1")]


def test_a_workload_follows_its_local_queue_to_another_cluster_queue() -> None:
    world = ClusterCase((), (queue_of("q", 0), queue_of("r", 9)), (WAITING,), fair=False).world()
    assert [type(decision) for decision in world.decide(NOW)] == [Wait]
    world.put(
        kueue.LocalQueue(
            metadata=meta.ObjectMeta(name="q", namespace=NAMESPACE), spec=kueue.LocalQueueSpec(cluster_queue="r")
        ),
        NOW,
    )
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    assert decision.cluster_queue == "r"


def test_a_namespace_that_comes_to_match_wakes_the_queue() -> None:
    world = small(WAITING)
    selector = meta.LabelSelector(match_labels={"team": "a"})
    thing = queue_of().thing()
    world.put(
        msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, namespace_selector=selector)), NOW
    )
    assert [type(decision) for decision in world.decide(NOW)] == [Wait]
    assert world.decide(NOW) == []
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE, labels={"team": "a"})), NOW)
    assert [type(decision) for decision in world.decide(NOW)] == [Admit]


def test_a_status_update_of_a_cluster_queue_rebuilds_no_tree() -> None:
    world = small(WAITING)
    before = world.snapshot().queues["q"]
    world.put(msgspec.structs.replace(queue_of().thing(), status=kueue.ClusterQueueStatus(pending_workloads=1)), NOW)
    world.settle(NOW)
    assert world.snapshot().queues["q"] is before


def test_a_change_in_one_tree_leaves_the_others_standing() -> None:
    world = ClusterCase((), (queue_of("q", cohort="one"), queue_of("r", cohort="two")), (), fair=False).world()
    before = world.snapshot().queues["r"].node.tree
    world.put(queue_of("q", nominal=9, cohort="one").thing(), NOW)
    world.settle(NOW)
    assert world.snapshot().queues["r"].node.tree is before


def test_cohorts_that_come_one_after_another_build_their_trees_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a start with many Cohorts takes a time that grows with their square."""
    build, built = CohortTree.build, []

    def counted(plan: TreePlan) -> CohortTree:
        built.append(plan.root)
        return build(plan)

    world = ClusterCase((), (queue_of("q", cohort="a"), queue_of("r", cohort="b")), (), fair=False).world()
    world.settle(NOW)
    monkeypatch.setattr(CohortTree, "build", counted)
    for name in ("a", "b", "c", "d"):
        spec = kueue.CohortSpec(parent_name="top")
        world.put(kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=spec), NOW)
    world.settle(NOW)
    assert built == ["top"]
    assert world.cohort_path("q") == "/top/a/q"


def test_a_limit_range_marks_the_workloads_of_its_namespace_outdated() -> None:
    world = small(WAITING)
    limits = kube.LimitRangeItem(type="Container", max={"cpu": "1"})
    limit_range = kube.LimitRange(
        metadata=meta.ObjectMeta(name="l", namespace=NAMESPACE), spec=kube.LimitRangeSpec(limits=(limits,))
    )
    world.put(limit_range, NOW)
    assert world.take_outdated() == {WAITING.key}
    assert world.take_outdated() == set()
    world.put(limit_range, NOW)
    world.put(WAITING.thing(), NOW)
    assert world.take_outdated() == set()
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait)
    assert decision.reason == "Misconfigured"


@pytest.mark.parametrize("is_on", [True, False])
def test_a_queue_excludes_resources_from_its_quota_where_the_gate_is_on(is_on: bool) -> None:
    """KEP-5800: a change of the list reaches pending Workloads; what is reserved keeps what it was charged."""
    world = World(SchedulingPolicy(queue_exclusions=is_on))
    for thing in ClusterCase((), (queue_of(nominal=1),), (WAITING,), fair=False).things():
        world.put(thing, NOW)
    assert [type(decision) for decision in world.decide(NOW)] == [Wait]
    thing = queue_of(nominal=1).thing()
    world.put(
        msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, exclude_resource_prefixes=("cp",))),
        NOW,
    )
    assert world.take_outdated() == ({WAITING.key} if is_on else set())
    world.put(WAITING.thing(), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit) is is_on
    assert figures(world) == {}


def test_a_back_off_that_ends_brings_its_workload_back_without_any_event() -> None:
    thing = WAITING.thing()
    until = NOW + 60 * meta.SECOND
    state = kueue.RequeueState(count=1, requeue_at=meta.format_time(until))
    world = small()
    world.put(msgspec.structs.replace(thing, status=kueue.WorkloadStatus(requeue_state=state)), NOW)
    assert world.decide(NOW) == []
    assert world.next_wake() == until
    assert world.decide(until - 1) == []
    assert world.pending_count("ns/q") == 0  # it is not counted before
    world.settle(until)
    assert world.pending_count("ns/q") == 1
    assert [type(decision) for decision in world.decide(until)] == [Admit]
    assert world.next_wake() is None


def test_a_workload_that_was_pending_before_its_backoff_is_counted() -> None:
    """Seed 2040 of the simulation: its admission and its eviction in between were missed, since the watch was broken."""
    thing = WAITING.thing()
    world = small()
    world.put(thing, NOW)
    state = kueue.RequeueState(count=1, requeue_at=meta.format_time(NOW + 60 * meta.SECOND))
    world.put(msgspec.structs.replace(thing, status=kueue.WorkloadStatus(requeue_state=state)), NOW)
    assert world.decide(NOW) == []
    assert [type(decision) for decision in world.decide(NOW + 60 * meta.SECOND)] == [Admit]


def test_a_workload_in_its_back_off_is_counted_once_something_is_written_about_it() -> None:
    state = kueue.RequeueState(count=1, requeue_at=meta.format_time(NOW + 60 * meta.SECOND))
    resting = kueue.WorkloadStatus(requeue_state=state)
    world = small()
    for revision, counted in (("5", 0), ("5", 0), ("6", 1), ("6", 1)):
        world.put(msgspec.structs.replace(at_revision(WAITING, revision), status=resting), NOW)
        assert world.pending_count("ns/q") == counted
    assert world.decide(NOW) == []


def test_the_audit_reports_differences_as_sentences() -> None:
    world, other = small(WAITING), small()
    assert audit.differences(world, other) == ["ns/w1: is pending in q only in the cache"]
    world.decide(NOW)
    assert audit.differences(world, other) == []  # it is being written: the objects cannot show it yet
    world.confirm(WAITING.key)
    assert audit.differences(world, other) == [
        "ns/w1: holds quota only in the cache",
        "queue q, cpu of f0: uses 3000, rebuilt 0",
    ]


def test_audit_reports_usage_that_is_hidden_behind_no_preemptor() -> None:
    """No object has deferred preemptions (KEP-993): the audit copies those that are consistent, and no others."""
    holding = msgspec_holding(WAITING)
    world, other = small(holding), small(holding)
    world.reservations[holding.key].hidden["ns/gone"] = {FlavorResource("f0", "cpu"): 1000}
    queue = world.cluster_queues["q"]
    moved = msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, cohort_name="other"))
    for each in (world, other):  # a queue in another cohort is counted again
        each.put(moved, NOW)
        each.settle(NOW)
    assert audit.differences(world, other) == [
        "cohort other, cpu of f0: uses 2000, rebuilt 3000",
        "queue q, cpu of f0: uses 2000, rebuilt 3000",
    ]


def test_a_kind_that_scheduling_does_not_depend_on_is_refused() -> None:
    world, unknown = small(WAITING), kube.ConfigMap(metadata=meta.ObjectMeta(name="c"))
    assert not is_watched(unknown)
    with pytest.raises(TypeError, match="ConfigMap"):
        world.put(unknown, NOW)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ConfigMap"):
        world.drop(unknown)  # type: ignore[arg-type]
    assert len(world.decide(NOW)) == 1


def test_every_watched_kind_has_handlers() -> None:
    assert all(is_watched(kind()) for kind in get_args(WatchedObject))


def test_a_strict_queue_stays_strict_whichever_comes_first_it_or_its_cohort() -> None:
    """A manager that starts reads them in any order; in a StrictFIFO queue none passes the head."""
    strict = QueueCase("q", "c", (QuotaCase(4, None, None),), "Never", "Never", strict=True)
    case = ClusterCase((), (strict,), (WorkloadCase(1, "q", 9, 0, 1), WorkloadCase(2, "q", 1, 0, 0)), fair=False)
    world = World(case.policy)
    for thing in (*case.things(), kueue.Cohort(metadata=meta.ObjectMeta(name="c"))):
        world.put(thing, NOW)
    assert [decision.workload for decision in world.decide(NOW)] == [f"{NAMESPACE}/w1"]
    assert world.decide(NOW) == []


def pending_preemption() -> tuple[World, WorkloadCase]:
    """A head whose target is being evicted; and another tree."""
    queue = QueueCase("q", "", (QuotaCase(4, None, None),), "LowerPriority", "Never", strict=False)
    victim = WorkloadCase(0, "q", 3, 0, 0, "f0")
    case = ClusterCase((), (queue, queue_of("r")), (victim, WorkloadCase(1, "q", 3, 5, 0)), fair=False)
    world = case.world()
    assert [type(decision) for decision in world.decide(NOW)] == [Preempt]
    while world.decide(NOW):
        pass
    return world, victim


def test_a_head_that_waits_for_its_targets_is_not_retried_for_unrelated_changes() -> None:
    world, _ = pending_preemption()
    world.put(WorkloadCase(2, "q", 1, 0, 9).thing(), NOW)  # behind it in its own line
    assert world.decide(NOW) == []
    world.put(WorkloadCase(3, "r", 1, 0, 0).thing(), NOW)  # in another tree
    assert [decision.workload for decision in world.decide(NOW)] == [f"{NAMESPACE}/w3"]


def test_a_head_that_waits_for_its_victims_gets_in_when_they_are_gone() -> None:
    world, victim = pending_preemption()
    world.put(WorkloadCase(victim.number, "q", 3, 0, 0).thing(), NOW)
    assert [(type(decision), decision.workload) for decision in world.decide(NOW)] == [(Admit, f"{NAMESPACE}/w1")]


def test_a_status_write_of_a_pending_workload_starts_no_cycle() -> None:
    """Its own condition, as written for it, comes back by the watch."""
    world = small(WorkloadCase(1, "q", 9, 0, 0))
    assert len(world.decide(NOW)) == 1
    reported = meta.Condition(
        type="QuotaReserved", status="False", reason="ExceedsMaxQuota", message="9 asked, 4 at most"
    )
    thing = WorkloadCase(1, "q", 9, 0, 0).thing()
    world.put(msgspec.structs.replace(thing, status=kueue.WorkloadStatus(conditions=(reported,))), NOW)
    assert world.decide(NOW) == []


def test_the_watch_event_of_an_own_admission_starts_no_cycle() -> None:
    strict = QueueCase("q", "", (QuotaCase(4, None, None),), "Never", "Never", strict=True)
    first, second = WorkloadCase(1, "q", 3, 0, 1), WorkloadCase(2, "q", 3, 0, 0)
    world = ClusterCase((), (strict,), (first, second), fair=False).world()
    while world.decide(NOW):
        pass
    world.written(first.key, "6")
    reserved = meta.Condition(
        type="QuotaReserved", status="True", reason="QuotaReserved", last_transition_time=meta.format_time(NOW)
    )
    admitted = msgspec.structs.replace(reserved, type="Admitted")
    thing = at_revision(replace(first, flavor="f0"), "6")
    status = msgspec.structs.replace(thing.status, conditions=(reserved, admitted))
    world.put(msgspec.structs.replace(thing, status=status), NOW)
    assert not world.is_assumed(first.key)
    assert world.decide(NOW) == []


def test_a_node_heartbeat_starts_no_cycle_and_a_deleted_node_does() -> None:
    world = World(SchedulingPolicy())
    level = kueue.TopologyLevel(node_label="kubernetes.io/hostname")
    world.put(kueue.Topology(metadata=meta.ObjectMeta(name="t"), spec=kueue.TopologySpec(levels=(level,))), NOW)
    for thing in ClusterCase((), (queue_of("q"), queue_of("r")), (WorkloadCase(1, "q", 3, 0, 0),), fair=False).things():
        world.put(thing, NOW)
    flavor = kueue.ResourceFlavorSpec(topology_name="t")
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="f0"), spec=flavor), NOW)

    def node(heartbeat: str) -> kube.Node:
        ready = kube.NodeCondition(type="Ready", status="True", last_heartbeat_time=heartbeat)
        return kube.Node(
            metadata=meta.ObjectMeta(name="n", labels={"kubernetes.io/hostname": "n"}),
            status=kube.NodeStatus(allocatable={"cpu": "2", "pods": "9"}, conditions=(ready,)),
        )

    world.put(node("2026-01-01T00:00:00Z"), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait)
    assert world.decide(NOW) == []
    world.put(node("2026-01-01T00:00:10Z"), NOW)
    assert world.decide(NOW) == []
    world.drop(node("2026-01-01T00:00:10Z"))
    assert [decision.workload for decision in world.decide(NOW)] == [f"{NAMESPACE}/w1"]


def test_a_pod_that_ends_requeues_only_where_a_flavor_has_its_node() -> None:
    """The event names the ClusterQueues with a topology flavor that selects the node [QU24]."""
    world = World(SchedulingPolicy())
    level = kueue.TopologyLevel(node_label="kubernetes.io/hostname")
    world.put(kueue.Topology(metadata=meta.ObjectMeta(name="t"), spec=kueue.TopologySpec(levels=(level,))), NOW)
    for thing in ClusterCase((), (queue_of("q", nominal=9),), (WorkloadCase(1, "q", 3, 0, 0),), fair=False).things():
        world.put(thing, NOW)
    flavor = kueue.ResourceFlavorSpec(node_labels={"pool": "mine"}, topology_name="t")
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="f0"), spec=flavor), NOW)

    def node(name: str, pool: str) -> kube.Node:
        return kube.Node(
            metadata=meta.ObjectMeta(name=name, labels={"kubernetes.io/hostname": name, "pool": pool}),
            status=kube.NodeStatus(
                allocatable={"cpu": "4", "pods": "9"}, conditions=(kube.NodeCondition(type="Ready", status="True"),)
            ),
        )

    def pod(name: str) -> kube.Pod:
        requests = kube.ResourceRequirements(requests={"cpu": "2"})
        containers = (kube.Container(name="c", resources=requests),)
        spec = kube.PodSpec(node_name=name, containers=containers)
        return kube.Pod(metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE), spec=spec)

    for name, pool in (("n1", "mine"), ("n2", "other")):
        world.put(node(name, pool), NOW)
        world.put(pod(name), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait)
    world.drop(pod("n2"))
    assert world.decide(NOW) == []
    world.drop(pod("n1"))
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)


def test_how_pods_are_to_be_spread_makes_a_workload_a_kind_of_its_own() -> None:
    """One result holds for a whole equivalence class; these two are in different ones [QU12]."""
    world = small(WorkloadCase(1, "q", 9, 0, 1))
    thing = WorkloadCase(2, "q", 9, 0, 0).thing()
    [pod_set] = thing.spec.pod_sets
    spread = ({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},)
    spec = msgspec.structs.replace(pod_set.template.spec, topology_spread_constraints=spread)
    template = msgspec.structs.replace(pod_set.template, spec=spec)
    pod_sets = (msgspec.structs.replace(pod_set, template=template),)
    world.put(msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, pod_sets=pod_sets)), NOW)
    assert [decision.workload for decision in world.decide(NOW)] == [f"{NAMESPACE}/w1"]
    assert [decision.workload for decision in world.decide(NOW)] == [f"{NAMESPACE}/w2"]


@pytest.mark.parametrize("is_on", [True, False])
def test_pods_with_device_claims_are_refused_before_admission(is_on: bool) -> None:
    world = World(SchedulingPolicy(refuse_claims=is_on))
    for thing in ClusterCase((), (queue_of(),), (), fair=False).things():
        world.put(thing, NOW)
    thing = WAITING.thing()
    [pod_set] = thing.spec.pod_sets
    claims = (kube.PodResourceClaim(name="gpu", resource_claim_template_name="one"),)
    template = msgspec.structs.replace(
        pod_set.template, spec=msgspec.structs.replace(pod_set.template.spec, resource_claims=claims)
    )
    pod_sets = (msgspec.structs.replace(pod_set, template=template),)
    world.put(msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, pod_sets=pod_sets)), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait if is_on else Admit)
    assert not isinstance(decision, Wait) or decision.reason == "Misconfigured"


def test_the_next_workload_is_tried_when_the_head_leaves_the_queue() -> None:
    strict = QueueCase("q", "", (QuotaCase(4, None, None),), "Never", "Never", strict=True)
    head = WorkloadCase(1, "q", 9, 5, 0)
    world = ClusterCase((), (strict,), (head, WorkloadCase(2, "q", 1, 0, 0)), fair=False).world()
    while world.decide(NOW):
        pass
    thing = head.thing()
    world.put(msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, active=False)), NOW)
    assert [(type(d), d.workload) for d in world.decide(NOW)] == [(Admit, f"{NAMESPACE}/w2")]


def test_a_head_is_retried_when_another_queue_borrows_what_it_may_reclaim() -> None:
    """`r` does not borrow, so no Workload may reclaim from it; with one more it borrows, and its lowest is preempted."""
    lending = kueue.BorrowWithinCohort(policy="LowerPriority")
    preemption = kueue.ClusterQueuePreemption(reclaim_within_cohort="Any", borrow_within_cohort=lending)
    queue = QueueCase("q", "c", (QuotaCase(1, None, None),), "Never", "Any", strict=True)
    case = ClusterCase(
        (),
        (queue, queue_of("r", cohort="c")),
        (WorkloadCase(1, "q", 3, 5, 0), WorkloadCase(3, "r", 3, 0, 9, "f0")),
        fair=False,
    )
    world = case.world()
    thing = queue.thing()
    world.put(msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, preemption=preemption)), NOW)
    while world.decide(NOW):
        pass
    assert not any(held.evicted for held in world.reservations.values())
    world.put(WorkloadCase(4, "r", 2, 1, 0, "f0").thing(), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Preempt)
    assert [victim.key for victim in decision.targets] == [f"{NAMESPACE}/w3"]


def test_a_queue_that_leaves_its_cohort_wakes_those_who_stay_behind() -> None:
    """It had borrowed more than its own quota: what it takes along is free for the others."""
    world = ClusterCase(
        (),
        (queue_of("q", 3, "c"), queue_of("r", 1, "c")),
        (WorkloadCase(0, "r", 3, 0, 1, "f0"), WorkloadCase(1, "q", 3, 0, 0)),
        fair=False,
    ).world()
    while world.decide(NOW):
        pass
    assert world.queues["q"].is_parked(f"{NAMESPACE}/w1")
    world.put(queue_of("r", 1, "elsewhere").thing(), NOW)
    assert [(type(d), d.workload) for d in world.decide(NOW)] == [(Admit, f"{NAMESPACE}/w1")]


def test_a_head_whose_namespace_is_selected_no_more_lets_the_next_one_through() -> None:
    thing = QueueCase("q", "", (QuotaCase(4, None, None),), "Never", "Never", strict=True).thing()
    selector = meta.LabelSelector(match_labels={"team": "a"})
    world = small(WorkloadCase(1, "q", 9, 0, 0))
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE, labels={"team": "a"})), NOW)
    world.put(
        msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, namespace_selector=selector)), NOW
    )
    while world.decide(NOW):
        pass
    assert not world.queues["q"].is_parked(f"{NAMESPACE}/w1")
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE, labels={"team": "b"})), NOW)
    [decision] = world.decide(NOW)
    assert isinstance(decision, Wait)
    assert decision.reason == "Misconfigured"
    assert world.queues["q"].is_parked(f"{NAMESPACE}/w1")


def test_a_preemptor_stays_remembered_when_its_reservation_is_refused() -> None:
    """Kueue clears the memory of a preemptor when a read confirms its reservation, not when it is assumed."""
    queue = QueueCase("q", "", (QuotaCase(4, None, None),), "LowerPriority", "Never", strict=False)
    victim, preemptor = WorkloadCase(1, "q", 4, 0, 0, flavor="f0"), WorkloadCase(2, "q", 4, 5, 0)
    world = ClusterCase((), (queue,), (victim, preemptor), fair=False).world()
    [decision] = world.decide(NOW)
    assert isinstance(decision, Preempt)
    remembered = world.queues["q"].preemptor
    assert remembered is not None
    world.drop(victim.thing())
    [decision] = world.decide(NOW)
    assert isinstance(decision, Admit)
    assert world.queues["q"].preemptor is None
    world.refuse(preemptor.key)
    world.put(preemptor.thing(), NOW)
    pending = world.queues["q"]
    assert (pending.preemptor, pending.sticky) == (remembered, preemptor.key)
    world.decide(NOW)
    world.put(msgspec_holding(preemptor).thing(), NOW)  # confirmed
    world.refuse(preemptor.key)
    assert world.queues["q"].preemptor is None


def test_decisions_of_several_trees_are_in_one_scheduling_order() -> None:
    """Queues without a cohort are decided apart; the order is that of one cycle over all of them."""
    queues = tuple(QueueCase(name, "", (QuotaCase(3, None, None),), "Never", "Never", strict=False) for name in "abc")
    workloads = (
        WorkloadCase(0, "a", 1, priority=0, created=1),
        WorkloadCase(1, "b", 1, priority=0, created=2),  # older
        WorkloadCase(2, "c", 1, priority=5, created=0),
    )
    world = ClusterCase((), queues, workloads, fair=False).world()
    assert [each.workload for each in world.decide(NOW)] == ["ns/w2", "ns/w1", "ns/w0"]


def test_a_call_looks_at_a_bounded_number_of_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_scope, "SCOPES_AT_ONCE", 2)
    names = "abcde"
    last = WorkloadCase(1, "e", 1, 0, 0)
    world = ClusterCase((), tuple(map(queue_of, names)), (last,), fair=False).world()
    calls = 0
    while not (decisions := world.decide(NOW, enough=20)):
        assert world.has_due_scopes
        calls += 1
    assert calls == 2
    assert [(type(each), each.workload) for each in decisions] == [(Admit, last.key)]
    while world.has_due_scopes:
        assert world.decide(NOW, enough=20) == []


class TestPrepare:
    """`prepare` in any number of steps, with changes in between, leaves the state that `settle` alone leaves."""

    CASE = ClusterCase(
        (("top", "", QuotaCase(2, None, None)), ("low", "top", QuotaCase(1, None, None))),
        (queue_of("a", 4, "low"), queue_of("b", 3, "top"), queue_of("c", 5), queue_of("d", 1, "other")),
        (WorkloadCase(1, "a", 3, 0, 0, "f0"), WorkloadCase(2, "c", 2, 0, 0, "f0"), WorkloadCase(3, "d", 1, 0, 0)),
        fair=False,
    )
    CHANGES: tuple[WatchedObject, ...] = (
        queue_of("a", 7, "other").thing(),
        kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="f0")),
        queue_of("c", 9).thing(),
        kueue.Cohort(metadata=meta.ObjectMeta(name="top"), spec=kueue.CohortSpec(parent_name="other")),
        queue_of("new", 2, "low").thing(),
    )

    @staticmethod
    def shape(world: World) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, queue in world.snapshot().queues.items():
            node, root = queue.node, queue.node.root
            assert node.tree.queues[name] is node
            assert root.tree is node.tree
            potential = dict(zip(node.tree.pairs, node.potential, strict=True))
            found[name] = (world.cohort_path(name), root.name, potential, queue.generation, sorted(queue.reservations))
        return found

    @pytest.mark.parametrize("steps", range(12))
    @pytest.mark.parametrize("is_settled", [False, True])
    @pytest.mark.parametrize("change", [None, *range(len(CHANGES))])
    def test_prepared_state_equals_the_state_of_settle(self, steps: int, is_settled: bool, change: int | None) -> None:
        prepared, plain = World(), World()
        for world in (prepared, plain):
            for thing in self.CASE.things():
                world.put(thing, NOW)
            if is_settled:
                world.settle(NOW)
                world.put(queue_of("b", 8, "top").thing(), NOW)
                world.put(queue_of("d", 6, "other").thing(), NOW)
        ahead = prepared.prepare()
        for _ in range(steps):
            next(ahead, None)
        for world in (prepared, plain):
            if change is not None:
                world.put(self.CHANGES[change], NOW)
        for _ in ahead:
            pass
        for world in (prepared, plain):
            world.settle(NOW)
        assert self.shape(prepared) == self.shape(plain)
        assert figures(prepared) == figures(plain)
        assert audit.differences(prepared, plain) == []

    def test_settle_reads_nothing_again_after_prepare(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        for thing in self.CASE.things():
            if not isinstance(thing, kueue.Workload):
                world.put(thing, NOW)
        for queue in self.CASE.queues:
            world.put(
                msgspec.structs.replace(queue.thing(), spec=queue_of(queue.name, 6, queue.cohort).thing().spec), NOW
            )
        for _ in world.prepare():
            pass

        def fails(*_: object) -> None:
            raise AssertionError("it was read and built before")

        monkeypatch.setattr(specs, "queue_spec", fails)
        monkeypatch.setattr(CohortTree, "build", fails)
        world.settle(NOW)
        assert world.cohort_path("a") == "/top/low/a"


def elastic(number: int, count: int, flavor: str | None = None, replaces: int | None = None) -> kueue.Workload:
    """A slice of an elastic job, of so many pods of one core."""
    made = WorkloadCase(number, "q", 1, 0, 0, flavor).thing()
    marks = {"kueue.x-k8s.io/elastic-job": "true"}
    if replaces is not None:
        marks["kueue.x-k8s.io/workload-slice-replacement-for"] = f"{NAMESPACE}/w{replaces}"
    [pod_set] = made.spec.pod_sets
    status = made.status
    if status.admission is not None:
        [assigned] = status.admission.pod_set_assignments
        assigned = msgspec.structs.replace(assigned, count=count, resource_usage={"cpu": str(count)})
        given = msgspec.structs.replace(status.admission, pod_set_assignments=(assigned,))
        status = msgspec.structs.replace(status, admission=given)
    spec = msgspec.structs.replace(made.spec, pod_sets=(msgspec.structs.replace(pod_set, count=count),))
    metadata = msgspec.structs.replace(made.metadata, annotations=marks, resource_version="5")
    return msgspec.structs.replace(made, metadata=metadata, spec=spec, status=status)


def on_failed_node(slice_: kueue.Workload, node: str) -> kueue.Workload:
    """The slice, admitted, placed on a node that failed."""
    admission = slice_.status.admission
    assert admission is not None
    [assigned] = admission.pod_set_assignments
    [where] = placed(node).pod_set_assignments
    assigned = msgspec.structs.replace(assigned, topology_assignment=where.topology_assignment)
    admitted = meta.Condition(
        type="Admitted", status="True", last_transition_time=meta.format_time(NOW), reason="Admitted", message=""
    )
    status = msgspec.structs.replace(
        slice_.status,
        admission=msgspec.structs.replace(admission, pod_set_assignments=(assigned,)),
        unhealthy_nodes=(kueue.UnhealthyNode(name=node),),
        conditions=(*slice_.status.conditions, admitted),
    )
    return msgspec.structs.replace(slice_, status=status)


OLD_SLICE, NEW_SLICE = f"{NAMESPACE}/w1", f"{NAMESPACE}/w2"


def growing() -> World:
    """A job of two pods grows to three, and a reservation for the three is being written."""
    world = small(WorkloadCase(3, "q", 3, 0, 0), nominal=4)
    world.put(elastic(1, 2, "f0"), NOW)
    world.put(elastic(2, 3, replaces=1), NOW)
    decided = world.decide(NOW)
    assert (type(decided[0]), decided[0].workload) == (Admit, NEW_SLICE)
    assert figures(world) == {"queue q f0": 3000}
    return world


def test_a_slice_that_waits_for_a_node_is_tried_again_when_its_quota_is_restored() -> None:
    """Also the delay before its node is replaced goes on [CY17]."""
    world = World(SchedulingPolicy(node_replacement_delay=60 * meta.SECOND))
    for thing in ClusterCase((), (queue_of(nominal=4),), (), fair=False).things():
        world.put(thing, NOW)
    failed = on_failed_node(elastic(1, 2, "f0"), "n1")
    world.put(failed, NOW)
    world.put(elastic(2, 3, replaces=1), NOW)
    world.decide(NOW)
    assert not world.second_passes
    world.refuse(NEW_SLICE)
    assert world.second_passes.keys() == {OLD_SLICE}
    assert world.next_second_pass == NOW + 60 * meta.SECOND
    world.put(failed, NOW + 30 * meta.SECOND)
    assert world.next_second_pass == NOW + 60 * meta.SECOND


def test_a_slice_is_replaced_in_the_cycle_in_which_its_second_pass_loses_to_the_new_slice() -> None:
    """With fair sharing one entry of a ClusterQueue is processed, and it is not the second pass [FS10]. The second pass
    waits with the quota of the slice, and is tried again if the reservation of the new slice is not stored [CY17]."""
    world = World(SchedulingPolicy(fair_sharing=(FairSharingStrategy.LESS_THAN_INITIAL_SHARE,)))
    for thing in ClusterCase((), (queue_of(nominal=4),), (), fair=True).things():
        world.put(thing, NOW)
    world.put(on_failed_node(elastic(1, 2, "f0"), "n1"), NOW)
    world.put(elastic(2, 3, replaces=1), NOW)
    decided = world.decide(NOW)
    assert [(type(each), each.workload) for each in decided] == [(Admit, NEW_SLICE), (SecondPassFailed, OLD_SLICE)]
    assert figures(world) == {"queue q f0": 3000}
    assert not world.second_passes
    world.refuse(NEW_SLICE)
    assert figures(world) == {"queue q f0": 2000}
    assert world.second_passes.keys() == {OLD_SLICE}
    assert world.next_second_pass == 0


def test_a_slice_keeps_its_quota_when_the_reservation_that_replaces_it_was_not_stored() -> None:
    world = growing()
    world.refuse(NEW_SLICE)
    assert figures(world) == {"queue q f0": 2000}
    while world.decide(NOW):
        pass
    assert world.reservations.keys() == {OLD_SLICE}


@pytest.mark.parametrize("deleted", [True, False])
def test_a_slice_keeps_its_quota_when_its_replacement_ends_before_it_is_stored(deleted: bool) -> None:
    world = growing()
    if deleted:
        world.drop(elastic(2, 3, replaces=1))
    else:
        after = elastic(2, 3, replaces=1)
        metadata = msgspec.structs.replace(after.metadata, resource_version="6")
        spec = msgspec.structs.replace(after.spec, active=False)
        world.put(msgspec.structs.replace(after, metadata=metadata, spec=spec), NOW)
    assert figures(world) == {"queue q f0": 2000}


@pytest.mark.parametrize("confirmed_first", [True, False])
def test_a_slice_that_was_replaced_has_no_quota_when_its_replacement_ends(confirmed_first: bool) -> None:
    world = growing()
    stored = elastic(2, 3, "f0", replaces=1)
    if confirmed_first:
        world.written(NEW_SLICE, "7")
        metadata = msgspec.structs.replace(stored.metadata, resource_version="7")
        world.put(msgspec.structs.replace(stored, metadata=metadata), NOW)
    world.drop(elastic(1, 2, "f0"))
    world.drop(stored)
    assert figures(world) == {}


def test_requested_share_is_the_largest_of_all_resources_and_of_all_flavors_together() -> None:
    def group(*resources: tuple[str, int]) -> kueue.ResourceGroup:
        flavors = tuple(
            kueue.FlavorQuotas(
                name=f"f{number}-{resources[0][0]}",
                resources=tuple(kueue.ResourceQuota(name=name, nominal_quota=amount) for name, amount in resources),
            )
            for number in range(2)
        )
        return kueue.ResourceGroup(covered_resources=tuple(name for name, _ in resources), flavors=flavors)

    made = queue_of().thing()
    spec = msgspec.structs.replace(made.spec, resource_groups=(group(("cpu", 10), ("memory", 0)), group(("pods", 100))))
    world = World()
    world.put(msgspec.structs.replace(made, spec=spec), NOW)
    world.settle(NOW)
    assert world.requested_share(WAITING.thing(), "q") == pytest.approx(3 / 20)
    pod_set = msgspec.structs.replace(WAITING.thing().spec.pod_sets[0], count=2)
    many = msgspec.structs.replace(WorkloadCase(1, "q", 0, 0, 0).thing().spec.pod_sets[0], name="other", count=58)
    workload = WAITING.thing()
    workload = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, pod_sets=(pod_set, many)))
    assert world.requested_share(workload, "q") == pytest.approx(0.3)
    workload = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, pod_sets=(many,)))
    assert world.requested_share(workload, "q") == pytest.approx(58 / 200)
    assert world.requested_share(workload, "no-such-queue") == 0.0
