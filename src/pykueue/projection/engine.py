"""The World on a virtual clock, driven by a heap of events [RA1].

    end       an attempt ends by itself: its Workload leaves the World
    stop      the pods of an evicted Workload have stopped: its quota is released, and it is pending again
    checks    the admission checks of a Workload have passed
    requeue   the backoff of an evicted Workload has ended
    change    objects change: quota windows, mostly
    sample    the usage of LocalQueues is sampled (admission fair sharing)
    arrival   a Workload is submitted
    withdrawal  a Workload that is still pending is deleted

Events of one instant are handled in this order, and by key. After them the scheduler decides until it has nothing left
to decide, and its decisions make new events. The end of a backoff is an instant without an event.

With a grid, events up to its next point are handled together, at the time of the last of them, which makes runs
shorter [RA3]. Points are at most 1 % of the distance from the begin of the run apart. Without a grid, times are exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, WorkloadCondition
from pykueue.core.decision import Admit, Decision, Evict, Preempt, SecondPassFailed, TargetWorkload
from pykueue.core.reservation_check import HoldsAfter, Lost
from pykueue.core.workload import Reservation
from pykueue.lifecycle import states
from pykueue.projection.case import SchedulerCase
from pykueue.projection.check_answers import CheckAnswers, CheckRefusal
from pykueue.projection.draws import Draws
from pykueue.projection.outcome import ProjectedAttempt, Projection, Release, UsageAmounts
from pykueue.projection.transitions import Transitions
from pykueue.state import workload_info
from pykueue.state.intake import WatchedObject
from pykueue.state.quota_windows import ScheduledWindows

# A bound of decisions for a run without another one: a preemption loop has no end.
EFFORT_MAX: Final = 100_000_000
# A run that ends where it makes no progress: after so many decisions, and so many for each Workload that has not ended.
# The end of one Workload can make the scheduler try every other one, and preempt some of them several times.
_STALLED_DECISIONS: Final = 10_000
_STALLED_DECISIONS_PER_WORKLOAD: Final = 50
FINISHED: Final = "Finished"
REPLACED: Final = "Replaced"
BACKOFF: Final = "its backoff ends"


class Arrival(NamedTuple):
    """A Workload that is submitted during a run."""

    at: Nanoseconds
    workload: kueue.Workload
    # When it is deleted, if it has no quota then.
    withdrawn: Nanoseconds | None = None


class ScheduledChange(NamedTuple):
    """Objects that change during a run, such as ClusterQueues at the edge of a quota window."""

    at: Nanoseconds
    objects: tuple[WatchedObject, ...]
    reason: str = ""


class _Kind(IntEnum):
    END = 0
    STOP = 1
    CHECKS = 2
    REQUEUE = 3
    CHANGE = 4
    SAMPLE = 5
    ARRIVAL = 6
    WITHDRAWAL = 7


class _Event(NamedTuple):
    at: Nanoseconds
    kind: _Kind
    key: str
    number: int  # unique, so that the payload is never compared
    payload: ProjectedAttempt | Arrival | ScheduledChange | None


def run(
    case: SchedulerCase,
    now: Nanoseconds,
    draws: Draws,
    *,
    arrivals: Iterable[Arrival] = (),
    changes: Iterable[ScheduledChange] = (),
    horizon: Nanoseconds | None = None,
    effort: int = EFFORT_MAX,
    grid: bool = False,
    until_started: Collection[str] | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    explains: bool = False,
    answers: CheckAnswers | None = None,
    skips_loops: bool = False,
    ends_stalled: bool = False,
) -> Projection:
    """Run the scheduler ahead from `now`, until nothing is left to happen.

    `arrivals` and `changes` are in the order of their times, and are read as the run reaches them. The run ends earlier
    at the time `horizon`, once all Workloads `until_started` have been admitted, or after `effort` decisions, of which
    the result is then not complete [RA4]; nor is it if `may_go_on`, which is called at every instant, returns False.

    Admission checks pass after the time that `draws` has for them, except those that `answers` refuses.

    With `skips_loops`, a preemption loop does not go round: its Workloads stay as they are until something else
    happens, and the run ends where nothing else does [RA9]. With `ends_stalled`, a run also ends after a number of
    decisions without progress: no Workload arrived or ended, and no object changed [RA10].

    With `explains`, cycles find the exact reason of every Workload that waits, which takes longer and changes nothing.
    """
    if skips_loops:
        case = replace(case, policy=replace(case.policy, loop_detection=True))
    found = _Run(
        case,
        now,
        draws,
        arrivals,
        changes,
        grid=grid,
        explains=explains,
        answers=answers,
        skips_loops=skips_loops,
        ends_stalled=ends_stalled,
    )
    return found.until(horizon, effort, until_started, may_go_on)


class _Run:
    def __init__(
        self,
        case: SchedulerCase,
        now: Nanoseconds,
        draws: Draws,
        arrivals: Iterable[Arrival],
        changes: Iterable[ScheduledChange],
        *,
        grid: bool,
        explains: bool,
        answers: CheckAnswers | None,
        skips_loops: bool,
        ends_stalled: bool,
    ) -> None:
        self._began = self._now = now
        self._skips_loops = skips_loops
        self._is_guarded = case.policy.loop_guard
        self._usage_changes = True  # whether the last samples have changed a usage
        self._ends_stalled = ends_stalled
        self._decisions_at_progress = 0  # how many were made when a Workload arrived or ended, or an object changed
        self._answers = answers
        self._refusals: dict[str, CheckRefusal] = {}  # of attempts that are being evicted
        self._draws = draws
        self._grid = grid
        # Workloads are put one by one, as the run takes them over.
        shaping = case.with_objects(filter(_is_no_workload, case.objects))
        self._world = shaping.world(now, explains=explains)
        self._transitions = Transitions(case)
        self._found = Projection(began=now, reached=now)
        self._workloads: dict[str, kueue.Workload] = {}  # of every Workload that has not ended, its state
        self._open: dict[str, ProjectedAttempt] = {}
        self._numbers: dict[str, int] = {}  # of the next attempt
        self._events: list[_Event] = []
        self._sequence = 0
        self._arrivals, self._changes = iter(arrivals), iter(changes)
        self._releases: list[ProjectedAttempt] = []  # of this instant
        self._changed = ""  # what changed at this instant
        self._returned: dict[str, str] = {}  # the Workloads whose wait ended at this instant, and which wait it was
        self._started: set[str] = set()
        self._world.settle(now)
        for workload in case.workloads():
            if not states.is_finished(workload):
                self._begin(workload)
        self._next_arrival()
        self._next_change()
        self._next_sample()

    def until(
        self,
        horizon: Nanoseconds | None,
        effort: int,
        wanted: Collection[str] | None,
        may_go_on: Callable[[], bool],
    ) -> Projection:
        found = self._found
        left = set(wanted) if wanted is not None else None
        while True:
            self._decide(effort)
            if left is not None:
                left -= self._started
            self._started.clear()
            if not found.is_complete or (left is not None and not left):
                break
            if self._skips_loops:
                self._skip_loops()
            instant = self._next_instant()
            found.has_run_out = instant is None and not found.looping
            if instant is None or (horizon is not None and instant > horizon):
                break
            if not may_go_on():
                found.is_complete = False
                break
            self._advance(instant)
        found.reached = self._now
        found.endless = tuple(sorted(key for key, each in self._open.items() if each.admitted and each.ends is None))
        return found

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _next_instant(self) -> Nanoseconds | None:
        wake = self._world.next_wake()
        # Where only samples are left, the run is over once no further one can change the head of a queue.
        is_idle = all(event.kind is _Kind.SAMPLE for event in self._events) and not self._awaits_samples()
        event = None if is_idle else self._events[0].at
        look = self._answers.next_look() if self._answers is not None else None
        if event is None and look is None and not self._found.pending and wake == self._world.windows.next_edge:
            return None  # a window that begins or ends changes nothing any more
        at = min((time for time in (wake, event, look) if time is not None), default=None)
        if at is None:
            return None
        return max(at, self._now)

    def _skip_loops(self) -> None:
        """Delay the events of the Workloads in preemption loops until something else happens; drop them if nothing
        does. All are delayed by the same time, so that the loops go on where they are now."""
        # While the guard's delays grow, a Workload of the loop may end in one. Rounds with the longest delay are alike.
        loops = self._world.hold_settled_loops() if self._is_guarded else self._world.loops()
        self._found.looping = tuple(sorted({member for loop in loops for member in loop.members}))
        if not loops:
            return
        members = set(self._found.looping)
        self._found.looped |= members
        own: list[_Event] = []
        others: list[_Event] = []
        for event in self._events:
            if not isinstance(event.payload, ProjectedAttempt) and event.kind is not _Kind.REQUEUE:
                others.append(event)
            elif not isinstance(event.payload, ProjectedAttempt) or event.payload.released is None:
                (own if event.key in members else others).append(event)
        heapq.heapify(others)
        self._events = others
        until = self._next_instant()
        if until is None:
            return
        for event in own:
            if isinstance(event.payload, ProjectedAttempt) and event.kind is _Kind.END:
                event.payload.ends = event.at + until - self._now
            heapq.heappush(others, event._replace(at=event.at + until - self._now))

    def _advance(self, instant: Nanoseconds) -> None:
        """Handle the events of an instant; with a grid, all up to its next point. The time is then that of the last of
        them, so that a grid never adds time where little happens."""
        self._now = instant
        self._releases.clear()
        self._returned.clear()
        self._changed = ""
        end = on_grid(instant, self._began) if self._grid else instant
        edge = self._world.windows.next_edge
        if edge is not None and edge <= end:
            # Decided at its own time: what a window gives does not count a moment earlier or later.
            self._now = end = max(edge, instant)
            self._changed = _edge(self._world.windows.schedules, edge)
            self._progressed()
        while self._events and self._events[0].at <= end:
            event = heapq.heappop(self._events)
            self._now = max(self._now, event.at)
            match event.payload:
                case ProjectedAttempt() as attempt:
                    if attempt.released is None:
                        self._handle(event.kind, attempt)
                case Arrival(workload=workload, withdrawn=withdrawn):
                    self._begin(workload)
                    if withdrawn is not None:
                        self._push(withdrawn, _Kind.WITHDRAWAL, event.key, None)
                    self._next_arrival()
                case ScheduledChange() as change:
                    self._change(change)
                    self._next_change()
                case None if event.kind is _Kind.REQUEUE:
                    self._returned[event.key] = BACKOFF
                    self._requeue(event.key)
                case None if event.kind is _Kind.WITHDRAWAL:
                    self._withdraw(event.key)
                case None:
                    self._sample()
        self._follow_checks()

    def _follow_checks(self) -> None:
        """Evict the Workloads whose checks do not hold any more, and end the waits that are over. What has ended at
        this instant is not evicted."""
        if self._answers is None:
            return
        due = self._answers.due(self._now)
        for key, refusal in due.evicted:
            attempt = self._open[key]
            if attempt.evicted is None:
                self._world.mark_evicted(key)
                self._refusals[key] = refusal
                self._evict(attempt, self._now, EvictedReason.ADMISSION_CHECK)
        for key, reason in due.returning:
            if key in self._found.pending:
                self._returned[key] = reason
                self._workloads[key] = self._transitions.returned(self._workloads[key], self._now)
                self._requeue(key)

    def _handle(self, kind: _Kind, attempt: ProjectedAttempt) -> None:
        match kind:
            case _Kind.END:
                self._end(attempt, FINISHED)
                self._leave(attempt.key)
                self._progressed()
            case _Kind.STOP:
                self._stopped(attempt)
            case _Kind.CHECKS if attempt.admitted is None and attempt.evicted is None:
                self._checks_passed(attempt)

    def _change(self, change: ScheduledChange) -> None:
        for thing in change.objects:
            self._world.put(thing, self._now)
        self._transitions.changed(change.objects)
        self._changed = change.reason
        self._progressed()

    def _push(
        self, at: Nanoseconds, kind: _Kind, key: str, payload: ProjectedAttempt | Arrival | ScheduledChange | None
    ) -> None:
        self._sequence += 1
        heapq.heappush(self._events, _Event(max(at, self._now), kind, key, self._sequence, payload))

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self._push(arrival.at, _Kind.ARRIVAL, states.key(arrival.workload), arrival)

    def _next_change(self) -> None:
        change = next(self._changes, None)
        if change is not None:
            self._push(change.at, _Kind.CHANGE, "", change)

    # --- Workloads ----------------------------------------------------------------------------------------------------

    def _begin(self, workload: kueue.Workload) -> None:
        """Take over a Workload as it is: when the run begins, or when it arrives."""
        self._progressed()
        key = states.key(workload)
        self._workloads[key] = workload
        self._world.put(workload, self._now)
        held = self._world.reservations.get(key)
        if held is None:
            self._waits(key, workload_info.time_of(workload.metadata.creation_timestamp))
            return
        attempt = self._opened(held, held.reserved_at if held.reserved_at is not None else self._now)
        if held.evicted:
            evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
            since = states.since(workload, WorkloadCondition.EVICTED)
            self._evict(attempt, self._now if since is None else since, evicted.reason if evicted is not None else "")
        elif held.admitted:
            since = states.since(workload, WorkloadCondition.ADMITTED)
            self._admitted(attempt, self._now if since is None else since)
        else:
            self._wait_for_checks(attempt)

    def _waits(self, key: str, since: Nanoseconds) -> None:
        """Record that a Workload is pending; one with a backoff is requeued at its end."""
        self._found.pending[key] = since
        workload = self._workloads[key]
        requeues = self._transitions.requeues_at(workload, self._now)
        if requeues is not None:
            pending = self._world.pending_workload(key)
            if self._answers is not None and pending is not None and _is_refused(workload):
                self._answers.waits(workload, pending.cluster_queue, requeues)
            self._push(requeues, _Kind.REQUEUE, key, None)

    def _requeue(self, key: str) -> None:
        if key in self._found.pending:
            self._workloads[key] = self._transitions.requeued(self._workloads[key], self._now)
            self._world.put(self._workloads[key], self._now)

    def _withdraw(self, key: str) -> None:
        if self._found.pending.pop(key, None) is not None:
            self._leave(key)
            self._progressed()

    def _leave(self, key: str) -> None:
        """Remove a Workload that has ended."""
        self._transitions.ended(key)
        self._refusals.pop(key, None)
        if self._answers is not None:
            self._answers.left(key)
        self._world.drop(self._workloads.pop(key))
        self._numbers.pop(key, None)
        self._unblock()

    def _opened(self, held: Reservation, at: Nanoseconds) -> ProjectedAttempt:
        number = self._numbers.get(held.key, 0)
        self._numbers[held.key] = number + 1
        attempt = ProjectedAttempt(
            key=held.key,
            uid=held.uid,
            number=number,
            cluster_queue=held.cluster_queue,
            reserved=at,
            usage=_amounts(held),
            counts=tuple((pod_set.name, pod_set.count) for pod_set in held.pod_sets),
        )
        self._open[held.key] = attempt
        self._found.attempts.append(attempt)
        self._found.pending.pop(held.key, None)
        return attempt

    def _admitted(self, attempt: ProjectedAttempt, at: Nanoseconds, *, ends: Nanoseconds | None = None) -> None:
        """Start an attempt: it ends by itself after its run time."""
        attempt.admitted = at
        if self._answers is not None:
            self._answers.admitted(self._workloads[attempt.key], attempt, self._now)
        if at >= self._began:
            self._started.add(attempt.key)
        elapsed = max(0, self._now - at) // SECOND
        if ends is None:
            seconds = self._draws.run_seconds(self._workloads[attempt.key], elapsed)
            ends = None if seconds is None else at + seconds * SECOND
        attempt.ends = ends
        if ends is not None:
            self._push(ends, _Kind.END, attempt.key, attempt)

    def _end(self, attempt: ProjectedAttempt, reason: str) -> None:
        attempt.released, attempt.reason = self._now, reason
        if self._answers is not None:
            self._answers.ended(attempt, self._now)
        self._releases.append(attempt)
        del self._open[attempt.key]

    def _evict(self, attempt: ProjectedAttempt, at: Nanoseconds, reason: str, preemptor: str = "") -> None:
        """Start an eviction; the quota is released when the pods have stopped."""
        attempt.evicted, attempt.reason, attempt.preemptor = at, reason, preemptor
        seconds = self._draws.stop_seconds(self._workloads[attempt.key])
        self._push(at + seconds * SECOND, _Kind.STOP, attempt.key, attempt)

    def _stopped(self, attempt: ProjectedAttempt) -> None:
        self._end(attempt, attempt.reason)
        workload = self._transitions.released(self._workloads[attempt.key], attempt, self._now)
        refusal = self._refusals.pop(attempt.key, None)
        if refusal is not None:
            if refusal.until is None:
                self._found.rejected.add(attempt.key)
            workload = self._transitions.refused(workload, refusal, self._now)
        self._workloads[attempt.key] = workload
        self._world.put(workload, self._now)
        self._waits(attempt.key, self._now)
        self._unblock()

    def _wait_for_checks(self, attempt: ProjectedAttempt) -> None:
        elapsed = max(0, self._now - attempt.reserved) // SECOND
        seconds = self._draws.check_seconds(self._workloads[attempt.key], attempt, elapsed)
        self._push(attempt.reserved + seconds * SECOND, _Kind.CHECKS, attempt.key, attempt)

    def _checks_passed(self, attempt: ProjectedAttempt) -> None:
        """Admit a Workload whose checks have passed; one that deferred its preemptions makes them first."""
        key = attempt.key
        if self._world.reservations[key].assumed_targets:
            result = self._world.recheck(key, self._now)
            if isinstance(result, HoldsAfter):
                self._preempt(result.targets, key)
                return
            if isinstance(result, Lost):
                attempt.evicted = self._now
                attempt.reason = EvictedReason.PREEMPTED
                self._stopped(attempt)
                return
        if self._answers is not None:
            refusal = self._answers.answer(self._workloads[key], attempt, self._now)
            if refusal is not None:
                # Its job was not started, so that the quota is released at once.
                self._refusals[key] = refusal
                attempt.evicted, attempt.reason = self._now, EvictedReason.ADMISSION_CHECK
                self._stopped(attempt)
                return
        workload = self._transitions.checked(self._workloads[key], attempt, self._now)
        self._workloads[key] = workload
        self._world.put(workload, self._now)
        if states.is_admitted(workload):
            self._settle_usage(attempt)
            self._admitted(attempt, self._now)

    def _unblock(self) -> None:
        """Try the Workloads again whose deferred preemptions have ended."""
        for key in sorted(self._world.take_unblocked()):
            attempt = self._open.get(key)
            if attempt is not None:
                self._push(self._now, _Kind.CHECKS, key, attempt)

    # --- Decisions ----------------------------------------------------------------------------------------------------

    def _decide(self, effort: int) -> None:
        """Decide until nothing is left to decide at this instant."""
        found = self._found
        if self._world.windows.schedules:
            self._withdraw_quota()
        while decisions := self._world.decide(self._now):
            for decision in decisions:
                self._apply(decision)
            found.decisions += len(decisions)
            found.is_stalled = self._is_stalled()
            if found.decisions >= effort or found.is_stalled:
                found.is_complete = False
                return
        found.loops += len(self._world.take_new_loops())

    def _progressed(self) -> None:
        self._decisions_at_progress = self._found.decisions

    def _is_stalled(self) -> bool:
        """Whether so many decisions led to nothing that Workloads must be preempting each other without end."""
        without_progress = self._found.decisions - self._decisions_at_progress
        allowed = _STALLED_DECISIONS + _STALLED_DECISIONS_PER_WORKLOAD * len(self._workloads)
        return self._ends_stalled and without_progress > allowed

    def _withdraw_quota(self) -> None:
        """Evict the Workloads whose quota a window in force withdraws [QS7]."""
        for withdrawal in self._world.withdrawals(self._now):
            attempt = self._open[withdrawal.workload]
            if attempt.evicted is None:
                self._world.mark_evicted(attempt.key)
                self._evict(attempt, self._now, EvictedReason.QUOTA_WITHDRAWN)

    def _apply(self, decision: Decision) -> None:
        match decision:
            case Admit():
                self._admit(decision)
            case Preempt(targets=targets):
                self._preempt(targets, decision.workload)
                if decision.migrates in self._open:
                    # The variant that another one replaces does not compete again.
                    self._end(self._open[decision.migrates], EvictedReason.FLAVOR_MIGRATION)
                    self._leave(decision.migrates)
            case SecondPassFailed(targets=targets):
                self._preempt(targets, decision.workload)
            case Evict():
                self._evict(self._open[decision.workload], self._now, EvictedReason.NODE_FAILURES)

    def _preempt(self, targets: Iterable[TargetWorkload], preemptor: str) -> None:
        for target in targets:
            attempt = self._open[target.key]
            if attempt.evicted is None:
                if not self._world.reservations[target.key].evicted:
                    self._world.mark_evicted(target.key)
                self._transitions.preempted(target.key, PreemptedReason(target.reason))
                self._evict(attempt, self._now, EvictedReason.PREEMPTED, preemptor)

    def _admit(self, decision: Admit) -> None:
        key = decision.workload
        self._world.confirm(key)  # nothing is written, so there is no response to wait for
        if decision.is_second_pass:
            attempt = self._open[key]
            if decision.is_admitted and attempt.admitted is None:
                self._settle_usage(attempt)
                self._admitted(attempt, self._now)
            return
        ends = None
        if decision.replaces in self._open:
            replaced = self._open[decision.replaces]
            ends = replaced.ends
            self._end(replaced, REPLACED)
            self._leave(decision.replaces)
        attempt = self._opened(self._world.reservations[key], self._now)
        self._transitions.decided(key, decision)
        attempt.because = self._cause(attempt)
        if decision.is_admitted:
            self._settle_usage(attempt)
            self._admitted(attempt, self._now, ends=ends)
        else:
            self._wait_for_checks(attempt)

    def _cause(self, attempt: ProjectedAttempt) -> Release | None:
        """What let a Workload in: the end of its own wait, the last attempt that released some of the same quota at
        this instant, or a change of objects."""
        wanted = {(flavor, resource) for flavor, resource, _ in attempt.usage}
        if attempt.key in self._returned:
            return Release(self._now, reason=self._returned[attempt.key])
        for ended in reversed(self._releases):
            if any((flavor, resource) in wanted for flavor, resource, _ in ended.usage):
                return Release(self._now, ended.key, ended.reason)
        return Release(self._now, reason=self._changed) if self._changed else None

    # --- Admission fair sharing ---------------------------------------------------------------------------------------

    def _next_sample(self) -> None:
        history = self._world.policy.usage_history
        if history is not None:
            self._push(self._now + int(history.sampling_interval_seconds * SECOND), _Kind.SAMPLE, "", None)

    def _sample(self) -> None:
        """Sample the usage of every LocalQueue, and have the heads tried that are others after that."""
        world, before = self._world, self._world.heads_by_usage()
        self._usage_changes = False
        for local_queue, cluster_queue in self._local_queues():
            consumed = world.consumed(local_queue)
            world.sample_usage(local_queue, world.local_queue_usage(local_queue, cluster_queue), self._now)
            self._usage_changes |= world.consumed(local_queue) != consumed
        for name, head in world.heads_by_usage().items():
            if before.get(name) != head:
                world.usage_sampled(name)
        self._next_sample()

    def _awaits_samples(self) -> bool:
        """Whether samples alone will give a ClusterQueue another head. Usages that have come to rest change no more,
        whatever the limit of the formula is: they are rounded."""
        if self._world.policy.usage_history is None or not self._usage_changes:
            return False
        return self._world.heads_at_rest() != self._world.heads_by_usage()

    def _local_queues(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._transitions.local_queues.items()))

    def _settle_usage(self, attempt: ProjectedAttempt) -> None:
        """Turn the entry penalty of an admitted Workload into past usage [AF6]."""
        spec = self._world.queue_spec(attempt.cluster_queue)
        if self._world.policy.usage_history is not None and spec is not None and spec.is_usage_based:
            workload = self._workloads[attempt.key]
            local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
            in_use = self._world.local_queue_usage(local_queue, attempt.cluster_queue)
            self._world.settle_usage(local_queue, attempt.key, in_use, self._now)


def on_grid(at: Nanoseconds, began: Nanoseconds) -> Nanoseconds:
    """The next point of the grid: a multiple of 1, 2, 4, 8 … seconds, of which each is at most 1 % of the distance.
    A step that grew with the distance itself would leave every time on the grid."""
    distance = at - began
    step = SECOND << max(0, (distance // (100 * SECOND)).bit_length() - 1)
    return began + -(-distance // step) * step


def _edge(schedules: Iterable[ScheduledWindows], at: Nanoseconds) -> str:
    """What happens to windows at an instant: the first one that begins, else the first one that ends."""
    spans = sorted((span.window, span.start, span.end) for each in schedules for span in each.spans)
    begins = (f"window {window} begins" for window, start, _ in spans if start == at)
    return next(begins, "") or next((f"window {window} ends" for window, _, end in spans if end == at), "")


def _is_refused(workload: kueue.Workload) -> bool:
    """Whether a Workload waits because an admission check refused it."""
    requeued = conditions.find(workload.status.conditions, WorkloadCondition.REQUEUED)
    if requeued is None or requeued.status == conditions.ConditionStatus.TRUE:
        return False
    return requeued.reason == EvictedReason.ADMISSION_CHECK


def _is_no_workload(thing: WatchedObject) -> bool:
    return not isinstance(thing, kueue.Workload)


def _amounts(held: Reservation) -> UsageAmounts:
    return tuple((pair.flavor, pair.resource, amount) for pair, amount in held.usage if amount)
