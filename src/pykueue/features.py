"""The feature gates: one table with name, default, stage, history, parents, and whether this program implements it.

A gate is read once, at the boundary: `resolve` turns the `featureGates` of a Configuration into a frozen `Gates`, and
`settings` passes plain values on. Adding a gate is a row here, the one place it controls, and a test with it on and
off. tests/project/test_gates.py compares this table with what the code reads.

A gate is on only if it is implemented: `default` is the value here, `in_kueue` the default of Kueue where that differs.
A gate that only changes the speed of Kueue (`speed_only`) can be set and changes nothing here; a notice is logged.

The defaults are those of Kueue 0.20; the stages name the earlier versions in which a gate is off.

Where the defaults differ from Kueue's: gates that are not implemented are off;
`ManagedJobsNamespaceSelectorAlwaysRespected` is off and can be changed, because a job that names a queue is managed in
every namespace (KEP-3589); `WorkloadRequestUseMergePatch` is locked to on, because a conditional merge patch is the one
way in which this program writes the status of a Workload; and the gates of the founding proposals, of the history, of
time, and `FairSharingPreemptionProgress` exist only here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec


class GateStage(StrEnum):
    """The maturity of a gate."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"
    DEPRECATED = "Deprecated"


class FeatureGate(msgspec.Struct, frozen=True):
    """One row: the name of the gate, its default here, and what it controls."""

    name: str
    default: bool
    stage: GateStage
    history: str
    implemented: bool
    meaning: str
    needs: tuple[str, ...] = ()
    locked: bool = False
    proposal: str = ""
    # The default of Kueue, where it is not the one here.
    in_kueue: bool | None = None
    # Whether the gate changes only how fast Kueue decides: both values give the same decisions and the same speed here.
    speed_only: bool = False

    @property
    def default_in_kueue(self) -> bool:
        return self.default if self.in_kueue is None else self.in_kueue


class GateProblem(NamedTuple):
    """Why an override is refused: the name of the gate as written, and a message."""

    name: str
    message: str


_A, _B, _GA, _D = GateStage.ALPHA, GateStage.BETA, GateStage.GA, GateStage.DEPRECATED
_HERE, _NOT_YET = True, False
_ON, _OFF = True, False
_TAS = "TopologyAwareScheduling"
_ELASTIC = "ElasticJobsViaWorkloadSlices"
_DRA = "KueueDRAIntegration"
_REPLACE = "TASFailedNodeReplacement"

