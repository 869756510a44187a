"""Decisions as data: what a cycle decided for each Workload it evaluated, and why.

Conditions, Events, metrics and `explain` are made from these values; the scheduler itself reports nothing.

    Decision
    ├── Admit               quota is reserved, the Workload may be admitted at once; also a second pass that succeeded
    ├── Preempt             targets are to be evicted; the Workload waits for their quota
    ├── Wait                the Workload stays pending; `reason` is that of its QuotaReserved condition
    ├── SecondPassFailed    a second pass failed; the reservation stays, and the pass is repeated
    └── Evict               the Workload itself is to be evicted (a lost node without replacement)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypeAlias

import msgspec

from pykueue.api.conditions import PreemptedReason, QuotaReservedReason
from pykueue.core.topology import PlacedPods
from pykueue.core.workload import AssignedPodSet, ScanPosition

Rank: TypeAlias = tuple[bool, bool, int, int, int, str, str] | tuple[()]
"""The place of an entry in a cycle without fair sharing, comparable between trees; empty: it has none."""


class Requeue(StrEnum):
    """Why a head is requeued; the reason decides whether it stays active or becomes inadmissible ([QU22])."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PLANNED = "Planned"  # ours: it fits, and would delay a planned start ([BF4])
    SET_ASIDE = "SetAside"  # ours: its evaluation failed, or the decision cannot be written


class Recomputation(StrEnum):
    """The result of recomputing an entry whose targets an earlier entry of the cycle had taken."""

    NEW_TARGETS = "new_targets"  # other targets, and it fits with them
    DEFERRED_FIT = "deferred_fit"  # it fits once the targets of the earlier entry are evicted
    SKIPPED = "skipped"  # neither: it waits for another cycle


class PreemptionMode(IntEnum):
    """What it takes to use a flavor, worst to best (Kueue: preemptionMode, [FL15])."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Cause(StrEnum):
    """What kept a flavor from being assigned."""

    NOT_NOMINATED = "pinned to another flavor in this cycle"
    OTHER_VARIANT = "not the flavor of this variant"
    NOT_ELIGIBLE = "not eligible"
    OTHER_SLICE_FLAVOR = "the slice being replaced is on another flavor"
    BEYOND_CAPACITY = "more than the whole tree could ever give"
    SHORT = "not enough free quota"
    UNDECLARED = "the ClusterQueue declares no quota for it"
    NO_PLACEMENT = "no placement"
    BROKEN = "cannot be evaluated"


# The three values below are made for every head of every cycle; a Struct is made in a third of the time of a dataclass.


class FlavorFinding(msgspec.Struct, frozen=True, gc=False):
    """One cause that kept a flavor from being assigned, with the figures. `requested` includes `earlier`, the usage of
    pod sets before this one. `available` is below zero where the tree uses more than its quota: that much must be
    released before any Workload gets quota."""

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


class FlavorAttempt(msgspec.Struct, frozen=True, gc=False):
    """One flavor that was tried for a group of pod sets, with the worst result over their resources."""

    flavor: str
    mode: PreemptionMode
    borrowing_level: int = 0
    findings: tuple[FlavorFinding, ...] = ()
    reason: QuotaReservedReason | None = None


class PodSetExplanation(msgspec.Struct, frozen=True, gc=False):
    """The flavors tried for one pod set, and what kept them from being assigned."""

    pod_set: str
    attempts: tuple[FlavorAttempt, ...] = ()
    findings: tuple[FlavorFinding, ...] = ()


class TargetWorkload(msgspec.Struct, frozen=True):
    """A Workload with a reservation that is to be evicted. One that is being evicted already is not evicted twice."""

    key: str
    cluster_queue: str
    reason: PreemptedReason
    already_evicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The fields of every decision.

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
    """Quota is reserved. `is_admitted`: no admission check is outstanding. `replaces` is the elastic slice that ends
    now.

    `assumed_targets` are to be preempted later, when the checks that defer preemption have passed (KEP-993). Until they
    have ended the Workload does not start, and they and it count together, as the larger of the two.
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
    """Targets are to be evicted. `migrates` is a less favorable variant of the same Workload, which this one
    replaces."""

    reason: QuotaReservedReason
    targets: tuple[TargetWorkload, ...] = ()
    migrates: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Decision):
    """The Workload stays pending. An empty `message`: the explanation has the reasons."""

    reason: QuotaReservedReason
    requeue: Requeue
    message: str = ""
    advice: str = field(default="", compare=False)  # what would let it in now; it depends on the present time


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassFailed(Decision):
    """The second pass of a Workload with a reservation failed. `targets` are evicted for it, if there are any."""

    message: str = ""
    targets: tuple[TargetWorkload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Decision):
    """The Workload lost `nodes`, and there is no replacement for them."""

    nodes: tuple[str, ...]
