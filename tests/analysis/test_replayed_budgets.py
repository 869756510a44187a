"""Budgets in replays [PC12]: charged by the clock of the replay, decided as the manager decides. The trace begins at 8:00
of a day in UTC, so that the period of a day ends after sixteen hours."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.comparison_cases import START, case, job, queue, starts, trace
from kubemachinery.errors import UsageError
from pykueue.analysis import comparison_report
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import CHANGED, REPLAYED, PolicyComparison, compare
from pykueue.analysis.traces import TraceJob

HOUR = 3600
DAY = 24 * HOUR
MIDNIGHT = 16 * HOUR
CHECKED: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "hours"}]}}


def budget(hours: int = 1, **spec: Any) -> list[dict[str, Any]]:
    """A Budget of core hours a day, and its check."""
    amounts = [{"resource": "cpu", "hours": hours}]
    parameters = {"apiGroup": "pykueue.io", "kind": "Budget", "name": "daily"}
    return [
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "Budget",
            "metadata": {"name": "daily"},
            "spec": {"every": "Day", "timeZone": "UTC", "per": "Total", "amounts": amounts, **spec},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": "hours"},
            "spec": {"controllerName": "pykueue.io/budget", "parameters": parameters},
        },
    ]


GATE = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "featureGates": {"Budgets": True}}


def limited(hours: int = 1, **spec: Any) -> Case:
    return case(GATE, *budget(hours, **spec), *queue(cpu=4, **CHECKED))


def compared(jobs: list[TraceJob], limits: Case) -> PolicyComparison:
    return compare(trace(jobs), case(*queue(cpu=4)), limits, warm_up=0.0)


def attempts(found: PolicyComparison, number: int) -> list[tuple[int, int | None]]:
    """The times of the admission and of the release of a job's attempts, from the begin of the trace on."""
    shown = found.column(CHANGED)
    assert shown is not None
    return [
        (each.admitted - START, None if each.released is None else each.released - START)
        for each in shown.replay.outcomes[number].attempts
        if each.admitted is not None
    ]


def test_a_job_waits_for_the_next_period_once_the_budget_is_spent() -> None:
    jobs = [job(0, 0, run=1800), job(1, 2000, run=1800), job(2, 4000, run=1800)]
    found = compared(jobs, limited())
    assert starts(found, REPLAYED) == {"job-0": 0, "job-1": 2000, "job-2": 4000}
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": 2000, "job-2": MIDNIGHT}
    assert found.notices == ()


def test_what_runs_over_the_limit_is_a_debt_of_the_next_period() -> None:
    """Two hours of an hour are used: the next day has none left, and the day after it has its hour."""
    found = compared([job(0, 0, run=2 * HOUR), job(1, 3 * HOUR, run=60)], limited())
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": MIDNIGHT + DAY}


def test_a_debt_that_is_forgiven_does_not_count() -> None:
    found = compared([job(0, 0, run=2 * HOUR), job(1, 3 * HOUR, run=60)], limited(rollover={"overdraft": "Forgive"}))
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": MIDNIGHT}


def test_a_budget_that_evicts_does_so_at_the_second_it_is_spent() -> None:
    """Pods take a second to stop, which is charged: the second day has a second less."""
    found = compared([job(0, 0, run=2 * HOUR), job(1, 9 * HOUR, run=60)], limited(2, whenSpent="Evict"))
    assert attempts(found, 0) == [(0, 2 * HOUR)]
    found = compared([job(0, 0, run=HOUR + 1), job(1, 100, run=60, cpus=2)], limited(whenSpent="Evict"))
    assert attempts(found, 1) == [(100, 160)]
    # 60 seconds of two cores are used by the other job.
    assert attempts(found, 0)[0] == (0, HOUR - 120 + 1)
    second = MIDNIGHT + HOUR - 1
    assert attempts(found, 0)[1] == (MIDNIGHT, second + 1)


def test_a_job_that_is_evicted_in_every_period_ends_the_replay_after_many() -> None:
    found = compared([job(0, 0, run=2 * HOUR)], limited(whenSpent="Evict"))
    assert found.is_complete
    assert 300 < len(attempts(found, 0)) < 500


