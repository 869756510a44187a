"""The recorder in a manager: scenarios of the history on a virtual clock, with restarts and faults of the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from history.recorded_world import WORKLOADS, RecordedWorld, chosen_settings, recorded_server, scenario_in
from kubemachinery import meta, turns
from kubemachinery.client.errors import ApiError, Conflict
from pykueue.api import kube, kueue, registry
from pykueue.client import job_history
from pykueue.client.job_history import HistoryRequest
from pykueue.controllers import history_recorder, history_views
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.history import documents
from pykueue.history.documents import JobRecord
from pykueue.history.learning import runs_of
from pykueue.history.records import WorkloadRecord
from pykueue.history.retention import TRIED_SECONDS, ClockLook
from pykueue.history.store import HistoryStore
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer

T = TypeVar("T")

PODS = registry.KUBERNETES.of(kube.Pod)


class World(RecordedWorld):
    """A server whose history is read."""

    async def submit(self, name: str, seconds: int, cpu: int = 1, **more: Any) -> None:
        await super().submit(name, seconds, cpu, **more)
        await asyncio.sleep(1)

    async def record(self, job: str) -> JobRecord:
        (found,) = [each for each in await self.client.history() if each.job == job]
        return found

    async def workloads(self) -> list[Any]:
        return list((await self.api.list(WORKLOADS)).items)


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[World]:
    chosen = chosen_settings()
    async with recorded_server(chosen) as (embedded, clock):
        yield World(embedded, clock, path, chosen)


scenario = scenario_in(world)


@scenario
async def test_a_record_is_there_after_its_job_is_deleted(made: World) -> None:
    async with made.manager():
        await made.submit("train", 60)
        await asyncio.sleep(90)
        await made.client.cancel("train")
        await asyncio.sleep(60)
        assert await made.workloads() == []
        record = await made.record("train")
    assert (record.state, record.ran_seconds, record.waited_seconds, record.exit_code) == ("Succeeded", 60, 0, 0)
    assert (record.user, record.evictions, record.inexact) == ("admin", 0, False)


@scenario
async def test_a_preempted_job_has_two_attempts(made: World) -> None:
    async with made.manager():
        queue = registry.ALL.of(kueue.ClusterQueue)
        preempting = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await made.api.patch(queue, "default", preempting)
        tree = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 10}
        await made.api.create(registry.ALL.of(kueue.WorkloadPriorityClass), {**tree, "metadata": {"name": "high"}})
        await made.submit("low", 100, cpu=6)
        await asyncio.sleep(29)
        await made.submit("urgent", 50, cpu=6, priority_class="high")
        await asyncio.sleep(300)
        low, urgent = await made.record("low"), await made.record("urgent")
    first, second = low.attempts
    assert (first.reason, first.preemptor, second.reason) == ("Preempted", urgent.metadata.name, "Finished")
    assert (low.evictions, low.state, urgent.evictions) == (1, "Succeeded", 0)
    assert low.ran_seconds >= 130


@scenario
async def test_a_job_deleted_while_it_waits_was_cancelled_and_never_ran(made: World) -> None:
    async with made.manager():
        await made.submit("holder", 1000, cpu=8)
        await made.submit("waits", 10, cpu=8)
        await asyncio.sleep(99)
        await made.client.cancel("waits")
        await asyncio.sleep(60)
        record = await made.record("waits")
    assert (record.state, record.ran_seconds, record.attempts) == ("Cancelled", 0, ())
    assert record.waited_seconds == pytest.approx(100, abs=2)


@scenario
async def test_the_end_of_a_job_without_a_manager_has_its_own_time(made: World) -> None:
    async with made.manager():
        await made.submit("train", 60)
    # The job ends while no manager runs; its Workload is finished by the next one.
    await asyncio.sleep(500)
    async with made.manager():
        await asyncio.sleep(60)
        record = await made.record("train")
    assert (record.state, record.ran_seconds, record.exit_code) == ("Succeeded", 60, 0)
    assert not record.inexact
    (raw,) = (await made.api.list(WORKLOADS)).items
    (finished,) = [each for each in msgspec.json.decode(raw)["status"]["conditions"] if each["type"] == "Finished"]
    assert finished["lastTransitionTime"] == record.ended


@scenario
async def test_an_exit_code_that_is_seen_after_the_end_is_recorded(made: World) -> None:
    assert await exit_code_after_the_end(made, "Failed") == 3


@scenario
async def test_the_exit_code_of_a_job_that_succeeded_after_a_retry_is_zero(made: World) -> None:
    assert await exit_code_after_the_end(made, "Succeeded") == 0


async def exit_code_after_the_end(made: World, reason: str) -> int | None:
    """The watch of pods may be behind that of Workloads; here the pod itself fails after its Workload ended."""
    async with made.manager():
        await made.submit("train", 1000)
        (workload,) = map(msgspec.json.decode, (await made.api.list(WORKLOADS)).items)
        (pod,) = map(msgspec.json.decode, (await made.api.list(PODS)).items)
        now = meta.format_time(made.clock.now())
        finished = {"type": "Finished", "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
        ended = {"status": {"conditions": [*workload["status"]["conditions"], finished]}}
        await made.api.patch(WORKLOADS, workload["metadata"]["name"], ended, "default", subresource="status")
        await asyncio.sleep(5)
        assert (await made.record("train")).exit_code is None
        failed = {"exitCode": 3, "reason": "Error", "startedAt": now, "finishedAt": now}
        status = {"name": "main", "ready": False, "restartCount": 0, "image": "i", "imageID": ""}
        patch = {"status": {"phase": "Failed", "containerStatuses": [{**status, "state": {"terminated": failed}}]}}
        await made.api.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")
        await asyncio.sleep(5)
        return (await made.record("train")).exit_code


@scenario
async def test_the_end_of_a_lost_container_is_a_bound_and_no_run_is_learned(made: World) -> None:
    async with made.manager() as manager:
        assert manager.history is not None
        await made.submit("train", 1000)
        (pod,) = map(msgspec.json.decode, (await made.api.list(PODS)).items)
        now = meta.format_time(made.clock.now())
        lost = {"exitCode": 137, "reason": "Lost", "startedAt": now, "finishedAt": now}
        status = {"name": "main", "ready": False, "restartCount": 0, "image": "i", "imageID": ""}
        patch = {"status": {"phase": "Failed", "containerStatuses": [{**status, "state": {"terminated": lost}}]}}
        await made.api.patch(PODS, pod["metadata"]["name"], patch, "default", subresource="status")
        await asyncio.sleep(60)
        record = await made.record("train")
        known = manager.history.record_of(record.metadata.name)
        assert known is not None
        assert manager.history.run_times.estimate(known) is None
    assert (record.state, record.exit_code, record.inexact) == ("Failed", 137, True)


@scenario
async def test_a_restart_adds_and_changes_nothing(made: World) -> None:
    async with made.manager():
        await made.submit("done", 10)
        await made.submit("running", 10_000)
        await made.submit("waiting", 10, cpu=8)
        await asyncio.sleep(60)
        before = await made.client.history()
    async with made.manager():
        await asyncio.sleep(60)
        after = await made.client.history()
    assert [_times(record) for record in after] == [_times(record) for record in before]
    assert [record.state for record in after] == ["Succeeded", "Running", "Waiting"]


def _times(record: JobRecord) -> Any:
    return record.metadata, record.submitted, record.started, record.ended, record.attempts, record.evictions


@scenario
async def test_a_workload_deleted_without_a_manager_is_held_by_its_finalizer(made: World) -> None:
    async with made.manager():
        await made.submit("train", 1000)
        record = await made.record("train")
    await asyncio.sleep(100)
    await made.api.delete(WORKLOADS, record.workload, "default")
    requested = made.clock.now() // 10**9
    await asyncio.sleep(100)
    async with made.manager():
        await asyncio.sleep(60)
        old = [each for each in await made.client.history() if each.metadata.name == record.metadata.name]
    (found,) = old
    assert found.ended is not None
    from kubemachinery import meta

    assert meta.parse_time(found.ended) // meta.SECOND >= requested
    assert found.state in ("Cancelled", "Failed")
    assert not found.inexact


@scenario
async def test_a_workload_whose_finalizer_was_removed_by_hand_ends_unknown_and_is_a_gap(made: World) -> None:
    async with made.manager():
        await made.submit("train", 1000)
        record = await made.record("train")
    job = registry.ALL.named("job")
    assert job is not None
    await made.api.delete(job, "train", "default")
    await made.api.patch(WORKLOADS, record.workload, {"metadata": {"finalizers": None}}, "default")
    await asyncio.sleep(60)
    assert await made.workloads() == []
    async with made.manager() as manager:
        await asyncio.sleep(5)
        found = await made.record("train")
        gaps = [line for line in manager.metrics.exposition().decode().splitlines() if "history_gaps_total{" in line]
    assert (found.state, found.inexact) == ("Unknown", True)
    assert gaps[0].endswith(" 1.0")


@scenario
async def test_admission_goes_on_while_the_store_refuses_writes_and_nothing_is_lost(made: World) -> None:
    async with made.manager() as manager:
        recorder = manager.history
        assert recorder is not None
        store = recorder._store
        assert store is not None
        store._connection.execute("PRAGMA query_only = ON")
        for number in range(6):
            await made.submit(f"job-{number:02}", 5)
        await asyncio.sleep(60)
        for number in range(6):
            await made.client.cancel(f"job-{number:02}")
        await asyncio.sleep(60)
        assert await made.workloads() == []
        assert recorder._is_failing
        lacking: list[int] = []
        wanted, by = HistoryRequest(namespace="default"), HistoryRequest(namespace="default", by="queue")
        shown = [each async for each in job_history.records(made.api, wanted, on_not_stored=lacking.append)]
        await job_history.usage(made.api, by, lacking.append)
        await job_history.waiting(made.api, by, lacking.append)
        assert (shown, lacking) == ([], [6, 6, 6]), "an answer names what it lacks"
        of_client = await made.client.history()
        assert (of_client, of_client.not_stored) == ([], 6)
        store._connection.execute("PRAGMA query_only = OFF")
        await asyncio.sleep(30)
        found = [each async for each in job_history.records(made.api, wanted, on_not_stored=lacking.append)]
        assert len(lacking) == 3
        assert (await made.client.history()).not_stored == 0
    assert [(record.job, record.state) for record in found] == [(f"job-{n:02}", "Succeeded") for n in range(6)]


@pytest.mark.parametrize(
    ("at_start", "at_end", "after", "marked"),
    [(0, 86_400, 0, True), (86_400, 0, 0, True), (0, -3600, 0, True), (0, 5, 0, False), (0, 0, 86_400, False)],
    ids=["set ahead", "put back", "set back", "by seconds", "after the end"],
)
def test_a_duration_over_which_the_clock_was_set_is_marked_and_counted_and_not_learned(
    at_start: int, at_end: int, after: int, marked: bool, tmp_path: Path
) -> None:
    """[HI17] How far the clock was ahead when a job started, when it ended, and later."""

    @scenario
    async def run(made: World) -> None:
        async with made.manager() as manager:
            made.clock.wrong_by_seconds = at_start
            await made.submit("train", 60)
            await asyncio.sleep(20)
            made.clock.wrong_by_seconds = at_end
            await asyncio.sleep(90)
            made.clock.wrong_by_seconds = after
            await made.submit("next", 5)
            await asyncio.sleep(30)
            record = await made.record("train")
            assert manager.history is not None
            assert (record.state, record.inexact, _gaps(manager)) == ("Succeeded", marked, int(marked))
            assert not (await made.record("next")).inexact
            (known,) = [each for each in manager.history.present().values() if each.job == "train"]
            assert bool(list(runs_of(known))) is not marked

    run(tmp_path)


async def _slowly(items: Iterable[T]) -> AsyncIterator[T]:
    """All items take longer than a finalizer would wait."""
    for item in items:
        yield item
        await asyncio.sleep(2)


def _gaps(manager: Manager) -> int:
    lines = manager.metrics.exposition().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if "history_gaps_total{" in line)


@pytest.mark.parametrize("end", ["killed", "stopped", "stored"])
def test_records_of_deleted_workloads_that_a_full_disk_loses_are_counted(end: str, tmp_path: Path) -> None:
    """[HI16] The record of the first job was stored before: it is one that disappeared. Jobs that still exist are
    recorded again."""

    @scenario
    async def run(made: World) -> None:
        async with made.manager() as manager:
            recorder = manager.history
            assert recorder is not None
            store = recorder._store
            assert store is not None
            await made.submit("before", 5)
            await asyncio.sleep(1)
            store._connection.execute("PRAGMA query_only = ON")
            for number in range(4):
                await made.submit(f"job-{number}", 5)
            await asyncio.sleep(30)
            for name in ("before", "job-0", "job-1", "job-2"):
                await made.client.cancel(name)
            await asyncio.sleep(30)
            if end == "killed":
                recorder._unsaved.clear()
            if end == "stored":
                store._connection.execute("PRAGMA query_only = OFF")
        async with made.manager() as manager:
            await asyncio.sleep(5)
            gaps = _gaps(manager)
            found = await made.client.history()
        if end == "stored":
            assert (gaps, len(found)) == (0, 5)
        else:
            assert gaps == 4
            assert sorted((record.job, record.state) for record in found) == [
                ("before", "Unknown"),
                ("job-3", "Succeeded"),
            ]
        # They are counted once.
        async with made.manager() as manager:
            await asyncio.sleep(5)
            assert _gaps(manager) == 0

    run(tmp_path)


def _answer_after(recorder: HistoryRecorder, seconds: float) -> None:
    """Let each call of the store take so long, one after the other, as in its thread."""
    turn = asyncio.Lock()

    async def run(work: Callable[[], T]) -> T:
        async with turn:
            await asyncio.sleep(seconds)
            return work()

    recorder._work = run


async def _refuse_writes(manager: Manager, *, seconds: float = 0.0) -> HistoryRecorder:
    """Let the store of a manager refuse writes, each after a time."""
    recorder = manager.history
    assert recorder is not None
    assert recorder._store is not None
    recorder._store._connection.execute("PRAGMA query_only = ON")
    if seconds:
        _answer_after(recorder, seconds)
    return recorder


class _FullDisk:
    """A listener that lets every store that is opened from now on refuse writes."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        self._recorder = recorder
        recorder.listeners.append(self)

    def availability_changed(self) -> None:
        if self._recorder._store is not None:
            self._recorder._store._connection.execute("PRAGMA query_only = ON")

    def recorded(self, record: WorkloadRecord) -> None: ...

    def dropped(self, uid: str) -> None: ...


