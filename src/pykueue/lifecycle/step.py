"""What is due for one Workload now: the rules in their order, until none has a change [LC11], [LC12].

After a rule changes the status, all rules run again on the Workload as it will be written; so one write has what would
otherwise be a chain of writes, each waiting for the watch event of the one before. A change of the object itself is a
write of its own and waits until no status change is due [LC13]: of two writes one can fail, and it must be the later.
"""

from __future__ import annotations

from typing import Final

import msgspec

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

# The rules that can apply to a Workload that only waits: the others need quota, checks, or an earlier eviction. Most
# Workloads of a long queue only wait, and all of them are evaluated when it is stopped or restarted.
WAITING_RULES: Final[tuple[Rule, ...]] = (
    orphan,
    preemption_gates,
    family,
    claims,
    check_list,
    waiting,
    admitted,
)

# The rules that can apply to a Workload that only runs: the others need a state without quota, checks, a backoff or the
# condition of an eviction, a deactivation or an end. Every admission is evaluated once in this state.
RUNNING_RULES: Final[tuple[Rule, ...]] = (
    orphan,
    preemption_gates,
    admission_gate,
    check_list,
    local_queue_stopped,
    cluster_queue_stopped,
    pods_ready,
    execution_time,
)

# Every rule may apply once, and some of them again because of another; more than that is a cycle [LC14].
_MOST_PASSES: Final = 2 * len(RULES)


class Unsettled(Exception):
    """Two rules undo each other's work: a fault in the rules. The message has the Workload's conditions."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(
            f"the rules do not settle for Workload {states.key(workload)}: {states.condition_summary(workload)}"
        )


class LifecycleStep(msgspec.Struct, frozen=True):
    """What to write now, when to evaluate again, and whether the scheduler has to evaluate the reservation again.

    All changes are on the status, or all are on the object: they are one write.
    """

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False


def step(
    workload: Workload, facts: WorkloadFacts, options: LifecycleOptions, now: Nanoseconds, *, jitter: float = 0.0
) -> LifecycleStep:
    """What is due now. `jitter`, from 0 up to 1, spreads Workloads that were requeued together."""
    made: Changes = ()
    current = workload
    for _ in range(_MOST_PASSES):
        passed, after = _pass(RuleContext(current, facts, options, now, jitter))
        if after is current:
            if not made:
                return passed
            states.check_move(workload, current)
            return LifecycleStep(made, passed.wake_at, passed.recheck)
        made = (*made, *passed.changes)
        current = after
    raise Unsettled(current)


def _pass(context: RuleContext) -> tuple[LifecycleStep, Workload]:
    """The first rule with a change, the earliest time of the rules up to it to evaluate again, and the Workload after
    its changes of the status."""
    wake_at: Nanoseconds | None = None
    recheck = False
    for rule in _rules_of(context.workload):
        result = rule(context)
        if result is None:
            continue
        recheck = recheck or result.recheck
        if result.wake_at is not None:
            wake_at = result.wake_at if wake_at is None else min(wake_at, result.wake_at)
        if result.changes:
            effective, after = _effective(context, result.changes)
            if effective:
                return LifecycleStep(effective, wake_at, recheck), after
        if result.ends:
            break
    return LifecycleStep((), wake_at, recheck), context.workload


def _rules_of(workload: Workload) -> tuple[Rule, ...]:
    """The rules that can apply to a Workload in its state."""
    if states.only_waits(workload):
        return WAITING_RULES
    return RUNNING_RULES if states.only_runs(workload) else RULES


def _effective(context: RuleContext, changes: Changes) -> tuple[Changes, Workload]:
    """The changes that have an effect, and the Workload after those of the status, which come first if there are
    both."""
    on_status = workload_changes.on_status(changes)
    if on_status:
        after = workload_changes.apply_to(context.workload, on_status, context.now)
        if after.status != context.workload.status:
            return (*on_status, *workload_changes.notifications(changes)), after
    on_object = workload_changes.on_object(changes)
    effective = (*on_object, *workload_changes.notifications(changes)) if on_object else ()
    return effective, context.workload
