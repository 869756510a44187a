"""The rules about queues: `local_queue_stopped`, `cluster_queue_stopped`, `local_queue_restarted`,
`cluster_queue_restarted`; and `admission_gate` and `waiting`.
"""

from __future__ import annotations

from dataclasses import replace as with_
from typing import Any

import pytest

from kubemachinery.conditions import ConditionStatus
from lifecycle.stories import ONE_CHECK, Life, world
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

RUNNING = world()
WAITING_FOR_CHECKS = world(*ONE_CHECK)


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
    life = Life(facts=RUNNING).reserved()
    life.facts = stopped(RUNNING, kind, StopPolicy.HOLD_AND_DRAIN)
    life.steps()
    assert life.conditions["Evicted"] == f"True/{kind}Stopped"
    assert life.events[-1] == f"Normal EvictedDueTo{kind}Stopped"


@KINDS
def test_held_queues_let_it_run_on(kind: str) -> None:
    life = Life(facts=RUNNING).reserved()
    life.facts = stopped(RUNNING, kind, StopPolicy.HOLD)
    assert life.look().changes == ()


@pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
@KINDS
def test_stopped_queues_take_back_quota_that_nobody_uses_yet(kind: str, policy: StopPolicy) -> None:
    life = Life(facts=WAITING_FOR_CHECKS).reserved()
    life.facts = stopped(WAITING_FOR_CHECKS, kind, policy)
    life.steps()
    assert life.conditions == {"QuotaReserved": "False/Suspended", "Admitted": "False/NoReservation"}
    assert life.workload.status.admission is None
    assert life.events == ["Normal QuotaReserved"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda facts: local(facts, None),
        lambda facts: local(facts, LocalQueueFacts(is_deleting=True)),
        lambda facts: with_(facts, cluster_queue=None),
    ],
    ids=["no LocalQueue", "LocalQueue being deleted", "no ClusterQueue"],
)
def test_missing_queues_let_it_run_on_but_take_back_quota_that_nobody_uses_yet(broken: object) -> None:
    assert callable(broken)
    running = Life(facts=RUNNING).reserved()
    running.facts = broken(RUNNING)
    assert running.look().changes == ()
    waiting = Life(facts=WAITING_FOR_CHECKS).reserved()
    waiting.facts = broken(WAITING_FOR_CHECKS)
    assert waiting.steps().conditions["QuotaReserved"] == "False/Misconfigured"


def test_quota_that_is_held_is_the_affair_of_the_queue_it_was_taken_from() -> None:
    """S9: a held or moved LocalQueue does not keep a drain from its Workloads."""
    elsewhere = kueue.LocalQueue(spec=kueue.LocalQueueSpec(cluster_queue="other"))
    assert cluster_queue_of(Life().reserved().workload, elsewhere) == "cq"
    assert cluster_queue_of(Life().reserved().workload, None) == "cq"
    assert cluster_queue_of(Life().workload, elsewhere) == "other"
    life = Life(facts=RUNNING).reserved()
    held = local(RUNNING, LocalQueueFacts(stop_policy=StopPolicy.HOLD))
    life.facts = cluster(held, stop_policy=StopPolicy.HOLD_AND_DRAIN, is_active=False)
    assert life.steps().conditions["Evicted"] == "True/ClusterQueueStopped"


@KINDS
def test_a_queue_that_starts_again_lets_back_those_it_drained_and_no_others(kind: str) -> None:
    life = Life(facts=RUNNING).reserved()
    life.facts = stopped(RUNNING, kind, StopPolicy.HOLD_AND_DRAIN)
    life.steps().released().steps()
    assert life.conditions["Requeued"] == f"False/{kind}Stopped"
    assert life.conditions["QuotaReserved"] == "False/Suspended"
    life.facts = RUNNING
    life.steps()
    assert life.conditions["Requeued"] == f"True/{kind}Restarted"
    assert life.conditions["QuotaReserved"] == "False/PendingEvaluation"
    late = Life(facts=RUNNING).told(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PREEMPTED)
    assert late.steps().conditions["Requeued"] == "False/Preempted"


