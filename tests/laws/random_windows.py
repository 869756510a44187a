"""Random clusters with windows of quota, run on a virtual clock, and a checker of `approach: EndBefore` (law QS-L2).

The checker shares the arithmetic of the quota tree with the product, and neither its timeline nor its windows: the
quota of a second is worked out from the text of the rules, and usage from the decisions, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kubemachinery.meta import SECOND
from laws.random_backfill import ALLOWANCE, START, BackfillRun, number_of
from pykueue.core import quota
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import CohortTree, plan_trees
from pykueue.core.decision import Admit, Decision, Preempt, Requeue, Wait
from pykueue.core.planned_starts import WithdrawalCause
from pykueue.core.queue import CohortInfo, FlavorResource, QueueSpec, Quota
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan
from pykueue.state.world import World

PAIR = FlavorResource("f", "cpu")
FOR_EVER = 10**9


@dataclass(frozen=True)
class DrawnWindow:
    """One schedule with one window, in seconds: the ClusterQueue, and the nominal quota to set or to add."""

    queue: int
    start: int
    length: int
    cpu: int
    is_change: bool
    ends_before: bool

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass
class WindowRun(BackfillRun):
    """A run with windows of quota. Windows are known from the begin."""

    windows: tuple[DrawnWindow, ...] = ()
    held: dict[int, int] = field(default_factory=dict)  # reservations: their hard end in seconds
    exceeding: list[str] = field(default_factory=list)
    refused_in_vain: list[str] = field(default_factory=list)
    in_debt: list[str] = field(default_factory=list)
    moved_by_windows: list[str] = field(default_factory=list)
    drops: int = 0

    def new_world(self) -> World:
        world = super().new_world()
        queues = len(self.case.queues)
        world.set_windows(
            [
                ScheduledWindows(
                    f"s{number}",
                    (
                        WindowQuota(
                            f"q{window.queue % queues}",
                            *PAIR,
                            nominal=None if window.is_change else window.cpu * 1000,
                            change=window.cpu * 1000 if window.is_change else 0,
                        ),
                    ),
                    (WindowSpan("w", START + window.start * SECOND, START + window.end * SECOND),),
                    ends_before=window.ends_before,
                )
                for number, window in enumerate(self.windows)
            ],
            self.now,
        )
        return world

    # Quotas, by the text of rules QS1 and QS4.

    def nominal(self, queue: int, at: int) -> int:
        named = [
            (number, window)
            for number, window in enumerate(self.windows)
            if window.queue % len(self.case.queues) == queue and window.start <= at < window.end
        ]
        sets = sorted((-window.start, f"s{number}", window.cpu) for number, window in named if not window.is_change)
        base = sets[0][2] if sets else self.case.queues[queue].nominal
        return max(0, base + sum(window.cpu for _, window in named if window.is_change)) * 1000

    def empty_tree(self, at: int) -> CohortTree:
        return self.tree_at((at - START) // SECOND)

    def tree_at(self, at: int) -> CohortTree:
        shared = len(self.case.queues) > 1
        specs = []
        for index, queue in enumerate(self.case.queues):
            borrowing = UNLIMITED if not shared or queue.borrowing is None else queue.borrowing * 1000
            lending = UNLIMITED if not shared or queue.lending is None else min(queue.lending, queue.nominal) * 1000
            own = Quota(self.nominal(index, at), borrowing, lending)
            specs.append(QueueSpec(name=f"q{index}", cohort="all" if shared else "", quotas={PAIR: own}))
        plan = plan_trees(specs, {"all": CohortInfo("all")} if shared else {}).trees[0]
        return CohortTree.build(plan, (PAIR,))

    def lowered(self, after: int, until: int) -> Iterator[int]:
        """The times at which a schedule with `EndBefore` lowers a quota: below that just before, or, at the start of its
        window, below that of `after`."""
        for window in self.windows:
            queue = window.queue % len(self.case.queues)
            for at in (window.start, window.end):
                if not window.ends_before or not after < at < until:
                    continue
                new = self.nominal(queue, at)
                if new < self.nominal(queue, at - 1) or (at == window.start and new < self.nominal(queue, after)):
                    yield at

    # Checks.

    def used_at(self, at: int, *more: tuple[int, int]) -> CohortTree:
        tree, log = self.tree_at(at), []  # type: ignore[var-annotated]
        for number, end in (*self.held.items(), *more):
            if end > at:
                job = self.case.jobs[number]
                node = tree.queues[f"q{job.queue % len(self.case.queues)}"]
                quota.add_all(node, ((0, job.cpu * 1000),), log)
        return tree

    def exceeds(self, number: int) -> list[int]:
        """The times at which a Workload that starts now holds more than is left after quota was lowered."""
        job = self.case.jobs[number]
        end = self.hard_end(number)
        found = []
        for at in self.lowered(self.seconds, end):
            node = self.used_at(at, (number, end)).queues[f"q{job.queue % len(self.case.queues)}"]
            if node.usage[0] > node.subtree[0] and quota.balance(node, 0) < 0:
                found.append(at)
        return found

    def hard_end(self, number: int) -> int:
        limit = self.case.jobs[number].limit
        return self.seconds + limit + ALLOWANCE if limit else FOR_EVER

    def decided(self, decision: Decision) -> None:
        number = number_of(decision.workload)
        match decision:
            case Admit():
                if found := self.exceeds(number):
                    self.exceeding.append(f"{self.seconds}: w{number:02} holds too much at {found}")
                self.held[number] = self.hard_end(number)
            case Preempt():
                for target in decision.targets:
                    self.held.pop(number_of(target.key), None)
            case Wait() if decision.requeue is Requeue.PLANNED and not self.policy.planned_backfill:
                if not self.exceeds(number):
                    self.refused_in_vain.append(f"{self.seconds}: w{number:02} {decision.message}")

    def finished(self, number: int) -> None:
        self.held.pop(number, None)

    def step(self) -> None:
        super().step()
        # After every event of this second: where ClusterQueues do not borrow, none is above a quota that was lowered.
        for window in self.windows:
            queue = window.queue % len(self.case.queues)
            if not window.ends_before or self.seconds not in (window.start, window.end):
                continue
            if self.nominal(queue, self.seconds) >= self.nominal(queue, self.seconds - 1):
                continue
            self.drops += 1
            used = self.used_at(self.seconds).queues[f"q{queue}"].usage[0]
            if used > self.nominal(queue, self.seconds) and all(each.borrowing == 0 for each in self.case.queues):
                self.in_debt.append(f"{self.seconds}: q{queue} uses {used} of {self.nominal(queue, self.seconds)}")

    def happened(self, cause: WithdrawalCause | None, owner: int) -> bool:
        if cause is WithdrawalCause.QUOTA_CHANGED:  # dates consider windows, and windows are known from the begin
            if owner in self.first_dates:
                self.moved_by_windows.append(f"{self.seconds}: w{owner:02}")
            return True
        return super().happened(cause, owner)

    def found(self) -> list[str]:
        return [*self.exceeding, *self.refused_in_vain, *self.in_debt]
