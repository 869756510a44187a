"""A check in state Retry keeps the Workload out of the queue for its delay, and is reset to Pending afterwards [LC80].

Of several, the latest end counts, not the longest delay. A Workload with quota is evicted at once (`rules/checks.py`),
which resets its checks; this rule is for Workloads without quota.
"""

from __future__ import annotations

from pykueue.api.kueue import CheckState
from pykueue.lifecycle import backoff, checks, states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetRequeue


def check_delay(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    retrying = checks.with_answer(workload, CheckState.RETRY)
    if not retrying or not states.is_active(workload):
        return None
    end = backoff.written(max(checks.retry_ends(check, context.facts.cluster_queue) for check in retrying))
    if end > context.now:
        if end <= (states.requeue_at(workload) or 0):
            return None
        return RuleResult((SetRequeue(states.requeue_count(workload), end),))
    if states.is_reserved(workload):
        return None
    reset = tuple(
        checks.reset((check,), context.now)[0] if check in retrying else check
        for check in workload.status.admission_checks
    )
    return RuleResult(checks.with_checks(workload, reset))
