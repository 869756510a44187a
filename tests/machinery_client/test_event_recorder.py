"""The Event recorder: Events are written in the background, repetitions counted, and callers never wait."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
from msgspec.structs import replace

import virtual
from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.event_recorder import (
    EVENTS,
    NORMAL,
    EventRecorder,
    EventReference,
    PendingEvent,
    truncate_note,
)
from kubemachinery.clock import SystemClock
from virtual import virtual_time
from waiting import eventually

REGARDING = EventReference("v1", "ConfigMap", "a", "default", "uid-a")


async def events(client: ApiClient) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in (await client.list(EVENTS, "default")).items]


def note(reason: str = "Started", text: str = "it started", **more: Any) -> PendingEvent:
    return PendingEvent(REGARDING, NORMAL, reason, text, "test-controller", **more)


async def test_event_regards_its_object(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    running = asyncio.ensure_future(recorder.run())
    recorder.emit(note())
    (event,) = await eventually(lambda: events(client))
    running.cancel()
    assert event["regarding"]["uid"] == "uid-a"
    assert (event["type"], event["reason"], event["note"]) == ("Normal", "Started", "it started")
    assert (event["reportingController"], event["reportingInstance"]) == ("test-controller", "me")


async def test_repeated_event_is_counted_in_a_series(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for _ in range(5):
        recorder.emit(note())
    recorder.emit(note("Stopped"))
    running = asyncio.ensure_future(recorder.run(writers=1))
    found: dict[str, Any] = {}

    async def both() -> bool:
        found.update({event["reason"]: event for event in await events(client)})
        return set(found) == {"Started", "Stopped"}

    await eventually(both)  # one writer, so Events are written in the order in which they were emitted
    running.cancel()
    assert client.sent["POST", "events"] == 2
    assert found["Started"]["series"]["count"] == 2, "the first repetition is written at once, the rest after a while"


async def written_events(client: ApiClient, recorder: EventRecorder, *notes: PendingEvent) -> list[tuple[str, int]]:
    """Note and count of every stored Event, in the order of writing."""
    for each in notes:
        recorder.emit(each)
    running = asyncio.ensure_future(recorder.run(writers=1))

    async def idle() -> bool:
        return recorder.idle

    await eventually(idle)
    running.cancel()
    found = sorted(await events(client), key=lambda event: str(event["eventTime"]))
    return [(event["note"], event.get("series", {}).get("count", 1)) for event in found]


async def test_events_that_differ_in_their_note_only_are_one_series(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    found = await written_events(client, recorder, note(text="first"), note(text="second"))
    assert found == [("first", 2)]


async def test_event_about_a_newer_revision_starts_a_new_series(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    newer = replace(REGARDING, resource_version="2")
    found = await written_events(client, recorder, note(), replace(note(), regarding=newer))
    assert found == [("it started", 1), ("it started", 1)]


async def test_events_with_different_actions_are_different_series(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    found = await written_events(client, recorder, note(action="A"), note(action="B"))
    assert [count for _, count in found] == [1, 1]


async def test_recorder_of_a_kubernetes_component_compares_notes(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me", compares_notes=True)
    newer = replace(note(text="first"), regarding=replace(REGARDING, resource_version="2"))
    found = await written_events(client, recorder, note(text="first"), note(text="second"), newer)
    assert found == [("first", 2), ("second", 1)]


@virtual_time
async def test_series_that_have_ended_are_not_kept() -> None:
    """A repetition within six minutes keeps its series; the others are dropped, however many there were."""
    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me")
        running = asyncio.ensure_future(recorder.run())
        recorder.emit(note("Repeated"))
        for number in range(50):
            recorder.emit(note(f"Reason{number}"))
        await asyncio.sleep(300)
        recorder.emit(note("Repeated"))
        await asyncio.sleep(100)
        recorder.emit(note("Last"))
        await asyncio.sleep(1)
        assert len(recorder._series) == 2
        recorder.emit(note("Repeated"))
        await asyncio.sleep(40)
        running.cancel()
        (repeated,) = (event for event in await events(client) if event["reason"] == "Repeated")
        assert repeated["series"]["count"] == 3


def test_kept_series_contain_nothing_of_their_events() -> None:
    """Thousands are kept: the text of the Event and its objects would be most of their size."""
    recorder = EventRecorder(ApiClient(None, random.Random()), SystemClock(), "me", compares_notes=True)  # type: ignore[arg-type]
    assert len(recorder._series_key(note(text="x" * 1000))) == 16


async def test_redundant_events_are_dropped_under_load(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for number in range(60):
        recorder.emit(note(f"Reason{number}"))
    recorder.emit(note("QuotaReserved", redundant=True))
    recorder.emit(note("Admitted"))
    assert recorder.dropped == 1


async def test_full_queue_drops_the_oldest_and_counts_them(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for number in range(303):
        recorder.emit(note(f"Reason{number}"))
    assert recorder.dropped == 3


async def test_full_queue_drops_the_oldest_routine_event_first(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    recorder.emit(note("Preempted"))
    recorder.emit(note("Admitted", "the first", routine=True))
    recorder.emit(note("Admitted", "the second", routine=True))
    for number in range(298):
        recorder.emit(note(f"Reason{number}"))
    assert recorder.dropped == 1
    running = asyncio.ensure_future(recorder.run())
    # The one before it is dropped only if no routine Event is left.
    await eventually(lambda: events(client))
    running.cancel()
    assert min(await events(client), key=lambda each: str(each["eventTime"]))["reason"] == "Preempted"


async def test_routine_event_drops_no_other_from_a_full_queue(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    recorder.emit(note("Preempted"))
    for number in range(299):
        recorder.emit(note(f"Reason{number}"))
    recorder.emit(note("Admitted", routine=True))
    assert recorder.dropped == 1
    running = asyncio.ensure_future(recorder.run())
    await eventually(lambda: events(client))
    running.cancel()
    assert min(await events(client), key=lambda each: str(each["eventTime"]))["reason"] == "Preempted"


@virtual_time
async def test_routine_events_are_written_after_the_others() -> None:
    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me")
        for number in range(60):
            recorder.emit(note(f"Admitted{number}", routine=True))
        for number in range(60):
            recorder.emit(note(f"Preempted{number}"))
        running = asyncio.ensure_future(recorder.run())
        await asyncio.sleep(0.01)
        written = [each["reason"] for each in await events(client)]
        assert len(written) == 100
        assert sum(reason.startswith("Preempted") for reason in written) == 60
        running.cancel()


@virtual_time
async def test_routine_events_are_left_out_while_other_writes_leave_no_place() -> None:
    """Also those that wait already. What follows is written at the rate, without a burst."""
    leaves_out = False
    async with virtual.server() as client:
        recorder = EventRecorder(
            client, SystemClock(), "me", may_write=lambda: not leaves_out, leaves_out=lambda: leaves_out
        )
        recorder.emit(note("Admitted0", routine=True))
        leaves_out = True
        running = asyncio.ensure_future(recorder.run())
        for number in range(1, 4):
            recorder.emit(note(f"Admitted{number}", routine=True))
        for number in range(60):
            recorder.emit(note(f"Preempted{number}"))
        await asyncio.sleep(2)
        assert recorder.dropped == 4
        assert await events(client) == []
        recorder.emit(note("Admitted4", routine=True))
        leaves_out = False
        await asyncio.sleep(3)
        written = {each["reason"] for each in await events(client)}
        assert 29 <= len(written) <= 31
        assert all(reason.startswith("Preempted") for reason in written)
        recorder.emit(note("Admitted5", routine=True))
        await asyncio.sleep(5)
        assert "Admitted5" in {each["reason"] for each in await events(client)}
        running.cancel()


async def test_important_event_is_written_first(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for number in range(250):
        recorder.emit(note(f"Reason{number}"))
    recorder.emit(note("EvictionLoop", important=True))
    for number in range(300):
        recorder.emit(note(text=f"later {number}"))
    running = asyncio.ensure_future(recorder.run(writers=1))
    first = await eventually(lambda: events(client))
    running.cancel()
    assert first[0]["reason"] == "EvictionLoop"


@virtual_time
async def test_recorder_is_idle_when_all_events_are_written() -> None:
    """The last few are no longer queued, and wait for the rate limiter."""
    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me")
        for number in range(103):
            recorder.emit(note(f"Reason{number}"))
        running = asyncio.ensure_future(recorder.run())
        await eventually(lambda: recorder.idle)
        running.cancel()
        assert len(await events(client)) == 103


@virtual_time
async def test_burst_of_events_is_written_at_once_and_then_at_the_rate() -> None:
    """The burst is a hundred; after that the rate is ten a second."""
    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me")
        for number in range(200):
            recorder.emit(note(f"Reason{number}"))
        running = asyncio.ensure_future(recorder.run())
        await asyncio.sleep(0.01)
        assert client.sent["POST", "events"] == 100
        await asyncio.sleep(3)
        assert client.sent["POST", "events"] == 130
        running.cancel()


@virtual_time
async def test_event_is_written_when_it_may_be_written_beside_other_writes() -> None:
    """Each one asks. An important one waits for no other."""
    allowed = 3

    def may_write() -> bool:
        nonlocal allowed
        allowed -= 1
        return allowed >= 0

    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me", may_write=may_write)
        for number in range(60):
            recorder.emit(note(f"Reason{number}"))
        running = asyncio.ensure_future(recorder.run())
        await asyncio.sleep(5)
        assert client.sent["POST", "events"] == 3
        recorder.emit(note("EvictionLoop", important=True))
        await asyncio.sleep(0.2)
        assert "EvictionLoop" in {each["reason"] for each in await events(client)}
        assert client.sent["POST", "events"] <= 3 + 2, "it is written with the Event that was next"
        allowed = 1_000
        await asyncio.sleep(0.2)
        assert client.sent["POST", "events"] == 61
        running.cancel()


def test_long_note_is_truncated_to_the_limit_of_the_api() -> None:
    assert len(truncate_note("x" * 5000)) == 1024
    assert truncate_note("x" * 5000).endswith(" ...")
    assert truncate_note("short") == "short"


async def test_important_event_does_not_give_way(client: ApiClient) -> None:
    def may_write() -> bool:
        raise AssertionError("an important Event waits for nothing")

    recorder = EventRecorder(client, SystemClock(), "me", may_write=may_write)
    assert len(await written_events(client, recorder, note("EvictionLoop", important=True))) == 1


async def test_the_time_of_an_event_is_when_it_was_emitted(client: ApiClient) -> None:
    clock = SystemClock()
    recorder = EventRecorder(client, clock, "me", may_write=lambda: clock.now() > emitted + meta.SECOND // 5)
    recorder.emit(note())
    emitted = clock.now()
    running = asyncio.ensure_future(recorder.run())
    (event,) = await eventually(lambda: events(client))
    running.cancel()
    assert meta.parse_time(event["eventTime"]) <= emitted
