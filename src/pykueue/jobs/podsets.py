"""Pod templates: read into pod sets, injected with what admission adds, and restored.

A `PodSetInfo` is everything about the pods of one pod set that admission may change. One is read from an admission and
injected into the job when it starts; another is read from the Workload's spec and restored when the job stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs
from msgspec.structs import replace

from kubemachinery import codec, meta, quantity, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.api.validation import topology_annotations
from pykueue.jobs.options import IntegrationOptions

# How many pod sets a Workload has at most.
COUNT_MAX: Final = 18

# A path in a tree, with list indexes: ("spec", "replicatedJobs", 0, "template").
Spot: TypeAlias = tuple[str | int, ...]


class PodSetTemplate(msgspec.Struct, frozen=True):
    """A pod template of a job, and how many pods it has."""

    name: str
    spot: Spot
    count: int
    min_count: int | None = None
    pod_index_label: str = ""
    sub_group_index_label: str = ""
    sub_group_count: int | None = None
    # The path in messages, where it is not the spot: `spec.mpiReplicaSpecs[Worker].template`.
    path: str = ""
    # The template where the job has none at the spot; it is written into the job when the job starts.
    otherwise: Tree | None = None

    @property
    def place(self) -> str:
        """The path of the template in messages: `spec.steps[0].template`."""
        if self.path:
            return self.path
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.spot)
        return "".join(parts).removeprefix(".")

    def at(self, job: Tree) -> Tree:
        """The template as it is in the job, or `otherwise`."""
        return at(job, self.spot) if self.is_written(job) else dict(self.otherwise or {})

    def is_written(self, job: Tree) -> bool:
        """Whether the job has the template; one without `otherwise` counts as written."""
        return self.otherwise is None or bool(at(job, self.spot))


class PodSetConflict(msgspec.Struct, frozen=True):
    """Two sources define the same field of the pods differently. A retry does not resolve it."""

    message: str


class Missing(msgspec.Struct, frozen=True):
    """An object does not exist yet."""

    message: str


class PodSetInfo(msgspec.Struct, frozen=True):
    """What admission defines for the pods of one pod set."""

    name: str
    count: int
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Tree, ...] = ()
    scheduling_gates: tuple[Tree, ...] = ()


# --- Paths in trees ---------------------------------------------------------------------------------------------------


def at(tree: Any, spot: Spot) -> Tree:
    """The object at a path; an empty one if it is absent."""
    for part in spot:
        if isinstance(part, int):
            found = unstructured.sequence(tree)
            tree = found[part] if part < len(found) else None
        else:
            tree = unstructured.mapping(tree).get(part)
    return dict(unstructured.mapping(tree))


def put_at(tree: Any, spot: Spot, value: Any) -> Any:
    """The tree with `value` at a path. A list must be long enough."""
    if not spot:
        return value
    head, rest = spot[0], spot[1:]
    if isinstance(head, int):
        entries = list(unstructured.sequence(tree))
        entries[head] = put_at(entries[head], rest, value)
        return entries
    below = unstructured.mapping(tree)
    return {**below, head: put_at(below.get(head), rest, value)}


# --- Building ---------------------------------------------------------------------------------------------------------


def build(job: Tree, template: PodSetTemplate, options: IntegrationOptions) -> Tree:
    """The pod set of a template: as the user wrote it, with each environment variable once."""
    written = template.at(job)
    kept = {key: unstructured.get(written, "metadata", key) for key in ("labels", "annotations")}
    metadata = {key: value for key, value in kept.items() if value}
    tree: Tree = {
        "name": template.name.lower(),
        "count": template.count,
        "template": {
            "metadata": metadata,
            "spec": _with_amounts_as_text(with_single_variables(dict(unstructured.mapping(written.get("spec"))))),
        },
    }
    if template.min_count is not None and options.partial_admission:
        tree["minCount"] = template.min_count
    request = topology_request(metadata, template) if options.topology else {}
    if request:
        tree["topologyRequest"] = request
    return tree


def with_single_variables(spec: Tree) -> Tree:
    """A pod spec in which no container defines a variable twice: the last value, in the place of the first."""
    for key in ("initContainers", "containers"):
        if unstructured.sequence(spec.get(key)):
            spec = {**spec, key: [_with_single_variables(container) for container in spec[key]]}
    return spec


def _with_single_variables(container: Any) -> Any:
    variables = unstructured.sequence(unstructured.get(container, "env"))
    last = {unstructured.text(unstructured.get(variable, "name")): variable for variable in variables}
    return container if len(last) == len(variables) else {**container, "env": list(last.values())}


def _with_amounts_as_text(spec: Tree) -> Tree:
    """A pod spec whose containers have no fractions as amounts: a template with `cpu: 0.5` is stored under a CRD that
    does not check it, and a Workload takes only whole numbers and text."""
    for key in ("initContainers", "containers"):
        containers = unstructured.sequence(spec.get(key))
        changed = [_container_with_text(container) for container in containers]
        if any(new is not old for new, old in zip(changed, containers, strict=True)):
            spec = {**spec, key: changed}
    return spec


def _container_with_text(container: Any) -> Any:
    for key in ("requests", "limits"):
        amounts = unstructured.mapping(unstructured.get(container, "resources", key))
        if any(isinstance(amount, float) for amount in amounts.values()):
            text = {name: _amount(each) if isinstance(each, float) else each for name, each in amounts.items()}
            container = unstructured.put(container, ("resources", key), text)
    return container


def topology_request(metadata: object, template: PodSetTemplate) -> Tree:
    """The topology request of a pod set, from the annotations of its template."""
    annotations = unstructured.texts(unstructured.get(metadata, "annotations"))
    request: Tree = {}
    if labels.PODSET_REQUIRED_TOPOLOGY in annotations:
        request["required"] = annotations[labels.PODSET_REQUIRED_TOPOLOGY]
    elif labels.PODSET_PREFERRED_TOPOLOGY in annotations:
        request["preferred"] = annotations[labels.PODSET_PREFERRED_TOPOLOGY]
    elif labels.PODSET_UNCONSTRAINED_TOPOLOGY in annotations:
        request["unconstrained"] = annotations[labels.PODSET_UNCONSTRAINED_TOPOLOGY].lower() in ("true", "t", "1")
    layers = topology_annotations.read_layers(annotations.get(labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS, "[]"))
    size = annotations.get(labels.PODSET_SLICE_SIZE, "")
    has_level = "required" in request or "preferred" in request
    found: Mapping[str, Any] = {
        "podSetGroupName": annotations.get(labels.PODSET_GROUP_NAME) if has_level else None,
        "podSetSliceRequiredTopology": annotations.get(labels.PODSET_SLICE_REQUIRED_TOPOLOGY),
        "podSetSliceSize": int(size) if size.isdigit() else None,
        "podsetSliceRequiredTopologyConstraints": [
            {"topology": layer.topology, "size": layer.size} for layer in layers or ()
        ],
        "podIndexLabel": template.pod_index_label,
        "subGroupIndexLabel": template.sub_group_index_label,
    }
    request |= {key: value for key, value in found.items() if value}
    # A replicated job without replicas has 0 groups, which is not the same as none stated.
    return request if template.sub_group_count is None else request | {"subGroupCount": template.sub_group_count}


# --- From an admission ------------------------------------------------------------------------------------------------


class StartContext(msgspec.Struct, frozen=True):
    """What the start of a job needs in addition to its Workload."""

    flavors: Mapping[str, kueue.ResourceFlavor]
    topology: bool = True
    assign_queue_labels: bool = True


def admitted(workload: kueue.Workload, placement: StartContext) -> tuple[PodSetInfo, ...] | PodSetConflict | Missing:
    """What the pods of an admitted Workload get, for each pod set.

    An assignment belongs to the pod set of its name. If the names differ, which webhooks refuse, it belongs to the pod
    set at its position, as in Kueue.
    """
    admission = workload.status.admission
    if admission is None:
        return PodSetConflict("the Workload has no admission")
    assigned = {assignment.name: assignment for assignment in admission.pod_set_assignments}
    names = [pod_set.name for pod_set in workload.spec.pod_sets]
    if len(admission.pod_set_assignments) != len(names):
        return PodSetConflict(f"there are assignments for {', '.join(sorted(assigned))}, which are not the pod sets")
    if assigned.keys() != set(names):
        assigned = dict(zip(names, admission.pod_set_assignments, strict=True))
    infos: list[PodSetInfo] = []
    for pod_set in workload.spec.pod_sets:
        assignment = assigned[pod_set.name]
        info = _assigned(workload, pod_set, assignment, placement)
        if isinstance(info, Missing):
            return info
        found = updated(info, workload)
        if isinstance(found, PodSetConflict):
            return found
        infos.append(found)
    return tuple(infos)


def updated(info: PodSetInfo, workload: kueue.Workload) -> PodSetInfo | PodSetConflict:
    """The info with the podSetUpdates of all checks of the Workload for this pod set."""
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name != info.name:
                continue
            merged = _merged(info, _of_update(update))
            if isinstance(merged, PodSetConflict):
                return PodSetConflict(f"check {check.name}, pod set {info.name}: {merged.message}")
            info = merged
    return info


def _assigned(
    workload: kueue.Workload, pod_set: kueue.PodSet, assignment: kueue.PodSetAssignment, placement: StartContext
) -> PodSetInfo | Missing:
    admission = workload.status.admission
    assert admission is not None
    chosen = dict.fromkeys(assignment.flavors[resource] for resource in sorted(assignment.flavors))
    missing = [name for name in chosen if name not in placement.flavors]
    if missing:
        return Missing(f"the ResourceFlavor {missing[0]} does not exist")
    specs = [placement.flavors[name].spec for name in chosen]
    marks = {labels.PODSET: pod_set.name}
    if labels.MULTIKUEUE_ORIGIN in workload.metadata.labels:
        marks[labels.MULTIKUEUE_WORKER_WORKLOAD_POD] = "true"
    if placement.assign_queue_labels:
        if workload.spec.queue_name:
            marks[labels.LOCAL_QUEUE_NAME] = workload.spec.queue_name
        # The name of a ClusterQueue may be longer than a label value.
        if not meta.check_label_name(admission.cluster_queue):
            marks[labels.CLUSTER_QUEUE_NAME] = admission.cluster_queue
    notes: dict[str, str] = {}
    gates: tuple[Tree, ...] = ()
    if placement.topology:
        notes[labels.WORKLOAD] = workload.metadata.name
    if workload.metadata.annotations.get(labels.ELASTIC_JOB) == "true":
        notes[labels.WORKLOAD_SLICE_NAME] = workload.metadata.annotations.get(
            labels.WORKLOAD_SLICE_NAME, workload.metadata.name
        )
    if assignment.topology_assignment is not None:
        gates = ({"name": labels.TOPOLOGY_GATE},)
        request = pod_set.topology_request
        if request is None or (request.required, request.preferred, request.unconstrained) == (None, None, None):
            notes[labels.PODSET_UNCONSTRAINED_TOPOLOGY] = "true"
    return PodSetInfo(
        name=pod_set.name,
        count=pod_set.count if assignment.count is None else assignment.count,
        labels=marks,
        annotations=notes,
        node_selector={key: value for spec in specs for key, value in spec.node_labels.items()},
        tolerations=tuple(codec.to_tree(toleration) for spec in specs for toleration in spec.tolerations),
        scheduling_gates=gates,
    )


def _of_update(update: kueue.PodSetUpdate) -> PodSetInfo:
    return PodSetInfo(
        name=update.name,
        count=0,
        labels=update.labels,
        annotations=update.annotations,
        node_selector=update.node_selector,
        tolerations=tuple(codec.to_tree(toleration) for toleration in update.tolerations),
    )


def _merged(info: PodSetInfo, more: PodSetInfo) -> PodSetInfo | PodSetConflict:
    maps: dict[str, Mapping[str, str]] = {}
    for what in ("labels", "annotations", "node_selector"):
        found = _united(getattr(info, what), getattr(more, what), what)
        if isinstance(found, PodSetConflict):
            return found
        maps[what] = found
    return replace(
        info,
        tolerations=with_tolerations(info.tolerations, more.tolerations),
        scheduling_gates=_appended(info.scheduling_gates, more.scheduling_gates),
        **maps,
    )


# --- Into a template and back -----------------------------------------------------------------------------------------

# Annotations that may be overwritten: another slice of the same job has replaced the one before.
_REPLACEABLE: Final = frozenset({labels.WORKLOAD_SLICE_NAME})


def injected(template: Tree, info: PodSetInfo) -> Tree | PodSetConflict:
    """The template, or pod, with what admission adds to it."""
    metadata = dict(unstructured.mapping(template.get("metadata")))
    spec = dict(unstructured.mapping(template.get("spec")))
    for holder, key, more in (
        (metadata, "labels", info.labels),
        (metadata, "annotations", info.annotations),
        (spec, "nodeSelector", info.node_selector),
    ):
        replaceable = _REPLACEABLE | ({labels.WORKLOAD} if labels.WORKLOAD_SLICE_NAME in more else frozenset())
        found = _united(unstructured.texts(holder.get(key)), more, key, replaceable)
        if isinstance(found, PodSetConflict):
            return found
        if found:
            holder[key] = dict(found)
    for key, additions, merge in (
        ("tolerations", info.tolerations, with_tolerations),
        ("schedulingGates", info.scheduling_gates, _appended),
    ):
        if additions:
            spec[key] = list(merge(tuple(unstructured.sequence(spec.get(key))), additions))
    return _with(template, metadata, spec)


def restored(template: Tree, info: PodSetInfo, keep_labels: Iterable[str] = ()) -> Tree:
    """The template with its labels, annotations, node selector, tolerations and gates as they are in `info`."""
    metadata = dict(unstructured.mapping(template.get("metadata")))
    spec = dict(unstructured.mapping(template.get("spec")))
    kept = {key: value for key, value in unstructured.texts(metadata.get("labels")).items() if key in set(keep_labels)}
    for holder, key, value in (
        (metadata, "labels", {**info.labels, **kept}),
        (metadata, "annotations", dict(info.annotations)),
        (spec, "nodeSelector", dict(info.node_selector)),
        (spec, "tolerations", list(info.tolerations)),
        (spec, "schedulingGates", list(info.scheduling_gates)),
    ):
        if value:
            holder[key] = value
        else:
            holder.pop(key, None)
    return _with(template, metadata, spec)


def original(workload: kueue.Workload) -> tuple[PodSetInfo, ...]:
    """The pods of a Workload before anything was injected, for each pod set."""
    return tuple(
        PodSetInfo(
            name=pod_set.name,
            count=pod_set.count,
            labels=pod_set.template.metadata.labels,
            annotations=pod_set.template.metadata.annotations,
            node_selector=pod_set.template.spec.node_selector,
            tolerations=tuple(map(codec.to_tree, pod_set.template.spec.tolerations)),
            scheduling_gates=tuple(map(codec.to_tree, pod_set.template.spec.scheduling_gates)),
        )
        for pod_set in workload.spec.pod_sets
    )


def _with(template: Tree, metadata: Tree, spec: Tree) -> Tree:
    result = {**template, "spec": spec}
    if metadata:
        result["metadata"] = metadata
    else:
        result.pop("metadata", None)
    return result


def _united(
    ours: Mapping[str, str], more: Mapping[str, str], what: str, replaceable: frozenset[str] = frozenset()
) -> dict[str, str] | PodSetConflict:
    for key, value in more.items():
        if ours.get(key, value) != value and key not in replaceable:
            return PodSetConflict(f"{what}: {key} is both {ours[key]!r} and {value!r}")
    return {**ours, **more}


def with_tolerations(ours: Sequence[Tree], more: Iterable[Tree]) -> tuple[Tree, ...]:
    """Tolerations with those of `more` that are not among them. As in Kubernetes, two are the same if key, operator,
    value and effect are, and no operator means Equal; of two that differ in their seconds the first stays."""
    result = list(ours)
    known = {_toleration_key(toleration) for toleration in ours}
    for toleration in more:
        if (key := _toleration_key(toleration)) not in known:
            known.add(key)
            result.append(toleration)
    return tuple(result)


def _toleration_key(toleration: Tree) -> tuple[str, ...]:
    operator = unstructured.text(unstructured.get(toleration, "operator")) or "Equal"
    return (operator, *(unstructured.text(unstructured.get(toleration, name)) for name in ("key", "value", "effect")))


def _appended(ours: Sequence[Tree], more: Iterable[Tree]) -> tuple[Tree, ...]:
    result = list(ours)
    result += [entry for entry in more if entry not in result]
    return tuple(result)


# --- Comparing --------------------------------------------------------------------------------------------------------


def equivalent(
    built: Sequence[kueue.PodSet], stored: Sequence[kueue.PodSet], *, counts: Sequence[int], tolerations: bool
) -> bool:
    """Whether pod sets are equivalent. `counts` are the expected ones; labels and node selectors do not matter.

    Of the containers the typed fields are compared, since cached Workloads have no others: image, command,
    environment, ports, resources, and the fields that a server sets by default in a job. A prebuilt Workload must have
    those defaults too, since no server sets them there.
    """
    return len(built) == len(stored) and all(
        ours.count == count
        and ours.min_count == theirs.min_count
        and _alike(ours.template.spec.init_containers, theirs.template.spec.init_containers)
        and _alike(ours.template.spec.containers, theirs.template.spec.containers)
        and (not tolerations or ours.template.spec.tolerations == theirs.template.spec.tolerations)
        for ours, theirs, count in zip(built, stored, counts, strict=True)
    )


def _alike(ours: Sequence[kube.Container], theirs: Sequence[kube.Container]) -> bool:
    return len(ours) == len(theirs) and all(
        a == b or _canonical(a) == _canonical(b) for a, b in zip(ours, theirs, strict=True)
    )


def _canonical(container: kube.Container) -> kube.Container:
    """A container with exact amounts and with the defaults that schemas of Workloads may have for it (JM1): the
    templates of some kinds are not validated by any API server before they are stored in a Workload."""
    return structs.replace(
        container,
        resources=_exact(container.resources),
        ports=tuple(structs.replace(port, protocol=port.protocol or _PROTOCOL) for port in container.ports),
        env=tuple(structs.replace(each, value_from=_with_names(each.value_from)) for each in container.env),
    )


_PROTOCOL: Final = "TCP"
_REFERENCES: Final = frozenset({"configMapKeyRef", "secretKeyRef"})


def _with_names(source: dict[str, Any] | None) -> dict[str, Any] | None:
    """The source of a variable; a reference without a name has an empty one."""
    if source is None or not _REFERENCES & source.keys():
        return source
    return {
        key: {"name": "", **value} if key in _REFERENCES and isinstance(value, dict) else value
        for key, value in source.items()
    }


def _exact(needs: kube.ResourceRequirements) -> kube.ResourceRequirements:
    """The same in canonical form, so that 1 and 1000m are equal."""
    return structs.replace(needs, requests=_amounts(needs.requests), limits=_amounts(needs.limits))


def _amounts(amounts: Mapping[str, quantity.QuantityText]) -> dict[str, quantity.QuantityText]:
    return {name: _amount(text) for name, text in amounts.items()}


def _amount(text: quantity.QuantityText) -> quantity.QuantityText:
    try:
        return str(quantity.parse(text))
    except quantity.QuantityError:
        return text
