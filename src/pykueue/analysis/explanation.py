"""The explanation of one Workload: all causes, the holders of the quota it needs, and changes that would admit it.

One value for the command line, for programs and for the dashboard. The causes come from a scheduling decision on the
Workload without competitors, so that a Workload behind others also gets the causes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.errors import UsageError
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from kubemachinery.yaml_documents import Document
from pykueue import wording
from pykueue.analysis import placement, planner, suggestion_search
from pykueue.analysis.blockers import AdmissionBlocker, admission_blockers
from pykueue.analysis.object_changes import ObjectChange, Objects, indexed
from pykueue.analysis.planner import Case, SchedulingPlan
from pykueue.analysis.suggestion_search import Suggestion
from pykueue.analysis.trial import SearchBudget, SearchBudgetExhausted, Trial, narrowed, without_rivals
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, WorkloadCondition
from pykueue.core import amounts
from pykueue.core.decision import Requeue, Wait
from pykueue.core.planned_starts import PlannedStart
from pykueue.lifecycle import states
from pykueue.lifecycle.queues import References
from pykueue.lifecycle.states import State
from pykueue.observe import decision_messages, visibility
from pykueue.observe.decision_messages import NotCounted
from pykueue.state.quota_windows import QuotaOwner
from pykueue.state.world import World

PENDING: Final = "Pending"


class SearchExtent(Enum):
    """How much of the search for suggestions was done."""

    NONE = "none"
    COMPLETE = "complete"
    CUT_SHORT = "cut short"


# The default budget of a search, in Workloads read: about two seconds.
EFFORT: Final = 80_000


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one Workload."""

    workload: str
    state: str  # Pending, QuotaReserved, Admitted, Evicted, Finished, Inactive
    queue: str
    cluster_queue: str
    position: tuple[int, int] | None = None  # in the ClusterQueue and in the LocalQueue, from 1
    causes: tuple[str, ...] = ()
    not_counted: tuple[NotCounted, ...] = ()  # requested resources that quota does not count
    ahead: tuple[str, ...] = ()  # the Workloads before it in its queue, in order
    tried: tuple[dict[str, Any], ...] = ()
    holders: tuple[dict[str, Any], ...] = ()
    starts_next: bool = False  # nothing blocks it: the next cycles admit it
    warnings: tuple[str, ...] = ()  # problems that will occur although nothing blocks it now
    planned_start: str = ""  # the sentence about its planned start; empty without one
    advice: tuple[str, ...] = ()  # what of its own would let it start before a planned start
    suggestions: tuple[Suggestion, ...] = ()
    search: SearchExtent = SearchExtent.NONE

    def tree(self) -> dict[str, Any]:
        position = {"inClusterQueue": self.position[0], "inLocalQueue": self.position[1]} if self.position else None
        return {
            "workload": self.workload,
            "state": self.state,
            "localQueue": self.queue,
            "clusterQueue": self.cluster_queue,
            "position": position,
            "causes": list(self.causes),
            "notCounted": [each.tree() for each in self.not_counted],
            "ahead": list(self.ahead),
            "tried": list(self.tried),
            **({"plannedStart": self.planned_start} if self.planned_start else {}),
            **({"advice": list(self.advice)} if self.advice else {}),
            "holders": list(self.holders),
            "startsNext": self.starts_next,
            "warnings": list(self.warnings),
            "suggestions": [suggestion_tree(each) for each in self.suggestions],
            "search": self.search.value,
        }


def suggestion_tree(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "kind": suggestion.kind,
        "change": suggestion.sentence(),
        "warning": suggestion.warning,
        "changes": [{"change": part.sentence(), "command": part.how()} for part in suggestion.changes],
    }


_AHEAD_SHOWN: Final = 10