_ROWS: Final[tuple[FeatureGate, ...]] = (
    # ----- proposals of this project
    FeatureGate("DefaultLocalQueue", _OFF, _A, "0.1", _HERE, "A ClusterQueue creates a LocalQueue in every namespace that it selects.", proposal="KEP-7610"),
    FeatureGate("ClusterQueueExcludeResourcePrefixes", _OFF, _A, "0.1", _HERE, "A ClusterQueue excludes resources from its quota by prefix, in addition to the global list.", proposal="KEP-5800"),
    FeatureGate("QuotaCheck", _OFF, _A, "0.1", _HERE, "`resources.quotaCheck` decides whether quota counts every requested resource or only the declared ones.", proposal="KEP-7513"),
    # ----- history and time
    FeatureGate("History", _ON, _B, "0.2", _HERE, "The records of Workloads are kept after the objects are deleted, if a file for them is named; `pykueue up` names one."),
    FeatureGate("WorkloadHints", _OFF, _A, "0.2", _HERE, "The webhook writes who submitted a job into `pykueue.io/submitted-by`, and its Workload gets the deadline of the job; on in `pykueue up` without a Configuration."),
    FeatureGate("Budgets", _OFF, _A, "0.3", _HERE, "AdmissionChecks with the controllerName `pykueue.io/budget` admit Workloads while their group has hours of a Budget left. It needs a history in a file or in memory.", needs=("History",)),
    FeatureGate("QuotaCalendar", _OFF, _A, "0.3", _HERE, "In the windows of QuotaSchedules of `pykueue.io`, ClusterQueues and Cohorts have the quotas that the schedules name; their specs are not changed."),
    FeatureGate("StartForecast", _ON, _B, "0.3", _HERE, "The API `views.pykueue.io` has the expected starts of pending Workloads, computed when they are asked for."),
    FeatureGate("LoopDetection", _ON, _B, "0.2", _HERE, "Workloads that preempt each other in turns, or are preempted again and again, are reported; it changes no decision."),
    FeatureGate("LoopGuard", _OFF, _A, "0.2", _HERE, "A preemption that would begin the fourth round of a preemption loop is delayed, until something else changes or the delay is over.", needs=("LoopDetection",)),
    FeatureGate("PlannedBackfill", _OFF, _A, "0.2", _HERE, "In a ClusterQueue with the annotation `pykueue.io/backfill`, a Workload that waits gets a planned start, and later Workloads start before it only if they do not delay it."),
    FeatureGate("DynamicQuotaOrchestration", _OFF, _A, "KEP-12382", _NOT_YET, "`status.effectiveQuotas` of a ClusterQueue counts instead of its spec. The CRDs that are served do not have this field, nor have those of the Kueue version they follow; QuotaSchedules change quota by the clock."),
    # ----- queues, quota and order
    FeatureGate("AdmissionFairSharing", _ON, _B, "0.12 Alpha, 0.15 Beta", _HERE, "LocalQueues with less recent usage of a ClusterQueue are admitted first, if the ClusterQueue enables it."),
    FeatureGate("AdmissionGatedBy", _ON, _B, "0.17 Alpha, 0.19 Beta", _HERE, "A Workload waits until every gate named in its `admission-gated-by` annotation is removed."),
    FeatureGate("ConcurrentAdmission", _OFF, _A, "0.18 Alpha", _HERE, "In a ClusterQueue with a `concurrentAdmissionPolicy`, a Workload is tried on every flavor at once, by one variant for each, and may move to a more favorable flavor."),
    FeatureGate("FairSharingPreemptionProgress", _ON, _B, "0.1 Beta", _HERE, "Under fair sharing, preemptions end: a preemptor gets the quota it freed, and between two outside changes only one of two Workloads preempts the other. Exists only here.", in_kueue=_OFF),
    FeatureGate("FairSharingPreemptWithinNominal", _ON, _B, "0.17 Beta", _HERE, "Under fair sharing, a ClusterQueue within its nominal quota may preempt regardless of shares."),
    FeatureGate("FairSharingPrioritizeNonBorrowing", _ON, _B, "0.17 Beta", _HERE, "Under fair sharing, subtrees that do not borrow the requested flavors come first."),
    FeatureGate("FlavorFungibility", _ON, _B, "0.5 Beta", _HERE, "The policies `whenCanBorrow` and `whenCanPreempt` decide how long flavors are searched."),
    FeatureGate("FlavorFungibilityPreserveScanProgress", _ON, _B, "0.19 Beta", _HERE, "A flavor search that stopped resumes at the next flavor in the next cycle.", needs=("FlavorFungibility",)),
    FeatureGate("PartialAdmission", _ON, _B, "0.4 Alpha, 0.5 Beta", _HERE, "A pod set with `minCount` may be admitted with fewer pods."),
    FeatureGate("PrioritizePreemptorWorkloads", _OFF, _A, "0.20 Alpha", _HERE, "A Workload that waits for its preemption targets to end is processed before other heads of its cohort, and keeps the quota it waits for."),
    FeatureGate("PriorityBoost", _OFF, _A, "0.17 Alpha", _HERE, "The annotation `priority-boost` shifts the effective priority of a Workload."),
    FeatureGate("PrioritySortingWithinCohort", _ON, _B, "0.6 Beta", _HERE, "Within a cycle, priority comes before creation time across the ClusterQueues of a cohort."),
    FeatureGate("QuotaCheckStrategy", _ON, _B, "0.18 Alpha, 0.19 Beta", _HERE, "`resources.quotaCheckStrategy` decides whether undeclared resources block a Workload."),
    FeatureGate("ReclaimablePods", _ON, _B, "0.15 Beta", _HERE, "Finished pods release their quota while the rest of the job runs."),
    FeatureGate("RecomputeAssignmentUponPreemptionTargetsOverlap", _ON, _B, "0.19 Alpha (off), 0.20 Beta", _HERE, "If two Workloads select the same preemption targets in one cycle, the assignment of the second is recomputed."),
    FeatureGate("SchedulingEquivalenceHashing", _ON, _B, "0.17 Beta (off), 0.18 Beta", _HERE, "A Workload that does not fit makes every queued Workload of its equivalence class inadmissible."),
    FeatureGate("UnadmittedWorkloadsExplicitStatus", _OFF, _B, "0.19 Beta (off)", _HERE, "A Workload gets its QuotaReserved and Admitted conditions, both False, as soon as it is seen.", needs=("UnadmittedWorkloadsObservability",)),
    FeatureGate("UnadmittedWorkloadsObservability", _ON, _B, "0.19 Beta (off), 0.20 Beta", _HERE, "A pending Workload has a specific reason instead of Pending."),
    FeatureGate("VectorizedResourceRequests", _ON, _B, "0.19 Beta", _HERE, "Requests are stored as vectors of integers; it changes speed, not decisions.", speed_only=True),
    # ----- topology
    FeatureGate(_TAS, _ON, _B, "0.9 Alpha, 0.14 Beta", _HERE, "Pods are placed by the topology of the nodes."),
    FeatureGate("SchedulerLibraryIntegration", _OFF, _A, "0.19 Alpha", _NOT_YET, "Placement uses the plugins of kube-scheduler, which exist as a Go library only."),
    FeatureGate("SkipReassignmentForPodOwnedWorkloads", _ON, _B, "0.19 Beta", _HERE, "A Workload that one pod owns is not moved to another node."),
    FeatureGate("TASAssignmentsEncodingByHostnamePrefix", _ON, _B, "0.19 Beta", _HERE, "Stored topology assignments share the common prefix of host names."),
    FeatureGate("TASBalancedPlacement", _OFF, _A, "0.15 Alpha", _HERE, "A preferred placement is spread evenly over the fewest domains that hold it.", needs=(_TAS,)),
    FeatureGate("TASCacheNodeMatchResults", _ON, _B, "0.19 Beta", _HERE, "The nodes that match a pod are cached; it changes speed, not decisions.", speed_only=True),
    FeatureGate("TASCacheTopologyTree", _ON, _B, "0.20 Beta", _HERE, "The topology tree is cached between cycles; it changes speed, not decisions.", speed_only=True),
    FeatureGate("TASCachingRemainingResources", _ON, _B, "0.19 Beta", _HERE, "Free capacity is updated incrementally; it changes speed, not decisions.", speed_only=True),
    FeatureGate(_REPLACE, _ON, _B, "0.12 Alpha, 0.14 Beta", _HERE, "A failed node is replaced without moving the rest of the placement.", needs=(_TAS,)),
    FeatureGate("TASFailedNodeReplacementFailFast", _ON, _B, "0.13 Alpha, 0.14 Beta", _HERE, "A Workload is evicted if the first search for a replacement of its failed node finds none.", needs=(_TAS, _REPLACE)),
    FeatureGate("TASHandleOverlappingFlavors", _ON, _B, "0.18 Beta", _HERE, "Flavors that share nodes count each other's usage.", needs=(_TAS,)),
    FeatureGate("TASMultiLayerTopology", _ON, _B, "0.17 Alpha, 0.19 Beta", _HERE, "Slices may be nested in layers, each kept together at its own level.", needs=(_TAS,)),
    FeatureGate("TASProfileMixed", _ON, _B, "0.10 Alpha, 0.15 Beta", _HERE, "Unconstrained placements use the domains with the least free capacity, others the best fit.", needs=(_TAS,)),
    FeatureGate("TASRecomputeAssignmentWithinSchedulingCycle", _ON, _B, "0.19 Beta", _HERE, "A placement that an earlier entry of the cycle took is recomputed in the same cycle.", needs=(_TAS,)),
    FeatureGate("TASReplaceNodeDueToNotReadyOverFixedTime", _OFF, _D, "0.17 Beta, 0.19 Deprecated (off)", _HERE, "A node that is not ready for 30 seconds counts as failed, whether pods go on there or not.", needs=(_TAS, _REPLACE)),
    FeatureGate("TASReplaceNodeOnNodeTaints", _ON, _B, "0.17 Beta", _HERE, "A taint that a pod does not tolerate makes its node count as failed.", needs=(_TAS,)),
    FeatureGate("TASReplaceNodeOnPodTermination", _ON, _B, "0.13 Alpha, 0.14 Beta", _HERE, "A node that is not ready, or has a taint that is not tolerated, counts as failed once no pod of the Workload goes on there; off: after 30 seconds and at once, whether pods go on or not.", needs=(_TAS, _REPLACE)),
    FeatureGate("TASRespectNodeAffinityPreferred", _OFF, _A, "0.18 Alpha", _HERE, "Preferred node affinity orders the domains.", needs=(_TAS,)),
    # ----- elastic jobs
    FeatureGate(_ELASTIC, _ON, _B, "0.13 Alpha, 0.18 Beta", _HERE, "A running job is scaled up by a new Workload slice that replaces the old one."),
    FeatureGate("ElasticJobsViaWorkloadSlicesWithTAS", _OFF, _A, "0.17 Alpha", _HERE, "A larger slice keeps the placement of the slice it replaces; only the added pods are placed.", needs=(_ELASTIC, _TAS)),
    # ----- validation
    FeatureGate("RejectUpdatesToCQWithInvalidOnFlavors", _OFF, _A, "0.18 Alpha", _HERE, "An update of a ClusterQueue is refused when a check names a flavor that the queue does not have."),
    FeatureGate("TASValidateWorkloadSliceSize", _ON, _B, "0.19 Beta", _HERE, "A Workload with an impossible slice size is refused."),
    FeatureGate("WorkloadValidateResourcesAreNonNegative", _ON, _B, "0.19 Beta", _HERE, "A Workload with a negative request is refused."),
    FeatureGate("WorkloadValidationForPodSetMetadata", _ON, _B, "0.19 Beta", _HERE, "Labels and annotations of pod templates are checked on the Workload."),
    # ----- jobs
    FeatureGate("AssignQueueLabelsForPods", _ON, _B, "0.17 Beta", _HERE, "Pods carry the names of their queues as labels."),
    FeatureGate("DeferRayServiceFinalizationForRedisCleanup", _ON, _B, "0.19 Beta", _HERE, "A RayService that is deleted keeps its Workload until its Redis is cleaned up and it is gone."),
    FeatureGate("DisableWaitForPodsReady", _OFF, _A, "0.19 Alpha", _HERE, "Disables `waitForPodsReady`."),
    FeatureGate("FailureRecoveryPolicy", _OFF, _A, "0.15 Alpha", _HERE, "A pod with the annotation `safe-to-forcefully-delete` that hangs while it is deleted on an unreachable node is deleted by force, a minute after its grace period."),
    FeatureGate("FastQuotaReleaseInPodIntegration", _OFF, _A, "0.17 Alpha", _HERE, "Pods release their quota as soon as they start to terminate."),
    FeatureGate("FinishOrphanedWorkloads", _ON, _B, "0.18 Beta", _HERE, "A Workload whose owner was deleted is finished."),
    FeatureGate("LWSImmutableGroupSize", _ON, _B, "0.19 Beta", _HERE, "The group size of a managed LeaderWorkerSet cannot be changed."),
    FeatureGate("ManagedJobsNamespaceSelectorAlwaysRespected", _OFF, _GA, "0.13 Alpha, 0.15 Beta, 0.19 GA", _HERE, "The namespace selector also overrides a job that names its queue. On and locked in Kueue; off here.", proposal="KEP-3589", in_kueue=_ON),
    FeatureGate("PodIntegrationValidateGroupOwner", _ON, _B, "0.18 Beta", _HERE, "A pod group does not adopt a Workload of another owner."),
    FeatureGate("RemoveFinalizersWithStrictPatch", _ON, _B, "0.17 Beta", _HERE, "Finalizers of pods are removed by a patch with a resourceVersion; if off, without one."),
    FeatureGate("ShortWorkloadNames", _OFF, _A, "0.17 Alpha", _HERE, "Derived Workload names stay within 63 characters."),
    FeatureGate("SkipAncestorCheckForDeletedWorkloads", _ON, _B, "0.19 Beta", _HERE, "The ancestors of a job are not read while its Workload is being deleted."),
    FeatureGate("SparkApplicationIntegration", _OFF, _A, "0.17 Alpha", _HERE, "SparkApplications are queued."),
    FeatureGate("ValidateRayAndSparkJobUpdates", _ON, _B, "0.18 Beta", _HERE, "The queue name of a running Ray or Spark job cannot be removed."),
    FeatureGate("WorkloadIdentifierAnnotations", _ON, _B, "0.18 Beta", _HERE, "Group and prebuilt Workload names are read from annotations first."),
    FeatureGate("WorkloadPriorityClassDefaulting", _ON, _B, "0.18 Alpha (off), 0.20 Beta", _HERE, "A WorkloadPriorityClass called `default` applies to jobs that name none."),
    FeatureGate("WorkloadRequestUseMergePatch", _ON, _A, "0.14 Alpha (off)", _HERE, "Workload status is written by merge patch instead of server-side apply. Always on here: pykueue writes one conditional merge patch per change.", locked=True, in_kueue=_OFF),
    # ----- admission checks and MultiKueue
    FeatureGate("CleanupProvisioningRequestsOnEviction", _ON, _B, "0.19 Beta", _HERE, "The ProvisioningRequests of an evicted Workload are deleted."),
    FeatureGate("MultiKueue", _OFF, _B, "0.6 Alpha, 0.9 Beta", _NOT_YET, "Jobs are dispatched to worker clusters.", in_kueue=_ON),
    FeatureGate("MultiKueueAdaptersForCustomJobs", _OFF, _B, "0.14 Alpha, 0.15 Beta", _NOT_YET, "Any kind with `spec.managedBy` can be dispatched to a worker cluster.", in_kueue=_ON),
    FeatureGate("MultiKueueClusterProfile", _OFF, _A, "0.15 Alpha", _NOT_YET, "Worker clusters are reached through a ClusterProfile."),
    FeatureGate("MultiKueueIncrementalDispatcherConfig", _OFF, _B, "0.19 Beta", _NOT_YET, "The step size of the incremental dispatcher is configurable.", in_kueue=_ON),
    FeatureGate("MultiKueueIncrementalDispatcherRespectConfigOrder", _OFF, _B, "0.19 Beta", _NOT_YET, "The incremental dispatcher follows the order of the configuration.", in_kueue=_ON),
    FeatureGate("MultiKueueKubeConfigPathValidation", _OFF, _B, "0.19 Alpha, 0.20 Beta", _NOT_YET, "Kubeconfig files of worker clusters must be in one fixed directory.", in_kueue=_ON),
    FeatureGate("MultiKueueManagerQuotaAutomation", _OFF, _A, "0.18 Alpha", _NOT_YET, "The manager's quota follows the sum of its workers."),
    FeatureGate("MultiKueueOrchestratedPreemption", _OFF, _A, "0.17 Alpha", _HERE, "On a worker: a Workload issues no preemptions while one of its `spec.preemptionGates` is closed in its status. The part of the hub, which opens the gate of one worker at a time, comes with MultiKueue."),
    FeatureGate("MultiKueueRemoteSpecSync", _OFF, _B, "0.19 Beta", _NOT_YET, "Changes of a running job are synchronized to its copy on the worker cluster.", in_kueue=_ON),
    # ----- devices
    FeatureGate(_DRA, _OFF, _B, "0.18 Beta", _NOT_YET, "ResourceClaims count against quota by device class. On in Kueue; off here until devices are counted.", in_kueue=_ON),
    FeatureGate("KueueDRAIntegrationConsumableCapacity", _OFF, _A, "0.19 Alpha", _NOT_YET, "Shares of a device count against quota.", needs=(_DRA,)),
    FeatureGate("KueueDRAIntegrationExtendedResource", _OFF, _B, "0.18 Alpha, 0.19 Beta", _NOT_YET, "A plain request that a DeviceClass backs is counted once.", needs=(_DRA,), in_kueue=_ON),
    FeatureGate("KueueDRAIntegrationPartitionableDevices", _OFF, _B, "0.18 Alpha, 0.19 Beta", _NOT_YET, "Partitions of a device count by their counters.", needs=(_DRA,), in_kueue=_ON),
    FeatureGate("KueueDRARejectWorkloadsWhenDRADisabled", _ON, _B, "0.18 Beta", _HERE, "A Workload with ResourceClaims is refused while their integration is off."),
    # ----- operation
    FeatureGate("CustomMetricLabels", _OFF, _A, "0.17 Alpha", _HERE, "Labels and annotations of objects become labels of metrics."),
    FeatureGate("LocalQueueMetrics", _ON, _B, "0.10 Alpha, 0.17 Beta", _HERE, "Metrics per LocalQueue."),
    FeatureGate("MetricForWorkloadCreationLatency", _ON, _B, "0.18 Beta", _HERE, "A metric of the time from the creation of a job to its Workload."),
    FeatureGate("MetricsForCohorts", _ON, _B, "0.18 Beta", _HERE, "Metrics that link queues and cohorts to their parents."),
    FeatureGate("TLSOptions", _ON, _GA, "0.16 Beta, 0.20 GA", _HERE, "The TLS version, ciphers and curves of the servers are configurable.", locked=True),
    FeatureGate("VisibilityOnDemand", _ON, _B, "0.6 Alpha, 0.9 Beta", _HERE, "The visibility API serves pending Workloads and their positions."),
)  # fmt: skip

