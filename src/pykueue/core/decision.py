"""The answers as data: what a cycle decided for each Workload it looked at, and why.

Events, conditions, metrics and `explain` read these values; nothing is reported from inside the brain.

    Decision
    ├── Admit       quota is reserved (and perhaps everything is ready); a second pass that worked is one too
    ├── Preempt     victims are to be evicted, the Workload waits for their room
    ├── Wait        no room, not now, or not at all; `reason` says which
    ├── Retry       a second pass that did not work; the reservation stays
    └── Evict       the Workload itself has to go (a lost node without replacement)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypeAlias

from pykueue.api.conditions import PreemptedReason, QuotaReservedReason
from pykueue.core.topology import PlacedPods
from pykueue.core.workload import AssignedPodSet, ScanPosition

Rank: TypeAlias = tuple[bool, bool, int, int, int, str, str] | tuple[()]
"""The place of an entry in a cycle without fair sharing. It means the same in every tree; empty: it has none."""


class Requeue(StrEnum):
    """Why a head goes back to its queue; this decides where in it (§2.5)."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    SET_ASIDE = "SetAside"  # ours: it cannot be judged, or what was decided cannot be written


class Recomputation(StrEnum):
    """What came of assigning an entry again whose targets an earlier entry of the cycle had taken."""

    NEW_TARGETS = "new_targets"  # other targets, and it fits with them
    DEFERRED_FIT = "deferred_fit"  # it fits once the targets of the earlier entry are gone
    SKIPPED = "skipped"  # neither: it waits for another cycle


class PreemptionMode(IntEnum):
    """How well a flavor suits, worst to best (§4.4)."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Cause(StrEnum):
    """What stood in the way of a flavor."""

    NOT_NOMINATED = "pinned to another flavor in this cycle"
    OTHER_VARIANT = "not the flavor of this variant"
    NOT_ELIGIBLE = "not eligible"
    OTHER_SLICE_FLAVOR = "the slice being replaced is on another flavor"
    BEYOND_CAPACITY = "more than the whole tree could ever give"
    SHORT = "not enough free quota"
    UNDECLARED = "the ClusterQueue declares no quota for it"
    NO_PLACEMENT = "no placement"
    BROKEN = "cannot be evaluated"


@dataclass(frozen=True, slots=True)
class FlavorFinding:
    """One thing that stood in the way: of which flavor and resource, and by how much. `requested` includes `earlier`,
    what pod sets before this one were given. `room` is below zero where the tree is in debt: that much has to come back
    before any Workload gets quota."""

    cause: Cause
    flavor: str = ""
    resource: str = ""
    requested: int = 0
    available: int = 0
    detail: str = ""
    earlier: int = 0

    @property
    def short_by(self) -> int:
        return max(0, self.requested - self.available)


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """One flavor that was looked at for a group of pod sets, with its worst outcome over their resources."""

    flavor: str
    mode: PreemptionMode
    borrowing_level: int = 0
    findings: tuple[FlavorFinding, ...] = ()
    reason: QuotaReservedReason | None = None


@dataclass(frozen=True, slots=True)
class PodSetExplanation:
    """What was tried for one pod set."""

    pod_set: str
    attempts: tuple[FlavorAttempt, ...] = ()
    findings: tuple[FlavorFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetWorkload:
    """A reserving Workload that is to make room. One that is being evicted already is not evicted twice."""

    key: str
    cluster_queue: str
    reason: PreemptedReason
    already_evicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What every decision holds.

    `scan` is where the next scan of the Workload's flavors continues, for `state` to store. `rank` is its place in the
    scheduling order, comparable between the decisions of several trees; empty where the order gave it none. `failure`
    is the exception that the evaluation ended with, for the log. `recomputation` and `skips_preemption` are for the
    metrics: what came of overlapping preemption targets, and whether a preemption was given up because of an earlier
    entry of the cycle. None of the five is part of what was decided.
    """

    workload: str
    cluster_queue: str
    explanation: tuple[PodSetExplanation, ...] = ()
    scan_position: ScanPosition | None = field(default=None, repr=False, compare=False)
    rank: Rank = field(default=(), repr=False, compare=False)
    failure: BaseException | None = field(default=None, repr=False, compare=False)
    recomputation: Recomputation | None = field(default=None, repr=False, compare=False)
    skips_preemption: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit(Decision):
    """`is_admitted`: no check is left to wait for. `replaces` is the elastic slice that is over now.

    `assumes` are victims that are to be preempted later, when the checks that asked to wait have passed (KEP-993).
    Until they are gone the Workload does not start, and they and it count together, as the larger of the two.
    """

    pod_sets: tuple[AssignedPodSet, ...]
    placed: tuple[PlacedPods, ...] = ()
    is_admitted: bool
    was_admitted: bool = False
    is_second_pass: bool = False
    replaces_node: bool = False
    replaces: str = ""
    borrowing_level: int = 0
    assumed_targets: tuple[TargetWorkload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt(Decision):
    """`migrates` is a less favorable variant of the same Workload that is to give way."""

    reason: QuotaReservedReason
    targets: tuple[TargetWorkload, ...] = ()
    migrates: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Decision):
    reason: QuotaReservedReason
    requeue: Requeue
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassFailed(Decision):
    message: str = ""
    targets: tuple[TargetWorkload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Decision):
    nodes: tuple[str, ...]
