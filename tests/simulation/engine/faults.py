"""What can go wrong between a manager and its server, drawn from a seed.

A fault is a row of `FAULTS` with its usual rate; a seed draws which of them happen in its run and how often. Each has
a counter: a run in which a fault never fired has shown nothing about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.client import errors
from kubemachinery.client.errors import KubeError, Unanswered
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport

# name -> how likely it is in a run that has it: per request, or per line of a watch
FAULTS: Final = {
    "lost answer": 0.08,  # carried out, and the connection breaks
    "gave up": 0.05,  # carried out, and answered 504
    "never arrived": 0.05,  # the connection breaks before
    "conflict": 0.10,  # 409, not carried out
    "too many": 0.10,  # 429 with Retry-After, not carried out
    "unavailable": 0.05,  # 503 with Retry-After, not carried out
    "failed": 0.10,  # 500, not carried out
    "slow": 0.30,  # up to two seconds before it arrives
    "slow answer": 0.30,  # up to two seconds after it was carried out
    "watch dropped": 0.02,
    "watch late": 0.10,  # up to a second later, with everything after it
    "watch repeated": 0.05,  # the same line twice
    "watch coalesced": 0.10,  # only the last of several states of one object
    "watch refused": 0.20,  # 500 instead of a stream
    "stale list": 0.25,  # a new list shows what the last one showed; what happened since comes after it
}
# The same for what strikes the whole system, per second.
_FIRST: Final = {
    "crash": 0.05,  # a manager is gone between two instructions, and comes back
    "history gone": 0.05,  # a compaction: watches that are behind get 410
    "pause": 0.04,  # a manager stands still for up to half a minute, and goes on as if nothing had happened
    "clock set": 0.05,  # the clock of a manager jumps by up to a minute, either way
    "server killed": 0.03,  # with everything that was not answered yet
    "webhooks down": 0.03,  # for some seconds: what they look at is refused
    "webhooks missing": 0.03,  # for some seconds: jobs come in unseen
}
# These came later, and are drawn from a chance of their own, as in `traits`.
_LATER: Final = {
    "cut off": 0.04,  # a manager has no connection for up to half a minute, and does not notice at once
    "hour slow": 0.04,  # the clock of a manager is an hour slow for some seconds
    "hour fast": 0.04,  # or fast: a time it writes is an hour ahead, and the run waits for it
    "disk full": 0.03,  # the server can keep nothing for some seconds, and does not know of what came last
}
_LATER_SHARES: Final = {"cut off": 0.3, "hour slow": 0.1, "hour fast": 0.01, "disk full": 0.1}  # of the runs
TROUBLES: Final = {**_FIRST, **_LATER}
_EVENTS: Final = "/apis/events.k8s.io/"
_INITIAL_END: Final = b"k8s.io/initial-events-end"
_USUAL_SECONDS: Final = 0.001
_SLOW_SECONDS: Final = 2.0
_LATE_SECONDS: Final = 1.0


class Refused(Unanswered):
    """The caller has crashed: nothing of it arrives any more."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A manager is killed at one of its writes: just before it arrives, or just after it was carried out."""

    write: int  # counted over all managers of the run, from 1; Events and leases do not count
    is_after: bool = False

    def __str__(self) -> str:
        return f"{self.write}{'+' if self.is_after else ''}"

    @classmethod
    def read(cls, text: str) -> Kill:
        """`17` is just before the seventeenth write, `17+` just after it."""
        return cls(int(text.removesuffix("+")), text.endswith("+"))


