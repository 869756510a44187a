"""What a Budget answers: the table of BU3, rollover, levels."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from history.charges import DAY, GPU, HOUR, START, accounts, record, run
from pykueue.api.budget import BudgetAdmit, BudgetWhenSpent
from pykueue.api.kueue import CheckState
from pykueue.history import budget_answers
from pykueue.history.budget_accounts import Commitment, of_hours
from pykueue.history.budget_answers import BudgetLedger, BudgetLimits, BudgetRequest

ONE = 1000  # the rate of one GPU
KEY = ("total", GPU)
LIMITS = BudgetLimits("gpu", {GPU: of_hours(GPU, 10_000)}, {}, warn_at=(80, 95))


def ledger(limits: BudgetLimits = LIMITS, spent_hours: int = 0, now: int = 20 * HOUR) -> BudgetLedger:
    made = accounts(now)
    if spent_hours:
        made.observe(record(run(0, spent_hours * HOUR)))
    return BudgetLedger(limits, made)


def answered(book: BudgetLedger, gpus: int = 1, seconds: int | None = None, group: str = "total") -> tuple[str, str]:
    found = budget_answers.answer(BudgetRequest(group, {GPU: gpus * ONE} if gpus else {}, seconds), book, "until dawn")
    return found.state.value, found.message


FITTING = replace(LIMITS, admit=BudgetAdmit.ONLY_IF_IT_FITS)


@pytest.mark.parametrize(
    ("limits", "spent", "gpus", "seconds", "state", "message"),
    [
        (LIMITS, 0, 1, None, "Ready", "Budget gpu of total: 0 of 10 nvidia.com/gpu hours are spent"),
        (LIMITS, 9, 8, None, "Ready", "Budget gpu of total: 9 of 10 nvidia.com/gpu hours are spent"),
        (LIMITS, 10, 1, None, "Retry", "Budget gpu of total is spent (10 of 10 nvidia.com/gpu hours); until dawn"),
        (LIMITS, 12, 1, None, "Retry", "Budget gpu of total is spent (12 of 10 nvidia.com/gpu hours); until dawn"),
        (LIMITS, 12, 0, None, "Ready", "The Workload uses no resource of Budget gpu"),
        (LIMITS, 0, 10, HOUR, "Ready", "Budget gpu of total: 0 of 10 nvidia.com/gpu hours are spent"),
        (
            LIMITS,
            0,
            11,
            HOUR,
            "Rejected",
            (
                "Budget gpu of total has 10 nvidia.com/gpu hours in a period and the Workload may use 11:"
                " lower its time limit or its requests"
            ),
        ),
        (FITTING, 8, 2, HOUR, "Ready", "Budget gpu of total: 8 of 10 nvidia.com/gpu hours are spent"),
        (
            FITTING,
            8,
            3,
            HOUR,
            "Retry",
            (
                "Budget gpu of total has not enough left for the Workload: 8 of 10 nvidia.com/gpu hours are spent,"
                " 0 are committed, 3 are requested and 1 are missing; until dawn"
            ),
        ),
        (
            FITTING,
            0,
            1,
            None,
            "Rejected",
            "Budget gpu admits only Workloads with a time limit: set maximumExecutionTimeSeconds",
        ),
        (
            FITTING,
            10,
            11,
            HOUR,
            "Rejected",
            (
                "Budget gpu of total has 10 nvidia.com/gpu hours in a period and the Workload may use 11:"
                " lower its time limit or its requests"
            ),
        ),
    ],
)
def test_an_answer_follows_from_the_limit_and_what_is_spent(
    limits: BudgetLimits, spent: int, gpus: int, seconds: int | None, state: str, message: str
) -> None:
    assert answered(ledger(limits, spent), gpus, seconds) == (state, message)


def test_a_long_job_of_few_gpus_is_not_rejected_under_while_left() -> None:
    # One GPU for a month is 24 GPU hours in each day.
    limits = replace(LIMITS, limits={GPU: of_hours(GPU, 24_000)})
    assert answered(ledger(limits), 1, 30 * DAY)[0] == "Ready"
    assert answered(ledger(replace(limits, admit=BudgetAdmit.ONLY_IF_IT_FITS)), 1, 30 * DAY)[0] == "Rejected"


def test_commitments_of_others_count_under_only_if_it_fits() -> None:
    book = ledger(FITTING, 5)
    book.accounts.commit("other", Commitment("total", {GPU: 2 * ONE}, HOUR, None))
    assert answered(book, 3, HOUR)[0] == "Ready"
    assert answered(book, 4, HOUR)[0] == "Retry"
    assert answered(BudgetLedger(LIMITS, book.accounts), 4, HOUR)[0] == "Ready"


def test_an_override_replaces_the_limit_of_its_group_and_resource() -> None:
    limits = replace(LIMITS, overrides={"total": {GPU: of_hours(GPU, 20_000)}})
    assert answered(ledger(limits, 12))[0] == "Ready"
    assert answered(ledger(replace(LIMITS, overrides={"other": {GPU: 0}}), 12))[0] == "Retry"


def test_a_limit_of_zero_admits_nothing() -> None:
    assert answered(ledger(replace(LIMITS, limits={GPU: 0})))[0] == "Retry"


# --- Decisions about one check ----------------------------------------------------------------------------------------


def decided(book: BudgetLedger, uid: str, state: CheckState, seconds: int | None = HOUR) -> CheckState | None:
    found = budget_answers.decide(uid, BudgetRequest("total", {GPU: 5 * ONE}, seconds), state, book, "until dawn")
    return found.state if found is not None else None


def test_a_ready_answer_commits_what_the_workload_may_use() -> None:
    book = ledger(FITTING)
    assert decided(book, "first", CheckState.PENDING) is CheckState.READY
    assert decided(book, "second", CheckState.PENDING) is CheckState.READY
    # Asked again, the commitment of the Workload itself does not count against it.
    assert decided(book, "first", CheckState.PENDING) is CheckState.READY
    assert decided(book, "third", CheckState.PENDING) is CheckState.RETRY
    assert book.accounts.committed(KEY) == of_hours(GPU, 10_000)


def test_nothing_is_committed_while_left() -> None:
    book = ledger()
    assert decided(book, "first", CheckState.PENDING, None) is CheckState.READY
    assert book.accounts.committed(KEY) == 0


@pytest.mark.parametrize(
    ("when_spent", "spent", "state", "expected"),
    [
        (BudgetWhenSpent.EVICT, 10, CheckState.READY, CheckState.RETRY),
        (BudgetWhenSpent.EVICT, 9, CheckState.READY, None),
        (BudgetWhenSpent.LET_RUN, 10, CheckState.READY, None),
        (BudgetWhenSpent.EVICT, 10, CheckState.RETRY, None),
        (BudgetWhenSpent.EVICT, 10, CheckState.REJECTED, None),
    ],
)
def test_a_ready_check_is_taken_back_only_where_a_spent_budget_evicts(
    when_spent: BudgetWhenSpent, spent: int, state: CheckState, expected: CheckState | None
) -> None:
    assert decided(ledger(replace(LIMITS, when_spent=when_spent), spent), "running", state) is expected


def test_a_retry_holds_until_the_period_ends_and_is_spread_over_a_minute() -> None:
    period = ledger().accounts.period
    waits = [budget_answers.retry_seconds(f"uid-{number}", period, period.end - 100) for number in range(50)]
    assert min(waits) >= 100
    assert max(waits) <= 160
    assert len(set(waits)) > 20
    assert budget_answers.retry_seconds("uid-0", period, period.end + 100) >= 1


# --- Rollover ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "carries", "past_hours", "carried"),
    [
        (0, True, [], 0),
        (0, True, [4], 0),
        (0, True, [12], -2),
        (0, False, [12], 0),
        (25, True, [4], 2.5),
        (25, True, [9], 1),
        (25, True, [4, 12], 0.5),
        (25, True, [4, 13], -0.5),
        # A debt of three limits takes three periods in which nothing runs.
        (0, True, [40, 0], -20),
        (0, True, [40, 0, 0, 0], 0),
        (100, True, [0, 0, 0], 10),
    ],
)
def test_a_period_leaves_a_part_of_the_rest_or_a_debt(
    percent: int, carries: bool, past_hours: list[int], carried: float
) -> None:
    limits = replace(LIMITS, unspent_percent=percent, carries_overdraft=carries)
    past = [of_hours(GPU, each * 1000) for each in past_hours]
    assert budget_answers.carried_into(limits, of_hours(GPU, 10_000), past) == of_hours(GPU, int(carried * 1000))


def test_the_debt_of_a_period_is_taken_from_the_next_one() -> None:
    made = accounts(0)
    made.observe(record(run(0, 12 * HOUR)))
    book = BudgetLedger(LIMITS, made)
    made.advance(START + DAY)
    assert book.allowance(KEY) == of_hours(GPU, 8_000)
    assert made.spent(KEY) == 0


# --- Levels -----------------------------------------------------------------------------------------------------------


def test_levels_are_reached_at_their_exact_second() -> None:
    made = accounts(0)
    made.observe(record(run(0, None)))
    book = BudgetLedger(LIMITS, made)
    assert (book.level(KEY), book.next_level_at(KEY)) == (0, START + 8 * HOUR)
    made.advance(START + 8 * HOUR - 1)
    assert book.level(KEY) == 0
    made.advance(START + 8 * HOUR)
    assert (book.level(KEY), book.next_level_at(KEY)) == (80, START + 9 * HOUR + 1800)
    made.advance(START + 10 * HOUR - 1)
    assert book.level(KEY) == 95
    made.advance(START + 10 * HOUR)
    assert (book.level(KEY), book.next_level_at(KEY)) == (100, None)


def test_a_level_that_is_not_reached_in_the_period_is_not_awaited() -> None:
    made = accounts(23 * HOUR)
    made.observe(record(run(23 * HOUR, None)))
    assert BudgetLedger(LIMITS, made).next_level_at(KEY) is None


def test_a_period_that_begins_in_debt_is_spent() -> None:
    made = accounts(0)
    made.observe(record(run(0, 22 * HOUR)))
    made.advance(START + DAY)
    book = BudgetLedger(LIMITS, made)
    assert book.level(KEY) == 100
    assert answered(book)[1] == "Budget gpu of total is spent (0 of -2 nvidia.com/gpu hours); until dawn"


@pytest.mark.parametrize(
    ("resource", "charge", "text"),
    [
        (GPU, of_hours(GPU, 1_500), "1.5"),
        (GPU, of_hours(GPU, 1_000) - 1, "0.999"),
        (GPU, 0, "0"),
        (GPU, -of_hours(GPU, 10_250), "-10.25"),
        (GPU, of_hours(GPU, 2_000_000), "2000"),
        ("cpu", of_hours("cpu", 2_000), "2"),
        ("memory", of_hours("memory", 2**30 * 1000), "1Gi"),
    ],
)
def test_hours_are_shown_to_thousandths_and_rounded_down(resource: str, charge: int, text: str) -> None:
    assert budget_answers.hours(resource, charge) == text
