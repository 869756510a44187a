"""What is suggested lets the Workload in, and no part of it can be left out: over random worlds and recorded ones.

`ADVISING_STATES=5000` looks at that many blocked states instead of a handful.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings

from analysis.states import blocked, case_of, recorded, workload_of
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, clusters
from pykueue.analysis import suggestion_search
from pykueue.analysis.blockers import admission_blockers
from pykueue.analysis.explanation import SearchExtent, explain
from pykueue.analysis.object_changes import DeclareQuota, RaiseQuota, indexed
from pykueue.analysis.planner import Case, plan
from pykueue.analysis.suggestion_search import Suggestion
from pykueue.analysis.trial import SearchBudget, Trial, changed
from pykueue.lifecycle.queues import References

STATES = int(os.environ.get("ADVISING_STATES", "40"))


def suggested(case: Case, key: str, now: int) -> list[Suggestion]:
    objects = indexed(case.objects)
    closed = admission_blockers(objects, References(), workload_of(case, key), case.configured.policy, now)
    opening = [gate.part for gate in closed if gate.part is not None]
    return list(suggestion_search.suggestions(Trial(case, key, now), objects, opening))


def gets_in(case: Case, key: str, now: int, suggestion: Suggestion, without: int | None = None) -> bool:
    """Asked of a plan from scratch, not of the trial that found the suggestion."""
    parts = [part for n, part in enumerate(suggestion.changes) if n != without]
    then = max([now, *(part.later_than() for part in parts)])
    made = plan(changed(case, parts), then, cycles=10_000, until_stable=True, departures=True)
    return any(type(decision).__name__ == "Admit" and decision.workload == key for decision in made.decisions)


def check(case: Case, key: str, now: int) -> int:
    found = suggested(case, key, now)
    for suggestion in found:
        prove(case, key, now, suggestion)
    return len(found)


def prove(case: Case, key: str, now: int, suggestion: Suggestion) -> None:
    assert gets_in(case, key, now, suggestion), suggestion.sentence()
    for n, part in enumerate(suggestion.changes):
        assert not gets_in(case, key, now, suggestion, without=n), f"spare in: {suggestion.sentence()}"
        if isinstance(part, (RaiseQuota, DeclareQuota)) and part.amount > 1:
            parts = (*suggestion.changes[:n], part.smaller(part.amount - 1), *suggestion.changes[n + 1 :])
            less = Suggestion(parts, suggestion.kind)
            assert not gets_in(case, key, now, less), f"one less would do: {suggestion.sentence()}"


@settings(max_examples=STATES)
@given(clusters())
def test_a_suggestion_works_and_is_no_larger_than_it_must_be(world: ClusterCase) -> None:
    case = case_of(world)
    for key in blocked(case, NOW)[:2]:
        assert check(case, key, NOW), f"nothing was found for {key}, although quota always helps in these worlds"


def test_suggestions_hold_in_the_recorded_cases_too() -> None:
    """Topologies, fair sharing, checks, several resources and flavors: what random worlds are too small for."""
    looked = 0
    rng = random.Random(7)
    while looked < STATES // 4:
        for _, case, now in recorded(rng):
            if len(case.objects) > 60:
                continue  # the search takes long for the large ones
            for key in blocked(case, now)[:1]:
                check(case, key, now)
                looked += 1
            if looked >= STATES // 4:
                break


@dataclass(frozen=True)
class Submission:
    """One queue with 10 cpu, some of it taken; one Workload that asks for more than is left."""

    asks: int
    ways: dict[str, str]


CASES = {
    "short of quota": Submission(
        6,
        {
            "quota": "raise nominalQuota of cpu in flavor f0 of ClusterQueue q0 by 4, to 14",
            "waiting": "wait for ns/w0 to end",
            "priority": "raise the priority of ns/w1 from 0 to 2",
        },
    ),
    "more than there is": Submission(
        12, {"quota": "raise nominalQuota of cpu in flavor f0 of ClusterQueue q0 by 10, to 20"}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_suggestion_is_reported_once(name: str) -> None:
    case = CASES[name]
    world = ClusterCase(
        (),
        (QueueCase("q0", "", (QuotaCase(10, None, None),), "LowerPriority", "Never", False),),
        (WorkloadCase(0, "q0", 8, 1, 5, "f0"), WorkloadCase(1, "q0", case.asks, 0, 1)),
        False,
    )
    assert {each.kind: each.sentence() for each in suggested(case_of(world), "ns/w1", NOW)} == case.ways


def crowd(workloads: int) -> Case:
    """Five queues that borrow from each other, all full; the same number of Workloads waits in each."""
    queues = tuple(QueueCase(f"q{n}", "c0", (QuotaCase(10, None, None),), "Never", "Never", False) for n in range(5))
    held = [WorkloadCase(n, f"q{n % 5}", 2, n % 3, workloads - n, "f0") for n in range(25)]
    waiting = [WorkloadCase(n, f"q{n % 5}", 1 + n % 4, n % 3, workloads - n) for n in range(25, workloads)]
    return case_of(ClusterCase((), queues, (*held, *waiting), False))


def test_a_crowd_costs_few_looks_at_the_whole_of_it() -> None:
    """Each suggestion is searched where no other Workload is pending, and then verified with all of them."""
    case = crowd(300)
    trial = Trial(case, "ns/w270", NOW)
    [found] = suggestion_search.suggestions(trial, indexed(case.objects), [])
    assert found.kind == "quota"
    prove(case, "ns/w270", NOW, found)
    whole = SearchBudget()
    Trial(case, "ns/w270", NOW, whole).admits(found.changes)
    assert trial.effort.spent < 8 * whole.spent


def test_a_search_that_costs_too_much_ends_with_what_it_has_found() -> None:
    case = crowd(300)
    complete = explain(case, "ns/w270", NOW)
    assert (complete.search, len(complete.suggestions)) == (SearchExtent.COMPLETE, 1)
    cut = explain(case, "ns/w270", NOW, effort=SearchBudget(1_000))
    assert (cut.search, cut.suggestions) == (SearchExtent.CUT_SHORT, ())
    assert cut.causes == complete.causes
    assert explain(case, "ns/w270", NOW, suggest=False).search is SearchExtent.NONE


def test_one_that_is_spare_only_after_another_was_dropped_is_dropped_too() -> None:
    """With fewer blockers a smaller Workload may be admitted before it, so which parts are needed depends on the others."""
    queues = tuple(QueueCase(f"q{n}", "c", (QuotaCase(quota, None, None),), "Never", "Never", False) for n, quota in [
        (0, 3), (1, 7), (2, 7)
    ])  # fmt: skip
    held = [
        WorkloadCase(1, "q0", 1, 0, 0, "f0"),
        WorkloadCase(6, "q0", 6, 0, 0, "f0"),
        WorkloadCase(7, "q0", 4, 0, 0, "f0"),
    ]
    waiting = [WorkloadCase(0, "q0", 1, 0, 0), WorkloadCase(2, "q2", 0, 0, 0), WorkloadCase(3, "q2", 5, 0, 0)]
    waiting += [WorkloadCase(4, "q2", 6, 0, 3), WorkloadCase(5, "q2", 0, 3, 0), WorkloadCase(8, "q2", 4, 0, 1)]
    case = case_of(ClusterCase((), queues, (*held, *waiting), False))
    [order] = [each for each in suggested(case, "ns/w3", NOW) if each.kind == "order"]
    prove(case, "ns/w3", NOW, order)