@dataclass(slots=True)
class FaultPlan:
    """Which faults happen in a run, how often, and how often they did."""

    rng: random.Random
    # How long a change takes to reach a watch without faults.
    lag_seconds: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    fired: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    counts_writes: bool = True
    kill: Kill | None = None
    killed: asyncio.Queue[FaultyTransport] = field(default_factory=asyncio.Queue)  # whose manager is to be taken down

    @classmethod
    def drawn(cls, rng: random.Random, later: random.Random) -> FaultPlan:
        """A few faults in every run, rather than all in each: some hide others."""
        usual = {**FAULTS, **_FIRST}
        names = rng.sample(list(usual), rng.randint(0, 9))
        rates = {name: usual[name] * rng.choice((0.5, 1.0, 2.0)) for name in sorted(names)}
        rates |= {name: rate for name, rate in _LATER.items() if later.random() < _LATER_SHARES[name]}
        return cls(rng, rng.choice((0.0, 0.01, 0.2)), rates)

    def strikes(self, name: str) -> bool:
        rate = self.rates.get(name, 0.0)
        if not rate or self.rng.random() >= rate:
            return False
        self.fired[name] += 1
        return True

    def counts(self, call: ApiRequest) -> bool:
        """Count a write; whether it is the one at which the manager is killed."""
        if call.method not in _WRITES or call.path.startswith(_EVENTS) or "/leases" in call.path:
            return False
        if not self.counts_writes:
            return False
        self.writes += 1
        return self.kill is not None and self.writes == self.kill.write

    def end(self) -> None:
        self.rates = {}


_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
# Refusals before anything is carried out: fault -> answer.
_REFUSALS: Final = (
    ("conflict", 409, "Conflict", 0),
    ("too many", 429, "TooManyRequests", 1),
    ("unavailable", 503, "ServiceUnavailable", 1),
    ("failed", 500, "InternalError", 0),
)


