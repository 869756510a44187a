"""The one way in which quota is lost, and the way back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from lifecycle.stories import TWO_CHECKS, Life, workload, world
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, UnderlyingCause, WorkloadCondition
from pykueue.lifecycle import eviction, workload_changes
from pykueue.lifecycle.facts import WorkloadFacts


def evicted(life: Life, reason: EvictedReason = EvictedReason.NODE_FAILURES) -> Life:
    return life.write(eviction.evict(life.workload, reason, "why", life.now))


@pytest.mark.parametrize("drained", [EvictedReason.LOCAL_QUEUE_STOPPED, EvictedReason.CLUSTER_QUEUE_STOPPED])
def test_whoever_was_drained_waits_for_its_queue_from_the_first_moment(drained: EvictedReason) -> None:
    """The pod of a Workload may be gone, and the Workload with it, before its queue is looked at again."""
    assert evicted(Life().reserved(), drained).released().conditions["QuotaReserved"] == "False/Suspended"


def test_quota_stays_taken_until_the_job_has_stopped() -> None:
    stopping = evicted(Life().reserved())
    assert stopping.conditions["Evicted"] == "True/NodeFailures"
    assert stopping.conditions["QuotaReserved"] == "True/QuotaReserved"
    assert stopping.holds
    stopped = stopping.after(600).released()
    assert stopped.conditions["QuotaReserved"] == "False/PendingEvaluation"
    assert not stopped.holds
    assert workload_changes.Released("cq", "NodeFailures", 600 * SECOND) in stopped.news


@pytest.mark.parametrize(("facts", "requeued"), [(world(), "False/Preempted"), (world(*TWO_CHECKS), "True/Preempted")])
def test_a_lone_pod_comes_back_only_if_it_was_never_started(facts: WorkloadFacts, requeued: str) -> None:
    """With checks still to pass, it has quota and stands at its gate."""
    pod = meta.OwnerReference(api_version="v1", kind="Pod", name="p", uid="u", controller=True)
    life = Life(facts=facts)
    life.workload = replace(life.workload, metadata=replace(life.workload.metadata, owner_references=(pod,)))
    assert evicted(life.reserved().steps(), EvictedReason.PREEMPTED).released().conditions["Requeued"] == requeued


def test_evicted_stays_true_while_it_waits_again() -> None:
    life = evicted(Life().reserved()).released().steps()
    assert life.conditions["Evicted"] == "True/NodeFailures"


@pytest.mark.parametrize("other", ["Ready", "Rejected"])
@pytest.mark.parametrize(("before", "after"), [(None, 1), (2, 3)])
def test_a_reset_check_keeps_its_retry_count_and_counts_a_retry(other: str, before: int | None, after: int) -> None:
    life = Life(facts=world(*TWO_CHECKS)).reserved()
    life.says("c1", "Retry", requeue_after_seconds=9, retry_count=before)
    life.says("c2", other, requeue_after_seconds=7, retry_count=before)
    evicted(life.after(3))
    one, two = life.workload.status.admission_checks
    assert (one.state, one.retry_count, one.requeue_after_seconds) == ("Pending", after, 9)
    assert (two.state, two.retry_count, two.requeue_after_seconds) == ("Pending", before, 7)
    assert one.last_transition_time == meta.format_time(life.now)
    assert life.mirror == {"c1": "Unknown/Pending", "c2": "Unknown/Pending"}


def test_what_a_check_suggested_for_the_pods_stays_until_it_answers_again() -> None:
    suggested = (kueue.PodSetUpdate(name="main", node_selector={"pool": "new"}),)
    life = Life(facts=world(*TWO_CHECKS)).reserved().says("c1", "Ready", pod_set_updates=suggested)
    (one, _) = evicted(life).workload.status.admission_checks
    assert (one.state, one.pod_set_updates) == ("Pending", suggested)


def test_a_pending_check_is_left_as_it_is() -> None:
    life = Life(facts=world(*TWO_CHECKS)).reserved().says("c1", "Pending", retry_count=2, message="asking")
    before = life.workload.status.admission_checks
    assert evicted(life.after(9)).workload.status.admission_checks == before


def test_clusters_nodes_and_gates_are_forgotten() -> None:
    life = (
        Life().reserved().told(WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.TRUE, "PreemptionGated")
    )
    opened = kueue.PreemptionGateState(name="g", position="Open", last_transition_time="2026-01-01T00:00:00Z")
    life.write(
        (
            workload_changes.SetNominations(("west",), None),
            workload_changes.SetUnhealthyNodes((kueue.UnhealthyNode(name="n1"),)),
            workload_changes.SetPreemptionGates((opened,)),
        )
    )
    status = evicted(life).workload.status
    assert (status.nominated_cluster_names, status.cluster_name, status.unhealthy_nodes) == ((), None, ())
    assert status.preemption_gates[0].position == "Closed"
    assert life.conditions["BlockedOnPreemptionGates"] == "False/NodeFailures"


def test_evictions_are_counted_by_reason_and_cause() -> None:
    life = Life().reserved()
    for cause in (UnderlyingCause.WAIT_FOR_START, UnderlyingCause.WAIT_FOR_START, UnderlyingCause.WAIT_FOR_RECOVERY):
        life.write(
            eviction.evict(life.workload, EvictedReason.PODS_READY_TIMEOUT, "why", life.now, cause=cause)
        ).released().reserved()
    assert life.evictions == {"PodsReadyTimeout/WaitForStart": 2, "PodsReadyTimeout/WaitForRecovery": 1}
    firsts = [one.is_first for one in life.news if isinstance(one, workload_changes.Evicted)]
    assert firsts == [True, False, True]


def test_one_that_held_nothing_is_evicted_without_a_word_but_counted() -> None:
    life = evicted(Life())
    assert life.events == []
    assert life.evictions == {"NodeFailures/": 1}


def test_the_time_it_was_ready_for_is_told() -> None:
    life = evicted(Life().reserved().told(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, "Started").after(30))
    assert [one.ready_for for one in life.news if isinstance(one, workload_changes.Evicted)] == [30 * SECOND]


def test_a_victim_is_told_why_and_is_not_evicted_twice() -> None:
    life = Life().reserved()
    life.write(eviction.preempt(life.workload, PreemptedReason.IN_COHORT_FAIR_SHARING, "made room", life.now))
    assert life.conditions["Preempted"] == "True/InCohortFairSharing"
    assert life.conditions["Evicted"] == "True/Preempted"
    assert life.events[-2:] == ["Normal EvictedDueToPreempted", "Normal Preempted"]
    again = eviction.preempt(life.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room again", life.now)
    assert again == ()


@pytest.mark.parametrize("reason", list(EvictedReason))
def test_only_those_who_did_nothing_wrong_are_queued_at_once(reason: EvictedReason) -> None:
    life = evicted(Life().reserved(), reason).released()
    at_once = reason in (EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES)
    assert life.conditions["Requeued"] == f"{at_once}/{reason}"


def test_a_lone_pod_has_nothing_to_come_back_with() -> None:
    pod = meta.OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")
    life = Life(replace(workload(), metadata=meta.ObjectMeta(owner_references=(pod,)))).reserved()
    assert evicted(life).released().conditions["Requeued"] == "False/NodeFailures"


def test_one_that_holds_nothing_has_nothing_to_give_back() -> None:
    life = evicted(Life())
    assert eviction.release(life.workload, life.options, life.now) == ()
    assert eviction.release(Life().reserved().workload, life.options, life.now) == ()


def test_conditions_stand_in_one_order_from_the_first_eviction_on() -> None:
    """A client that shows them one below the other shows them as it does with Kueue."""
    life = Life().told(WorkloadCondition.PODS_READY, ConditionStatus.FALSE, "WaitForStart").reserved()
    assert list(life.conditions) == ["PodsReady", "QuotaReserved", "Admitted"]
    assert list(evicted(life).conditions) == ["QuotaReserved", "Evicted", "Admitted", "PodsReady"]
    assert list(life.released().conditions) == ["QuotaReserved", "Evicted", "Admitted", "Requeued", "PodsReady"]
