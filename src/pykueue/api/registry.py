"""The kinds with types in this program: its own first, then the parts of Kubernetes' kinds that it reads."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.kinds import Kind, Kinds, PrinterColumn, Scope, Version
from pykueue.api import autoscaling, budget, extensions, kube, kueue, kueue_v1beta1, quota_schedule

_DEPRECATED: Final = f"{kueue_v1beta1.API_VERSION} is deprecated; write {kueue.API_VERSION} instead"

_AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date", description="How long ago it was created.")


def _own(
    type_: type[msgspec.Struct],
    plural: str,
    *short_names: str,
    scope: Scope = Scope.CLUSTER,
    columns: tuple[PrinterColumn, ...] = (),
    old_columns: tuple[PrinterColumn, ...] | None = None,
    selectable: tuple[str, ...] = (),
    deprecation: str | None = _DEPRECATED,
    status: bool = True,
    converts: bool = False,
) -> Kind:
    """A kind of `kueue.x-k8s.io`: v1beta2 has the type and is stored, v1beta1 is served as well."""
    return Kind(
        group=kueue.GROUP,
        kind=type_.__name__,
        plural=plural,
        scope=scope,
        short_names=short_names,
        subresources=("status",) if status else (),
        converts=converts,
        versions=(
            Version(
                kueue_v1beta1.VERSION,
                deprecation=deprecation,
                columns=columns if old_columns is None else old_columns,
                changes=kueue_v1beta1.CHANGES.get(type_.__name__, ()),
            ),
            Version(kueue.VERSION, type_, storage=True, columns=columns, selectable=selectable),
        ),
    )


def _condition(name: str, condition: str, description: str) -> PrinterColumn:
    return PrinterColumn(name, f".status.conditions[?(@.type=='{condition}')].status", description=description)


_COHORT: Final = PrinterColumn("Cohort", ".spec.cohortName", description="The cohort it lends to and borrows from.")
_QUEUE_COLUMNS: Final = (
    _COHORT,
    PrinterColumn("Strategy", ".spec.queueingStrategy", priority=1, description="How its Workloads are ordered."),
    PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer", description="How many wait for quota."),
    PrinterColumn(
        "Admitted Workloads", ".status.admittedWorkloads", "integer", priority=1, description="How many are in."
    ),
)

KUEUE: Final = Kinds(
    (
        _own(
            kueue.ClusterQueue,
            "clusterqueues",
            "cq",
            columns=_QUEUE_COLUMNS,
            old_columns=(replace(_COHORT, path=".spec.cohort"), *_QUEUE_COLUMNS[1:]),
            converts=True,
        ),
        _own(kueue.Cohort, "cohorts", "co", converts=True),
        _own(
            kueue.LocalQueue,
            "localqueues",
            "queue",
            "queues",
            "lq",
            scope=Scope.NAMESPACED,
            columns=(
                PrinterColumn("ClusterQueue", ".spec.clusterQueue", description="The ClusterQueue it leads to."),
                PrinterColumn(
                    "Pending Workloads", ".status.pendingWorkloads", "integer", description="How many wait for quota."
                ),
                PrinterColumn(
                    "Admitted Workloads", ".status.admittedWorkloads", "integer", description="How many are in."
                ),
            ),
            converts=True,
        ),
        _own(
            kueue.Workload,
            "workloads",
            "kwl",
            "kueueworkload",
            "kueueworkloads",
            scope=Scope.NAMESPACED,
            columns=(
                PrinterColumn("Queue", ".spec.queueName", description="The LocalQueue it is in."),
                PrinterColumn(
                    "Reserved in",
                    ".status.admission.clusterQueue",
                    description="The ClusterQueue that reserves its quota.",
                ),
                _condition("Admitted", "Admitted", "Whether it may run."),
                _condition("Finished", "Finished", "Whether it is done."),
                _AGE,
            ),
            selectable=(".status.admission.clusterQueue",),
            converts=True,
        ),
        _own(
            kueue.WorkloadPriorityClass,
            "workloadpriorityclasses",
            "wpc",
            columns=(PrinterColumn("Value", ".value", "integer", description="The priority."),),
            status=False,
        ),
        _own(kueue.ResourceFlavor, "resourceflavors", "flavor", "flavors", "rf", status=False),
        _own(kueue.Topology, "topologies", "topo", status=False),
        _own(kueue.AdmissionCheck, "admissionchecks", "ac"),
        _own(kueue.ProvisioningRequestConfig, "provisioningrequestconfigs", "prc", status=False),
        # The one kind with an old version that Kueue does not mark as deprecated. It converts, although Kueue's
        # one does not: `quotaManagement` would otherwise be lost to clients that write the old version.
        _own(kueue.MultiKueueConfig, "multikueueconfigs", "mkconf", status=False, deprecation=None, converts=True),
        _own(
            kueue.MultiKueueCluster,
            "multikueueclusters",
            "mkc",
            columns=(_condition("Connected", "Active", "Whether it can be reached."), _AGE),
            converts=True,
        ),
    )
)


def _extension(
    type_: type[msgspec.Struct], plural: str, *short_names: str, columns: tuple[PrinterColumn, ...] = ()
) -> Kind:
    """A cluster-scoped kind of `pykueue.io`, in its one version, with a status."""
    return Kind(
        group=extensions.GROUP,
        kind=type_.__name__,
        plural=plural,
        scope=Scope.CLUSTER,
        short_names=short_names,
        subresources=("status",),
        versions=(Version(extensions.VERSION, type_, storage=True, columns=columns),),
    )


# Kinds that Kueue does not have.
EXTENSIONS: Final = Kinds(
    (
        _extension(
            budget.Budget,
            "budgets",
            columns=(
                PrinterColumn("Every", ".spec.every", description="The length of a period."),
                PrinterColumn("Per", ".spec.per", description="What the hours are counted for."),
                _condition("Ready", "Ready", "Whether its accounts are known."),
                PrinterColumn("Until", ".status.periodEnd", description="When the present period ends."),
                _AGE,
            ),
        ),
        _extension(
            quota_schedule.QuotaSchedule,
            "quotaschedules",
            "qs",
            columns=(
                _condition("Ready", "Ready", "Whether it is applied."),
                PrinterColumn("Active", ".status.active", description="The windows in force."),
                PrinterColumn("Next", ".status.next.window", description="The next window."),
                PrinterColumn("At", ".status.next.at", description="When the next window begins."),
                _AGE,
            ),
        ),
    )
)

# The kinds with a CRD of this program: those of Kueue, and ours.
CUSTOM: Final = Kinds((*KUEUE, *EXTENSIONS))


def _core(
    api_version: str,
    type_: type[msgspec.Struct],
    plural: str,
    *short_names: str,
    scope: Scope = Scope.NAMESPACED,
    subresources: tuple[str, ...] = (),
) -> Kind:
    """A kind of Kubernetes' own, or of its autoscaler, in the one version that this program reads."""
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group,
        kind=type_.__name__,
        plural=plural,
        scope=scope,
        short_names=short_names,
        subresources=subresources,
        versions=(Version(version, type_, storage=True),),
    )


