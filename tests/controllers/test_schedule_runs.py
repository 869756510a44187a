"""Random runs with QuotaSchedules and restarts, checked on the stored objects alone; and planted bugs.

The checker shares no code with the product: it reads windows, quotas and usage from JSON, and works out the quota of an
instant by the text of the rules (QS1, QS4, QS5). Checked every 30 seconds: the effective quota in the status, and with
`onStart: Evict`, that a minute after an edge no ClusterQueue uses more than its quota (QS-L3, QS-L7).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import ON, SCHEDULES, Site, target
from kubemachinery.meta import SECOND
from kubemachinery.unstructured import get
from pykueue import calendars
from pykueue.state import quota_windows, quota_withdrawal
from pykueue.state.quota_windows import QuotaWindows, WindowSpan
from pykueue.testing.virtual_loop import BEGINNING, VirtualClock
from virtual import server, virtual_time

Tree = dict[str, Any]
BERLIN = ZoneInfo("Europe/Berlin")
# An hour and a half before clocks go forward in Berlin.
EVE = datetime(2030, 3, 30, 23, 30, tzinfo=UTC)
QUOTA = 6


class Violation(AssertionError):
    """The checker found a difference."""


def occurrences(window: Tree, day: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The spans of a window around a day. Cron is `M H * * *` here; a skipped start is moved to the end of the gap."""
    if "cron" not in window:
        start, end = (datetime.fromisoformat(window[name].replace("Z", "+00:00")) for name in ("start", "end"))
        yield start, end
        return
    minute, hour = map(int, window["cron"].split()[:2])
    length = timedelta(minutes=int(window["duration"].removesuffix("m")))
    for shift in (-1, 0, 1):
        wanted = ((day + timedelta(days=shift)).astimezone(BERLIN).date(), hour, minute)
        moment = datetime(wanted[0].year, wanted[0].month, wanted[0].day, tzinfo=UTC) - timedelta(hours=3)
        while ((shown := moment.astimezone(BERLIN)).date(), shown.hour, shown.minute) < wanted:
            moment += timedelta(minutes=10)
        yield moment, moment + length


def expected_quota(schedules: list[Tree], now: datetime) -> int:
    sets: list[tuple[float, str, int]] = []
    change = 0
    for schedule in schedules:
        entry = schedule["spec"]["targets"][0]["flavors"][0]["resources"][0]
        starts = [
            start
            for window in schedule["spec"]["windows"]
            for start, end in occurrences(window, now)
            if start <= now < end
        ]
        if starts and "nominalQuota" in entry:
            sets.append((-max(starts).timestamp(), schedule["metadata"]["name"], int(entry["nominalQuota"])))
        elif starts:
            change += int(entry["change"])
    return max(0, (min(sets)[2] if sets else QUOTA) + change)


async def check(made: Site, last: dict[str, int]) -> None:
    """Compare the stored objects with the rules."""
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=made.clock.now() // SECOND)
    schedules = [msgspec.json.decode(item) for item in (await made.client.list(SCHEDULES)).items]
    wanted, before = expected_quota(schedules, now), expected_quota(schedules, now - timedelta(seconds=60))
    for schedule in schedules:
        shown = int(get(schedule, "status", "effectiveQuotas")[0]["nominalQuota"])
        if wanted == before and shown != wanted:
            raise Violation(f"{now}: {schedule['metadata']['name']} shows a quota of {shown}, not {wanted}")
    found = [msgspec.json.decode(item) for item in (await made.client.list(kind("Workload"))).items]
    used = 0
    for each in found:
        evicted = [
            c for c in get(each, "status", "conditions") or () if c["type"] == "Evicted" and c["status"] == "True"
        ]
        if get(each, "status", "admission") is not None and not evicted:
            used += int(each["metadata"]["name"].split("-")[1])
    if wanted == before and used > wanted:
        raise Violation(f"{now}: {used} of {wanted} used")
    last["used"] = used


