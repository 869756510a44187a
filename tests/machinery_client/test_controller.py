"""Workers on one queue: how many keys of a kind are reconciled at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from kubemachinery.client.controller import Controller
from waiting import eventually


class Work:
    """Reconciles that end when `released` is set, and how many of each kind were under way at most."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[str] = []

    async def reconcile(self, key: str) -> None:
        kind = key.partition("/")[0]
        self.running[kind] += 1
        self.most[kind] = max(self.most[kind], self.running[kind])
        await self.released.wait()
        self.running[kind] -= 1
        self.done.append(key)


async def test_concurrency_limit_of_a_kind_does_not_delay_other_kinds() -> None:
    work = Work()
    loop: Controller[str] = Controller("test", work.reconcile, random.Random(1), workers=2)
    loop.limit_concurrency(lambda key: key.partition("/")[0], {"Job": 1, "Pod": 4})
    keys = [f"{kind}/{number}" for kind in ("Job", "Pod") for number in range(6)]
    for key in keys:
        loop.add(key)
    running = asyncio.create_task(loop.run())
    await eventually(lambda: work.running == Counter(Job=1, Pod=4))
    work.released.set()
    await eventually(lambda: sorted(work.done) == keys)
    assert work.most == Counter(Job=1, Pod=4)
    await eventually(lambda: loop.queue.idle)
    running.cancel()


async def test_key_waiting_for_its_kind_is_deduplicated_and_requeued() -> None:
    work = Work()
    loop: Controller[str] = Controller("test", work.reconcile, random.Random(1), workers=4)
    loop.limit_concurrency(lambda key: "Job", {"Job": 1})
    loop.add("Job/a")
    loop.add("Job/b")
    running = asyncio.create_task(loop.run())
    await eventually(lambda: work.running["Job"] == 1 and not len(loop.queue))
    loop.add("Job/b")  # a worker got it, and it waits for a slot of its kind
    work.released.set()
    await eventually(lambda: loop.queue.idle)
    assert sorted(work.done) == ["Job/a", "Job/b", "Job/b"]
    running.cancel()
