"""Pretended pods on a virtual clock: an hour of work in a moment, the same every time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from kubemachinery import meta
from kubemachinery.unstructured import get
from kubeserver.storage.entries import StoreChange
from pykueue.runner.simulated_executor import EXIT_CODE, SECONDS
from pykueue.testing.virtual_loop import VirtualClock, VirtualLoop
from runner.conftest import System, Tree, system


def played(folder: Path, scenario: Any, seed: int = 7) -> Any:
    """Run a scenario on a virtual clock; returns its result."""

    async def run() -> Any:
        async with system(folder, "simulated", VirtualClock(asyncio.get_running_loop()), seed) as made:
            return await scenario(made)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


async def _took(here: System, job: str) -> float:
    """The seconds that a job took, from its status."""
    await here.over(job)
    found = await here.find("Job", job)
    start, end = get(found, "status", "startTime"), get(found, "status", "completionTime")
    return (meta.parse_time(end) - meta.parse_time(start)) / meta.SECOND


def marked(**annotations: str) -> dict[str, Any]:
    names = {"seconds": SECONDS, "exit_code": EXIT_CODE}
    return {"annotations": {names[key]: value for key, value in annotations.items()}}


def test_simulated_job_takes_the_configured_time(tmp_path: Path) -> None:
    async def scenario(here: System) -> list[float]:
        await here.job("configured", "anything", labels=marked(seconds="3600"))
        await here.job("sleeps", "sleep", "90")
        return [await _took(here, name) for name in ("configured", "sleeps")]

    configured, sleeps = played(tmp_path, scenario)
    assert 3600 <= configured <= 3602
    assert 90 <= sleeps <= 92


def test_simulated_job_ends_with_the_configured_exit_code(tmp_path: Path) -> None:
    async def scenario(here: System) -> Any:
        await here.job("fails", "x", labels=marked(exit_code="3"))
        reason = await here.over("fails")
        (pod,) = await here.pods("fails")
        return reason, get(pod["status"]["containerStatuses"][0], "state", "terminated", "exitCode")

    assert played(tmp_path, scenario) == ("BackoffLimitExceeded", 3)


def test_status_of_a_job_is_written_once_for_what_happens_within_a_second(tmp_path: Path) -> None:
    async def scenario(here: System) -> list[list[Tree]]:
        written: dict[str, list[Tree]] = {"short": [], "long": []}

        def note(change: StoreChange) -> None:
            if change.entry.key.resource == "jobs.batch":
                status = msgspec.json.decode(change.entry.body).get("status", {})
                if status != (written[change.entry.key.name] or [{}])[-1]:
                    written[change.entry.key.name].append(status)

        here.listen(note)
        await here.job("short", "x", labels=marked(seconds="0.5"))
        await here.job("long", "x", labels=marked(seconds="60"))
        await here.over("long")
        return list(written.values())

    short, long = played(tmp_path, scenario)
    numbers = [
        [(each.get("active", 0), each["ready"], each.get("succeeded", 0)) for each in job] for job in (short, long)
    ]
    assert numbers == [[(0, 0, 0), (1, 0, 0), (0, 0, 1)], [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1)]]
    for job in (short, long):
        assert [each["type"] for each in job[-1]["conditions"] if each["status"] == "True"] == [
            "SuccessCriteriaMet",
            "Complete",
        ]
        assert job[-1]["uncountedTerminatedPods"] == {}


def test_random_durations_depend_on_the_seed(tmp_path: Path) -> None:
    async def scenario(here: System) -> float:
        await here.job("some-time", "x", labels=marked(seconds="100-900"))
        return await _took(here, "some-time")

    first, again, other = (played(tmp_path, scenario, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert 100 <= first <= 902


def test_jobs_without_capacity_wait(tmp_path: Path) -> None:
    async def scenario(here: System) -> list[str]:
        for name in ("a", "b", "c"):
            await here.job(name, "sleep", "100", container={"resources": {"requests": {"cpu": "2"}}})
        for name in ("a", "b", "c"):
            assert await here.over(name) == "Complete"
        jobs = {job["metadata"]["name"]: job["status"]["startTime"] for job in await here.all("Job")}
        return sorted(jobs, key=lambda name: jobs[name])[-1:]

    assert played(tmp_path, scenario) == ["c"], "four processors hold two of them at a time"