def _lock(made: World) -> Path:
    return made.path.with_name(f"{made.path.name}.lock")


async def _delete_workloads(made: World) -> None:
    for raw in await made.workloads():
        await made.api.delete(WORKLOADS, msgspec.json.decode(raw)["metadata"]["name"], "default")


async def _delete_jobs(made: World) -> None:
    for number in range(4):
        await made.client.cancel(f"job-{number}")


@pytest.mark.parametrize(
    ("seconds", "deletion"),
    [(1000, _delete_workloads), (1000, _delete_jobs), (5, _delete_jobs)],
    ids=["workloads", "running jobs", "finished jobs"],
)
def test_records_of_workloads_that_are_deleted_together_are_noted_before_their_finalizers_go(
    seconds: int, deletion: Callable[[World], Awaitable[None]], tmp_path: Path
) -> None:
    """[HI16] The manager is killed at the moment in which the last of them is gone."""

    @scenario
    async def run(made: World) -> None:
        kept: list[bytes] = []

        def look(change: Any) -> None:
            if change.new is None and len(kept) < 4:
                kept.append(_lock(made).read_bytes())

        async with made.manager() as manager:
            await _refuse_writes(manager, seconds=0.5)
            for number in range(4):
                await made.submit(f"job-{number}", seconds)
            await asyncio.sleep(30)
            manager.informers.workloads.add_handler(look)
            await deletion(made)
            await asyncio.sleep(30)
        assert len(kept) == 4
        _lock(made).write_bytes(kept[-1])
        async with made.manager() as manager:
            await asyncio.sleep(5)
            assert _gaps(manager) == 4

    run(tmp_path)


