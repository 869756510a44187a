"""Random clusters with planned backfill, run on a virtual clock, and checkers of what holds at every step.

The checkers use the quota arithmetic and nothing of the timeline: projected usage is added up from the reservations.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue.api import backfill, kube, kueue
from pykueue.core import quota
from pykueue.core.cohort import CohortTree
from pykueue.core.decision import Admit, Decision, Preempt, Requeue, Wait
from pykueue.core.planned_starts import PlannedStart, WithdrawalCause
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.timeline import ENDLESS
from pykueue.state.planning import PlanEvent
from pykueue.state.world import World

START = meta.parse_time("2026-01-01T00:00:00Z")
NAMESPACE = "ns"
ALLOWANCE = 60
STOPS_IN = 45


@dataclass(frozen=True)
class BackfillQueue:
    nominal: int
    borrowing: int | None
    lending: int | None
    strict: bool
    mode: str  # EASY, Conservative, or empty: without backfill
    reclaim: str = "Never"
    within: str = "Never"


@dataclass(frozen=True)
class BackfillJob:
    """A Workload: its ClusterQueue, request, arrival, limit (0: none), and how long it really runs."""

    queue: int
    cpu: int
    arrival: int
    limit: int
    runs: int
    priority: int = 0


@dataclass(frozen=True)
class BackfillCase:
    queues: tuple[BackfillQueue, ...]
    jobs: tuple[BackfillJob, ...]

    def cluster_queue(self, index: int) -> kueue.ClusterQueue:
        queue = self.queues[index]
        shared = len(self.queues) > 1
        quotas = kueue.ResourceQuota(
            name="cpu",
            nominal_quota=queue.nominal,
            borrowing_limit=queue.borrowing if shared else None,
            lending_limit=min(queue.lending, queue.nominal) if shared and queue.lending is not None else None,
        )
        marks = {backfill.MODE: queue.mode, backfill.PLAN_AFTER: "0s"} if queue.mode else {}
        return kueue.ClusterQueue(
            metadata=meta.ObjectMeta(name=f"q{index}", annotations=marks),
            spec=kueue.ClusterQueueSpec(
                cohort_name="all" if shared else "",
                namespace_selector=meta.LabelSelector(),
                queueing_strategy="StrictFIFO" if queue.strict else "BestEffortFIFO",
                resource_groups=(
                    kueue.ResourceGroup(
                        covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="f", resources=(quotas,)),)
                    ),
                ),
                preemption=kueue.ClusterQueuePreemption(
                    reclaim_within_cohort=queue.reclaim, within_cluster_queue=queue.within
                ),
            ),
        )

    def workload(self, number: int, planned: int | None = None) -> kueue.Workload:
        job = self.jobs[number]
        container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": job.cpu}))
        marks = {backfill.PLANNED_START: meta.format_time(planned)} if planned is not None else {}
        return kueue.Workload(
            metadata=meta.ObjectMeta(
                name=f"w{number:02}",
                namespace=NAMESPACE,
                uid=f"w{number:02}",
                generation=1,
                creation_timestamp=meta.format_time(START + job.arrival * SECOND),
                annotations=marks,
            ),
            spec=kueue.WorkloadSpec(
                queue_name=f"q{job.queue % len(self.queues)}",
                priority=job.priority,
                pod_sets=(
                    kueue.PodSet(
                        name="main", count=1, template=kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
                    ),
                ),
                maximum_execution_time_seconds=job.limit or None,
            ),
        )


def crowded_case(rng: random.Random) -> BackfillCase:
    """Up to four ClusterQueues that reclaim their nominal quota, with so many jobs that most have to wait.

    None preempts within its ClusterQueue: with both, preemptions may go on without end, also without backfill."""

    def limit() -> int | None:
        return rng.choice((None, rng.randint(0, 6)))

    queues = tuple(
        BackfillQueue(
            nominal=rng.randint(1, 10),
            borrowing=limit(),
            lending=limit(),
            strict=rng.random() < 0.5,
            mode=rng.choice(("EASY", "Conservative", "EASY", "")),
            reclaim=rng.choice(("Never", "Any", "LowerPriority")),
        )
        for _ in range(rng.randint(2, 4))
    )
    arriving = tuple(
        BackfillJob(
            queue=rng.randint(0, 3),
            cpu=rng.randint(1, 8),
            arrival=rng.randint(0, 1500),
            limit=rng.choice((0, rng.randint(60, 2000), rng.randint(60, 2000))),
            runs=rng.randint(1, 2500),
            priority=rng.randint(0, 2),
        )
        for _ in range(rng.randint(20, 40))
    )
    return BackfillCase(queues, arriving)


@dataclass
class BackfillRun:
    """One run of a case: everything is put into a World, decided, and ends when its time has come."""

    case: BackfillCase
    policy: SchedulingPolicy = field(default_factory=lambda: SchedulingPolicy(planned_backfill=True))
    seconds: int = 0
    started: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    first_dates: dict[int, int] = field(default_factory=dict)  # in nanoseconds; of planned starts that had a date
    dates: dict[int, int | None] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)  # by a cause of BF8
    preempted: set[int] = field(default_factory=set)
    refused_nominal: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unjustified: list[str] = field(default_factory=list)  # causes that did not happen
    admitted_now: list[tuple[int, bool]] = field(default_factory=list)  # in this cycle: number, within nominal quota
    log: list[str] = field(default_factory=list)
    backfilled: int = 0

    def __post_init__(self) -> None:
        self.world = self.new_world()
        self.arrivals = sorted((job.arrival, number) for number, job in enumerate(self.case.jobs))

    @property
    def now(self) -> int:
        return START + self.seconds * SECOND

    def new_world(self) -> World:
        world = World(self.policy)
        world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), self.now)
        world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="f")), self.now)
        for index in range(len(self.case.queues)):
            world.put(self.case.cluster_queue(index), self.now)
            spec = kueue.LocalQueueSpec(cluster_queue=f"q{index}")
            metadata = meta.ObjectMeta(name=f"q{index}", namespace=NAMESPACE)
            world.put(kueue.LocalQueue(metadata=metadata, spec=spec), self.now)
        return world

    def run(self, until: int = 100_000) -> BackfillRun:
        """Go from event to event until nothing is left to happen."""
        for _ in range(2_000):
            wake = self.world.next_wake()
            times = [
                *(at for at, _ in self.arrivals[:1]),
                *self.ends.values(),
                *([-(-(wake - START) // SECOND)] if wake is not None else []),
            ]
            if not times or min(times) > until:
                return self
            self.seconds = max(self.seconds, min(times))
            self.step()
        raise AssertionError("the run does not end")

    def step(self) -> None:
        while self.arrivals and self.arrivals[0][0] <= self.seconds:
            _, number = self.arrivals.pop(0)
            self.world.put(self.case.workload(number), self.now)
        for number, end in sorted(self.ends.items()):
            if end <= self.seconds:
                del self.ends[number]
                self.finished(number)
                done = meta.Condition(type="Finished", status="True", reason="Succeeded")
                workload = self.case.workload(number)
                status = kueue.WorkloadStatus(conditions=(done,))
                self.world.put(kueue.Workload(metadata=workload.metadata, spec=workload.spec, status=status), self.now)
        self.drain()

    def drain(self) -> None:
        for _ in range(500):
            decisions = self.world.decide(self.now)
            if not decisions:
                self.take_changes()
                return
            for decision in decisions:
                self.log.append(f"{self.seconds} {type(decision).__name__} {decision.workload}")
                number = number_of(decision.workload)
                self.decided(decision)
                match decision:
                    case Admit():
                        self.world.confirm(decision.workload)
                        self.started[number] = self.seconds
                        job = self.case.jobs[number]
                        # One that is stopped by its limit takes a while to release its quota.
                        stopped = bool(job.limit) and job.runs > job.limit
                        self.ends[number] = self.seconds + (job.limit + STOPS_IN if stopped else job.runs)
                        node = self.tree().queues[decision.cluster_queue]
                        self.admitted_now.append((number, node.usage[0] <= node.subtree[0]))
                    case Preempt():
                        for target in decision.targets:
                            victim = number_of(target.key)
                            self.preempted.add(victim)
                            self.ends.pop(victim, None)
                            self.world.put(self.case.workload(victim), self.now)
                    case Wait() if decision.requeue is Requeue.PLANNED:
                        self.check_refusal(number)
            self.take_changes()
            self.check_dates()
            self.admitted_now = []
        raise AssertionError("the cycles do not end")

    def decided(self, decision: Decision) -> None:
        """A hook for further checks, called for every decision in order."""

    def finished(self, number: int) -> None:
        """A hook for further checks, called when a run has ended."""

    def take_changes(self) -> None:
        for change in self.world.take_plan_changes():
            number = number_of(change.workload)
            self.log.append(f"{self.seconds} {change}")
            if change.event is PlanEvent.BACKFILLED:
                self.backfilled += 1
                continue
            if change.event is not PlanEvent.KEPT:
                self.dates[number] = change.date
            if change.cause is not None or (change.event is PlanEvent.WITHDRAWN):
                self.moved.add(number)
                if not self.happened(change.cause, number):
                    self.unjustified.append(f"{self.seconds}: {change}")
            if change.date is not None and change.event in (PlanEvent.PLANNED, PlanEvent.REPLANNED):
                self.first_dates.setdefault(number, change.date)

    def happened(self, cause: WithdrawalCause | None, owner: int) -> bool:
        """Whether the cause of a later date is true, for worlds without preemption: every quota is constant here, and
        every run ends before its hard end."""
        if any(queue.reclaim != "Never" or queue.within != "Never" for queue in self.case.queues):
            return True
        queues, jobs = len(self.case.queues), self.case.jobs
        own = jobs[owner].queue % queues
        match cause:
            case WithdrawalCause.NOMINAL_USE:
                return any(jobs[number].queue % queues != own and fits for number, fits in self.admitted_now)
            case WithdrawalCause.AHEAD_IN_ORDER:
                waiting = {number_of(key) for key in self.world.pending_keys()}
                before = {number for number, _ in self.admitted_now} | waiting
                return any(
                    jobs[number].queue % queues == own and (jobs[number].arrival, number) < (jobs[owner].arrival, owner)
                    for number in before
                )
        return False

    # Checkers.

    def tree(self) -> CohortTree:
        return self.world.snapshot().queues["q0"].node.tree

    def plans(self) -> list[PlannedStart]:
        return [plan for index in range(len(self.case.queues)) for plan in self.world.planned_starts(f"q{index}")]

    def empty_tree(self, at: int) -> CohortTree:
        """The tree with the quotas of a time, without usage."""
        return self.tree().without_usage()

    def projected(self, at: int, without: str = "") -> CohortTree:
        """The tree at a time: reservations that last beyond it, and claims of planned starts, added one by one."""
        tree, log = self.empty_tree(at), []  # type: ignore[var-annotated]
        for held in self.world.reservations.values():
            if held.hard_end > at:
                quota.add_all(tree.queues[held.cluster_queue], held.usage_by_number, log)
        for plan in self.plans():
            limit = self.case.jobs[number_of(plan.key)].limit
            end = plan.date + (limit + ALLOWANCE) * SECOND if limit and plan.date is not None else ENDLESS
            if plan.date is not None and plan.date <= at < end and plan.key != without:
                quota.add_all(tree.queues[plan.queue], plan.usage, log)
        return tree

    def check_dates(self) -> None:
        """BF-L7, for worlds without preemption: every owner fits at its date."""
        if any(queue.reclaim != "Never" or queue.within != "Never" for queue in self.case.queues):
            return
        self.world.settle(self.now)
        self.take_changes()
        for plan in self.plans():
            if plan.date is None:
                continue
            node = self.projected(plan.date, plan.key).queues[plan.queue]
            if any(amount > quota.available(node, number) for number, amount in plan.usage):
                self.broken.append(f"{self.seconds}: {plan.key} does not fit at {meta.format_time(plan.date)}")

    def check_refusal(self, number: int) -> None:
        """BF-L4: a Workload within nominal quota is refused only for a planned start of its own ClusterQueue."""
        job = self.case.jobs[number]
        queue = f"q{job.queue % len(self.case.queues)}"
        node = self.tree().queues[queue]
        if node.usage[0] + job.cpu * 1000 <= node.subtree[0] and not self.world.planned_starts(queue):
            self.refused_nominal.append(f"{self.seconds}: w{number:02}")


def number_of(key: str) -> int:
    return int(key.rpartition("/w")[2])


limits = st.one_of(st.none(), st.integers(0, 6))
modes = st.sampled_from(("EASY", "Conservative", "EASY", "Conservative", ""))
plain_queues = st.builds(BackfillQueue, st.integers(1, 10), limits, limits, st.booleans(), modes)
preempting_queues = st.builds(
    BackfillQueue,
    st.integers(1, 10),
    limits,
    limits,
    st.booleans(),
    modes,
    st.sampled_from(("Never", "Any", "LowerPriority")),
    st.sampled_from(("Never", "LowerPriority")),
)
run_limits = st.one_of(st.just(0), st.integers(60, 2_000), st.integers(60, 2_000), st.integers(60, 2_000))
jobs = st.builds(
    BackfillJob, st.integers(0, 2), st.integers(1, 8), st.integers(0, 1_500), run_limits, st.integers(1, 2_500)
)
jobs_with_priorities = st.builds(
    BackfillJob,
    st.integers(0, 2),
    st.integers(1, 8),
    st.integers(0, 1_500),
    run_limits,
    st.integers(1, 2_500),
    st.integers(0, 2),
)


def cases(
    queues: st.SearchStrategy[BackfillQueue], found: st.SearchStrategy[BackfillJob]
) -> st.SearchStrategy[BackfillCase]:
    return st.builds(
        BackfillCase,
        st.lists(queues, min_size=1, max_size=3).map(tuple),
        st.lists(found, min_size=2, max_size=12).map(tuple),
    )
