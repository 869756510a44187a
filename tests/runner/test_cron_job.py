"""CronJobs: when they are due, and which Jobs they create and delete."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubemachinery import meta
from pykueue.runner import cron_job, cron_schedule

Tree = dict[str, Any]
NOW = meta.parse_time("2026-01-01T12:00:30Z")


def at(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/5 * * * *", "2026-01-01 12:03", "2026-01-01 12:05"),
        ("0 0 1 1 *", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("30 8-10/2 * * mon-fri", "2026-01-02 10:30", "2026-01-05 08:30"),
        ("0 0 13 * 5", "2026-01-01 12:00", "2026-01-02 00:00"),
        ("0 12 * * 7", "2026-01-01 12:00", "2026-01-04 12:00"),
        ("@hourly", "2026-01-01 12:03", "2026-01-01 13:00"),
        ("0 0 29 feb *", "2026-01-01 12:00", "2028-02-29 00:00"),
        ("59 23 31 12 *", "2026-01-01 12:00", "2026-12-31 23:59"),
    ],
)
def test_next_time_of_a_schedule(schedule: str, after: str, expected: str) -> None:
    assert cron_schedule.parse(schedule).next_after(at(after)) == at(expected)


def test_schedule_that_is_never_due() -> None:
    assert cron_schedule.parse("0 0 30 2 *").next_after(at("2026-01-01 12:00")) is None


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "* * * * 8", "*/0 * * * *", "a * * * *", "@reboot", "5-1 * * * *"]
)
def test_schedule_that_cannot_be_read(text: str) -> None:
    with pytest.raises(cron_schedule.ScheduleError):
        cron_schedule.parse(text)


def cron(schedule: str = "0 12 * * *", **spec: Any) -> Tree:
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": {"template": {}}}
    metadata = {"name": "nightly", "namespace": "n", "uid": "C", "creationTimestamp": "2026-01-01T11:00:00Z"}
    return {"metadata": metadata, "spec": {"schedule": schedule, "jobTemplate": template, **spec}, "status": {}}


def job(name: str, condition: str = "", created: str = "2026-01-01T11:30:00Z") -> Tree:
    conditions = [{"type": condition, "status": "True"}] if condition else []
    status = {"conditions": conditions, "completionTime": "2026-01-01T11:45:00Z"}
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": created}, "status": status}


def test_due_job_is_created_once_with_its_queue() -> None:
    plan = cron_job.decide(cron(), [], NOW)
    assert plan.create is not None
    assert plan.create["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lq"}
    assert plan.create["metadata"]["annotations"] == {cron_job.SCHEDULED: "2026-01-01T12:00:00Z"}
    assert plan.status["lastScheduleTime"] == "2026-01-01T12:00:00Z"
    assert plan.requeue_after_seconds == 86370.0
    name = plan.create["metadata"]["name"]
    assert cron_job.decide(cron(), [job(name)], NOW).create is None
    later = {**cron(), "status": {"lastScheduleTime": "2026-01-01T12:00:00Z"}}
    assert cron_job.decide(later, [], NOW).create is None


def test_only_the_last_of_several_missed_times_is_made_up_for() -> None:
    plan = cron_job.decide(cron("*/10 * * * *"), [], NOW)
    assert plan.create is not None
    assert plan.create["metadata"]["annotations"][cron_job.SCHEDULED] == "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("spec", "creates", "deletes"),
    [
        ({}, True, []),
        ({"concurrencyPolicy": "Forbid"}, False, []),
        ({"concurrencyPolicy": "Replace"}, True, ["running"]),
        ({"suspend": True}, False, []),
        ({"startingDeadlineSeconds": 20}, False, []),
        ({"timeZone": "Europe/Berlin"}, False, []),
    ],
)
def test_policies_beside_a_running_job(spec: Tree, creates: bool, deletes: list[str]) -> None:
    plan = cron_job.decide(cron(**spec), [job("running")], NOW)
    assert (plan.create is not None, [each["metadata"]["name"] for each in plan.delete]) == (creates, deletes)
    assert [each["name"] for each in plan.status["active"]] == ["running"]


def test_missed_times_are_not_searched_for_longer_than_eight_years() -> None:
    """The time of a status may be any; it was outside the years of a date in the zone, and a search takes seconds."""
    old = {**cron("0 0 30 2 *", timeZone="America/New_York"), "status": {"lastScheduleTime": "0001-01-01T00:00:00Z"}}
    assert cron_job.decide(old, [], NOW).create is None


def test_history_is_limited() -> None:
    jobs = [job(f"ok-{n}", "Complete", f"2026-01-01T11:0{n}:00Z") for n in range(4)]
    jobs += [job(f"bad-{n}", "Failed", f"2026-01-01T11:0{n}:00Z") for n in range(2)]
    plan = cron_job.decide(cron(suspend=True), jobs, NOW)
    assert [each["metadata"]["name"] for each in plan.delete] == ["ok-0", "bad-0"]
    assert plan.status["lastSuccessfulTime"] == "2026-01-01T11:45:00Z"


@pytest.mark.parametrize("spec", [{"schedule": "@reboot"}, {"timeZone": "Nowhere/At-All"}])
def test_schedule_or_time_zone_that_cannot_be_read_is_reported(spec: Tree) -> None:
    plan = cron_job.decide(cron(**spec) if "schedule" not in spec else cron(spec["schedule"]), [], NOW)
    assert plan.problem
    assert plan.create is None
