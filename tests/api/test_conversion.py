"""What changes between v1beta1 and v1beta2, kind by kind, and what a round trip keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykueue.api.conversion import DIFFERENCES, KEPT, convert, problem

OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def old(kind: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": OLD, "kind": kind, "metadata": {"name": "x"}, **parts}


def new(kind: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": NEW, "kind": kind, "metadata": {"name": "x"}, **parts}


# (what it shows, v1beta1, v1beta2): each side is what the other converts to.
BOTH_WAYS = [
    (
        "the proposals' own fields are in both versions",
        old("ClusterQueue", spec={"defaultLocalQueue": {"name": "q"}, "excludeResourcePrefixes": ["example.com"]}),
        new("ClusterQueue", spec={"defaultLocalQueue": {"name": "q"}, "excludeResourcePrefixes": ["example.com"]}),
    ),
    ("cohort is cohortName", old("ClusterQueue", spec={"cohort": "t"}), new("ClusterQueue", spec={"cohortName": "t"})),
    (
        "flavorUsage is flavorsUsage",
        old("LocalQueue", status={"flavorUsage": [{"name": "f"}], "fairSharing": {"weightedShare": 1}}),
        new("LocalQueue", status={"flavorsUsage": [{"name": "f"}], "fairSharing": {"weightedShare": 1}}),
    ),
    (
        "a workload priority class",
        old("Workload", spec={"priorityClassName": "a", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}),
        new(
            "Workload",
            spec={"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"}},
        ),
    ),
    (
        "a pod priority class",
        old("Workload", spec={"priorityClassName": "a", "priorityClassSource": "scheduling.k8s.io/priorityclass"}),
        new(
            "Workload", spec={"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "a"}}
        ),
    ),
    (
        "the misspelt sum of execution times",
        old("Workload", status={"accumulatedPastExexcutionTimeSeconds": 7}),
        new("Workload", status={"accumulatedPastExecutionTimeSeconds": 7}),
    ),
    (
        "a kubeconfig",
        old("MultiKueueCluster", spec={"kubeConfig": {"location": "s", "locationType": "Secret"}}),
        new("MultiKueueCluster", spec={"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}}),
    ),
    (
        "a cluster profile, beside the kubeconfig that v1beta1 demands",
        old(
            "MultiKueueCluster",
            spec={"kubeConfig": {"location": "", "locationType": "Secret"}, "clusterProfileRef": {"name": "p"}},
        ),
        new("MultiKueueCluster", spec={"clusterSource": {"clusterProfileRef": {"name": "p"}}}),
    ),
    (
        "the fields of a check",
        old("AdmissionCheck", spec={"controllerName": "c", "retryDelayMinutes": 3, "preemptionPolicy": "Anytime"}),
        new("AdmissionCheck", spec={"controllerName": "c", "retryDelayMinutes": 3, "preemptionPolicy": "Anytime"}),
    ),
    (
        "an unknown field",
        old("Cohort", spec={"parentName": "p", "colour": "blue"}, extra=[1]),
        new("Cohort", spec={"parentName": "p", "colour": "blue"}, extra=[1]),
    ),
]


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in BOTH_WAYS], ids=[row[0] for row in BOTH_WAYS])
def test_both_ways(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert convert(before, NEW) == after
    assert convert(after, OLD) == before


UPWARDS_ONLY = [
    (
        "a list of checks becomes a strategy, and wins over one",
        old(
            "ClusterQueue",
            spec={
                "admissionChecks": ["c1", "c2"],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "c3"}]},
            },
        ),
        new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "c1"}, {"name": "c2"}]}}),
    ),
    (
        "an empty list of checks leaves the strategy alone",
        old(
            "ClusterQueue",
            spec={"admissionChecks": [], "admissionChecksStrategy": {"admissionChecks": [{"name": "c3"}]}},
        ),
        new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "c3"}]}}),
    ),
    (
        "both retired words of fungibility are MayStopSearch",
        old("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
        new(
            "ClusterQueue",
            spec={"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
        ),
    ),
    (
        "status that v1beta2 retired is gone",
        old(
            "ClusterQueue",
            status={
                "pendingWorkloadsStatus": {"lastChangeTime": "2025-01-01T00:00:00Z"},
                "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}},
            },
        ),
        new("ClusterQueue", status={"fairSharing": {"weightedShare": 1}}),
    ),
    (
        "flavors of a LocalQueue's status are gone",
        old("LocalQueue", status={"flavors": [{"name": "f"}], "pendingWorkloads": 1}),
        new("LocalQueue", status={"pendingWorkloads": 1}),
    ),
    (
        "a priority class without a source is gone",
        old("Workload", spec={"priority": 5, "priorityClassName": "bare", "priorityClassSource": ""}),
        new("Workload", spec={"priority": 5}),
    ),
    (
        "words of v1beta2 are not words of v1beta1",
        old("ClusterQueue", spec={"cohortName": "team", "concurrentAdmissionPolicy": {}, "stopPolicy": "Hold"}),
        new("ClusterQueue", spec={"stopPolicy": "Hold"}),
    ),
    (
        "a reference to a class is no word of v1beta1",
        old("Workload", spec={"priorityClassRef": {"name": "x"}, "active": True}),
        new("Workload", spec={"active": True}),
    ),
    (
        "an empty kubeconfig is none",
        old("MultiKueueCluster", spec={"kubeConfig": {"location": "", "locationType": "Path"}}),
        new("MultiKueueCluster", spec={"clusterSource": {}}),
    ),
]


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in UPWARDS_ONLY], ids=[row[0] for row in UPWARDS_ONLY])
def test_upwards(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert convert(before, NEW) == after


@pytest.mark.parametrize(("write", "to"), [(old, NEW), (new, OLD)])
def test_pods_come_with_metadata_and_resources_written_out(write: Any, to: str) -> None:
    pods = {"template": {"spec": {"containers": [{"name": "c"}], "initContainers": [{"resources": {"limits": {}}}]}}}
    template = convert(write("Workload", spec={"podSets": [pods]}), to)["spec"]["podSets"][0]["template"]
    assert template["metadata"] == {}
    assert template["spec"]["containers"] == [{"name": "c", "resources": {}}]
    assert template["spec"]["initContainers"] == [{"resources": {"limits": {}}}]


def test_fields_of_v1beta1_are_dropped_from_v1beta2() -> None:
    tree = new("ClusterQueue", spec={"cohort": "team", "admissionChecks": ["c"], "stopPolicy": "Hold"})
    assert convert(tree, OLD) == old("ClusterQueue", spec={"stopPolicy": "Hold"})


def test_topology_assignments_change_their_form_and_nothing_else() -> None:
    levels = ["block", "rack"]
    domains = [{"values": ["b1", "r1"], "count": 2}, {"values": ["b1", "r2"], "count": 2}]
    assigned = {"name": "main", "count": 4, "topologyAssignment": {"levels": levels, "domains": domains, "note": "n"}}
    tree = old("Workload", status={"admission": {"clusterQueue": "q", "podSetAssignments": [assigned, {"name": "b"}]}})
    converted = convert(tree, NEW)
    first, second = converted["status"]["admission"]["podSetAssignments"]
    assert first["topologyAssignment"] == {
        "levels": levels,
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
                "podCounts": {"universal": 2},
            }
        ],
        "note": "n",
    }
    assert second == {"name": "b"}
    assert convert(converted, OLD) == tree


# (the path of a field of v1beta2 that v1beta1 cannot express)
NEWER = [
    # What cannot be put into the older words at all is kept as it is.
    new("Workload", spec={"priorityClassRef": {"group": "example.com", "kind": "Class", "name": "c"}}),
    new("MultiKueueCluster", spec={"clusterSource": {"clusterProfileRef": {"name": "p"}, "later": 1}}),
    new("ClusterQueue", spec={"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}}),
    new("MultiKueueConfig", spec={"clusters": ["w"], "quotaManagement": "Automated"}),
    new("Workload", spec={"preemptionGates": [{"name": "g"}]}, status={"preemptionGates": [{"name": "g"}]}),
    new(
        "Workload",
        spec={
            "podSets": [
                {"name": "a", "topologyRequest": {"podsetSliceRequiredTopologyConstraints": [{"size": 1}]}},
                {"name": "b"},
            ]
        },
    ),
]


@pytest.mark.parametrize("tree", NEWER, ids=lambda tree: f"{tree['kind']}: {', '.join(tree['spec'])}")
def test_fields_missing_in_v1beta1_survive_a_v1beta1_client(tree: dict[str, Any]) -> None:
    shown = convert(tree, OLD)
    assert KEPT in shown["metadata"]["annotations"]
    shown["metadata"]["labels"] = {"touched": "yes"}
    back = convert(shown, NEW)
    assert back["metadata"] == {"name": "x", "labels": {"touched": "yes"}}
    assert {**back, "metadata": tree["metadata"]} == tree


def test_a_client_of_v1beta1_sees_no_field_of_v1beta2() -> None:
    shown = convert(new("Workload", spec={"queueName": "q", "preemptionGates": [{"name": "g"}]}), OLD)
    assert shown["spec"] == {"queueName": "q"}
    assert json.loads(shown["metadata"]["annotations"][KEPT]) == {"spec": {"preemptionGates": [{"name": "g"}]}}
    request = {"required": "rack", "podsetSliceRequiredTopologyConstraints": [{"size": 1}]}
    shown = convert(new("Workload", spec={"podSets": [{"name": "a", "topologyRequest": request}]}), OLD)
    assert shown["spec"] == {"podSets": [{"name": "a", "topologyRequest": {"required": "rack"}}]}


def test_other_annotations_stay_beside_the_one_of_ours() -> None:
    tree = new("MultiKueueConfig", spec={"quotaManagement": "Manual"})
    tree["metadata"] = {"name": "x", "annotations": {"note": "n"}}
    shown = convert(tree, OLD)
    assert set(shown["metadata"]["annotations"]) == {"note", KEPT}
    assert convert(shown, NEW) == tree


def test_a_client_that_removes_the_annotation_removes_what_it_kept() -> None:
    shown = convert(new("MultiKueueConfig", spec={"quotaManagement": "Manual"}), OLD)
    del shown["metadata"]["annotations"]
    assert convert(shown, NEW)["spec"] == {}


def test_what_was_kept_for_a_pod_set_goes_with_the_pod_set() -> None:
    constrained = {"name": "a", "topologyRequest": {"podsetSliceRequiredTopologyConstraints": [{"size": 1}]}}
    shown = convert(new("Workload", spec={"podSets": [constrained]}), OLD)
    shown["spec"]["podSets"] = [{"name": "b", "topologyRequest": {}}, {"name": "a"}]
    assert convert(shown, NEW)["spec"]["podSets"] == [{"name": "b", "topologyRequest": {}}, {"name": "a"}]


@pytest.mark.parametrize("written", ["", "{", "[1]", '"text"', '{"spec": 3}', 7])
def test_invalid_annotation_restores_nothing_and_is_not_stored(written: object) -> None:
    tree = old("ClusterQueue", spec={"stopPolicy": "Hold"})
    tree["metadata"] = {"name": "x", "annotations": {KEPT: written}}
    assert convert(tree, NEW) == new("ClusterQueue", spec={"stopPolicy": "Hold"})


@pytest.mark.parametrize("kind", sorted(DIFFERENCES))
def test_every_kind_is_had_in_both_versions(kind: str) -> None:
    assert convert(old(kind), "v1beta2") == new(kind)
    assert convert(new(kind), "v1beta1") == old(kind)
    assert convert(new(kind), "v1beta2") == new(kind)


def test_a_tree_is_never_changed_under_its_owner() -> None:
    tree = new("ClusterQueue", spec={"cohortName": "t", "concurrentAdmissionPolicy": {}})
    before = json.dumps(tree)
    convert(tree, OLD)
    assert json.dumps(tree) == before


@pytest.mark.parametrize(
    ("tree", "to", "message"),
    [
        (new("ClusterQueue"), "v1beta9", "cannot be had in 'v1beta9'"),
        (new("Queue"), OLD, "kind 'Queue' is not a kind of kueue.x-k8s.io"),
        ({**new("Cohort"), "apiVersion": "kueue.x-k8s.io/v1"}, OLD, "has the apiVersion 'kueue.x-k8s.io/v1'"),
        ({}, OLD, "kind None"),
    ],
)
def test_unconvertible_object_is_reported_and_unchanged(tree: dict[str, Any], to: str, message: str) -> None:
    assert message in (problem(tree, to) or "")
    assert convert(tree, to) == tree
