"""The scheduler's state: its cache and queues, updated incrementally from API events.

`put` and `drop` take watched objects in any order (`intake`); `decide` runs scheduling cycles and applies their
decisions to the state (`cycle_driver`): heads return to their queues, reservations are assumed. The other methods are
queries. The parts are private: code outside this package uses the methods of World.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import amounts, requests
from pykueue.core.cohort import QuotaNode
from pykueue.core.decision import Decision, Wait
from pykueue.core.planned_starts import PlannedStart
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorResource, QueueSpec, Quota
from pykueue.core.requests import Exclusion
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.core.snapshot import Snapshot
from pykueue.core.topology import PlacementOptions
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.state import quota_withdrawal, usage_history, workload_info
from pykueue.state.assumed import WriteStage
from pykueue.state.cycle_driver import CycleDriver
from pykueue.state.intake import Intake, WatchedObject
from pykueue.state.parts import WorldParts
from pykueue.state.pending_queue import PendingQueue
from pykueue.state.planning import PlanChange
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.quota_windows import QuotaOwner, QuotaWindows, ScheduledWindows
from pykueue.state.quota_withdrawal import Withdrawal
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.thrashing import Thrashing
from pykueue.state.usage_history import Billionths


class World:
    """The state of one scheduler. It has one owner, does no I/O and has no clock of its own."""

    def __init__(
        self,
        policy: SchedulingPolicy = SchedulingPolicy(),  # noqa: B008 - frozen
        *,
        accounting: requests.Accounting = requests.PLAIN,
        profile: PlacementOptions | None = None,
        scopes: SchedulingScopes | None = None,
        explains: bool = True,
    ) -> None:
        """Without `explains`, the decisions of Workloads that wait have neither exact reasons nor explanations."""
        self.policy = policy
        self._parts = WorldParts(policy, accounting, profile, scopes if scopes is not None else SchedulingScopes())
        self._intake = Intake(self._parts)
        self._driver = CycleDriver(self._parts, explains=explains)

    # Objects.

    def put(self, thing: WatchedObject, now: Nanoseconds) -> None:
        """Apply a watched object that was created or changed. TypeError for a kind that scheduling does not depend on
        (`intake.is_watched`)."""
        self._intake.put(thing, now)

    def drop(self, thing: WatchedObject) -> None:
        """Apply the deletion of a watched object, given its last known state."""
        self._intake.drop(thing)

    def prepare(self) -> Iterator[None]:
        """Do most of the work of the next `settle` in short steps. Objects may be put and dropped between two steps."""
        return self._parts.structure.prepare()

    def settle(self, now: Nanoseconds) -> None:
        """Bring cohort trees and queues up to date with everything that was put and dropped."""
        self._parts.settle(now)

    def set_windows(self, schedules: Iterable[ScheduledWindows], now: Nanoseconds) -> None:
        """Replace the windows of all QuotaSchedules, in force and to come, and apply those in force [QS9]."""
        if self._parts.structure.windows.replace_all(schedules):
            self._parts.settle(now)

    @property
    def windows(self) -> QuotaWindows:
        """The windows, as of the last `settle`. Read only."""
        return self._parts.structure.windows

    def withdrawals(self, at: Nanoseconds) -> list[Withdrawal]:
        """Return the reservations that have to go for the windows in force at an instant, with the reservations of now
        [QS7]. Changes nothing."""
        return quota_withdrawal.withdrawals(self._parts.structure, at)

    @property
    def has_follow_ups(self) -> bool:
        """Whether `take_outdated` or `take_unblocked` would return a Workload. After most events they do not."""
        return bool(self._parts.outdated) or self._parts.reservations.has_unblocked

    def take_outdated(self) -> set[str]:
        """Return and clear the pending Workloads whose requests may have changed since they were put, because a
        LimitRange, a RuntimeClass or an exclusion list changed. The owner of the objects puts them again."""
        outdated = set(self._parts.outdated)
        self._parts.outdated.clear()
        return outdated

    # Cycles.

    def decide(self, now: Nanoseconds, *, enough: int | None = None) -> list[Decision]:
        """Run one cycle in every scheduling scope where something changed, and apply its decisions to the state.

        After `enough` decisions, or many scopes, the remaining ones are left for the next call, so that one call stays
        short: there may be no decision although `has_due_scopes`. A scope whose heads would only get the same answer
        again is skipped. The decisions are in scheduling order: without fair sharing over all scopes, as one cycle over
        all queues would process them; with fair sharing, which compares entries of one cohort tree only, scope by
        scope.
        """
        return self._driver.decide(now, enough)

    def admit_first(self, key: str, now: Nanoseconds) -> list[Decision]:
        """Decide about one pending Workload before all others, and apply its admission to the state. If it would not
        be admitted on the current facts, there is no decision, nothing changes, and it takes its turn in `decide`
        [CY29]."""
        return self._driver.admit_first(key, now)

    @property
    def has_due_scopes(self) -> bool:
        """Whether `decide` has scopes left that need a cycle."""
        return self._parts.scopes.has_due

    def retry_all(self) -> None:
        """Retry every pending Workload without a cause. A safety net: a Workload that is admitted after this should
        have been retried before."""
        self._driver.retry_all()

    def requeue_in_flight(self, now: Nanoseconds) -> None:
        """Return the heads of a cycle that raised an exception to their queues."""
        self._parts.pending.put_back(now)

    @property
    def cycles(self) -> int:
        """How many calls of `decide` decided anything."""
        return self._driver.cycles

    def next_wake(self) -> Nanoseconds | None:
        """Return when something is due without an event: the earliest end of a backoff or of a delayed preemption, the
        next edge of a window, or a planned start."""
        times = [self._parts.pending.next_wake]
        if self._parts.planning is not None:
            times.append(self._parts.planning.next_wake)
        pauses = self._parts.second_passes.backoff_ends()
        delayed, edge = self._parts.loops.next_due, self._parts.structure.windows.next_edge
        return min((time for time in (*times, *pauses, delayed, edge) if time is not None), default=None)

    def take_new_loops(self) -> list[PreemptionLoop]:
        """Return and clear the preemption loops that were found since the last call."""
        return self._parts.loops.take_new()

    # Planned starts.

    def take_plan_changes(self) -> list[PlanChange]:
        """Return and clear what happened to planned starts since the last call."""
        return self._parts.planning.take_changes() if self._parts.planning is not None else []

    def planned_start(self, key: str) -> PlannedStart | None:
        """Return the planned start of a pending Workload, if it has one."""
        return self._parts.planning.plan_of(key) if self._parts.planning is not None else None

    def planned_starts(self, cluster_queue: str) -> list[PlannedStart]:
        """Return the planned starts of a ClusterQueue, in the order in which they were made."""
        return self._parts.planning.in_queue(cluster_queue) if self._parts.planning is not None else []

    def loop_of(self, key: str) -> PreemptionLoop | None:
        """Return the preemption loop that a Workload is in, if it is in one."""
        return self._parts.loops.loop_of(key)

    def loops(self) -> list[PreemptionLoop]:
        """Return the preemption loops that go on, each once."""
        return self._parts.loops.loops()

    def hold_settled_loops(self) -> list[PreemptionLoop]:
        """Hold the preemptions of loops that the guard cannot delay any longer than it has for several rounds, until
        an outside change; return these loops. For runs ahead: a manager lets them go round."""
        return self._parts.loops.hold_settled()

    def loop_identity(self, key: str) -> str:
        """Return the key that stands for a Workload in loops: that of the first pod in whose place it was created."""
        return self._parts.loops.identity(key)

    def thrashing(self, now: Nanoseconds) -> list[Thrashing]:
        """Return the Workloads that are preempted again and again and hardly run [LG4]."""
        return self._parts.thrashing.found(now) if self._parts.thrashing is not None else []

    def passed_by(self, workload: WorkloadInfo) -> int:
        """Return how many Workloads behind a pending one in its ClusterQueue have started since it was queued [LG8]."""
        return self._parts.starts.passed(workload)

    # Assumed reservations: those whose write is not confirmed by a read.

    def is_assumed(self, key: str) -> bool:
        """Whether the Workload has a reservation that no read of its object has confirmed yet."""
        return key in self._parts.assumed

    @property
    def assumed_count(self) -> int:
        """How many reservations are assumed."""
        return len(self._parts.assumed)

    def write_stage(self, key: str) -> WriteStage | None:
        """Return how far the write of an assumed reservation is."""
        return self._parts.assumed.stage(key)

    def writing(self, key: str, revision: str) -> None:
        """Record the revision that the write of a reservation is conditional on. The cycle may have decided on an older
        one."""
        self._parts.assumed.assume(key, revision)

    def written(self, key: str, revision: str) -> None:
        """Record that the API server stored a reservation at this revision."""
        self._parts.assumed.written(key, revision)

    def lost(self, key: str) -> None:
        """Record that the write of a reservation got no answer: it may have been applied, or may be applied later."""
        self._parts.assumed.lost(key)

    def confirm(self, key: str) -> None:
        """Take an assumed reservation as stored, without a read. For plans, which write nothing."""
        self._parts.assumed.end(key)
        self._parts.confirm_reservation(key)

    def refuse(self, key: str) -> None:
        """Release an assumed reservation that was not stored. The owner of the object puts it again."""
        self._driver.refuse(key)

    def set_aside(self, key: str, why: str, now: Nanoseconds) -> Wait | None:
        """Exclude a pending Workload whose reservation can never be written from scheduling until it changes. Return
        the decision to report; None if the Workload is not pending."""
        return self._driver.set_aside(key, why, now)

    def mark_evicted(self, key: str) -> None:
        """Count a reservation as evicted: its eviction is being written outside a cycle."""
        if key in self._parts.reservations.held:
            self._parts.reservations.mark_evicted(key)

    def recheck(self, key: str, now: Nanoseconds) -> Holds | HoldsAfter | Lost:
        """Evaluate whether a reservation still holds, and which preemption targets it needs gone. For deferred
        preemptions that are due, and after the last admission check passed."""
        self._parts.settle(now)
        return self._parts.reservations.recheck(key, self.policy, now)

    def take_unblocked(self) -> set[str]:
        """Return and clear the reservations that lost one of their assumed preemption targets since the last call."""
        return self._parts.reservations.take_unblocked()

    # Queries: Workloads.

    @property
    def queues(self) -> Mapping[str, PendingQueue]:
        """The pending Workloads by ClusterQueue. Read only."""
        return self._parts.pending.queues

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """The reservations by Workload. Read only."""
        return self._parts.reservations.held

    @property
    def second_passes(self) -> Mapping[str, WorkloadInfo]:
        """The Workloads that hold quota and need a second scheduling pass. Read only."""
        return self._parts.second_passes.heads

    @property
    def next_second_pass(self) -> Nanoseconds | None:
        """When the first of them may be tried; None if there are none."""
        return self._parts.second_passes.next_due

    def pending_workload(self, key: str) -> WorkloadInfo | None:
        """Return a pending WorkloadInfo, whether or not its LocalQueue points to a ClusterQueue."""
        return self._parts.pending.pending(key)

    def pending_keys(self) -> Iterable[str]:
        """Return the pending Workloads, in any queue or in none."""
        return self._parts.pending.waiting()

    def pending_count(self, local_queue: str) -> int:
        """Return how many Workloads of a LocalQueue are pending, without those in their first backoff."""
        return self._parts.pending.pending_in(local_queue)

    def priority(self, workload: kueue.Workload) -> int:
        """Return the effective priority of a WorkloadInfo, its boost included."""
        return workload_info.priority(workload, self.policy)

    def problem(self, key: str) -> str:
        """Return what makes a pending Workload inadmissible whatever quota is free; empty if nothing does."""
        workload = self._parts.pending.pending(key)
        refusal = self._parts.namespaces.refusal(workload) if workload is not None else None
        return refusal.message if refusal is not None else ""

    def inadmissible_class_reason(self, key: str) -> QuotaReservedReason | None:
        """Return why another Workload of the same equivalence class was not admitted, where that still holds [QU13]."""
        workload = self._parts.pending.pending(key)
        queue = self.queues.get(workload.cluster_queue) if workload is not None else None
        found = (
            queue.inadmissible_classes.get(workload.equivalence_class)
            if queue is not None and workload is not None
            else None
        )
        return found.reason if found is not None else None

    def exclusions(self, workload: kueue.Workload) -> tuple[Exclusion, ...]:
        """Return what a Workload requests without being charged, and which list excludes it (KEP-5800)."""
        excluded = self._parts.excluded_by(self._parts.target_of(workload))
        return self._parts.shapes.exclusions(workload, excluded)

    def excluded_from_checks(self, workload: kueue.Workload) -> frozenset[str]:
        """Return the resources that admission checks ignore: what either list excludes, where ClusterQueues have lists
        of their own (KEP-5800). Without them the global list concerns quota alone, as in Kueue."""
        if not self._parts.shapes.by_queue:
            return frozenset()
        return frozenset(each.resource for each in self.exclusions(workload))

    def skipped(self, workload: kueue.Workload, cluster_queue: str) -> tuple[str, ...]:
        """Return what a Workload requests and no quota counts, because the ClusterQueue does not declare it
        (KEP-7513)."""
        spec = self.queue_spec(cluster_queue)
        if not self.policy.ignore_undeclared or spec is None:
            return ()
        covered, shape = spec.covered, self._parts.shapes.shape(workload)
        requested = (requests.undeclared(pod_set.requests, covered) for pod_set in shape.pod_sets)
        return tuple(sorted({resource for of_pod_set in requested for resource, _ in of_pod_set}))

    def requested_share(self, workload: kueue.Workload, cluster_queue: str) -> float:
        """Return the largest part of the nominal quota of a ClusterQueue, of any resource and of all flavors together,
        that a Workload requests. Windows do not count, nor does a resource without nominal quota."""
        nominal: dict[str, int] = {}
        for pair, quota in (self.spec_quotas(QuotaOwner(is_cohort=False, name=cluster_queue)) or {}).items():
            nominal[pair.resource] = nominal.get(pair.resource, 0) + quota.nominal
        requested: dict[str, int] = {}
        for pod_set in self._parts.shapes.shape(workload, self._parts.excluded_by(cluster_queue)).pod_sets:
            # As the scheduler counts them: a request named `pods` is not the number of pods.
            for resource, amount in {**dict(pod_set.requests), amounts.PODS: pod_set.count}.items():
                requested[resource] = requested.get(resource, 0) + amount
        shares = (requested.get(resource, 0) / amount for resource, amount in nominal.items() if amount > 0)
        return max(shares, default=0.0)

    # Queries: ClusterQueues and cohorts.

    @property
    def cluster_queues(self) -> Mapping[str, kueue.ClusterQueue]:
        """The ClusterQueues by name. Read only."""
        return self._parts.structure.cluster_queues

    @property
    def cohorts(self) -> Collection[str]:
        """The names of the Cohort objects. Read only."""
        return self._parts.structure.cohorts.keys()

    @property
    def topologies(self) -> Collection[str]:
        """The names of the Topology objects. Read only."""
        return self._parts.structure.topologies.keys()

    def queue_spec(self, cluster_queue: str) -> QueueSpec | None:
        """Return a ClusterQueue as the scheduler reads it, as of the last `settle`."""
        read = self._parts.structure.read.get(cluster_queue)
        return read.spec if read is not None else None

    def spec_quotas(self, owner: QuotaOwner) -> Mapping[FlavorResource, Quota] | None:
        """Return the quotas of the spec of a ClusterQueue or Cohort; None if it does not exist."""
        return self._parts.structure.spec_quotas(owner)

    def effective_quotas(self, owner: QuotaOwner) -> Mapping[FlavorResource, Quota] | None:
        """Return the quotas that count now, with the windows in force [QS1]."""
        found = self._parts.structure.spec_quotas(owner)
        return None if found is None else self._parts.structure.windows.quotas(owner, found)

    def is_active(self, cluster_queue: str) -> bool:
        """Whether the scheduler takes heads from the ClusterQueue."""
        return self._parts.structure.is_active(cluster_queue)

    def reservations_in(self, cluster_queue: str) -> Iterable[Reservation]:
        """Return the reservations in a ClusterQueue, whether or not it exists."""
        return self._parts.structure.held(cluster_queue)

    def queue_node(self, cluster_queue: str) -> QuotaNode | None:
        """Return the ClusterQueue's node in its cohort tree, active or not."""
        return self._parts.structure.node(cluster_queue)

    def cohort_node(self, cohort: str) -> QuotaNode | None:
        """Return a cohort's node in its tree, with or without a Cohort object."""
        return self._parts.structure.cohort_node(cohort)

    def cohort_nodes(self) -> Iterator[QuotaNode]:
        """Return every cohort's node, implicit cohorts included. Cohorts of a cycle are in no tree."""
        return self._parts.structure.cohort_nodes()

    def tree_queues(self, cluster_queue: str) -> Iterator[str]:
        """Return the ClusterQueues of the same cohort tree, itself included; none in a cohort cycle."""
        return self._parts.structure.tree_queues(cluster_queue)

    def scope_queues(self, cluster_queue: str) -> tuple[str, ...]:
        """Return the ClusterQueues that are decided together with this one, itself included, as of the last
        `settle`."""
        return self._parts.scopes.queues_of(cluster_queue)

    def cohort_path(self, cluster_queue: str) -> str:
        """Return the ClusterQueue below its cohorts, from the root: `/root/team/queue`. Empty if it does not exist."""
        node = self.queue_node(cluster_queue)
        if node is None:
            return ""
        return "/" + "/".join(reversed((node.name, *(above.name for above in node.ancestors))))

    def in_cohort_cycle(self, now: Nanoseconds) -> frozenset[str]:
        """Return the ClusterQueues whose cohorts are their own ancestors."""
        self.settle(now)
        return self._parts.structure.in_cohort_cycle

    def snapshot(self) -> Snapshot:
        """Return the snapshot that cycles run on, as of the last `settle`. A caller that assumes usage in it undoes
        that before the next call of a method of World."""
        return self._parts.snapshot

    # Usage history (admission fair sharing).

    def weighted_usage(self, local_queue: str) -> float | None:
        """Return the weighted usage that orders LocalQueues; None if no history is kept."""
        return self._parts.consumed.usage(local_queue) if self._parts.consumed is not None else None

    def consumed(self, local_queue: str) -> Mapping[str, Billionths]:
        """Return the decayed usage of a LocalQueue by resource; empty if no history is kept."""
        return self._parts.consumed.consumed(local_queue) if self._parts.consumed is not None else {}

    def local_queue_usage(self, local_queue: str, cluster_queue: str) -> dict[str, Billionths]:
        """Return what the admitted Workloads of a LocalQueue use now, over all flavors. A resource that the
        ClusterQueue declares and no Workload uses is 0."""
        namespace, _, name = local_queue.partition("/")
        spec = self.queue_spec(cluster_queue)
        total: dict[str, Billionths] = dict.fromkeys(sorted(spec.covered), 0) if spec is not None else {}
        for held in self.reservations_in(cluster_queue):
            if held.admitted and held.local_queue == name and held.namespace == namespace:
                for pair, amount in held.usage:
                    total[pair.resource] = total.get(pair.resource, 0) + usage_history.of_amount(pair.resource, amount)
        return total

    def sample_usage(self, local_queue: str, in_use: Mapping[str, Billionths], now: Nanoseconds) -> None:
        """Add a sample of what the admitted Workloads of a LocalQueue use now [AF3]."""
        if self._parts.consumed is not None:
            self._parts.consumed.sample(local_queue, in_use, now)

    def usage_sampled(self, cluster_queue: str) -> None:
        """Try the head of a ClusterQueue: after samples it is another one. In a manager the status of the LocalQueue,
        which has the sample, does that."""
        self._parts.scopes.invalidate(cluster_queue)

    def heads_by_usage(self) -> dict[str, str]:
        """Return the head of each ClusterQueue that is ordered by usage and has one."""
        heads = {name: queue.head() for name, queue in self.queues.items() if queue.local_usage is not None}
        return {name: head.key for name, head in heads.items() if head is not None}

    def heads_at_rest(self) -> dict[str, str]:
        """Return the same heads as they will be after many samples, if nothing else happens until then. Each usage
        comes nearer to what is in use, by the same factor: two of them change their order at most once."""
        found: dict[str, str] = {}
        consumed = self._parts.consumed
        if consumed is None:
            return found
        for name in self.heads_by_usage():

            def at_rest(local_queue: str, name: str = name) -> float:
                return consumed.usage_at_rest(local_queue, self.local_queue_usage(local_queue, name))

            head = self.queues[name].head(at_rest)
            if head is not None:
                found[name] = head.key
        return found

    def settle_usage(self, local_queue: str, key: str, in_use: Mapping[str, Billionths], now: Nanoseconds) -> None:
        """Turn the entry penalty of an admitted Workload into past usage [AF6]."""
        if self._parts.consumed is not None:
            self._parts.consumed.settle(local_queue, key, in_use, now)

    def forgive_usage(self, local_queue: str, key: str) -> None:
        """Remove the entry penalty of a Workload that was not admitted [AF7]."""
        if self._parts.consumed is not None:
            self._parts.consumed.forgive(local_queue, key)