class FaultyTransport:
    """A transport with faults. `crash` cuts it for good.

    Events are a third of all writes and nothing depends on them: without `keeps_events` they are taken and forgotten,
    and a minute holds that many more runs.
    """

    def __init__(self, inner: Transport, fault_plan: FaultPlan, *, keeps_events: bool = True) -> None:
        self._keeps_events = keeps_events
        self._inner = inner
        self._fault_plan = fault_plan
        self._has_crashed = False
        self._streams: dict[asyncio.Task[None], asyncio.Queue[bytes | None]] = {}
        self._lists: dict[str, list[bytes]] = {}  # path -> the last list that was streamed from there
        # What is on the network goes on when the one who sent it stands still.
        self._network = contextvars.copy_context()
        self._connected = asyncio.Event()
        self._connected.set()

    def crash(self) -> None:
        self._has_crashed = True

    def cut_off(self) -> None:
        """Drop everything from now on, in both directions, without an error."""
        self._connected.clear()

    def reconnect(self) -> None:
        """The line stands again. Streams that were open have missed something, and end."""
        if not self._connected.is_set():
            self._connected.set()
            self.drop_watches()

    async def send(self, call: ApiRequest) -> ApiResponse:
        self._alive()
        if not self._keeps_events and call.path.startswith(_EVENTS):
            return ApiResponse(201, b'{"metadata": {"resourceVersion": "1"}}')
        sent = asyncio.get_running_loop().create_task(self._carried(call), context=self._network)
        answer = await asyncio.shield(sent)
        self._alive()
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def _carried(self, call: ApiRequest) -> ApiResponse | KubeError:
        """Send a request and return its response. It completes even when its caller no longer waits."""
        fault_plan = self._fault_plan
        await self._pass("slow")
        if self._has_crashed:
            return Refused("the manager has crashed", applied=False)
        if not self._connected.is_set():
            return await self._lost(call)
        for name, code, reason, seconds in _REFUSALS:
            # A read cannot conflict, and a POST that conflicts has another reason: AlreadyExists.
            if (name != "conflict" or call.method in ("PUT", "PATCH")) and fault_plan.strikes(name):
                return _status(code, reason, seconds)
        if fault_plan.strikes("never arrived"):
            return Unanswered("the connection was refused", applied=False)
        is_last = fault_plan.counts(call)
        if is_last and fault_plan.kill is not None and not fault_plan.kill.is_after:
            return self._killed()
        try:
            answer = await self._inner.send(call)
        except KubeError as error:
            return error
        if is_last:
            return self._killed()
        await self._pass("slow answer")
        if not self._connected.is_set():
            return await self._lost(call)
        if call.method in _WRITES:
            if fault_plan.strikes("lost answer"):
                return Unanswered("the connection broke")
            if fault_plan.strikes("gave up"):
                return _status(504, "Timeout", 0)
        return answer

    async def _lost(self, call: ApiRequest) -> KubeError:
        """Neither the request nor a response arrives: the caller times out."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(call.timeout_seconds):
                await self._connected.wait()
        return Unanswered("the network is down")

    def _killed(self) -> KubeError:
        self._fault_plan.fired["kill"] += 1
        self._fault_plan.killed.put_nowait(self)
        self.crash()
        return Refused("the manager was killed")

    async def _pass(self, fault: str) -> None:
        slow = self._fault_plan.strikes(fault)
        await asyncio.sleep(self._fault_plan.rng.uniform(0.0, _SLOW_SECONDS) if slow else _USUAL_SECONDS)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        self._alive()
        if not self._connected.is_set():
            raise await self._lost(call)
        if self._fault_plan.strikes("watch refused"):
            raise errors.from_response(500, b"")
        is_list = ("sendInitialEvents", "true") in call.query
        old = self._lists.get(call.path) if is_list else None
        if old is not None and self._fault_plan.strikes("stale list"):
            call = _following(call, old)
        else:
            old = None
        async with self._inner.stream(call) as lines:
            arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
            for line in old or ():
                arrived.put_nowait(line)
            pumped = self._pump(lines, arrived, call.path if is_list and old is None else "")
            pump = asyncio.get_running_loop().create_task(pumped)
            self._streams[pump] = arrived
            try:
                yield self._disturbed(arrived)
            finally:
                del self._streams[pump]
                pump.cancel()
                await asyncio.wait({pump})

    async def _pump(self, lines: Lines, arrived: asyncio.Queue[bytes | None], path: str) -> None:
        """Hand the lines on. `path` is where the list at their beginning comes from, which is kept for later."""
        listed: list[bytes] = []
        try:
            async for line in lines:
                arrived.put_nowait(line)
                if path:
                    listed.append(line)
                    if _INITIAL_END in line:
                        self._lists[path], path = listed, ""
        except KubeError:
            pass
        finally:
            arrived.put_nowait(None)

    def drop_watches(self) -> None:
        """End every stream at once."""
        for arrived in self._streams.values():
            arrived.put_nowait(None)

    async def _disturbed(self, arrived: asyncio.Queue[bytes | None]) -> Lines:
        fault_plan = self._fault_plan
        while (line := await arrived.get()) is not None:
            if not self._connected.is_set():
                await self._connected.wait()
                return
            self._alive()
            if fault_plan.lag_seconds:
                await asyncio.sleep(fault_plan.rng.uniform(0.0, fault_plan.lag_seconds))
            if fault_plan.strikes("watch late"):
                await asyncio.sleep(fault_plan.rng.uniform(0.0, _LATE_SECONDS))
            if fault_plan.strikes("watch dropped"):
                return
            lines = [line]
            if fault_plan.strikes("watch coalesced"):
                await asyncio.sleep(fault_plan.rng.uniform(0.0, _LATE_SECONDS))
                while not arrived.empty():
                    more = arrived.get_nowait()
                    if more is None:
                        return  # the next watch delivers what was held back
                    lines.append(more)
            for each in _coalesced(lines):
                self._alive()
                yield each
            if fault_plan.strikes("watch repeated"):
                yield lines[-1]

    def _alive(self) -> None:
        if self._has_crashed:
            raise Refused("the manager has crashed", applied=False)

    async def close(self) -> None:
        await self._inner.close()


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    object: _Object = _Object()


_read_line: Final = msgspec.json.Decoder(_Line).decode


def _coalesced(lines: list[bytes]) -> list[bytes]:
    """The lines without states of an object that a later state of it follows, as a busy server may send them."""
    kept: list[bytes] = []
    later: set[tuple[str, str]] = set()
    for line in reversed(lines):
        metadata = _read_line(line).object.metadata
        about = metadata.namespace, metadata.name
        if not line.startswith(b'{"type":"MODIFIED"'):
            later.discard(about)
        elif about in later:
            continue
        else:
            later.add(about)
        kept.append(line)
    return kept[::-1]


def _following(call: ApiRequest, listed: list[bytes]) -> ApiRequest:
    """The call that goes on where an older list ended."""
    revision = _read_line(listed[-1]).object.metadata.resource_version
    kept = [(name, value) for name, value in call.query if name not in ("sendInitialEvents", "resourceVersionMatch")]
    return replace(call, query=(*kept, ("resourceVersion", revision)))


def _status(code: int, reason: str, seconds: int) -> ApiResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "sim"}
    return ApiResponse(code, msgspec.json.encode(body), {"Retry-After": str(seconds)} if seconds else {})
