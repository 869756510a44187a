"""One replay: the jobs of a trace submitted to the scheduler on a virtual clock.

The jobs are submitted when they were submitted, and run as long as they ran. Run times that are not known are drawn
from what was learned of the others; a draw depends on the job alone, so that every configuration gets the same [PC2].
What was waiting and running when the range began is taken along [PC3].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, format_time
from kubemachinery.quantity import QuantityText
from pykueue import calendars, projection, wording
from pykueue.analysis import planner, replayed_budgets
from pykueue.analysis.measures import JobOutcome
from pykueue.analysis.planner import Case
from pykueue.analysis.traces import Trace, TraceJob
from pykueue.api import kueue
from pykueue.api.conditions import ActiveCondition, AdmissionCheckActiveReason, WorkloadCondition
from pykueue.core import amounts, requests
from pykueue.history.learning import RunEstimate, RunTimes
from pykueue.history.records import Attempt, Outcome, Seconds, UsageSegment, WorkloadRecord
from pykueue.projection import Arrival, ProjectedAttempt, Projection, uniform
from pykueue.state.quota_windows import ScheduledWindows

# How long the pods of an evicted Workload take to stop: the history does not have it. Without any time, Workloads that
# preempt each other in turns would do so without end in one instant.
STOP_SECONDS: Final = 1
# A replay ends after so many decisions for each job.
DECISIONS_PER_JOB: Final = 2_000


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to every job of a trace under one configuration."""

    outcomes: tuple[JobOutcome, ...]
    decisions: int = 0
    # How often a preemption loop was found, and the jobs that were in one.
    loops: int = 0
    looped: tuple[str, ...] = ()
    # The time that the replay reached, and why it is not the end of the trace; empty if it is.
    reached: Seconds = 0
    ended_early: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.ended_early


# --- Run times --------------------------------------------------------------------------------------------------------