GATES: Final[Mapping[str, FeatureGate]] = MappingProxyType({gate.name: gate for gate in _ROWS})

# Former gates of Kueue. They are refused, with a message about what they controlled.
REMOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "ConfigurableResourceTransformations", "HierarchicalCohorts", "LendingLimit", "LocalQueueDefaulting",
                "ManagedJobsNamespaceSelector", "MultiKueueBatchJobWithManagedBy",
                "MultiKueueRedoAdmissionOnEvictionInWorker", "MultiKueueWaitForWorkloadAdmitted", "MultiplePreemptions",
                "ObjectRetentionPolicies", "PropagateBatchJobLabelsToWorkload", "ProvisioningACC", "SanitizePodSets",
                "SkipFinalizersForPodsSuspendedByParent", "WorkloadResourceRequestsSummary",
            ),
            "its behaviour is always on",
        ),
        **dict.fromkeys(
            (
                "AdmissionCheckValidationRules", "DRAExtendedResources", "ExposeFlavorsInLocalQueue",
                "FlavorFungibilityImplicitPreferenceDefault", "KeepQuotaForProvReqRetry",
                "MultiKueueAllowInsecureKubeconfigs", "QueueVisibility", "SchedulerLongRequeueInterval",
                "SchedulerTimestampPreemptionBuffer", "TASProfileLeastFreeCapacity",
            ),
            "its behaviour was removed",
        ),
        "DynamicResourceAllocation": f"its name is {_DRA} now",
    }
)  # fmt: skip

