"""Whether nodes can hold the pods of a Workload, which quota does not guarantee.

A Workload that is admitted beyond the capacity of the nodes keeps its quota and never runs. The results are estimates
from requests: the pods of other Workloads are placed first, in the order of their names, each on the first node that
fits, as the runner does. Without Nodes among the objects nothing is reported; the same if admission checks may
provision nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from pykueue.analysis.object_changes import Objects
from pykueue.analysis.planner import SchedulingPlan
from pykueue.api import kube, kueue, labels
from pykueue.core.amounts import Amount
from pykueue.lifecycle import states
from pykueue.runner import node_assignment
from pykueue.runner.node_assignment import PodDemand

Taken: TypeAlias = dict[str, Counter[str]]
"""Usage by node."""


def pending_pods(objects: Objects, made: SchedulingPlan, target: str) -> str:
    """Why pods of a Workload that holds quota in the plan would not run; empty if they would, or without nodes."""
    nodes = sorted(
        (thing for thing in objects.values() if isinstance(thing, kube.Node)), key=lambda node: node.metadata.name
    )
    if not nodes or target not in made.admissions or _brings_nodes(objects, made.admissions[target]):
        return ""
    wanted = list(_demands(objects, made, target))
    if why := _place(nodes, {}, wanted):
        return f"its pods will stay Pending: {why}"
    taken: Taken = {}
    for key in sorted(made.admissions.keys() - {target}):
        _place(nodes, taken, list(_demands(objects, made, key)))
    if why := _place(nodes, taken, wanted):
        return f"its pods will stay Pending until pods of other Workloads end: {why}"
    return ""


def knows_nodes(objects: Objects) -> bool:
    return any(isinstance(thing, kube.Node) for thing in objects.values())


def unscheduled_pods(objects: Iterable[msgspec.Struct], workload: kueue.Workload) -> Iterator[str]:
    """Why pods of an admitted Workload have no node, one sentence for each reason."""
    owners = {owner.uid for owner in workload.metadata.owner_references}
    found: dict[str, list[str]] = {}
    for pod in objects:
        if not isinstance(pod, kube.Pod) or pod.spec.node_name or pod.spec.scheduling_gates:
            continue
        metadata = pod.metadata
        is_of_workload = (
            metadata.uid in owners
            or any(owner.uid in owners for owner in metadata.owner_references)
            or metadata.annotations.get(labels.WORKLOAD) == workload.metadata.name
        )
        scheduled = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        same_namespace = metadata.namespace == workload.metadata.namespace
        if is_of_workload and same_namespace and scheduled is not None and scheduled.status == "False":
            found.setdefault(scheduled.message or scheduled.reason, []).append(metadata.name)
    for why, names in found.items():
        yield f"pod {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"


def _brings_nodes(objects: Objects, admission: Mapping[str, Any]) -> bool:
    """Whether the ClusterQueue has admission checks: one of them may provision nodes."""
    queue = objects.get((kueue.ClusterQueue, "", str(admission.get("clusterQueue", ""))))
    strategy = queue.spec.admission_checks_strategy if isinstance(queue, kueue.ClusterQueue) else None
    return strategy is not None and bool(strategy.admission_checks)


def _demands(objects: Objects, made: SchedulingPlan, key: str) -> Iterator[tuple[str, PodDemand, int]]:
    """The pods of a Workload as its job will create them: by pod set, with the node labels of its flavors."""
    workload = made.workloads.get(key)
    if workload is None or states.is_finished(workload):
        return
    templates = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    for assigned in made.admissions[key].get("podSetAssignments", ()):
        pod_set = templates.get(assigned.get("name", ""))
        if pod_set is None or assigned.get("topologyAssignment"):
            continue  # a topology assignment already places the pods
        spec = pod_set.template.spec
        selector, tolerations = dict(spec.node_selector), list(spec.tolerations)
        for name in sorted(set(assigned.get("flavors", {}).values())):
            flavor = objects.get((kueue.ResourceFlavor, "", name))
            if isinstance(flavor, kueue.ResourceFlavor):
                selector |= flavor.spec.node_labels
                tolerations += flavor.spec.tolerations
        pod = kube.Pod(spec=msgspec.structs.replace(spec, node_selector=selector, tolerations=tuple(tolerations)))
        yield pod_set.name, PodDemand.of(pod), assigned.get("count") or pod_set.count


def _place(nodes: Sequence[kube.Node], taken: Taken, wanted: Sequence[tuple[str, PodDemand, int]]) -> str:
    """Place the pods on nodes, and return why some fit on none; empty if all do. Equal pods are placed in groups."""
    for name, demand, count in wanted:
        left = count
        for node in nodes:
            used = taken.setdefault(node.metadata.name, Counter())
            number = min(left, _fitting(demand, node, used))
            left -= number
            used.update({resource: amount * number for resource, amount in demand.asked.items()})
        if left:
            why = node_assignment.unschedulable_message(
                [demand.unfit_reason(node, taken[node.metadata.name]) for node in nodes]
            )
            return why if count == 1 else f"{left} of {count} pods of pod set {name}: {why}"
    return ""


def _fitting(demand: PodDemand, node: kube.Node, used: Mapping[str, Amount]) -> int:
    """The number of these pods that still fit on the node."""
    if demand.unfit_reason(node, used):
        return 0
    return min(
        (node_assignment.allocatable(node, resource) - used.get(resource, 0)) // amount
        for resource, amount in demand.asked.items()
        if amount
    )
