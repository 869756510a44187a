"""Validation of a ClusterQueue beyond its schema, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubemachinery import selectors, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import backfill
from pykueue.api.validation import field_error, metadata, quotas
from pykueue.api.validation.gates import ValidationGates
from pykueue.api.validation.semantic_equality import same

FLAVORS_MAX: Final = 256
COVERED_RESOURCES_MAX: Final = 256
QUOTAS_PER_GROUP_MAX: Final = 512
FLAVORS_WITH_CONCURRENT_ADMISSION_MAX: Final = 16

# Resources that are rarely meant to be excluded from quota (KEP-5800).
CRITICAL_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")

_GROUPS: Final = "spec.resourceGroups"
_CHECKS: Final = "spec.admissionChecksStrategy.admissionChecks"
_CONCURRENT: Final = "spec.concurrentAdmissionPolicy"


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    spec = unstructured.mapping(tree.get("spec"))
    yield from _spec(spec, gates)
    yield from _backfill(tree, gates)
    yield from _checks_on_known_flavors(spec, {})


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    spec, old_spec = unstructured.mapping(new.get("spec")), unstructured.mapping(old.get("spec"))
    yield from _spec(spec, gates)
    yield from _backfill(new, gates)
    tolerated = {} if gates.reject_updates_to_cq_with_invalid_on_flavors else _flavors_by_check(spec, old_spec)
    yield from _checks_on_known_flavors(spec, tolerated)
    policy = spec.get("concurrentAdmissionPolicy")
    if not same(policy, old_spec.get("concurrentAdmissionPolicy")):
        yield field_error.immutable(_CONCURRENT, policy)


def _spec(spec: Mapping[str, Any], gates: ValidationGates) -> Iterator[FieldError]:
    limits = quotas.QuotaContext("cohort", has_parent=bool(spec.get("cohortName")), lends_at_most_nominal=True)
    yield from quotas.resource_groups(spec.get("resourceGroups"), _GROUPS, limits)
    yield from _namespace_selector(spec.get("namespaceSelector"))
    yield from quotas.fair_sharing(spec.get("fairSharing"), "spec.fairSharing")
    yield from _sizes(spec)
    if gates.concurrent_admission:
        yield from _concurrent_admission(spec)


def _backfill(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    """The annotations of planned backfill ([BF1])."""
    if not gates.planned_backfill:
        return
    annotations = unstructured.mapping(unstructured.get(tree, "metadata", "annotations"))
    for problem in backfill.problems({name: unstructured.text(value) for name, value in annotations.items()}):
        path = f"metadata.annotations[{problem.annotation}]"
        if problem.supported:
            yield field_error.unsupported(path, problem.value, problem.supported)
        else:
            yield field_error.invalid(path, problem.value, problem.message)


def _namespace_selector(selector: object) -> Iterator[FieldError]:
    path = "spec.namespaceSelector"
    yield from metadata.label_map(unstructured.get(selector, "matchLabels"), f"{path}.matchLabels")
    yield from selectors.check({"matchExpressions": unstructured.get(selector, "matchExpressions")}, path)


def _sizes(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Limits across groups, and across the flavors of a group, which a schema cannot count."""
    groups = [unstructured.mapping(group) for group in unstructured.sequence(spec.get("resourceGroups"))]
    totals = (
        ("flavors", FLAVORS_MAX, sum(len(unstructured.sequence(group.get("flavors"))) for group in groups)),
        (
            "covered resources",
            COVERED_RESOURCES_MAX,
            sum(len(unstructured.sequence(group.get("coveredResources"))) for group in groups),
        ),
    )
    for what, limit, total in totals:
        if total > limit:
            yield field_error.invalid(_GROUPS, total, f"all groups together may have {limit} {what}, not {total}")
    for i, group in enumerate(groups):
        total = sum(
            len(unstructured.sequence(flavor.get("resources"))) for _, flavor in unstructured.entries(group, "flavors")
        )
        if total > QUOTAS_PER_GROUP_MAX:
            why = f"a group may have {QUOTAS_PER_GROUP_MAX} pairs of flavor and resource, not {total}"
            yield field_error.invalid(f"{_GROUPS}[{i}]", total, why)


