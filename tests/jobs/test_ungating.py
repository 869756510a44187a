"""Pods of an elastic job are released as far as the admitted slice goes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from jobs.job_harness import NOW, OPTIONS
from jobs.test_slices import elastic, newest, resized
from kubemachinery import codec, patches
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import ungating
from pykueue.jobs.actions import ReplaceObject
from pykueue.lifecycle import reservation, states, workload_changes


def member(name: str, slice_: str, *, gated: bool = True, **fields: Any) -> Tree:
    """A pod that the Job controller made from the template of an elastic Job."""
    gates = [{"name": labels.ELASTIC_JOB_GATE}] if gated else []
    tree: Tree = {
        "metadata": {
            "name": name,
            "namespace": "main",
            "labels": {labels.PODSET: "main"},
            "annotations": {labels.WORKLOAD_SLICE_NAME: slice_},
        },
        "spec": {"schedulingGates": gates},
        "status": {"phase": "Pending" if gated else "Running"},
    }
    merged: Tree = patches.merge(tree, fields)
    return merged


def names(slices: list[kueue.Workload], *members: Tree) -> list[str]:
    actions = ungating.released(slices, members)
    assert all(
        isinstance(action, ReplaceObject) and not action.after["spec"].get("schedulingGates") for action in actions
    )
    return [action.after["metadata"]["name"] for action in actions if isinstance(action, ReplaceObject)]


def test_as_many_pods_are_released_as_were_granted_the_first_by_name() -> None:
    first = elastic(2).workload
    pods = [member(name, first.metadata.name) for name in ("c", "a", "b")]
    assert names([first], *pods) == ["a", "b"]


def test_pods_that_run_already_count() -> None:
    first = elastic(2).workload
    slice_ = first.metadata.name
    assert names([first], member("z", slice_, gated=False), member("a", slice_), member("b", slice_)) == ["a"]


def test_finished_pods_release_their_share_of_the_slice() -> None:
    first = elastic(1).workload
    over = member("z", first.metadata.name, gated=False, status={"phase": "Succeeded"})
    assert names([first], over, member("a", first.metadata.name)) == ["a"]


def test_a_pod_that_is_being_deleted_keeps_its_place_until_it_has_ended() -> None:
    first = elastic(1).workload
    slice_ = first.metadata.name
    deleting = {"deletionTimestamp": "2026-11-15T12:00:00Z"}
    assert names([first], member("z", slice_, gated=False, metadata=deleting), member("a", slice_)) == []
    # A pod that never started has no place, and takes none.
    assert names([first], member("a", slice_, metadata=deleting), member("b", slice_)) == ["b"]


def test_slice_that_was_scaled_down_grants_no_more_than_it_has() -> None:
    """The quota that it released may be used by others when the job is scaled up again."""
    harness = resized(resized(elastic(3), 1), 3)
    first, second = harness.workloads.values()
    assert (first.spec.pod_sets[0].count, second.spec.pod_sets[0].count) == (1, 3)
    assert states.is_admitted(first)
    assert not states.is_reserved(second)
    slice_ = first.metadata.name
    pods = (member("a", slice_), member("b", slice_), member("c", slice_))
    assert names([first, second], *pods) == ["a"]


def test_new_pods_wait_until_the_larger_slice_is_admitted() -> None:
    harness = resized(elastic(1), 2)
    first, second = harness.workloads.values()
    slice_ = first.metadata.name
    pods = (member("a", slice_, gated=False), member("b", slice_))
    assert names([first, second], *pods) == []
    status = structs.replace(
        first.status,
        admission=kueue.Admission(
            cluster_queue="cq", pod_set_assignments=(kueue.PodSetAssignment(name="main", count=2),)
        ),
    )
    metadata = structs.replace(second.metadata, creation_timestamp="2026-11-15T12:00:01Z")
    assert names([first, structs.replace(second, status=status, metadata=metadata)], *pods) == ["b"]


def answered(workload: kueue.Workload, **update: Any) -> kueue.Workload:
    """The slice with podSetUpdates of a check for its pod set."""
    check: dict[str, Any] = {"name": "c", "state": "Ready", "lastTransitionTime": "", "message": ""}
    check |= {"podSetUpdates": [{"name": "main", **update}]}
    status = structs.replace(workload.status, admission_checks=(codec.from_tree(check, kueue.AdmissionCheckState),))
    return structs.replace(workload, status=status)


@pytest.mark.parametrize(("annotated", "released"), [("old", []), ("new", ["a"]), ("", ["a"])])
def test_a_pod_made_under_an_earlier_answer_of_a_check_waits(annotated: str, released: list[str]) -> None:
    first = elastic(1).workload
    key = labels.CONSUME_PROVISIONING_REQUEST
    pod = member("a", first.metadata.name, metadata={"annotations": {key: annotated}})
    assert names([answered(first, annotations={key: "new"})], pod) == released


def test_a_pod_that_is_led_to_other_nodes_than_the_slice_waits_and_takes_no_place() -> None:
    first = elastic(1).workload
    slice_ = answered(first, nodeSelector={"pool": "new"}, labels={"team": "a"})
    stale = member("a", first.metadata.name, spec={"nodeSelector": {"pool": "old"}})
    labelled = member("b", first.metadata.name, metadata={"labels": {"team": "b"}})
    assert names([slice_], stale, labelled) == ["b"]


def test_a_pod_made_before_any_answer_of_a_check_gets_it_with_its_release() -> None:
    """Without the annotations the autoscaler would not count the pod to the nodes that it provisioned."""
    first = elastic(1).workload
    key = labels.CONSUME_PROVISIONING_REQUEST
    toleration = {"key": "reserved", "operator": "Exists"}
    update = {"labels": {"team": "a"}, "nodeSelector": {"pool": "new"}, "tolerations": [toleration]}
    pod = member("a", first.metadata.name, spec={"nodeSelector": {"arch": "arm"}, "tolerations": [{"key": "own"}]})
    (action,) = ungating.released([answered(first, annotations={key: "new"}, **update)], [pod])
    assert isinstance(action, ReplaceObject)
    assert action.before == pod
    slice_name = {labels.WORKLOAD_SLICE_NAME: first.metadata.name}
    assert action.after["metadata"]["annotations"] == {key: "new", **slice_name}
    assert action.after["metadata"]["labels"] == {labels.PODSET: "main", "team": "a"}
    assert action.after["spec"] == {
        "nodeSelector": {"arch": "arm", "pool": "new"},
        "tolerations": [{"key": "own"}, toleration],
    }


def test_slices_and_pods_meet_under_one_word() -> None:
    harness = resized(elastic(1), 2)
    first = next(iter(harness.workloads.values()))
    words = {ungating.workload_slice_keys(each) for each in harness.workloads.values()}
    assert words == {ungating.slice_keys(member("a", first.metadata.name))}
    assert newest(harness) is not first
    assert ungating.slice_keys({"metadata": {"name": "p"}}) == ()


def test_no_pod_is_released_on_quota_of_an_evicted_slice() -> None:
    """Evicted, it holds its reservation until the job has stopped; a preemptor is about to get it."""
    harness = elastic(3)
    pods = [member(name, harness.workload.metadata.name) for name in ("a", "b")]
    assert names([harness.evict().workload], *pods) == []


def test_no_pod_is_released_while_the_newest_slice_with_quota_waits_for_its_checks() -> None:
    """The larger slice counts as soon as it holds quota, and its pods may start when it is admitted."""
    harness = resized(elastic(1), 2)
    first, second = harness.workloads.values()
    assignment = kueue.PodSetAssignment(name="main", flavors={"cpu": "default"}, count=2)
    admission = kueue.Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    changes = reservation.reserve(second, admission, ("check",), OPTIONS.lifecycle, NOW)
    later = structs.replace(second.metadata, creation_timestamp="2026-11-15T12:30:00Z")
    held = structs.replace(workload_changes.apply_to(second, changes, NOW), metadata=later)
    assert states.is_reserved(held)
    assert not states.is_admitted(held)
    assert names([first, held], member("a", first.metadata.name)) == []
