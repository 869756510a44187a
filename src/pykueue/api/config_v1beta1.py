"""Configuration v1beta1: its differences from v1beta2, and the conversion to v1beta2 when it is read.

It is defaulted as v1beta1 and then converted; the defaults of v1beta2 are not applied afterwards, because a block
that is absent in v1beta1 means *off* where in v1beta2 it means *on* (`waitForPodsReady`).
"""

from __future__ import annotations

from typing import Annotated, Final

from kubemachinery import unstructured
from kubemachinery.fields import Field, Int32
from kubemachinery.meta import ApiStruct, LabelSelector
from kubemachinery.unstructured import Tree
from kubemachinery.versions import FieldsAdded, FieldsRemoved, LimitsChanged, VersionChange
from pykueue.api.config import V1BETA1, V1BETA2, PreemptionStrategy


class _Switch(ApiStruct, frozen=True):
    enable: Annotated[bool, Field("Whether it is on at all.")] = False


class PodIntegrationOptions(ApiStruct, frozen=True):
    namespace_selector: Annotated[
        LabelSelector | None,
        Field("The namespaces in which plain pods are managed. Use `managedJobsNamespaceSelector`."),
    ] = None
    pod_selector: Annotated[LabelSelector | None, Field("The pods that are managed. It has no effect any more.")] = None


class _PodOptions(ApiStruct, frozen=True):
    pod_options: Annotated[PodIntegrationOptions | None, Field("Limits of the pod integration.")] = None


class QueueVisibility(ApiStruct, frozen=True):
    cluster_queues: Annotated[dict[str, Int32] | None, Field("How many pending Workloads were shown.")] = None
    update_interval_seconds: Annotated[Int32 | None, Field("How often they were updated.")] = None


class _QueueVisibility(ApiStruct, frozen=True):
    queue_visibility: Annotated[QueueVisibility | None, Field("Removed; use the visibility API instead.")] = None


CHANGES: Final[tuple[VersionChange, ...]] = (
    FieldsRemoved("", ("visibilityServer",)),
    FieldsRemoved("resources", ("quotaCheckStrategy",)),
    FieldsRemoved("resources.deviceClassMappings[]", ("sources",)),
    FieldsRemoved("metrics.customLabels[]", ("sourceKind", "trackedValues")),
    FieldsRemoved("multiKueue", ("clusterProfile", "incrementalDispatcherConfig")),
    FieldsAdded("", _QueueVisibility),
    FieldsAdded("integrations", _PodOptions),
    FieldsAdded("fairSharing", _Switch),
    FieldsAdded("waitForPodsReady", _Switch),
    LimitsChanged("waitForPodsReady", without=("default",)),
    LimitsChanged("waitForPodsReady.timeout", field=Field(default="5m")),
    LimitsChanged("waitForPodsReady.blockAdmission", field=Field(default=True)),
)

_POD_OPTIONS: Final = ("integrations", "podOptions")


def pod_namespace_selector(tree: Tree) -> Tree | None:
    """The selector that v1beta1 lays over `managedJobsNamespaceSelector` for pods, if the operator set one."""
    found = unstructured.find(tree, (*_POD_OPTIONS, "namespaceSelector"))
    return found if isinstance(found, dict) else None


def notices(tree: Tree) -> tuple[str, ...]:
    """Warnings about a file in this version, a sentence each."""
    found = [f"apiVersion: {V1BETA1} is deprecated; write {V1BETA2}"]
    if unstructured.find(tree, (*_POD_OPTIONS, "namespaceSelector")) is not unstructured.ABSENT:
        found.append(
            "integrations.podOptions.namespaceSelector: deprecated; it further limits managedJobsNamespaceSelector for"
            " Pod, Deployment and StatefulSet. Use managedJobsNamespaceSelector"
        )
    if unstructured.find(tree, (*_POD_OPTIONS, "podSelector")) is not unstructured.ABSENT:
        found.append("integrations.podOptions.podSelector: has no effect; label the pods with a queue name instead")
    if "queueVisibility" in tree:
        found.append("queueVisibility: has no effect; the visibility API took its place")
    return tuple(found)


def upgrade(tree: Tree) -> Tree:
    """A defaulted v1beta1 Configuration as v1beta2."""
    tree = {
        **unstructured.without(unstructured.without(tree, ("queueVisibility",)), _POD_OPTIONS),
        "apiVersion": V1BETA2,
    }
    for block in ("waitForPodsReady", "fairSharing"):
        enabled = unstructured.get(tree, block, "enable")
        tree = (
            unstructured.without(tree, (block, "enable")) if enabled is True else unstructured.without(tree, (block,))
        )
    if "fairSharing" in tree and not unstructured.get(tree, "fairSharing", "preemptionStrategies"):
        tree = unstructured.put(
            tree, ("fairSharing", "preemptionStrategies"), [str(each) for each in PreemptionStrategy]
        )
    return tree
