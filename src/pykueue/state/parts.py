"""The parts of a World, shared by its intake, its cycle driver and its queries.

Only `pykueue.state` uses this module. Every part is created once and never replaced, so that each of the three may keep
references of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.snapshot import Snapshot
from pykueue.core.topology import PlacementOptions, TopologyCache
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.state.assumed import AssumedReservations
from pykueue.state.namespaces import Namespaces
from pykueue.state.non_tas_usage import NonTASUsage
from pykueue.state.pending_index import PendingIndex
from pykueue.state.pending_queue import PreemptorRecord
from pykueue.state.planning import Planning
from pykueue.state.pod_set_requests import WorkloadShapes
from pykueue.state.preemption_loops import LoopDetector
from pykueue.state.preemption_order import PreemptionOrder
from pykueue.state.reservations import Reservations
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.second_pass import PausedSecondPass, SecondPasses
from pykueue.state.starts import StartCounts
from pykueue.state.structure import Structure
from pykueue.state.thrashing import ThrashingDetector
from pykueue.state.usage_history import ConsumedResources


class _ReplacedSlice(NamedTuple):
    """The reservation of an elastic slice that is replaced, and its second pass, if it waits for one."""

    reservation: Reservation
    second_pass: PausedSecondPass | None


class WorldParts:
    """Everything a World keeps, and the operations that need several parts."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        accounting: requests.Accounting,
        profile: PlacementOptions | None,
        scopes: SchedulingScopes,
    ) -> None:
        self.policy = policy
        self.snapshot = Snapshot(TopologyCache() if profile is None else TopologyCache(profile))
        self.structure = Structure(policy, self.snapshot)
        self.scopes = scopes
        self.pending = PendingIndex(scopes)
        self.consumed = ConsumedResources(policy.usage_history) if policy.usage_history is not None else None
        self.assumed = AssumedReservations()
        self.shapes = WorkloadShapes(policy, accounting)
        self.loops = LoopDetector(enabled=policy.loop_detection)
        self.thrashing = ThrashingDetector() if policy.loop_detection else None
        self.starts = StartCounts()
        self.preemption_order = PreemptionOrder(self.loops) if policy.ensures_progress else None
        self.reservations = Reservations(self.structure, scopes, self.loops)
        self.planning: Planning | None = None
        if policy.tracks_hard_ends:
            self.planning = self.structure.usage_observer = Planning(self.structure, self.pending, scopes, policy)
        self.second_passes = SecondPasses(policy.node_replacement_delay)
        self.non_tas_usage = NonTASUsage(self.snapshot.topology_cache)
        self.namespaces = Namespaces(self.structure)
        # The resourceVersion of every WorkloadInfo, as read last.
        self.revisions: dict[str, str] = {}
        # Pending Workloads whose requests may have changed; the owner of the objects puts them again.
        self.outdated: set[str] = set()
        # Preemptors whose reservation is not confirmed. A queue clears its record when the Workload leaves it; a
        # refused reservation restores the record, as in Kueue, which clears it on the confirming read.
        self.assumed_preemptors: dict[str, PreemptorRecord] = {}
        # By the elastic slice whose reservation is not confirmed: the slice which it replaces.
        self._replaced: dict[str, _ReplacedSlice] = {}

    def target_of(self, workload: kueue.Workload) -> str:
        """Return the ClusterQueue that the Workload's LocalQueue points to; empty if there is none."""
        return self.pending.target(f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")

    def excluded_by(self, cluster_queue: str) -> tuple[str, ...]:
        """Return the resource prefixes that the ClusterQueue excludes, where such lists are enabled."""
        found = self.structure.cluster_queues.get(cluster_queue) if self.shapes.by_queue else None
        return found.spec.exclude_resource_prefixes if found is not None else ()

    def end_reservation(self, key: str) -> None:
        """Release a reservation and its second pass. A slice that it would have replaced counts again, with its own
        second pass."""
        self.second_passes.drop(key)
        self.reservations.end(key)
        replaced = self._replaced.pop(key, None)
        if replaced is not None and replaced.reservation.key not in self.reservations.held:
            self.reservations.restore(replaced.reservation)
            if replaced.second_pass is not None:
                self.second_passes.resume(replaced.second_pass)

    def replace_slice(self, old: str, by: str) -> None:
        """Release the reservation of an elastic slice for an assumed one that includes it."""
        replaced = self.reservations.held.get(old)
        if replaced is not None:
            second_pass = self.second_passes.pause(old)
            self.end_reservation(old)
            self._replaced[by] = _ReplacedSlice(replaced, second_pass)

    def confirm_reservation(self, key: str) -> None:
        """Take a reservation as stored: what was kept for the case that it is not is dropped."""
        self.assumed_preemptors.pop(key, None)
        self._replaced.pop(key, None)

    def forget_replaced(self, key: str) -> None:
        """Record that a slice has no quota any more, whatever becomes of the one that replaces it."""
        if self._replaced:
            self._replaced = {by: old for by, old in self._replaced.items() if old.reservation.key != key}

    def settle(self, now: Nanoseconds) -> None:
        """Bring cohort trees and queues up to date with everything that was put and dropped, and with the windows of
        time that began or ended."""
        if self.structure.advance(now):
            self.loops.changed()
        self.rebuild_trees()
        self.pending.wake(now)
        if self.planning is not None:
            self.planning.settle(now)
        released = self.scopes.take_released()

        def may_return(workload: WorkloadInfo) -> bool:
            return workload.may_compete(now) and self.namespaces.accepts(workload)

        for name in sorted({companion for one in released for companion in self.structure.tree_queues(one)}):
            if name in self.pending.queues:
                self.pending.queues[name].release(may_return)
                self.scopes.invalidate(name)

    def rebuild_trees(self) -> None:
        """Rebuild the cohort trees that changed, and order their queues by their current strategy."""
        changed = self.structure.settle()
        if changed:
            self.scopes.regroup(self.structure.scopes())
            # Also the queues that a moved queue or cohort left: what it had borrowed is available to them again.
            self.scopes.release(changed)
        for name in sorted(changed):
            self.scopes.invalidate(name)
            queue, read = self.pending.queues.get(name), self.structure.read.get(name)
            if queue is None or read is None:
                continue
            history = self.consumed if read.spec.is_usage_based else None
            usage = history.usage if history is not None else None
            queue.configure(usage, read.spec.strategy)
            listed = self.snapshot.queues.get(name)
            if listed is not None:
                listed.local_usage = usage