_STATUS: Final = ("status",)

KUBERNETES: Final = Kinds(
    (
        _core("v1", kube.Namespace, "namespaces", "ns", scope=Scope.CLUSTER, subresources=("status", "finalize")),
        _core("v1", kube.Node, "nodes", "no", scope=Scope.CLUSTER, subresources=_STATUS),
        _core("v1", kube.Pod, "pods", "po", subresources=("status", "log", "eviction", "binding")),
        _core("v1", kube.PodTemplate, "podtemplates"),
        _core("v1", kube.LimitRange, "limitranges", "limits"),
        _core("v1", kube.ConfigMap, "configmaps", "cm"),
        _core("v1", kube.Secret, "secrets"),
        _core("batch/v1", kube.Job, "jobs", subresources=_STATUS),
        _core("events.k8s.io/v1", kube.Event, "events", "ev"),
        _core("coordination.k8s.io/v1", kube.Lease, "leases"),
        _core("node.k8s.io/v1", kube.RuntimeClass, "runtimeclasses", scope=Scope.CLUSTER),
        _core("scheduling.k8s.io/v1", kube.PriorityClass, "priorityclasses", "pc", scope=Scope.CLUSTER),
    )
)

# Of the cluster autoscaler; a cluster need not have it.
AUTOSCALING: Final = Kinds(
    (
        _core(
            autoscaling.API_VERSION,
            autoscaling.ProvisioningRequest,
            "provisioningrequests",
            "provreq",
            "provreqs",
            subresources=_STATUS,
        ),
    )
)

# All kinds with a type.
ALL: Final = Kinds((*CUSTOM, *KUBERNETES, *AUTOSCALING))
