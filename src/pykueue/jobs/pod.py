"""A pod that is its own job. It has no suspend field: a scheduling gate holds it; a started pod can only be deleted.

created   the webhook adds the scheduling gates, the managed label, the finalizer and the role hash
started   the gates are removed, in the same write that adds the labels and node selectors of the admission
stopped   the condition TerminationTarget is set, then the pod is deleted
finished  the finalizer is removed, so that the pod can be deleted
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, labels, registry
from pykueue.api.conditions import PodConditionType
from pykueue.api.validation import field_error, job_metadata, topology_annotations
from pykueue.jobs import podsets
from pykueue.jobs.actions import Actions, DeleteObject, EmitJobEvent, ReplaceObject
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, Stop, StopReason, first_time, last_time
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

FRAMEWORK: Final = "pod"
KIND: Final = registry.KUBERNETES.of(kube.Pod)

_COUNT: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32_MAX: Final = 2**31 - 1


# --- Reading a pod ----------------------------------------------------------------------------------------------------


class PodView(ObjectView):
    """A pod, read by its fields."""

    @property
    def phase(self) -> str:
        return unstructured.text(self.status.get("phase"))

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def ended(self) -> Nanoseconds | None:
        """When its last container ended; None if a container has not, or has no time."""
        return last_time(
            first_time(unstructured.get(status, "state", "terminated", "finishedAt"))
            for _, status in unstructured.entries(self.status, "containerStatuses")
        )

    @property
    def node_name(self) -> str:
        return unstructured.text(self.spec.get("nodeName"))

    @property
    def gates(self) -> frozenset[str]:
        """The names of its scheduling gates."""
        return frozenset(
            unstructured.text(gate.get("name")) for _, gate in unstructured.entries(self.spec, "schedulingGates")
        )

    def has_gate(self, name: str = labels.ADMISSION_GATE) -> bool:
        return name in self.gates

    @property
    def is_ready(self) -> bool:
        return any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for _, condition in unstructured.entries(self.status, "conditions")
        )

    def group_name(self, options: IntegrationOptions) -> str:
        """The pod group that the pod belongs to; empty for a pod without one."""
        annotated = self.annotations.get(labels.POD_GROUP_NAME) if options.identifier_annotations else ""
        return annotated or self.labels.get(labels.POD_GROUP_NAME, "")

    @property
    def group_total_count(self) -> int | None:
        """How many pods the pod's group has; None if the annotation is absent or not a number above 0."""
        written = self.annotations.get(labels.POD_GROUP_TOTAL_COUNT, "")
        count = int(written) if _COUNT.fullmatch(written) else 0
        return count if 0 < count <= _INT32_MAX else None

    @property
    def is_retriable(self) -> bool:
        """Whether a failed pod of a group may be replaced."""
        return self.annotations.get(labels.RETRIABLE_IN_GROUP) != "false"

    @property
    def role(self) -> str:
        """The role of the pod in its group: eight hexadecimal digits, the same for pods of one shape."""
        return self.annotations.get(labels.ROLE_HASH) or role_hash(self.spec)


# --- The role hash ----------------------------------------------------------------------------------------------------

# The fields that distinguish the roles of a group: pods that are equal in these are interchangeable.
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
# The hash is public: pod sets are named and ordered by it, and the first pod set gets the first flavor. So it must be
# equal to Kueue's, which hashes Go's JSON: keys of maps in alphabetical order, fields of API types in the order of
# their declaration.
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


# Fields that hold maps, of which the keys are data.
_MAPS: Final = frozenset({"nodeSelector", "requests", "overhead", "matchLabels"})


def _in_declared_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_declared_order(entry) for entry in value]
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (_DECLARED.get(name, len(_DECLARED)), name))
        return {name: _sorted_map(value[name]) if name in _MAPS else _in_declared_order(value[name]) for name in names}
    return value


