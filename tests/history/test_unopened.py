"""Histories whose file cannot be opened when a manager begins to lead, and managers that lead again: every record is
stored or counted as lost, and none is both [HI16]."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from history.recorded_world import WORKLOADS, RecordedWorld, chosen_settings, recorded_server, scenario_in
from kubemachinery.client.errors import NotFound
from pykueue.app import options
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import inline_worker
from pykueue.history.queries import RecordFilter
from pykueue.history.store import HistoryStore, HistoryStoreError, RecordsAtRisk, RiskNote


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[RecordedWorld]:
    chosen = chosen_settings()
    async with recorded_server(chosen) as (embedded, clock):
        yield RecordedWorld(embedded, clock, path, chosen)


scenario = scenario_in(world)


@contextmanager
def unopenable(path: Path) -> Iterator[None]:
    """SQLite cannot make its write-ahead log, as on a full disk."""
    obstacle = log_of(path)
    obstacle.mkdir()
    try:
        yield
    finally:
        if obstacle.is_dir():
            obstacle.rmdir()


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def gaps(manager: Manager) -> int:
    lines = manager.metrics.exposition().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if "history_gaps_total{" in line)


async def remove(made: RecordedWorld, name: str) -> None:
    """Delete a job, until its Workload is gone."""
    (workload,) = [each for each in await workloads(made) if name in each]
    await made.client.cancel(name)
    while workload in await workloads(made):
        await asyncio.sleep(1)


async def workloads(made: RecordedWorld) -> list[str]:
    """The names of the Workloads."""
    found = (await made.api.list(WORKLOADS)).items
    return [msgspec.json.decode(raw)["metadata"]["name"] for raw in found]


def lock(made: RecordedWorld) -> Path:
    return made.path.with_name(f"{made.path.name}.lock")


async def recorded(made: RecordedWorld) -> dict[str, str]:
    return {record.job: record.state for record in await made.client.history()}


@pytest.mark.parametrize("end", ["killed", "stopped", "opened"])
def test_workloads_that_are_deleted_before_the_file_can_be_opened_are_counted(end: str, tmp_path: Path) -> None:
    """The record of the first job was stored before: its deletion loses nothing."""

    @scenario
    async def run(made: RecordedWorld) -> None:
        async with made.manager():
            await made.submit("before", 5)
            await asyncio.sleep(30)
        with unopenable(made.path):
            async with made.manager() as manager:
                assert manager.history is not None
                assert manager.history.problem
                for name in ("deleted", "over", "runs"):
                    await made.submit(name, 1000 if name == "runs" else 5)
                await asyncio.sleep(40)
                await remove(made, "before")
                await remove(made, "deleted")
                await asyncio.sleep(1)
                noted = lock(made).read_bytes()
                if end == "opened":
                    log_of(made.path).rmdir()
                    await asyncio.sleep(40)
                    assert manager.history.is_open
                    assert gaps(manager) == 0
        if end == "killed":
            lock(made).write_bytes(noted)
        async with made.manager() as manager:
            await asyncio.sleep(5)
            assert gaps(manager) == (0 if end == "opened" else 1)
            kept = {"deleted": "Succeeded"} if end == "opened" else {}
            assert await recorded(made) == {"before": "Succeeded", "over": "Succeeded", "runs": "Running", **kept}
        async with made.manager() as manager:
            assert gaps(manager) == 0

    run(tmp_path)


@scenario
async def test_a_workload_that_is_over_and_deleted_after_the_manager_was_killed_is_counted(made: RecordedWorld) -> None:
    """Its finalizer went while the file could not be opened."""
    async with made.manager():
        pass
    with unopenable(made.path):
        async with made.manager():
            await made.submit("over", 5)
            await made.submit("stays", 5)
            await asyncio.sleep(40)
            noted = lock(made).read_bytes()
    lock(made).write_bytes(noted)
    (name,) = [each for each in await workloads(made) if "over" in each]
    await made.api.delete(WORKLOADS, name, "default")
    with pytest.raises(NotFound):
        await made.api.get(WORKLOADS, name, "default")
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert gaps(manager) == 1


@scenario
async def test_losses_of_the_manager_before_stay_noted_while_the_file_cannot_be_opened(made: RecordedWorld) -> None:
    async with made.manager():
        pass
    lock(made).write_bytes(b"%019d %019d" % (3, 2))
    with unopenable(made.path):
        for name in ("first", "second"):
            async with made.manager() as manager:
                await made.submit(name, 5)
                await asyncio.sleep(40)
                await remove(made, name)
                assert gaps(manager) == 0, "not counted before the losses of both can be distinguished"
    async with made.manager() as manager:
        assert gaps(manager) == 3 + 2 + 2


def test_numbers_are_kept_only_beside_a_file_that_was_used_before(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with pytest.raises(HistoryStoreError, match="was not used as a history before"):
        RiskNote(path)
    assert list(tmp_path.iterdir()) == []
    HistoryStore(path).close()
    note = RiskNote(path)
    note.note_risk(RecordsAtRisk(4, 5))
    with pytest.raises(HistoryStoreError, match="in use by another manager"):
        HistoryStore(path)
    note.close()
    store = HistoryStore(path)
    assert store.noted_before == RecordsAtRisk(4, 5)
    store.close()


def second(made: RecordedWorld, path: Path) -> Manager:
    """A manager with a history of its own, which follows and does not lead yet."""
    kept = options.history_options(made.chosen, path, worker=lambda: inline_worker)
    chosen = options.manager_options(made.chosen, kept, is_real_time=False)
    return Manager(made.api, chosen, made.clock, random.Random(9))


def workload(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": "default", "podSets": [pods]},
    }


@asynccontextmanager
async def leading(manager: Manager) -> AsyncIterator[None]:
    task = asyncio.create_task(manager.lead())
    try:
        await asyncio.sleep(2)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@scenario
async def test_a_manager_that_leads_twice_before_its_file_can_be_opened_counts_nothing(made: RecordedWorld) -> None:
    HistoryStore(made.path).close()
    manager = second(made, made.path)
    async with manager.reading():
        with unopenable(made.path):
            for name in ("one", "two"):
                async with leading(manager):
                    # Without a finalizer: only the history of this manager is led twice.
                    await made.api.create(WORKLOADS, workload(name))
                    await asyncio.sleep(2)
                    await made.api.patch(WORKLOADS, name, {"metadata": {"finalizers": None}}, "default")
                    await made.api.delete(WORKLOADS, name, "default")
                    await asyncio.sleep(2)
        async with leading(manager):
            await asyncio.sleep(5)
            assert gaps(manager) == 0
            assert manager.history is not None
            found, _ = await manager.history.ask(lambda store: store.select(RecordFilter()))
            assert sorted(record.job for record in found) == ["one", "two"]


async def fill_up_and_finish(made: RecordedWorld, manager: Manager) -> None:
    """A job finishes and its finalizer goes while the store of a manager refuses writes."""
    assert manager.history is not None
    assert manager.history._store is not None
    manager.history._store._connection.execute("PRAGMA query_only = ON")
    await made.submit("over", 5)
    await asyncio.sleep(40)


@pytest.mark.parametrize("process", ["same", "new"])
def test_a_manager_with_a_history_of_its_own_does_not_count_what_it_records_later(process: str, tmp_path: Path) -> None:
    """It led while its disk was full, another one leads when the Workload is deleted, and it leads again."""

    @scenario
    async def run(made: RecordedWorld) -> None:
        own = tmp_path / "second.db"
        first = second(made, own)
        async with first.reading():
            async with leading(first):
                await fill_up_and_finish(made, first)
            again = first if process == "same" else second(made, own)
            if process == "new":
                async with again.reading():
                    await between(made, again)
            else:
                await between(made, again)

    async def between(made: RecordedWorld, again: Manager) -> None:
        async with made.manager():
            await asyncio.sleep(30)
            await remove(made, "over")
        async with leading(again):
            await asyncio.sleep(5)
            assert gaps(again) == 0
            assert again.history is not None
            found, _ = await again.history.ask(lambda store: store.select(RecordFilter()))
            assert [(record.job, record.state) for record in found] == [("over", "Succeeded")]

    run(tmp_path)
