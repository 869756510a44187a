"""The condition types and reasons of Kueue's API. Reading and setting conditions is in `kubemachinery.conditions`."""

from __future__ import annotations

from enum import StrEnum

# --- Types ------------------------------------------------------------------------------------------------------------


class WorkloadCondition(StrEnum):
    """What a Workload's conditions are about, in the order in which it has them."""

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
    """What a ClusterQueue's conditions are about."""

    ACTIVE = "Active"
    MULTIKUEUE_MANAGER_QUOTA_AUTOMATION = "MultiKueueManagerQuotaAutomation"


class ActiveCondition(StrEnum):
    """The one condition of LocalQueues, AdmissionChecks and MultiKueueClusters."""

    ACTIVE = "Active"


class PodConditionType(StrEnum):
    """The conditions that we write on pods."""

    TERMINATION_TARGET = "TerminationTarget"
    TERMINATED_BY_KUEUE = "TerminatedByKueue"
    KUEUE_FAILURE_RECOVERY = "KueueFailureRecovery"


class ProvisioningRequestCondition(StrEnum):
    """The conditions that we read on ProvisioningRequests."""

    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"


# --- Reasons ----------------------------------------------------------------------------------------------------------


class QuotaReservedReason(StrEnum):
    """Why a Workload has, or has not yet, its quota."""

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
    # The words of before the gate UnadmittedWorkloadsObservability, used again when it is off.
    PENDING = "Pending"
    WAITING = "Waiting"
    INADMISSIBLE = "Inadmissible"


class AdmittedReason(StrEnum):
    """Why a Workload may start, or why not yet although it holds quota."""

    ADMITTED = "Admitted"
    NO_RESERVATION = "NoReservation"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"
    PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests"
    # Older words, still read.
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
    """What was behind an eviction, for statistics and metrics."""

    NONE = ""
    WAIT_FOR_START = "WaitForStart"
    WAIT_FOR_RECOVERY = "WaitForRecovery"
    ADMISSION_CHECK = "AdmissionCheck"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"


class PreemptedReason(StrEnum):
    """On which ground a Workload had to give way."""

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
    """Whether the pods of an admitted Workload have come up, or come up again."""

    WAIT_FOR_START = "WaitForStart"
    STARTED = "Started"
    WAIT_FOR_RECOVERY = "WaitForRecovery"
    RECOVERED = "Recovered"
    # An older word, still read.
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
    """Why a ClusterQueue takes, or does not take, Workloads. Of several, the first in this order is the reason."""

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
    """Why a LocalQueue takes, or does not take, Workloads."""

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
    """Reasons of the conditions that we write on pods; TerminationTarget carries why the job was stopped."""

    UNSCHEDULABLE_ON_ASSIGNED_NODE = "UnschedulableOnAssignedNode"
    KUEUE_FORCEFULLY_DELETED = "KueueForcefullyDeleted"
