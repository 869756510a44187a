"""What Budgets cost: an answer, the end of a period, and counting a year of records.

    python -m bench budgets [--running=10000] [--groups=1000] [--waiting=5000] [--records=1000000] [--json=FILE]

An answer is given to a Workload with quota, with many running in many groups. The end of a period closes every account
and answers all waiting Workloads again; writing to them is not included. Times are processor times of one core. The
limits are 1 ms for an answer, 2 s for the end of a period, and 10 s for counting 1,000,000 records.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import uuid
from datetime import UTC
from pathlib import Path
from typing import Any

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue.api.budget import BudgetEvery, BudgetPer
from pykueue.history import budget_answers
from pykueue.history.budget_accounts import BudgetAccounts, ChargingRules, of_hours
from pykueue.history.budget_answers import BudgetLedger, BudgetLimits, BudgetRequest
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore

SMALLEST = ("--running=200", "--groups=20", "--waiting=100", "--records=2000")

GPU = "nvidia.com/gpu"
_START = meta.parse_time("2026-01-01T00:00:00Z") // SECOND
_YEAR_SECONDS = 365 * 86_400
_DAY_SECONDS = 86_400
_SCOPE: dict[str, frozenset[str] | None] = {"physics": None}
_RULES = ChargingRules(BudgetPer.LOCAL_QUEUE, {GPU: {"h100": 2_500}}, _SCOPE)
_LIMITS = BudgetLimits("gpu", {GPU: of_hours(GPU, 500_000)}, {})
_BATCH = 5_000


def record(number: int, groups: int, start: int, end: int | None) -> WorkloadRecord:
    """A Workload with four GPUs that was admitted at once."""
    amounts = (("a100", "cpu", 16_000), ("a100", "memory", 64 * 2**30), ("a100", GPU, 4))
    segment = UsageSegment(start, end, amounts)
    attempt = Attempt(start, "physics", start, start, end, "Finished" if end else "", segments=(segment,))
    return WorkloadRecord(
        uid=str(uuid.UUID(int=number + 1)),
        namespace=f"team-{number % 20}",
        name=f"job-{number}",
        queue=f"queue-{number % groups}",
        user=f"user-{number % 200}",
        submitted=start,
        ended=end,
        outcome=Outcome.SUCCEEDED if end else Outcome.OPEN,
        attempts=(attempt,),
    )


def running_ledger(running: int, groups: int) -> BudgetLedger:
    calendar = BudgetCalendar(BudgetEvery.DAY, UTC)
    accounts = BudgetAccounts(_RULES, calendar, _START, _START)
    for number in range(running):
        accounts.observe(record(number, groups, _START, None))
    return BudgetLedger(_LIMITS, accounts)


def answer_seconds(running: int, groups: int) -> float:
    """Processor seconds of one answer, with the time moved on before each."""
    ledger, count = running_ledger(running, groups), 2_000
    began = time.process_time()
    for number in range(count):
        ledger.accounts.advance(_START + number)
        group = f"team-{number % 20}/queue-{number % groups}"
        budget_answers.answer(BudgetRequest(group, {GPU: 4_000}, None), ledger, "")
    return (time.process_time() - began) / count


def edge_seconds(running: int, groups: int, waiting: int) -> float:
    """Processor seconds from the end of a period until every waiting Workload is answered."""
    ledger = running_ledger(running, groups)
    ledger.accounts.advance(_START + _DAY_SECONDS - 1)
    began = time.process_time()
    ledger.accounts.advance(_START + _DAY_SECONDS)
    for number in range(waiting):
        group = f"team-{number % 20}/queue-{number % groups}"
        budget_answers.answer(BudgetRequest(group, {GPU: 4_000}, None), ledger, "")
    return time.process_time() - began


def count_seconds(records: int, groups: int) -> float:
    """Processor seconds to count the records of a year, of which each ran for up to some hours."""
    rng = random.Random(5)
    calendar = BudgetCalendar(BudgetEvery.WEEK, UTC)
    with tempfile.TemporaryDirectory() as folder:
        store = HistoryStore(Path(folder) / "history.db")
        for first in range(0, records, _BATCH):
            some = []
            for number in range(first, min(records, first + _BATCH)):
                start = _START + number * _YEAR_SECONDS // records
                some.append(record(number, groups, start, start + rng.randrange(60, 20_000)))
            store.save(some)
        began = time.process_time()
        sums = store.charges(_RULES, calendar, _START, store.last_row(), frozenset())
        seconds = time.process_time() - began
        assert sums, "the records are charged"
        store.close()
    return seconds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench budgets", description=__doc__.splitlines()[0])
    parser.add_argument("--running", type=int, default=10_000, help="running Workloads")
    parser.add_argument("--groups", type=int, default=1_000, help="groups that they are in")
    parser.add_argument("--waiting", type=int, default=5_000, help="Workloads that wait for the next period")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a year")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    given = parser.parse_args(arguments)
    figures: dict[str, Any] = {
        "answer_us": answer_seconds(given.running, given.groups) * 1e6,
        "edge_seconds": edge_seconds(given.running, given.groups, given.waiting),
        "records": given.records,
        "count_seconds": count_seconds(given.records, given.groups),
    }
    print(f"answer, {given.running} running in {given.groups} groups   {figures['answer_us']:.1f} us (limit 1000)")
    print(f"end of a period, {given.waiting} waiting                 {figures['edge_seconds']:.3f} s (limit 2)")
    print(f"count {given.records} records                     {figures['count_seconds']:.2f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(figures))
    return 0
