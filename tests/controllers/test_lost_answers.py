"""Quota is never given twice, whatever happens to the answers of the server."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager

from tests.controllers.conftest import Story

from pykueue import app, settings
from pykueue.clock import SystemClock
from pykueue.controllers.assembly import Manager
from pykueue.kube.client import Client
from pykueue.kube.errors import Unanswered
from pykueue.kube.transport import Answer, Call, Lines, Transport


class Lossy:
    """Carries every request out, and loses some of the answers to writes of a Workload's status."""

    def __init__(self, inner: Transport, chance: random.Random, share: float, *, gives_up: bool) -> None:
        self._inner = inner
        self._chance = chance
        self._share = share
        self._gives_up = gives_up
        self.lost = 0

    async def send(self, call: Call) -> Answer:
        answer = await self._inner.send(call)
        if call.method == "PATCH" and call.path.endswith("/status") and self._chance.random() < self._share:
            self.lost += 1
            if self._gives_up:
                return Answer(504, b'{"kind":"Status","code":504,"reason":"Timeout","message":"gave up waiting"}')
            raise Unanswered("the connection broke")
        return answer

    def stream(self, call: Call) -> AbstractAsyncContextManager[Lines]:
        return self._inner.stream(call)

    async def close(self) -> None:
        await self._inner.close()


async def _drain(story: Story, *, gives_up: bool) -> None:
    lossy = Lossy(story.transport(), random.Random(5), 0.4, gives_up=gives_up)
    choices = app.manager_choices(settings.defaults())
    manager = Manager(Client(lossy, random.Random(3)), choices, SystemClock(), random.Random(3))
    await story.queues(cpu="3")
    names = [f"w{number:02}" for number in range(12)]
    for name in names:
        await story.workload(name)
    async with manager.reading():
        leading = asyncio.create_task(manager.lead())
        done: set[str] = set()
        async with asyncio.timeout(60):
            while len(done) < len(names):
                running = await story.admitted()
                assert len(running) <= 3, "more cores are given away than there are"
                for name in running:
                    if await story.condition(name, "Admitted") == "True/Admitted":
                        await story.finish(name)
                        done.add(name)
                await asyncio.sleep(0.02)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
    assert lossy.lost > 3


async def test_connections_that_break_after_the_write_never_give_quota_twice(story: Story) -> None:
    await _drain(story, gives_up=False)


async def test_a_server_that_gives_up_on_itself_after_the_write_never_gives_quota_twice(story: Story) -> None:
    await _drain(story, gives_up=True)
