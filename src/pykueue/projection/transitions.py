"""The states of Workloads in a run, as the controllers would write them: by the functions of `lifecycle`.

A reservation is kept as its decision; the object is made from it only when its status matters: after admission checks,
and after an eviction.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, WorkloadCondition
from pykueue.core.decision import Admit
from pykueue.lifecycle import checks, eviction, reservation, states, workload_changes
from pykueue.lifecycle.facts import ClusterQueueFacts, WorkloadFacts
from pykueue.lifecycle.rules import RuleContext, requeuing
from pykueue.lifecycle.workload_changes import SetRequeue
from pykueue.projection.case import SchedulerCase
from pykueue.projection.check_answers import CheckRefusal
from pykueue.projection.outcome import ProjectedAttempt
from pykueue.state import admission
from pykueue.state.intake import WatchedObject


class Transitions:
    """The changes of Workload objects in a run."""

    def __init__(self, case: SchedulerCase) -> None:
        self._options = case.lifecycle
        self._decisions: dict[str, Admit] = {}  # of the reservations that are not in their objects
        self._reasons: dict[str, PreemptedReason] = {}
        self._checks: dict[str, kueue.AdmissionCheck] = {}
        self._cluster_queues: dict[str, kueue.ClusterQueue] = {}
        self.local_queues: dict[str, str] = {}  # the ClusterQueue of each LocalQueue
        self.changed(case.objects)

    def changed(self, objects: Iterable[WatchedObject]) -> None:
        """Take over the objects that the changes depend on."""
        for thing in objects:
            match thing:
                case kueue.AdmissionCheck():
                    self._checks[thing.metadata.name] = thing
                case kueue.ClusterQueue():
                    self._cluster_queues[thing.metadata.name] = thing
                case kueue.LocalQueue():
                    key = f"{thing.metadata.namespace}/{thing.metadata.name}"
                    self.local_queues[key] = thing.spec.cluster_queue or ""

    def decided(self, key: str, decision: Admit) -> None:
        """Keep the decision that reserved quota for a Workload."""
        self._decisions[key] = decision

    def preempted(self, key: str, reason: PreemptedReason) -> None:
        """Keep the reason of a preemption."""
        self._reasons[key] = reason

    def ended(self, key: str) -> None:
        """Drop what is kept of a Workload that has ended."""
        self._decisions.pop(key, None)
        self._reasons.pop(key, None)

    def requeues_at(self, workload: kueue.Workload, now: Nanoseconds) -> Nanoseconds | None:
        """When a Workload that was evicted is requeued, where that does not happen at once [LC54]."""
        if not conditions.is_false(workload.status.conditions, WorkloadCondition.REQUEUED):
            return None
        result = requeuing.backoff(RuleContext(workload, WorkloadFacts(), self._options, now))
        if result is None:
            return None
        return now if result.wake_at is None else result.wake_at

    def requeued(self, workload: kueue.Workload, now: Nanoseconds) -> kueue.Workload:
        """The Workload after its backoff."""
        for _ in range(2):  # the end of the backoff, then the condition
            result = requeuing.backoff(RuleContext(workload, WorkloadFacts(), self._options, now))
            if result is not None:
                workload = workload_changes.apply_to(workload, result.changes, now)
        return workload

    def checked(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> kueue.Workload:
        """The Workload after all of its admission checks have passed."""
        reserved = self._reserved(workload, attempt)
        ready = tuple(replace(check, state=kueue.CheckState.READY.value) for check in reserved.status.admission_checks)
        passed = workload_changes.apply_to(reserved, checks.with_checks(reserved, ready), now)
        return workload_changes.apply_to(passed, reservation.admitted(passed, self._options, now), now)

    def released(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> kueue.Workload:
        """The Workload after its eviction: its pods have stopped, and it is requeued."""
        held = self._reserved(workload, attempt)
        since = attempt.evicted if attempt.evicted is not None else now
        if attempt.reason == EvictedReason.PREEMPTED:
            why = self._reasons.pop(attempt.key, PreemptedReason.IN_CLUSTER_QUEUE)
            changes = eviction.preempt(held, why, "Preempted", since)
        elif states.is_evicted(held):
            changes = workload_changes.NOTHING
        else:
            changes = eviction.evict(held, EvictedReason(attempt.reason), "Evicted", since)
        evicted = workload_changes.apply_to(held, changes, since)
        return workload_changes.apply_to(evicted, eviction.release(evicted, self._options, now), now)

    def refused(self, workload: kueue.Workload, refusal: CheckRefusal, now: Nanoseconds) -> kueue.Workload:
        """The Workload after a check refused it: it waits for a time, or is deactivated [LC80]."""
        if refusal.until is None:
            return replace(workload, spec=replace(workload.spec, active=False))
        return workload_changes.apply_to(workload, (SetRequeue(states.requeue_count(workload), refusal.until),), now)

    def returned(self, workload: kueue.Workload, now: Nanoseconds) -> kueue.Workload:
        """The Workload without its backoff, which a check has ended [BU4]."""
        return workload_changes.apply_to(workload, (SetRequeue(states.requeue_count(workload), None),), now)

    def _reserved(self, workload: kueue.Workload, attempt: ProjectedAttempt) -> kueue.Workload:
        """The Workload with the reservation of its attempt, and admitted if the attempt was."""
        decision = self._decisions.pop(attempt.key, None)
        if decision is None:
            return workload
        given = admission.typed(decision.cluster_queue, decision.pod_sets)
        found = self._cluster_queues.get(decision.cluster_queue)
        required: tuple[str, ...] = ()
        if found is not None:
            required = checks.required(ClusterQueueFacts.of(found, True, self._checks), given)
        changes = reservation.reserve(workload, given, required, self._options, attempt.reserved)
        return workload_changes.apply_to(workload, changes, attempt.reserved)
