"""Everything of a cluster but the manager: it creates Workloads, finishes each in time, and stops evicted ones."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from bench._load import CLUSTER_QUEUE, NAMESPACE, WORKLOAD, Load, WorkloadClass, workload

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Conflict, KubeError, Unanswered

# Requests in progress at once where a class is created at once.
CREATING_AT_ONCE = 16
# A wave that is not admitted completely is given up after so many seconds without one more first admission.
WAVE_SECONDS = 30.0


class SeenStatus(msgspec.Struct, frozen=True):
    admission: Any = None
    conditions: list[dict[str, Any]] = []

    def has(self, type_: str) -> bool:
        return any(each["type"] == type_ and each["status"] == "True" for each in self.conditions)


class SeenWorkload(msgspec.Struct, frozen=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    status: SeenStatus = SeenStatus()


class WatchLine(msgspec.Struct, frozen=True):
    type: str = ""
    object: SeenWorkload = SeenWorkload()


@dataclass(frozen=True)
class Wave:
    """When the last Workload of a wave was created and the wave admitted, in seconds, and how many were not."""

    created: float
    admitted: float
    missing: int


@dataclass
class Player:
    """Creates the Workloads of a load, and plays their jobs."""

    client: ApiClient
    load: Load
    classes: dict[str, WorkloadClass] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, float] = field(default_factory=dict)  # the first time
    finished: set[str] = field(default_factory=set)
    admissions: int = 0
    evictions: Counter[str] = field(default_factory=Counter)  # by reason
    cpu_seconds: float = 0.0
    lost_cpu_seconds: float = 0.0  # of attempts that were evicted
    began: float = 0.0
    last_created: float = 0.0
    ended: float = 0.0
    all_done: asyncio.Event = field(default_factory=asyncio.Event)
    waves: list[Wave] = field(default_factory=list)
    _known: dict[str, SeenWorkload] = field(default_factory=dict)
    _running: dict[str, tuple[float, asyncio.TimerHandle]] = field(default_factory=dict)
    _acting: set[asyncio.Task[None]] = field(default_factory=set)
    _evicted: set[str] = field(default_factory=set)  # with quota that is not cleared yet
    _admitted_one: asyncio.Event = field(default_factory=asyncio.Event)
    _prolonged: set[str] = field(default_factory=set)  # ran for long enough, and run until the last wave was admitted

    async def create(self) -> None:
        """Create all Workloads; those of a held load before the measurement begins.

        A wave is created when the one before it has been admitted. With several waves this returns when the last one
        has been admitted, and only then do Workloads of the others end.
        """
        self.began = time.monotonic()
        for number in range(self.load.waves):
            await self._create_wave(number)
            self.last_created = time.monotonic()
            if self.load.waves > 1:
                self.waves.append(await self._until_admitted(number))
        for name in self._prolonged:
            self._act(name, ended_status)
        self._prolonged.clear()

    async def _create_wave(self, number: int) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for queue, each in self.load.streams():
                if each.wave != number:
                    continue
                if each.every_seconds:
                    group.create_task(self._stream(queue, each, began))
                else:
                    for part in range(min(CREATING_AT_ONCE, self.load.count(each))):
                        group.create_task(self._at_once(queue, each, part))

    async def _until_admitted(self, number: int) -> Wave:
        """Wait until each Workload of the wave has been admitted once, or until no further one is."""
        with contextlib.suppress(TimeoutError):
            while self._not_admitted(number):
                self._admitted_one.clear()
                async with asyncio.timeout(WAVE_SECONDS):
                    await self._admitted_one.wait()
        created, now = self.last_created - self.began, time.monotonic() - self.began
        return Wave(created, now, self._not_admitted(number))

    def _not_admitted(self, number: int) -> int:
        return sum(each.wave == number and name not in self.admitted for name, each in self.classes.items())

    async def release(self) -> None:
        """End the hold of the ClusterQueues, and measure from now on."""
        self.began = self.last_created = time.monotonic()
        self.created = dict.fromkeys(self.created, self.began)
        for queue in self.load.queue_names():
            await self.client.patch(CLUSTER_QUEUE, queue, {"spec": {"stopPolicy": "None"}})

    async def _stream(self, queue: str, each: WorkloadClass, began: float) -> None:
        for number in range(self.load.count(each)):
            moment = began + (number + 1) * each.every_seconds
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            await self._create(queue, each, number)

    async def _at_once(self, queue: str, each: WorkloadClass, part: int) -> None:
        for number in range(part, self.load.count(each), CREATING_AT_ONCE):
            await self._create(queue, each, number)

    async def _create(self, queue: str, each: WorkloadClass, number: int) -> None:
        name = f"{each.name}-{queue}-{number:04}"
        self.classes[name] = each
        self.created[name] = time.monotonic()
        await self.client.create(WORKLOAD, workload(name, queue, each))

    async def watch(self, revision: str) -> None:
        """Follow the Workloads, and act on what happens to them."""
        read = msgspec.json.Decoder(WatchLine).decode
        while True:
            with contextlib.suppress(KubeError):
                async with self.client.watch(WORKLOAD, NAMESPACE, revision=revision) as lines:
                    async for line in lines:
                        event = read(line)
                        revision = event.object.metadata.resource_version or revision
                        if event.type in ("ADDED", "MODIFIED"):
                            self._seen(event.object)

    def _seen(self, found: SeenWorkload) -> None:
        name, status, now = found.metadata.name, found.status, time.monotonic()
        self._known[name] = found
        if not status.has("Evicted") or status.admission is None:
            self._evicted.discard(name)
        if status.has("Finished"):
            self._stop(name, now)
            self.finished.add(name)
            if len(self.finished) >= self.load.to_finish and not self.ended:
                self.ended = now
                self.all_done.set()
        elif status.has("Evicted") and status.admission is not None:
            if name in self._evicted:  # counted already: something else was written
                return
            self._evicted.add(name)
            self.lost_cpu_seconds += self._stop(name, now)
            (evicted,) = (each for each in status.conditions if each["type"] == "Evicted")
            self.evictions[evicted["reason"]] += 1
            self._act(name, cleared_status)
        elif status.has("Admitted") and name not in self._running:
            self.admissions += 1
            if name not in self.admitted:  # a preemption loop admits again and again: that is no progress of its wave
                self.admitted[name] = now
                self._admitted_one.set()
            runtime = self.classes[name].runtime_seconds
            timer = asyncio.get_running_loop().call_later(runtime, self._end, name)
            self._running[name] = now, timer

    def _end(self, name: str) -> None:
        """Finish a Workload that ran for long enough; one of an earlier wave not before the last wave was admitted."""
        if self.classes[name].wave < self.load.waves - 1 and len(self.waves) < self.load.waves:
            self._prolonged.add(name)
        else:
            self._act(name, ended_status)

    def _stop(self, name: str, now: float) -> float:
        """End the run of a Workload, and return the CPU seconds that it took."""
        if name not in self._running:
            return 0.0
        since, timer = self._running.pop(name)
        timer.cancel()
        self._prolonged.discard(name)
        taken = (now - since) * self.classes[name].cpu
        self.cpu_seconds += taken
        return taken

    def _act(self, name: str, change: Callable[[SeenStatus], dict[str, Any] | None]) -> None:
        task = asyncio.get_running_loop().create_task(self._write(name, change))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _write(self, name: str, change: Callable[[SeenStatus], dict[str, Any] | None]) -> None:
        while (status := change(self._known[name].status)) is not None:
            metadata = {"resourceVersion": self._known[name].metadata.resource_version}
            patch = {"metadata": metadata, "status": status}
            try:
                await self.client.patch_revision(WORKLOAD, name, patch, NAMESPACE, subresource="status")
                return
            except (Conflict, Unanswered):
                await asyncio.sleep(0.02)  # until the watch has brought the other write

    async def close(self) -> None:
        """Cancel what a run that has ended would still write."""
        for _, timer in self._running.values():
            timer.cancel()
        for task in self._acting:
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)

    def seconds_to_admission(self) -> dict[str, list[float]]:
        """The waiting times until the first admission, sorted, by class."""
        waits: dict[str, list[float]] = defaultdict(list)
        for name, at in self.admitted.items():
            waits[self.classes[name].name].append(at - self.created[name])
        return {each.name: sorted(waits[each.name]) for each in self.load.classes}

    def left(self) -> Counter[str]:
        """The conditions of the Workloads that have not finished."""
        counted: Counter[str] = Counter()
        for name in sorted(self.created.keys() - self.finished):
            found = self._known.get(name)
            found_conditions = (
                [f"{each['type']}={each['status']}" for each in found.status.conditions] if found else ["unseen"]
            )
            counted[" ".join(found_conditions) or "nothing"] += 1
        return counted


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / max(1, len(found))


def quantile(values: list[float], share: float) -> float:
    """Value number ⌈share · n⌉ of sorted values; 0 of none."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def ended_status(status: SeenStatus) -> dict[str, Any] | None:
    if status.has("Finished") or status.has("Evicted") or not status.has("Admitted"):
        return None
    return {"conditions": _with(status, Finished=("True", "Succeeded"))}


def cleared_status(status: SeenStatus) -> dict[str, Any] | None:
    if status.admission is None or not status.has("Evicted"):
        return None
    changed = _with(
        status, QuotaReserved=("False", "Pending"), Admitted=("False", "NoReservation"), Requeued=("True", "Preempted")
    )
    return {"admission": None, "conditions": changed}


def _with(status: SeenStatus, **changed: tuple[str, str]) -> list[dict[str, Any]]:
    now = meta.format_time(time.time_ns())
    others = [each for each in status.conditions if each["type"] not in changed]
    return others + [
        {"type": type_, "status": value, "reason": reason, "message": "played", "lastTransitionTime": now}
        for type_, (value, reason) in changed.items()
    ]
