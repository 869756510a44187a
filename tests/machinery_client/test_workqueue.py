"""Keys: each once, none lost, no two workers on one."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubemachinery.client import errors
from kubemachinery.client.controller import Controller
from kubemachinery.client.priority import LOW, NORMAL
from kubemachinery.client.workqueue import WorkQueue
from waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(random.Random(1))


async def taken(queue: WorkQueue[str]) -> str | None:
    return await asyncio.wait_for(queue.get(), PATIENCE_SECONDS)


async def test_a_key_added_twice_comes_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_worked_on_comes_again_after(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await taken(queue)
    queue.add("a")
    queue.add("b")
    assert await taken(queue) == "b"
    queue.done("a")
    assert await taken(queue) == "a"


async def test_fresh_keys_go_before_patient_ones(queue: WorkQueue[str]) -> None:
    queue.add("old", priority=LOW)
    queue.add("older", priority=LOW)
    queue.add("new")
    queue.add("older")
    assert [await taken(queue) for _ in range(3)] == ["new", "older", "old"]


async def test_of_two_wishes_for_later_the_earlier_counts(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    assert await taken(queue) == "a"
    queue.done("a")
    assert queue.idle


async def test_what_waits_for_later_can_be_hurried(queue: WorkQueue[str]) -> None:
    for key in ("a", "b"):
        queue.add_after(key, 3600)
    queue.flush_delayed()
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    for key in ("a", "b"):
        queue.done(key)
    assert queue.idle, "nothing comes a second time"


async def test_whoever_works_is_busy_and_what_waits_for_later_is_not(queue: WorkQueue[str]) -> None:
    queue.add_after("later", 60)
    assert (queue.busy, queue.idle) == (False, False)
    queue.add("a")
    assert await taken(queue) == "a"
    assert queue.busy
    queue.done("a")
    assert not queue.busy


async def test_failures_make_the_pause_longer_until_one_goes_well(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.add_rate_limited("a")
    assert queue.num_requeues("a") == 3
    queue.forget("a")
    assert queue.num_requeues("a") == 0


async def test_closing_lets_everybody_go(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*waiting) == [None, None, None]


async def test_a_taker_that_gives_up_loses_no_key(queue: WorkQueue[str]) -> None:
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, PATIENCE_SECONDS) == "a"


@pytest.mark.parametrize("seed", range(5))
async def test_no_two_work_on_one_key_and_no_change_is_missed(seed: int) -> None:
    rng = random.Random(seed)
    wanted = dict.fromkeys("abcdef", 0)
    seen = dict.fromkeys("abcdef", 0)
    busy: set[str] = set()

    async def reconcile(key: str) -> None:
        assert key not in busy
        busy.add(key)
        seen[key] = wanted[key]
        await asyncio.sleep(rng.random() / 1000)
        busy.discard(key)
        if rng.random() < 0.2:
            raise rng.choice([errors.Conflict(409, "Conflict", ""), errors.Unanswered("x"), RuntimeError("bug")])

    controller = Controller("test", reconcile, random.Random(seed), workers=3)
    controller.queue.add_rate_limited = lambda key, at_least_seconds=0.0: controller.queue.add_after(key, 0.001)  # type: ignore[method-assign]
    running = asyncio.ensure_future(controller.run())
    for _ in range(200):
        key = rng.choice("abcdef")
        wanted[key] += 1
        controller.add(key, priority=LOW if rng.random() < 0.3 else NORMAL)
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    await eventually(lambda: controller.queue.idle)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen == wanted


async def test_a_reconcile_may_ask_to_look_again_later() -> None:
    passes: list[str] = []

    async def reconcile(key: str) -> float | None:
        passes.append(key)
        return 0.001 if len(passes) < 3 else None

    controller = Controller("test", reconcile, random.Random(1))
    controller.add("a")
    running = asyncio.ensure_future(controller.run())
    await eventually(lambda: len(passes) == 3 and controller.queue.idle)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