def _checks_on_known_flavors(spec: Mapping[str, Any], tolerated: Mapping[str, set[str]]) -> Iterator[FieldError]:
    known = set(quotas.flavors(spec.get("resourceGroups")))
    for i, rule in unstructured.entries(spec, "admissionChecksStrategy", "admissionChecks"):
        wanted = [unstructured.text(flavor) for flavor in unstructured.sequence(rule.get("onFlavors"))]
        if tolerated.get(unstructured.text(rule.get("name"))) == set(wanted):
            continue
        for j, flavor in enumerate(wanted):
            if flavor not in known:
                yield field_error.unsupported(
                    f"{_CHECKS}[{i}].onFlavors[{j}]", flavor, known, "the ClusterQueue defines no flavors"
                )


def _flavors_by_check(spec: Mapping[str, Any], old_spec: Mapping[str, Any]) -> dict[str, set[str]]:
    """What each check was restricted to before, as long as the flavors of the queue are what they were.

    An object stored before this rule existed may break it. It must stay possible to edit the rest of it.
    """
    if set(quotas.flavors(spec.get("resourceGroups"))) != set(quotas.flavors(old_spec.get("resourceGroups"))):
        return {}
    return {
        unstructured.text(rule.get("name")): {
            unstructured.text(flavor) for flavor in unstructured.sequence(rule.get("onFlavors"))
        }
        for _, rule in unstructured.entries(old_spec, "admissionChecksStrategy", "admissionChecks")
    }


def _concurrent_admission(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    if spec.get("concurrentAdmissionPolicy") is None:
        return
    groups = unstructured.sequence(spec.get("resourceGroups"))
    if len(groups) != 1:
        yield field_error.invalid(_GROUPS, len(groups), "must be exactly one group with concurrentAdmissionPolicy")
    elif (count := len(quotas.flavors(groups))) > FLAVORS_WITH_CONCURRENT_ADMISSION_MAX:
        why = f"may have {FLAVORS_WITH_CONCURRENT_ADMISSION_MAX} flavors with concurrentAdmissionPolicy, not {count}"
        yield field_error.invalid(f"{_GROUPS}[0].flavors", count, why)
    yield from _migration(unstructured.get(spec, "concurrentAdmissionPolicy", "migration"), quotas.flavors(groups))
    if spec.get("queueingStrategy") == "StrictFIFO":
        why = "StrictFIFO does not go with concurrentAdmissionPolicy"
        yield field_error.invalid("spec.queueingStrategy", "StrictFIFO", why)


def _migration(migration: object, known: list[str]) -> Iterator[FieldError]:
    constraints = unstructured.get(migration, "constraints")
    if constraints is None:
        return
    path = f"{_CONCURRENT}.migration.constraints"
    if unstructured.get(migration, "mode") not in (None, "", "TryPreferredFlavors"):
        yield field_error.forbidden(path, "may only be set with the mode TryPreferredFlavors")
        return
    last = unstructured.get(constraints, "lastAcceptableFlavorName")
    if last is not None and last not in known:
        yield field_error.invalid(f"{path}.lastAcceptableFlavorName", last, "must be a flavor of this ClusterQueue")


def warnings(tree: Tree, gates: ValidationGates, *, only_declared: bool = False) -> Iterator[str]:
    """What is allowed and probably not meant. `only_declared`: quota counts only what a queue declares (KEP-7513)."""
    if not gates.cluster_queue_exclude_resource_prefixes:
        return
    prefixes = [
        unstructured.text(prefix)
        for prefix in unstructured.sequence(unstructured.get(tree, "spec", "excludeResourcePrefixes"))
    ]
    for i, prefix in enumerate(prefixes):
        covered = [resource for resource in CRITICAL_RESOURCES if prefix and resource.startswith(prefix)]
        if covered:
            place = f'spec.excludeResourcePrefixes[{i}]: "{prefix}"'
            yield f"{place} leaves {', '.join(covered)} out of the quota of this ClusterQueue"
    if prefixes and only_declared:
        yield "spec.excludeResourcePrefixes has no effect while quota counts only declared resources"
