"""Waiting for a job that somebody else does something to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykueue.client import AsyncClient
from pykueue.errors import AnswerIsNo
from pykueue.testing import Kueue


@pytest.mark.parametrize(
    "wait",
    [lambda client, job: client.wait(job), lambda client, job: client.logs(job, follow=True)],
    ids=["wait", "logs"],
)
def test_whoever_waits_for_a_job_that_is_cancelled_is_told_so(
    kueue: Kueue, wait: Callable[[AsyncClient, str], Awaitable[object]]
) -> None:
    running = kueue.submit(["sleep", "3600"], cpu=8)
    waiting = kueue.submit(["sleep", "3600"], cpu=8)

    async def cancelled_meanwhile() -> None:
        asked = asyncio.ensure_future(wait(kueue._client, waiting))
        await asyncio.sleep(5)
        await kueue._client.cancel(waiting)
        with pytest.raises(AnswerIsNo, match=f"^job {waiting} is gone: it was cancelled$"):
            await asked

    kueue._run(cancelled_meanwhile())
    assert kueue.standing(running).word == "Running"
