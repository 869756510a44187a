"""Rules of ClusterQueue and Cohort that no recorded case shows: sizes, gates, concurrent admission, warnings."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery.field_errors import ErrorType
from pykueue.api import effects
from pykueue.api.validation import ValidationGates, validate_create, validate_update, warnings

Tree = dict[str, Any]


def flavor(name: str, *resources: str) -> Tree:
    return {"name": name, "resources": [{"name": resource, "nominalQuota": "1"} for resource in resources]}


def group(flavors: int, resources: int, start: str = "") -> Tree:
    covered = [f"example.com/{start}{number}" for number in range(resources)]
    return {
        "coveredResources": covered,
        "flavors": [flavor(f"{start}f{number}", *covered) for number in range(flavors)],
    }


def cluster_queue(**spec: Any) -> Tree:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": spec,
    }


def paths(errors: list[Any]) -> list[str]:
    return [error.path for error in errors]


def test_flavors_are_counted_over_all_groups() -> None:
    groups = [group(52, 1, start) for start in "abcd"]
    assert validate_create(cluster_queue(resourceGroups=[*groups, group(48, 1, "e")])) == []
    assert paths(validate_create(cluster_queue(resourceGroups=[*groups, group(49, 1, "e")]))) == ["spec.resourceGroups"]


def test_covered_resources_are_counted_over_all_groups() -> None:
    groups = [group(1, 52, start) for start in "abcd"]
    assert validate_create(cluster_queue(resourceGroups=[*groups, group(1, 48, "e")])) == []
    assert paths(validate_create(cluster_queue(resourceGroups=[*groups, group(1, 49, "e")]))) == ["spec.resourceGroups"]


def test_pairs_of_flavor_and_resource_are_counted_by_group() -> None:
    assert validate_create(cluster_queue(resourceGroups=[group(16, 32)])) == []
    errors = validate_create(cluster_queue(resourceGroups=[group(1, 1, "a"), group(27, 19)]))
    assert paths(errors) == ["spec.resourceGroups[1]"]


def test_an_unreadable_quantity_is_refused_even_where_its_pattern_passes() -> None:
    quota = {"name": "cpu", "nominalQuota": "1e1.5"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
    (error,) = validate_create(cluster_queue(resourceGroups=groups))
    assert error.path == "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"


# --- Admission checks -------------------------------------------------------------------------------------------------

STALE = {"admissionChecks": [{"name": "c", "onFlavors": ["gone"]}]}
ON_FLAVORS = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"


def test_a_check_that_was_wrong_before_may_stay_while_the_flavors_do() -> None:
    old = cluster_queue(resourceGroups=[group(1, 1)], admissionChecksStrategy=STALE)
    new = cluster_queue(resourceGroups=[group(1, 1)], admissionChecksStrategy=STALE, stopPolicy="Hold")
    assert validate_update(new, old) == []
    strict = ValidationGates(reject_updates_to_cq_with_invalid_on_flavors=True)
    assert paths(validate_update(new, old, strict)) == [ON_FLAVORS]


def test_a_check_that_was_wrong_before_must_be_put_right_with_the_flavors() -> None:
    old = cluster_queue(resourceGroups=[group(1, 1)], admissionChecksStrategy=STALE)
    new = cluster_queue(resourceGroups=[group(2, 1)], admissionChecksStrategy=STALE)
    assert paths(validate_update(new, old)) == [ON_FLAVORS]


def test_the_refusal_names_the_flavors_there_are() -> None:
    (error,) = validate_create(cluster_queue(resourceGroups=[group(2, 1)], admissionChecksStrategy=STALE))
    assert error.type is ErrorType.NOT_SUPPORTED
    assert error.message == 'must be one of "f0", "f1"'


# --- Concurrent admission ---------------------------------------------------------------------------------------------

CONCURRENT = ValidationGates(concurrent_admission=True)


def policy(mode: str = "TryPreferredFlavors", **constraints: str) -> Tree:
    migration: Tree = {"mode": mode}
    if constraints:
        migration["constraints"] = constraints
    return {"migration": migration}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"resourceGroups": [group(2, 1)]}, []),
        ({"resourceGroups": []}, ["spec.resourceGroups"]),
        ({"resourceGroups": [group(1, 1, "a"), group(1, 1, "b")]}, ["spec.resourceGroups"]),
        ({"resourceGroups": [group(17, 1)]}, ["spec.resourceGroups[0].flavors"]),
        ({"resourceGroups": [group(1, 1)], "queueingStrategy": "StrictFIFO"}, ["spec.queueingStrategy"]),
    ],
    ids=["fine", "no group", "two groups", "17 flavors", "StrictFIFO"],
)
def test_concurrent_admission_wants_one_small_group_and_no_strict_order(spec: Tree, refused: list[str]) -> None:
    tree = cluster_queue(**spec, concurrentAdmissionPolicy=policy())
    assert paths(validate_create(tree, CONCURRENT)) == refused
    assert validate_create(tree) == [], "without the gate the field is inert"


@pytest.mark.parametrize(
    ("concurrent", "refused"),
    [
        (policy(lastAcceptableFlavorName="f1"), []),
        (
            policy(lastAcceptableFlavorName="other"),
            ["spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"],
        ),
        (
            policy("RetainFirstAdmission", lastAcceptableFlavorName="f1"),
            ["spec.concurrentAdmissionPolicy.migration.constraints"],
        ),
    ],
    ids=["a flavor of its own", "an unknown flavor", "constraints in another mode"],
)
def test_migration_ends_at_a_flavor_of_the_queue(concurrent: Tree, refused: list[str]) -> None:
    tree = cluster_queue(resourceGroups=[group(2, 1)], concurrentAdmissionPolicy=concurrent)
    assert paths(validate_create(tree, CONCURRENT)) == refused


def test_the_policy_of_concurrent_admission_cannot_change() -> None:
    old = cluster_queue(concurrentAdmissionPolicy=policy())
    new = cluster_queue(concurrentAdmissionPolicy=policy("RetainFirstAdmission"))
    assert paths(validate_update(new, old)) == ["spec.concurrentAdmissionPolicy"]
    assert validate_update(old, old) == []


# --- Warnings ---------------------------------------------------------------------------------------------------------

EXCLUDING = ValidationGates(cluster_queue_exclude_resource_prefixes=True)


def test_exclusion_of_common_resources_causes_a_warning() -> None:
    tree = cluster_queue(excludeResourcePrefixes=["example.com", "cpu", "mem", "nvidia.com/", "cpus"])
    assert warnings(tree, EXCLUDING) == [
        'spec.excludeResourcePrefixes[1]: "cpu" leaves cpu out of the quota of this ClusterQueue',
        'spec.excludeResourcePrefixes[2]: "mem" leaves memory out of the quota of this ClusterQueue',
        'spec.excludeResourcePrefixes[3]: "nvidia.com/" leaves nvidia.com/gpu out of the quota of this ClusterQueue',
    ]
    assert warnings(tree) == [], "without the gate the list excludes nothing"


def test_a_list_without_effect_is_warned_about() -> None:
    tree = cluster_queue(excludeResourcePrefixes=["example.com"])
    assert warnings(tree, EXCLUDING, only_declared=True) == [
        "spec.excludeResourcePrefixes has no effect while quota counts only declared resources"
    ]
    assert warnings(cluster_queue(), EXCLUDING, only_declared=True) == []


def test_concurrent_admission_policy_without_its_gate_is_warned_about_once() -> None:
    tree = cluster_queue(concurrentAdmissionPolicy=policy())
    message = "spec.concurrentAdmissionPolicy has no effect while the gate ConcurrentAdmission is off"
    assert [*warnings(tree), *effects.warnings(tree, ())] == [message]
    assert [*warnings(tree, CONCURRENT), *effects.warnings(tree, ("ConcurrentAdmission",))] == []
