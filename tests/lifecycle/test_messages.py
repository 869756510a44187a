"""Messages of Workloads and queues: equal to those of Kueue, because tools parse them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as with_

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from lifecycle.workload_harness import ONE_CHECK, WorkloadHarness, facts_of
from pykueue.api import kueue, labels
from pykueue.api.conditions import PreemptedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import AdmissionCheckState, CheckState, StopPolicy
from pykueue.lifecycle import checks, eviction, queues
from pykueue.lifecycle.facts import LocalQueueFacts
from pykueue.lifecycle.workload_changes import EmitEvent

RESERVED = WorkloadCondition.QUOTA_RESERVED


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (PreemptedReason.IN_CLUSTER_QUEUE, "prioritization in the ClusterQueue"),
        (PreemptedReason.IN_COHORT_RECLAMATION, "reclamation within the cohort"),
        (PreemptedReason.IN_COHORT_FAIR_SHARING, "Fair Sharing within the cohort"),
        (PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING, "reclamation within the cohort while borrowing"),
    ],
)
def test_preemption_names_uids_cause_and_paths(reason: PreemptedReason, cause: str) -> None:
    preemptor = kueue.Workload(metadata=meta.ObjectMeta(name="w", uid="u1", labels={labels.JOB_UID: "j1"}))
    assert eviction.preemption_message(preemptor, reason, "/root/a", "/root/b") == (
        f"Preempted to accommodate a workload (UID: u1, JobUID: j1) due to {cause};"
        " preemptor path: /root/a; preemptee path: /root/b"
    )


def test_preemption_by_an_unknown_workload_has_unknown_in_the_message() -> None:
    message = eviction.preemption_message(None, PreemptedReason.IN_CLUSTER_QUEUE, "", "")
    assert message.startswith("Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to")
    assert message.endswith("preemptor path: UNKNOWN; preemptee path: UNKNOWN")


def test_checks_are_listed_by_name_with_their_messages() -> None:
    one = AdmissionCheckState(name="b", state="Retry", message="later")
    two = AdmissionCheckState(name="a", state="Retry", message="")
    assert checks.stated([one], CheckState.RETRY) == 'AdmissionCheck in Retry state: "b" (later)'
    assert checks.stated([one, two], CheckState.RETRY) == 'AdmissionChecks in Retry state: "a"; "b" (later)'


def test_admission_states_queue_and_times() -> None:
    harness = WorkloadHarness(facts=facts_of()).reserved()
    assert harness.message(RESERVED) == "Quota reserved in ClusterQueue cq"
    assert harness.message(WorkloadCondition.ADMITTED) == "The workload is admitted"
    notes = [notifications.note for notifications in harness.notifications if isinstance(notifications, EmitEvent)]
    assert "Quota reserved in ClusterQueue cq, wait time since queued was 0s" in notes
    assert "Admitted by ClusterQueue cq, wait time since reservation was 0s" in notes


def test_checks_that_are_not_ready_are_stated() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).reserved()
    assert harness.message(WorkloadCondition.ADMITTED) == "The workload has not all checks ready"


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_drained_queue_is_stated_as_stopped(kind: str) -> None:
    facts = facts_of()
    harness = WorkloadHarness(facts=facts).reserved()
    if kind == "LocalQueue":
        harness.facts = with_(facts, local_queue=LocalQueueFacts(stop_policy=StopPolicy.HOLD_AND_DRAIN))
    else:
        assert facts.cluster_queue is not None
        harness.facts = with_(facts, cluster_queue=with_(facts.cluster_queue, stop_policy=StopPolicy.HOLD_AND_DRAIN))
    harness.settle()
    assert harness.message(WorkloadCondition.EVICTED) == f"The {kind} is stopped"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"local_queue": None}, "LocalQueue lq doesn't exist"),
        ({"local_queue": LocalQueueFacts(stop_policy=StopPolicy.HOLD)}, "LocalQueue lq is inactive"),
        (
            {"local_queue": LocalQueueFacts(cluster_queue="gone"), "cluster_queue": None},
            "ClusterQueue gone doesn't exist",
        ),
    ],
)
def test_queue_that_blocks_a_workload_is_named(changed: dict[str, Any], text: str) -> None:
    harness = WorkloadHarness(facts=with_(facts_of(), **changed))
    harness.with_condition(RESERVED, ConditionStatus.FALSE, QuotaReservedReason.PENDING).settle()
    assert harness.message(RESERVED) == text


def status_message(spec: kueue.ClusterQueueSpec, **deleted: Any) -> str:
    queue = kueue.ClusterQueue(metadata=meta.ObjectMeta(name="cq", **deleted), spec=spec)
    status = queues.cluster_queue_status(queue, queues.References(), queues.QueueCounts(), 0)
    return status.conditions[0].message


def test_cluster_queue_states_whether_it_admits() -> None:
    flavors = tuple(kueue.FlavorQuotas(name=name, resources=()) for name in ("f1", "f2"))
    group = kueue.ResourceGroup(covered_resources=("cpu",), flavors=flavors)
    stopped = kueue.ClusterQueueSpec(stop_policy=StopPolicy.HOLD, resource_groups=(group,))
    assert status_message(kueue.ClusterQueueSpec()) == "Can admit new workloads"
    assert status_message(stopped) == (
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): f1,f2."
    )
    gone = status_message(kueue.ClusterQueueSpec(), deletion_timestamp="2026-01-01T00:00:00Z")
    assert gone == "Can't admit new workloads; clusterQueue is terminating"


def test_local_queue_states_whether_it_takes_workloads() -> None:
    def stated(stop: StopPolicy, cluster_queue: kueue.ClusterQueue | None) -> str:
        spec = kueue.LocalQueueSpec(cluster_queue="cq", stop_policy=stop)
        queue = kueue.LocalQueue(metadata=meta.ObjectMeta(name="lq", namespace="ns"), spec=spec)
        return queues.local_queue_status(queue, cluster_queue, queues.QueueCounts(), 0).conditions[0].message

    active = meta.Condition(type="Active", status="True")
    admits = kueue.ClusterQueue(status=kueue.ClusterQueueStatus(conditions=(active,)))
    assert stated(StopPolicy.NONE, admits) == "Can submit new workloads to localQueue"
    assert stated(StopPolicy.NONE, None) == "Can't submit new workloads to clusterQueue"
    assert stated(StopPolicy.NONE, kueue.ClusterQueue()) == "Can't submit new workloads to clusterQueue"
    assert stated(StopPolicy.HOLD, admits) == "LocalQueue is stopped"
