"""The facts about one Workload that the rules need, and the options they run under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubemachinery import meta
from kubemachinery.conditions import is_true
from kubemachinery.meta import MINUTE, Nanoseconds
from pykueue.api import config, kueue
from pykueue.api.conditions import QuotaReservedReason, WorkloadCondition

# --- Facts ------------------------------------------------------------------------------------------------------------


class LocalQueueFacts(msgspec.Struct, frozen=True):
    """The LocalQueue that the Workload names."""

    is_deleting: bool = False
    stop_policy: str = kueue.StopPolicy.NONE
    cluster_queue: str = ""

    @property
    def is_stopped(self) -> bool:
        return self.stop_policy != kueue.StopPolicy.NONE

    @classmethod
    def of(cls, local_queue: kueue.LocalQueue) -> LocalQueueFacts:
        return cls(
            is_deleting=local_queue.metadata.deletion_timestamp is not None,
            stop_policy=local_queue.spec.stop_policy,
            cluster_queue=local_queue.spec.cluster_queue or "",
        )


class CheckFacts(msgspec.Struct, frozen=True):
    """One check that a ClusterQueue requires. No flavors means all of them."""

    name: str
    on_flavors: frozenset[str] = frozenset()
    retry_delay_minutes: int = 15
    defers_preemption: bool = False


class ClusterQueueFacts(msgspec.Struct, frozen=True):
    """The ClusterQueue of the Workload: the one with its reservation, else the one of its LocalQueue."""

    name: str
    is_deleting: bool = False
    stop_policy: str = kueue.StopPolicy.NONE
    is_active: bool = True
    flavors: frozenset[str] = frozenset()
    checks: tuple[CheckFacts, ...] = ()
    # Whether Workloads are tried on its flavors at once, each by a variant of its own.
    has_variants: bool = False

    @property
    def is_stopped(self) -> bool:
        return self.stop_policy != kueue.StopPolicy.NONE

    @classmethod
    def of(
        cls, cluster_queue: kueue.ClusterQueue, is_active: bool, checks: Mapping[str, kueue.AdmissionCheck]
    ) -> ClusterQueueFacts:
        """`is_active` as `queues.blockers` computes it; the stored condition may be a second behind."""
        spec = cluster_queue.spec
        strategy = spec.admission_checks_strategy
        return cls(
            name=cluster_queue.metadata.name,
            is_deleting=cluster_queue.metadata.deletion_timestamp is not None,
            stop_policy=spec.stop_policy,
            is_active=is_active,
            flavors=frozenset(flavor.name for group in spec.resource_groups for flavor in group.flavors),
            checks=tuple(
                _check(rule, checks.get(rule.name)) for rule in (strategy.admission_checks if strategy else ())
            ),
            has_variants=spec.concurrent_admission_policy is not None,
        )


def _check(rule: kueue.AdmissionCheckStrategyRule, found: kueue.AdmissionCheck | None) -> CheckFacts:
    spec = found.spec if found else kueue.AdmissionCheckSpec()
    return CheckFacts(
        name=rule.name,
        on_flavors=frozenset(rule.on_flavors),
        retry_delay_minutes=spec.retry_delay_minutes,
        defers_preemption=spec.preemption_policy == kueue.CheckPreemptionPolicy.AFTER_CHECK_PASSED_OR_ON_DEMAND,
    )


def cluster_queue_of(workload: kueue.Workload, local_queue: kueue.LocalQueue | None) -> str:
    """The ClusterQueue of a Workload: the one with its reservation, else the one of its LocalQueue.

    A reservation stays with its ClusterQueue, whatever the LocalQueue names since.
    """
    if workload.status.admission is not None and is_true(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED):
        return workload.status.admission.cluster_queue
    return local_queue.spec.cluster_queue if local_queue else ""


class KnownFailure(msgspec.Struct, frozen=True):
    """Why a Workload of the same equivalence class was not admitted."""

    reason: QuotaReservedReason


class WorkloadFacts(msgspec.Struct, frozen=True):
    """The facts about one Workload."""

    local_queue: LocalQueueFacts | None = None
    cluster_queue: ClusterQueueFacts | None = None
    # Why it cannot be admitted: a namespace that is not selected, requests above limits … Empty: no problem.
    problem: str = ""
    known_failure: KnownFailure | None = None
    # Whether a reservation with passed checks would be made again now, and its preemption targets have released their
    # quota. None: not evaluated yet; `step` requests it with `recheck` once it matters.
    reservation_holds: bool | None = None
    reservation_lost: str = ""  # why it does not hold
    # One of several Workloads that try different flavors for the same job.
    is_variant: bool = False
    # The Workload of the job whose variants compete for quota in its place.
    is_parent: bool = False


# --- Options ----------------------------------------------------------------------------------------------------------


class PodsReadyOptions(msgspec.Struct, frozen=True):
    """How long pods may take to become ready, and the backoff of a Workload that exceeded this."""

    timeout: Nanoseconds = 30 * MINUTE
    recovery_timeout: Nanoseconds = 30 * MINUTE  # 0: no limit
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600  # 0: no limit


class LifecycleOptions(msgspec.Struct, frozen=True):
    """The lifecycle part of the Configuration. A field that is a feature gate is set by the gate's name."""

    pods_ready: PodsReadyOptions | None = msgspec.field(default_factory=PodsReadyOptions)
    keep_finished: Nanoseconds | None = None  # None: for ever

    observability: bool = True
    explicit_status: bool = False
    admission_gated_by: bool = True
    finish_orphaned: bool = True
    equivalence_hashing: bool = True
    orchestrated_preemption: bool = False
    concurrent_admission: bool = False
    dynamic_resources: bool = False
    refuse_claims: bool = True
    skip_reassignment_for_pod_owned: bool = True
    # Whether stored topology assignments may be split by the common prefixes of host names.
    encode_by_hostname_prefix: bool = True

    @classmethod
    def of(cls, configuration: config.Configuration, gates: Mapping[str, bool]) -> LifecycleOptions:
        """The options of a complete Configuration and its gates."""
        retention = configuration.object_retention_policies
        kept = retention.workloads.after_finished if retention and retention.workloads else None
        return cls(
            pods_ready=_pods_ready(configuration.wait_for_pods_ready, gates),
            keep_finished=None if kept is None else meta.parse_duration(kept),
            **{field: gates[gate] for field, gate in GATES.items()},
        )


