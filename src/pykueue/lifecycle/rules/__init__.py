"""The rules of a Workload's life, one a file; `step` has them in their order.

A rule looks at the Workload and the facts around it and says what is due by it, or nothing. It sees the Workload as the
rules before it left it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import Workload
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import ClusterQueueFacts, LifecycleOptions, WorkloadFacts
from pykueue.lifecycle.workload_changes import Changes


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a rule sees."""

    workload: Workload
    facts: WorkloadFacts
    options: LifecycleOptions
    now: Nanoseconds
    jitter: float = 0.0

    @property
    def cluster_queue(self) -> ClusterQueueFacts | None:
        """The ClusterQueue, as far as somebody leads to it: a LocalQueue that is stopped leads nobody anywhere who does
        not hold quota yet."""
        local_queue = self.facts.local_queue
        is_led = local_queue is None or not local_queue.is_stopped or states.is_reserved(self.workload)
        return self.facts.cluster_queue if is_led else None


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule says: what to change, when to look again, and whether that is the last word in this pass."""

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False
    ends: bool = False


Rule: TypeAlias = Callable[[RuleContext], RuleResult | None]

END: Final = RuleResult(ends=True)
