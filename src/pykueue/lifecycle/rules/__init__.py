"""The rules of a Workload's lifecycle, one per file; `step` has them in their order [LC11].

A rule reads the Workload and its facts and returns what is due, or None. It reads the Workload as the rules before it
leave it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import Workload
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import ClusterQueueFacts, LifecycleOptions, WorkloadFacts
from pykueue.lifecycle.workload_changes import Changes


class RuleContext(msgspec.Struct, frozen=True):
    """What a rule reads."""

    workload: Workload
    facts: WorkloadFacts
    options: LifecycleOptions
    now: Nanoseconds
    jitter: float = 0.0

    @property
    def cluster_queue(self) -> ClusterQueueFacts | None:
        """The ClusterQueue of the Workload. A stopped LocalQueue leads a Workload without quota to no ClusterQueue."""
        local_queue = self.facts.local_queue
        applies = local_queue is None or not local_queue.is_stopped or states.is_reserved(self.workload)
        return self.facts.cluster_queue if applies else None


class RuleResult(msgspec.Struct, frozen=True):
    """What a rule returns: what to change, when to evaluate again, whether the reservation has to be evaluated again
    (`recheck`), and whether the pass ends here."""

    changes: Changes = ()
    wake_at: Nanoseconds | None = None
    recheck: bool = False
    ends: bool = False


Rule: TypeAlias = Callable[[RuleContext], RuleResult | None]

END: Final = RuleResult(ends=True)
