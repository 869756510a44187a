"""A trace replayed under two configurations: the scheduler run on a virtual clock, once for each [PC1].

A range of the history has a third column, what was recorded: how far the replay of the present configuration is from it
is a measure of how far the other one can be trusted. The first tenth of the range is not counted [PC3].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue.analysis import measures, planner, replayed_budgets, trace_replay
from pykueue.analysis.measures import Figure, JobOutcome, MeasuredRange, QueueQuota, Step
from pykueue.analysis.planner import Case
from pykueue.analysis.replay_processes import ReplayTask, run_all
from pykueue.analysis.trace_replay import INTERRUPTED, Replay, TraceDraws
from pykueue.analysis.traces import Trace
from pykueue.api import kueue
from pykueue.api.quota_schedule import QuotaSchedule
from pykueue.core import amounts
from pykueue.core.queue import FlavorResource
from pykueue.history.records import Seconds
from pykueue.state import specs
from pykueue.state.quota_windows import QuotaOwner, QuotaWindows, ScheduledWindows

RECORDED: Final = "recorded"
REPLAYED: Final = "replayed"
CHANGED: Final = "with the change"

# The share of the range that is not counted, because the replay does not begin as the history did.
WARM_UP: Final = 0.1
# A replay that differs from what happened by more than this comes first [PC1].
LARGE_DISTANCE: Final = 0.10
# Differences of the waiting time are relative to at least this.
_LEAST_WAITING_SECONDS: Final = 60

CANNOT_KNOW: Final = (
    "with other waiting times, users would have submitted other jobs",
    "node failures are not replayed, and pods take one second to stop",
)


class ComparisonColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a comparison: its figures, and what they were measured on."""

    name: str
    figures: tuple[Figure, ...]
    replay: Replay
    within: MeasuredRange
    # The jobs that were submitted in the range and did not start in it.
    not_started: tuple[str, ...] = ()
    # With repeated draws: the least and the largest value of each figure.
    ranges: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)

    def value(self, key: str) -> float | None:
        return next((figure.value for figure in self.figures if figure.key == key), None)


class PolicyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a trace: recorded (if it is history), replayed, and replayed with the change."""

    trace: Trace
    columns: tuple[ComparisonColumn, ...]
    # The jobs whose run time was drawn, and those for which nothing is known.
    drawn: int = 0
    endless: int = 0
    notices: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return all(column.replay.is_complete for column in self.columns) and self.column(CHANGED) is not None

    @property
    def is_interrupted(self) -> bool:
        """Whether a replay was interrupted, or was not begun."""
        early = [column.replay.ended_early for column in self.columns]
        return INTERRUPTED in early or self.column(CHANGED) is None

    def column(self, name: str) -> ComparisonColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def distance(self) -> float | None:
        """How far the replay is from what happened: the difference of the median waiting, relative to the recorded one
        and to at least a minute. None without both."""
        recorded, replayed = self.column(RECORDED), self.column(REPLAYED)
        if recorded is None or replayed is None:
            return None
        was, now = recorded.value("waiting.p50"), replayed.value("waiting.p50")
        return abs(now - was) / max(was, _LEAST_WAITING_SECONDS) if was is not None and now is not None else None


def compare(
    trace: Trace,
    base: Case,
    changed: Case,
    *,
    seed: int = 0,
    repeat: int = 1,
    warm_up: float = WARM_UP,
    processes: int = 1,
    report: Callable[[str], None] = lambda _: None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> PolicyComparison:
    """Replay a trace under both configurations, `processes` replays at a time. If `may_go_on` returns False, the result
    is what there is so far."""
    draws = [TraceDraws(trace, seed)]
    draws += [TraceDraws(trace, seed + number) for number in range(1, repeat if draws[0].drawn else 1)]
    cases = ((REPLAYED, base), (CHANGED, changed))
    tasks = [ReplayTask(name, case, trace, each) for each in draws for name, case in cases]
    replays = run_all(tasks, processes=processes, report=report, may_go_on=may_go_on)
    runs = [(RECORDED, base, [_recorded(trace)])] if trace.has_recorded else []
    for place, (name, case) in enumerate(cases):
        first, *others = replays[place :: len(cases)]
        # A replay that was interrupted before its first instant was not begun.
        if first is not None and (first.is_complete or first.reached > trace.begin):
            runs.append((name, case, [first, *(each for each in others if each is not None and each.is_complete)]))
    # What was interrupted is measured up to where it is, and everything else too: or it could not be compared.
    cut = [each.reached for _, _, found in runs for each in found if not each.is_complete]
    end = max(trace.begin, min([trace.end, *cut])) if cut else None
    columns = tuple(_columns(name, trace, case, found, warm_up, end) for name, case, found in runs)
    notices = [*trace.notices, *(_quota_notices(trace, base) if trace.has_recorded else ())]
    notices += _notices(base, changed)
    return PolicyComparison(
        trace=trace, columns=columns, drawn=draws[0].drawn, endless=draws[0].endless, notices=tuple(notices)
    )


def _notices(base: Case, changed: Case) -> list[str]:
    """What the configurations have and the replays do not; with the name of the column where only one is concerned."""
    columns = {REPLAYED: base, CHANGED: changed}
    passing = {name: replayed_budgets.unanswered(case) for name, case in columns.items()}
    found: dict[str, None] = {}
    for name, sentences in passing.items():
        for sentence in sentences:
            is_of_both = all(sentence in each for each in passing.values())
            found[sentence if is_of_both else f"{name}: {sentence}"] = None
    for name, case in columns.items():
        schedules = [each for each in case.extensions if isinstance(each, QuotaSchedule)]
        if schedules and planner.QUOTA_CALENDAR not in case.configured.on:
            found[f"{name}: QuotaSchedules have no effect, because the gate {planner.QUOTA_CALENDAR} is off"] = None
    return list(found)


def _columns(
    name: str, trace: Trace, case: Case, found: Sequence[Replay], warm_up: float, cut: Seconds | None
) -> ComparisonColumn:
    """The column of a replay, with the range of its repetitions."""
    columns = [_column(name, trace, case, each, warm_up, cut) for each in found]
    return replace(columns[0], ranges=_ranges(columns)) if len(columns) > 1 else columns[0]


def _recorded(trace: Trace) -> Replay:
    return Replay(outcomes=tuple(JobOutcome(job, job.attempts) for job in trace.jobs), reached=trace.end)


def _column(
    name: str, trace: Trace, case: Case, found: Replay, warm_up: float, cut: Seconds | None
) -> ComparisonColumn:
    end = trace.end if cut is None else cut
    begin = trace.begin + int((end - trace.begin) * warm_up)
    queues, cohorts = quotas(case.objects, trace_replay.windows(case, trace))
    resources = {pair.resource for quota in queues.values() for pair in quota.nominal}
    within = MeasuredRange(
        begin=begin, end=end, queues=queues, cohorts=cohorts, resource=measures.main_resource(resources)
    )
    is_whole = trace.is_complete and cut is None
    outcomes = found.outcomes if is_whole else tuple(_until(each, end) for each in found.outcomes)
    late = [each.job.key for each in outcomes if each.started is None and begin <= each.job.submitted < end]
    return ComparisonColumn(
        name=name,
        figures=tuple(measures.measure(outcomes, within)),
        replay=replace(found, outcomes=outcomes),
        within=within,
        not_started=tuple(late),
    )


def _until(outcome: JobOutcome, end: Seconds) -> JobOutcome:
    """What happened to a job before the end of the range."""
    attempts = outcome.attempts
    if all(each.reserved < end and (each.released or end) <= end for each in attempts):
        return outcome
    kept = []
    for each in attempts:
        if each.reserved >= end:
            break
        if each.admitted is not None and each.admitted >= end:
            each = msgspec.structs.replace(each, admitted=None)
        if each.released is not None and each.released > end:
            each = msgspec.structs.replace(each, released=None, reason="", preemptor="")
        kept.append(each)
    return JobOutcome(outcome.job, tuple(kept))


def _ranges(columns: Sequence[ComparisonColumn]) -> dict[str, tuple[float, float]]:
    values: dict[str, list[float]] = {}
    for column in columns:
        for figure in column.figures:
            if figure.value is not None:
                values.setdefault(figure.key, []).append(figure.value)
    return {key: (min(found), max(found)) for key, found in values.items()}


# --- Quota ------------------------------------------------------------------------------------------------------------


def quotas(
    objects: Iterable[msgspec.Struct], windows: Iterable[ScheduledWindows] = ()
) -> tuple[dict[str, QueueQuota], dict[str, QueueQuota]]:
    """The nominal quota of ClusterQueues, and of cohorts, by name, with the windows of QuotaSchedules."""
    scheduled = QuotaWindows()
    scheduled.replace_all(windows)
    parents: dict[str, str] = {}
    owned: dict[str, Sequence[kueue.ResourceGroup]] = {}
    queues: list[kueue.ClusterQueue] = []
    for thing in objects:
        if isinstance(thing, kueue.Cohort):
            parents[thing.metadata.name] = thing.spec.parent_name or ""
            owned[thing.metadata.name] = thing.spec.resource_groups
        elif isinstance(thing, kueue.ClusterQueue):
            queues.append(thing)

    def root(cohort: str) -> str:
        seen: set[str] = set()
        while parents.get(cohort) and cohort not in seen:
            seen.add(cohort)
            cohort = parents[cohort]
        return f"cohort/{cohort}"

    of_queues = {
        queue.metadata.name: QueueQuota(
            tree=root(queue.spec.cohort_name) if queue.spec.cohort_name else queue.metadata.name,
            nominal=_nominal(QuotaOwner(False, queue.metadata.name), queue.spec.resource_groups, scheduled),
        )
        for queue in queues
    }
    of_cohorts = {
        name: QueueQuota(tree=root(name), nominal=_nominal(QuotaOwner(True, name), groups, scheduled))
        for name, groups in owned.items()
    }
    return of_queues, of_cohorts


def _nominal(
    owner: QuotaOwner, groups: Iterable[kueue.ResourceGroup], windows: QuotaWindows
) -> dict[FlavorResource, tuple[Step, ...]]:
    """The nominal quota of an object over time: that of its spec, and another one from every edge of a window on that
    changes it."""
    base = specs.quotas(groups)
    steps = {pair: [Step(0, quota.nominal)] for pair, quota in base.items()}
    for edge in windows.edges(0):
        for pair, quota in windows.overlaid(owner, base, windows.given_at(edge)).items():
            if quota.nominal != steps[pair][-1].amount:
                steps[pair].append(Step(edge // SECOND, quota.nominal))
    return {pair: tuple(found) for pair, found in steps.items()}


def _quota_notices(trace: Trace, base: Case) -> list[str]:
    """Signs that the quota of the range was another one than now [PC4]."""
    queues, cohorts = quotas(base.objects)
    used = {attempt.cluster_queue for job in trace.jobs for attempt in job.attempts}
    found = [f"ClusterQueue {name} was used and does not exist now" for name in sorted(used - set(queues))]
    nominal: dict[FlavorResource, int] = {}
    for quota in (*queues.values(), *cohorts.values()):
        for pair, steps in quota.nominal.items():
            nominal[pair] = amounts.add(nominal.get(pair, 0), steps[0].amount)
    for pair, (peak, at) in sorted(_peaks(trace).items()):
        if peak > nominal.get(pair, 0):
            had, has = amounts.text(pair.resource, peak), amounts.text(pair.resource, nominal.get(pair, 0))
            found.append(
                f"at {meta.format_time(at * SECOND)}, {had} {pair.resource} of flavor {pair.flavor} were in use, and"
                f" the quota is {has} now: it was changed since"
            )
    return found


def _peaks(trace: Trace) -> dict[FlavorResource, tuple[int, Seconds]]:
    """The largest recorded usage in the range, and when."""
    changes: dict[FlavorResource, list[tuple[Seconds, int]]] = {}
    for job in trace.jobs:
        for attempt in job.attempts:
            for segment in attempt.segments:
                start, end = max(segment.start, trace.begin), min(segment.end or trace.end, trace.end)
                for flavor, resource, amount in segment.amounts if start < end else ():
                    changes.setdefault(FlavorResource(flavor, resource), []).extend([(start, amount), (end, -amount)])
    found = {}
    for pair, rows in changes.items():
        used, peak, when = 0, 0, trace.begin
        for at, amount in sorted(rows):
            used += amount
            if used > peak:
                peak, when = used, at
        found[pair] = (peak, when)
    return found
