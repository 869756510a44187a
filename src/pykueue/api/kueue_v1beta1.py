"""The differences of `kueue.x-k8s.io/v1beta1` from v1beta2, kind by kind.

The old version is served for clients that still write it. It has the same fields under a few other names, some fields
that the new one removed, fewer limits, and its own rules. Objects are converted when they are read or written
(`conversion`); the program itself uses v1beta2, so these fields are only described here, never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from kubemachinery.fields import Field, Int32, Subdomain, Time, ValidationRule, required
from kubemachinery.meta import ApiStruct
from kubemachinery.versions import (
    FieldRenamed,
    FieldsAdded,
    FieldsRemoved,
    LimitsChanged,
    RequiredFields,
    RulesReplaced,
    VersionChange,
)
from pykueue.api import kueue
from pykueue.api.kube import Labels, Taint

VERSION: Final = "v1beta1"
API_VERSION: Final = f"{kueue.GROUP}/{VERSION}"


def _looser(limits: Mapping[str, str]) -> tuple[LimitsChanged, ...]:
    """Places, and the names of the limits that the old version does not have there."""
    return tuple(LimitsChanged(place, tuple(names.split())) for place, names in limits.items())


# --- Fields that only the old version has -----------------------------------------------------------------------------


class ClusterQueueSpecFields(ApiStruct, frozen=True):
    """What the old ClusterQueue's specification has in addition."""

    admission_checks: Annotated[
        tuple[Annotated[str, Field(max_length=316)], ...],
        Field(
            "The AdmissionChecks that Workloads must pass, for all flavors. Write them in"
            " `admissionChecksStrategy` instead; when both are given, this list counts."
        ),
    ] = ()


class FairSharingStatusFields(ApiStruct, frozen=True):
    """What the old share of a ClusterQueue or Cohort has in addition."""

    admission_fair_sharing_status: Annotated[
        kueue.AdmissionFairSharingStatus | None, Field("Not used; see the same field of a LocalQueue.")
    ] = None


class ClusterQueuePendingWorkload(ApiStruct, frozen=True):
    """A Workload near the head of the queue."""

    name: Annotated[str, Field("The Workload's name.")] = required(str)
    namespace: Annotated[str, Field("The Workload's namespace.")] = required(str)


class ClusterQueuePendingWorkloadsStatus(ApiStruct, frozen=True):
    """The head of the queue, as it was shown once."""

    cluster_queue_pending_workload: Annotated[
        tuple[ClusterQueuePendingWorkload, ...], Field("The first Workloads of the queue.", list_type="atomic")
    ] = ()
    last_change_time: Annotated[Time, Field("When the list last changed.")] = required(str)


class ClusterQueueStatusFields(ApiStruct, frozen=True):
    """What the old ClusterQueue's status has in addition."""

    pending_workloads_status: Annotated[
        ClusterQueuePendingWorkloadsStatus | None,
        Field("No longer set; use the visibility API for pending Workloads."),
    ] = None


class TopologyInfo(ApiStruct, frozen=True):
    """The topology of a flavor."""

    name: Annotated[Subdomain, Field("The Topology.")] = required(str)
    levels: Annotated[
        tuple[str, ...], Field("The node labels of its levels.", min_items=1, max_items=16, list_type="atomic")
    ] = required(tuple)


class LocalQueueFlavorStatus(ApiStruct, frozen=True):
    """A flavor that Workloads of a LocalQueue can get."""

    name: Annotated[Subdomain, Field("The ResourceFlavor.")] = required(str)
    resources: Annotated[tuple[str, ...], Field("The resources that it provides.", max_items=64, list_type="set")] = ()
    node_labels: Annotated[Labels, Field("The labels of its nodes.", max_properties=8, map_type="atomic")] = {}
    node_taints: Annotated[tuple[Taint, ...], Field("The taints of its nodes.", max_items=8, list_type="atomic")] = ()
    topology: Annotated[TopologyInfo | None, Field("The topology of its nodes.")] = None


