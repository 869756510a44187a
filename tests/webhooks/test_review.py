"""What becomes of one write: pure answers to a request and its facts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pykueue.api import defaults
from pykueue.features import GATES
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import Ancestry
from pykueue.webhooks import canonical_quantities
from pykueue.webhooks.review import (
    ALLOWED,
    NO_FACTS,
    AdmissionFacts,
    AdmissionRequest,
    AdmissionResponse,
    Phase,
    WebhookOptions,
    review,
)
from webhooks.conftest import GROUP, choices, cluster_queue, job

Tree = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"


def asked(
    phase: Phase,
    tree: Tree,
    old: Tree | None = None,
    facts: AdmissionFacts = NO_FACTS,
    chosen: WebhookOptions | None = None,
) -> AdmissionResponse:
    operation = "CREATE" if old is None else "UPDATE"
    request = AdmissionRequest(phase=phase, operation=operation, object=tree, old=old, namespace="default")
    return review(request, facts, chosen or choices())


def test_a_new_cluster_queue_gets_the_finalizer_that_keeps_it_while_it_is_used() -> None:
    made = asked(Phase.MUTATE, cluster_queue()).object
    assert made is not None
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]


def test_undecodable_object_is_refused_with_400_before_validation() -> None:
    refusal = asked(Phase.MUTATE, cluster_queue(quota="ten")).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert "nominalQuota" in refusal.message


def test_null_in_a_list_becomes_an_empty_object() -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "x"}}
    made = asked(Phase.MUTATE, {**flavor, "spec": {"tolerations": [None]}}).object
    assert made is not None
    assert made["spec"] == {"tolerations": [{}]}


def test_a_rule_that_is_broken_is_a_403_with_every_field() -> None:
    tree = cluster_queue(quota="-1", fairSharing={"weight": "-1"})
    refusal = asked(Phase.VALIDATE, tree).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (403, "Forbidden")
    assert {cause["field"] for cause in refusal.causes} == {
        "spec.fairSharing",
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
    }
    assert refusal.message.startswith("[")
    assert all(cause["field"] in refusal.message for cause in refusal.causes)


def test_an_update_is_held_against_the_object_before() -> None:
    old = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": [{"name": "a"}]}}
    reserved = {**old, "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}}
    other = {**reserved, "spec": {"podSets": [{"name": "b"}]}}
    assert asked(Phase.VALIDATE, other, reserved).refusal is not None
    assert asked(Phase.VALIDATE, other, old).refusal is not None  # still: the new one has no admission
    assert asked(Phase.VALIDATE, {**other, "status": {}}, old).refusal is None


def test_names_of_default_local_queues_are_compared_only_while_the_gate_is_on() -> None:
    tree = cluster_queue("one", defaultLocalQueue={"name": "default"})
    facts = AdmissionFacts(cluster_queues=(cluster_queue("two", defaultLocalQueue={"name": "default"}),))
    off = asked(Phase.VALIDATE, tree, facts=facts, chosen=replace(choices(), default_local_queue=False))
    on = asked(Phase.VALIDATE, tree, facts=facts, chosen=replace(choices(), default_local_queue=True))
    assert off.refusal is None
    assert on.refusal is not None
    assert on.refusal.causes[0]["field"] == "spec.defaultLocalQueue.name"


def test_warning_does_not_refuse() -> None:
    excluding = choices(featureGates={"ClusterQueueExcludeResourcePrefixes": True})
    tree = cluster_queue(excludeResourcePrefixes=["example.com"])
    response = asked(Phase.VALIDATE, tree, chosen=replace(excluding, only_declared=True))
    assert response.refusal is None
    assert len(response.warnings) == 1


def test_a_job_that_names_a_queue_is_suspended() -> None:
    made = asked(Phase.MUTATE, job(**{QUEUE: "lq"})).object
    assert made is not None
    assert made["spec"]["suspend"] is True


def test_a_new_job_whose_owner_does_not_exist_is_refused_with_the_reason() -> None:
    """[JF21] As in Kueue. No Workload would ever be created for it."""
    lost = AdmissionFacts(job=JobAdmissionFacts(ancestry=Ancestry((), "has the owner JobSet s, which does not exist")))
    refusal = asked(Phase.MUTATE, job(**{QUEUE: "lq"}), facts=lost).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == (403, "the Job has the owner JobSet s, which does not exist")
    stored = job(**{QUEUE: "lq"})
    assert asked(Phase.MUTATE, stored, stored, facts=lost).refusal is None


def test_a_job_without_a_queue_is_left_alone() -> None:
    assert asked(Phase.MUTATE, job()) == ALLOWED


def test_a_job_without_a_queue_gets_the_default_one_where_there_is_one() -> None:
    there = AdmissionFacts(job=JobAdmissionFacts(default_queue=True))
    made = asked(Phase.MUTATE, job(), facts=there).object
    assert made is not None
    assert made["metadata"]["labels"][QUEUE] == "default"


def test_job_of_a_disabled_integration_is_not_changed() -> None:
    only_pods = choices(integrations={"frameworks": ["pod"]})
    response = asked(Phase.MUTATE, job(**{QUEUE: "lq"}), chosen=only_pods)
    assert response == ALLOWED


def test_a_bad_queue_name_is_refused_with_its_place() -> None:
    refusal = asked(Phase.VALIDATE, job(**{QUEUE: "Not_A_Name"})).refusal
    assert refusal is not None
    assert refusal.code == 403
    assert refusal.causes[0]["field"] == f"metadata.labels[{QUEUE}]"


def test_deletions_are_not_reviewed() -> None:
    request = AdmissionRequest(phase=Phase.VALIDATE, operation="DELETE", object={}, old=cluster_queue(quota="-1"))
    assert review(request, NO_FACTS, choices()) == ALLOWED


@pytest.mark.parametrize("tree", [{}, {"kind": 5}, {"apiVersion": GROUP, "kind": "ClusterQueue", "spec": "?"}])
def test_any_json_gets_an_answer(tree: Tree) -> None:
    for phase in Phase:
        assert isinstance(asked(phase, tree), AdmissionResponse)


@pytest.mark.parametrize(
    ("written", "stored"), [("5000m", "5"), (1, "1"), ("1024Mi", "1Gi"), ("5", "5"), ("ten", "ten"), (True, True)]
)
def test_quantities_are_stored_as_the_api_writes_them(written: object, stored: object) -> None:
    tree = canonical_quantities.canonical(cluster_queue(quota=written))
    assert tree["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == stored


def test_quantities_that_are_well_spelt_cost_no_change() -> None:
    tree = cluster_queue()
    assert canonical_quantities.canonical(tree) is tree


@pytest.mark.parametrize(
    ("spec", "gate"),
    [
        ({"excludeResourcePrefixes": ["example.com/"]}, "ClusterQueueExcludeResourcePrefixes"),
        ({"defaultLocalQueue": {"name": "own"}}, "DefaultLocalQueue"),
        ({"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}}, "ConcurrentAdmission"),
    ],
)
def test_a_field_whose_gate_is_off_gives_a_warning(spec: Tree, gate: str) -> None:
    response = asked(Phase.VALIDATE, cluster_queue(**spec))
    assert response.refusal is None
    (name,) = spec
    assert response.warnings == (f"spec.{name} has no effect while the gate {gate} is off",)
    if GATES[gate].implemented:
        assert asked(Phase.VALIDATE, cluster_queue(**spec), chosen=choices(featureGates={gate: True})).warnings == ()


def test_a_queue_with_defaults_only_gives_no_warning_whatever_gates_are_off() -> None:
    tree = defaults.apply(cluster_queue())
    off = {name: False for name, gate in GATES.items() if not gate.locked}
    assert asked(Phase.VALIDATE, tree, chosen=choices(featureGates=off)).warnings == ()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("AdmissionCheck", {"controllerName": "kueue.x-k8s.io/multikueue"}),
        ("MultiKueueConfig", {"clusters": ["east"]}),
        ("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}}),
    ],
)
def test_objects_of_multikueue_give_a_warning_and_are_accepted(kind: str, spec: Tree) -> None:
    tree = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "mk"}, "spec": spec}
    response = asked(Phase.VALIDATE, tree)
    assert response.refusal is None
    (warning,) = response.warnings
    assert "MultiKueue is not implemented in this version" in warning
