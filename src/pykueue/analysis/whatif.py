"""Which Workloads would start, wait or be evicted if objects changed: the scheduler run before and after the change.

The change is a set of objects, which replace those of the same name or are added, and names of objects to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kubemachinery.meta import Nanoseconds
from pykueue.analysis import planner
from pykueue.analysis.object_changes import indexed
from pykueue.analysis.planner import Case, SchedulingPlan
from pykueue.api import kueue
from pykueue.lifecycle import states
from pykueue.state import quota_windows, workload_info
from pykueue.state.quota_windows import WindowSpan


class SettledPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The final state of every Workload, after cycles until nothing changes."""

    holds: frozenset[str]
    waits: frozenset[str]
    evicted: frozenset[str]
    assignments: dict[str, Any]
    unstable_because: str = ""  # the reason if there is no final state


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a change. Each Workload is in at most one field."""

    starts: tuple[str, ...]  # get quota only with the change
    starts_anyway: tuple[str, ...]  # get quota with and without it
    evicted: tuple[str, ...]  # hold quota now, and lose it only with the change
    evicted_anyway: tuple[str, ...]
    joins: tuple[str, ...]  # are new with the change, and wait
    waits: tuple[str, ...]  # would start without the change, and wait with it
    waits_anyway: tuple[str, ...]
    moves: tuple[str, ...]  # get quota with and without it, with different flavors or counts
    before: SettledPlan
    after: SettledPlan

    def tree(self) -> dict[str, Any]:
        return {
            "starts": list(self.starts),
            "startsAnyway": list(self.starts_anyway),
            "evicted": list(self.evicted),
            "evictedAnyway": list(self.evicted_anyway),
            "joins": list(self.joins),
            "waits": list(self.waits),
            "waitsAnyway": list(self.waits_anyway),
            "moves": list(self.moves),
            "assignments": dict(sorted(self.after.assignments.items())),
            "unstable": {"before": self.before.unstable_because, "after": self.after.unstable_because},
        }


def changed_by(case: Case, change: Case, gone: Sequence[tuple[type, str, str]], now: Nanoseconds) -> Case:
    """The case with the objects of the change and its Configuration, its jobs submitted, and some objects deleted."""
    objects = indexed(case.objects) | indexed(change.objects)
    for key in gone:
        objects.pop(key, None)
    extensions = {(type(each), _name(each)): each for each in (*case.extensions, *change.extensions)}
    world = replace(
        case.with_objects(objects.values()),
        configured=change.configured if change.is_configured else case.configured,
        classes=(*case.classes, *change.classes),
        extensions=tuple(each for key, each in extensions.items() if (key[0], "", key[1]) not in gone),
        passed_over=(),
    )
    return planner.queued(world, change.jobs, now)


def _name(thing: Any) -> str:
    return str(thing.metadata.name)


def next_window(change: Case, now: Nanoseconds) -> WindowSpan | None:
    """The next window of the QuotaSchedules of a change, if none of them is in force."""
    windows = planner.windows_of(change, now)
    if not windows or quota_windows.in_force(windows, now):
        return None
    spans = [span for each in windows for span in each.spans if span.start > now]
    return min(spans, key=lambda span: (span.start, span.window), default=None)


def compare(case: Case, changed: Case, now: Nanoseconds, may_go_on: Callable[[], bool] = lambda: True) -> WhatIfReport:
    """Compare the settled plans of both cases. `may_go_on` is called before every further cycle."""
    before, after = outcome(case, now, may_go_on), outcome(changed, now, may_go_on)
    held = {states.key(t) for t in case.objects if isinstance(t, kueue.Workload) and workload_info.holds_quota(t)}

    def sorted_keys(keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(keys))

    both = before.holds & after.holds
    return WhatIfReport(
        starts=sorted_keys(after.holds - before.holds - held),
        starts_anyway=sorted_keys(both - held),
        evicted=sorted_keys((held & after.evicted) - before.evicted),
        evicted_anyway=sorted_keys(held & after.evicted & before.evicted),
        joins=sorted_keys(after.waits - before.waits - before.holds - held),
        waits=sorted_keys(after.waits & before.holds - held),
        waits_anyway=sorted_keys(after.waits & before.waits - held),
        moves=sorted_keys(key for key in both if before.assignments.get(key) != after.assignments.get(key)),
        before=before,
        after=after,
    )


def outcome(case: Case, now: Nanoseconds, may_go_on: Callable[[], bool] = lambda: True) -> SettledPlan:
    made = planner.settle(case, now, may_go_on)
    holds = frozenset(key for key, held in made.world.reservations.items() if not held.evicted)
    waiting = {key for key, workload in made.workloads.items() if key not in holds and not states.is_finished(workload)}
    return SettledPlan(
        holds=holds,
        waits=frozenset(waiting),
        evicted=frozenset(_evicted(made)),
        assignments={key: made.admissions[key] for key in sorted(holds) if key in made.admissions},
        unstable_because=made.unstable_because,
    )


def _evicted(made: SchedulingPlan) -> set[str]:
    tree = planner.as_tree(made)
    return {*tree["preempted"], *tree["evicted"], *(withdrawal.workload for withdrawal in made.withdrawn)}