class TraceDraws:
    """The run times of the jobs of a trace: the recorded ones, and draws above what was seen for the others [PC2]."""

    def __init__(self, trace: Trace, seed: int = 0, *, stop_seconds: int = STOP_SECONDS) -> None:
        self._stop_seconds = stop_seconds
        self._runs: dict[str, int | None] = {}
        self._checks: dict[str, int] = {}
        self.drawn = self.endless = 0
        learned = _learned(trace) if any(job.run_seconds is None for job in trace.jobs) else RunTimes()
        for job in trace.jobs:
            self._runs[job.uid] = self._run(job, learned, seed)
            waits = [each.admitted - each.reserved for each in job.attempts if each.admitted is not None]
            if any(waits):
                self._checks[job.uid] = waits[0]
        # Of a job that was never admitted, the checks are taken to last as long as they usually did.
        found = sorted(self._checks.values())
        self._usual_check = found[(len(found) - 1) // 2] if found else 0

    def _run(self, job: TraceJob, learned: RunTimes, seed: int) -> int | None:
        if job.run_seconds is not None:
            return job.run_seconds
        estimate = learned.estimate(record_of(job))
        if estimate is None and job.ran_at_least:
            estimate = RunEstimate("its own run", 1, lambda share, elapsed: elapsed / max(1.0 - share, 1e-9))
        if estimate is None:
            self.endless += 1
            return None
        self.drawn += 1
        return estimate.quantile(uniform(seed, job.uid, 0), job.ran_at_least)

    def run_seconds(self, workload: kueue.Workload, elapsed_seconds: int) -> int | None:
        found = self._runs[workload.metadata.uid]
        return None if found is None else max(found, elapsed_seconds)

    def check_seconds(self, workload: kueue.Workload, attempt: ProjectedAttempt, elapsed_seconds: int) -> int:
        return self._checks.get(workload.metadata.uid, self._usual_check)

    def stop_seconds(self, workload: kueue.Workload) -> int:
        return self._stop_seconds


def _learned(trace: Trace) -> RunTimes:
    """What can be learned from the jobs of a trace that have run."""
    learned = RunTimes()
    ended = [job for job in trace.jobs if job.attempts and job.attempts[-1].released is not None]
    for job in sorted(ended, key=lambda job: (job.attempts[-1].released or 0, job.uid)):
        learned.learn(record_of(job))
    return learned


def record_of(job: TraceJob) -> WorkloadRecord:
    """The record of a job, as run-time estimates read it."""
    return WorkloadRecord(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        job_name=job.job_name,
        queue=job.queue,
        user=job.user,
        shape=msgspec.json.encode([(each.name, each.count) for each in job.pod_sets]),
        submitted=job.submitted,
        outcome=Outcome.CANCELLED if job.run_seconds is None else Outcome.SUCCEEDED,
        limit_seconds=job.limit_seconds,
        expected_seconds=job.expected_seconds,
        attempts=job.attempts,
    )


# --- One replay -------------------------------------------------------------------------------------------------------

_REPORTED: Final = 1_000
INTERRUPTED: Final = "interrupted"


def replay(
    case: Case,
    trace: Trace,
    draws: TraceDraws,
    *,
    report: Callable[[str], None] = lambda _: None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Replay:
    """Run the scheduler over a trace, exactly."""
    effort = DECISIONS_PER_JOB * (len(trace.jobs) + 100)
    objects = [_active(thing) for thing in case.objects if not isinstance(thing, kueue.Workload)]
    scheduler = planner.scheduler_case(case.with_objects(objects), departures=True)
    found = projection.run(
        replace(scheduler, windows=windows(case, trace)),
        trace.begin * SECOND,
        draws,
        arrivals=_arrivals(trace, report),
        horizon=None if trace.is_complete else trace.end * SECOND,
        effort=effort,
        may_go_on=may_go_on,
        answers=replayed_budgets.of_case(case, trace),
        skips_loops=True,
        ends_stalled=True,
    )
    attempts: dict[str, list[Attempt]] = {}
    for each in found.attempts:
        attempts.setdefault(each.uid, []).append(_attempt(each))
    return Replay(
        outcomes=tuple(JobOutcome(job, (*_before(job, trace.begin), *attempts.get(job.uid, ()))) for job in trace.jobs),
        decisions=found.decisions,
        loops=found.loops,
        looped=tuple(sorted(found.looped)),
        reached=found.reached // SECOND,
        ended_early="" if found.is_complete else _ended_early(found, effort),
    )


def _ended_early(found: Projection, effort: int) -> str:
    """Why a replay has not reached the end of its trace."""
    if found.is_stalled:
        reached = format_time(found.reached)
        return f"Workloads preempt each other in turns at {reached}, and no job ends or is submitted meanwhile"
    if found.decisions >= effort:
        return f"the scheduler made {found.decisions} decisions, more than {DECISIONS_PER_JOB} for each job"
    return INTERRUPTED


def _active(thing: msgspec.Struct) -> msgspec.Struct:
    """An AdmissionCheck of a file, as its controller would make it active; every other object as it is."""
    if not isinstance(thing, kueue.AdmissionCheck) or thing.status.conditions:
        return thing
    reason = AdmissionCheckActiveReason.ACTIVE
    found = conditions.set_condition((), ActiveCondition.ACTIVE, ConditionStatus.TRUE, reason, "", now=0)
    return msgspec.structs.replace(thing, status=kueue.AdmissionCheckStatus(conditions=found))


def windows(case: Case, trace: Trace) -> tuple[ScheduledWindows, ...]:
    """The windows of QuotaSchedules from the begin of a trace on, also for the jobs that end after it; none while the
    gate is off."""
    if planner.QUOTA_CALENDAR not in case.configured.on:
        return ()
    return planner.windows_of(case, trace.begin * SECOND, (trace.end - trace.begin) * SECOND + calendars.HORIZON)


def _before(job: TraceJob, begin: Seconds) -> Iterator[Attempt]:
    """The attempts that had ended when the range began."""
    return (each for each in job.attempts if each.released is not None and each.released <= begin)


def _arrivals(trace: Trace, report: Callable[[str], None]) -> Iterator[Arrival]:
    for number, job in enumerate(trace.jobs, start=1):
        if number % _REPORTED == 0:
            report(f"{number} of {wording.counted(len(trace.jobs), 'job')} submitted")
        withdrawn = job.withdrawn * SECOND if job.withdrawn is not None else None
        yield Arrival(max(job.submitted, trace.begin) * SECOND, as_of(job, trace.begin), withdrawn)


def as_of(job: TraceJob, begin: Seconds) -> kueue.Workload:
    """The Workload as it was when the range began: with the quota that it held then."""
    workload = job.workload()
    held = next((each for each in job.attempts if each.reserved < begin and (each.released or begin + 1) > begin), None)
    if held is None:
        return workload
    given = kueue.Admission(cluster_queue=held.cluster_queue, pod_set_assignments=_assignments(job, held, begin))
    found = conditions.set_condition(
        (), WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE, "QuotaReserved", "", now=held.reserved * SECOND
    )
    if held.admitted is not None and held.admitted <= begin:
        found = conditions.set_condition(
            found, WorkloadCondition.ADMITTED, ConditionStatus.TRUE, "Admitted", "", now=held.admitted * SECOND
        )
    return msgspec.structs.replace(workload, status=kueue.WorkloadStatus(admission=given, conditions=found))


def _assignments(job: TraceJob, held: Attempt, begin: Seconds) -> tuple[kueue.PodSetAssignment, ...]:
    """The assignments of an attempt, from its amounts by flavor. A resource of several flavors is given to the pod sets
    in order, from the first flavor that has enough left."""
    segment = next((each for each in held.segments if (each.end or begin + 1) > begin), None)
    left = {(flavor, resource): amount for flavor, resource, amount in segment.amounts} if segment is not None else {}
    found = []
    for pod_set in job.pod_sets:
        figure = requests.read(pod_set.template.spec).figure
        flavors: dict[str, str] = {}
        usage: dict[str, QuantityText] = {}
        for resource in sorted(figure):
            amount = amounts.of_request(resource, figure[resource]) * pod_set.count
            having = sorted(flavor for flavor, name in left if name == resource)
            enough = [flavor for flavor in having if left[flavor, resource] >= amount]
            if having:
                flavor = (enough or having)[0]
                # Of a Workload that was admitted in part, what it got.
                given = min(amount, left[flavor, resource])
                left[flavor, resource] -= given
                flavors[resource] = flavor
                usage[resource] = amounts.as_quantity(resource, given).canonical
        found.append(
            kueue.PodSetAssignment(name=pod_set.name, flavors=flavors, resource_usage=usage, count=pod_set.count)
        )
    return tuple(found)


def _attempt(found: ProjectedAttempt) -> Attempt:
    """A projected attempt in seconds, as the history has it."""
    reserved = found.reserved // SECOND
    released = None if found.released is None else found.released // SECOND
    return Attempt(
        reserved,
        found.cluster_queue,
        reserved,
        None if found.admitted is None else found.admitted // SECOND,
        released,
        found.reason if released is not None else "",
        found.preemptor,
        (UsageSegment(reserved, released, found.usage),),
    )
