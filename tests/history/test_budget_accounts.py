"""Accounts of Budgets: charges from records, periods, commitments."""

from __future__ import annotations

import pytest

from history.charges import DAILY, DAY, GPU, HOUR, START, accounts, gpu_hours, record, rules, run
from pykueue.api.budget import BudgetPer
from pykueue.history.budget_accounts import ChargingRules, Commitment, first_period, of_hours, spans
from pykueue.history.records import Attempt, UsageSegment


def test_a_workload_is_charged_from_its_admission_and_not_from_its_reservation() -> None:
    made = accounts(2 * HOUR)
    made.observe(record(run(HOUR, None, gpus=4, reserved=0)))
    assert gpu_hours(made) == 4


def test_a_workload_that_only_reserves_quota_is_charged_nothing() -> None:
    amounts = (("a100", GPU, 4),)
    waits = Attempt(START, "physics", START, segments=(UsageSegment(START, None, amounts),))
    assert spans(record(waits), rules()) == ()


def test_a_preempted_workload_is_charged_for_each_of_its_runs() -> None:
    made = accounts(10 * HOUR)
    made.observe(record(run(0, HOUR), run(5 * HOUR, None)))
    assert gpu_hours(made) == 1 + 5


def test_reclaimable_pods_are_charged_until_their_second() -> None:
    segments = (
        UsageSegment(START, START + HOUR, (("a100", GPU, 4),)),
        UsageSegment(START + HOUR, None, (("a100", GPU, 2),)),
    )
    made = accounts(2 * HOUR)
    made.observe(record(Attempt(START, "physics", START, START, segments=segments)))
    assert gpu_hours(made) == 4 + 2
    assert made.rate(("total", GPU)) == 2 * 1000


def test_weights_count_to_three_decimals_without_rounding() -> None:
    made = accounts(1, rules(h100=2_501))
    made.observe(record(run(0, None, flavor="h100")))
    made.observe(record(run(0, None, flavor="a100"), uid="b"))
    assert made.spent(("total", GPU)) == 2_501 + 1_000


def test_cpu_is_charged_in_thousandths_of_a_core() -> None:
    charging = ChargingRules(BudgetPer.TOTAL, {"cpu": {}}, {"physics": None})
    made = accounts(HOUR, charging)
    made.observe(record(run(0, None)))
    assert made.spent(("total", "cpu")) == of_hours("cpu", 8 * 1000)


@pytest.mark.parametrize(
    ("per", "group"),
    [
        (BudgetPer.TOTAL, "total"),
        (BudgetPer.CLUSTER_QUEUE, "physics"),
        (BudgetPer.LOCAL_QUEUE, "lab/main"),
        (BudgetPer.NAMESPACE, "lab"),
        (BudgetPer.USER, "ana"),
    ],
)
def test_a_record_is_charged_to_its_group(per: BudgetPer, group: str) -> None:
    made = accounts(HOUR, rules(per))
    made.observe(record(run(0, None)))
    assert gpu_hours(made, group) == 1


def test_workloads_without_a_user_are_a_group_of_their_own() -> None:
    made = accounts(HOUR, rules(BudgetPer.USER))
    made.observe(record(run(0, None), user=""))
    assert gpu_hours(made, "(unknown)") == 1


@pytest.mark.parametrize(
    ("scope", "is_charged"),
    [
        ({}, False),
        ({"chemistry": None}, False),
        ({"physics": None}, True),
        ({"physics": frozenset({"a100"})}, True),
        ({"physics": frozenset({"h100"})}, False),
    ],
)
def test_only_workloads_whose_flavors_require_the_check_are_charged(
    scope: dict[str, frozenset[str] | None], is_charged: bool
) -> None:
    assert bool(spans(record(run(0, None)), rules(scope=scope))) is is_charged


def test_a_run_over_an_edge_is_charged_to_both_periods() -> None:
    made = accounts(DAY - HOUR)
    made.observe(record(run(DAY - HOUR, None)))
    assert made.advance(START + DAY + 2 * HOUR)
    assert gpu_hours(made) == 2
    assert made.past(("total", GPU))[1] == [of_hours(GPU, 1000)]


def test_an_end_before_the_edge_that_is_seen_after_it_changes_the_period_before() -> None:
    made = accounts(0)
    made.observe(record(run(0, None)))
    made.advance(START + DAY + 10)
    made.observe(record(run(0, DAY - HOUR)))
    assert gpu_hours(made) == 0
    assert made.past(("total", GPU))[1] == [of_hours(GPU, 23_000)]


