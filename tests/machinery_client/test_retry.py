"""Retries of transient errors, and through an outage of the server."""

from __future__ import annotations

import asyncio

import pytest

from kubemachinery.client import errors
from kubemachinery.client.retry import RetryThroughOutage, retry_transient
from virtual import virtual_time


class Attempts:
    """Fails with these first, then works."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.count


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubemachinery.client.retry._INITIAL_BACKOFF_SECONDS", 0.0)


@pytest.mark.parametrize(
    "trouble",
    [
        errors.Conflict(409, "Conflict", ""),
        errors.AlreadyExists(409, "AlreadyExists", ""),
        errors.Unanswered("lost"),
        errors.Busy(503, "ServiceUnavailable", ""),
        errors.ApiError(500, "InternalError", ""),
    ],
)
async def test_transient_error_is_retried(trouble: Exception) -> None:
    attempts = Attempts(trouble, trouble)
    assert await retry_transient(attempts) == 3


async def test_refusal_is_not_retried() -> None:
    attempts = Attempts(errors.ApiError(403, "Forbidden", "no"))
    with pytest.raises(errors.ApiError):
        await retry_transient(attempts)
    assert attempts.count == 1


async def test_last_attempt_raises_its_error() -> None:
    attempts = Attempts(*[errors.Unanswered("lost")] * 99)
    with pytest.raises(errors.Unanswered):
        await retry_transient(attempts, attempts=4)
    assert attempts.count == 4


AWAY = errors.Unanswered("connection refused")


class Outages:
    """A server that is unreachable at times, by the clock of the loop, and the reports about it."""

    def __init__(self, *times: tuple[float, float], trouble: errors.KubeError = AWAY) -> None:
        self.times = times
        self.trouble = trouble
        self.reports: list[str] = []
        self.retry = RetryThroughOutage(self.reports.append, limit_seconds=120)

    async def __call__(self) -> float:
        now = asyncio.get_running_loop().time() % 3600
        if any(start <= now < end for start, end in self.times):
            raise self.trouble
        return now


REPORT = "connection refused; waiting up to 2 min for the server"


@virtual_time
async def test_outage_is_retried_and_reported_once() -> None:
    server = Outages((10, 100), (200, 300))
    await server.retry(server)
    await asyncio.sleep(20)
    await asyncio.gather(*(server.retry(server) for _ in range(3)))
    assert server.reports == [REPORT]
    await asyncio.sleep(120)
    assert await server.retry(server) >= 300
    assert server.reports == [REPORT] * 2


@virtual_time
async def test_outage_beyond_the_limit_raises() -> None:
    server, now = Outages((10, 3600)), asyncio.get_running_loop().time
    await server.retry(server)
    await asyncio.sleep(10)
    began = now()
    with pytest.raises(errors.Unanswered, match=r"^connection refused$"):
        await server.retry(server)
    assert now() - began == pytest.approx(120, abs=2)


@virtual_time
async def test_server_that_never_responded_is_not_waited_for() -> None:
    server = Outages((0, 3600))
    with pytest.raises(errors.Unanswered):
        await server.retry(server)
    assert server.reports == []


@virtual_time
async def test_refusal_is_not_an_outage() -> None:
    server = Outages((10, 100), trouble=errors.ApiError(403, "Forbidden", "no"))
    await server.retry(server)
    await asyncio.sleep(20)
    with pytest.raises(errors.ApiError, match=r"^no$"):
        await server.retry(server)
    assert server.reports == []
