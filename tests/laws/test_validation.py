"""Defaulting and validation for any JSON: they answer, they do not raise, and defaults are filled in once."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubemachinery.field_errors import FieldError
from laws.json_trees import json_objects, json_values, replaced, routes
from pykueue.api import conversion, defaults, validation
from pykueue.api.conversion import DIFFERENCES, GROUP, HUB, OLD
from pykueue.api.validation import ValidationGates, admission_gates, job_metadata, topology_annotations

Tree = dict[str, Any]

TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]},
}
NOTES = {
    "kueue.x-k8s.io/admission-gated-by": "a.io/b,c.io/d",
    "kueue.x-k8s.io/elastic-job": "true",
    "kueue.x-k8s.io/priority-boost": "3",
    "kueue.x-k8s.io/podset-group-name": "g",
    "kueue.x-k8s.io/podset-required-topology": "rack",
    "kueue.x-k8s.io/podset-slice-size": "2",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": '[{"topology": "rack", "size": 4}]',
}
SINCE = "2025-01-01T00:00:00Z"
QUOTA = {"name": "cpu", "nominalQuota": "5", "borrowingLimit": "1", "lendingLimit": 2}
GROUPS = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [QUOTA]}]}]

# One object of each kind that has rules, with everything in it that a rule looks at.
SOUND: tuple[Tree, ...] = (
    {
        "kind": "ClusterQueue",
        "spec": {
            "cohortName": "team",
            "resourceGroups": GROUPS,
            "namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
            "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"},
            "fairSharing": {"weight": "2"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]},
            "concurrentAdmissionPolicy": {
                "migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "f"}}
            },
            "defaultLocalQueue": {"name": "q"},
            "excludeResourcePrefixes": ["cpu"],
        },
    },
    {"kind": "Cohort", "spec": {"parentName": "p", "resourceGroups": GROUPS, "fairSharing": {"weight": "2"}}},
    {
        "kind": "ResourceFlavor",
        "spec": {
            "nodeLabels": {"a": "b"},
            "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    },
    {
        "kind": "Workload",
        "spec": {
            "podSets": [
                {
                    "name": "main",
                    "count": 2,
                    "minCount": 1,
                    "template": TEMPLATE,
                    "topologyRequest": {
                        "podSetSliceRequiredTopology": "rack",
                        "podSetSliceSize": 1,
                        "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 1}],
                    },
                }
            ]
        },
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "R", "message": "", "lastTransitionTime": SINCE}
            ],
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}],
            },
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [
                {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}
            ],
            "clusterName": "far",
            "nominatedClusterNames": ["far"],
        },
    },
)
ALL_ON = ValidationGates(concurrent_admission=True, priority_boost=True, cluster_queue_exclude_resource_prefixes=True)


@st.composite
def corrupted(draw: st.DrawFn) -> Tree:
    sound = draw(st.sampled_from(SOUND))
    tree = {
        "apiVersion": f"{GROUP}/{draw(st.sampled_from([HUB, OLD]))}",
        "metadata": {"name": "x", "annotations": NOTES},
    }
    body = replaced({**tree, **sound}, draw(routes), draw(json_values))
    return body if isinstance(body, dict) else {**tree, **sound, "spec": body}


def answers(errors: list[FieldError]) -> bool:
    return all(isinstance(error, FieldError) for error in errors)


@settings(max_examples=300)
@given(corrupted(), corrupted(), st.sampled_from([ValidationGates(), ALL_ON]))
def test_validation_answers_whatever_comes(new: Tree, old: Tree, gates: ValidationGates) -> None:
    before = copy.deepcopy(new)
    assert isinstance(validation.unreadable(new), str | None)
    assert answers(validation.validate_create(new, gates))
    assert answers(validation.validate_update(new, {**old, "kind": new.get("kind")}, gates))
    assert answers(validation.validate(new, None, gates))
    assert answers(validation.validate(new, old, gates))
    assert answers(validation.default_local_queue_conflicts(new, [old], [old], [new]))
    assert all(isinstance(warning, str) for warning in validation.warnings(new, gates))
    assert new == before, "validation changes no object"


@given(corrupted(), corrupted(), st.booleans())
def test_rules_of_jobs_answer_whatever_comes(new: Tree, old: Tree, flag: bool) -> None:
    assert answers(list(job_metadata.validate_create(new, ALL_ON, takes_prebuilt=flag, takes_elastic=flag)))
    update = job_metadata.validate_update(
        new, old, ALL_ON, suspended=flag, was_suspended=flag, takes_prebuilt=flag, default_queue_exists=flag
    )
    assert answers(list(update))
    assert answers(list(admission_gates.validate_update(new, old)))
    assert answers(list(topology_annotations.validate(new.get("metadata"), "metadata", ALL_ON)))
    assert answers(list(topology_annotations.validate_size(new.get("metadata"), "metadata", 1)))


@settings(max_examples=200)
@given(corrupted(), st.booleans())
def test_defaults_are_filled_in_once(tree: Tree, partial_admission: bool) -> None:
    gates = ValidationGates(partial_admission=partial_admission)
    for fill in (partial(defaults.apply, gates=gates), defaults.for_plan):
        once = fill(tree)
        assert fill(once) == once


@given(json_objects, json_values)
def test_any_json_has_an_answer(tree: Tree, value: Any) -> None:
    assert defaults.for_plan(tree) == tree
    assert validation.validate(tree, tree) == []
    for kind in DIFFERENCES:
        for version in (HUB, OLD):
            parts = {"metadata": value, "spec": value, "status": value}
            wild = {"apiVersion": f"{GROUP}/{version}", "kind": kind, **parts}
            assert answers(validation.validate(wild, wild, ALL_ON))
            assert defaults.apply(defaults.apply(wild)) == defaults.apply(wild)


def test_bottomless_nesting_is_answered_too() -> None:
    pits: tuple[Any, Any] = ({}, [])
    for _ in range(5_000):
        pits = ({"a": pits[0]}, [pits[1]])
    for pit in pits:
        for kind in DIFFERENCES:
            parts = {"metadata": {"name": "x", "annotations": pit}, "spec": {"podSets": [{"template": pit}]}}
            status = {"conditions": [{"type": "QuotaReserved", "status": "True"}], "admission": pit}
            tree = {"apiVersion": f"{GROUP}/{HUB}", "kind": kind, **parts, "status": status}
            other = {**tree, "spec": {"concurrentAdmissionPolicy": pit, "preemptionGates": pit}, "status": pit}
            assert answers(validation.validate(tree, other))
            assert answers(validation.validate_update(tree, other))
            assert answers(validation.validate_update(other, tree))
            assert conversion.convert(conversion.convert(other, OLD), HUB)["kind"] == kind
