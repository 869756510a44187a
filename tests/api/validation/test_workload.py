"""Rules of Workload that no recorded case shows: containers, slices, elastic jobs, placement, gates."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api import effects
from pykueue.api.validation import ValidationGates, validate_create, validate_update, warnings

Tree = dict[str, Any]

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
LAYERS = "podsetSliceRequiredTopologyConstraints"
SINCE = "2025-01-01T00:00:00Z"
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "R", "message": "", "lastTransitionTime": SINCE}
ALL_OFF = ValidationGates(
    workload_validation_for_pod_set_metadata=False,
    workload_validate_resources_are_non_negative=False,
    tas_validate_workload_slice_size=False,
    admission_gated_by=False,
)


def pod_set(name: str = "main", count: int = 2, **parts: Any) -> Tree:
    return {"name": name, "count": count, "template": {"spec": {"containers": [{"name": "c"}]}}, **parts}


def workload(*pod_sets: Tree, annotations: Tree | None = None, **status: Any) -> Tree:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "annotations": annotations or {}},
        "spec": {"podSets": list(pod_sets) or [pod_set()]},
        "status": status,
    }


def assignment(name: str = "main", count: int = 2, **parts: Any) -> Tree:
    return {"name": name, "count": count, "resourceUsage": {"cpu": "2"}, **parts}


def reserved(
    *pod_sets: Tree, assignments: list[Tree] | None = None, annotations: Tree | None = None, **status: Any
) -> Tree:
    admission = {"clusterQueue": "q", "podSetAssignments": assignments or [assignment()]}
    return workload(*pod_sets, annotations=annotations, **{"conditions": [RESERVED], "admission": admission, **status})


def paths(errors: list[Any]) -> list[str]:
    return [error.path for error in errors]


# --- Pod sets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"containers": [{}, {"resources": {"requests": {"cpu": "-1"}}}]}, "containers[1].resources.requests[cpu]"),
        ({"initContainers": [{"resources": {"limits": {"cpu": "-1"}}}]}, "initContainers[0].resources.limits[cpu]"),
        ({"resources": {"requests": {"memory": "-1Gi"}}}, "resources.requests[memory]"),
    ],
)
def test_negative_requests_are_refused(spec: Tree, place: str) -> None:
    tree = workload(pod_set(template={"spec": spec}))
    assert paths(validate_create(tree)) == [f"spec.podSets[0].template.spec.{place}"]
    assert validate_create(tree, ALL_OFF) == []


def test_request_of_the_resource_pods_is_refused() -> None:
    tree = workload(pod_set(template={"spec": {"containers": [{"resources": {"requests": {"pods": "1"}}}]}}))
    expected = ["spec.podSets[0].template.spec.containers[0].resources.requests[pods]"]
    assert paths(validate_create(tree)) == expected
    assert paths(validate_create(tree, ALL_OFF)) == expected, "no gate lifts this rule"


def test_metadata_of_a_template_is_checked_unless_the_gate_is_off() -> None:
    tree = workload(pod_set(template={"metadata": {"labels": {"@k": "v"}}, "spec": {}}))
    assert paths(validate_create(tree)) == ["spec.podSets[0].template.metadata.labels"]
    assert validate_create(tree, ALL_OFF) == []


def test_an_elastic_workload_has_no_smaller_count() -> None:
    assert validate_create(workload(pod_set(minCount=1))) == []
    assert paths(validate_create(workload(pod_set(minCount=1), annotations=ELASTIC))) == ["spec.podSets"]
    off = ValidationGates(elastic_jobs_via_workload_slices=False)
    assert validate_create(workload(pod_set(minCount=1), annotations=ELASTIC), off) == []


@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, []),
        ({"podSetSliceRequiredTopology": "rack"}, ["podSetSliceSize"]),
        ({"podSetSliceSize": 2}, ["podSetSliceSize"]),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}, ["podSetSliceSize"]),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": -1}, ["podSetSliceSize"]),
        ({LAYERS: [{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]}, []),
        ({LAYERS: [{"topology": "rack", "size": 4}, {"topology": "host", "size": 0}]}, [f"{LAYERS}[1].size"]),
        ({"required": "rack"}, []),
    ],
)
def test_a_slice_has_a_topology_and_a_size_of_at_least_one(request_: Tree, refused: list[str]) -> None:
    tree = workload(pod_set(topologyRequest=request_))
    assert paths(validate_create(tree)) == [f"spec.podSets[0].topologyRequest.{place}" for place in refused]
    assert validate_create(tree, ALL_OFF) == []


# --- What a reservation freezes ---------------------------------------------------------------------------------------


def test_fewer_pods_than_were_granted_fit_unless_the_gate_is_off() -> None:
    old, new = reserved(pod_set(count=2)), reserved(pod_set(count=1))
    assert validate_update(new, old) == []
    assert paths(validate_update(new, old, ValidationGates(elastic_jobs_via_workload_slices=False))) == [
        "spec.podSets.0"
    ]


def test_a_quantity_spelt_another_way_is_no_change() -> None:
    one, same, other = (
        reserved(pod_set(template={"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}))
        for cpu in ("1", "1000m", "1001m")
    )
    assert validate_update(same, one) == []
    assert paths(validate_update(other, one)) == ["spec.podSets.0"]


def test_an_empty_list_is_as_good_as_none() -> None:
    one = reserved(pod_set(template={"spec": {"containers": [{"name": "c"}], "tolerations": []}}))
    assert validate_update(reserved(), one) == []


def test_zero_and_false_are_set_values() -> None:
    one = reserved(pod_set(template={"spec": {"containers": [{"name": "c"}], "hostNetwork": False}}))
    assert paths(validate_update(reserved(), one)) == ["spec.podSets.0"]


def test_another_number_of_pod_sets_is_a_change_of_the_list() -> None:
    new = reserved(pod_set("a"), pod_set("b"), assignments=[assignment("a"), assignment("b")])
    assert "spec.podSets" in paths(validate_update(new, reserved(pod_set("a"), assignments=[assignment("a")])))


def test_what_waits_may_change() -> None:
    assert validate_update(workload(pod_set(count=5)), workload(pod_set(count=2))) == []


# --- Admission --------------------------------------------------------------------------------------------------------


def test_a_reservation_without_an_admission_is_refused_unless_it_was_there_before() -> None:
    bare = workload(conditions=[RESERVED])
    assert paths(validate_create(bare)) == ["status.admission"]
    assert paths(validate_update(bare, workload())) == ["status.admission"]
    assert validate_update(bare, bare) == []


def test_an_assignment_is_for_a_pod_set_there_is() -> None:
    assert paths(validate_create(reserved(assignments=[assignment("other")]))) == [
        "status.admission.podSetAssignments[0].name"
    ]


@pytest.mark.parametrize(
    ("usage", "refused"),
    [
        ({"cpu": "2"}, False),
        ({"cpu": "1"}, False),  # 500m each
        ({"cpu": "1m"}, True),
        ({"memory": "3"}, True),
        ({"memory": "2Gi"}, False),
    ],
)
def test_usage_is_shared_evenly_by_the_pods(usage: Tree, refused: bool) -> None:
    (name,) = usage
    expected = [f"status.admission.podSetAssignments[0].resourceUsage[{name}]"] if refused else []
    assert paths(validate_create(reserved(assignments=[assignment(resourceUsage=usage)]))) == expected


def test_where_the_pods_go_may_be_found_out_later() -> None:
    old = reserved(assignments=[assignment(delayedTopologyRequest="Pending")])
    new = reserved(assignments=[assignment(delayedTopologyRequest="Ready", topologyAssignment={"levels": ["rack"]})])
    assert validate_update(new, old) == []
    assert paths(validate_update(new, old, ValidationGates(topology_aware_scheduling=False))) == ["status.admission"]


def test_an_admission_may_appear_and_vanish() -> None:
    assert validate_update(reserved(), workload()) == []
    assert validate_update(workload(), reserved()) == []


# --- Reclaimable pods -------------------------------------------------------------------------------------------------


def reclaimed(count: int) -> list[Tree]:
    return [{"name": "main", "count": count}]


def test_what_was_reclaimed_may_shrink_once_the_reservation_is_gone() -> None:
    assert validate_update(workload(reclaimablePods=reclaimed(1)), reserved(reclaimablePods=reclaimed(2))) == []


def test_reclaimable_pods_may_decrease_when_an_elastic_pod_set_shrank() -> None:
    old = reserved(pod_set(count=1), annotations=ELASTIC, reclaimablePods=reclaimed(1))
    assert validate_update(reserved(pod_set(count=1), annotations=ELASTIC), old) == []
    assert paths(validate_update(reserved(pod_set(count=1)), old)) == ["status.reclaimablePods[main]"]


def test_a_stale_figure_of_an_elastic_pod_set_may_stand_but_not_appear() -> None:
    stale = reserved(pod_set(count=1), annotations=ELASTIC, reclaimablePods=reclaimed(2))
    assert validate_update(stale, stale) == []
    assert paths(validate_create(stale)) == ["status.reclaimablePods[main].count"]


# --- Checks and clusters ----------------------------------------------------------------------------------------------


def checked(state: str, label: str) -> Tree:
    updates = [{"name": "main", "labels": {"k": label}}]
    return workload(admissionChecks=[{"name": "c", "state": state, "podSetUpdates": updates}])


@pytest.mark.parametrize(
    ("before", "after", "refused"), [("Ready", "Ready", True), ("Pending", "Ready", False), ("Ready", "Retry", False)]
)
def test_pod_set_updates_of_a_ready_check_are_immutable(before: str, after: str, refused: bool) -> None:
    expected = ["status.admissionChecks[0].podSetUpdates"] if refused else []
    assert paths(validate_update(checked(after, "b"), checked(before, "a"))) == expected
    assert validate_update(checked(after, "a"), checked(before, "a")) == []


@pytest.mark.parametrize(
    ("update", "place"),
    [
        ({"tolerations": [{"key": "@k", "operator": "Exists"}]}, "tolerations[0].key"),
        ({"annotations": {"@k": "v"}}, "annotations"),
        ({"labels": {"k": "a b"}}, "labels"),
        ({"nodeSelector": {"@k": "v"}}, "nodeSelector"),
    ],
)
def test_what_a_check_asks_for_its_pods_is_well_formed(update: Tree, place: str) -> None:
    tree = workload(admissionChecks=[{"name": "c", "state": "Pending", "podSetUpdates": [{"name": "main", **update}]}])
    assert paths(validate_create(tree)) == [f"status.admissionChecks[0].podSetUpdates[0].{place}"]


def test_the_slice_of_an_elastic_job_goes_where_the_old_one_runs() -> None:
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}
    assert validate_update(workload(annotations=replaces, clusterName="far"), workload()) == []
    assert paths(validate_update(workload(clusterName="far"), workload())) == ["status.clusterName"]
    assert validate_update(workload(clusterName="far"), workload(nominatedClusterNames=["far"])) == []


# --- Annotations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boost", "refused"), [("10", False), ("-3", False), ("0", False), ("", True), ("high", True), ("3000000000", True)]
)
def test_a_priority_boost_is_a_whole_number(boost: str, refused: bool) -> None:
    tree = workload(annotations={"kueue.x-k8s.io/priority-boost": boost})
    expected = ["metadata.annotations[kueue.x-k8s.io/priority-boost]"] if refused else []
    assert paths(validate_create(tree, ValidationGates(priority_boost=True))) == expected
    assert validate_create(tree) == [], "without the gate it is not read"


def gated(by: str) -> Tree:
    return workload(annotations={"kueue.x-k8s.io/admission-gated-by": by})


def test_gates_of_a_workload_are_the_gates_of_any_job() -> None:
    place = ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"]
    assert paths(validate_create(gated("nonsense"))) == place
    assert paths(validate_update(gated("a.io/y"), gated("a.io/x"))) == place
    assert validate_create(gated("nonsense"), ALL_OFF) == []
    assert validate_update(gated("a.io/y"), gated("a.io/x"), ALL_OFF) == []


def test_preemption_gates_without_a_feature_gate_are_warned_about_once() -> None:
    tree = workload()
    tree["spec"]["preemptionGates"] = [{"name": "g"}]
    message = "spec.preemptionGates has no effect while the gates"
    found = [*warnings(tree), *effects.warnings(tree, ())]
    assert [each.startswith(message) for each in found] == [True]
    assert [*effects.warnings(tree, ("ConcurrentAdmission",))] == []
    assert [*effects.warnings(tree, ("MultiKueueOrchestratedPreemption",))] == []
    assert [*effects.warnings(workload(), ())] == []
