"""The effect of every field that a user can write: it takes effect, is refused, or causes a warning.

One row per field, or per block of fields with the same effect: a row covers the fields below its path unless a deeper
row does.
tests/project/test_effects.py compares the rows with the schemas, and the modules they name with the code; the page
docs/reference/fields.md is generated from them; `warnings` and `configuration_warnings` use them, at admission, in
`pykueue lint`, in `pykueue config check` and in the log at start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels


class EffectKind(StrEnum):
    APPLIES = "takes effect"
    WRITTEN = "written by the manager"
    CONVERTED = "converted"
    WARNED = "warned about"
    REFUSED = "refused"


class FieldEffect(msgspec.Struct, frozen=True):
    """One field, or one block of fields."""

    path: str
    fate: EffectKind
    # The modules that read or write the field.
    modules: tuple[str, ...] = ()
    # The field takes effect while one of these gates is on; while all are off, there is a warning.
    gates: tuple[str, ...] = ()
    # Why there is no effect, or what the field is converted to.
    note: str = ""
    # The default that a server sets; it causes no warning.
    default: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].removesuffix("[]")

    def warning(self, on: Collection[str]) -> str:
        """The warning about a field that is set and has no effect; empty when it has one."""
        if self.fate is EffectKind.WARNED:
            return f"has no effect: {self.note}"
        if self.gates and not any(gate in on for gate in self.gates):
            off = (
                f"the gate {self.gates[0]} is" if len(self.gates) == 1 else f"the gates {' and '.join(self.gates)} are"
            )
            return f"has no effect while {off} off"
        return ""


def _applies(path: str, *modules: str, gates: tuple[str, ...] = (), note: str = "", default: str = "") -> FieldEffect:
    return FieldEffect(path, EffectKind.APPLIES, modules, gates, note, default)


def _written(path: str, *modules: str, note: str = "") -> FieldEffect:
    return FieldEffect(path, EffectKind.WRITTEN, modules, note=note)


def _converted(path: str, becomes: str) -> FieldEffect:
    return FieldEffect(path, EffectKind.CONVERTED, note=becomes)


def _warned(path: str, why: str) -> FieldEffect:
    return FieldEffect(path, EffectKind.WARNED, note=why)


NO_MULTIKUEUE: Final = "MultiKueue is not implemented in this version"
_NO_DEVICES: Final = "devices are not counted in this version, and a Workload that claims devices is refused"

_AFS: Final = ("AdmissionFairSharing",)
_FUNGIBILITY: Final = ("FlavorFungibility",)
_TAS: Final = ("TopologyAwareScheduling",)
_VARIANTS: Final = ("ConcurrentAdmission",)
_BUDGETS: Final = ("Budgets",)
_CALENDAR: Final = ("QuotaCalendar",)
_PREEMPTION_GATES: Final = ("ConcurrentAdmission", "MultiKueueOrchestratedPreemption")


def _resource_groups() -> tuple[FieldEffect, ...]:
    quota = "spec.resourceGroups[].flavors[].resources[]"
    return (
        _applies("spec.resourceGroups[].coveredResources", "state/specs.py"),
        _applies("spec.resourceGroups[].flavors[].name", "state/specs.py", "lifecycle/queues.py"),
        _applies(f"{quota}.name", "state/specs.py"),
        _applies(f"{quota}.nominalQuota", "state/specs.py"),
        _applies(f"{quota}.borrowingLimit", "state/specs.py", "core/quota.py"),
        _applies(f"{quota}.lendingLimit", "state/specs.py", "core/cohort.py"),
    )


# Rows of the stored version, by kind.
ROWS: Final[Mapping[str, tuple[FieldEffect, ...]]] = {
    "ClusterQueue": (
        *_resource_groups(),
        _applies("spec.admissionChecksStrategy.admissionChecks[].name", "lifecycle/queues.py", "state/specs.py"),
        _applies("spec.admissionChecksStrategy.admissionChecks[].onFlavors", "state/specs.py", "lifecycle/checks.py"),
        _applies("spec.admissionScope.admissionMode", "state/specs.py", gates=_AFS),
        _applies("spec.cohortName", "state/specs.py", "state/structure.py"),
        _applies("spec.concurrentAdmissionPolicy", "state/specs.py", gates=_VARIANTS),
        _applies("spec.defaultLocalQueue", "controllers/default_local_queues.py", gates=("DefaultLocalQueue",)),
        _applies("spec.excludeResourcePrefixes", "state/parts.py", gates=("ClusterQueueExcludeResourcePrefixes",)),
        _applies("spec.fairSharing.weight", "state/specs.py"),
        _applies("spec.flavorFungibility.preference", "state/specs.py", gates=_FUNGIBILITY),
        _applies("spec.flavorFungibility.whenCanBorrow", "state/specs.py", gates=_FUNGIBILITY, default="MayStopSearch"),
        _applies(
            "spec.flavorFungibility.whenCanPreempt", "state/specs.py", gates=_FUNGIBILITY, default="TryNextFlavor"
        ),
        _applies("spec.namespaceSelector", "state/structure.py"),
        _applies("spec.preemption.borrowWithinCohort.maxPriorityThreshold", "core/preemption/classical.py"),
        _applies("spec.preemption.borrowWithinCohort.policy", "state/specs.py", "core/preemption/classical.py"),
        _applies("spec.preemption.reclaimWithinCohort", "state/specs.py", "core/preemption/classical.py"),
        _applies("spec.preemption.withinClusterQueue", "state/specs.py", "core/preemption/classical.py"),
        _applies("spec.queueingStrategy", "state/specs.py"),
        _applies("spec.stopPolicy", "lifecycle/queues.py", "lifecycle/rules/queue_stopped.py"),
        _written("status", "lifecycle/queues.py"),
    ),
    "Cohort": (
        *_resource_groups(),
        _applies("spec.fairSharing.weight", "state/specs.py"),
        _applies("spec.parentName", "state/specs.py"),
        _written("status", "lifecycle/queues.py"),
    ),
    "LocalQueue": (
        _applies("spec.clusterQueue", "state/intake.py", "lifecycle/facts.py"),
        _applies("spec.fairSharing.weight", "state/intake.py"),
        _applies("spec.stopPolicy", "lifecycle/facts.py", "lifecycle/rules/queue_stopped.py"),
        _written("status", "lifecycle/queues.py"),
    ),
    "Workload": (
        _applies("spec.active", "lifecycle/states.py"),
        _applies("spec.maximumExecutionTimeSeconds", "lifecycle/rules/execution_time.py"),
        _applies("spec.podSets[].count", "state/pod_set_requests.py"),
        _applies(
            "spec.podSets[].minCount", "state/pod_set_requests.py", "core/nomination.py", gates=("PartialAdmission",)
        ),
        _applies("spec.podSets[].name", "state/pod_set_requests.py"),
        _applies("spec.podSets[].template", "state/pod_set_requests.py", "jobs/podsets.py"),
        _applies("spec.podSets[].topologyRequest", "state/pod_set_requests.py", "jobs/podsets.py", gates=_TAS),
        _applies("spec.preemptionGates", "lifecycle/rules/preemption_gates.py", gates=_PREEMPTION_GATES),
        _applies("spec.priority", "state/workload_info.py"),
        _applies("spec.priorityClassRef", "controllers/priority_class.py", "jobs/workloads.py"),
        _applies("spec.queueName", "state/parts.py"),
        _written("status", "lifecycle/workload_changes.py"),
        _applies(
            "status.admission", "state/workload_info.py", note="read back after a restart and from other managers"
        ),
        _applies("status.admissionChecks", "lifecycle/checks.py", note="written by the controllers of the checks"),
        _applies("status.reclaimablePods", "state/pod_set_requests.py", gates=("ReclaimablePods",)),
        _applies("status.requeueState", "state/workload_info.py"),
        _applies("status.unhealthyNodes", "state/workload_info.py", gates=("TASFailedNodeReplacement",)),
        _applies("status.preemptionGates", "lifecycle/rules/preemption_gates.py", gates=_PREEMPTION_GATES),
        _written("status.clusterName", "lifecycle/eviction.py", note=f"only cleared, by an eviction: {NO_MULTIKUEUE}"),
        _written(
            "status.nominatedClusterNames",
            "lifecycle/eviction.py",
            note=f"only cleared, by an eviction: {NO_MULTIKUEUE}",
        ),
    ),
    "WorkloadPriorityClass": (
        _applies("value", "jobs/workloads.py", "controllers/priority_class.py"),
        _applies("description", note="text for readers; `kubectl get -o yaml` shows it"),
    ),
    "ResourceFlavor": (
        _applies("spec.nodeLabels", "core/eligibility.py", "jobs/podsets.py"),
        _applies("spec.nodeTaints", "state/specs.py"),
        _applies("spec.tolerations", "core/eligibility.py", "jobs/podsets.py"),
        _applies("spec.topologyName", "state/specs.py", "lifecycle/queues.py", gates=_TAS),
    ),
    "Topology": (_applies("spec.levels[].nodeLabel", "core/topology/parsing.py"),),
    "AdmissionCheck": (
        _applies(
            "spec.controllerName",
            "controllers/checks/owned_checks.py",
            note=f"`{labels.MULTIKUEUE_CONTROLLER}` is warned about: {NO_MULTIKUEUE}",
        ),
        _applies("spec.parameters", "controllers/checks/provisioning.py"),
        _applies("spec.preemptionPolicy", "lifecycle/facts.py", "state/specs.py"),
        _applies("spec.retryDelayMinutes", "lifecycle/checks.py"),
        _written("status", "controllers/checks/provisioning.py", note="by the controller of the check"),
    ),
    "ProvisioningRequestConfig": (
        _applies("spec.managedResources", "lifecycle/provisioning.py"),
        _applies("spec.parameters", "lifecycle/provisioning.py"),
        _applies("spec.podSetMergePolicy", "controllers/checks/pod_templates.py"),
        _applies("spec.podSetUpdates", "lifecycle/provisioning.py"),
        _applies("spec.provisioningClassName", "lifecycle/provisioning.py"),
        _applies("spec.retryStrategy", "lifecycle/provisioning.py"),
    ),
    "MultiKueueConfig": (_warned("spec.clusters", NO_MULTIKUEUE), _warned("spec.quotaManagement", NO_MULTIKUEUE)),
    "MultiKueueCluster": (
        _warned("spec.clusterSource", NO_MULTIKUEUE),
        _written("status", note=f"never: {NO_MULTIKUEUE}"),
    ),
    "Budget": (
        _applies("spec.every", "history/budget_periods.py", gates=_BUDGETS),
        _applies("spec.timeZone", "calendars.py", gates=_BUDGETS, default="UTC"),
        _applies("spec.per", "history/budget_accounts.py", gates=_BUDGETS, default="Total"),
        _applies("spec.amounts", "history/budget_rules.py", gates=_BUDGETS),
        _applies("spec.overrides", "history/budget_rules.py", gates=_BUDGETS),
        _applies("spec.rollover", "history/budget_rules.py", gates=_BUDGETS),
        _applies("spec.warnAt", "history/budget_rules.py", gates=_BUDGETS),
        _applies("spec.admit", "history/budget_answers.py", gates=_BUDGETS, default="WhileLeft"),
        _applies("spec.whenSpent", "controllers/checks/budget.py", gates=_BUDGETS, default="LetRun"),
        _written("status", "controllers/checks/budget_status.py"),
    ),
    "QuotaSchedule": (
        _applies("spec.timeZone", "calendars.py", gates=_CALENDAR, default="UTC"),
        _applies("spec.windows", "calendars.py", gates=_CALENDAR),
        _applies("spec.targets", "calendars.py", gates=_CALENDAR),
        _applies("spec.approach", "calendars.py", "state/quota_changes.py", gates=_CALENDAR, default="Ignore"),
        _applies("spec.onStart", "calendars.py", gates=_CALENDAR, default="Keep"),
        _applies("spec.notice", "calendars.py", "controllers/quota_schedules.py", gates=_CALENDAR),
        _written("status", "controllers/quota_schedules.py"),
    ),
    "Configuration": (
        _applies("admissionFairSharing.resourceWeights", "settings.py", "state/usage_history.py", gates=_AFS),
        _applies("admissionFairSharing.usageHalfLifeTime", "settings.py", gates=_AFS),
        _applies("admissionFairSharing.usageSamplingInterval", "settings.py", gates=_AFS),
        _applies(
            "clientConnection.burst", "app/cluster_manager.py", note="for `manager`; `up` needs no limit in its process"
        ),
        _applies(
            "clientConnection.qps", "app/cluster_manager.py", note="for `manager`; `up` needs no limit in its process"
        ),
        _applies("controller.cacheSyncTimeout", "app/options.py"),
        _applies("controller.groupKindConcurrency", "app/options.py"),
        _applies("fairSharing.preemptionStrategies", "settings.py"),
        _applies("featureGates", "settings.py"),
        _applies("health.healthProbeBindAddress", "app/ports.py"),
        _applies("health.livenessEndpointName", "app/ports.py"),
        _applies("health.readinessEndpointName", "app/ports.py"),
        _applies("integrations.externalFrameworks", "jobs/options.py"),
        _applies("integrations.frameworks", "jobs/options.py", "jobs/kinds.py"),
        _applies("integrations.labelKeysToCopy", "jobs/workloads.py"),
        _applies("internalCertManagement.enable", "webhooks/webhook_server.py", "install/manifests.py"),
        _applies("internalCertManagement.webhookSecretName", "webhooks/webhook_server.py"),
        _applies("internalCertManagement.webhookServiceName", "webhooks/webhook_server.py"),
        _applies("leaderElection.leaderElect", "app/cluster_manager.py"),
        _applies("leaderElection.leaseDuration", "app/options.py"),
        _applies("leaderElection.renewDeadline", "app/options.py"),
        FieldEffect("leaderElection.resourceLock", EffectKind.REFUSED, note="any value but `leases`"),
        _applies("leaderElection.resourceName", "app/options.py"),
        _applies("leaderElection.resourceNamespace", "app/options.py"),
        _applies("leaderElection.retryPeriod", "app/options.py"),
        _applies("manageJobsWithoutQueueName", "jobs/options.py"),
        _applies("managedJobsNamespaceSelector", "jobs/options.py"),
        _applies("metrics.bindAddress", "app/ports.py"),
        _applies("metrics.customLabels", "observe/metrics.py", "jobs/options.py", gates=("CustomMetricLabels",)),
        _applies("metrics.enableClusterQueueResources", "observe/metrics.py"),
        _applies("metrics.localQueueMetrics", "observe/metrics.py", gates=("LocalQueueMetrics",)),
        _warned("multiKueue.clusterProfile", NO_MULTIKUEUE),
        _warned("multiKueue.dispatcherName", NO_MULTIKUEUE),
        _warned("multiKueue.externalFrameworks", NO_MULTIKUEUE),
        _warned("multiKueue.gcInterval", NO_MULTIKUEUE),
        _warned("multiKueue.incrementalDispatcherConfig", NO_MULTIKUEUE),
        _warned("multiKueue.origin", NO_MULTIKUEUE),
        _warned("multiKueue.workerLostTimeout", NO_MULTIKUEUE),
        _applies("namespace", "settings.py", "app/options.py"),
        _applies("objectRetentionPolicies.workloads.afterDeactivatedByKueue", "jobs/options.py"),
        _applies("objectRetentionPolicies.workloads.afterFinished", "lifecycle/facts.py"),
        _applies("pprofBindAddress", "app/ports.py"),
        _warned("resources.deviceClassMappings", _NO_DEVICES),
        _applies("resources.excludeResourcePrefixes", "app/options.py"),
        _applies("resources.quotaCheck", "settings.py", gates=("QuotaCheck",)),
        _applies("resources.quotaCheckStrategy", "settings.py", gates=("QuotaCheckStrategy",)),
        _applies("resources.transformations[].input", "core/requests.py"),
        _applies("resources.transformations[].multiplyBy", "core/requests.py"),
        _applies("resources.transformations[].outputs", "core/requests.py"),
        _applies("resources.transformations[].strategy", "core/requests.py"),
        _applies("tls.cipherSuites", "settings.py"),
        _applies("tls.curvePreferences", "settings.py"),
        _applies("tls.minVersion", "settings.py"),
        _applies("visibilityServer.bindAddress", "app/ports.py", gates=("VisibilityOnDemand",)),
        _applies("visibilityServer.bindPort", "app/ports.py", gates=("VisibilityOnDemand",)),
        _applies("waitForPodsReady.blockAdmission", "app/options.py"),
        _applies("waitForPodsReady.recoveryTimeout", "lifecycle/facts.py"),
        _applies("waitForPodsReady.requeuingStrategy.backoffBaseSeconds", "lifecycle/facts.py"),
        _applies("waitForPodsReady.requeuingStrategy.backoffLimitCount", "lifecycle/facts.py"),
        _applies("waitForPodsReady.requeuingStrategy.backoffMaxSeconds", "lifecycle/facts.py"),
        _applies("waitForPodsReady.requeuingStrategy.timestamp", "settings.py"),
        _applies("waitForPodsReady.timeout", "lifecycle/facts.py"),
        _applies("webhook.certDir", "webhooks/webhook_server.py"),
        _applies("webhook.host", "webhooks/webhook_server.py"),
        _applies("webhook.port", "webhooks/webhook_server.py"),
    ),
}

_NO_LONGER_WRITTEN: Final = "never written: v1beta2 does not have it"

# Rows of fields that only v1beta1 has.
V1BETA1_ROWS: Final[Mapping[str, tuple[FieldEffect, ...]]] = {
    "ClusterQueue": (
        _converted("spec.cohort", "spec.cohortName"),
        _converted("spec.admissionChecks", "spec.admissionChecksStrategy"),
        _written("status.fairSharing.admissionFairSharingStatus", note=_NO_LONGER_WRITTEN),
        _written("status.pendingWorkloadsStatus", note=_NO_LONGER_WRITTEN),
    ),
    "Cohort": (_written("status.fairSharing.admissionFairSharingStatus", note=_NO_LONGER_WRITTEN),),
    "LocalQueue": (
        _converted("status.flavorUsage", "status.flavorsUsage"),
        _written("status.flavors", note=_NO_LONGER_WRITTEN),
    ),
    "Workload": (
        _converted("spec.priorityClassName", "spec.priorityClassRef"),
        _converted("spec.priorityClassSource", "spec.priorityClassRef"),
        _converted("status.accumulatedPastExexcutionTimeSeconds", "status.accumulatedPastExecutionTimeSeconds"),
        _converted(
            "status.admission.podSetAssignments[].topologyAssignment.domains",
            "status.admission.podSetAssignments[].topologyAssignment.slices",
        ),
    ),
    "MultiKueueCluster": (
        _converted("spec.clusterProfileRef", "spec.clusterSource"),
        _converted("spec.kubeConfig", "spec.clusterSource"),
    ),
    "Configuration": (
        _converted("fairSharing.enable", "fairSharing, which means on by being there"),
        _converted("waitForPodsReady.enable", "waitForPodsReady, which means on by being there"),
        _applies(
            "integrations.podOptions.namespaceSelector", "api/config_v1beta1.py", note="deprecated; causes a notice"
        ),
        _warned("integrations.podOptions.podSelector", "label the pods with a queue name instead"),
        _warned("queueVisibility", "the visibility API replaces it"),
    ),
}


def row_of(kind: str, path: str, version: str = "") -> FieldEffect | None:
    """The row that covers a field: its own, or that of the nearest block around it."""
    rows = {row.path: row for row in ROWS.get(kind, ())}
    if version == "v1beta1":
        rows |= {row.path: row for row in V1BETA1_ROWS.get(kind, ())}
    place = path
    while place:
        if place in rows:
            return rows[place]
        place = place.removesuffix("[]") if place.endswith("[]") else place.rpartition(".")[0]
    return None


def warnings(tree: Tree, on: Collection[str]) -> Iterator[str]:
    """A sentence for every field of an object in the stored version that is set and has no effect. `on` are the gates
    that are on. What the manager itself writes into the status is left out."""
    kind = unstructured.text(tree.get("kind"))
    for row in _SPEAKING.get(kind, ()):
        sentence = row.warning(on)
        if sentence and _is_set(tree, row.path.replace("[]", "").split("."), row.default):
            yield f"{row.path} {sentence}"
    if kind == "AdmissionCheck" and unstructured.get(tree, "spec", "controllerName") == labels.MULTIKUEUE_CONTROLLER:
        yield f"spec.controllerName {labels.MULTIKUEUE_CONTROLLER}: {NO_MULTIKUEUE}, so the check never becomes active"


def configuration_warnings(written: Tree, on: Collection[str]) -> Iterator[str]:
    """A sentence for every field that a Configuration sets without effect. `written` is what the operator wrote."""
    for row in ROWS["Configuration"]:
        sentence = row.warning(on)
        if sentence and _is_set(written, row.path.replace("[]", "").split(".")):
            yield f"{row.path}: {sentence}"


_SPEAKING: Final = {
    kind: tuple(
        row for row in rows if not row.path.startswith("status") and (row.gates or row.fate is EffectKind.WARNED)
    )
    for kind, rows in ROWS.items()
    if kind != "Configuration"
}


def _is_set(value: Any, path: list[str], default: str = "") -> bool:
    """Whether a value other than the default is at a path, in any entry of the lists on the way."""
    if isinstance(value, list):
        return any(_is_set(entry, path, default) for entry in value)
    if not path:
        return value not in (None, "", default) and (value != {} or not default)
    return isinstance(value, dict) and path[0] in value and _is_set(value[path[0]], path[1:], default)
