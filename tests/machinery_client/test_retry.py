"""What looks before it writes can be done again until it is done."""

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
    monkeypatch.setattr("kubemachinery.client.retry._FIRST_PAUSE_SECONDS", 0.0)


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
async def test_trouble_that_passes_is_waited_out(trouble: Exception) -> None:
    attempts = Attempts(trouble, trouble)
    assert await retry_transient(attempts) == 3


async def test_a_refusal_is_final() -> None:
    attempts = Attempts(errors.ApiError(403, "Forbidden", "no"))
    with pytest.raises(errors.ApiError):
        await retry_transient(attempts)
    assert attempts.count == 1


async def test_what_never_works_raises_in_the_end() -> None:
    attempts = Attempts(*[errors.Unanswered("lost")] * 99)
    with pytest.raises(errors.Unanswered):
        await retry_transient(attempts, attempts=4)
    assert attempts.count == 4


AWAY = errors.Unanswered("nobody is there")


class Absences:
    """A server that is away at times, by the loop's clock, and what was told of it."""

    def __init__(self, *times: tuple[float, float], trouble: errors.KubeError = AWAY) -> None:
        self.times = times
        self.trouble = trouble
        self.told: list[str] = []
        self.outlast = RetryThroughOutage(self.told.append, limit_seconds=120)

    async def __call__(self) -> float:
        now = asyncio.get_running_loop().time() % 3600
        if any(start <= now < end for start, end in self.times):
            raise self.trouble
        return now


TOLD = "nobody is there; waiting up to 2 min for it to come back"


@virtual_time
async def test_an_absence_is_outlasted_and_told_once() -> None:
    server = Absences((10, 100), (200, 300))
    await server.outlast(server)
    await asyncio.sleep(20)
    await asyncio.gather(*(server.outlast(server) for _ in range(3)))
    assert server.told == [TOLD]
    await asyncio.sleep(120)
    assert await server.outlast(server) >= 300
    assert server.told == [TOLD] * 2


@virtual_time
async def test_an_absence_that_lasts_too_long_is_an_error() -> None:
    server, now = Absences((10, 3600)), asyncio.get_running_loop().time
    await server.outlast(server)
    await asyncio.sleep(10)
    began = now()
    with pytest.raises(errors.Unanswered, match=r"^nobody is there$"):
        await server.outlast(server)
    assert now() - began == pytest.approx(120, abs=2)


@virtual_time
async def test_a_server_that_never_answered_is_not_waited_for() -> None:
    server = Absences((0, 3600))
    with pytest.raises(errors.Unanswered):
        await server.outlast(server)
    assert server.told == []


@virtual_time
async def test_a_refusal_is_no_absence() -> None:
    server = Absences((10, 100), trouble=errors.ApiError(403, "Forbidden", "no"))
    await server.outlast(server)
    await asyncio.sleep(20)
    with pytest.raises(errors.ApiError, match=r"^no$"):
        await server.outlast(server)
    assert server.told == []
