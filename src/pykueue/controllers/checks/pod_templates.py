"""The pods that nodes are requested for, as the autoscaler needs them: where they may run, and their requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from kubemachinery import quantity, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kueue
from pykueue.api.kueue import ProvisioningRequestConfigPodSetMergePolicy as MergePolicy
from pykueue.jobs import podsets
from pykueue.jobs.podsets import Missing, PodSetConflict, StartContext
from pykueue.lifecycle import provisioning


class Asked(msgspec.Struct, frozen=True):
    """A number of pods of one template. If pod sets share it, the first of them gives the name."""

    pod_set: str
    template: Tree
    count: int


def asked(
    workload: kueue.Workload,
    tree: Tree,
    config: kueue.ProvisioningRequestConfigSpec,
    flavors: Mapping[str, kueue.ResourceFlavor],
) -> tuple[Asked, ...] | PodSetConflict | Missing:
    """`tree` is the same Workload as it is stored: a typed copy does not keep all of a pod's template."""
    placed = podsets.admitted(workload, StartContext(flavors, topology=False, assign_queue_labels=False))
    if isinstance(placed, PodSetConflict | Missing):
        return placed
    infos = {info.name: info for info in placed}
    written = {
        unstructured.text(entry.get("name")): entry for _, entry in unstructured.entries(tree, "spec", "podSets")
    }
    alike = _ALIKE.get(config.pod_set_merge_policy or "")
    found: list[Asked] = []
    for pod_set in provisioning.pod_sets(workload, config):
        # Only where it runs matters: marks and gates are put on pods when they are made.
        info = replace(infos[pod_set.name], labels={}, annotations={}, scheduling_gates=())
        template = podsets.injected(podsets.at(written.get(pod_set.name), ("template",)), info)
        if isinstance(template, PodSetConflict):
            return PodSetConflict(f"pod set {pod_set.name}: {template.message}")
        template = _with_images(_with_requests(template))
        count = provisioning.granted(workload, pod_set)
        for place, other in enumerate(found):
            if alike is not None and alike(other.template) == alike(template):
                found[place] = replace(other, count=other.count + count)
                break
        else:
            found.append(Asked(pod_set.name, template, count))
    return tuple(found)


def _with_requests(template: Tree) -> Tree:
    """Set requests from limits: the server defaults them for a pod, but not for a PodTemplate."""
    spec = dict(unstructured.mapping(template.get("spec")))
    for key in ("initContainers", "containers"):
        if key in spec:
            spec[key] = [_requesting(container) for container in spec[key]]
    return {**template, "spec": _requesting(spec)}


def _with_images(template: Tree) -> Tree:
    """Give containers without an image that of the first one: those that only an operator adds, such as the autoscaler
    of a RayCluster, are counted without an image, which a PodTemplate needs [RY5]."""
    containers = unstructured.sequence(unstructured.get(template, "spec", "containers"))
    image = unstructured.text(unstructured.get(containers[0], "image")) if containers else ""
    if not image or all(unstructured.get(container, "image") for container in containers):
        return template
    whole = [container if container.get("image") else {**container, "image": image} for container in containers]
    return unstructured.put(template, ("spec", "containers"), whole)


def _requesting(holder: Tree) -> Tree:
    resources = unstructured.mapping(holder.get("resources"))
    limits = unstructured.mapping(resources.get("limits"))
    if not limits:
        return holder
    return {
        **holder,
        "resources": {**resources, "requests": {**limits, **unstructured.mapping(resources.get("requests"))}},
    }


# --- Which pod sets share an entry ------------------------------------------------------------------------------------


def _demands(template: Tree) -> Any:
    """What matters to a scheduler: what is asked for, and where it may run."""
    spec = unstructured.mapping(template.get("spec"))
    containers = [
        [_amounts(container) for _, container in unstructured.entries(spec, key)]
        for key in ("initContainers", "containers")
    ]
    rest = [spec.get(key) or None for key in ("nodeSelector", "tolerations", "affinity", "resourceClaims")]
    return containers, _amounts(spec), rest


def _amounts(holder: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: _exact(value)
        for name, value in unstructured.mapping(unstructured.get(holder, "resources", "requests")).items()
    }


def _exact(value: Any) -> object:
    """The amount, however it is written; what is none stands for itself."""
    try:
        return quantity.parse(value)
    except quantity.QuantityError:
        return value


_ALIKE: Mapping[str, Callable[[Tree], Any]] = {
    MergePolicy.IDENTICAL_POD_TEMPLATES: lambda template: template,
    MergePolicy.IDENTICAL_WORKLOAD_SCHEDULING_REQUIREMENTS: _demands,
}
