"""A pod that is its own job. It has no flag: a scheduling gate holds it back, and once released it can only be deleted.

created   the webhook adds the gates, our label and our finalizer, and its role
started   the gates go, in the same write that adds what admission says
stopped   marked with the condition TerminationTarget, then deleted
over      our finalizer goes, so that the pod can
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import kube, labels, registry
from pykueue.api.conditions import PodConditionType
from pykueue.api.validation import field_error, job_metadata, topology_annotations
from pykueue.jobs import podsets
from pykueue.jobs.actions import Actions, DeleteObject, EmitJobEvent, ReplaceObject
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, Stop, StopReason
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

FRAMEWORK: Final = "pod"
KIND: Final = registry.KUBERNETES.of(kube.Pod)

_COUNT: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32_MAX: Final = 2**31 - 1


# --- Reading a pod ----------------------------------------------------------------------------------------------------


def phase(pod: Tree) -> str:
    return unstructured.text(unstructured.get(pod, "status", "phase"))


def is_over(pod: Tree) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def gates(pod: Tree) -> frozenset[str]:
    """The names of what keeps a pod from being scheduled."""
    return frozenset(
        unstructured.text(gate.get("name")) for _, gate in unstructured.entries(pod, "spec", "schedulingGates")
    )


def has_gate(pod: Tree, name: str = labels.ADMISSION_GATE) -> bool:
    return name in gates(pod)


def is_deleting(pod: Tree) -> bool:
    return unstructured.get(pod, "metadata", "deletionTimestamp") is not None


def is_ready(pod: Tree) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for _, condition in unstructured.entries(pod, "status", "conditions")
    )


def annotation(pod: Tree, key: str) -> str:
    return unstructured.text(unstructured.get(pod, "metadata", "annotations", key))


def group_name(pod: Tree, options: IntegrationOptions) -> str:
    """The group that a pod belongs to; empty for a pod of its own."""
    annotated = annotation(pod, labels.POD_GROUP_NAME) if options.identifier_annotations else ""
    return annotated or unstructured.text(unstructured.get(pod, "metadata", "labels", labels.POD_GROUP_NAME))


def total_count(pod: Tree) -> int | None:
    """How many pods the pod's group has; None when that is not said, or not with a number above 0."""
    written = annotation(pod, labels.POD_GROUP_TOTAL_COUNT)
    count = int(written) if _COUNT.fullmatch(written) else 0
    return count if 0 < count <= _INT32_MAX else None


# --- Its role ---------------------------------------------------------------------------------------------------------