class LocalQueueStatusFields(ApiStruct, frozen=True):
    """What the old LocalQueue's status has in addition."""

    flavors: Annotated[
        tuple[LocalQueueFlavorStatus, ...],
        Field(
            "No longer filled in: the flavors that Workloads of this queue can get.",
            max_items=64,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()


class KubeConfig(ApiStruct, frozen=True):
    """Where the way to a worker cluster is written down."""

    location: Annotated[
        str,
        Field(
            "The name of a Secret in the manager's namespace, with the kubeconfig under the key `kubeconfig`; or the"
            " path of a file that the manager can read."
        ),
    ] = required(str)
    location_type: Annotated[
        str,
        Field("What `location` is: the name of a `Secret` or a `Path`.", enum=kueue.LocationType, default="Secret"),
    ] = required(str)


class MultiKueueClusterSpecFields(ApiStruct, frozen=True):
    """How to connect to a worker cluster, in v1beta1."""

    kube_config: Annotated[KubeConfig, Field("How to reach the cluster by a kubeconfig.")] = required(KubeConfig)
    cluster_profile_ref: Annotated[
        kueue.ClusterProfileReference | None,
        Field("How to reach the cluster by a ClusterProfile of a cluster inventory; it counts before `kubeConfig`."),
    ] = None


class TopologyDomainAssignment(ApiStruct, frozen=True):
    """A domain, and how many pods go there."""

    values: Annotated[
        tuple[str, ...],
        Field("The values of the labels in `levels`, in order.", min_items=1, max_items=16, list_type="atomic"),
    ] = required(tuple)
    count: Annotated[Int32, Field("How many pods go there.", minimum=1)] = required(int)


class TopologyAssignmentFields(ApiStruct, frozen=True):
    """The assigned topology domains, in v1beta1."""

    domains: Annotated[
        tuple[TopologyDomainAssignment, ...], Field("The domains that the pods go to, one entry each.")
    ] = required(tuple)


class WorkloadSpecFields(ApiStruct, frozen=True):
    """The source of a Workload's priority, in v1beta1."""

    priority_class_name: Annotated[
        Subdomain, Field("The class that the priority was taken from; `priorityClassSource` is its kind.")
    ] = ""
    priority_class_source: Annotated[
        str,
        Field(
            "The kind of `priorityClassName`: a WorkloadPriorityClass, a PriorityClass of pods, or empty when there is"
            " no class.",
            enum=("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""),
            default="",
        ),
    ] = ""


# --- The changes ------------------------------------------------------------------------------------------------------

_BOTH_SOURCES: Final = "has(oldSelf.spec.priorityClassSource) && has(self.spec.priorityClassSource)"

_WORKLOAD_RULES: Final = (
    kueue.ASSIGNMENTS_MATCH_POD_SETS,
    ValidationRule(
        f"{kueue.HAD_QUOTA} && {_BOTH_SOURCES}"
        " ? oldSelf.spec.priorityClassSource == self.spec.priorityClassSource : true",
        "spec.priorityClassSource cannot be changed while quota is reserved",
    ),
    ValidationRule(
        f"{kueue.HAD_QUOTA} && {_BOTH_SOURCES}"
        " && self.spec.priorityClassSource != 'kueue.x-k8s.io/workloadpriorityclass'"
        " && has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)"
        " ? oldSelf.spec.priorityClassName == self.spec.priorityClassName : true",
        "spec.priorityClassName cannot be changed while quota is reserved, unless it is a WorkloadPriorityClass",
    ),
    kueue.QUEUE_NAME_STAYS,
    kueue.EXECUTION_TIME_STAYS,
)

_ASSIGNMENT: Final = "status.admission.podSetAssignments[]"
_TOPOLOGY: Final = f"{_ASSIGNMENT}.topologyAssignment"
_REQUEST: Final = "spec.podSets[].topologyRequest"

CHANGES: Final[Mapping[str, tuple[VersionChange, ...]]] = {
    "ClusterQueue": (
        FieldRenamed("spec.cohortName", "cohort"),
        FieldsRemoved("spec", ("concurrentAdmissionPolicy",)),
        FieldsAdded("spec", ClusterQueueSpecFields),
        FieldsAdded("status", ClusterQueueStatusFields),
        FieldsAdded("status.fairSharing", FairSharingStatusFields),
        RequiredFields("spec.admissionChecksStrategy", ()),
        # Two old values of MayStopSearch.
        LimitsChanged(
            "spec.flavorFungibility.whenCanBorrow", field=Field(enum=(*kueue.FlavorFungibilityPolicy, "Borrow"))
        ),
        LimitsChanged(
            "spec.flavorFungibility.whenCanPreempt", field=Field(enum=(*kueue.FlavorFungibilityPolicy, "Preempt"))
        ),
        RulesReplaced("spec", (kueue.borrowing_needs_cohort("cohort"),)),
        *_looser(
            {
                "spec.admissionChecksStrategy.admissionChecks": "min_items max_items list_type list_map_keys",
                "spec.admissionChecksStrategy.admissionChecks[].name": "min_length",
                "spec.admissionChecksStrategy.admissionChecks[].onFlavors": "max_items list_type",
                "spec.admissionScope.admissionMode": "enum",
                "spec.resourceGroups[].coveredResources": "list_type",
                "status.conditions": "max_items",
            }
        ),
    ),
    "Cohort": (
        FieldsAdded("status.fairSharing", FairSharingStatusFields),
        *_looser({"spec.resourceGroups[].coveredResources": "list_type"}),
    ),
    "LocalQueue": (
        FieldRenamed("status.flavorsUsage", "flavorUsage"),
        FieldsAdded("status", LocalQueueStatusFields),
        *_looser({"status.conditions": "max_items"}),
    ),
    "Workload": (
        FieldRenamed("status.accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds"),
        FieldsRemoved("spec", ("priorityClassRef", "preemptionGates")),
        FieldsRemoved("status", ("preemptionGates",)),
        FieldsRemoved(_REQUEST, ("podsetSliceRequiredTopologyConstraints",)),
        FieldsRemoved(_TOPOLOGY, ("slices",)),
        FieldsAdded("spec", WorkloadSpecFields),
        FieldsAdded(_TOPOLOGY, TopologyAssignmentFields),
        RequiredFields("spec", ("podSets",)),
        RequiredFields("spec.podSets[]", ("count", "template")),
        RequiredFields("status.admission", ("clusterQueue", "podSetAssignments")),
        RequiredFields(_ASSIGNMENT, ("name",)),
        RulesReplaced("", _WORKLOAD_RULES),
        RulesReplaced(
            "spec",
            (
                ValidationRule(
                    "!has(self.priorityClassName) || has(self.priority)", "priority must be set when its class is"
                ),
            ),
        ),
        *_looser(
            {
                f"{_REQUEST}.podIndexLabel": "max_length",
                f"{_REQUEST}.podSetGroupName": "max_length",
                f"{_REQUEST}.podSetSliceRequiredTopology": "max_length",
                f"{_REQUEST}.preferred": "max_length",
                f"{_REQUEST}.required": "max_length",
                f"{_REQUEST}.subGroupCount": "minimum",
                f"{_REQUEST}.subGroupIndexLabel": "max_length",
                f"{_ASSIGNMENT}.delayedTopologyRequest": "enum max_length",
                _TOPOLOGY: "rules",
                f"{_TOPOLOGY}.levels[]": "max_length",
                "status.admissionChecks[].name": "min_length",
                "status.admissionChecks[].podSetUpdates[].tolerations": "list_type",
                "status.clusterName": "max_length",
                "status.conditions": "max_items",
                "status.nominatedClusterNames[]": "max_length",
                "status.schedulingStats.evictions": "max_items",
                "status.unhealthyNodes": "max_items list_type list_map_keys",
                "status.unhealthyNodes[].name": "max_length",
            }
        ),
    ),
    "WorkloadPriorityClass": _looser({"description": "max_length"}),
    "Topology": (
        RulesReplaced(
            "spec.levels",
            (
                ValidationRule(
                    "self == oldSelf", "the levels cannot be changed; use v1beta2 where the last one is the host name"
                ),
                kueue.UNIQUE,
                kueue.HOSTNAME_LAST,
            ),
        ),
    ),
    "AdmissionCheck": (
        *_looser(
            {
                "spec.controllerName": "min_length max_length",
                "spec.parameters.apiGroup": "min_length",
                "spec.parameters.kind": "min_length",
                "spec.parameters.name": "min_length",
                "status.conditions": "max_items",
            }
        ),
        LimitsChanged("spec.retryDelayMinutes", field=Field(default=15)),
    ),
    "ProvisioningRequestConfig": _looser(
        {
            "spec.podSetUpdates.nodeSelector": "list_type list_map_keys",
            "spec.provisioningClassName": "min_length",
        }
    ),
    "MultiKueueConfig": (
        FieldsRemoved("spec", ("quotaManagement",)),
        LimitsChanged("spec.clusters", ("rules",), Field(list_type="set")),
        *_looser({"spec.clusters[]": "max_length"}),
    ),
    "MultiKueueCluster": (
        FieldsRemoved("spec", ("clusterSource",)),
        FieldsAdded("spec", MultiKueueClusterSpecFields),
        *_looser({"status.conditions": "max_items"}),
    ),
}