@scenario
async def test_a_record_that_is_being_stored_is_waited_for_before_the_finalizer_goes(made: World) -> None:
    """[HI6] The batch that has it was begun before the finalizer is to be removed, and the store refuses it."""
    async with made.manager() as manager:
        await made.submit("train", 1000)
        await asyncio.sleep(5)
        recorder = await _refuse_writes(manager, seconds=3)
        (workload,) = manager.informers.workloads.unordered()
        await made.api.patch(WORKLOADS, workload.metadata.name, {"spec": {"priority": 7}}, "default")
        await asyncio.sleep(2)
        began = asyncio.get_running_loop().time()
        await recorder.commit(workload, is_deleted=False)
        took = asyncio.get_running_loop().time() - began
        assert recorder._is_failing, "the outcome of the write is known"
        assert took == pytest.approx(2, abs=0.2), "the next attempt is not waited for"


@scenario
async def test_a_deleted_workload_whose_end_is_being_stored_is_among_the_present_records(made: World) -> None:
    """Budgets count what is stored, and these: if it cannot be stored, it would be in neither."""
    async with made.manager() as manager:
        await made.submit("train", 1000)
        await asyncio.sleep(5)
        recorder = await _refuse_writes(manager, seconds=3)
        (workload,) = manager.informers.workloads.unordered()
        name, uid = workload.metadata.name, workload.metadata.uid
        await made.api.patch(WORKLOADS, name, {"metadata": {"finalizers": None}}, "default")
        await made.api.delete(WORKLOADS, name, "default")
        await asyncio.sleep(2)
        assert recorder.record_of(uid) is None
        assert recorder.present()[uid].state == "Cancelled"
        await asyncio.sleep(7)
        # The second attempt is under way.
        assert recorder.not_stored == 2, "that of the new Workload of the job, too"