async def a_run(seed: int) -> None:
    rng = random.Random(seed)
    async with server() as client:
        clock = VirtualClock(asyncio.get_running_loop())
        clock.wrong_by_seconds = round(EVE.timestamp()) - BEGINNING // SECOND - 3600
        made = Site(client, clock)
        await made.create("ResourceFlavor", "plain", {})
        await made.queue("cq", QUOTA)
        for n in range(4):
            if n < 2:  # around the change of the clocks, which is at 01:00 UTC
                cron = f"{rng.choice((0, 30))} {rng.choice((1, 2, 3))} * * *"
                windows = [{"name": "w", "cron": cron, "duration": f"{rng.choice((40, 60, 90))}m"}]
            else:
                start = rng.randrange(10, 120)
                windows = [{"name": "w", "start": made.at(start), "end": made.at(start + rng.randrange(10, 60))}]
            entry: Tree = rng.choice(({"nominalQuota": rng.randrange(5)}, {"change": rng.randrange(-4, 3)}))
            spec = {"timeZone": "Europe/Berlin", "windows": windows, "targets": [target(**entry)], "onStart": "Evict"}
            await made.create("QuotaSchedule", f"s{n}", spec)
        last: dict[str, int] = {}
        for round_number in range(4):
            async with leading(client, clock, ON):
                for n in range(3):
                    name = f"w{round_number}{n}-{rng.randrange(1, 3)}"
                    await made.workload(name, cpu=int(name.split("-")[1]), priority=rng.randrange(3))
                await asyncio.sleep(65)
                for _ in range(rng.randrange(20, 50)):
                    await check(made, last)
                    await asyncio.sleep(30)
            await asyncio.sleep(rng.randrange(1, 900))  # no manager


@pytest.mark.parametrize("seed", range(2))
def test_runs_with_windows_and_restarts_follow_the_rules(seed: int) -> None:
    virtual_time(lambda: a_run(seed))()


def _edge_missed_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    real = QuotaWindows.advance

    def advance(self: QuotaWindows, now: int) -> set[Any]:
        if not getattr(QuotaWindows, "_begun", {}).get(id(self)):
            QuotaWindows._begun = {**getattr(QuotaWindows, "_begun", {}), id(self): now}  # type: ignore[attr-defined]
        begun = QuotaWindows._begun[id(self)]  # type: ignore[attr-defined]
        kept = [
            msgspec.structs.replace(each, spans=tuple(span for span in each.spans if span.start > begun))
            for each in self.schedules
        ]
        self.replace_all(kept)
        return real(self, now)

    patch.setattr(QuotaWindows, "_begun", {}, raising=False)
    patch.setattr(QuotaWindows, "advance", advance)


def _length_by_the_local_clock(patch: pytest.MonkeyPatch) -> None:
    real = calendars.spans

    def spans(*given: Any) -> Iterator[WindowSpan]:
        for span in real(*given):
            ends = [datetime.fromtimestamp(edge // SECOND, BERLIN) for edge in (span.start, span.end)]
            shift = (ends[1].utcoffset() or timedelta()) - (ends[0].utcoffset() or timedelta())
            yield WindowSpan(span.window, span.start, span.end - round(shift.total_seconds()) * SECOND)

    patch.setattr(calendars, "spans", spans)


def _earlier_start_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_windows, "_precedence", lambda window: (window.since, window.schedule, window.window))


def _nothing_is_evicted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_withdrawal, "withdrawals", lambda structure, at: [])


@pytest.mark.parametrize(
    "plant",
    [_edge_missed_after_a_restart, _length_by_the_local_clock, _earlier_start_counts, _nothing_is_evicted],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_the_checker_finds_a_planted_bug(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert any(_is_found(plant, seed) for seed in range(12))


def _is_found(plant: Callable[[pytest.MonkeyPatch], None], seed: int) -> bool:
    found = False
    with pytest.MonkeyPatch.context() as patch:
        calendars._scheduled_windows.cache_clear()
        plant(patch)
        try:
            virtual_time(lambda: a_run(seed))()
        except* Violation:
            found = True
        finally:
            calendars._scheduled_windows.cache_clear()
    return found