def test_a_clock_that_is_set_back_takes_no_charge_away() -> None:
    made = accounts(0)
    made.observe(record(run(0, None)))
    made.advance(START + 2 * HOUR)
    assert not made.advance(START + HOUR)
    assert gpu_hours(made) == 2


def test_a_start_in_the_future_is_charged_from_then_on() -> None:
    made = accounts(0)
    made.observe(record(run(HOUR, None)))
    assert gpu_hours(made) == 0
    made.advance(START + 3 * HOUR)
    assert gpu_hours(made) == 2
    made.observe(record(run(HOUR, 2 * HOUR)))
    assert gpu_hours(made) == 1


def test_a_start_in_the_future_that_is_withdrawn_leaves_nothing() -> None:
    made = accounts(0)
    made.observe(record(run(HOUR, None)))
    made.observe(record())
    made.advance(START + 3 * HOUR)
    assert made.sums() == {}


def test_the_charge_is_reached_in_the_first_second_that_has_it() -> None:
    made = accounts(0)
    made.observe(record(run(0, None, gpus=3)))
    limit = of_hours(GPU, 1000)
    at = made.reached_at(("total", GPU), limit)
    assert at == START + 1200
    made.advance(at - 1)
    assert made.spent(("total", GPU)) < limit
    made.advance(at)
    assert made.spent(("total", GPU)) >= limit


def test_a_charge_that_needs_longer_than_the_period_is_not_reached() -> None:
    made = accounts(0)
    made.observe(record(run(0, None)))
    assert made.reached_at(("total", GPU), of_hours(GPU, 24_000)) is None
    assert made.reached_at(("total", GPU), of_hours(GPU, 23_999)) is not None


def test_time_before_the_first_period_is_not_counted() -> None:
    made = accounts(2 * DAY + HOUR, first=DAY)
    made.observe(record(run(0, None)))
    assert made.past(("total", GPU))[1] == [of_hours(GPU, 24_000)]
    assert gpu_hours(made) == 1


@pytest.mark.parametrize(
    ("created", "retention", "now", "expected"),
    [
        (0, None, 10, 0),
        (5 * DAY + 7, None, 9 * DAY, 5 * DAY),
        (0, 3 * DAY, 9 * DAY, 6 * DAY),
        (0, 3 * DAY, 9 * DAY + 1, 7 * DAY),
        (8 * DAY, 3 * DAY, 9 * DAY, 8 * DAY),
        # A Budget that was created with a fast clock, or after the clock was set back.
        (20 * DAY, None, 9 * DAY, 9 * DAY),
    ],
)
def test_the_first_period_is_that_of_the_creation_or_the_first_whole_one_of_the_history(
    created: int, retention: int | None, now: int, expected: int
) -> None:
    assert first_period(DAILY, START + created, retention, START + now).start == START + expected


# --- Commitments ------------------------------------------------------------------------------------------------------


def test_a_commitment_shrinks_while_the_workload_runs_and_ends_with_its_limit() -> None:
    made, key = accounts(0), ("total", GPU)
    made.commit("a", Commitment("total", {GPU: 2}, 100, None))
    assert made.committed(key) == 200
    made.commit("a", Commitment("total", {GPU: 2}, 100, START + 100))
    made.advance(START + 40)
    assert made.committed(key) == 120
    made.commit("b", Commitment("total", {GPU: 1}, 10, None))
    made.advance(START + 150)
    assert made.committed(key) == 10
    made.withdraw("b")
    assert made.committed(key) == 0


# --- Accounts for a run ahead -----------------------------------------------------------------------------------------


def test_a_copy_changes_on_its_own() -> None:
    made = accounts(2 * HOUR)
    made.observe(record(run(0, HOUR), run(HOUR, None, gpus=2)))
    made.observe(record(run(0, None), uid="other"))
    copied = made.copy(["a"])
    assert gpu_hours(copied) == gpu_hours(made) == 1 + 2 + 2
    copied.advance(START + 3 * HOUR)
    copied.close("a", START + 3 * HOUR)
    copied.forget("a")
    copied.advance(START + 5 * HOUR)
    # The first record does not grow any more; the one that the run does not have does.
    assert gpu_hours(copied) == 1 + 4 + 5
    assert gpu_hours(made) == 5
    made.advance(START + 3 * HOUR)
    assert gpu_hours(made) == 1 + 4 + 3


def test_a_record_is_charged_until_it_is_closed() -> None:
    made = accounts(2 * HOUR)
    assert not made.is_charged("a")
    made.observe(record(run(0, HOUR), run(HOUR, None)))
    assert made.is_charged("a")
    made.close("a", START + 2 * HOUR)
    assert not made.is_charged("a")
    assert gpu_hours(made) == 2
    made.close("unknown", START)