# What tells the roles of a group apart: pods that ask for the same things are interchangeable.
_SHAPE: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
# The digits of a role are public: pod sets are called by them and ordered by them, and the first pod set gets the first
# flavor. So the shape is written in the very bytes that are usual: names of a map by the alphabet, fields of an API
# type in the order in which the API declares them.
_DECLARED: Final = {
    name: rank
    for rank, name in enumerate(
        (
            *("name", "hostPort", "containerPort", "protocol", "hostIP", "resourceClaimName"),
            *("resourceClaimTemplateName", "key", "operator", "value", "values", "effect", "tolerationSeconds"),
            *("nodeAffinity", "podAffinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
            *("preferredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "weight", "preference"),
            *("podAffinityTerm", "maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "namespaces"),
            *("matchLabels", "matchExpressions", "matchFields", "namespaceSelector", "minDomains"),
            *("nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys", "mismatchLabelKeys"),
        )
    )
}


# Fields whose names are people's own, and not the API's.
_MAPS: Final = frozenset({"nodeSelector", "requests", "overhead", "matchLabels"})


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_order(entry) for entry in value]
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (_DECLARED.get(name, len(_DECLARED)), name))
        return {name: _in_alphabet(value[name]) if name in _MAPS else _in_order(value[name]) for name in names}
    return value


def _in_alphabet(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def role(pod: Tree) -> str:
    """The role that a pod plays in its group: eight digits, the same for pods of one shape."""
    return annotation(pod, labels.ROLE_HASH) or role_of(unstructured.mapping(pod.get("spec")))


def role_of(spec: Mapping[str, Any]) -> str:
    shape: Tree = {key: spec.get(key) for key in _SHAPE}
    for key in ("initContainers", "containers"):
        shape[key] = [
            {
                "resources": {"requests": unstructured.get(container, "resources", "requests")},
                "ports": container.get("ports"),
            }
            for _, container in unstructured.entries(spec, key)
        ] or None
    if spec.get("resources") is not None:
        shape["resources"] = unstructured.get(spec, "resources", "requests")
    return hashlib.sha256(msgspec.json.encode({"spec": _in_order(shape)})).hexdigest()[:8]


# --- Changing a pod ---------------------------------------------------------------------------------------------------


def without_gates(pod: Tree, *names: str) -> Tree:
    kept = [
        dict(gate) for _, gate in unstructured.entries(pod, "spec", "schedulingGates") if gate.get("name") not in names
    ]
    path = ("spec", "schedulingGates")
    return unstructured.put(pod, path, kept) if kept else unstructured.without(pod, path)


def released(pod: Tree, info: PodSetInfo) -> Tree | PodSetConflict:
    """The pod as it may run. Its topology gate stays only if a place was assigned that it has to wait for."""
    found = podsets.injected(pod, info)
    if isinstance(found, PodSetConflict):
        return found
    waits = any(gate.get("name") == labels.TOPOLOGY_GATE for gate in info.scheduling_gates)
    return without_gates(found, labels.ADMISSION_GATE, *(() if waits else (labels.TOPOLOGY_GATE,)))


def without_finalizer(pod: Tree) -> Tree:
    path = ("metadata", "finalizers")
    found = unstructured.sequence(unstructured.get(pod, *path))
    kept = [name for name in found if name != labels.POD_FINALIZER]
    if len(kept) == len(found):
        return pod
    return unstructured.put(pod, path, kept) if kept else unstructured.without(pod, path)


def pod_set(pod: Tree, name: str, count: int, options: IntegrationOptions) -> Tree:
    """The pod set of pods like this one. Labels and annotations are each pod's own and stay out of it."""
    spec = podsets.with_single_variables(dict(unstructured.mapping(pod.get("spec"))))
    found: Tree = {"name": name, "count": count, "template": {"metadata": {}, "spec": spec}}
    if options.topology:
        template = PodSetTemplate(name, (), count, pod_index_label=labels.POD_GROUP_POD_INDEX)
        found["topologyRequest"] = podsets.topology_request(pod.get("metadata"), template)
    return found


# --- Actions on a pod -------------------------------------------------------------------------------------------------


def let_go(job: GenericJob, pods: Sequence[Tree]) -> Actions:
    """Take our finalizer off pods that have it."""
    changed = ((pod, without_finalizer(pod)) for pod in pods)
    return tuple(ReplaceObject(job.row.kind, pod, after) for pod, after in changed if after is not pod)


def stop(job: GenericJob, pod: Tree, order: Stop) -> Actions:
    """End a pod: say why on the pod itself, then delete it. With its Workload gone, nothing holds it any longer."""
    over = order.reason is StopReason.WORKLOAD_DELETED
    if is_deleting(pod):
        return let_go(job, (pod,)) if over else ()
    if (is_over(pod) or has_gate(pod)) and not over:
        return ()
    marked = _marked(pod, order)
    return (
        ReplaceObject(job.row.kind, pod, marked, "status"),
        *(let_go(job, (marked,)) if over else ()),
        DeleteObject(job.row.kind, pod),
        EmitJobEvent(pod, "Stopped", order.message),
    )


def _marked(pod: Tree, order: Stop) -> Tree:
    reason = f"{order.reason}DueTo{order.eviction}" if order.eviction else str(order.reason)
    kept = [
        dict(condition)
        for _, condition in unstructured.entries(pod, "status", "conditions")
        if condition.get("type") != PodConditionType.TERMINATION_TARGET
    ]
    condition = {
        "type": str(PodConditionType.TERMINATION_TARGET),
        "status": "True",
        "reason": reason,
        "message": order.message,
        "lastTransitionTime": meta.format_time(order.now),
    }
    return unstructured.put(pod, ("status", "conditions"), [*kept, condition])


# --- The kind ---------------------------------------------------------------------------------------------------------


class PodJob(GenericJob):
    """A single pod."""

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return (PodSetTemplate(labels.DEFAULT_POD_SET, (), 1, pod_index_label=labels.POD_GROUP_POD_INDEX),)

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return (pod_set(self.tree, labels.DEFAULT_POD_SET, 1, options),)

    def is_skipped(self, options: IntegrationOptions) -> bool:
        if self.labels.get(labels.MANAGED) != "true":
            return True
        return FRAMEWORK not in options.frameworks and labels.POD_SUSPENDING_PARENT not in self.annotations

    def is_suspended(self) -> bool:
        return is_over(self.tree) or has_gate(self.tree)

    def is_active(self) -> bool:
        """Never: a pod that is evicted is deleted, and its quota is free at once."""
        return False

    def outcome(self) -> JobOutcome | None:
        if not is_over(self.tree):
            return None
        return JobOutcome(
            unstructured.text(unstructured.get(self.tree, "status", "message")), phase(self.tree) == "Succeeded"
        )

    def are_pods_ready(self) -> bool:
        return is_ready(self.tree)

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        if len(infos) != 1:
            return PodSetConflict(f"there are {len(infos)} assignments for one pod")
        if not has_gate(self.tree):
            return ()
        after = released(self.tree, infos[0])
        if isinstance(after, PodSetConflict):
            return after
        return (ReplaceObject(self.row.kind, self.tree, after), EmitJobEvent(self.tree, "Started", note))

    def stop(self, order: Stop) -> Actions:
        return stop(self, self.tree, order)

    def finalize(self) -> Actions:
        return let_go(self, (self.tree,))

    # --- The webhook --------------------------------------------------------------------------------------------------

    def defaulted(self, options: IntegrationOptions) -> Tree:
        tree = self.tree
        if labels.POD_SUSPENDING_PARENT not in self.annotations:
            tree = unstructured.put(tree, ("metadata", "labels"), {**self.labels, labels.MANAGED: "true"})
            finalizers = unstructured.sequence(unstructured.get(tree, "metadata", "finalizers"))
            if labels.POD_FINALIZER not in finalizers:
                tree = unstructured.put(tree, ("metadata", "finalizers"), [*finalizers, labels.POD_FINALIZER])
        gates = [labels.ADMISSION_GATE]
        if options.topology:
            gates.append(labels.TOPOLOGY_GATE)
            index = self.annotations.get(labels.POD_GROUP_POD_INDEX_LABEL)
            if index is not None:
                place = ("metadata", "labels", labels.POD_GROUP_POD_INDEX)
                tree = unstructured.put(tree, place, self.labels.get(index, ""))
        held = unstructured.sequence(unstructured.get(tree, "spec", "schedulingGates"))
        missing = [{"name": gate} for gate in gates if not has_gate(tree, gate)]
        if missing:
            tree = unstructured.put(tree, ("spec", "schedulingGates"), [*held, *missing])
        if labels.ROLE_HASH in self.annotations:
            return tree
        return unstructured.put(tree, ("metadata", "annotations", labels.ROLE_HASH), role(self.tree))

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        managed = self.labels.get(labels.MANAGED)
        if managed not in (None, "true"):
            yield field_error.forbidden(job_metadata.label_path(labels.MANAGED), 'may only be "true"')
        yield from self._group_errors(options)
        if options.topology:
            yield from topology_annotations.validate(self.tree.get("metadata"), "metadata", options.validation)
        prebuilt = job_metadata.prebuilt_name(self.tree, options.validation)
        group = group_name(self.tree, options)
        if group and prebuilt and group != prebuilt:
            path = job_metadata.prebuilt_path(self.tree, options.validation)
            yield field_error.invalid(path, prebuilt, "must be the name of the pod group")

    def _group_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        group, written = group_name(self.tree, options), self.annotations.get(labels.POD_GROUP_TOTAL_COUNT)
        count_path = job_metadata.annotation_path(labels.POD_GROUP_TOTAL_COUNT)
        annotated = options.identifier_annotations and self.annotations.get(labels.POD_GROUP_NAME)
        both = (
            f"both the '{labels.POD_GROUP_TOTAL_COUNT}' annotation and the '{labels.POD_GROUP_NAME}'"
            f" {'annotation' if annotated else 'label'} should be set"
        )
        if not group and written is not None:
            yield field_error.required(self._group_path(options), both)
            return
        if group:
            yield from field_error.invalid_each(self._group_path(options), group, meta.check_subdomain_name(group))
        if group and written is None:
            yield field_error.required(count_path, both)
        elif written is not None and total_count(self.tree) is None:
            yield field_error.invalid(count_path, written, "must be a whole number of at least 1")

    def _group_path(self, options: IntegrationOptions) -> str:
        annotated = options.identifier_annotations and self.annotations.get(labels.POD_GROUP_NAME)
        path = job_metadata.annotation_path if annotated else job_metadata.label_path
        return path(labels.POD_GROUP_NAME)

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        group, before = group_name(self.tree, options), group_name(old.tree, options)
        if group and not is_retriable(old.tree) and is_retriable(self.tree):
            path = job_metadata.annotation_path(labels.RETRIABLE_IN_GROUP)
            yield field_error.forbidden(path, "a group that is not tried again cannot become one that is")
        if before and group != before:
            yield field_error.immutable(self._group_path(options), group)


def is_retriable(pod: Tree) -> bool:
    """Whether a failed pod of a group may be replaced."""
    return annotation(pod, labels.RETRIABLE_IN_GROUP) != "false"