# Names that set every gate of a stage; overrides of single gates take precedence.
_STAGES: Final = {"AllAlpha": GateStage.ALPHA, "AllBeta": GateStage.BETA}


class FeatureGates(Mapping[str, bool]):
    """The values of all gates, immutable. `gates["PartialAdmission"]` is a bool; an unknown name raises KeyError."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, bool]) -> None:
        self._values = MappingProxyType(dict(values))

    def __getitem__(self, name: str) -> bool:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.items() if value != GATES[name].default}
        return f"FeatureGates({changed})"


DEFAULTS: Final = FeatureGates({gate.name: gate.default for gate in _ROWS})


def resolve(overrides: Mapping[str, bool]) -> tuple[FeatureGates, tuple[GateProblem, ...]]:
    """Return the gates with these overrides, and the problems of the overrides.

    With any problem the gates are the defaults: a wrong configuration is not applied partially.
    """
    problems: list[GateProblem] = []
    values = dict(DEFAULTS)
    for name, stage in _STAGES.items():
        if name in overrides:
            # A stage sets the gates that can be set, and `notices` names the others; an unimplemented gate that is named
            # by itself is refused.
            values |= {
                gate.name: overrides[name]
                for gate in _ROWS
                if gate.stage is stage and not gate.locked and (gate.implemented or not overrides[name])
            }
    for name, value in overrides.items():
        if name in _STAGES:
            continue
        gate = GATES.get(name)
        if gate is None:
            problems.append(GateProblem(name, _unknown(name)))
        elif gate.locked and value != gate.default:
            problems.append(GateProblem(name, f"is locked to {_word(gate.default)}"))
        elif value and not gate.implemented:
            problems.append(GateProblem(name, "is not implemented in this version and cannot be turned on"))
        else:
            values[name] = value
    if not problems:
        problems.extend(_missing_parents(values, overrides))
    return (DEFAULTS if problems else FeatureGates(values)), tuple(problems)


def notices(overrides: Mapping[str, bool]) -> Iterator[str]:
    """Yield a message for each override that is accepted and has less effect than its name suggests."""
    for name, stage in _STAGES.items():
        named = [gate for gate in _ROWS if gate.stage is stage and gate.name not in overrides]
        missing = [gate.name for gate in named if not gate.implemented]
        locked = [gate.name for gate in named if gate.locked and gate.default != overrides.get(name)]
        if overrides.get(name) and missing:
            yield f"featureGates.{name}: does not turn on {', '.join(missing)}: not implemented in this version"
        if name in overrides and locked:
            yield f"featureGates.{name}: does not change {', '.join(locked)}: locked"
    for name, value in overrides.items():
        if name in GATES and GATES[name].speed_only and not value:
            yield f"featureGates.{name}: has no effect: the gate only changes the speed of Kueue"


def parse(text: str) -> tuple[dict[str, bool], tuple[GateProblem, ...]]:
    """Return the overrides of the flag `--feature-gates` (`A=true,B=false`), and the problems of its text."""
    found: dict[str, bool] = {}
    problems: list[GateProblem] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            problems.append(GateProblem(name, "has no value; write NAME=true or NAME=false"))
        elif value not in _BOOLEANS:
            problems.append(GateProblem(name, f"must be true or false, not {value!r}"))
        else:
            found[name] = _BOOLEANS[value]
    return found, tuple(problems)


# The booleans that Go accepts, as Kueue parses the flag.
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}


def _missing_parents(values: Mapping[str, bool], overrides: Mapping[str, bool]) -> Iterator[GateProblem]:
    """Yield the gates that are on while one of their parents is off."""
    for gate in _ROWS:
        missing = [parent for parent in gate.needs if not values[parent]]
        if values[gate.name] and missing and (gate.name in overrides or any(parent in overrides for parent in missing)):
            yield GateProblem(gate.name, f"needs {' and '.join(missing)} to be on")


def _unknown(name: str) -> str:
    if name in REMOVED:
        return f"is no longer a gate: {REMOVED[name]}"
    nearest = difflib.get_close_matches(name, [*GATES, *_STAGES], n=1)
    return f"is not a known gate; did you mean {nearest[0]}?" if nearest else "is not a known gate"


def _word(value: bool) -> str:
    return "true" if value else "false"


def missing_by_default() -> tuple[FeatureGate, ...]:
    """Return the gates that are on by default in Kueue and not implemented here."""
    return tuple(gate for gate in _ROWS if gate.default_in_kueue and not gate.implemented)