@scenario
async def test_losses_are_counted_by_one_manager_only(made: World) -> None:
    """[HI16] Also by one that is killed at once, and by one whose last batch cannot be stored."""
    async with made.manager() as manager:
        await _refuse_writes(manager)
        for number in range(4):
            await made.submit(f"job-{number}", 1000)
        await _delete_jobs(made)
        await asyncio.sleep(30)
    async with made.manager() as manager:
        assert _gaps(manager) == 4
        killed = _lock(made).read_bytes()
    _lock(made).write_bytes(killed)
    async with made.manager() as manager:
        assert _gaps(manager) == 0
        await _refuse_writes(manager)
        await made.submit("late", 1000)
        assert manager.history is not None
        assert manager.history.not_stored or manager.history._unsaved
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert _gaps(manager) == 0


@scenario
async def test_what_the_last_batch_of_a_manager_could_not_store_is_counted(made: World) -> None:
    """[HI16] The manager ends right after a Workload without a finalizer is gone."""
    async with made.manager() as manager:
        recorder = await _refuse_writes(manager)
        await made.submit("job-0", 5)
        await made.submit("job-1", 5)
        await asyncio.sleep(30)
        _answer_after(recorder, 1)
        await made.client.cancel("job-0")
        while len(await made.workloads()) == 2:
            await asyncio.sleep(0.1)
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert _gaps(manager) == 1
        assert [(each.job, each.state) for each in await made.client.history()] == [("job-1", "Succeeded")]
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert _gaps(manager) == 0