GATES: Final[Mapping[str, str]] = {
    "observability": "UnadmittedWorkloadsObservability",
    "explicit_status": "UnadmittedWorkloadsExplicitStatus",
    "admission_gated_by": "AdmissionGatedBy",
    "finish_orphaned": "FinishOrphanedWorkloads",
    "equivalence_hashing": "SchedulingEquivalenceHashing",
    "orchestrated_preemption": "MultiKueueOrchestratedPreemption",
    "concurrent_admission": "ConcurrentAdmission",
    "dynamic_resources": "KueueDRAIntegration",
    "refuse_claims": "KueueDRARejectWorkloadsWhenDRADisabled",
    "skip_reassignment_for_pod_owned": "SkipReassignmentForPodOwnedWorkloads",
    "encode_by_hostname_prefix": "TASAssignmentsEncodingByHostnamePrefix",
}


def _pods_ready(written: config.WaitForPodsReady | None, gates: Mapping[str, bool]) -> PodsReadyOptions | None:
    if written is None or gates["DisableWaitForPodsReady"]:
        return None
    plain, requeuing = PodsReadyOptions(), written.requeuing_strategy or config.RequeuingStrategy()
    base, longest = requeuing.backoff_base_seconds, requeuing.backoff_max_seconds
    return PodsReadyOptions(
        timeout=meta.parse_duration(written.timeout) if written.timeout else plain.timeout,
        recovery_timeout=meta.parse_duration(written.recovery_timeout) if written.recovery_timeout else 0,
        backoff_limit_count=requeuing.backoff_limit_count,
        backoff_base_seconds=plain.backoff_base_seconds if base is None else base,
        backoff_max_seconds=plain.backoff_max_seconds if longest is None else longest,
    )
