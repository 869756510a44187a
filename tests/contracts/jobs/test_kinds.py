"""What every kind of job implements, asked of every implemented row of the table with one sample each.

A kind that is added brings a sample in `jobs/samples`; a row without one fails.
"""

from __future__ import annotations

from typing import Any

import pytest

from jobs.job_harness import KINDS, NOW, OPTIONS
from jobs.samples import SAMPLES
from kubemachinery import codec, patches, unstructured
from kubemachinery.object_view import ObjectView
from pykueue.api import kueue, labels
from pykueue.api.validation import validate
from pykueue.jobs import admission, podsets, related, workloads
from pykueue.jobs.actions import ReplaceObject
from pykueue.jobs.interface import GenericJob, Stop, StopReason
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.offline import OfflineContext
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

ROWS = [row for row in KINDS if row.implementation is not None and not row.is_pod_parent]


@pytest.fixture(params=ROWS, ids=lambda row: row.framework)
def row(request: pytest.FixtureRequest) -> JobIntegration:
    found: JobIntegration = request.param
    return found


@pytest.fixture
def job(row: JobIntegration) -> GenericJob:
    sample = SAMPLES[row.framework]
    return row.job(sample.job(), related.among(row, sample.job(), OfflineContext(related=sample.related).find))


def infos(job: GenericJob, **more: Any) -> tuple[PodSetInfo, ...]:
    """The PodSetInfo of the job's pods."""
    return tuple(
        PodSetInfo(name=pod_set["name"], count=pod_set["count"], node_selector={"pool": "blue"}, **more)
        for pod_set in job.pod_sets(OPTIONS)
    )


def test_every_row_has_a_sample(row: JobIntegration) -> None:
    tree = SAMPLES[row.framework].job()
    assert KINDS.of(ObjectView(tree)) is row


def test_defaulting_suspends_a_new_job_and_is_idempotent(job: GenericJob) -> None:
    once = job.with_tree(job.defaulted(OPTIONS))
    assert once.is_suspended()
    assert once.defaulted(OPTIONS) == once.tree


def test_asking_changes_nothing(job: GenericJob) -> None:
    before = codec.without_nulls(job.tree)
    job.pod_sets(OPTIONS), job.outcome(), job.is_active(), job.are_pods_ready(), job.reclaimable()
    job.start(infos(job), "note"), job.stop(Stop(StopReason.NOT_ADMITTED, "why", NOW, infos(job)))
    assert job.tree == before


def test_pod_sets_come_in_one_order_with_lower_case_names(job: GenericJob) -> None:
    first, second = job.pod_sets(OPTIONS), job.pod_sets(OPTIONS)
    assert first == second
    assert all(pod_set["name"] == pod_set["name"].lower() for pod_set in first)
    assert len({pod_set["name"] for pod_set in first}) == len(first)


def test_the_workload_of_a_job_is_one_that_a_server_accepts(job: GenericJob) -> None:
    tree = workloads.build(job, job.pod_sets(OPTIONS), workloads.Priority(0), OPTIONS)
    assert validate(tree) == []
    assert len(tree["spec"]["podSets"]) <= 18


def test_a_job_is_equivalent_to_the_workload_made_of_it(job: GenericJob) -> None:
    tree = workloads.build(job, job.pod_sets(OPTIONS), workloads.Priority(0), OPTIONS)
    workload = codec.from_tree(tree, kueue.Workload)
    assert workloads.is_owned(job, workload, OPTIONS)
    assert workloads.is_equivalent(job, workload, OPTIONS)


def test_started_job_is_resumed_with_its_pod_set_info(job: GenericJob) -> None:
    started = job.start(infos(job), "note")
    assert not isinstance(started, PodSetConflict)
    *_, write = [action for action in started if isinstance(action, ReplaceObject)]
    assert not job.with_tree(write.after).is_suspended()
    assert "blue" in str(write.after)


def test_a_job_refuses_a_number_of_pod_sets_that_is_not_its_own(job: GenericJob) -> None:
    assert isinstance(job.start((*infos(job), *infos(job)), "note"), PodSetConflict)


def test_contradicting_value_is_a_conflict(job: GenericJob) -> None:
    if SAMPLES[job.row.framework].operator_merges:
        pytest.skip("its operator merges the admission into the templates")
    if not SAMPLES[job.row.framework].has_templates:
        pytest.skip("its pod templates are not in the job")
    spots = [template.spot for template in job.templates()]
    tree = job.tree
    for spot in spots:
        template = podsets.at(tree, spot)
        tree = podsets.put_at(tree, spot, patches.merge(template, {"spec": {"nodeSelector": {"pool": "red"}}}))
    assert isinstance(job.with_tree(tree).start(infos(job), "note"), PodSetConflict)


def test_starting_and_restoring_are_opposites(job: GenericJob) -> None:
    started = job.started(infos(job))
    assert not isinstance(started, PodSetConflict)
    tree = workloads.build(job, job.pod_sets(OPTIONS), workloads.Priority(0), OPTIONS)
    original = podsets.original(codec.from_tree(tree, kueue.Workload))
    for template in job.templates():
        back = podsets.restored(podsets.at(started, template.spot), original[0])
        assert unstructured.get(back, "spec", "nodeSelector") is None


def test_variables_named_twice_count_once_with_the_last_value(job: GenericJob) -> None:
    if not SAMPLES[job.row.framework].has_variables:
        pytest.skip("its pod sets have no environment variables")
    twice = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    tree = job.tree
    for template in job.templates():
        found = podsets.at(tree, template.spot)
        container = {**found["spec"]["containers"][0], "env": twice}
        tree = podsets.put_at(tree, template.spot, patches.merge(found, {"spec": {"containers": [container]}}))
    for pod_set in job.with_tree(tree).pod_sets(OPTIONS):
        env = pod_set["template"]["spec"]["containers"][0]["env"]
        assert env == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


def test_topology_request_is_read_from_pod_annotations(job: GenericJob) -> None:
    if not SAMPLES[job.row.framework].has_templates:
        pytest.skip("its pod templates are not in the job")
    asked = {"metadata": {"annotations": {labels.PODSET_REQUIRED_TOPOLOGY: "rack"}}}
    tree = job.tree
    for template in job.templates():
        tree = podsets.put_at(tree, template.spot, patches.merge(podsets.at(tree, template.spot), asked))
    for pod_set in job.with_tree(tree).pod_sets(OPTIONS):
        assert pod_set["topologyRequest"]["required"] == "rack"


def test_a_queue_that_cannot_exist_is_refused(row: JobIntegration) -> None:
    tree = patches.merge(SAMPLES[row.framework].job(), {"metadata": {"labels": {labels.QUEUE_NAME: "No Name"}}})
    result = admission.validate_create(row, tree, admission.JobAdmissionFacts(), KINDS, OPTIONS)
    assert [error.path for error in result.errors] == [f"metadata.labels[{labels.QUEUE_NAME}]"]


def test_reporting_controller_is_named_after_the_framework(row: JobIntegration) -> None:
    assert row.controller == f"{row.framework}-kueue-controller"
