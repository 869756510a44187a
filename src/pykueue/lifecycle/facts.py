"""What the rules need to know of the world around one Workload, and the choices they run under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pykueue.api import config, kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.meta import MINUTE, Nanoseconds

# --- The world --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalQueueFacts:
    """The LocalQueue that the Workload names."""

    is_deleting: bool = False
    stop_policy: str = kueue.StopPolicy.NONE

    @property
    def is_stopped(self) -> bool:
        return self.stop_policy != kueue.StopPolicy.NONE


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """One check that a ClusterQueue asks for. No flavors means all of them."""

    name: str
    on_flavors: frozenset[str] = frozenset()
    retry_delay_minutes: int = 15
    defers_preemption: bool = False


@dataclass(frozen=True, slots=True)
class ClusterQueueFacts:
    """The ClusterQueue that counts for the Workload: the one that gave it quota, else the one its queue leads to."""

    name: str
    is_deleting: bool = False
    stop_policy: str = kueue.StopPolicy.NONE
    is_active: bool = True
    flavors: frozenset[str] = frozenset()
    checks: tuple[CheckFacts, ...] = ()

    @property
    def is_stopped(self) -> bool:
        return self.stop_policy != kueue.StopPolicy.NONE


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Why a Workload that is scheduled exactly like this one did not get in, as the scheduler remembers it."""

    reason: QuotaReservedReason
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The world as it concerns one Workload."""

    local_queue: LocalQueueFacts | None = None
    cluster_queue: ClusterQueueFacts | None = None
    # What makes it impossible to admit: a namespace that is not selected, requests above limits … Empty means nothing.
    problem: str = ""
    known_failure: KnownFailure | None = None
    # Whether a reservation that only waits for checks would be given again today, and its victims are gone. None: nobody
    # has looked yet, and `step` says so with `recheck` once it matters.
    reservation_holds: bool | None = None
    # Job kinds may forbid readiness time-outs: variants of a Workload that tries several flavors.
    is_variant: bool = False


# --- The choices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodsReadyOptions:
    """How long pods may take, and how a Workload comes back that took too long."""

    timeout: Nanoseconds = 30 * MINUTE
    recovery_timeout: Nanoseconds = 30 * MINUTE  # 0: no limit
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600  # 0: no limit


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator chose. A field that is a feature gate is filled by the gate's name."""

    pods_ready: PodsReadyOptions | None = field(default_factory=PodsReadyOptions)
    keep_finished: Nanoseconds | None = None  # None: for ever

    observability: bool = True
    explicit_status: bool = False
    admission_gated_by: bool = True
    finish_orphaned: bool = True
    equivalence_hashing: bool = True
    orchestrated_preemption: bool = False
    dynamic_resources: bool = False
    refuse_claims: bool = True
    skip_reassignment_for_pod_owned: bool = True

    @classmethod
    def of(cls, configuration: config.Configuration, gates: Mapping[str, bool]) -> Options:
        raise NotImplementedError


GATES: Final[Mapping[str, str]] = {
    "observability": "UnadmittedWorkloadsObservability",
    "explicit_status": "UnadmittedWorkloadsExplicitStatus",
    "admission_gated_by": "AdmissionGatedBy",
    "finish_orphaned": "FinishOrphanedWorkloads",
    "equivalence_hashing": "SchedulingEquivalenceHashing",
    "orchestrated_preemption": "MultiKueueOrchestratedPreemption",
    "dynamic_resources": "KueueDRAIntegration",
    "refuse_claims": "KueueDRARejectWorkloadsWhenDRADisabled",
    "skip_reassignment_for_pod_owned": "SkipReassignmentForPodOwnedWorkloads",
}
