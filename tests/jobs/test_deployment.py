"""Deployments: the template makes each pod a job by itself; nothing else concerns the object."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.job_harness import KINDS, OPTIONS
from jobs.parent_harness import DEPLOYMENT, deployment_of
from kubemachinery import patches
from pykueue.api import labels
from pykueue.jobs import parent_reconcile
from pykueue.jobs.pod_parent import ParentFacts

INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"


def test_template_gets_the_mark_the_managed_label_the_queue_and_the_class() -> None:
    """[DP1]"""
    tree = deployment_of(metadata={"labels": {labels.PRIORITY_CLASS: "high"}})
    after = DEPLOYMENT.parent(tree).defaulted(OPTIONS)
    assert after["spec"]["template"]["metadata"] == {
        "labels": {"app": "web", labels.MANAGED: "true", labels.QUEUE_NAME: "lq", labels.PRIORITY_CLASS: "high"},
        "annotations": {labels.POD_SUSPENDING_PARENT: "deployment"},
    }
    assert DEPLOYMENT.parent(after).is_marked


def test_label_that_vanishes_from_the_object_stays_on_the_template() -> None:
    """[DP2]"""
    tree = DEPLOYMENT.parent(deployment_of(metadata={"labels": {labels.PRIORITY_CLASS: "high"}})).defaulted(OPTIONS)
    without = patches.merge(tree, {"metadata": {"labels": {labels.PRIORITY_CLASS: None}}})
    after = DEPLOYMENT.parent(without).defaulted(OPTIONS)
    assert after["spec"]["template"]["metadata"]["labels"][labels.PRIORITY_CLASS] == "high"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spec": {"replicas": 9}}, []),
        ({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, []),
        ({"metadata": {"labels": {labels.QUEUE_NAME: "b"}}}, [(f"metadata.labels[{labels.QUEUE_NAME}]", INVALID)]),
        ({"metadata": {"labels": {labels.QUEUE_NAME: None}}}, [(f"metadata.labels[{labels.QUEUE_NAME}]", INVALID)]),
        (
            {"metadata": {"labels": {labels.PRIORITY_CLASS: "b"}}},
            [(f"metadata.labels[{labels.PRIORITY_CLASS}]", INVALID)],
        ),
    ],
)
def test_update_of_a_deployment_with_ready_pods(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """[DP5] [DP6] E65 E66"""
    before = DEPLOYMENT.parent(deployment_of(status={"readyReplicas": 1}))
    after = DEPLOYMENT.parent(patches.merge(before.tree, change))
    found = after.validate_update(before, OPTIONS, managed=True)
    assert [(error.path, error.type.value) for error in found] == expected


def test_elastic_deployment_is_refused() -> None:
    """[DP4]"""
    tree = deployment_of(metadata={"annotations": {labels.ELASTIC_JOB: "true"}})
    found = [(error.path, error.type.value) for error in DEPLOYMENT.parent(tree).validate_create(OPTIONS)]
    assert found == [(f"metadata.annotations[{labels.ELASTIC_JOB}]", FORBIDDEN)]


def test_deployment_is_not_reconciled() -> None:
    """[DP3]"""
    tree = DEPLOYMENT.parent(deployment_of()).defaulted(OPTIONS)
    assert parent_reconcile.reconcile(DEPLOYMENT, ParentFacts(tree=tree, is_managed=True), OPTIONS, 0) == ()
    reconciled = [row.kind.kind for row in KINDS if row.parent_type is not None and row.parent_type.is_reconciled]
    assert reconciled == ["StatefulSet", "LeaderWorkerSet"]