def test_a_cluster_queue_that_starts_again_lets_nobody_back_whose_local_queue_is_stopped() -> None:
    life = Life(facts=RUNNING).reserved()
    life.facts = stopped(RUNNING, "ClusterQueue", StopPolicy.HOLD_AND_DRAIN)
    life.steps().released()
    life.facts = stopped(RUNNING, "LocalQueue", StopPolicy.HOLD)
    assert life.steps().conditions["Requeued"] == "False/ClusterQueueStopped"
    life.facts = RUNNING
    assert life.steps().conditions["Requeued"] == "True/ClusterQueueRestarted"


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_of_a_new_workload_nothing_is_said_until_somebody_has_something_to_say() -> None:
    assert Life().look().changes == ()
    assert Life(options=LifecycleOptions(explicit_status=True)).steps().conditions == {
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
def test_a_blocker_is_told_and_when_it_is_gone_the_workload_waits_to_be_evaluated(
    facts: WorkloadFacts, reason: QuotaReservedReason
) -> None:
    life = Life(facts=facts).steps()
    assert life.conditions == {"QuotaReserved": f"False/{reason}", "Admitted": "False/NoReservation"}
    life.facts = RUNNING
    assert life.steps().conditions["QuotaReserved"] == "False/PendingEvaluation"


def test_the_first_blocker_is_the_one_that_is_told() -> None:
    everything = with_(local(RUNNING, None), cluster_queue=None, problem="namespace")
    life = Life(facts=everything).annotated(**{labels.ADMISSION_GATED_BY: "x/y"}).steps()
    assert life.message(WorkloadCondition.QUOTA_RESERVED) == "LocalQueue lq doesn't exist"
    assert life.activate(False).steps().conditions["QuotaReserved"] == "False/Deactivated"


def test_a_blocker_that_stays_changes_nothing_twice() -> None:
    life = Life(facts=BLOCKERS[0][0]).steps().after(60)
    assert life.look().changes == ()


@pytest.mark.parametrize("word", ["WaitingForQuota", "NoMatchingFlavor", "WaitingForPreemptedWorkloads"])
def test_what_the_scheduler_said_stays_until_it_speaks_again(word: str) -> None:
    life = Life().told(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, word, "cpu: 3 more needed").steps()
    assert life.conditions["QuotaReserved"] == f"False/{word}"
    assert life.message(WorkloadCondition.QUOTA_RESERVED) == "cpu: 3 more needed"


def test_the_verdict_over_one_that_is_scheduled_alike_is_taken_over() -> None:
    known = with_(RUNNING, known_failure=KnownFailure(QuotaReservedReason.EXCEEDS_MAX_QUOTA))
    life = (
        Life(facts=known)
        .told(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.SUSPENDED)
        .steps()
    )
    assert life.conditions["QuotaReserved"] == "False/ExceedsMaxQuota"
    bypassed = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert life.message(WorkloadCondition.QUOTA_RESERVED) == bypassed
    assert Life(facts=known).look().changes == ()
    spoken = Life(facts=known).told(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, "WaitingForQuota").steps()
    assert spoken.conditions["QuotaReserved"] == "False/WaitingForQuota"


def test_one_on_hold_is_left_alone_whatever_its_queues_are() -> None:
    life = Life(facts=WorkloadFacts()).told(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.ON_HOLD
    )
    assert life.steps().conditions["QuotaReserved"] == "False/OnHold"


def test_with_the_gate_off_only_queues_are_told_and_in_one_word() -> None:
    life = Life(facts=BLOCKERS[0][0], options=LifecycleOptions(observability=False)).steps()
    assert life.conditions == {"QuotaReserved": "False/Inadmissible"}
    life = Life(facts=with_(RUNNING, problem="namespace"), options=LifecycleOptions(observability=False)).steps()
    assert life.conditions == {}


# --- admission_gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observability", [True, False])
def test_a_gate_holds_it_back_until_it_is_emptied(observability: bool) -> None:
    life = (
        Life(options=LifecycleOptions(observability=observability))
        .annotated(**{labels.ADMISSION_GATED_BY: "x/y"})
        .steps()
    )
    assert life.conditions["QuotaReserved"] == "False/AdmissionGated"
    assert life.events == ["Normal AdmissionGated"]
    life.annotated().steps()
    assert life.conditions["QuotaReserved"] == ("False/PendingEvaluation" if observability else "False/Pending")
    assert life.events == ["Normal AdmissionGated", "Normal AdmissionGateCleared"]


def test_that_a_gate_is_gone_is_told_though_the_scheduler_is_faster() -> None:
    gated = {labels.ADMISSION_GATED_BY: "x/y"}
    life = Life().annotated(**gated).steps().annotated().reserved()
    assert life.events == [
        "Normal AdmissionGated",
        "Normal AdmissionGateCleared",
        "Normal QuotaReserved",
        "Normal Admitted",
    ]
    life = Life().annotated(**gated).steps().annotated()
    life.write(wait(life.workload, QuotaReservedReason.WAITING_FOR_QUOTA, "no room", (), life.options, life.now))
    assert life.events == ["Normal AdmissionGated", "Normal AdmissionGateCleared", "Warning WaitingForQuota"]


def test_a_gate_takes_back_quota() -> None:
    life = Life().reserved().annotated(**{labels.ADMISSION_GATED_BY: "x/y"}).steps()
    assert life.conditions["QuotaReserved"] == "False/AdmissionGated"
    assert life.workload.status.admission is None


def test_a_gate_that_is_switched_off_holds_nobody() -> None:
    life = Life(options=LifecycleOptions(admission_gated_by=False)).annotated(**{labels.ADMISSION_GATED_BY: "x/y"})
    assert life.look().changes == ()


def test_the_same_word_for_preemption_gates_is_the_schedulers() -> None:
    life = Life().told(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.ADMISSION_GATED)
    life.told(WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.TRUE, "PreemptionGated").steps()
    assert life.conditions["QuotaReserved"] == "False/AdmissionGated"


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
