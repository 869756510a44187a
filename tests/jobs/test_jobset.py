"""JobSet, rule by rule (docs/rules/jobset.md)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import ALL_KINDS, KINDS, JobHarness, flavor
from jobs.samples import condition, template
from jobs.samples.jobset import job_set, replicated, statuses
from kubemachinery import codec, patches
from kubemachinery.unstructured import Tree, get
from pykueue.api import labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.jobs import admission, podsets
from pykueue.jobs.actions import ReplaceObject
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.interface import GenericJob, JobOutcome
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

ROW = next(row for row in KINDS if row.framework == "jobset.x-k8s.io/jobset")
NO_TOPOLOGY = replace(ALL_KINDS, topology=False)
PLACE = "spec.replicatedJobs[{}].template.spec.template.metadata.annotations"


def job(**fields: Any) -> GenericJob:
    return ROW.job(job_set(**fields))


def of(*jobs: Tree) -> GenericJob:
    return job(spec={"replicatedJobs": list(jobs)})


def annotated(name: str, annotations: dict[str, str], pods: int = 1) -> Tree:
    merged: Tree = patches.merge(
        replicated(name, 1, pods),
        {"template": {"spec": {"template": {"metadata": {"annotations": annotations}}}}},
    )
    return merged


def started(what: GenericJob, *infos: PodSetInfo) -> Tree:
    tree = what.started(infos)
    assert not isinstance(tree, PodSetConflict)
    return tree


# --- Pod sets ---------------------------------------------------------------------------------------------------------


def test_pod_sets_of_a_job_with_too_many_are_not_built() -> None:
    """[JF45] Thousands of templates take seconds to build, and the server refuses the Workload."""
    many = job_set(spec={"replicatedJobs": [replicated(f"r{number}") for number in range(19)]})
    harness = JobHarness(many, row=ROW, options=ALL_KINDS).settle()
    assert not harness.workloads
    assert harness.events == ["Warning ErrWorkloadCompose"]
    assert harness.notes == ["JobSet pair has 19 pod sets; a Workload has at most 18"]
    fewer = JobHarness(job_set(spec={"replicatedJobs": [replicated(f"r{n}") for n in range(18)]}), row=ROW).settle()
    assert len(fewer.workload.spec.pod_sets) == 18


def test_js1_each_replicated_job_is_a_pod_set_in_order() -> None:
    found = of(replicated("Zeta"), replicated("alpha"))
    assert [pod_set["name"] for pod_set in found.pod_sets(ALL_KINDS)] == ["zeta", "alpha"]
    spots = [each.spot for each in found.templates()]
    assert spots == [("spec", "replicatedJobs", n, "template", "spec", "template") for n in (0, 1)]


@pytest.mark.parametrize(
    ("replicas", "parallelism", "completions", "count"),
    [
        (2, 3, 3, 6),
        (2, 3, 1, 2),
        (2, 3, None, 6),
        (2, None, 5, 2),
        (None, 3, 3, 3),
        (0, 3, 3, 0),
        (2, 0, None, 0),
    ],
)
def test_js2_count_is_replicas_times_pods_that_run_at_once(
    replicas: int | None, parallelism: int | None, completions: int | None, count: int
) -> None:
    spec = {"parallelism": parallelism, "completions": completions, "template": template()}
    (found,) = of({"name": "a", "replicas": replicas, "template": {"spec": spec}}).pod_sets(ALL_KINDS)
    assert found["count"] == count


def test_js3_every_pod_set_has_a_topology_request() -> None:
    first, second = of(replicated("a", 3), annotated("b", {labels.PODSET_REQUIRED_TOPOLOGY: "rack"})).pod_sets(
        ALL_KINDS
    )
    index = {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
    }
    assert first["topologyRequest"] == {**index, "subGroupCount": 3}
    assert second["topologyRequest"] == {**index, "subGroupCount": 1, "required": "rack"}


def test_js3_sub_group_count_of_no_replicas_is_zero() -> None:
    (found,) = of(replicated("a", 0)).pod_sets(ALL_KINDS)
    assert found["topologyRequest"]["subGroupCount"] == 0


def test_js3_no_topology_request_without_the_gate() -> None:
    (found,) = of(replicated("a")).pod_sets(NO_TOPOLOGY)
    assert "topologyRequest" not in found


def test_fraction_as_an_amount_is_text_in_the_workload() -> None:
    tree = replicated("a")
    tree["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": 0.5, "memory": 1}
    (found,) = of(tree).pod_sets(ALL_KINDS)
    assert found["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": 1}


# --- Start and stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suspend", "expected"), [(True, True), (False, False), (None, False)])
def test_js4_suspend_is_a_field_of_the_spec(suspend: bool | None, expected: bool) -> None:
    assert job(spec={"suspend": suspend}).is_suspended() is expected


def test_js5_start_injects_by_position() -> None:
    infos = [PodSetInfo("driver", 1, node_selector={"pool": "a"}), PodSetInfo("worker", 4, labels={"x": "y"})]
    tree = started(job(), *infos)
    assert get(tree, "spec", "suspend") is False
    assert podsets.at(tree, job().templates()[0].spot)["spec"]["nodeSelector"] == {"pool": "a"}
    assert podsets.at(tree, job().templates()[1].spot)["metadata"]["labels"] == {"x": "y"}


def test_js5_start_with_another_number_of_pod_sets_is_a_conflict() -> None:
    assert isinstance(job().started([PodSetInfo("driver", 1)]), PodSetConflict)


def test_js5_start_and_js6_stop_are_one_write_each() -> None:
    harness = JobHarness(job_set(), options=ALL_KINDS).settle().admit()
    assert len([action for action in harness.decide() if isinstance(action, ReplaceObject)]) == 1
    harness.settle().status(**statuses({"active": 1}, {"active": 2})).evict()
    (write,) = [action for action in harness.decide() if isinstance(action, ReplaceObject)]
    assert (get(write.after, "spec", "suspend"), write.subresource) == (True, "")


def test_js6_stop_does_not_change_the_status() -> None:
    harness = JobHarness(job_set(), options=ALL_KINDS).settle().admit().settle()
    harness.status(**statuses({"active": 1}, {"active": 2})).evict().settle()
    assert harness.job["status"] == statuses({"active": 1}, {"active": 2})


def test_replicated_job_without_pods_is_admitted_and_started() -> None:
    harness = JobHarness(job_set(spec={"replicatedJobs": [replicated("a"), replicated("b", 2, 0)]}), options=ALL_KINDS)
    assert [each.count for each in harness.settle().workload.spec.pod_sets] == [1, 0]
    harness.admit().settle()
    assert get(harness.job, "spec", "suspend") is False


def test_job_set_that_its_user_suspended_emits_no_second_stop() -> None:
    harness = JobHarness(job_set(), options=ALL_KINDS).settle().admit().settle()
    harness.evict().edit({"spec": {"suspend": True}}).settle()
    assert "Stopped" not in harness.events
    harness.admit().settle()
    assert get(harness.job, "spec", "suspend") is False


def test_conflicting_node_selector_ends_the_workload_for_good() -> None:
    spec = {"replicatedJobs": [replicated("a")]}
    tree = job_set(spec=spec)
    tree["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "red"}
    harness = JobHarness(tree, options=ALL_KINDS).settle()
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.admit().settle()
    assert harness.condition(WorkloadCondition.FINISHED) == "True/FailedToStart"
    assert get(harness.job, "spec", "suspend") is True


def test_changed_number_of_replicated_jobs_restarts_a_running_job_set() -> None:
    harness = JobHarness(job_set(), options=ALL_KINDS).settle().admit().settle()
    old = harness.workload.metadata.name
    harness.status(**statuses({"active": 1}, {"active": 2}))
    harness.edit({"spec": {"replicatedJobs": [*harness.job["spec"]["replicatedJobs"], replicated("more")]}}).settle()
    assert get(harness.job, "spec", "suspend") is True
    assert old not in harness.workloads
    harness.status(**statuses({"active": 0}, {"active": 0})).settle()
    assert [each.name for each in harness.workload.spec.pod_sets] == ["driver", "worker", "more"]


# --- State ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "worker", "active"),
    [
        ({"active": 0}, {"active": 1}, True),
        ({"active": 0}, {"active": 0, "ready": 2}, False),
        ({"active": -1}, {}, False),
        ({}, {}, False),
    ],
)
def test_js7_active_while_a_job_has_pods(driver: Tree, worker: Tree, active: bool) -> None:
    assert job(status=statuses(driver, worker)).is_active() is active


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([condition("Completed", "all done")], JobOutcome("all done", success=True)),
        ([condition("Failed", "broken")], JobOutcome("broken", success=False)),
        ([condition("Failed", "broken"), condition("Completed", "done")], JobOutcome("done", success=True)),
        ([{**condition("Completed"), "status": "False"}], None),
        ([condition("Suspended")], None),
    ],
)
def test_js8_completed_comes_before_failed(conditions: list[Tree], outcome: JobOutcome | None) -> None:
    assert job(status={"conditions": conditions}).outcome() == outcome


@pytest.mark.parametrize(
    ("driver", "worker", "ready"),
    [
        ({"ready": 1}, {"ready": 2}, True),
        ({"succeeded": 1}, {"ready": 1, "succeeded": 1}, True),
        ({"ready": 1}, {"ready": 1}, False),
        # More than there are replicas: a row of a replicated job that was removed.
        ({"ready": 1}, {"ready": 3}, False),
        ({}, {}, False),
    ],
)
def test_js9_ready_when_as_many_jobs_are_ready_as_there_are_replicas(driver: Tree, worker: Tree, ready: bool) -> None:
    assert job(status=statuses(driver, worker)).are_pods_ready() is ready


@pytest.mark.parametrize(
    ("driver", "worker", "reclaimable"),
    [
        ({}, {}, {}),
        ({"succeeded": 1}, {"succeeded": 0}, {"driver": 1}),
        ({"succeeded": 1}, {"succeeded": 1}, {"driver": 1, "worker": 2}),
        ({"succeeded": 2}, {"succeeded": 2}, {"worker": 4}),
        ({"succeeded": -1}, {}, {}),
    ],
)
def test_js10_pods_of_succeeded_jobs_are_reclaimable_by_name(
    driver: Tree, worker: Tree, reclaimable: dict[str, int]
) -> None:
    assert job(status=statuses(driver, worker)).reclaimable() == reclaimable


def test_preempted_job_set_with_reclaimed_pods_is_restored_with_all_of_them() -> None:
    harness = JobHarness(job_set(), options=ALL_KINDS).settle().admit().settle()
    harness.status(**statuses({"succeeded": 1}, {"active": 2})).settle()
    assert [(each.name, each.count) for each in harness.workload.status.reclaimable_pods] == [("driver", 1)]
    harness.evict().settle().status(**statuses({"succeeded": 1}, {"active": 0})).settle()
    before = [codec.to_tree(pod_set) for pod_set in harness.workload.spec.pod_sets]
    harness.admit(counts={"driver": 0}).settle()
    assert get(harness.job, "spec", "suspend") is False
    assert [codec.to_tree(pod_set) for pod_set in harness.workload.spec.pod_sets] == before


# --- The webhook ------------------------------------------------------------------------------------------------------


def errors(tree: Tree, old: Tree | None = None) -> list[tuple[str, str]]:
    facts = JobAdmissionFacts()
    if old is None:
        result = admission.validate_create(ROW, tree, facts, KINDS, ALL_KINDS)
    else:
        result = admission.validate_update(ROW, tree, old, facts, KINDS, ALL_KINDS)
    return [(error.path, error.type.name) for error in result.errors]


REQUIRED, PREFERRED = labels.PODSET_REQUIRED_TOPOLOGY, labels.PODSET_PREFERRED_TOPOLOGY
GROUP, SIZE = labels.PODSET_GROUP_NAME, labels.PODSET_SLICE_SIZE
BOTH = {REQUIRED: "rack", PREFERRED: "rack"}
IN_GROUP = {REQUIRED: "rack", GROUP: "g"}

INVALID = [
    ([annotated("a", BOTH)], [(PLACE.format(0), "INVALID")]),
    ([replicated("a"), annotated("b", BOTH)], [(PLACE.format(1), "INVALID")]),
    ([annotated("a", {REQUIRED: "a b"})], [(f"{PLACE.format(0)}[{REQUIRED}]", "INVALID")]),
    (
        [annotated("a", {labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "rack", SIZE: "2"})],
        [(f"{PLACE.format(0)}[{SIZE}]", "INVALID")],
    ),
    ([annotated("a", IN_GROUP)], [(f"{PLACE.format(0)}[{GROUP}]", "INVALID")]),
    (
        [annotated(name, IN_GROUP) for name in "abc"],
        [(f"{PLACE.format(number)}[{GROUP}]", "INVALID") for number in range(3)],
    ),
    (
        [annotated("a", IN_GROUP, pods=2), annotated("b", IN_GROUP, pods=3)],
        [(f"{PLACE.format(number)}[{GROUP}]", "INVALID") for number in range(2)],
    ),
    (
        [annotated("a", IN_GROUP), annotated("b", {PREFERRED: "rack", GROUP: "g"})],
        [(PLACE.format(0), "INVALID"), (PLACE.format(1), "INVALID")],
    ),
    ([annotated("a", {GROUP: "g"})], [(f"{PLACE.format(0)}[{GROUP}]", "FORBIDDEN")]),
]


@pytest.mark.parametrize(("jobs", "expected"), INVALID)
def test_js11_topology_annotations_are_validated_on_create(jobs: list[Tree], expected: list[tuple[str, str]]) -> None:
    assert errors(job_set(spec={"replicatedJobs": jobs})) == expected


def test_js11_two_pod_sets_of_one_group_are_valid() -> None:
    assert errors(job_set(spec={"replicatedJobs": [annotated("a", IN_GROUP), annotated("b", IN_GROUP, 3)]})) == []


@pytest.mark.parametrize(("jobs", "expected"), INVALID)
def test_js12_create_rules_apply_to_updates(jobs: list[Tree], expected: list[tuple[str, str]]) -> None:
    assert errors(job_set(spec={"replicatedJobs": jobs}), job_set()) == expected


def test_js12_queue_name_of_a_running_job_set_is_immutable() -> None:
    old = job_set(spec={"suspend": False})
    new = patches.merge(old, {"metadata": {"labels": {labels.QUEUE_NAME: "other"}}})
    assert errors(new, old) == [(f"metadata.labels[{labels.QUEUE_NAME}]", "INVALID")]


def test_elastic_job_set_is_refused() -> None:
    tree = job_set(metadata={"annotations": {labels.ELASTIC_JOB: "true"}})
    assert errors(tree) == [(f"metadata.annotations[{labels.ELASTIC_JOB}]", "FORBIDDEN")]


def test_job_set_for_multikueue_is_queued_with_a_warning() -> None:
    tree = job_set(spec={"managedBy": labels.MULTIKUEUE_CONTROLLER})
    (warning,) = admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, ALL_KINDS).warnings
    assert warning.startswith("spec.managedBy is kueue.x-k8s.io/multikueue")
    harness = JobHarness(tree, options=ALL_KINDS).settle()
    assert harness.events == ["CreatedWorkload", "Warning MultiKueueNotImplemented"]


def test_job_set_of_another_controller_is_queued_without_a_warning() -> None:
    tree = job_set(spec={"managedBy": "example.com/runner"})
    assert admission.validate_create(ROW, tree, JobAdmissionFacts(), KINDS, ALL_KINDS).warnings == ()
    assert JobHarness(tree, options=ALL_KINDS).settle().events == ["CreatedWorkload"]
