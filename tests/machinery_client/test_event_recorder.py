"""Events: written in the background, the same thing counted, never in anybody's way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

import virtual
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


async def test_a_note_becomes_an_event_about_its_object(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    running = asyncio.ensure_future(recorder.run())
    recorder.emit(note())
    (event,) = await eventually(lambda: events(client))
    running.cancel()
    assert event["regarding"]["uid"] == "uid-a"
    assert (event["type"], event["reason"], event["note"]) == ("Normal", "Started", "it started")
    assert (event["reportingController"], event["reportingInstance"]) == ("test-controller", "me")


async def test_the_same_note_again_is_counted_not_repeated(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for _ in range(5):
        recorder.emit(note())
    recorder.emit(note("Stopped"))
    running = asyncio.ensure_future(recorder.run(writers=1))
    found: dict[str, Any] = {}

    async def both() -> bool:
        found.update({event["reason"]: event for event in await events(client)})
        return set(found) == {"Started", "Stopped"}

    await eventually(both)  # one writer, so what was told before the last is written before it
    running.cancel()
    assert client.sent["POST", "events"] == 2
    assert found["Started"]["series"]["count"] == 2, "the first repetition is written at once, the rest after a while"


async def written_events(client: ApiClient, recorder: EventRecorder, *notes: PendingEvent) -> list[tuple[str, int]]:
    """Note and count of every Event that these notes leave, in the order of writing."""
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


async def test_in_a_rush_what_another_note_says_as_well_is_left_out(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for number in range(60):
        recorder.emit(note(f"Reason{number}"))
    recorder.emit(note("QuotaReserved", redundant=True))
    recorder.emit(note("Admitted"))
    assert recorder.dropped == 1


async def test_a_full_line_loses_the_oldest_and_says_how_many(client: ApiClient) -> None:
    recorder = EventRecorder(client, SystemClock(), "me")
    for number in range(303):
        recorder.emit(note(f"Reason{number}"))
    assert recorder.dropped == 3


async def test_important_event_is_written_first_however_many_wait(client: ApiClient) -> None:
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
async def test_a_recorder_is_idle_when_all_is_written() -> None:
    """The last few are out of the line, and wait for their turn to be sent."""
    async with virtual.server() as client:
        recorder = EventRecorder(client, SystemClock(), "me")
        for number in range(103):
            recorder.emit(note(f"Reason{number}"))
        running = asyncio.ensure_future(recorder.run())
        await eventually(lambda: recorder.idle)
        running.cancel()
        assert len(await events(client)) == 103


@virtual_time
async def test_a_rush_is_written_at_once_and_then_at_a_pace() -> None:
    """A hundred have been saved up; after that it is ten a second."""
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


def test_a_long_note_is_cut_where_the_api_would_refuse_it() -> None:
    assert len(truncate_note("x" * 5000)) == 1024
    assert truncate_note("x" * 5000).endswith(" ...")
    assert truncate_note("short") == "short"
