"""The budget check in a manager: the scenarios of Budgets on a virtual clock.

A limit of 0.1 cpu hours is 360 seconds of one core. Times are seconds before and after the midnight that ends a day.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controllers.budget_world import BUDGETS, CHECKS, CLUSTER_QUEUES, DAY, HOUR, BudgetWorld, budget, check, scenario
from pykueue.api.budget import BudgetStatus
from pykueue.controllers.checks import budget_status
from pykueue.history.store import HistoryStore


@scenario
async def test_workloads_are_admitted_until_the_limit_is_reached(made: BudgetWorld) -> None:
    """[BU3] Scenario 1: two jobs use the limit; a third one waits for the next day."""
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("first", 180)
        await made.submit("second", 180)
        await made.until(-600)
        await made.submit("third", 60)
        await made.until(-500)
        assert not await made.is_admitted("third")
        evicted = await made.condition("third", "Requeued")
        assert (evicted["status"], evicted["reason"]) == ("False", "AdmissionCheck")
        assert "Budget cpu of total is spent (0.1 of 0.1 cpu hours)" in evicted["message"]
        assert "the next period begins on Sun 2030-03-17 00:00 (UTC)" in evicted["message"]
        await made.until(5)
        assert await made.admitted_at("third") == 0


@scenario
async def test_a_warning_is_emitted_once_in_the_second_in_which_its_level_is_reached(made: BudgetWorld) -> None:
    """[BU6] [BU7] Scenario 2: 80 % and 95 % of 360 core seconds at two cores are 144 s and 171 s."""
    async with made.manager() as manager:
        await made.install(budget(per="LocalQueue", warnAt=[80, 95]))
        await made.until(-800)
        await made.submit("long", 300, cpu=2)
        await made.until(-800 + 143.9)
        assert await made.events("BudgetWarning") == []
        await made.until(-800 + 144.5)
        (event,) = await made.events("BudgetWarning")
        assert event["note"].startswith(
            "Budget cpu of default/default has reached 80 % of its limit (0.08 of 0.1 cpu hours); the next period"
        )
        (group,) = (await made.budget())["status"]["groups"]
        assert (group["group"], group["percent"], group["perHour"], group["warned"]) == ("default/default", 80, "2", 80)
        assert group["spentAt"] == "2030-03-16T23:49:40Z"
        assert (
            'pykueue_budget_spent_ratio{budget="cpu",group="default/default"' in manager.metrics.exposition().decode()
        )
        await made.until(-800 + 181)
        assert len(await made.events("BudgetWarning")) == 2
        assert len(await made.events("BudgetWarning", "LocalQueue")) == 2
        (spent,) = await made.events("BudgetSpent")
        assert "is spent (0.1 of 0.1 cpu hours)" in spent["note"]


@scenario
async def test_with_evict_a_running_workload_is_requeued_when_the_limit_is_reached(made: BudgetWorld) -> None:
    """[BU5] Scenario 3: it is evicted in the second of the limit, and starts again after the edge."""
    async with made.manager():
        await made.install(budget(whenSpent="Evict"))
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-800 + 359)
        assert await made.is_admitted("long")
        await made.until(-800 + 361)
        assert (await made.condition("long", "Evicted"))["reason"] == "AdmissionCheck"
        await made.until(-300)
        assert not await made.is_admitted("long")
        assert (await made.condition("long", "Requeued"))["reason"] == "AdmissionCheck"
        await made.until(2)
        assert await made.is_admitted("long")


@scenario
async def test_a_limit_that_is_lowered_below_what_is_spent_is_reached_at_once(made: BudgetWorld) -> None:
    """[BU5], [BU7] The group reaches no level by spending any more."""
    async with made.manager():
        await made.install(budget(hours=1, whenSpent="Evict"))
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-400)
        await made.set_limit("cpu", hours="0.1")
        await made.until(-398)
        assert (await made.condition("long", "Evicted"))["reason"] == "AdmissionCheck"
        assert len(await made.events("BudgetSpent")) == 1


@scenario
async def test_running_workloads_of_a_spent_group_are_evicted_once_the_budget_evicts(made: BudgetWorld) -> None:
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-400)
        assert await made.is_admitted("long")
        await made.api.patch(BUDGETS, "cpu", {"spec": {"whenSpent": "Evict"}})
        await made.until(-398)
        assert (await made.condition("long", "Evicted"))["reason"] == "AdmissionCheck"
        assert len(await made.events("BudgetSpent")) == 1, "it was announced when it was reached"


@scenario
async def test_a_limit_that_is_reached_while_no_manager_runs_is_reached_at_its_start(made: BudgetWorld) -> None:
    """[BU5], [BU7]"""
    async with made.manager():
        await made.install(budget(whenSpent="Evict"))
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-800 + 300)
    await made.until(-400)
    async with made.manager():
        await made.until(-396)
        assert (await made.condition("long", "Evicted"))["reason"] == "AdmissionCheck"
        assert len(await made.events("BudgetSpent")) == 1


@scenario
async def test_a_budget_that_is_created_again_evicts_by_what_its_period_had_already(made: BudgetWorld) -> None:
    """[BU5], [BU8]"""
    async with made.manager():
        await made.install(budget(hours=1, whenSpent="Evict"))
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-400)
        await made.api.delete(BUDGETS, "cpu")
        await asyncio.sleep(2)
        assert await made.is_admitted("long"), "without its Budget no Workload is stopped"
        await made.api.create(BUDGETS, budget(whenSpent="Evict"))
        await made.until(-394)
        assert (await made.condition("long", "Evicted"))["reason"] == "AdmissionCheck"


@scenario
async def test_with_let_run_the_overdraft_is_a_debt_of_the_next_period(made: BudgetWorld) -> None:
    """[BU5] Scenario 4: 90 s over the limit of 360 s; the next period has 270 s."""
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("long", 450)
        await made.until(10)
        await made.submit("next", 600)
        await made.until(20)
        (group,) = (await made.budget())["status"]["groups"]
        assert group["limit"] == "0.075"
        assert group["spentAt"] == "2030-03-17T00:04:40Z"


@scenario
async def test_with_only_if_it_fits_a_smaller_job_starts_before_one_that_does_not_fit(made: BudgetWorld) -> None:
    """[BU3] Scenario 5: 180 s are left; a job with a limit of 200 s waits, one of 100 s starts."""
    async with made.manager():
        await made.install(budget(admit="OnlyIfItFits"))
        await made.until(-800)
        await made.submit("before", 180, time_limit_seconds=300)
        await made.until(-600)
        await made.submit("large", 60, time_limit_seconds=200)
        await made.submit("small", 60, time_limit_seconds=100)
        await made.submit("too-much", 60, time_limit_seconds=100)
        await made.until(-595)
        assert await made.is_admitted("small")
        assert not await made.is_admitted("large")
        message = (await made.condition("large", "Requeued"))["message"]
        assert "has not enough left for the Workload: 0.05 of 0.1 cpu hours are spent" in message
        # What the small one may still use is committed.
        assert not await made.is_admitted("too-much")
        await made.until(2)
        assert await made.is_admitted("large")


@scenario
async def test_a_job_larger_than_a_whole_period_is_rejected(made: BudgetWorld) -> None:
    """[BU3] Scenario 6: it is deactivated with the reason; one without a time limit too under OnlyIfItFits."""
    async with made.manager():
        await made.install(budget(admit="OnlyIfItFits"))
        await made.submit("huge", 60, cpu=3, time_limit_seconds=180)
        await made.submit("endless", 60)
        await asyncio.sleep(5)
        for job, reason in (
            (
                "huge",
                "has 0.1 cpu hours in a period and the Workload may use 0.15: lower its time limit or its request",
            ),
            ("endless", "admits only Workloads with a time limit: set maximumExecutionTimeSeconds"),
        ):
            assert (await made.workload(job))["spec"]["active"] is False
            assert reason in (await made.condition(job, "Evicted"))["message"]


@scenario
async def test_a_manager_that_is_killed_reaches_the_limit_in_the_same_second(made: BudgetWorld) -> None:
    """[BU8] Scenario 9: most is spent when the manager stops; the next one evicts in the same second."""
    async with made.manager():
        await made.install(budget(whenSpent="Evict"))
        await made.until(-800)
        await made.submit("long", 700)
        await made.until(-800 + 300)
        (before,) = (await made.budget())["status"]["groups"]
    await asyncio.sleep(20)
    async with made.manager():
        await made.until(-800 + 359)
        assert await made.is_admitted("long")
        assert len(await made.events("BudgetWarning")) == 1
        await made.until(-800 + 361)
        assert (await made.condition("long", "Evicted"))["lastTransitionTime"] == "2030-03-16T23:52:40Z"
        (after,) = (await made.budget())["status"]["groups"]
        assert (before["warned"], after["warned"]) == (80, 100)


async def spent_day(made: BudgetWorld) -> None:
    """A job uses more than the 360 seconds of the day and ends; another one waits for the next day. It is 23:54:20."""
    await made.install(budget())
    await made.until(-800)
    await made.submit("long", 400)
    await made.until(-350)
    await made.submit("waits", 60)
    await made.until(-340)
    assert not await made.is_admitted("waits")


@scenario
async def test_an_edge_that_passed_while_no_manager_ran_is_handled_at_the_start(made: BudgetWorld) -> None:
    async with made.manager():
        await spent_day(made)
    await made.until(2)
    async with made.manager():
        await made.until(6)
        assert await made.is_admitted("waits")


@scenario
async def test_a_raised_limit_starts_waiting_workloads_at_once(made: BudgetWorld) -> None:
    """[BU4] Scenario 10; and a limit that was raised while no manager ran."""
    async with made.manager():
        await spent_day(made)
        await made.set_limit("cpu", hours="0.112")
        await made.until(-338)
        assert await made.is_admitted("waits")
        await made.until(-260)
        await made.submit("again", 60)
        await made.until(-250)
        assert not await made.is_admitted("again")
    await made.set_limit("cpu", hours=2)
    async with made.manager():
        await asyncio.sleep(2)
        assert await made.is_admitted("again")


@scenario
async def test_a_restart_does_not_ask_waiting_workloads_again(made: BudgetWorld) -> None:
    """[BU-L4] A restart changes no answer: a Workload that waits is neither woken nor evicted again."""
    async with made.manager():
        await spent_day(made)
        before = (await made.workload("waits"))["status"]
    async with made.manager():
        await made.until(-100)
        assert (await made.workload("waits"))["status"] == before


@scenario
async def test_without_a_readable_history_nothing_is_started_and_nothing_stopped(made: BudgetWorld) -> None:
    """[BU3] Scenario 11: pending Workloads stay pending, running ones run, one Event has the reason."""
    async with made.manager():
        await made.install(budget(whenSpent="Evict"))
        await made.submit("runs", 800)
        await asyncio.sleep(10)
    store = HistoryStore(made.path)
    store._connection.execute("UPDATE meta SET value = 99 WHERE key = 'layout'")
    store.close()
    async with made.manager():
        await made.submit("waits", 60)
        await made.until(-200)
        assert await made.is_admitted("runs")
        (pending,) = (await made.workload("waits"))["status"]["admissionChecks"]
        assert pending["state"] == "Pending"
        (event,) = await made.events("BudgetUnavailable")
        assert "the history has layout 99" in event["note"]
        (ready,) = (await made.budget())["status"]["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "HistoryUnavailable")


@scenario
async def test_a_check_without_a_budget_is_not_active_until_it_exists(made: BudgetWorld) -> None:
    async with made.manager():
        await made.api.create(CHECKS, check("budget", "cpu"))
        rule = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
        await made.api.patch(CLUSTER_QUEUES, "default", {"spec": rule})
        await asyncio.sleep(2)
        await made.submit("job", 60)
        await asyncio.sleep(2)
        (active,) = (await made.api.get(CHECKS, "budget"))["status"]["conditions"]
        assert (active["status"], active["reason"], active["message"]) == (
            "False",
            "BadParametersRef",
            "Budget cpu does not exist",
        )
        assert len(await made.events("BudgetUnavailable", "AdmissionCheck")) == 1
        await made.api.create(BUDGETS, budget())
        await asyncio.sleep(2)
        assert await made.is_admitted("job")


@scenario
async def test_users_have_budgets_of_their_own(made: BudgetWorld) -> None:
    """[BU1] Scenario 12: the group is the user of the history."""
    override = {"group": "(unknown)", "amounts": [{"resource": "cpu", "hours": 0}]}
    async with made.manager():
        await made.install(budget(per="User", overrides=[override]))
        await made.submit("mine", 400)
        await asyncio.sleep(370)
        (group,) = (await made.budget())["status"]["groups"]
        assert (group["group"], group["percent"]) == ("admin", 100)


@scenario
async def test_a_workload_whose_flavors_do_not_require_the_check_is_not_asked(made: BudgetWorld) -> None:
    """[BU-L6] Scenario 14: the check is for a flavor that the Workload does not get."""
    async with made.manager():
        await made.add_flavor("other")
        await made.install(budget(hours=0), flavors=("other",))
        await made.submit("job", 60)
        await asyncio.sleep(2)
        assert await made.is_admitted("job")
        assert "admissionChecks" not in (await made.workload("job"))["status"]


@scenario
async def test_a_budget_longer_than_the_history_is_kept_is_refused(made: BudgetWorld) -> None:
    """[BU8] Two periods have to be kept."""
    async with made.manager(retention_seconds=30 * DAY):
        await made.install(budget(every="Month"))
        (active,) = (await made.api.get(CHECKS, "check-cpu"))["status"]["conditions"]
        assert active["message"] == (
            "Budget cpu: the history is kept for 30 days, and a Budget of every Month needs 62 days:"
            " raise --history-retention"
        )


@scenario
async def test_a_changed_grouping_recounts_the_period_from_the_history(made: BudgetWorld) -> None:
    """[BU8] Also of jobs that were deleted before the change."""
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("done", 90)
        await made.until(-700)
        await made.client.cancel("done")
        await made.until(-690)
        await made.submit("runs", 600)
        await made.until(-600)
        await made.api.patch(BUDGETS, "cpu", {"spec": {"per": "Namespace"}})
        await asyncio.sleep(2)
        (group,) = (await made.budget())["status"]["groups"]
        assert (group["group"], group["spent"]) == ("default", "0.05")


@scenario
async def test_a_limit_holds_after_the_clock_was_far_ahead_and_is_put_back(made: BudgetWorld) -> None:
    """[BU11] Each day has its limit once. The clock is three days ahead for a minute, and the day is spent before."""
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("first", 360)
        await made.until(-400)
        await made.submit("second", 60)
        await asyncio.sleep(5)
        assert not await made.is_admitted("second")
        made.clock.wrong_by_seconds += 3 * DAY
        await asyncio.sleep(60)
        assert await made.is_admitted("second"), "the limit of the day that the clock shows"
        made.clock.wrong_by_seconds -= 3 * DAY
        await made.submit("third", 60)
        await asyncio.sleep(60)
        assert not await made.is_admitted("third"), "no answer while the clock is behind the accounts"
        (problem,) = (await made.budget())["status"]["conditions"]
        assert (problem["status"], problem["reason"]) == ("False", "ClockSetBack")
        assert len(await made.events("BudgetUnavailable")) == 1
        await made.until(60)
        assert not await made.is_admitted("third")
        await asyncio.sleep(600)
        status = (await made.budget())["status"]
        assert status["conditions"][0]["reason"] == "Counted"
        assert await made.is_admitted("third"), "the day that began meanwhile"
        assert status["periodStart"] == "2030-03-17T00:00:00Z"
        await made.submit("fourth", 300)
        await asyncio.sleep(330)
        await made.submit("fifth", 60)
        await asyncio.sleep(60)
        assert not await made.is_admitted("fifth"), "and its limit"


@scenario
async def test_a_clock_that_is_far_behind_for_a_moment_gives_no_charge_back(made: BudgetWorld) -> None:
    """[BU11] A job runs and has used what is allowed; then the clock is an hour behind for a minute."""
    async with made.manager():
        await made.install(budget())
        await made.until(-800)
        await made.submit("first", 700)
        await made.until(-400)
        made.clock.wrong_by_seconds -= HOUR
        await made.submit("second", 60)
        await asyncio.sleep(60)
        assert not await made.is_admitted("second"), "no answer"
        made.clock.wrong_by_seconds += HOUR
        await asyncio.sleep(10)
        assert "is spent" in (await made.condition("second", "Requeued"))["message"]
        assert (await made.budget())["status"]["conditions"][0]["reason"] == "Counted"


def test_the_status_is_computed_once_a_second_however_many_workloads_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than all else that follows a change, if there are many groups."""
    computed: list[float] = []
    status = budget_status.status

    @scenario
    async def run(made: BudgetWorld) -> None:
        def noted(*given: Any) -> BudgetStatus:
            computed.append(made.now)
            return status(*given)

        monkeypatch.setattr(budget_status, "status", noted)
        async with made.manager():
            await made.install(budget(amounts=[{"resource": "cpu", "hours": 1000}]))
            for number in range(40):
                await made.client.submit(["sleep", "600"], name=f"job-{number}", cpu="10m")
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
            (group,) = (await made.budget())["status"]["groups"]
            assert group["perHour"] == "0.4"
        assert all(later - earlier > 0.99 for earlier, later in pairwise(computed))

    run(tmp_path)
    assert computed
