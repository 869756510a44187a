"""What is due for one Workload now: the rules in their order, until none has anything to add.

A rule that changes the status sends the Workload, as it will be written, through all the rules again; so one write
carries what would otherwise be a chain of writes, each waiting for the watch event of the one before. A change of the
object itself is a write of its own and waits until nothing is due on the status: of two writes one can fail, and what
is then missing must be the later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import Workload
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions, WorkloadFacts
from pykueue.lifecycle.rules import Rule, RuleContext
from pykueue.lifecycle.rules.activation import deactivation_target, inactive, reactivated
from pykueue.lifecycle.rules.admission_gate import admission_gate
from pykueue.lifecycle.rules.admitted import admitted
from pykueue.lifecycle.rules.check_delay import check_delay
from pykueue.lifecycle.rules.checks import check_list, rejected, retry
from pykueue.lifecycle.rules.claims import claims
from pykueue.lifecycle.rules.execution_time import execution_time
from pykueue.lifecycle.rules.finished import finished
from pykueue.lifecycle.rules.orphan import orphan
from pykueue.lifecycle.rules.pending import waiting
from pykueue.lifecycle.rules.pods_ready import pods_ready
from pykueue.lifecycle.rules.preemption_gates import preemption_gates
from pykueue.lifecycle.rules.queue_stopped import cluster_queue_stopped, local_queue_stopped
from pykueue.lifecycle.rules.requeuing import backoff, cluster_queue_restarted, local_queue_restarted
from pykueue.lifecycle.rules.variants import family
from pykueue.lifecycle.workload_changes import Changes

RULES: Final[tuple[Rule, ...]] = (
    orphan,
    preemption_gates,
    family,
    finished,
    check_delay,
    claims,
    deactivation_target,
    backoff,
    reactivated,
    inactive,
    local_queue_restarted,
    admission_gate,
    cluster_queue_restarted,
    check_list,
    waiting,
    admitted,
    rejected,
    retry,
    local_queue_stopped,
    cluster_queue_stopped,
    pods_ready,
    execution_time,
)

# Every rule could speak once, and some of them again because of another; more than that is a circle.
_MOST_PASSES: Final = 2 * len(RULES)


class Unsettled(Exception):
    """Two rules undo each other's work: a fault in the rules. The message has the Workload's conditions."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(
            f"the rules do not settle for Workload {states.key(workload)}: {states.condition_summary(workload)}"
        )


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """What to write and tell now, when to look again, and whether the scheduler has to look at the reservation.

    All changes are on the status, or all are on the object: one write carries them.
    """

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False


def step(
    workload: Workload, facts: WorkloadFacts, options: LifecycleOptions, now: Nanoseconds, *, jitter: float = 0.0
) -> LifecycleStep:
    """What is due now. `jitter`, from 0 up to 1, spreads those that were put back together."""
    made: Changes = ()
    current = workload
    for _ in range(_MOST_PASSES):
        passed = _pass(RuleContext(current, facts, options, now, jitter))
        on_status = workload_changes.on_status(passed.changes)
        if not on_status:
            if not made:
                return passed
            states.check_move(workload, current)
            return LifecycleStep(made, passed.wake_at, passed.recheck)
        made = (*made, *on_status, *workload_changes.notifications(passed.changes))
        current = workload_changes.apply_to(current, on_status, now)
    raise Unsettled(current)


def _pass(context: RuleContext) -> LifecycleStep:
    """The first rule that has something to change, with the earliest of the times to look again before it."""
    wake_at: Nanoseconds | None = None
    recheck = False
    for rule in RULES:
        result = rule(context)
        if result is None:
            continue
        recheck = recheck or result.recheck
        if result.wake_at is not None:
            wake_at = result.wake_at if wake_at is None else min(wake_at, result.wake_at)
        if result.changes and (effective := _effective(context, result.changes)):
            return LifecycleStep(effective, wake_at, recheck)
        if result.ends:
            break
    return LifecycleStep((), wake_at, recheck)


def _effective(context: RuleContext, changes: Changes) -> Changes:
    """The changes, unless they leave everything as it is. Of both sorts, those on the status come first."""
    if workload_changes.on_status(changes):
        after = workload_changes.apply_to(context.workload, workload_changes.on_status(changes), context.now)
        if after.status != context.workload.status:
            return (*workload_changes.on_status(changes), *workload_changes.notifications(changes))
    objective = workload_changes.on_object(changes)
    return (*objective, *workload_changes.notifications(changes)) if objective else ()
