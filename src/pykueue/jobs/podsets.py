"""Pod templates: read into pod sets, given what they need to run, and put back as they were.

A `PodSetInfo` is everything about the pods of one set that admission may change. One is read off an admission and
injected into the job when it starts; another is read off the Workload's spec and put back when the job stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from msgspec import structs

from kubemachinery import codec, meta, quantity, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.api.validation import topology_annotations
from pykueue.jobs.options import IntegrationOptions

# Where something stands in a tree, lists included: ("spec", "replicatedJobs", 0, "template").
Spot: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """A pod template of a job, and how many pods are made of it."""

    name: str
    spot: Spot
    count: int
    min_count: int | None = None
    pod_index_label: str = ""
    sub_group_index_label: str = ""
    sub_group_count: int | None = None


@dataclass(frozen=True, slots=True)
class PodSetConflict:
    """Two parties want different things of the same pods. Nobody but them can settle it."""

    message: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Something is not there that may still come."""

    message: str


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """What admission says about the pods of one set."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Tree, ...] = ()
    scheduling_gates: tuple[Tree, ...] = ()


# --- Places in trees --------------------------------------------------------------------------------------------------


def at(tree: Any, spot: Spot) -> Tree:
    """The object at a spot; an empty one where there is none."""
    for part in spot:
        if isinstance(part, int):
            found = unstructured.sequence(tree)
            tree = found[part] if part < len(found) else None
        else:
            tree = unstructured.mapping(tree).get(part)
    return dict(unstructured.mapping(tree))


def put_at(tree: Any, spot: Spot, value: Any) -> Any:
    """The tree with `value` at a spot. A list must be long enough: nobody invents an entry."""
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
    """The pod set of a template: what the user wrote, each variable of the environment once."""
    written = at(job, template.spot)
    kept = {key: unstructured.get(written, "metadata", key) for key in ("labels", "annotations")}
    metadata = {key: value for key, value in kept.items() if value}
    tree: Tree = {
        "name": template.name.lower(),
        "count": template.count,
        "template": {
            "metadata": metadata,
            "spec": with_single_variables(dict(unstructured.mapping(written.get("spec")))),
        },
    }
    if template.min_count is not None and options.partial_admission:
        tree["minCount"] = template.min_count
    request = topology_request(metadata, template) if options.topology else {}
    if request:
        tree["topologyRequest"] = request
    return tree


def with_single_variables(spec: Tree) -> Tree:
    """A pod's spec in which no container names a variable twice: the last value counts, in the place of the first."""
    for key in ("initContainers", "containers"):
        if unstructured.sequence(spec.get(key)):
            spec = {**spec, key: [_with_single_variables(container) for container in spec[key]]}
    return spec


def _with_single_variables(container: Any) -> Any:
    variables = unstructured.sequence(unstructured.get(container, "env"))
    last = {unstructured.text(unstructured.get(variable, "name")): variable for variable in variables}
    return container if len(last) == len(variables) else {**container, "env": list(last.values())}


def topology_request(metadata: object, template: PodSetTemplate) -> Tree:
    """How close together the pods want to be, from the annotations of their template."""
    said = unstructured.texts(unstructured.get(metadata, "annotations"))
    request: Tree = {}
    if labels.PODSET_REQUIRED_TOPOLOGY in said:
        request["required"] = said[labels.PODSET_REQUIRED_TOPOLOGY]
    elif labels.PODSET_PREFERRED_TOPOLOGY in said:
        request["preferred"] = said[labels.PODSET_PREFERRED_TOPOLOGY]
    elif labels.PODSET_UNCONSTRAINED_TOPOLOGY in said:
        request["unconstrained"] = said[labels.PODSET_UNCONSTRAINED_TOPOLOGY].lower() in ("true", "t", "1")
    layers = topology_annotations.read_layers(said.get(labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS, "[]"))
    size = said.get(labels.PODSET_SLICE_SIZE, "")
    found: Mapping[str, Any] = {
        "podSetGroupName": said.get(labels.PODSET_GROUP_NAME),
        "podSetSliceRequiredTopology": said.get(labels.PODSET_SLICE_REQUIRED_TOPOLOGY),
        "podSetSliceSize": int(size) if size.isdigit() else None,
        "podsetSliceRequiredTopologyConstraints": [
            {"topology": layer.topology, "size": layer.size} for layer in layers or ()
        ],
        "podIndexLabel": template.pod_index_label,
        "subGroupIndexLabel": template.sub_group_index_label,
        "subGroupCount": template.sub_group_count,
    }
    return request | {key: value for key, value in found.items() if value}