def test_a_job_that_was_given_up_does_not_prolong_the_replay() -> None:
    """A run of a hundred days overdraws an hour a day by six years; the other job is given up after 400 periods."""
    found = compared([job(0, 0, run=100 * DAY), job(1, 4 * HOUR, run=60)], limited())
    shown = found.column(CHANGED)
    assert shown is not None
    assert starts(found, CHANGED)["job-1"] is None
    assert 400 * DAY < shown.replay.reached - START < 510 * DAY


def test_only_what_fits_is_admitted() -> None:
    """One of two hours is committed; a job that may take longer than an hour waits, and one behind it starts."""
    jobs = [
        job(0, 0, run=600, limit_seconds=HOUR),
        job(1, 10, run=600, limit_seconds=HOUR + 1),
        job(2, 20, run=600, limit_seconds=HOUR),
    ]
    found = compared(jobs, limited(2, admit="OnlyIfItFits"))
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": MIDNIGHT, "job-2": 20}


@pytest.mark.parametrize("limit", [None, 2 * HOUR])
def test_a_job_that_no_period_has_hours_for_never_starts(limit: int | None) -> None:
    jobs = [job(0, 0, run=600, limit_seconds=limit), job(1, 10, run=60, limit_seconds=60)]
    found = compared(jobs, limited(admit="OnlyIfItFits"))
    assert starts(found, CHANGED) == {"job-0": None, "job-1": 10}
    assert "With the change: 1 job does not start: default/job-0." in comparison_report.following(found)


def test_a_budget_of_no_hours_admits_nothing() -> None:
    found = compared([job(0, 0), job(1, 0)], limited(0))
    assert starts(found, CHANGED) == {"job-0": None, "job-1": None}
    assert found.is_complete


def test_users_have_budgets_of_their_own() -> None:
    jobs = [job(0, 0, run=HOUR, user="ada"), job(1, 2 * HOUR, run=60, user="ada"), job(2, 2 * HOUR, run=60, user="bob")]
    found = compared(jobs, limited(per="User"))
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": MIDNIGHT, "job-2": 2 * HOUR}


def test_jobs_come_back_by_priority_and_then_by_age() -> None:
    jobs = [
        job(0, 0, run=HOUR, cpus=4),
        job(1, 2 * HOUR, run=60, cpus=4),
        job(2, 2 * HOUR + 1, run=60, cpus=4, priority=10),
    ]
    found = compared(jobs, limited())
    # The first job used four hours; of the debt of three, one is left on the fourth day.
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": MIDNIGHT + 3 * DAY + 60, "job-2": MIDNIGHT + 3 * DAY}


def test_a_queue_without_the_check_is_not_limited() -> None:
    """[BU1]"""
    free = case(GATE, *budget(0), *queue(cpu=4))
    assert starts(compared([job(0, 0)], free), CHANGED) == {"job-0": 0}


def test_checks_that_are_taken_to_pass_are_reported() -> None:
    checked = queue(cpu=4, **CHECKED)
    found = compared([job(0, 0)], case(*budget(0), *checked))
    assert starts(found, CHANGED) == {"job-0": 0}
    sentence = "With the change: AdmissionCheck hours is taken to pass: the gate Budgets is off."
    assert sentence in comparison_report.following(found)
    found = compared([job(0, 0)], case(GATE, budget()[1], *checked))
    sentence = "With the change: AdmissionCheck hours is taken to pass: Budget daily does not exist."
    assert sentence in comparison_report.following(found)


def test_a_check_that_passes_in_one_column_is_reported_with_its_name() -> None:
    """A Configuration as the change may leave out the gate of the present one."""
    limits, passes = limited(), case(*budget(), *queue(cpu=4, **CHECKED))
    sentence = "AdmissionCheck hours is taken to pass: the gate Budgets is off"

    def notices(base: Case, changed: Case) -> tuple[str, ...]:
        return compare(trace([job(0, 0)]), base, changed, warm_up=0.0).notices

    assert notices(limits, passes) == (f"with the change: {sentence}",)
    assert notices(passes, limits) == (f"replayed: {sentence}",)
    assert notices(passes, passes) == (sentence,)


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Budget daily.*timeZone"):
        compared([job(0, 0)], limited(timeZone="Nowhere/City"))
