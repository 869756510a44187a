"""The one way in which quota is lost, and the way back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from lifecycle.workload_harness import TWO_CHECKS, WorkloadHarness, facts_of, workload
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, UnderlyingCause, WorkloadCondition
from pykueue.lifecycle import eviction, workload_changes
from pykueue.lifecycle.facts import WorkloadFacts


def evicted(harness: WorkloadHarness, reason: EvictedReason = EvictedReason.NODE_FAILURES) -> WorkloadHarness:
    return harness.write(eviction.evict(harness.workload, reason, "why", harness.now))


@pytest.mark.parametrize("drained", [EvictedReason.LOCAL_QUEUE_STOPPED, EvictedReason.CLUSTER_QUEUE_STOPPED])
def test_drained_workload_waits_for_its_queue(drained: EvictedReason) -> None:
    """The pod of a Workload may be gone, and the Workload with it, before its queue is looked at again."""
    assert evicted(WorkloadHarness().reserved(), drained).released().conditions["QuotaReserved"] == "False/Suspended"


def test_quota_stays_taken_until_the_job_has_stopped() -> None:
    stopping = evicted(WorkloadHarness().reserved())
    assert stopping.conditions["Evicted"] == "True/NodeFailures"
    assert stopping.conditions["QuotaReserved"] == "True/QuotaReserved"
    assert stopping.holds
    stopped = stopping.after(600).released()
    assert stopped.conditions["QuotaReserved"] == "False/PendingEvaluation"
    assert not stopped.holds
    assert workload_changes.Released("cq", "NodeFailures", 600 * SECOND) in stopped.notifications


def test_observed_release_counts_once_with_the_time_since_the_eviction() -> None:
    admitted = WorkloadHarness().reserved().workload
    harness = evicted(WorkloadHarness().reserved())
    stopping = harness.workload
    assert eviction.released(admitted, stopping, harness.now) is None
    stopped = harness.after(600).released().workload
    expected = workload_changes.Released("cq", "NodeFailures", 600 * SECOND)
    assert eviction.released(stopping, stopped, harness.now) == expected
    assert eviction.released(admitted, stopped, harness.now) == expected
    assert eviction.released(stopped, stopped, harness.now) is None
    assert eviction.released(stopped, stopping, harness.now) is None


def test_observed_release_of_a_deactivated_or_finished_workload_does_not_count() -> None:
    harness = evicted(WorkloadHarness().reserved())
    stopping = harness.workload
    stopped = harness.released().workload
    inactive = replace(stopped, spec=replace(stopped.spec, active=False))
    assert eviction.released(stopping, inactive, harness.now) is None
    over = harness.with_condition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, "Succeeded").workload
    assert eviction.released(stopping, over, harness.now) is None


@pytest.mark.parametrize("facts", [facts_of(), facts_of(*TWO_CHECKS)], ids=["admitted", "with checks pending"])
@pytest.mark.parametrize(("was_started", "requeued"), [(True, "False/Preempted"), (False, "True/Preempted")])
def test_single_pod_is_requeued_only_if_it_was_never_started(
    facts: WorkloadFacts, was_started: bool, requeued: str
) -> None:
    """Its pod may still be gated when the Workload is admitted already [LC49]."""
    pod = meta.OwnerReference(api_version="v1", kind="Pod", name="p", uid="u", controller=True)
    harness = WorkloadHarness(facts=facts)
    harness.workload = replace(harness.workload, metadata=replace(harness.workload.metadata, owner_references=(pod,)))
    evicted(harness.reserved().settle(), EvictedReason.PREEMPTED).released(was_started=was_started)
    assert harness.conditions["Requeued"] == requeued


def test_evicted_stays_true_while_it_waits_again() -> None:
    harness = evicted(WorkloadHarness().reserved()).released().settle()
    assert harness.conditions["Evicted"] == "True/NodeFailures"


@pytest.mark.parametrize("other", ["Ready", "Rejected"])
@pytest.mark.parametrize(("before", "after"), [(None, 1), (2, 3)])
def test_a_reset_check_keeps_its_retry_count_and_counts_a_retry(other: str, before: int | None, after: int) -> None:
    harness = WorkloadHarness(facts=facts_of(*TWO_CHECKS)).reserved()
    harness.check_state("c1", "Retry", requeue_after_seconds=9, retry_count=before)
    harness.check_state("c2", other, requeue_after_seconds=7, retry_count=before)
    evicted(harness.after(3))
    one, two = harness.workload.status.admission_checks
    assert (one.state, one.retry_count, one.requeue_after_seconds) == ("Pending", after, 9)
    assert (two.state, two.retry_count, two.requeue_after_seconds) == ("Pending", before, 7)
    assert one.last_transition_time == meta.format_time(harness.now)
    assert harness.mirror == {"c1": "Unknown/Pending", "c2": "Unknown/Pending"}


def test_pod_set_updates_stay_until_the_check_answers_again() -> None:
    suggested = (kueue.PodSetUpdate(name="main", node_selector={"pool": "new"}),)
    harness = (
        WorkloadHarness(facts=facts_of(*TWO_CHECKS)).reserved().check_state("c1", "Ready", pod_set_updates=suggested)
    )
    (one, _) = evicted(harness).workload.status.admission_checks
    assert (one.state, one.pod_set_updates) == ("Pending", suggested)


def test_a_pending_check_is_left_as_it_is() -> None:
    harness = (
        WorkloadHarness(facts=facts_of(*TWO_CHECKS))
        .reserved()
        .check_state("c1", "Pending", retry_count=2, message="asking")
    )
    before = harness.workload.status.admission_checks
    assert evicted(harness.after(9)).workload.status.admission_checks == before


def test_clusters_nodes_and_gates_are_forgotten() -> None:
    harness = (
        WorkloadHarness()
        .reserved()
        .with_condition(WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.TRUE, "PreemptionGated")
    )
    opened = kueue.PreemptionGateState(name="g", position="Open", last_transition_time="2026-01-01T00:00:00Z")
    harness.write(
        (
            workload_changes.SetNominations(("west",), None),
            workload_changes.SetUnhealthyNodes((kueue.UnhealthyNode(name="n1"),)),
            workload_changes.SetPreemptionGates((opened,)),
        )
    )
    status = evicted(harness).workload.status
    assert (status.nominated_cluster_names, status.cluster_name, status.unhealthy_nodes) == ((), None, ())
    assert status.preemption_gates[0].position == "Closed"
    assert harness.conditions["BlockedOnPreemptionGates"] == "False/NodeFailures"


def test_evictions_are_counted_by_reason_and_cause() -> None:
    harness = WorkloadHarness().reserved()
    for cause in (UnderlyingCause.WAIT_FOR_START, UnderlyingCause.WAIT_FOR_START, UnderlyingCause.WAIT_FOR_RECOVERY):
        harness.write(
            eviction.evict(harness.workload, EvictedReason.PODS_READY_TIMEOUT, "why", harness.now, cause=cause)
        ).released().reserved()
    assert harness.evictions == {"PodsReadyTimeout/WaitForStart": 2, "PodsReadyTimeout/WaitForRecovery": 1}
    firsts = [one.is_first for one in harness.notifications if isinstance(one, workload_changes.Evicted)]
    assert firsts == [True, False, True]


def test_deactivation_without_quota_is_counted_without_an_event() -> None:
    harness = evicted(WorkloadHarness())
    assert harness.events == []
    assert harness.evictions == {"NodeFailures/": 1}


def test_eviction_reports_how_long_pods_were_ready() -> None:
    harness = evicted(
        WorkloadHarness()
        .reserved()
        .with_condition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, "Started")
        .after(30)
    )
    assert [one.ready_for for one in harness.notifications if isinstance(one, workload_changes.Evicted)] == [
        30 * SECOND
    ]


def test_preemption_target_has_the_reason_and_is_evicted_once() -> None:
    harness = WorkloadHarness().reserved()
    harness.write(eviction.preempt(harness.workload, PreemptedReason.IN_COHORT_FAIR_SHARING, "made room", harness.now))
    assert harness.conditions["Preempted"] == "True/InCohortFairSharing"
    assert harness.conditions["Evicted"] == "True/Preempted"
    assert harness.events[-2:] == ["Normal EvictedDueToPreempted", "Normal Preempted"]
    again = eviction.preempt(harness.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room again", harness.now)
    assert again == ()


@pytest.mark.parametrize("reason", list(EvictedReason))
def test_only_preemption_and_node_failures_requeue_at_once(reason: EvictedReason) -> None:
    harness = evicted(WorkloadHarness().reserved(), reason).released()
    at_once = reason in (EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES, EvictedReason.QUOTA_WITHDRAWN)
    assert harness.conditions["Requeued"] == f"{at_once}/{reason}"


def test_started_single_pod_is_not_requeued() -> None:
    pod = meta.OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")
    harness = WorkloadHarness(replace(workload(), metadata=meta.ObjectMeta(owner_references=(pod,)))).reserved()
    assert evicted(harness).released().conditions["Requeued"] == "False/NodeFailures"


def test_release_without_quota_changes_nothing() -> None:
    harness = evicted(WorkloadHarness())
    for each in (harness.workload, WorkloadHarness().reserved().workload):
        assert eviction.release(each, harness.options, harness.now) == ()


def test_conditions_stand_in_one_order_from_the_first_eviction_on() -> None:
    """A client that shows them one below the other shows them as it does with Kueue."""
    harness = (
        WorkloadHarness().with_condition(WorkloadCondition.PODS_READY, ConditionStatus.FALSE, "WaitForStart").reserved()
    )
    assert list(harness.conditions) == ["PodsReady", "QuotaReserved", "Admitted"]
    assert list(evicted(harness).conditions) == ["QuotaReserved", "Evicted", "Admitted", "PodsReady"]
    assert list(harness.released().conditions) == ["QuotaReserved", "Evicted", "Admitted", "Requeued", "PodsReady"]