def explain(
    case: Case, key: str, now: Nanoseconds, *, suggest: bool = True, effort: SearchBudget | None = None
) -> Explanation:
    """Explain one Workload. Raises UsageError if it does not exist.

    The search for suggestions stops when the budget `effort` is spent.
    """
    namespace, _, name = key.partition("/")
    workload = indexed(case.objects).get((kueue.Workload, namespace, name))
    if not isinstance(workload, kueue.Workload):
        raise UsageError(f"Workload {key} does not exist")
    state = state_of(workload)
    admission = workload.status.admission
    local_queue = f"{namespace}/{workload.spec.queue_name or ''}"
    if state != PENDING:
        cluster_queue = admission.cluster_queue if admission is not None else ""
        return Explanation(
            workload=key,
            state=state,
            queue=local_queue,
            cluster_queue=cluster_queue,
            causes=tuple(_of_conditions(workload, case)),
            warnings=() if states.is_finished(workload) else _loop_warnings(narrowed(case, key), key, workload, now),
            not_counted=_not_counted(case, workload, cluster_queue, now),
        )
    limit = (effort or SearchBudget(EFFORT)) if suggest else None
    return _waiting(narrowed(case, key), key, workload, now, limit)


def explainer(configuration: dict[str, Any]) -> Callable[[Iterable[msgspec.Struct], str, Nanoseconds, bool], Tree]:
    """A function like `explain` on given objects, returning a tree: (objects, namespace/name, now, suggest)."""
    empty = planner.read([Document("the configuration", configuration)])

    def explain_objects(objects: Iterable[msgspec.Struct], key: str, now: Nanoseconds, suggest: bool) -> Tree:
        known = list(objects)
        case = empty.with_objects(thing for thing in known if type(thing) in planner.KINDS)
        case = replace(case, extensions=tuple(thing for thing in known if type(thing) in planner.EXTENSIONS))
        return explain(case, key, now, suggest=suggest).tree()

    return explain_objects


def state_of(workload: kueue.Workload) -> str:
    """The state of a Workload, as Explanation.state."""
    return _STATES[states.state(workload)]


_STATES: Final = {
    State.PENDING: PENDING,
    State.RESERVED: WorkloadCondition.QUOTA_RESERVED.value,
    State.ADMITTED: WorkloadCondition.ADMITTED.value,
    State.EVICTED: WorkloadCondition.EVICTED.value,
    State.FINISHED: WorkloadCondition.FINISHED.value,
}


def _of_conditions(workload: kueue.Workload, case: Case) -> Iterator[str]:
    """The causes of a Workload that is not pending, from its conditions and checks; if admitted, from its pods."""
    condition = states.state_condition(workload)
    if condition is not None:
        yield f"{condition.type}: {condition.message or condition.reason}"
    for check in workload.status.admission_checks:
        if check.state != kueue.CheckState.READY:
            yield f"AdmissionCheck {check.name} is {check.state}" + (f": {check.message}" if check.message else "")
    if states.state(workload) is State.ADMITTED:
        yield from placement.unscheduled_pods(case.objects, workload)


def _waiting(
    case: Case, key: str, workload: kueue.Workload, now: Nanoseconds, effort: SearchBudget | None
) -> Explanation:
    objects = indexed(case.objects)
    trial = Trial(case, key, now)
    as_is, _ = trial.begin()
    as_is.world.settle(now)
    pending = as_is.world.pending_workload(key)
    cluster_queue = pending.cluster_queue if pending is not None else ""
    place = next((place for place in _line(as_is, cluster_queue) if place.key == key), None)
    ahead = [other.key for other in _line(as_is, cluster_queue) if place and other[2] < place.in_cluster_queue]
    references = _references(case, as_is.world.in_cohort_cycle(now))
    closed = admission_blockers(objects, references, workload, case.configured.policy, now)
    # One cycle without other pending Workloads: the decision on this Workload itself.
    alone = planner.plan(without_rivals(case, key), now, departures=True)
    explained = planner.explanations(alone).get(key, {})
    starts = not closed and trial.admits()
    causes = [gate.cause for gate in closed]
    # With a blocker there is no decision on quota: the messages would repeat the blocker.
    if not starts and explained.get("decision") == Wait.__name__ and _was_tried(alone, key):
        causes += explained["because"]
    planned = _planned(case, key, now) if case.configured.policy.tracks_hard_ends and not closed else _NOT_PLANNED
    if planned.cause:
        causes, starts = [planned.cause], False
    if not causes and not starts:
        causes = [_overtaken(ahead)]
    found, search = ([], SearchExtent.NONE) if starts or effort is None else _suggested(trial, objects, closed, effort)
    if not starts:
        causes += _window_causes(as_is.world, cluster_queue)
    if placement.knows_nodes(objects):
        causes += _without_nodes(trial, objects, found, starts=starts)
    return Explanation(
        workload=key,
        state=PENDING,
        queue=f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}",
        cluster_queue=cluster_queue,
        position=(place.in_cluster_queue + 1, place.in_local_queue + 1) if place is not None else None,
        causes=tuple(dict.fromkeys(causes)),
        not_counted=_not_counted(case, workload, cluster_queue, now),
        ahead=tuple(ahead[:_AHEAD_SHOWN]),
        tried=tuple(explained.get("tried", ())),
        holders=tuple(explained.get("holders", ())),
        starts_next=starts,
        warnings=_loop_warnings(case, key, workload, now),
        planned_start=planned.start,
        advice=planned.advice,
        suggestions=tuple(found),
        search=search,
    )