@scenario
async def test_a_record_that_is_left_out_because_of_its_number_is_counted_once(made: World) -> None:
    """Of the first job an earlier state is stored: the next manager finds it, without the Workload."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_recorder, "UNSAVED_MAX", 1)
        async with made.manager() as manager:
            await made.submit("job-0", 1000)
            await asyncio.sleep(5)
            await _refuse_writes(manager)
            await made.client.cancel("job-0")
            for number in (1, 2, 3):
                await made.submit(f"job-{number}", 1000)
            for number in (1, 2, 3):
                await made.client.cancel(f"job-{number}")
            await asyncio.sleep(30)
            now = _gaps(manager)
    async with made.manager() as manager:
        await asyncio.sleep(5)
        later = _gaps(manager)
        assert [(each.job, each.state) for each in await made.client.history()] == [("job-0", "Unknown")]
    assert (now, later) == (2, 2)


@scenario
async def test_a_write_that_is_answered_after_its_workload_is_gone_begins_no_record(made: World) -> None:
    async with made.manager() as manager:
        recorder = manager.history
        assert recorder is not None
        await made.submit("train", 1000)
        await asyncio.sleep(5)
        (workload,) = manager.informers.workloads.unordered()
        await made.client.cancel("train")
        await asyncio.sleep(30)
        assert await made.workloads() == []
        revision = str(int(workload.metadata.resource_version) + 1000)
        late = replace(workload, metadata=replace(workload.metadata, resource_version=revision))
        recorder.observe(late)
        await recorder.commit(late, is_deleted=False)
        await asyncio.sleep(5)
        assert [each.state for each in await made.client.history()] == ["Cancelled"]
        assert recorder.record_of(workload.metadata.uid) is None
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert _gaps(manager) == 0


@scenario
async def test_the_record_of_a_workload_whose_deletion_is_refused_goes_on(made: World) -> None:
    """[HI6] Another client has changed it since it was read."""
    async with made.manager() as manager:
        await made.submit("train", 60)
        await asyncio.sleep(20)
        (workload,) = manager.informers.workloads.unordered()
        await made.api.patch(WORKLOADS, workload.metadata.name, {"metadata": {"labels": {"a": "b"}}}, "default")
        changes = (RemoveFinalizer(), DeleteWorkload())
        with pytest.raises(Conflict):
            await manager.writer.workload(workload, changes, "test", made.clock.now())
        await asyncio.sleep(60)
        record = await made.record("train")
    assert (record.state, record.ran_seconds, record.exit_code) == ("Succeeded", 60, 0)
    async with made.manager():
        assert await used_seconds(made) == [("cpu", "60")]


@scenario
async def test_a_file_that_is_damaged_at_start_is_kept_and_a_new_history_begins(made: World) -> None:
    made.path.write_bytes(b"SQLite format 3\0" + b"damaged" * 1000)
    async with made.manager():
        await made.submit("train", 5)
        await asyncio.sleep(30)
        record = await made.record("train")
    assert record.state == "Succeeded"
    (kept,) = made.path.parent.glob("history.db.damaged-*")
    assert kept.read_bytes() == b"SQLite format 3\0" + b"damaged" * 1000


@pytest.mark.parametrize("damage", ["UPDATE record SET attempts = x'c1ff'", "UPDATE record SET state = 99"])
def test_a_file_with_a_damaged_record_is_kept_and_a_new_history_begins(damage: str, tmp_path: Path) -> None:
    """Damage within a value, which SQLite does not find. It does not stop the manager."""

    @scenario
    async def run(made: World) -> None:
        async with made.manager():
            await made.submit("first", 5)
            await asyncio.sleep(30)
        with contextlib.closing(sqlite3.connect(made.path)) as connection, connection:
            assert connection.execute(damage).rowcount == 1
        async with made.manager():
            await made.submit("second", 5)
            await asyncio.sleep(30)
            found = await made.client.history()
        assert sorted((record.job, record.state) for record in found) == [
            ("first", "Succeeded"),
            ("second", "Succeeded"),
        ]
        assert len(list(made.path.parent.glob("history.db.damaged-*[0-9Z]"))) == 1

    run(tmp_path)


@scenario
async def test_a_file_that_is_deleted_while_it_is_used_is_written_again_with_all_records(made: World) -> None:
    async with made.manager():
        await made.submit("before", 5)
        await asyncio.sleep(30)
        await made.client.cancel("before")
        await asyncio.sleep(5)
        for file in made.path.parent.glob("history.db*"):
            file.unlink()
        await made.submit("after", 5)
        await asyncio.sleep(90)
        assert made.path.exists(), "written again with the next record"
        assert [each.job for each in await made.client.history()] == ["before", "after"]
    assert made.path.stat().st_mode & 0o777 == 0o600
    async with made.manager():
        found = await made.client.history()
        assert [(each.job, each.state) for each in found] == [("before", "Succeeded"), ("after", "Succeeded")]
        made.path.unlink()
    # Nothing was recorded since: it is written again when the manager ends.
    async with made.manager():
        assert [each.job for each in await made.client.history()] == ["before", "after"]


@scenario
async def test_a_file_that_is_put_in_the_place_of_the_open_one_is_used(made: World) -> None:
    async with made.manager():
        await made.submit("before", 5)
        await asyncio.sleep(30)
        await made.client.cancel("before")
        await asyncio.sleep(60)
        for file in made.path.parent.glob("history.db*"):
            file.unlink()
        HistoryStore(made.path).close()
        await made.submit("after", 5)
        await asyncio.sleep(90)
        assert [each.job for each in await made.client.history()] == ["after"]


@scenario
async def test_a_file_that_is_no_history_stops_the_history_and_not_the_queue(made: World) -> None:
    made.path.write_bytes(b"thesis, chapter one\n")
    async with made.manager():
        await made.submit("train", 5)
        await asyncio.sleep(30)
        assert (await made.client.status("train")).state == "Succeeded"
        with pytest.raises(ApiError, match=r"is not a history of Workloads, and is not changed"):
            await made.client.history()
    assert made.path.read_bytes() == b"thesis, chapter one\n"
    assert not list(made.path.parent.glob("*damaged*"))


def _damage(manager: Manager) -> None:
    """Overwrite all but the first page of the file that a manager uses."""
    assert manager.history is not None
    store = manager.history._store
    assert store is not None
    assert store.path is not None
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._connection.execute("PRAGMA mmap_size = 0")
    with store.path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (store.path.stat().st_size - 8192))
        os.fsync(file.fileno())
    store._connection.execute("PRAGMA shrink_memory")


@scenario
async def test_a_file_that_is_damaged_while_it_is_used_is_replaced_by_one_with_all_present_workloads(
    made: World,
) -> None:
    async with made.manager() as manager:
        await made.submit("first", 10_000)
        await asyncio.sleep(5)
        _damage(manager)
        await made.submit("second", 10_000)
        await asyncio.sleep(60)
        found = await made.client.history()
    assert sorted(record.job for record in found) == ["first", "second"]
    assert len(list(made.path.parent.glob("history.db.damaged-*"))) == 1


@scenario
async def test_a_file_that_is_damaged_during_the_first_look_is_replaced_once(made: World) -> None:
    async with made.manager():
        await made.submit("holder", 10_000, cpu=8)
        for number in range(4):
            await made.submit(f"waits-{number}", 10, cpu=8)

    errors: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_recorder, "in_turns", _slowly)
        patch.setattr(history_recorder.log, "error", lambda message, *values: errors.append(message % values))
        async with made.manager() as manager:
            assert manager.history is not None
            assert not manager.history.opened.is_set()
            _damage(manager)
            await made.client.cancel("waits-3")
            await asyncio.sleep(60)
            states = {each.job: each.state for each in await made.client.history()}
    assert states == {
        "holder": "Running",
        **{f"waits-{number}": "Waiting" for number in range(3)},
        "waits-3": "Cancelled",
    }
    assert [error.partition(":")[0] for error in errors] == [
        "the history cannot be written, and is kept in memory",
        "the history is damaged",
    ]


@scenario
async def test_records_that_a_damaged_file_had_are_at_risk_until_the_next_file_has_them(made: World) -> None:
    """[HI16] Of Workloads that are deleted, which find the damage or come later, and of one that is over."""
    async with made.manager() as manager:
        recorder = manager.history
        assert recorder is not None
        await made.submit("over", 1)
        for name in ("first", "second", "third"):
            await made.submit(name, 1000)
        await asyncio.sleep(5)
        (first,) = [each for each in recorder.present().values() if each.job == "first"]
        _damage(manager)
        _FullDisk(recorder)
        await made.api.patch(WORKLOADS, first.name, {"metadata": {"finalizers": None}}, "default")
        await made.api.delete(WORKLOADS, first.name, "default")
        await asyncio.sleep(30)
        assert [int(number) for number in _lock(made).read_bytes().split()] == [1, 1]
        await made.client.cancel("second")
        await asyncio.sleep(30)
    async with made.manager() as manager:
        await asyncio.sleep(5)
        found = [(each.job, each.state) for each in await made.client.history()]
        assert sorted(found) == [("first", "Running"), ("over", "Succeeded"), ("third", "Running")]
        assert _gaps(manager) == 2


@scenario
async def test_a_workload_that_was_deleted_before_the_file_was_open_is_at_risk_until_it_is_stored(made: World) -> None:
    other = HistoryStore(made.path)
    async with made.manager() as manager:
        assert manager.history is not None
        _FullDisk(manager.history)
        await made.submit("train", 1000)
        await made.client.cancel("train")
        await asyncio.sleep(10)
        assert await made.workloads() == []
        other.close()
        await asyncio.sleep(60)
        assert manager.history.is_open
    async with made.manager() as manager:
        await asyncio.sleep(5)
        assert await made.client.history() == []
        assert _gaps(manager) == 1


@scenario
async def test_a_newer_file_stops_the_history_and_not_the_queue(made: World) -> None:
    async with made.manager():
        pass
    with sqlite3.connect(made.path) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'layout'")
    connection.close()
    async with made.manager():
        await made.submit("train", 5)
        await asyncio.sleep(30)
        assert (await made.client.status("train")).state == "Succeeded"
        with pytest.raises(ApiError, match="the history has layout 99"):
            await made.client.history()


@scenario
async def test_a_file_that_another_manager_uses_is_not_touched_and_is_used_once_it_is_free(made: World) -> None:
    """The state "in use by another manager" of the store: queueing goes on, and answers have the reason."""
    other = HistoryStore(made.path)
    before = made.path.read_bytes()
    async with made.manager():
        await made.submit("train", 5)
        await asyncio.sleep(30)
        assert (await made.client.status("train")).state == "Succeeded"
        with pytest.raises(ApiError, match=r"history\.db: is in use by another manager"):
            await made.client.history()
        assert made.path.read_bytes() == before
        other.close()
        await asyncio.sleep(31)
        assert [(record.job, record.ran_seconds) for record in await made.client.history()] == [("train", 5)]


@scenario
async def test_records_older_than_the_retention_are_deleted_and_usage_stays(made: World) -> None:
    async with made.manager(retention_seconds=1200):
        await made.submit("old", 100)
        await asyncio.sleep(200)
        await made.client.cancel("old")
        await asyncio.sleep(2800)
        await made.submit("new", 100)
        await asyncio.sleep(700)
        assert [record.job for record in await made.client.history()] == ["new"]
        assert await used_seconds(made) == [("cpu", "200")]


@scenario
async def test_the_usage_of_a_finished_workload_that_outlives_the_retention_is_counted_once(made: World) -> None:
    async with made.manager(retention_seconds=1200):
        await made.submit("train", 100)
        await asyncio.sleep(3700)  # records are deleted once an hour
        assert await used_seconds(made) == [("cpu", "100")]
    async with made.manager(retention_seconds=1200):
        assert [record.job for record in await made.client.history()] == ["train"]
        assert await used_seconds(made) == [("cpu", "100")]
        await made.client.cancel("train")
        await asyncio.sleep(3700)
        assert await made.client.history() == []
        assert await used_seconds(made) == [("cpu", "100")]


DAY = 86_400
KEPT = {"retention_seconds": 30 * DAY}


@scenario
async def test_a_clock_that_is_far_ahead_deletes_no_record(made: World) -> None:
    """[HI15] Also over a restart. Then it is put back."""
    await leave_record(made)
    async with made.manager(**KEPT):
        made.clock.wrong_by_seconds = 365 * DAY
        await asyncio.sleep(7300)
    async with made.manager(**KEPT):
        await asyncio.sleep(7300)
        assert [record.job for record in await made.client.history()] == ["train"]
        made.clock.wrong_by_seconds = 0
        await asyncio.sleep(7300)
        assert [record.job for record in await made.client.history()] == ["train"]
        made.clock.wrong_by_seconds = -365 * DAY
        await asyncio.sleep(7300)
        assert [record.job for record in await made.client.history()] == ["train"]


@scenario
async def test_records_are_deleted_a_week_of_running_after_a_long_stop(made: World) -> None:
    """[HI15] A stop looks like a clock that was set ahead."""
    await leave_record(made)
    made.clock.wrong_by_seconds = 365 * DAY
    async with made.manager(**KEPT):
        await asyncio.sleep(3700)
    with contextlib.closing(HistoryStore(made.path)) as store:
        before, stopped = store.clock_looks()
        assert stopped.shown - before.shown == pytest.approx(365 * DAY, abs=DAY)
        # As if this manager had run on until an hour and a half before the end of the week.
        ran = TRIED_SECONDS - 5400
        store.save_clock_looks([before, ClockLook(ran, stopped.offset + ran)])
    made.clock.wrong_by_seconds += ran
    async with made.manager(**KEPT):
        await asyncio.sleep(3700)
        assert [record.job for record in await made.client.history()] == ["train"]
        await asyncio.sleep(7200)
        assert await made.client.history() == []


@scenario
async def test_a_file_without_looks_at_the_clock_goes_by_its_newest_record(made: World) -> None:
    """[HI15] The file of an earlier version, opened first while the clock is wrong."""
    await leave_record(made)
    with contextlib.closing(sqlite3.connect(made.path)) as connection, connection:
        assert connection.execute("DELETE FROM meta WHERE key = 'clock_looks'").rowcount == 1
    made.clock.wrong_by_seconds = 365 * DAY
    async with made.manager(**KEPT):
        await asyncio.sleep(7300)
        assert [record.job for record in await made.client.history()] == ["train"]


async def leave_record(made: World) -> None:
    """Leave the record of a deleted Workload in the file."""
    async with made.manager(**KEPT):
        await made.submit("train", 100)
        await asyncio.sleep(200)
        await made.client.cancel("train")
        await asyncio.sleep(100)


async def used_seconds(made: World) -> list[tuple[str, str]]:
    """The usage of all days, by resource."""
    usage = await job_history.usage(made.api, HistoryRequest(by="queue"))
    return [(item.resource, item.resource_seconds) for item in usage]


@scenario
async def test_a_clock_that_is_set_back_during_a_run_makes_no_time_negative(made: World) -> None:
    async with made.manager():
        await made.submit("train", 100)
        made.clock.wrong_by_seconds = -3600
        await asyncio.sleep(200)
        record = await made.record("train")
    assert record.state == "Succeeded"
    assert record.ran_seconds == 0
    assert record.waited_seconds == 0
    assert record.ended is not None
    assert record.started is not None
    assert record.ended >= record.started


@scenario
async def test_the_record_is_stored_before_the_finalizer_is_removed(made: World) -> None:
    """A manager that is killed right after a Workload disappeared has its record on the disk."""
    from pykueue.history.queries import RecordFilter

    async with made.manager() as manager:
        await made.submit("train", 5)
        seen: list[str] = []
        recorder = manager.history
        assert recorder is not None

        def look(change: Any) -> None:
            if change.new is not None and not change.new.metadata.finalizers:
                store = recorder._store
                assert store is not None
                seen.extend(record.state for record in store.select(RecordFilter())[0])

        manager.informers.workloads.add_handler(look)
        await asyncio.sleep(30)
    assert seen
    assert seen[0] == "Succeeded"
    HistoryStore(made.path).close()


@scenario
async def test_a_disk_that_hangs_delays_a_finalizer_no_longer_than_the_bound(made: World) -> None:
    async with made.manager() as manager:
        recorder = manager.history
        assert recorder is not None
        await made.submit("train", 50)
        hangs = asyncio.Event()

        async def hanging(work: Callable[[], Any]) -> Any:
            await hangs.wait()
            return work()

        recorder._work = hanging
        await asyncio.sleep(49 + history_recorder.COMMIT_SECONDS + 5)
        (workload,) = await made.workloads()
        assert b'"finalizers"' not in bytes(workload)
        hangs.set()
        await asyncio.sleep(5)
        assert (await made.record("train")).state == "Succeeded"


@scenario
async def test_a_disk_that_hangs_delays_a_deletion_no_longer_than_the_bound(made: World) -> None:
    """[HI6] The first one also does not wait for the note of what is at risk, and later ones do not wait."""
    async with made.manager() as manager:
        recorder = manager.history
        assert recorder is not None
        hangs = asyncio.Event()

        async def hanging(work: Callable[[], Any]) -> Any:
            await hangs.wait()
            return work()

        recorder._work = hanging
        for name in ("first", "second", "third"):
            await made.submit(name, 1000)
        took: list[float] = []
        loop = asyncio.get_running_loop()
        for name in ("first", "second", "third"):
            record = next(each for each in recorder.present().values() if each.job == name)
            gone = asyncio.Event()

            def look(change: Any, uid: str = record.uid, gone: asyncio.Event = gone) -> None:
                if change.new is None and change.old.metadata.uid == uid:
                    gone.set()

            manager.informers.workloads.add_handler(look)
            began = loop.time()
            await made.api.delete(WORKLOADS, record.name, "default")
            await gone.wait()
            took.append(loop.time() - began)
        assert took[0] <= history_recorder.COMMIT_SECONDS + 0.5
        assert max(took[1:]) <= 0.5
        hangs.set()
        await asyncio.sleep(10)
        states = [each.state for each in await made.client.history()]
        assert sorted(states) == [*["Cancelled"] * 3, *["Running"] * 3], "each job has a new Workload"
        # It answers again, and refuses writes: the removal of a finalizer waits for the note again.
        _answer_after(recorder, 0.0)
        await _refuse_writes(manager, seconds=0.5)
        await made.submit("fourth", 1000)
        record = next(each for each in recorder.present().values() if each.job == "fourth")
        noted: list[int] = []

        def look_at_note(change: Any) -> None:
            if change.new is None:
                noted.append(sum(map(int, _lock(made).read_bytes().split())))

        manager.informers.workloads.add_handler(look_at_note)
        await made.api.delete(WORKLOADS, record.name, "default")
        await asyncio.sleep(10)
        assert noted == [1]


@scenario
async def test_workloads_that_change_during_the_first_look_are_recorded_as_they_are(made: World) -> None:
    async with made.manager():
        await made.submit("holder", 10_000, cpu=8)
        for number in range(8):
            await made.submit(f"waits-{number}", 10, cpu=8)

    errors: list[str] = []
    made.path = made.path.with_name("another.sqlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_recorder, "in_turns", _slowly)
        patch.setattr(history_recorder.log, "error", lambda message, *values: errors.append(message % values))
        async with made.manager() as manager:
            assert manager.history is not None
            assert not manager.history.opened.is_set()
            assert len(await made.workloads()) == 9
            await made.client.cancel("waits-7")
            await asyncio.sleep(10)
            assert len(await made.workloads()) == 8
            await made.submit("late", 10, cpu=8)
            assert not manager.history.opened.is_set(), "the first look goes on"
            await asyncio.sleep(30)
            assert manager.history.opened.is_set()
            states = {each.job: each.state for each in await made.client.history()}
    waiting = {f"waits-{number}": "Waiting" for number in range(7)}
    assert states == {"holder": "Running", **waiting, "waits-7": "Cancelled", "late": "Waiting"}
    assert not errors, "what a finalizer waits for is saved during the look"


def test_a_page_of_records_is_made_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a filter that few of many records match keeps the store from being written, and the loop, for no long time."""
    monkeypatch.setattr(history_views, "READ_TOGETHER", 2)
    asked, iterations, seen = 0, 0, []

    @scenario
    async def pages(made: World) -> None:
        nonlocal asked
        async with made.manager() as manager:
            for name, cpu in (("a", 2), ("b", 1), ("c", 1), ("d", 1), ("e", 2), ("f", 1), ("g", 2)):
                await made.submit(name, 1, cpu)
            recorder = manager.history
            assert recorder is not None
            ask, item = recorder.ask, documents.record_item

            async def counted(question: Any) -> Any:
                nonlocal asked
                asked += 1
                return await ask(question)

            def noted(*given: Any) -> Any:
                seen.append(iterations)
                return item(*given)

            monkeypatch.setattr(recorder, "ask", counted)
            monkeypatch.setattr(documents, "record_item", noted)
            turns.limit(asyncio.get_running_loop(), -1)
            counting = asyncio.create_task(count())
            large = HistoryRequest(larger_than=("cpu=1",))
            assert [each.job async for each in job_history.records(made.api, large)] == ["a", "e", "g"]
            assert asked == 4
            first = [each.job async for each in job_history.records(made.api, large, limit=2)]
            assert (first, asked) == (["a", "e"], 7)
            seen.clear()
            monkeypatch.setattr(history_views, "READ_TOGETHER", 100)
            assert len([each async for each in job_history.records(made.api, HistoryRequest())]) == 7
            assert len(set(seen)) > 3, "the loop continues between records"
            counting.cancel()

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    pages(tmp_path)


