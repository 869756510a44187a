"""The work queue: keys are deduplicated, none is lost, and no two workers process one."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from kubemachinery.client import errors
from kubemachinery.client.controller import Controller
from kubemachinery.client.priority import LOW, NORMAL
from kubemachinery.client.workqueue import WorkQueue
from kubemachinery.process import event_loop
from waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(random.Random(1))


async def taken(queue: WorkQueue[str]) -> str | None:
    return await asyncio.wait_for(queue.get(), PATIENCE_SECONDS)


async def test_key_added_twice_is_queued_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    assert len(queue) == 0


async def test_key_added_while_processing_is_queued_again(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await taken(queue)
    queue.add("a")
    queue.add("b")
    assert await taken(queue) == "b"
    queue.done("a")
    assert await taken(queue) == "a"


async def test_queue_contains_a_key_until_it_is_taken_and_again_if_it_is_added_meanwhile(queue: WorkQueue[str]) -> None:
    assert "a" not in queue
    queue.add("a")
    assert "a" in queue
    await taken(queue)
    assert "a" not in queue
    queue.add("a")
    assert "a" in queue


async def test_normal_priority_is_processed_before_low(queue: WorkQueue[str]) -> None:
    queue.add("old", priority=LOW)
    queue.add("older", priority=LOW)
    queue.add("new")
    queue.add("older")
    assert [await taken(queue) for _ in range(3)] == ["new", "older", "old"]


async def test_other_tasks_run_while_many_outdated_entries_are_skipped(queue: WorkQueue[str]) -> None:
    many = [str(number) for number in range(20_000)]
    for key in many:
        queue.add(key, priority=LOW)
    for key in many:
        queue.add(key)
    for key in many:
        assert await queue.get() == key
        queue.done(key)
    queue.add("last", priority=LOW)
    iterations, over = 0, asyncio.Event()

    async def count() -> None:
        nonlocal iterations
        while not over.is_set():
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await taken(queue) == "last"
    over.set()
    await counting
    assert iterations >= 4
    queue.done("last")
    assert queue.idle


async def test_earliest_delay_counts(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    assert await taken(queue) == "a"
    queue.done("a")
    assert queue.idle


def test_delays_that_are_over_when_they_are_set_end_on_the_loop_of_servers() -> None:
    """Between reading the clock and setting the timer a short delay may end; uvloop returns another kind of handle."""

    async def run() -> list[str | None]:
        queue: WorkQueue[str] = WorkQueue(random.Random(1))
        for number in range(200):
            queue.add_after(str(number), 1e-9)
            queue.add_after(str(number), 1e-10)
        return sorted([await taken(queue) for _ in range(200)], key=str)

    with event_loop() as runner:
        assert runner.run(run()) == sorted(map(str, range(200)))


async def test_a_cancelled_delay_queues_nothing_and_leaves_other_keys_alone(queue: WorkQueue[str]) -> None:
    for key in ("a", "b"):
        queue.add_after(key, 0.01)
    queue.add("c")
    queue.cancel_delay("a")
    queue.cancel_delay("c")
    queue.cancel_delay("never delayed")
    assert [await taken(queue), await taken(queue)] == ["c", "b"]
    for key in ("c", "b"):
        queue.done(key)
    assert queue.idle


async def test_cancelled_and_replaced_delays_are_not_kept_until_they_end(queue: WorkQueue[str]) -> None:
    def kept() -> int:
        tuples = (each for each in gc.get_objects() if type(each) is tuple and each)
        return sum(isinstance(each[-1], str) and each[-1].startswith("deleted-") for each in tuples)

    queue.add_after("stays", 0.05)
    for number in range(1000):
        queue.add_after(f"deleted-{number}", 3600)
        queue.add_after(f"deleted-{number}", 1800)
        queue.cancel_delay(f"deleted-{number}")
    assert kept() < 200
    assert await taken(queue) == "stays"


async def test_flush_queues_delayed_keys(queue: WorkQueue[str]) -> None:
    for key in ("a", "b"):
        queue.add_after(key, 3600)
    queue.flush_delayed()
    assert [await taken(queue), await taken(queue)] == ["a", "b"]
    for key in ("a", "b"):
        queue.done(key)
    assert queue.idle, "no key is queued a second time"


async def test_queue_is_busy_while_processing_and_not_while_delayed(queue: WorkQueue[str]) -> None:
    queue.add_after("later", 60)
    assert (queue.busy, queue.idle) == (False, False)
    queue.add("a")
    assert await taken(queue) == "a"
    assert queue.busy
    queue.done("a")
    assert not queue.busy


async def test_backoff_grows_until_a_success(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.add_rate_limited("a")
    assert queue.num_requeues("a") == 3
    queue.forget("a")
    assert queue.num_requeues("a") == 0


async def test_close_wakes_all_waiting_workers(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*waiting) == [None, None, None]


async def test_cancelled_get_loses_no_key(queue: WorkQueue[str]) -> None:
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, PATIENCE_SECONDS) == "a"


@pytest.mark.parametrize("seed", range(5))
async def test_key_is_never_processed_twice_at_once_and_no_change_is_missed(seed: int) -> None:
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


async def test_reconcile_result_requeues_after_a_delay() -> None:
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
