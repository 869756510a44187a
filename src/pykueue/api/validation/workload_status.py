"""Validation of the status of a Workload, and of its updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error, metadata, quotas, scheduling
from pykueue.api.validation.gates import ValidationGates
from pykueue.api.validation.semantic_equality import same

_ADMISSION: Final = "status.admission"
_CHECKS: Final = "status.admissionChecks"
_RECLAIMABLE: Final = "status.reclaimablePods"


def reserves_quota(tree: object) -> bool:
    """Whether the condition QuotaReserved is True."""
    return any(
        condition.get("type") == "QuotaReserved" and condition.get("status") == "True"
        for _, condition in unstructured.entries(tree, "status", "conditions")
    )


def is_elastic(tree: object, gates: ValidationGates) -> bool:
    """Whether the Workload is a slice of a job that may grow and shrink while it runs."""
    return (
        gates.elastic_jobs_via_workload_slices
        and unstructured.get(tree, "metadata", "annotations", labels.ELASTIC_JOB) == "true"
    )


def _pod_set_counts(tree: object) -> dict[str, int]:
    return {
        unstructured.text(pod_set.get("name")): unstructured.integer(pod_set.get("count")) or 0
        for _, pod_set in unstructured.entries(tree, "spec", "podSets")
    }


# --- What must hold at any time ---------------------------------------------------------------------------------------


def validate(tree: Tree, old: Tree | None, gates: ValidationGates) -> Iterator[FieldError]:
    if reserves_quota(tree):
        yield from _admission(tree, old)
    yield from _reclaimable_pods(tree, old, gates)
    for i, check in unstructured.entries(tree, "status", "admissionChecks"):
        yield from _pod_set_updates(check, _pod_set_counts(tree), f"{_CHECKS}[{i}].podSetUpdates")


def _admission(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    if unstructured.get(tree, "status", "admission") is None:
        # One that was already like this may be written on, or it could never be put right.
        if not (reserves_quota(old) and unstructured.get(old, "status", "admission") is None):
            yield field_error.required(_ADMISSION, "must be set while QuotaReserved is True")
        return
    known = _pod_set_counts(tree)
    for i, assignment in unstructured.entries(tree, "status", "admission", "podSetAssignments"):
        place = f"{_ADMISSION}.podSetAssignments[{i}]"
        if assignment.get("name") not in list(known):
            yield field_error.unknown(f"{place}.name", assignment.get("name"))
        count = unstructured.integer(assignment.get("count")) or 0
        if count > 0:
            yield from _shared_evenly(assignment.get("resourceUsage"), count, f"{place}.resourceUsage")


def _shared_evenly(usage: object, count: int, path: str) -> Iterator[FieldError]:
    for name, value in unstructured.mapping(usage).items():
        total = quotas.amount(value)
        if total is None:
            continue
        units = total.milli_value() if name == "cpu" else total.value()
        if units % count:
            yield field_error.invalid(f"{path}[{name}]", value, f"cannot be shared evenly by {count} pods")


def _reclaimable_pods(tree: Tree, old: Tree | None, gates: ValidationGates) -> Iterator[FieldError]:
    known = _pod_set_counts(tree)
    before = _reclaimable(old)
    for _, reclaimable in unstructured.entries(tree, "status", "reclaimablePods"):
        name, count = unstructured.text(reclaimable.get("name")), unstructured.integer(reclaimable.get("count")) or 0
        place = f"{_RECLAIMABLE}[{name}]"
        # An elastic job may have shrunk below what was reclaimed; the old number may stay until it is lowered.
        stale = is_elastic(tree, gates) and before.get(name) == count
        if name not in known:
            yield field_error.unsupported(f"{place}.name", name, known)
        elif count > known[name] and not stale:
            yield field_error.invalid(
                f"{place}.count", count, f"must be no more than {known[name]}, the count of the pod set"
            )


def _reclaimable(tree: object) -> dict[str, int]:
    return {
        unstructured.text(entry.get("name")): unstructured.integer(entry.get("count")) or 0
        for _, entry in unstructured.entries(tree, "status", "reclaimablePods")
    }


def _pod_set_updates(check: Mapping[str, Any], known: Mapping[str, int], path: str) -> Iterator[FieldError]:
    for k, update in unstructured.entries(check, "podSetUpdates"):
        place = f"{path}[{k}]"
        if update.get("name") not in list(known):
            yield field_error.unsupported(f"{place}.name", update.get("name"), known)
        yield from scheduling.tolerations(update.get("tolerations"), f"{place}.tolerations")
        yield from metadata.annotation_map(update.get("annotations"), f"{place}.annotations")
        for field in ("nodeSelector", "labels"):
            yield from metadata.label_map(update.get(field), f"{place}.{field}")


# --- What may not change ----------------------------------------------------------------------------------------------


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    if reserves_quota(new) and reserves_quota(old):
        yield from _reclaimed_stays_reclaimed(new, old, gates)
    yield from _frozen_admission(new, old, gates)
    yield from _frozen_pod_set_updates(new, old)
    yield from _nominated_cluster(new, old, gates)


def _reclaimed_stays_reclaimed(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    """Reclaimed quota may be in use by others, so the counts do not decrease, except for a pod set that shrank."""
    shrunk = _shrunk_pod_sets(new, gates)
    now = _reclaimable(new)
    for name, before in _reclaimable(old).items():
        if name in shrunk:
            continue
        place = f"{_RECLAIMABLE}[{name}]"
        if name not in now:
            yield field_error.required(place, "must not be removed while quota is reserved")
        elif now[name] < before:
            yield field_error.invalid(
                f"{place}.count", now[name], f"must not be less than {before}, which it was before"
            )


def _shrunk_pod_sets(tree: Tree, gates: ValidationGates) -> set[str]:
    """Pod sets of an elastic Workload that are smaller now than when they were admitted."""
    if not is_elastic(tree, gates):
        return set()
    counts = _pod_set_counts(tree)
    return {
        name
        for _, assignment in unstructured.entries(tree, "status", "admission", "podSetAssignments")
        if (unstructured.integer(assignment.get("count")) or 0)
        > counts.get(name := unstructured.text(assignment.get("name")), 0)
    }


def _frozen_admission(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    """An admission is set and removed as a whole; only its topology assignment may be set or changed."""
    admission, before = unstructured.get(new, "status", "admission"), unstructured.get(old, "status", "admission")
    if admission is None or before is None:
        return
    placed = _placed if gates.topology_aware_scheduling else (lambda value: value)
    if not same(placed(admission), placed(before)):
        yield field_error.immutable(_ADMISSION, admission)


def _placed(admission: Any) -> Any:
    """The admission without its placement."""
    if not isinstance(admission, dict):
        return admission
    movable = ("topologyAssignment", "delayedTopologyRequest")
    fixed = unstructured.each(lambda entry: {key: value for key, value in entry.items() if key not in movable})
    return unstructured.changed(admission, ("podSetAssignments",), fixed)


def _frozen_pod_set_updates(new: Tree, old: Tree) -> Iterator[FieldError]:
    """While a check stays Ready, its pod set updates have been applied and are immutable."""
    now = {
        unstructured.text(check.get("name")): check
        for _, check in unstructured.entries(new, "status", "admissionChecks")
    }
    for i, check in unstructured.entries(old, "status", "admissionChecks"):
        current = now.get(unstructured.text(check.get("name")), {})
        if check.get("state") == current.get("state") == "Ready":
            updates = current.get("podSetUpdates")
            if not same(updates, check.get("podSetUpdates")):
                yield field_error.immutable(f"{_CHECKS}[{i}].podSetUpdates", updates)


def _nominated_cluster(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    replaces = unstructured.get(new, "metadata", "annotations", labels.WORKLOAD_SLICE_REPLACEMENT_FOR)
    if gates.elastic_jobs_via_workload_slices and replaces:
        # The new slice of an elastic job runs in the cluster of the old one, without another nomination.
        return
    chosen = unstructured.get(new, "status", "clusterName")
    if chosen is None or unstructured.get(old, "status", "clusterName") is not None:
        return
    if chosen not in unstructured.sequence(unstructured.get(old, "status", "nominatedClusterNames")):
        why = "must be one of nominatedClusterNames when it is set"
        yield field_error.invalid("status.clusterName", chosen, why)