@scenario
async def test_a_list_of_records_has_pages_and_refuses_unknown_parameters(made: World) -> None:
    from kubemachinery.client.transport import ApiRequest

    path = "/apis/views.pykueue.io/v1alpha1/namespaces/default/workloadrecords"
    async with made.manager():
        for name in ("a", "b", "c"):
            await made.submit(name, 1)
        import msgspec

        first = msgspec.json.decode((await made.api.request(ApiRequest("GET", path, (("limit", "2"),)))).body)
        token = first["metadata"]["continue"]
        rest = msgspec.json.decode((await made.api.request(ApiRequest("GET", path, (("continue", token),)))).body)
        assert [item["job"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
        assert (first["kind"], rest["metadata"]) == ("WorkloadRecordList", {})
        for query, sentence in (
            (("sinse", "x"), "sinse: is not a parameter of workloadrecords"),
            (("since", "yesterday"), "since yesterday"),
            (("state", "Sleeping"), "state Sleeping: must be one of"),
            (("largerThan", "gpu"), "must be RESOURCE=QUANTITY"),
            (("continue", "x"), "is not the token of a page"),
            (("continue", documents.token(2**63)), "is not the token of a page"),
            (("evicted", "maybe"), "evicted maybe: must be true or false"),
            (("limit", "many"), "limit many: must be a whole number"),
        ):
            with pytest.raises(ApiError, match=sentence):
                await made.api.request(ApiRequest("GET", path, (query,)))
        window = (("since", "2026-11-19T00:00:00Z"), ("until", "2026-11-01T00:00:00Z"))
        with pytest.raises(ApiError, match="until 2026-11-01T00:00:00Z: is before since 2026-11-19T00:00:00Z"):
            await made.api.request(ApiRequest("GET", path, window))
        nowhere = await job_history.read(made.api, documents.RECORDS, HistoryRequest(namespace="bad/../ns"))
        assert nowhere["items"] == [], "a name that is none is not a server without a history"
