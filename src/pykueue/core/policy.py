"""The options that a cycle runs under, as one frozen value.

A field that is a feature gate is filled by the gate's name (`GATES`); the others come from the Configuration. Nothing
below this value reads gates or the Configuration: every place that depends on one of them reads its field here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubemachinery.meta import Nanoseconds


class FairSharingStrategy(StrEnum):
    """When fair sharing allows to preempt a Workload of another ClusterQueue ([FS18])."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class UsageHistory(msgspec.Struct, frozen=True):
    """How the past usage of a LocalQueue affects the order of its Workloads (admission fair sharing)."""

    half_life_seconds: float
    sampling_interval_seconds: float
    resource_weights: Mapping[str, float]


class SchedulingPolicy(msgspec.Struct, frozen=True):
    """Every option that decisions depend on, with the defaults of the Kueue release that they are compatible with."""

    fair_sharing: tuple[FairSharingStrategy, ...] = ()  # empty: fair sharing is off
    usage_history: UsageHistory | None = None
    ignore_undeclared: bool = False
    order_by_eviction: bool = True  # waitForPodsReady.requeuingStrategy.timestamp is Eviction
    # Off, decisions equal Kueue's even where those look wrong: targets are searched without counting `pods` (W1, a
    # livelock), two entries may get quota that targets still use (W2, overbooking), preferred weights are lost in
    # repeated placements (W10), and a claim beyond the borrowing limit lowers usage (W16).
    departures: bool = True
    # With `departures` and fair sharing: preemptions that nothing else follows end ([FS21], [FS22]).
    preemption_progress: bool = True

    partial_admission: bool = True
    flavor_fungibility: bool = True
    preserve_scan_progress: bool = True
    priority_sorting_within_cohort: bool = True
    preempt_within_nominal: bool = True
    prioritize_non_borrowing: bool = True
    prioritize_preemptors: bool = False
    priority_boost: bool = False
    reclaimable_pods: bool = True
    recompute_on_overlap: bool = True
    recompute_placement: bool = True
    equivalence_hashing: bool = True
    precise_reasons: bool = True
    elastic_slices: bool = True
    elastic_slices_with_topology: bool = False
    admission_gated_by: bool = True
    concurrent_admission: bool = False
    orchestrated_preemption: bool = False
    topology: bool = True
    node_replacement: bool = True
    node_replacement_fail_fast: bool = True
    # How long a failed node stays listed before a replacement is searched: others see it, or it comes back ([TS26]).
    node_replacement_delay: Nanoseconds = 0
    keep_pod_owned_placements: bool = True
    queue_exclusions: bool = False
    refuse_claims: bool = True  # of pods on devices (DRA): their usage is not counted
    planned_backfill: bool = False
    quota_calendar: bool = False
    loop_detection: bool = True  # changes no decision
    loop_guard: bool = False  # delays preemptions that would begin another round of a loop [LG6]

    @property
    def is_fair(self) -> bool:
        return bool(self.fair_sharing)

    @property
    def tracks_hard_ends(self) -> bool:
        """Whether the limits of runs are read: the timeline decides with them ([TL10])."""
        return self.planned_backfill or self.quota_calendar

    @property
    def ensures_progress(self) -> bool:
        """Whether preemptions under fair sharing are restricted so that they end ([FS21], [FS22])."""
        return self.departures and self.preemption_progress and self.is_fair

    @property
    def preemptors_first(self) -> bool:
        """Whether a Workload that issued preemptions precedes the other entries of its cohort ([FS9], [FS21])."""
        return self.prioritize_preemptors or self.ensures_progress

    def with_gates(self, gates: Mapping[str, bool]) -> SchedulingPolicy:
        """The same policy with the given feature gates; gates that it has no field for are ignored."""
        chosen: dict[str, Any] = {field: gates[gate] for field, gate in GATES.items() if gate in gates}
        return replace(self, **chosen)


GATES: Final[Mapping[str, str]] = {
    "partial_admission": "PartialAdmission",
    "flavor_fungibility": "FlavorFungibility",
    "preserve_scan_progress": "FlavorFungibilityPreserveScanProgress",
    "priority_sorting_within_cohort": "PrioritySortingWithinCohort",
    "preempt_within_nominal": "FairSharingPreemptWithinNominal",
    "prioritize_non_borrowing": "FairSharingPrioritizeNonBorrowing",
    "prioritize_preemptors": "PrioritizePreemptorWorkloads",
    "preemption_progress": "FairSharingPreemptionProgress",
    "priority_boost": "PriorityBoost",
    "reclaimable_pods": "ReclaimablePods",
    "recompute_on_overlap": "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "recompute_placement": "TASRecomputeAssignmentWithinSchedulingCycle",
    "equivalence_hashing": "SchedulingEquivalenceHashing",
    "precise_reasons": "UnadmittedWorkloadsObservability",
    "elastic_slices": "ElasticJobsViaWorkloadSlices",
    "elastic_slices_with_topology": "ElasticJobsViaWorkloadSlicesWithTAS",
    "admission_gated_by": "AdmissionGatedBy",
    "concurrent_admission": "ConcurrentAdmission",
    "orchestrated_preemption": "MultiKueueOrchestratedPreemption",
    "topology": "TopologyAwareScheduling",
    "node_replacement": "TASFailedNodeReplacement",
    "node_replacement_fail_fast": "TASFailedNodeReplacementFailFast",
    "keep_pod_owned_placements": "SkipReassignmentForPodOwnedWorkloads",
    "queue_exclusions": "ClusterQueueExcludeResourcePrefixes",
    "refuse_claims": "KueueDRARejectWorkloadsWhenDRADisabled",
    "loop_detection": "LoopDetection",
    "loop_guard": "LoopGuard",
    "planned_backfill": "PlannedBackfill",
    "quota_calendar": "QuotaCalendar",
}