# --- From an admission ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartContext:
    """What is needed beside the Workload itself to say how its pods are started."""

    flavors: Mapping[str, kueue.ResourceFlavor]
    topology: bool = True
    assign_queue_labels: bool = True


def admitted(workload: kueue.Workload, placement: StartContext) -> tuple[PodSetInfo, ...] | PodSetConflict | Missing:
    """How the pods of an admitted Workload are started, a set at a time.

    An assignment belongs to the pod set of its name, wherever it stands. Where the names differ, which webhooks refuse
    and only a writer without them can bring about, it belongs to the pod set at its position, as in Kueue.
    """
    admission = workload.status.admission
    if admission is None:
        return PodSetConflict("nothing is assigned")
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
        for check in workload.status.admission_checks:
            for update in check.pod_set_updates:
                if update.name != info.name:
                    continue
                merged = _merged(info, _of_update(update))
                if isinstance(merged, PodSetConflict):
                    return PodSetConflict(f"check {check.name}, pod set {info.name}: {merged.message}")
                info = merged
        infos.append(info)
    return tuple(infos)


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
    if placement.assign_queue_labels:
        if workload.spec.queue_name:
            marks[labels.LOCAL_QUEUE_NAME] = workload.spec.queue_name
        # A ClusterQueue's name may be longer than a label's value.
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
        wish = pod_set.topology_request
        if wish is None or (wish.required is None and wish.preferred is None and wish.unconstrained is None):
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
        tolerations=_appended(info.tolerations, more.tolerations),
        scheduling_gates=_appended(info.scheduling_gates, more.scheduling_gates),
        **maps,  # type: ignore[arg-type]
    )


# --- Into a template and back -----------------------------------------------------------------------------------------

# Marks of our own that may be overwritten: another slice of the same job has taken over.
_REPLACEABLE: Final = frozenset({labels.WORKLOAD_SLICE_NAME})


def injected(template: Tree, info: PodSetInfo) -> Tree | PodSetConflict:
    """The template with what admission adds to it; a pod itself counts as one."""
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
    for key, additions in (("tolerations", info.tolerations), ("schedulingGates", info.scheduling_gates)):
        if additions:
            spec[key] = list(_appended(tuple(unstructured.sequence(spec.get(key))), additions))
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
    """What the pods of a Workload were like before anything was injected, a set at a time."""
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
            return PodSetConflict(f"{what}: {key} would have to be both {ours[key]!r} and {value!r}")
    return {**ours, **more}


def _appended(ours: Sequence[Tree], more: Iterable[Tree]) -> tuple[Tree, ...]:
    result = list(ours)
    result += [entry for entry in more if entry not in result]
    return tuple(result)


# --- Comparing --------------------------------------------------------------------------------------------------------


def equivalent(
    built: Sequence[kueue.PodSet], stored: Sequence[kueue.PodSet], *, counts: Sequence[int], tolerations: bool
) -> bool:
    """Whether pod sets ask for the same. `counts` are those to expect; labels and node selectors do not matter.

    Of the containers it is the typed fields that are compared, since copies of Workloads keep no others: the image,
    what is run, its environment, ports and resources, and what a server adds where a job does not say it. A Workload
    made beforehand must say that too, as nobody adds it there.
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
        a == b or structs.replace(a, resources=_exact(a.resources)) == structs.replace(b, resources=_exact(b.resources))
        for a, b in zip(ours, theirs, strict=True)
    )


def _exact(needs: kube.ResourceRequirements) -> kube.ResourceRequirements:
    """The same with every amount written in one way, so that 1 and 1000m are equal."""
    return structs.replace(needs, requests=_amounts(needs.requests), limits=_amounts(needs.limits))


def _amounts(amounts: Mapping[str, quantity.QuantityText]) -> dict[str, quantity.QuantityText]:
    return {name: _amount(text) for name, text in amounts.items()}


def _amount(text: quantity.QuantityText) -> quantity.QuantityText:
    try:
        return str(quantity.parse(text))
    except quantity.QuantityError:
        return text