def _sorted_map(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def shape(spec: Mapping[str, Any]) -> Tree:
    """The fields of a pod spec that distinguish roles."""
    found: Tree = {key: spec.get(key) for key in _SHAPE}
    for key in ("initContainers", "containers"):
        found[key] = [
            {
                "resources": {"requests": unstructured.get(container, "resources", "requests")},
                "ports": container.get("ports"),
            }
            for _, container in unstructured.entries(spec, key)
        ] or None
    if spec.get("resources") is not None:
        found["resources"] = unstructured.get(spec, "resources", "requests")
    return found


def role_hash(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode({"spec": _in_declared_order(shape(spec))})).hexdigest()[:8]


# --- Changing a pod ---------------------------------------------------------------------------------------------------


def without_gates(pod: Tree, *names: str) -> Tree:
    kept = [
        dict(gate) for _, gate in unstructured.entries(pod, "spec", "schedulingGates") if gate.get("name") not in names
    ]
    path = ("spec", "schedulingGates")
    return unstructured.put(pod, path, kept) if kept else unstructured.without(pod, path)


def released(pod: PodView, info: PodSetInfo) -> Tree | PodSetConflict:
    """The pod as it may run. Its topology gate stays only if a topology assignment was made that it has to wait for."""
    found = podsets.injected(pod.tree, info)
    if isinstance(found, PodSetConflict):
        return found
    waits = any(gate.get("name") == labels.TOPOLOGY_GATE for gate in info.scheduling_gates)
    return without_gates(found, labels.ADMISSION_GATE, *(() if waits else (labels.TOPOLOGY_GATE,)))


def without_finalizer(pod: Tree) -> Tree:
    found, path = ObjectView(pod).finalizers, ("metadata", "finalizers")
    kept = [name for name in found if name != labels.POD_FINALIZER]
    if len(kept) == len(found):
        return pod
    return unstructured.put(pod, path, kept) if kept else unstructured.without(pod, path)


def pod_set(pod: PodView, name: str, count: int, options: IntegrationOptions) -> Tree:
    """The pod set of pods like this one. Labels and annotations belong to each pod and are not part of it."""
    spec = podsets.with_single_variables(dict(pod.spec))
    found: Tree = {"name": name, "count": count, "template": {"metadata": {}, "spec": spec}}
    if options.topology:
        template = PodSetTemplate(name, (), count, pod_index_label=labels.POD_GROUP_POD_INDEX)
        found["topologyRequest"] = podsets.topology_request(pod.metadata, template)
    return found


# --- Actions on a pod -------------------------------------------------------------------------------------------------


def finalize(kind: Kind, pods: Sequence[PodView]) -> Actions:
    """Remove the finalizer from the pods that have it."""
    changed = ((pod.tree, without_finalizer(pod.tree)) for pod in pods)
    return tuple(ReplaceObject(kind, before, after) for before, after in changed if after is not before)


def stop(kind: Kind, pod: PodView, order: Stop) -> Actions:
    """Stop a pod: set the reason as a condition, then delete it; without finalizer if its Workload is deleted."""
    is_last = order.reason is StopReason.WORKLOAD_DELETED
    if pod.is_deleting:
        return finalize(kind, (pod,)) if is_last else ()
    if (pod.is_finished or pod.has_gate()) and not is_last:
        return ()
    marked = _with_termination_target(pod, order)
    return (
        ReplaceObject(kind, pod.tree, marked, "status"),
        *(finalize(kind, (PodView(marked),)) if is_last else ()),
        DeleteObject(kind, pod.tree),
        EmitJobEvent(pod.tree, "Stopped", order.message),
    )


def _with_termination_target(pod: PodView, order: Stop) -> Tree:
    reason = f"{order.reason}DueTo{order.eviction}" if order.eviction else str(order.reason)
    kept = [
        dict(condition)
        for _, condition in unstructured.entries(pod.status, "conditions")
        if condition.get("type") != PodConditionType.TERMINATION_TARGET
    ]
    condition = {
        "type": str(PodConditionType.TERMINATION_TARGET),
        "status": "True",
        "reason": reason,
        "message": order.message,
        "lastTransitionTime": meta.format_time(order.now),
    }
    return unstructured.put(pod.tree, ("status", "conditions"), [*kept, condition])


# --- The kind ---------------------------------------------------------------------------------------------------------


class PodJob(PodView, GenericJob):
    """A single pod."""

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return (PodSetTemplate(labels.DEFAULT_POD_SET, (), 1, pod_index_label=labels.POD_GROUP_POD_INDEX),)

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return (pod_set(self, labels.DEFAULT_POD_SET, 1, options),)

    def is_skipped(self, options: IntegrationOptions) -> bool:
        if self.labels.get(labels.MANAGED) != "true":
            return True
        return FRAMEWORK not in options.frameworks and labels.POD_SUSPENDING_PARENT not in self.annotations

    def is_suspended(self) -> bool:
        return self.is_finished or self.has_gate()

    def is_active(self) -> bool:
        """False: an evicted pod is deleted, and its quota is released at once."""
        return False

    def outcome(self) -> JobOutcome | None:
        if not self.is_finished:
            return None
        return JobOutcome(unstructured.text(self.status.get("message")), self.phase == "Succeeded", self.ended)

    def are_pods_ready(self) -> bool:
        return self.is_ready

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        if len(infos) != 1:
            return PodSetConflict(f"there are {len(infos)} assignments for one pod")
        if not self.has_gate():
            return ()
        after = released(self, infos[0])
        if isinstance(after, PodSetConflict):
            return after
        return (ReplaceObject(self.row.kind, self.tree, after), EmitJobEvent(self.tree, "Started", note))

    def stop(self, order: Stop) -> Actions:
        return stop(self.row.kind, self, order)

    def finalize(self) -> Actions:
        return finalize(self.row.kind, (self,))

    # --- The webhook --------------------------------------------------------------------------------------------------

    def defaulted(self, options: IntegrationOptions) -> Tree:
        tree = self.tree
        if labels.POD_SUSPENDING_PARENT not in self.annotations:
            tree = self.with_labels({labels.MANAGED: "true"})
            if labels.POD_FINALIZER not in self.finalizers:
                tree = unstructured.put(tree, ("metadata", "finalizers"), [*self.finalizers, labels.POD_FINALIZER])
        gates = [labels.ADMISSION_GATE]
        if options.topology:
            gates.append(labels.TOPOLOGY_GATE)
            index = self.annotations.get(labels.POD_GROUP_POD_INDEX_LABEL)
            if index is not None:
                path = ("metadata", "labels", labels.POD_GROUP_POD_INDEX)
                tree = unstructured.put(tree, path, self.labels.get(index, ""))
        missing = [{"name": gate} for gate in gates if not self.has_gate(gate)]
        if missing:
            present = unstructured.sequence(self.spec.get("schedulingGates"))
            tree = unstructured.put(tree, ("spec", "schedulingGates"), [*present, *missing])
        if labels.ROLE_HASH in self.annotations:
            return tree
        return unstructured.put(tree, ("metadata", "annotations", labels.ROLE_HASH), self.role)

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        managed = self.labels.get(labels.MANAGED)
        if managed not in (None, "true"):
            yield field_error.forbidden(job_metadata.label_path(labels.MANAGED), 'may only be "true"')
        yield from self._group_errors(options)
        if options.topology:
            yield from topology_annotations.validate(self.metadata, "metadata", options.validation)
        prebuilt = job_metadata.prebuilt_name(self.tree, options.validation)
        group = self.group_name(options)
        if group and prebuilt and group != prebuilt:
            path = job_metadata.prebuilt_path(self.tree, options.validation)
            yield field_error.invalid(path, prebuilt, "must be the name of the pod group")

    def _group_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        group, written = self.group_name(options), self.annotations.get(labels.POD_GROUP_TOTAL_COUNT)
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
        elif written is not None and self.group_total_count is None:
            yield field_error.invalid(count_path, written, "must be a whole number of at least 1")

    def _group_path(self, options: IntegrationOptions) -> str:
        annotated = options.identifier_annotations and self.annotations.get(labels.POD_GROUP_NAME)
        path = job_metadata.annotation_path if annotated else job_metadata.label_path
        return path(labels.POD_GROUP_NAME)

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        assert isinstance(old, PodJob)
        group, before = self.group_name(options), old.group_name(options)
        if group and not old.is_retriable and self.is_retriable:
            path = job_metadata.annotation_path(labels.RETRIABLE_IN_GROUP)
            yield field_error.forbidden(path, "a pod group cannot become retriable")
        if before and group != before:
            yield field_error.immutable(self._group_path(options), group)
