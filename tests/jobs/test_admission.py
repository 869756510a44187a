"""The one webhook: what a new job gets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import JOB, KINDS, OPTIONS, POD, batch_job, pod
from jobs.test_selection import ALL, ALONE, IN, OUT, RESPECTED, thing
from kubemachinery import patches
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView

PLAIN: dict[str, Any] = {"metadata": {"labels": {labels.QUEUE_NAME: None}}, "spec": {"suspend": None}}
RAW_POD: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "main"}, "spec": {}}
MANAGED_PARENT = Ancestry((ObjectView(thing("Job", "parent", queue="q")),))
DEFAULT_QUEUE = JobAdmissionFacts(default_queue=True)


def new_job(facts: JobAdmissionFacts | None = None, options: IntegrationOptions = OPTIONS, **fields: Any) -> Tree:
    tree = patches.merge(batch_job(spec={"suspend": None}), fields)
    return admission.default(JOB, tree, facts or JobAdmissionFacts(), KINDS, options)


def new_pod(
    facts: JobAdmissionFacts | None = None, options: IntegrationOptions = OPTIONS, queue: str = "", **metadata: Any
) -> Tree:
    tree = patches.merge(RAW_POD, {"metadata": metadata | ({"labels": {labels.QUEUE_NAME: queue}} if queue else {})})
    return admission.default(POD, tree, facts or JobAdmissionFacts(), KINDS, options)


def is_suspended(tree: Tree) -> bool:
    return tree["spec"].get("suspend") is True


# --- Holding back -----------------------------------------------------------------------------------------------------


def test_a_job_with_a_queue_is_suspended_and_one_without_is_not() -> None:
    assert is_suspended(new_job())
    assert not is_suspended(new_job(**PLAIN))


def test_a_pod_with_a_queue_is_gated_and_one_without_is_not() -> None:
    assert PodView(new_pod(queue="lq")).has_gate()
    assert new_pod() == RAW_POD


@pytest.mark.parametrize(
    ("options", "namespace", "queue", "job_held", "pod_held"),
    [
        (ALL, IN, "", True, True),
        (ALL, OUT, "", False, False),
        (ALL, OUT, "lq", True, True),
        (ALONE, IN, "", False, False),
        (ALONE, OUT, "lq", True, True),
        # As recorded in config/all-jobs-managed-elsewhere and config/all-pods-managed.
        (RESPECTED, OUT, "lq", True, False),
        (RESPECTED, OUT, "", False, False),
    ],
)
def test_where_jobs_and_pods_are_held(
    options: IntegrationOptions, namespace: dict[str, str], queue: str, job_held: bool, pod_held: bool
) -> None:
    """kep-3589/jobs, kep-3589/pods, kep-3589/selector-alone"""
    facts = JobAdmissionFacts(namespace=namespace)
    job = new_job(facts, options, metadata={"labels": {labels.QUEUE_NAME: queue or None}})
    assert is_suspended(job) is job_held
    assert PodView(new_pod(facts, options, queue)).has_gate() is pod_held


def test_child_of_a_managed_job_is_not_held() -> None:
    """kep-3589/children"""
    facts = JobAdmissionFacts(namespace=IN, ancestry=MANAGED_PARENT)
    assert not is_suspended(new_job(facts, ALL, **PLAIN))
    assert not is_suspended(new_job(facts, ALL))
    assert not PodView(new_pod(facts, ALL)).has_gate()


def test_a_job_that_is_being_deleted_is_left_as_it_is() -> None:
    assert not is_suspended(new_job(metadata={"deletionTimestamp": "2026-11-15T12:00:00Z"}))


def test_an_elastic_job_gates_its_pods() -> None:
    tree = new_job(metadata={"annotations": {labels.ELASTIC_JOB: "true"}})
    assert tree["spec"]["template"]["spec"]["schedulingGates"] == [{"name": labels.ELASTIC_JOB_GATE}]


def test_without_topologies_pods_have_one_gate() -> None:
    """config/no-topology-gate"""
    tree = new_pod(options=replace(OPTIONS, topology=False), queue="lq")
    assert tree["spec"]["schedulingGates"] == [{"name": labels.ADMISSION_GATE}]


def test_the_index_of_a_pod_is_copied_from_the_label_that_it_names() -> None:
    metadata = {"annotations": {labels.POD_GROUP_POD_INDEX_LABEL: "rank"}, "labels": {"rank": "3"}}
    tree = pod("a", metadata=metadata)
    assert tree["metadata"]["labels"][labels.POD_GROUP_POD_INDEX] == "3"


# --- Defaults ---------------------------------------------------------------------------------------------------------


def test_jobs_without_queue_name_get_the_default_queue() -> None:
    """config/default-localqueue-job, config/default-localqueue-pod"""
    job = new_job(DEFAULT_QUEUE, **PLAIN)
    assert job["metadata"]["labels"][labels.QUEUE_NAME] == "default"
    assert is_suspended(job)
    assert new_pod(DEFAULT_QUEUE)["metadata"]["labels"][labels.QUEUE_NAME] == "default"


def test_the_default_queue_is_for_selected_namespaces() -> None:
    facts = JobAdmissionFacts(namespace=OUT, default_queue=True)
    assert labels.QUEUE_NAME not in new_job(facts, ALONE, **PLAIN)["metadata"].get("labels", {})


def test_children_do_not_get_the_default_queue() -> None:
    """config/default-localqueue-child"""
    parent = thing("Job", "parent")
    child = thing("Job", "child", parent)
    facts = JobAdmissionFacts(ancestry=Ancestry((ObjectView(parent),)), default_queue=True, default_priority_class=True)
    references = child["metadata"]["ownerReferences"]
    tree = new_job(facts, metadata={"labels": {labels.QUEUE_NAME: None}, "ownerReferences": references})
    assert not tree["metadata"].get("labels")


def test_where_there_is_a_default_class_jobs_get_it() -> None:
    """config/default-priority-class"""
    facts = JobAdmissionFacts(default_priority_class=True)
    assert new_job(facts)["metadata"]["labels"][labels.PRIORITY_CLASS] == "default"
    chosen = new_job(facts, metadata={"labels": {labels.PRIORITY_CLASS: "high"}})
    assert chosen["metadata"]["labels"][labels.PRIORITY_CLASS] == "high"
    off = new_job(facts, replace(OPTIONS, default_priority_class=False))
    assert labels.PRIORITY_CLASS not in off["metadata"]["labels"]


# --- What is refused --------------------------------------------------------------------------------------------------

QUEUE = f"metadata.labels[{labels.QUEUE_NAME}]"
CLASS = f"metadata.labels[{labels.PRIORITY_CLASS}]"
LIMIT = f"metadata.labels[{labels.MAX_EXEC_TIME_SECONDS}]"


def refused(new: Tree, old: Tree | None = None, facts: JobAdmissionFacts | None = None) -> list[str]:
    facts = facts or JobAdmissionFacts()
    if old is None:
        result = admission.validate_create(JOB, new, facts, KINDS, OPTIONS)
    else:
        result = admission.validate_update(JOB, new, old, facts, KINDS, OPTIONS)
    return [error.path for error in result.errors]


def marked(suspend: bool = True, **marks: str | None) -> Tree:
    keys = {"queue": labels.QUEUE_NAME, "priority": labels.PRIORITY_CLASS, "limit": labels.MAX_EXEC_TIME_SECONDS}
    return batch_job(metadata={"labels": {keys[key]: value for key, value in marks.items()}}, spec={"suspend": suspend})


def test_a_new_job_names_a_queue_that_can_exist_and_a_limit_that_can_pass() -> None:
    assert refused(marked()) == []
    assert refused(marked(queue="No Name", limit="0")) == [QUEUE, LIMIT]


def test_the_queue_of_a_running_job_stays() -> None:
    assert refused(marked(False, queue="b"), marked(False, queue="a")) == [QUEUE]
    assert refused(marked(True, queue="b"), marked(True, queue="a")) == []


def test_the_queue_cannot_be_left_where_there_is_a_default() -> None:
    assert refused(marked(queue=None), marked(), DEFAULT_QUEUE) == [QUEUE]
    assert refused(marked(queue=None), marked()) == []


def test_priority_class_of_a_running_job_may_change_but_not_be_added_or_removed() -> None:
    assert refused(marked(False, priority="b"), marked(False, priority="a")) == []
    assert refused(marked(True), marked(True, priority="a")) == [CLASS]
    assert refused(marked(False, priority="a"), marked(False)) == [CLASS]


def test_the_limit_of_a_job_that_runs_or_is_started_stays() -> None:
    assert refused(marked(False, limit="2"), marked(False, limit="1")) == [LIMIT]
    assert refused(marked(True, limit="2"), marked(True, limit="1")) == []


def test_pods_cannot_be_elastic() -> None:
    tree = patches.merge(RAW_POD, {"metadata": {"annotations": {labels.ELASTIC_JOB: "true"}}})
    result = admission.validate_create(POD, tree, JobAdmissionFacts(), KINDS, OPTIONS)
    assert [error.path for error in result.errors] == [f"metadata.annotations[{labels.ELASTIC_JOB}]"]


def test_managed_label_on_a_pod_of_a_managed_owner_is_warned_about() -> None:
    tree = thing("Pod", "p", thing("Job", "parent"))
    tree["metadata"]["labels"] = {labels.MANAGED: "true"}
    tree["spec"] = {}
    assert admission.validate_create(POD, tree, JobAdmissionFacts(), KINDS, OPTIONS).warnings
    assert not admission.validate_create(POD, RAW_POD, JobAdmissionFacts(), KINDS, OPTIONS).warnings


@pytest.mark.parametrize(
    "tree", [{}, {"metadata": None, "spec": []}, {"metadata": {"labels": 3}, "spec": {"suspend": "x"}}]
)
@pytest.mark.parametrize("row", [JOB, POD], ids=["job", "pod"])
def test_whatever_is_sent_gets_an_answer(row: Any, tree: Tree) -> None:
    facts = JobAdmissionFacts(default_queue=True, default_priority_class=True)
    admission.default(row, tree, facts, KINDS, ALL)
    admission.validate_create(row, tree, facts, KINDS, OPTIONS)
    admission.validate_update(row, tree, {}, facts, KINDS, OPTIONS)