def _window_causes(world: World, cluster_queue: str) -> Iterator[str]:
    """A sentence for every quota of the ClusterQueue and its cohorts that a window lowers now [QS2]."""
    node = world.queue_node(cluster_queue)
    if node is None or not world.windows.windows_in_force:
        return
    owners = (QuotaOwner(False, cluster_queue), *(QuotaOwner(True, above.name) for above in node.ancestors))
    by_schedule = {each.schedule: each for each in world.windows.schedules}
    for window in world.windows.windows_in_force:
        for given in by_schedule[window.schedule].quotas:
            before = (world.spec_quotas(given.owner) or {}).get(given.pair)
            after = (world.effective_quotas(given.owner) or {}).get(given.pair)
            if given.owner in owners and before is not None and after is not None and after.nominal < before.nominal:
                kind = "Cohort" if given.is_cohort else "ClusterQueue"
                amount, spec = (amounts.text(given.resource, one.nominal) for one in (after, before))
                yield (
                    f"window {window.window} of QuotaSchedule {window.schedule} lowers {given.resource} of"
                    f" {given.flavor} in {kind} {given.name} from {spec} to {amount}"
                    f" until {meta.format_time(window.until)}"
                )


class _Planned(NamedTuple):
    """The planned start of a pending Workload, or why the timeline refuses it: it would delay another one, or exceed a
    quota that will be lowered."""

    start: str = ""
    cause: str = ""
    advice: tuple[str, ...] = ()


_NOT_PLANNED: Final = _Planned()


def _planned(case: Case, key: str, now: Nanoseconds) -> _Planned:
    made = planner.settle(case, now)
    plan = made.world.planned_start(key)
    start = planned_start_sentence(plan, _window_at(made.world, plan)) if plan is not None else ""
    decided = [each for cycle in made.cycles for each in cycle if each.workload == key]
    last = decided[-1] if decided else None
    if not isinstance(last, Wait) or last.requeue is not Requeue.PLANNED:
        return _Planned(start)
    return _Planned(start, last.message, (last.advice,) if last.advice else ())


def _window_at(world: World, plan: PlannedStart) -> str:
    """The window that begins or ends at the date of a planned start and gives quota that it needs; empty if there is
    none, so that it waits for ends of Workloads alone."""
    node = world.queue_node(plan.queue)
    if node is None:
        return ""
    pairs = {node.tree.pairs[number] for number, _ in plan.usage}
    owners = {QuotaOwner(False, plan.queue), *(QuotaOwner(True, above.name) for above in node.ancestors)}
    for schedule in world.windows.schedules:
        if any(given.owner in owners and given.pair in pairs for given in schedule.quotas):
            for span in schedule.spans:
                if plan.date in (span.start, span.end):
                    change = "begins" if plan.date == span.start else "ends"
                    return f"window {span.window} of QuotaSchedule {schedule.schedule} {change} then"
    return ""


def planned_start_sentence(plan: PlannedStart, window: str = "") -> str:
    """The sentence about a planned start. `window` is the change of a window that it waits for."""
    if plan.date is None:
        return "it starts when the workloads in its way have ended; at least one of them has no run-time limit"
    date = meta.format_time(plan.date)
    if plan.is_expected:
        reason = f": {window}" if window else ""
        return f"its start is expected by {date}{reason}; its placement on nodes is not planned"
    return f"its start is planned for {date} at the latest: {window or 'everything it waits for has a run-time limit'}"


# The budget of the search for a preemption loop, in Workloads read: a fraction of a second.
_AHEAD_EFFORT: Final = 20_000


