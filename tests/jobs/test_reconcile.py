"""A job with its Workload, reconciled; tests with a counterpart among the recorded cases have its name."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import pytest
from msgspec import structs
from msgspec.structs import replace

from jobs.job_harness import NOW, OPTIONS, JobHarness, batch_job, flavor, pod
from kubemachinery import codec, patches, unstructured
from kubemachinery.meta import HOUR, MINUTE
from kubemachinery.object_view import ObjectView
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason
from pykueue.jobs import actions, reconcile
from pykueue.jobs.actions import ChangeWorkload, CreateWorkload, PatchWorkload
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.pod import PodView
from pykueue.jobs.reconcile import orphaned
from pykueue.lifecycle import states

# --- From a Job to its end --------------------------------------------------------------------------------------------


def test_workload_has_the_requests_of_its_job() -> None:
    workload = JobHarness(batch_job()).settle().workload
    assert workload.metadata.name.startswith("job-alpha-")
    assert workload.metadata.finalizers == (labels.RESOURCE_IN_USE_FINALIZER,)
    assert workload.metadata.labels == {labels.JOB_UID: "uid-alpha"}
    owner = workload.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.controller, owner.block_owner_deletion) == ("Job", "alpha", True, True)
    assert (workload.spec.queue_name, workload.spec.active, workload.spec.priority) == ("lq", True, 0)
    assert workload.spec.priority_class_ref is None
    request = workload.spec.pod_sets[0].topology_request
    assert request == kueue.PodSetTopologyRequest(pod_index_label=labels.JOB_COMPLETION_INDEX)


def test_pending_workload_has_pods_ready_wait_for_start() -> None:
    harness = JobHarness(batch_job()).settle()
    assert harness.condition("PodsReady") == "False/WaitForStart"
    assert harness.job["spec"]["suspend"] is True


def test_admitted_job_starts_with_node_selector_and_labels() -> None:
    """job/admitted-gets-placement"""
    blue = flavor(nodeLabels={"pool": "blue"}, tolerations=[{"key": "t", "operator": "Exists"}])
    harness = JobHarness(batch_job())
    harness.facts = replace(harness.facts, flavors={"default": blue})
    harness.settle().admit().settle()
    spec = harness.job["spec"]
    assert spec["suspend"] is False
    assert spec["template"]["spec"]["nodeSelector"] == {"pool": "blue"}
    assert spec["template"]["spec"]["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert spec["template"]["metadata"] == {
        "labels": {labels.PODSET: "main", labels.LOCAL_QUEUE_NAME: "lq", labels.CLUSTER_QUEUE_NAME: "cq"},
        "annotations": {labels.WORKLOAD: harness.workload.metadata.name},
    }
    assert harness.events == ["CreatedWorkload", "Started"]


def test_ready_pods_and_the_end_are_written_to_the_workload() -> None:
    """job/completes"""
    harness = JobHarness(batch_job()).settle().admit().settle().status(active=1, ready=1).settle()
    assert harness.condition("PodsReady") == "True/Started"
    harness.status(succeeded=1, conditions=[{"type": "Complete", "status": "True"}]).settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert harness.workload.metadata.finalizers == ()
    assert harness.events == ["CreatedWorkload", "Started", "FinishedWorkload"]


@pytest.mark.parametrize(
    ("ended", "since"),
    [
        pytest.param("2026-11-15T12:30:00Z", "2026-11-15T12:30:00Z", id="while-no-manager-ran"),
        pytest.param("2026-11-15T15:00:00Z", "2026-11-15T14:00:00Z", id="clock-ahead"),
        pytest.param("2026-11-15T11:00:00Z", "2026-11-15T12:00:00Z", id="clock-behind"),
        pytest.param("", "2026-11-15T14:00:00Z", id="without-a-time"),
    ],
)
@pytest.mark.parametrize("type_", ["Complete", "Failed"])
def test_workload_is_finished_since_its_job_ended(type_: str, ended: str, since: str) -> None:
    harness = JobHarness(batch_job()).settle().admit().settle()
    harness.now = NOW + 2 * HOUR
    end = {"type": type_, "status": "True", **({"lastTransitionTime": ended} if ended else {})}
    harness.status(conditions=[end]).settle()
    (found,) = [each for each in harness.workload.status.conditions if each.type == "Finished"]
    assert found.last_transition_time == since


def test_a_job_that_fails_finishes_its_workload_with_its_own_words() -> None:
    """job/fails"""
    harness = JobHarness(batch_job()).settle().admit().settle()
    harness.status(conditions=[{"type": "Failed", "status": "True", "message": "backoff limit"}]).settle()
    assert harness.condition("Finished") == "True/Failed"
    assert "backoff limit" in [each.message for each in harness.workload.status.conditions]


def test_a_finished_job_without_a_workload_never_gets_one() -> None:
    harness = JobHarness(batch_job(status={"conditions": [{"type": "Complete", "status": "True"}]})).settle()
    assert not harness.workloads


def test_the_workload_of_a_deleted_job_ends_as_an_orphan() -> None:
    """job/deleted-while-running"""
    harness = JobHarness(batch_job()).settle().admit().settle().delete().settle()
    assert harness.condition("Finished") == "True/OwnerNotFound"
    assert harness.workload.metadata.finalizers == ()


def test_orphans_that_wait_end_before_the_quota_of_others_is_offered_to_them() -> None:
    holds = JobHarness(batch_job()).settle().admit().workload
    waits = JobHarness(batch_job()).settle().workload
    ended = [action.workload for action in orphaned((holds, waits), OPTIONS, NOW) if isinstance(action, ChangeWorkload)]
    assert ended[0] is waits


def test_without_the_gate_an_orphan_loses_its_finalizer_and_is_not_finished() -> None:
    harness = JobHarness(batch_job(), options=replace(OPTIONS, finish_orphaned=False)).settle().delete().settle()
    assert harness.condition("Finished") == ""
    assert harness.workload.metadata.finalizers == ()


# --- Eviction ---------------------------------------------------------------------------------------------------------


def test_an_evicted_job_is_suspended_with_its_pods_as_they_were() -> None:
    """job/evicted-and-back"""
    template = {"metadata": {"labels": {"app": "x"}}}
    harness = JobHarness(batch_job(spec={"template": template}))
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    before = harness.settle().job
    harness.admit().settle().evict().settle()
    assert harness.job == before
    assert harness.condition("QuotaReserved") == "False/PendingEvaluation"
    assert harness.events == ["CreatedWorkload", "Started", "Stopped"]
    harness.admit().settle()
    assert harness.job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "blue"}


def test_quota_is_kept_until_the_pods_have_ended() -> None:
    harness = JobHarness(batch_job()).settle().admit().settle().status(active=1).settle().evict().settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.condition("QuotaReserved") == "True/QuotaReserved"
    harness.status(active=0).settle()
    assert harness.condition("QuotaReserved").startswith("False/")


def test_evicted_job_may_change_its_queue() -> None:
    """A departure from Kueue [LD3], where the Workload has to be admitted once more first."""
    harness = JobHarness(batch_job()).settle().admit().settle().evict().settle()
    harness.edit({"metadata": {"labels": {labels.QUEUE_NAME: "other"}}}).settle()
    assert harness.workload.spec.queue_name == "other"


def test_job_deactivated_by_kueue_is_deleted_after_retention() -> None:
    """config/deactivated-by-kueue-removed"""
    harness = JobHarness(batch_job(), options=replace(OPTIONS, keep_deactivated=HOUR)).settle().admit().settle()
    harness.workloads = {
        name: structs.replace(each, spec=structs.replace(each.spec, active=False))
        for name, each in harness.workloads.items()
    }
    harness.evict(EvictedReason.DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED).settle()
    assert harness.requeue_after == HOUR
    harness.now += HOUR
    harness.apply(harness.decide())
    assert not harness.objects
    assert "Deleted" in harness.events


def test_a_job_deactivated_by_its_user_is_kept() -> None:
    harness = JobHarness(batch_job(), options=replace(OPTIONS, keep_deactivated=0)).settle().admit().settle()
    harness.evict(EvictedReason.DEACTIVATED).settle()
    assert harness.objects


# --- Who owns the flag ------------------------------------------------------------------------------------------------


def test_admitted_job_suspended_by_a_user_is_resumed() -> None:
    """job/user-suspends-running"""
    harness = JobHarness(batch_job()).settle().admit().settle().edit({"spec": {"suspend": True}}).settle()
    assert harness.job["spec"]["suspend"] is False


def test_pending_job_started_by_a_user_is_suspended() -> None:
    """job/user-unsuspends-too-early"""
    harness = JobHarness(batch_job()).settle().edit({"spec": {"suspend": False}}).settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.events == ["CreatedWorkload", "Stopped"]


def test_a_job_that_slipped_past_the_webhook_is_suspended_first() -> None:
    harness = JobHarness(batch_job(spec={"suspend": False})).settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.events == ["Stopped", "CreatedWorkload"]


def test_deleting_the_workload_of_a_running_job_stops_the_job_and_makes_another() -> None:
    harness = JobHarness(batch_job()).settle().admit().settle()
    harness.delete_workload().settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.events == ["CreatedWorkload", "Started", "Stopped", "CreatedWorkload"]
    assert not harness.workload.metadata.deletion_timestamp


# --- A job that changes -----------------------------------------------------------------------------------------------


def test_another_size_of_a_waiting_job_rewrites_its_workload() -> None:
    """job/parallelism-changed-while-waiting"""
    harness = JobHarness(batch_job(spec={"parallelism": 6, "completions": None})).settle()
    name = harness.workload.metadata.name
    harness.edit({"spec": {"parallelism": 3}}).settle()
    assert (harness.workload.metadata.name, harness.workload.spec.pod_sets[0].count) == (name, 3)
    assert harness.events == ["CreatedWorkload", "UpdatedWorkload"]


def test_rewriting_a_workload_keeps_it_inactive() -> None:
    harness = JobHarness(batch_job(spec={"parallelism": 6, "completions": None})).settle()
    workload = harness.workload
    spec = structs.replace(workload.spec, active=False)
    harness.workloads[workload.metadata.name] = structs.replace(workload, spec=spec)
    harness.edit({"spec": {"parallelism": 3}}).settle()
    assert harness.workload.spec.active is False


def test_resizing_a_running_job_stops_and_requeues_it() -> None:
    """job/parallelism-changed-while-running"""
    harness = JobHarness(batch_job(spec={"parallelism": 2, "completions": None})).settle().admit().settle()
    harness.edit({"spec": {"parallelism": 5}}).settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.job["spec"]["parallelism"] == 5
    assert harness.workload.spec.pod_sets[0].count == 5
    assert harness.events == ["CreatedWorkload", "Started", "Stopped", "DeletedWorkload", "CreatedWorkload"]


@pytest.mark.parametrize(
    ("template", "counts"),
    [
        ({"spec": {"nodeSelector": {"zone": "a"}}}, False),
        ({"metadata": {"labels": {"app": "y"}}}, False),
        ({"spec": {"containers": [{"name": "c", "image": "app:2", "resources": {"requests": {"cpu": "1"}}}]}}, True),
        ({"spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]}}, True),
        (
            {"spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1000m"}}}]}},
            False,
        ),
        ({"spec": {"tolerations": [{"key": "t"}]}}, True),
    ],
    ids=["node selector", "labels", "image", "request", "the same request", "toleration"],
)
def test_what_counts_as_another_job_while_it_waits(template: dict[str, object], counts: bool) -> None:
    harness = JobHarness(batch_job()).settle().edit({"spec": {"template": template}}).settle()
    assert ("UpdatedWorkload" in harness.events) is counts


def test_tolerations_of_an_admitted_job_do_not_count() -> None:
    harness = JobHarness(batch_job()).settle().admit().settle()
    harness.edit({"spec": {"template": {"spec": {"tolerations": [{"key": "t"}]}}}}).settle()
    assert harness.job["spec"]["suspend"] is False


def test_a_waiting_job_may_change_its_queue() -> None:
    """job/queue-changed-while-waiting"""
    harness = JobHarness(batch_job()).settle().edit({"metadata": {"labels": {labels.QUEUE_NAME: "large"}}}).settle()
    assert harness.workload.spec.queue_name == "large"
    assert harness.events == ["CreatedWorkload"]


def test_surplus_workloads_are_deleted() -> None:
    harness = JobHarness(batch_job()).settle()
    twin = structs.replace(
        harness.workload, metadata=structs.replace(harness.workload.metadata, name="twin", uid="uid-twin")
    )
    harness.workloads["twin"] = twin
    harness.settle()
    assert len(harness.workloads) == 1
    assert "twin" not in harness.workloads


def test_recreated_job_of_the_same_name_gets_its_own_workload() -> None:
    """Edge case 29: owners are looked up by name, ownership is checked by UID."""
    harness = JobHarness(batch_job()).settle().admit()
    old = harness.workload.metadata.name
    harness.add(batch_job(metadata={"uid": "uid-second"})).settle()
    assert harness.workload.metadata.name != old
    assert harness.workload.metadata.owner_references[0].uid == "uid-second"


def test_without_the_queue_label_the_job_is_let_alone() -> None:
    """job/without-queue-runs-freely"""
    harness = JobHarness(batch_job(metadata={"labels": {labels.QUEUE_NAME: None}}, spec={"suspend": False})).settle()
    assert not harness.workloads
    assert not harness.writes


def test_managed_job_without_queue_name_gets_a_workload_without_one() -> None:
    """kep-3589/jobs: a server refuses an empty name, so there is none."""
    tree = batch_job(metadata={"labels": {labels.QUEUE_NAME: None}})
    harness = JobHarness(tree, options=replace(OPTIONS, manage_without_queue=True))
    (create, *_) = harness.decide()
    assert isinstance(create, CreateWorkload)
    assert "queueName" not in create.workload["spec"]
    harness.settle().edit({"metadata": {"labels": {labels.QUEUE_NAME: "lq"}}}).settle()
    assert harness.workload.spec.queue_name == "lq"


# --- Priority, labels, gates ------------------------------------------------------------------------------------------


def _class(name: str, value: int) -> dict[str, kueue.WorkloadPriorityClass]:
    return {name: codec.from_tree({"metadata": {"name": name}, "value": value}, kueue.WorkloadPriorityClass)}


def test_a_workload_takes_its_priority_from_the_class_that_the_label_names() -> None:
    harness = JobHarness(
        batch_job(metadata={"labels": {labels.PRIORITY_CLASS: "high"}}), workload_priority_classes=_class("high", 7)
    ).settle()
    assert harness.workload.spec.priority == 7
    reference = harness.workload.spec.priority_class_ref
    assert reference is not None
    assert (reference.group, reference.kind, reference.name) == ("kueue.x-k8s.io", "WorkloadPriorityClass", "high")


def test_missing_priority_class_emits_an_event_and_is_retried() -> None:
    """job/priority-class-missing"""
    harness = JobHarness(batch_job(metadata={"labels": {labels.PRIORITY_CLASS: "later"}})).settle()
    assert not harness.workloads
    assert harness.events == ["Warning WorkloadPriorityClassNotFound"]
    assert harness.retries == ['WorkloadPriorityClass "later" not found']
    harness.facts = replace(harness.facts, workload_priority_classes=_class("later", 7))
    assert harness.settle().workload.spec.priority == 7


def test_a_missing_class_of_its_pods_is_only_waited_for() -> None:
    harness = JobHarness(
        batch_job(spec={"template": {"spec": {"priorityClassName": "later", "containers": []}}})
    ).settle()
    assert not harness.workloads
    assert not harness.events
    assert harness.retries == ['PriorityClass "later" not found']


def test_changing_the_class_of_a_waiting_job_changes_its_workload() -> None:
    """job/priority-class-changed-while-waiting"""
    classes = _class("low", 1) | _class("high", 100)
    harness = JobHarness(
        batch_job(metadata={"labels": {labels.PRIORITY_CLASS: "low"}}), workload_priority_classes=classes
    )
    harness.settle().edit({"metadata": {"labels": {labels.PRIORITY_CLASS: "high"}}}).settle()
    assert harness.workload.spec.priority == 100
    assert harness.events[-1] == "UpdatedWorkload"


def test_changing_the_class_of_a_running_job_is_reported_as_such() -> None:
    classes = _class("low", 1) | _class("high", 100)
    harness = JobHarness(
        batch_job(metadata={"labels": {labels.PRIORITY_CLASS: "low"}}), workload_priority_classes=classes
    )
    harness.settle().admit().settle().edit({"metadata": {"labels": {labels.PRIORITY_CLASS: "high"}}}).settle()
    assert harness.job["spec"]["suspend"] is False
    assert harness.events[-1] == "UpdatedWorkload"
    assert harness.notes[-1] == f"Updated workload priority class: main/{harness.workload.metadata.name}"


def test_gates_and_class_that_change_together_are_reported_each() -> None:
    classes = _class("low", 1) | _class("high", 100)
    gates = {labels.ADMISSION_GATED_BY: "example.com/a,example.com/b"}
    harness = JobHarness(
        batch_job(metadata={"labels": {labels.PRIORITY_CLASS: "low"}, "annotations": gates}),
        workload_priority_classes=classes,
    ).settle()
    changed = {"labels": {labels.PRIORITY_CLASS: "high"}, "annotations": {labels.ADMISSION_GATED_BY: "example.com/a"}}
    harness.edit({"metadata": changed}).settle()
    assert harness.notes[-2:] == [
        'Updated workload AdmissionGatedBy to "example.com/a"',
        f"Updated workload priority class: main/{harness.workload.metadata.name}",
    ]
    harness.edit({"metadata": {"annotations": {labels.ADMISSION_GATED_BY: None}}}).settle()
    assert harness.notes[-1] == 'Updated workload AdmissionGatedBy to ""'


def test_chosen_labels_are_copied_once() -> None:
    """job/copied-labels"""
    options = replace(OPTIONS, label_keys_to_copy=("team",))
    harness = JobHarness(batch_job(metadata={"labels": {"team": "red", "colour": "blue"}}), options=options).settle()
    harness.edit({"metadata": {"labels": {"team": "green"}}}).settle()
    assert harness.workload.metadata.labels == {labels.JOB_UID: "uid-alpha", "team": "red"}


def test_annotations_that_metrics_read_are_copied_once() -> None:
    options = replace(OPTIONS, annotation_keys_to_copy=("team",))
    job = batch_job(metadata={"annotations": {"team": "red", "colour": "blue"}})
    harness = JobHarness(job, options=options).settle()
    harness.edit({"metadata": {"annotations": {"team": "green"}}}).settle()
    assert harness.workload.metadata.annotations == {"team": "red"}


def test_admission_gate_of_a_job_is_copied_and_removed() -> None:
    """job/admission-gated"""
    harness = JobHarness(batch_job(metadata={"annotations": {labels.ADMISSION_GATED_BY: "example.com/gate"}})).settle()
    assert harness.workload.metadata.annotations == {labels.ADMISSION_GATED_BY: "example.com/gate"}
    harness.edit({"metadata": {"annotations": {labels.ADMISSION_GATED_BY: None}}}).settle()
    assert labels.ADMISSION_GATED_BY not in harness.workload.metadata.annotations


def test_queue_and_gates_that_change_together_are_one_write() -> None:
    """A Workload that lost its gate before it was moved could be admitted in the old queue."""
    gate = {"annotations": {labels.ADMISSION_GATED_BY: "example.com/gate"}}
    harness = JobHarness(batch_job(metadata=gate)).settle()
    changed = {"labels": {labels.QUEUE_NAME: "b"}, "annotations": {labels.ADMISSION_GATED_BY: None}}
    (patch, _) = harness.edit({"metadata": changed}).decide()
    assert isinstance(patch, PatchWorkload)
    assert patch.patch == {"metadata": {"annotations": {labels.ADMISSION_GATED_BY: None}}, "spec": {"queueName": "b"}}
    harness.settle().admit().settle()
    assert harness.workload.spec.queue_name == "b"
    assert harness.job["spec"]["suspend"] is False


def test_gates_are_followed_although_a_new_class_does_not_exist() -> None:
    gates = {labels.ADMISSION_GATED_BY: "example.com/a,example.com/b"}
    harness = JobHarness(batch_job(metadata={"annotations": gates})).settle()
    changed = {"labels": {labels.PRIORITY_CLASS: "none"}, "annotations": {labels.ADMISSION_GATED_BY: "example.com/a"}}
    harness.edit({"metadata": changed}).settle()
    assert harness.workload.metadata.annotations[labels.ADMISSION_GATED_BY] == "example.com/a"
    assert harness.events == ["CreatedWorkload", "UpdatedWorkload", *["Warning WorkloadPriorityClassNotFound"] * 2]
    assert harness.retries[-1] == 'WorkloadPriorityClass "none" not found'


def test_parameters_of_provisioning_requests_are_copied() -> None:
    harness = JobHarness(
        batch_job(metadata={"annotations": {"provreq.kueue.x-k8s.io/zone": "a", "other": "b"}})
    ).settle()
    assert harness.workload.metadata.annotations == {"provreq.kueue.x-k8s.io/zone": "a"}


def test_the_execution_time_comes_from_the_label() -> None:
    harness = JobHarness(batch_job(metadata={"labels": {labels.MAX_EXEC_TIME_SECONDS: "100"}})).settle()
    assert harness.workload.spec.maximum_execution_time_seconds == 100
    harness.edit({"metadata": {"labels": {labels.MAX_EXEC_TIME_SECONDS: "200"}}}).settle()
    assert harness.workload.spec.maximum_execution_time_seconds == 200


# --- Checks -----------------------------------------------------------------------------------------------------------


def _with_check(harness: JobHarness, **check: object) -> None:
    workload = harness.workload
    tree = {"name": "check", "state": "Ready", "lastTransitionTime": "2026-11-15T12:00:00Z", "message": "", **check}
    status = structs.replace(workload.status, admission_checks=(codec.from_tree(tree, kueue.AdmissionCheckState),))
    harness.workloads[workload.metadata.name] = structs.replace(workload, status=status)


def test_a_check_adds_to_the_pods() -> None:
    harness = JobHarness(batch_job()).settle()
    _with_check(harness, podSetUpdates=[{"name": "main", "nodeSelector": {"pool": "new"}}])
    harness.admit(checks=("check",)).settle()
    assert harness.job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "new"}


def test_conflicting_pod_set_update_finishes_the_workload_without_retry() -> None:
    """Edge case 31"""
    harness = JobHarness(batch_job(spec={"template": {"spec": {"nodeSelector": {"pool": "old"}}}})).settle()
    _with_check(harness, podSetUpdates=[{"name": "main", "nodeSelector": {"pool": "new"}}])
    harness.admit(checks=("check",)).settle()
    assert harness.condition("Finished") == "True/FailedToStart"
    assert harness.job["spec"]["suspend"] is True


def test_message_of_a_pending_check_is_an_event_on_the_job() -> None:
    harness = JobHarness(batch_job()).settle()
    _with_check(harness, state="Pending", message="waiting for nodes")
    harness.admit(checks=("check",)).settle()
    assert harness.events[-1] == "UpdatedAdmissionCheck"
    assert harness.job["spec"]["suspend"] is True


def test_a_missing_flavor_is_waited_for() -> None:
    harness = JobHarness(batch_job()).settle().admit(cpu="later").settle()
    assert harness.retries == ["the ResourceFlavor later does not exist"]
    assert not harness.condition("Finished")


# --- A Workload made beforehand ---------------------------------------------------------------------------------------


def _prebuilt(harness: JobHarness, **spec: object) -> kueue.Workload:
    template = {"spec": unstructured.get(harness.job, "spec", "template", "spec")}
    pod_sets = [{"name": "main", "count": 1, "template": template} | spec]
    tree = {
        "metadata": {"name": "ready-made", "namespace": "main", "uid": "uid-ready"},
        "spec": {"queueName": "lq", "podSets": pod_sets},
    }
    return codec.from_tree(tree, kueue.Workload)


NAMES_ONE = {"labels": {labels.PREBUILT_WORKLOAD_NAME: "ready-made"}}


def test_a_job_waits_for_the_workload_that_it_names_and_owns_it_then() -> None:
    """job/prebuilt-workload"""
    harness = JobHarness(batch_job(metadata=NAMES_ONE)).settle()
    assert not harness.workloads
    assert not harness.events
    harness.workloads["ready-made"] = _prebuilt(harness)
    harness.settle()
    assert harness.workload.metadata.owner_references[0].name == "alpha"
    assert harness.workload.metadata.labels == {labels.JOB_UID: "uid-alpha"}
    assert harness.workload.metadata.finalizers == ()
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False


def test_prebuilt_workload_that_differs_is_finished_out_of_sync() -> None:
    harness = JobHarness(batch_job(metadata=NAMES_ONE))
    harness.workloads["ready-made"] = _prebuilt(harness, count=3)
    harness.settle()
    assert harness.condition("Finished") == "True/OutOfSync"
    assert harness.job["spec"]["suspend"] is True


def test_pod_that_differs_from_its_prebuilt_workload_stays_gated() -> None:
    harness = JobHarness(pod(metadata=NAMES_ONE))
    harness.workloads["ready-made"] = _prebuilt(JobHarness(batch_job()), count=3)
    harness.settle()
    assert harness.condition("Finished") == "True/OutOfSync"
    assert PodView(harness.job).has_gate()
    assert harness.job["metadata"]["finalizers"] == [labels.POD_FINALIZER]
    assert harness.events == []


def test_prebuilt_workload_must_have_server_defaults() -> None:
    harness = JobHarness(batch_job(metadata=NAMES_ONE))
    harness.workloads["ready-made"] = _prebuilt(harness)
    place = ("spec", "template", "spec", "containers")
    (container,) = unstructured.sequence(unstructured.get(harness.job, *place))
    harness.objects["alpha"] = unstructured.put(harness.job, place, [{**container, "imagePullPolicy": "IfNotPresent"}])
    assert harness.settle().condition("Finished") == "True/OutOfSync"


def test_prebuilt_workload_of_another_job_is_not_changed() -> None:
    harness = JobHarness(batch_job(metadata=NAMES_ONE))
    other = _prebuilt(harness)
    owner = codec.from_tree(
        {"apiVersion": "batch/v1", "kind": "Job", "name": "beta", "uid": "uid-beta", "controller": True},
        type(JobHarness(batch_job()).settle().workload.metadata.owner_references[0]),
    )
    other = structs.replace(other, metadata=structs.replace(other.metadata, owner_references=(owner,)))
    harness.workloads["ready-made"] = other
    assert harness.settle().workload is other


# --- Children ---------------------------------------------------------------------------------------------------------

PARENT = ObjectView(batch_job("parent"))
CHILD = {"metadata": {"labels": {labels.QUEUE_NAME: None}}, "spec": {"suspend": False}}


def _child(*workloads: kueue.Workload) -> JobHarness:
    ancestry = Ancestry((PARENT,))
    return JobHarness(
        batch_job("child", **CHILD), ancestry=ancestry, ancestor=PARENT, ancestor_workloads=workloads
    ).settle()


def test_a_child_runs_while_its_ancestor_is_admitted() -> None:
    """job/child-of-managed-job"""
    parent = JobHarness(PARENT.tree).settle().admit().workload
    child = _child(parent)
    assert child.job["spec"]["suspend"] is False
    assert not child.workloads


def test_a_child_is_suspended_when_its_ancestor_is_evicted() -> None:
    """[JF27] The Workload of the ancestor stays admitted until the pods of the child are gone."""
    parent = JobHarness(PARENT.tree).settle().admit().evict().workload
    assert states.is_admitted(parent)
    child = _child(parent)
    assert child.job["spec"]["suspend"] is True
    assert child.events == ["Suspended"]


def test_a_child_waits_for_its_ancestor() -> None:
    parent = JobHarness(PARENT.tree).settle().workload
    child = _child(parent)
    assert child.job["spec"]["suspend"] is True
    assert child.events == ["Suspended"]
    assert not child.workloads


def test_too_deep_nesting_emits_an_event() -> None:
    harness = JobHarness(
        batch_job(), ancestry=Ancestry((), "is nested more than 10 levels deep", too_deep=True)
    ).settle()
    assert harness.events == ["Warning JobNestingTooDeep"]
    assert harness.retries


def test_job_whose_owner_does_not_exist_gets_an_event_and_no_workload() -> None:
    """[JF21]"""
    lost = Ancestry((), "has the owner JobSet s, which does not exist")
    harness = JobHarness(batch_job(), ancestry=lost).settle()
    assert harness.events == ["Warning OwnerNotReadable"]
    assert harness.retries[0].endswith("has the owner JobSet s, which does not exist")
    assert not harness.workloads
    plain = JobHarness(patches.merge(batch_job(), {"metadata": {"labels": None}}), ancestry=lost).settle()
    assert (plain.events, bool(plain.retries)) == ([], True)


# --- Namespaces -------------------------------------------------------------------------------------------------------


def test_nothing_is_done_in_a_missing_namespace() -> None:
    harness = JobHarness(batch_job(), namespace=None).settle()
    assert not harness.workloads


def test_the_same_facts_give_the_same_actions() -> None:
    harness = JobHarness(batch_job()).settle().admit()
    assert harness.decide() == harness.decide()
    assert harness.now == NOW < NOW + MINUTE


# --- The tables on top of the modules ---------------------------------------------------------------------------------


def test_the_table_of_the_reconciler_lists_its_steps_in_their_order() -> None:
    steps = re.findall(r"^    \d+ +(\w+)", reconcile.__doc__ or "", re.MULTILINE)
    phases = [phase.__name__ for phase in reconcile._PHASES]
    before = len(steps) - len(phases)
    assert steps[before:] == phases
    source = inspect.getsource(reconcile.reconcile)
    places = [re.search(rf"\b{step}\b", source) for step in steps[:before]]
    assert None not in places
    assert sorted(places, key=lambda place: place.start() if place else 0) == places


def test_the_table_of_actions_lists_every_action() -> None:
    listed = re.findall(r"^([A-Z]\w+)  +", actions.__doc__ or "", re.MULTILINE)
    assert listed == [action.__name__ for action in get_args(actions.Action)]
