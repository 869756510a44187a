"""What holds of planned backfill in every small cluster (laws BF-L1 to BF-L8)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubemachinery.meta import SECOND
from laws.random_backfill import (
    ALLOWANCE,
    START,
    BackfillCase,
    BackfillJob,
    BackfillQueue,
    BackfillRun,
    cases,
    crowded_case,
    jobs,
    jobs_with_priorities,
    number_of,
    plain_queues,
    preempting_queues,
)
from pykueue.core.policy import SchedulingPolicy

SMALL = settings(max_examples=25)
PLAIN = cases(plain_queues, jobs)
WITH_PREEMPTION = cases(preempting_queues, jobs_with_priorities)


def delayed(run: BackfillRun, allowance: int = 0) -> list[str]:
    """The Workloads that started after their first planned date without a cause."""
    return [
        f"w{number:02}: planned {(date - START) // SECOND}, started {run.started.get(number)}"
        for number, date in run.first_dates.items()
        if number not in run.moved
        and number not in run.preempted
        and run.started.get(number, 10**9) * SECOND > date - START + allowance * SECOND
    ]


@SMALL
@given(PLAIN)
def test_no_planned_start_is_later_without_a_cause(case: BackfillCase) -> None:
    """BF-L1."""
    assert delayed(BackfillRun(case).run()) == []


# It requests more than nominal quota, and may not preempt while borrowing.
CANNOT_PREEMPT = BackfillCase(
    (
        BackfillQueue(1, None, None, False, "EASY", "Never", "LowerPriority"),
        BackfillQueue(1, None, None, False, "EASY"),
        BackfillQueue(7, None, None, False, "EASY"),
    ),
    (
        *(BackfillJob(0, 1, 0, 0, 1) for _ in range(4)),
        BackfillJob(0, 1, 0, 0, 181),
        BackfillJob(0, 1, 0, 0, 181, 1),
        BackfillJob(0, 8, 0, 0, 1, 1),
        BackfillJob(1, 1, 0, 60, 1),
    ),
)


@SMALL
@example(CANNOT_PREEMPT)
@given(WITH_PREEMPTION)
def test_no_planned_start_is_later_than_a_stop_allowance_where_owners_preempt(case: BackfillCase) -> None:
    """BF-L1 with BF7. Here preempted Workloads stop at once."""
    assert delayed(BackfillRun(case).run(), ALLOWANCE) == []


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_drain_ends_where_workloads_behind_planned_starts_preempt(first: int) -> None:
    """BF-L8. What a preemptor freed is not taken by its targets again and again."""
    for seed in range(first, first + 50):
        BackfillRun(crowded_case(random.Random(seed))).run()


@SMALL
@given(PLAIN)
def test_every_owner_fits_at_its_date_after_every_decision(case: BackfillCase) -> None:
    """BF-L7."""
    assert BackfillRun(case).run().broken == []


@SMALL
@given(PLAIN)
def test_every_workload_that_could_fit_an_idle_tree_starts(case: BackfillCase) -> None:
    """BF-L3 with finitely many arrivals: nothing is left waiting when all runs have ended."""
    run = BackfillRun(case).run()
    tree = run.tree()
    waiting = [
        number
        for number, job in enumerate(case.jobs)
        if number not in run.started and job.cpu * 1000 <= tree.queues[f"q{job.queue % len(case.queues)}"].potential[0]
    ]
    blocked = {
        number
        for number in waiting
        for other, job in enumerate(case.jobs)  # a StrictFIFO queue waits for a head that can never fit
        if other not in run.started
        and job.queue % len(case.queues) == case.jobs[number].queue % len(case.queues)
        and case.queues[job.queue % len(case.queues)].strict
        and job.cpu * 1000 > tree.queues[f"q{job.queue % len(case.queues)}"].potential[0]
    }
    assert set(waiting) - blocked == set()


@settings(max_examples=15)
@given(st.integers(2, 8), st.integers(1, 3), st.booleans())
def test_a_stream_of_small_workloads_does_not_starve_a_large_one(quota: int, runs: int, strict: bool) -> None:
    """BF-L3: 200 small Workloads arrive behind a large one, each of them before the last has ended."""
    stream = tuple(BackfillJob(0, 1, number * 20, 120, 40 * runs) for number in range(200))
    case = BackfillCase(
        (BackfillQueue(quota, None, None, strict, "EASY"),), (*stream, BackfillJob(0, quota, 10, 60, 60))
    )
    run = BackfillRun(case).run()
    assert run.started[200] <= 10 + 120 + ALLOWANCE + 20
    assert len(run.started) == 201


@SMALL
@given(PLAIN)
def test_nominal_quota_is_not_refused_for_a_planned_start_of_another_cluster_queue(case: BackfillCase) -> None:
    """BF-L4."""
    assert BackfillRun(case).run().refused_nominal == []


@SMALL
@given(WITH_PREEMPTION)
def test_without_the_annotation_decisions_equal_those_with_the_gate_off(case: BackfillCase) -> None:
    """BF-L5."""
    bare = replace(case, queues=tuple(replace(queue, mode="") for queue in case.queues))
    on, off = BackfillRun(bare).run(), BackfillRun(bare, SchedulingPolicy()).run()
    assert on.log == off.log


@SMALL
@given(PLAIN, st.integers(1, 2_000))
def test_no_date_is_later_after_a_restart(case: BackfillCase, at: int) -> None:
    """BF-L6: a new World with the reservations, the pending Workloads and the announced dates."""
    run = BackfillRun(case).run(until=at)
    before = {plan.key: plan.date for plan in run.plans() if plan.date is not None}
    world = run.new_world()
    for key, held in run.world.reservations.items():
        world._parts.reservations.put(held)
        assert key in world.reservations
    for key in sorted(run.world.pending_keys()):
        world.put(case.workload(number_of(key), before.get(key)), run.now)
    run.world = world
    while world.decide(run.now):
        pass
    after = {plan.key: plan.date for plan in run.plans()}
    later = {key: (date, after[key]) for key, date in before.items() if key in after and (after[key] or 2**63) > date}
    assert later == {}


@SMALL
@given(st.lists(jobs, min_size=2, max_size=10), st.integers(2, 10), st.booleans())
def test_at_rest_only_planned_starts_keep_a_workload_that_fits(
    found: list[BackfillJob], nominal: int, strict: bool
) -> None:
    """BF-L2 in one ClusterQueue: a Workload that fits and waits would push an owner out at its date, or shares its
    quota with an undated planned start."""
    case = BackfillCase((BackfillQueue(nominal, None, None, strict, "EASY"),), tuple(found))
    run = BackfillRun(case)
    for at in sorted({job.arrival for job in found}):
        run.run(until=at)
        free = nominal * 1000 - run.tree().queues["q0"].usage[0]
        plans = run.plans()
        for key in run.world.pending_keys():
            job = case.jobs[number_of(key)]
            if job.cpu * 1000 > free or not plans or any(plan.date is None for plan in plans):
                continue
            end = (run.seconds + job.limit + ALLOWANCE) * SECOND + START if job.limit else 2**63
            (plan,) = plans
            assert plan.date is not None
            node = run.projected(plan.date, plan.key).queues["q0"]
            owner = sum(amount for _, amount in plan.usage)
            assert key == plan.key or (end > plan.date and node.usage[0] + owner + job.cpu * 1000 > nominal * 1000), (
                f"{key} waits at {run.seconds} for nothing"
            )
