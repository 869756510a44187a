"""The condition types and reasons of Kueue's API. Reading and setting conditions is in `kubemachinery.conditions`."""

from __future__ import annotations

from enum import StrEnum

# --- Types ------------------------------------------------------------------------------------------------------------


class WorkloadCondition(StrEnum):
    """Condition types of a Workload, in the order in which they are written."""

    QUOTA_RESERVED = "QuotaReserved"
    BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"
    EVICTED = "Evicted"
    ADMITTED = "Admitted"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    DEACTIVATION_TARGET = "DeactivationTarget"
    FINISHED = "Finished"
    PODS_READY = "PodsReady"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"


class ClusterQueueCondition(StrEnum):
    """Condition types of a ClusterQueue."""

    ACTIVE = "Active"
    MULTIKUEUE_MANAGER_QUOTA_AUTOMATION = "MultiKueueManagerQuotaAutomation"


class ActiveCondition(StrEnum):
    """The condition type of LocalQueues, AdmissionChecks and MultiKueueClusters."""

    ACTIVE = "Active"


class QuotaScheduleCondition(StrEnum):
    """The condition type of a QuotaSchedule, of `pykueue.io`."""

    READY = "Ready"


class PodConditionType(StrEnum):
    """Condition types that the manager sets on pods."""

    TERMINATION_TARGET = "TerminationTarget"
    TERMINATED_BY_KUEUE = "TerminatedByKueue"
    KUEUE_FAILURE_RECOVERY = "KueueFailureRecovery"


class ProvisioningRequestCondition(StrEnum):
    """Condition types that the manager reads on ProvisioningRequests."""

    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"


# --- Reasons ----------------------------------------------------------------------------------------------------------


class QuotaReservedReason(StrEnum):
    """Why a Workload has its quota reserved, or not."""

    QUOTA_RESERVED = "QuotaReserved"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    DEACTIVATED = "Deactivated"
    ON_HOLD = "OnHold"
    # The reasons without the gate UnadmittedWorkloadsObservability.
    PENDING = "Pending"
    WAITING = "Waiting"
    INADMISSIBLE = "Inadmissible"


class AdmittedReason(StrEnum):
    """Why a Workload is admitted, or not yet admitted although it holds quota."""

    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"
    PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests"
    # Reasons of older versions, still read.
    NO_RESERVATION_UNSATISFIED_CHECKS = "NoReservationUnsatisfiedChecks"
    UNSATISFIED_CHECKS = "UnsatisfiedChecks"


class EvictedReason(StrEnum):
    """Why a Workload lost its quota."""

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    FLAVOR_MIGRATION = "FlavorMigration"
    QUOTA_WITHDRAWN = "QuotaWithdrawn"  # not in Kueue: a QuotaSchedule
    DEACTIVATED = "Deactivated"
    DEACTIVATED_DUE_TO_ADMISSION_CHECK = "DeactivatedDueToAdmissionCheck"
    DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED = "DeactivatedDueToMaximumExecutionTimeExceeded"
    DEACTIVATED_DUE_TO_REQUEUING_LIMIT_EXCEEDED = "DeactivatedDueToRequeuingLimitExceeded"
    DEACTIVATED_DUE_TO_EVICTED_ON_MANAGER_CLUSTER = "DeactivatedDueToEvictedOnManagerCluster"


class DeactivationReason(StrEnum):
    """Why a Workload is about to be deactivated."""

    ADMISSION_CHECK = "AdmissionCheck"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
    EVICTED_ON_MANAGER_CLUSTER = "EvictedOnManagerCluster"

    @property
    def evicted(self) -> EvictedReason:
        """The reason of the eviction that follows."""
        return EvictedReason(f"DeactivatedDueTo{self}")


class UnderlyingCause(StrEnum):
    """The underlying cause of an eviction, for statistics and metrics."""

    NONE = ""
    WAIT_FOR_START = "WaitForStart"
    WAIT_FOR_RECOVERY = "WaitForRecovery"
    ADMISSION_CHECK = "AdmissionCheck"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"


class PreemptedReason(StrEnum):
    """Why a Workload was preempted."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class RequeuedReason(StrEnum):
    """Why a Workload may be queued again; before that, the condition carries the reason of its eviction."""

    REACTIVATED = "Reactivated"
    BACKOFF_FINISHED = "BackoffFinished"
    CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted"
    LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted"
    INADMISSIBLE = "Inadmissible"


class PodsReadyReason(StrEnum):
    """Whether the pods of an admitted Workload are ready, or ready again after a failure."""

    WAIT_FOR_START = "WaitForStart"
    STARTED = "Started"
    WAIT_FOR_RECOVERY = "WaitForRecovery"
    RECOVERED = "Recovered"
    # A reason of older versions, still read.
    PODS_READY = "PodsReady"


class FinishedReason(StrEnum):
    """How a Workload ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    OWNER_NOT_FOUND = "OwnerNotFound"
    FAILED_TO_START = "FailedToStart"
    WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced"


class BlockedOnPreemptionGatesReason(StrEnum):
    """When the condition is False it carries the reason of the eviction."""

    PREEMPTION_GATED = "PreemptionGated"


class ClusterQueueActiveReason(StrEnum):
    """Why a ClusterQueue is active or inactive. Of several reasons, the first in this order is set."""

    READY = "Ready"
    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS = "MultipleMultiKueueAdmissionChecks"
    MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor"
    MULTIKUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    UNKNOWN = "Unknown"


class LocalQueueActiveReason(StrEnum):
    """Why a LocalQueue is active or inactive."""

    READY = "Ready"
    STOPPED = "Stopped"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"


class AdmissionCheckActiveReason(StrEnum):
    """The first three of provisioning checks; of MultiKueue checks `Active` and those after."""

    ACTIVE = "Active"
    BAD_PARAMETERS_REF = "BadParametersRef"
    NOT_SERVED = "ProvisioningRequestsNotServed"  # not in the public API, where such a check has no condition at all
    BAD_CONFIG = "BadConfig"
    SOME_ACTIVE_CLUSTERS = "SomeActiveClusters"
    NO_USABLE_CLUSTERS = "NoUsableClusters"
    NOT_IMPLEMENTED = "MultiKueueNotImplemented"  # not in Kueue, which implements it


class MultiKueueClusterActiveReason(StrEnum):
    """Whether a worker cluster can be reached, or why not."""

    ACTIVE = "Active"
    CLIENT_CONNECTION_FAILED = "ClientConnectionFailed"
    BAD_KUBE_CONFIG = "BadKubeConfig"
    INSECURE_KUBE_CONFIG = "InsecureKubeConfig"
    BAD_CLUSTER_PROFILE = "BadClusterProfile"
    BAD_REST_CONFIG = "BadRestConfig"
    CLUSTER_PROFILE_FEATURE_DISABLED = "MultiKueueClusterProfileFeatureDisabled"


class PodConditionReason(StrEnum):
    """Reasons of the conditions that the manager sets on pods; TerminationTarget has the reason of the stop."""

    UNSCHEDULABLE_ON_ASSIGNED_NODE = "UnschedulableOnAssignedNode"
    KUEUE_FORCEFULLY_DELETED = "KueueForcefullyDeleted"


class QuotaScheduleReadyReason(StrEnum):
    """Whether a QuotaSchedule is applied. Of several reasons, the first in this order is set."""

    INVALID = "Invalid"
    UNKNOWN_TARGET = "UnknownTarget"
    UNKNOWN_FLAVOR = "UnknownFlavor"
    OVERLAPS = "Overlaps"
    READY = "Ready"
