"""The rules about queues: `local_queue_stopped`, `cluster_queue_stopped`, `local_queue_restarted`,
`cluster_queue_restarted`; and `admission_gate` and `waiting`.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as with_

from kubemachinery.conditions import ConditionStatus
from lifecycle.workload_harness import ONE_CHECK, WorkloadHarness, facts_of
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import StopPolicy
from pykueue.lifecycle.facts import (
    ClusterQueueFacts,
    KnownFailure,
    LifecycleOptions,
    LocalQueueFacts,
    WorkloadFacts,
    cluster_queue_of,
)
from pykueue.lifecycle.pending_status import wait

RUNNING = facts_of()
WAITING_FOR_CHECKS = facts_of(*ONE_CHECK)


def local(facts: WorkloadFacts, queue: LocalQueueFacts | None) -> WorkloadFacts:
    return with_(facts, local_queue=queue)


def cluster(facts: WorkloadFacts, **changed: Any) -> WorkloadFacts:
    assert facts.cluster_queue is not None
    return with_(facts, cluster_queue=with_(facts.cluster_queue, **changed))


def stopped(facts: WorkloadFacts, kind: str, policy: StopPolicy) -> WorkloadFacts:
    if kind == "LocalQueue":
        return local(facts, LocalQueueFacts(stop_policy=policy))
    return cluster(facts, stop_policy=policy, is_active=False)


KINDS = pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])


# --- local_queue_stopped, cluster_queue_stopped -----------------------------------------------------------------------


@KINDS
def test_drained_queues_evict_what_runs(kind: str) -> None:
    harness = WorkloadHarness(facts=RUNNING).reserved()
    harness.facts = stopped(RUNNING, kind, StopPolicy.HOLD_AND_DRAIN)
    harness.settle()
    assert harness.conditions["Evicted"] == f"True/{kind}Stopped"
    assert harness.events[-1] == f"Normal EvictedDueTo{kind}Stopped"


@KINDS
def test_held_queues_let_it_run_on(kind: str) -> None:
    harness = WorkloadHarness(facts=RUNNING).reserved()
    harness.facts = stopped(RUNNING, kind, StopPolicy.HOLD)
    assert harness.step_once().changes == ()


@pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
@KINDS
def test_stopped_queue_clears_reservations_but_not_admissions(kind: str, policy: StopPolicy) -> None:
    harness = WorkloadHarness(facts=WAITING_FOR_CHECKS).reserved()
    harness.facts = stopped(WAITING_FOR_CHECKS, kind, policy)
    harness.settle()
    assert harness.conditions == {"QuotaReserved": "False/Suspended", "Admitted": "False/NoReservation"}
    assert harness.workload.status.admission is None
    assert harness.events == ["Normal QuotaReserved"]


@pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
@KINDS
def test_stopped_queue_clears_the_reservation_of_a_workload_evicted_before_admission(
    kind: str, policy: StopPolicy
) -> None:
    harness = WorkloadHarness(facts=WAITING_FOR_CHECKS).reserved()
    harness.with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PREEMPTED)
    assert harness.settle().conditions["QuotaReserved"] == "True/QuotaReserved"
    harness.facts = stopped(WAITING_FOR_CHECKS, kind, policy)
    harness.settle()
    assert harness.conditions["QuotaReserved"] == "False/Suspended"
    assert harness.conditions["Evicted"] == "True/Preempted"
    assert harness.workload.status.admission is None


@pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
@KINDS
def test_stopped_queue_leaves_an_admitted_workload_that_is_evicted_already(kind: str, policy: StopPolicy) -> None:
    harness = WorkloadHarness(facts=RUNNING).reserved()
    harness.with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PREEMPTED)
    harness.facts = stopped(RUNNING, kind, policy)
    assert harness.step_once().changes == ()


@pytest.mark.parametrize(
    "broken",
    [
        lambda facts: local(facts, None),
        lambda facts: local(facts, LocalQueueFacts(is_deleting=True)),
        lambda facts: with_(facts, cluster_queue=None),
    ],
    ids=["no LocalQueue", "LocalQueue being deleted", "no ClusterQueue"],
)
def test_missing_queue_clears_reservations_but_not_admissions(broken: object) -> None:
    assert callable(broken)
    running = WorkloadHarness(facts=RUNNING).reserved()
    running.facts = broken(RUNNING)
    assert running.step_once().changes == ()
    waiting = WorkloadHarness(facts=WAITING_FOR_CHECKS).reserved()
    waiting.facts = broken(WAITING_FOR_CHECKS)
    assert waiting.settle().conditions["QuotaReserved"] == "False/Misconfigured"


def test_quota_that_is_held_is_the_affair_of_the_queue_it_was_taken_from() -> None:
    """A LocalQueue that is stopped or points elsewhere does not keep a drain from its Workloads [LD9]."""
    elsewhere = kueue.LocalQueue(spec=kueue.LocalQueueSpec(cluster_queue="other"))
    assert cluster_queue_of(WorkloadHarness().reserved().workload, elsewhere) == "cq"
    assert cluster_queue_of(WorkloadHarness().reserved().workload, None) == "cq"
    assert cluster_queue_of(WorkloadHarness().workload, elsewhere) == "other"
    harness = WorkloadHarness(facts=RUNNING).reserved()
    held = local(RUNNING, LocalQueueFacts(stop_policy=StopPolicy.HOLD))
    harness.facts = cluster(held, stop_policy=StopPolicy.HOLD_AND_DRAIN, is_active=False)
    assert harness.settle().conditions["Evicted"] == "True/ClusterQueueStopped"


@KINDS
def test_a_queue_that_starts_again_lets_back_those_it_drained_and_no_others(kind: str) -> None:
    harness = WorkloadHarness(facts=RUNNING).reserved()
    harness.facts = stopped(RUNNING, kind, StopPolicy.HOLD_AND_DRAIN)
    harness.settle().released().settle()
    assert harness.conditions["Requeued"] == f"False/{kind}Stopped"
    assert harness.conditions["QuotaReserved"] == "False/Suspended"
    harness.facts = RUNNING
    harness.settle()
    assert harness.conditions["Requeued"] == f"True/{kind}Restarted"
    assert harness.conditions["QuotaReserved"] == "False/PendingEvaluation"
    late = WorkloadHarness(facts=RUNNING).with_condition(
        WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PREEMPTED
    )
    assert late.settle().conditions["Requeued"] == "False/Preempted"


def test_cluster_queue_restart_does_not_requeue_workloads_of_a_stopped_local_queue() -> None:
    harness = WorkloadHarness(facts=RUNNING).reserved()
    harness.facts = stopped(RUNNING, "ClusterQueue", StopPolicy.HOLD_AND_DRAIN)
    harness.settle().released()
    harness.facts = stopped(RUNNING, "LocalQueue", StopPolicy.HOLD)
    assert harness.settle().conditions["Requeued"] == "False/ClusterQueueStopped"
    harness.facts = RUNNING
    assert harness.settle().conditions["Requeued"] == "True/ClusterQueueRestarted"


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_new_workload_has_no_condition_without_explicit_status() -> None:
    assert WorkloadHarness().step_once().changes == ()
    assert WorkloadHarness(options=LifecycleOptions(explicit_status=True)).settle().conditions == {
        "QuotaReserved": "False/PendingEvaluation",
        "Admitted": "False/NoReservation",
    }


BLOCKERS = [
    (local(RUNNING, None), QuotaReservedReason.MISCONFIGURED),
    (local(RUNNING, LocalQueueFacts(stop_policy=StopPolicy.HOLD)), QuotaReservedReason.SUSPENDED),
    (with_(RUNNING, cluster_queue=None), QuotaReservedReason.MISCONFIGURED),
    (cluster(RUNNING, is_active=False), QuotaReservedReason.SUSPENDED),
    (with_(RUNNING, problem="the namespace is not selected"), QuotaReservedReason.MISCONFIGURED),
]


@pytest.mark.parametrize(("facts", "reason"), BLOCKERS)
def test_blocker_is_the_reason_and_without_it_evaluation_is_pending(
    facts: WorkloadFacts, reason: QuotaReservedReason
) -> None:
    harness = WorkloadHarness(facts=facts).settle()
    assert harness.conditions == {"QuotaReserved": f"False/{reason}", "Admitted": "False/NoReservation"}
    harness.facts = RUNNING
    assert harness.settle().conditions["QuotaReserved"] == "False/PendingEvaluation"


def test_first_blocker_is_the_reason() -> None:
    everything = with_(local(RUNNING, None), cluster_queue=None, problem="namespace")
    harness = WorkloadHarness(facts=everything).annotated(**{labels.ADMISSION_GATED_BY: "x/y"}).settle()
    assert harness.message(WorkloadCondition.QUOTA_RESERVED) == "LocalQueue lq doesn't exist"
    assert harness.activate(False).settle().conditions["QuotaReserved"] == "False/Deactivated"


def test_a_blocker_that_stays_changes_nothing_twice() -> None:
    harness = WorkloadHarness(facts=BLOCKERS[0][0]).settle().after(60)
    assert harness.step_once().changes == ()


@pytest.mark.parametrize("word", ["WaitingForQuota", "NoMatchingFlavor", "WaitingForPreemptedWorkloads"])
def test_reason_of_the_scheduler_stays_until_its_next_attempt(word: str) -> None:
    harness = (
        WorkloadHarness()
        .with_condition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, word, "cpu: 3 more needed")
        .settle()
    )
    assert harness.conditions["QuotaReserved"] == f"False/{word}"
    assert harness.message(WorkloadCondition.QUOTA_RESERVED) == "cpu: 3 more needed"


def test_message_of_a_deactivated_workload_does_not_depend_on_the_cause() -> None:
    harness = WorkloadHarness().with_condition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.DEACTIVATED, "by a limit"
    )
    harness.activate(False).settle()
    assert harness.conditions["QuotaReserved"] == "False/Deactivated"
    assert harness.message(WorkloadCondition.QUOTA_RESERVED) == "The workload is deactivated"


@pytest.mark.parametrize("observability", [True, False])
def test_assignment_without_reservation_is_removed(observability: bool) -> None:
    """Another client released the quota and left `status.admission`."""
    harness = WorkloadHarness(options=LifecycleOptions(observability=observability)).reserved()
    harness.with_condition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.PENDING_EVALUATION
    )
    before = harness.workload.status
    assert before.admission is not None
    harness.settle()
    assert harness.workload.status.admission is None
    assert harness.conditions["QuotaReserved"] == "False/PendingEvaluation"


def test_failure_of_the_same_equivalence_class_is_copied() -> None:
    known = with_(RUNNING, known_failure=KnownFailure(QuotaReservedReason.EXCEEDS_MAX_QUOTA))
    harness = (
        WorkloadHarness(facts=known)
        .with_condition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.SUSPENDED)
        .settle()
    )
    assert harness.conditions["QuotaReserved"] == "False/ExceedsMaxQuota"
    bypassed = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert harness.message(WorkloadCondition.QUOTA_RESERVED) == bypassed
    assert WorkloadHarness(facts=known).step_once().changes == ()
    spoken = (
        WorkloadHarness(facts=known)
        .with_condition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, "WaitingForQuota")
        .settle()
    )
    assert spoken.conditions["QuotaReserved"] == "False/WaitingForQuota"


def test_one_on_hold_is_left_alone_whatever_its_queues_are() -> None:
    harness = WorkloadHarness(facts=WorkloadFacts()).with_condition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.ON_HOLD
    )
    assert harness.settle().conditions["QuotaReserved"] == "False/OnHold"


def test_without_observability_queue_problems_are_inadmissible() -> None:
    harness = WorkloadHarness(facts=BLOCKERS[0][0], options=LifecycleOptions(observability=False)).settle()
    assert harness.conditions == {"QuotaReserved": "False/Inadmissible"}
    harness = WorkloadHarness(
        facts=with_(RUNNING, problem="namespace"), options=LifecycleOptions(observability=False)
    ).settle()
    assert harness.conditions == {}


# --- admission_gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observability", [True, False])
def test_a_gate_holds_it_back_until_it_is_emptied(observability: bool) -> None:
    harness = (
        WorkloadHarness(options=LifecycleOptions(observability=observability))
        .annotated(**{labels.ADMISSION_GATED_BY: "x/y"})
        .settle()
    )
    assert harness.conditions["QuotaReserved"] == "False/AdmissionGated"
    assert harness.events == ["Normal AdmissionGated"]
    harness.annotated().settle()
    assert harness.conditions["QuotaReserved"] == ("False/PendingEvaluation" if observability else "False/Pending")
    assert harness.events == ["Normal AdmissionGated", "Normal AdmissionGateCleared"]


def test_cleared_admission_gate_emits_an_event_also_from_the_scheduler() -> None:
    gated = {labels.ADMISSION_GATED_BY: "x/y"}
    harness = WorkloadHarness().annotated(**gated).settle().annotated().reserved()
    assert harness.events == [
        "Normal AdmissionGated",
        "Normal AdmissionGateCleared",
        "Normal QuotaReserved",
        "Normal Admitted",
    ]
    harness = WorkloadHarness().annotated(**gated).settle().annotated()
    harness.write(
        wait(harness.workload, QuotaReservedReason.WAITING_FOR_QUOTA, "no room", (), harness.options, harness.now)
    )
    assert harness.events == ["Normal AdmissionGated", "Normal AdmissionGateCleared", "Warning WaitingForQuota"]


def test_a_gate_takes_back_quota() -> None:
    harness = WorkloadHarness().reserved().annotated(**{labels.ADMISSION_GATED_BY: "x/y"}).settle()
    assert harness.conditions["QuotaReserved"] == "False/AdmissionGated"
    assert harness.workload.status.admission is None


def test_disabled_admission_gate_has_no_effect() -> None:
    harness = WorkloadHarness(options=LifecycleOptions(admission_gated_by=False)).annotated(
        **{labels.ADMISSION_GATED_BY: "x/y"}
    )
    assert harness.step_once().changes == ()


def test_the_same_word_for_preemption_gates_is_the_schedulers() -> None:
    harness = WorkloadHarness().with_condition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.ADMISSION_GATED
    )
    harness.with_condition(
        WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.TRUE, "PreemptionGated"
    ).settle()
    assert harness.conditions["QuotaReserved"] == "False/AdmissionGated"


def test_facts_of_a_queue_are_read_off_the_objects() -> None:
    rules = (kueue.AdmissionCheckStrategyRule(name="c1", on_flavors=("one",)),)
    queue = kueue.ClusterQueue(
        spec=kueue.ClusterQueueSpec(
            resource_groups=(kueue.ResourceGroup(flavors=(kueue.FlavorQuotas(name="one"),)),),
            admission_checks_strategy=kueue.AdmissionChecksStrategy(admission_checks=rules),
            stop_policy="Hold",
        )
    )
    spec = kueue.AdmissionCheckSpec(retry_delay_minutes=3, preemption_policy="AfterCheckPassedOrOnDemand")
    found = ClusterQueueFacts.of(queue, True, {"c1": kueue.AdmissionCheck(spec=spec)})
    assert found.flavors == {"one"}
    assert found.is_stopped
    (check,) = found.checks
    assert (check.on_flavors, check.retry_delay_minutes, check.defers_preemption) == (frozenset({"one"}), 3, True)
    assert ClusterQueueFacts.of(queue, True, {}).checks[0].retry_delay_minutes == 15
