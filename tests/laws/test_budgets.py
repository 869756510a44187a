"""Laws of Budgets: accounts against sums from scratch, rollover, levels, answers."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pykueue.api.budget import BudgetAdmit, BudgetEvery, BudgetPer
from pykueue.api.kueue import CheckState
from pykueue.history import budget_answers
from pykueue.history.budget_accounts import BudgetAccounts, ChargingRules, Commitment, of_hours
from pykueue.history.budget_answers import BudgetLedger, BudgetLimits, BudgetRequest
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Attempt, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore

GPU = "nvidia.com/gpu"
BERLIN = ZoneInfo("Europe/Berlin")
# Two days before clocks were set back in Berlin.
START = 1_792_800_000
SPAN = 9 * 86_400
RULES = ChargingRules(BudgetPer.LOCAL_QUEUE, {GPU: {"h100": 2_500}, "cpu": {}}, {"a": None, "b": frozenset({"h100"})})
seeds = st.integers(0, 2**32)


def life(rng: random.Random, number: int) -> WorkloadRecord:
    """The whole life of a Workload: some attempts, not all of them admitted, with amounts that change."""
    at, attempts = START + rng.randrange(SPAN), []
    for _ in range(rng.choice((1, 1, 2, 3))):
        reserved = at
        admitted = at + rng.choice((0, 0, 5, 600)) if rng.random() < 0.8 else None
        segments, begun = [], reserved if admitted is None else admitted
        if admitted is not None and admitted > reserved:
            segments.append(UsageSegment(reserved, admitted, ((rng.choice(("a100", "h100")), GPU, 1),)))
        at = begun
        for _ in range(rng.choice((1, 1, 2))):
            end = at + rng.choice((0, 1, 60, 7_200, 100_000))
            flavor = rng.choice(("a100", "h100"))
            segments.append(UsageSegment(at, end, ((flavor, GPU, rng.randrange(5)), ("big", "cpu", 500))))
            at = end
        queue = rng.choice("abc")
        attempts.append(Attempt(reserved, queue, reserved, admitted, at, "Preempted", segments=tuple(segments)))
        at += rng.choice((0, 30, 5_000))
    return WorkloadRecord(
        uid=f"{number:08x}-0000-0000-0000-000000000000",
        namespace=rng.choice(("x", "y")),
        name=f"w{number}",
        queue=rng.choice(("q", "r")),
        submitted=attempts[0].reserved,
        ended=at,
        attempts=tuple(attempts),
    )


def as_of(whole: WorkloadRecord, now: int) -> WorkloadRecord:
    """The record as it was at a time: what happens later is not known yet."""
    attempts = []
    for attempt in whole.attempts:
        if attempt.reserved > now:
            break
        admitted = attempt.admitted if attempt.admitted is not None and attempt.admitted <= now else None
        released = attempt.released if attempt.released is not None and attempt.released <= now else None
        segments = tuple(
            replace(each, end=each.end if each.end is not None and each.end <= now else None)
            for each in attempt.segments
            if each.start <= now
        )
        attempts.append(replace(attempt, admitted=admitted, released=released, segments=segments))
    ended = whole.ended if whole.ended is not None and whole.ended <= now else None
    return replace(whole, attempts=tuple(attempts), ended=ended)


def expected(
    lives: list[WorkloadRecord], calendar: BudgetCalendar, first: int, now: int
) -> dict[tuple[str, str, int], int]:
    """The charges from scratch: every admitted segment cut at every edge of a period."""
    total: dict[tuple[str, str, int], int] = {}
    for each in lives:
        for attempt in each.attempts:
            flavors = {
                flavor for segment in attempt.segments for flavor, _, _ in segment.amounts if segment.start <= now
            }
            is_in = attempt.cluster_queue == "a" or (attempt.cluster_queue == "b" and "h100" in flavors)
            if attempt.admitted is None or not is_in:
                continue
            for segment in attempt.segments:
                if segment.start < attempt.admitted:
                    continue
                start, end = max(segment.start, first), min(now, now if segment.end is None else segment.end)
                while start < end:
                    period = calendar.at(start)
                    edge = min(end, period.end)
                    for flavor, resource, amount in segment.amounts:
                        weight = 2_500 if (flavor, resource) == ("h100", GPU) else 1_000
                        key = (f"{each.namespace}/{each.queue}", resource, period.start)
                        total[key] = total.get(key, 0) + amount * weight * (edge - start)
                    start = edge
    return {key: charge for key, charge in total.items() if charge}


@dataclass
class Case:
    lives: list[WorkloadRecord]
    calendar: BudgetCalendar
    first: int
    rng: random.Random


def case(seed: int) -> Case:
    rng = random.Random(seed)
    calendar = BudgetCalendar(rng.choice((BudgetEvery.DAY, BudgetEvery.WEEK)), BERLIN)
    lives = [life(rng, number) for number in range(rng.randrange(1, 8))]
    return Case(lives, calendar, calendar.at(START + rng.choice((0, 200_000))).start, rng)


@given(seeds)
def test_accounts_equal_the_sum_of_all_segments_at_any_time(seed: int) -> None:
    """[BU-L1] Records are seen in any order and number of versions; some edges pass unseen."""
    made = case(seed)
    accounts = BudgetAccounts(RULES, made.calendar, made.first, made.first)
    for now in sorted(made.first + made.rng.randrange(SPAN + 86_400) for _ in range(12)):
        accounts.advance(now)
        for each in made.lives:
            if each.submitted <= now:
                accounts.observe(as_of(each, now))
        known = [as_of(each, now) for each in made.lives]
        assert accounts.sums() == expected(known, made.calendar, made.first, now)


@given(seeds)
def test_a_recount_after_a_restart_equals_the_accounts_that_were_kept(seed: int) -> None:
    """[BU-L4] Ended records come from the store, the others are observed again."""
    made = case(seed)
    now = made.first + made.rng.randrange(SPAN + 86_400)
    kept = BudgetAccounts(RULES, made.calendar, made.first, made.first)
    with contextlib.closing(HistoryStore(None)) as store:
        versions = [as_of(each, now) for each in made.lives if each.submitted <= now]
        for version in versions:
            if made.rng.random() < 0.5:
                kept.observe(as_of(version, now - made.rng.randrange(100_000)))
        kept.advance(now)
        for version in versions:
            kept.observe(version)
        store.save(versions)
        live = {each.uid for each in versions if each.is_open or made.rng.random() < 0.3}
        again = BudgetAccounts(RULES, made.calendar, made.first, now)
        again.load(store.charges(RULES, made.calendar, made.first, store.last_row(), frozenset(live)))
        for version in versions:
            if version.uid in live:
                again.observe(version)
        assert again.sums() == kept.sums()


@given(seeds)
def test_what_is_spent_never_falls_within_a_period(seed: int) -> None:
    """[BU-L7] Also while a clock is set back."""
    made = case(seed)
    accounts = BudgetAccounts(RULES, made.calendar, made.first, made.first)
    now, before = made.first, (accounts.period, dict[tuple[str, str], int]())
    for _ in range(20):
        now += made.rng.choice((0, 1, 3_000, 50_000))
        accounts.advance(now - made.rng.choice((0, 0, 10_000)))
        for each in made.lives:
            if each.submitted <= now:
                accounts.observe(as_of(each, accounts.now))
        spent = {key: accounts.spent(key) for key in accounts.known()}
        if before[0] == accounts.period:
            assert all(spent[key] >= charge for key, charge in before[1].items())
        before = accounts.period, spent


limits = st.builds(
    lambda percent, carries: BudgetLimits("b", {}, {}, unspent_percent=percent, carries_overdraft=carries),
    st.integers(0, 100),
    st.booleans(),
)
charges = st.integers(0, 10**15)


@given(limits, charges, st.integers(-(10**15), 10**15), charges)
def test_what_a_period_had_is_carried_spent_or_lapsed(
    made: BudgetLimits, limit: int, carried_in: int, spent: int
) -> None:
    """[BU-L5] carried + spent + lapsed = limit + carried in."""
    found = budget_answers.balance(made, limit, carried_in, spent)
    assert found.carried + spent + found.lapsed == limit + carried_in
    assert found.carried <= limit * made.unspent_percent // 100
    assert made.carries_overdraft or found.carried >= 0


@given(seeds)
def test_the_next_level_is_reached_in_its_second_and_not_before(seed: int) -> None:
    """[BU6] The announced second is the first one at which the level has changed."""
    made = case(seed)
    now = made.first + made.rng.randrange(SPAN)
    accounts = BudgetAccounts(RULES, made.calendar, made.first, now)
    for each in made.lives:
        accounts.observe(as_of(each, now))
    wanted = BudgetLimits("b", {GPU: of_hours(GPU, made.rng.randrange(100_000)), "cpu": 10**9}, {}, warn_at=(7, 80))
    ledger = BudgetLedger(wanted, accounts)
    due = {key: ledger.next_level_at(key) for key in accounts.known()}
    for key, at in sorted(due.items(), key=lambda item: item[1] or 0):
        if at is None or at <= accounts.now:
            continue
        level = ledger.level(key)
        accounts.advance(at - 1)
        assert ledger.level(key) == level
        accounts.advance(at)
        assert ledger.level(key) > level


@given(seeds)
def test_only_if_it_fits_never_exceeds_the_limit_with_honest_time_limits(seed: int) -> None:
    """[BU-L3] Workloads that end within their limits, admitted only on Ready, never pass the limit of a period."""
    rng = random.Random(seed)
    calendar = BudgetCalendar(BudgetEvery.DAY, BERLIN)
    rules = ChargingRules(BudgetPer.TOTAL, {GPU: {}}, {"a": None})
    allowed = of_hours(GPU, rng.randrange(1, 40) * 1000)
    wanted = BudgetLimits("b", {GPU: allowed}, {}, admit=BudgetAdmit.ONLY_IF_IT_FITS)
    now = calendar.at(START).start
    accounts = BudgetAccounts(rules, calendar, now, now)
    ledger = BudgetLedger(wanted, accounts)
    running: dict[str, tuple[int, int, int]] = {}
    for number in range(60):
        now += rng.choice((0, 60, 1_000, 6_000))
        for uid, (start, gpus, end) in list(running.items()):
            is_over = end <= now
            segment = UsageSegment(start, end if is_over else None, (("a100", GPU, gpus),))
            attempt = Attempt(start, "a", start, start, end if is_over else None, segments=(segment,))
            accounts.advance(max(accounts.now, min(now, end)))
            accounts.observe(WorkloadRecord(uid=uid, namespace="x", name=uid, attempts=(attempt,)))
            if is_over:
                accounts.withdraw(uid)
                del running[uid]
        accounts.advance(now)
        assert accounts.spent(("total", GPU)) <= allowed
        seconds, gpus, uid = rng.randrange(1, 20_000), rng.randrange(1, 9), f"w{number}"
        request = BudgetRequest("total", {GPU: gpus * 1000}, seconds)
        if budget_answers.answer(request, ledger, "").state is CheckState.READY:
            accounts.commit(uid, Commitment("total", request.rates, seconds, now + seconds))
            running[uid] = now, gpus, now + rng.randrange(1, seconds + 1)
            segment = UsageSegment(now, None, (("a100", GPU, gpus),))
            opened = Attempt(now, "a", now, now, segments=(segment,))
            accounts.observe(WorkloadRecord(uid=uid, namespace="x", name=uid, attempts=(opened,)))