def _loop_warnings(case: Case, key: str, workload: kueue.Workload, now: Nanoseconds) -> tuple[str, ...]:
    """A warning if the Workload is part of a preemption loop, found by running the scheduler ahead on a copy. Empty if
    the budget does not suffice for its cohort tree."""
    trial = Trial(case, key, now, SearchBudget(_AHEAD_EFFORT))
    try:
        loop = trial.loop_ahead()
    except SearchBudgetExhausted:
        return ()
    if loop is None or key not in loop.members:
        return ()
    times = sum(each.count for each in evictions(workload) if each.reason == EvictedReason.PREEMPTED)
    so_far = f" This Workload was preempted {wording.counted(times, 'time')} so far." if times else ""
    ends = "It continues until priorities, quota, the preemption policy or the Workloads change."
    return (f"preemption loop: {loop.sentence()}, in turns. {ends}{so_far}",)


def evictions(workload: kueue.Workload) -> Iterable[kueue.WorkloadSchedulingStatsEviction]:
    stats = workload.status.scheduling_stats
    return stats.evictions if stats is not None else ()


def _not_counted(case: Case, workload: kueue.Workload, cluster_queue: str, now: Nanoseconds) -> tuple[NotCounted, ...]:
    """The requested resources that quota does not count, by the current Configuration."""
    world = planner.world_of(case.with_objects(t for t in case.objects if not isinstance(t, kueue.Workload)), now)
    world.settle(now)
    return decision_messages.not_counted(world.exclusions(workload), world.skipped(workload, cluster_queue))


def _references(case: Case, in_cohort_cycle: frozenset[str]) -> References:
    return References.of(
        (thing for thing in case.objects if isinstance(thing, kueue.ResourceFlavor)),
        (thing for thing in case.objects if isinstance(thing, kueue.Topology)),
        (thing for thing in case.objects if isinstance(thing, kueue.AdmissionCheck)),
        has_topologies=case.configured.policy.topology,
        in_cohort_cycle=in_cohort_cycle,
    )


def _suggested(
    trial: Trial, objects: Objects, closed: Iterable[AdmissionBlocker], effort: SearchBudget
) -> tuple[list[Suggestion], SearchExtent]:
    opening = [gate.part for gate in closed if gate.part is not None]
    found: list[Suggestion] = []
    trial.effort = effort
    search = SearchExtent.COMPLETE
    try:
        for suggestion in suggestion_search.suggestions(trial, objects, opening):
            found.append(suggestion)
    except SearchBudgetExhausted:
        search = SearchExtent.CUT_SHORT
    if placement.knows_nodes(objects):
        found = [replace(each, warning=_warning(trial, objects, each.changes)) for each in found]
    return suggestion_search.ordered(found), search


def _warning(trial: Trial, objects: Objects, change: Sequence[ObjectChange] = ()) -> str:
    """Why the pods of the Workload would stay Pending after the change admits it; empty if they would run."""
    # Without other pending Workloads, which is fast; each change is tried once, so no budget is spent.
    made = Trial(without_rivals(trial.case, trial.target), trial.target, trial.now).run(change)
    return placement.pending_pods(objects, made, trial.target)


def _without_nodes(trial: Trial, objects: Objects, found: Sequence[Suggestion], *, starts: bool) -> list[str]:
    """The nodes as a cause, if they prevent every suggestion."""
    warnings = [_warning(trial, objects)] if starts else [each.warning for each in found]
    return warnings[:1] if warnings and all(warnings) else []


def _line(made: SchedulingPlan, cluster_queue: str) -> list[visibility.QueuePosition]:
    queue = made.world.queues.get(cluster_queue)
    return list(visibility.in_cluster_queue(queue)) if queue is not None else []


def _was_tried(made: SchedulingPlan, key: str) -> bool:
    return any(decision.workload == key and decision.explanation for decision in made.decisions)


def _overtaken(ahead: list[str]) -> str:
    if ahead:
        return (
            f"it would fit alone; {ahead[0]} and {len(ahead) - 1} more are ahead"
            if len(ahead) > 1
            else (f"it would fit alone; {ahead[0]} is ahead")
        )
    return "it would fit alone; Workloads of other queues in its cohort are ahead"
