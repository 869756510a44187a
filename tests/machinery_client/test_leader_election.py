"""One leader at a time, by the Lease and by the leader's own clock."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import virtual
from kubemachinery import http_messages
from kubemachinery.client.client import ApiClient
from kubemachinery.client.leader_election import LEASES, STALL_SECONDS, LeaderElectionConfig, LeaderElector
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import ApiRequest, ApiResponse
from pykueue.testing.virtual_loop import VirtualClock
from virtual import virtual_time
from waiting import eventually

TERMS = LeaderElectionConfig("manager", "default")


def candidate(client: ApiClient, name: str) -> LeaderElector:
    return LeaderElector(client, VirtualClock(asyncio.get_running_loop()), TERMS, name)


async def forever() -> None:
    await asyncio.Event().wait()


async def ended(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def in_office(election: LeaderElector) -> asyncio.Future[None]:
    """Start it as a candidate; it leads until the returned task ends."""
    leading = asyncio.ensure_future(election.run(forever))
    await eventually(lambda: election.is_leader)
    await asyncio.sleep(0)  # the renewal starts in the next turn of the loop, which a test may block from here on
    return leading


@virtual_time
async def test_second_candidate_leads_when_the_first_releases() -> None:
    async with virtual.server() as client:
        first, second = candidate(client, "first"), candidate(client, "second")
        one = await in_office(first)
        two = asyncio.ensure_future(second.run(forever))
        await asyncio.sleep(10 * TERMS.lease_duration_seconds)
        assert not second.is_leader
        assert first.may_write()
        await ended(one)
        await eventually(lambda: second.is_leader)
        assert second.term > first.term
        await ended(two)


@virtual_time
async def test_leader_releases_the_lease_when_done() -> None:
    async with virtual.server() as client:
        await candidate(client, "first").run(lambda: asyncio.sleep(60))
        lease = await client.get(LEASES, "manager", "default")
        assert lease["spec"]["holderIdentity"] == ""


@virtual_time
async def test_leader_stops_when_another_holds_the_lease() -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        await client.patch(LEASES, "manager", {"spec": {"holderIdentity": "usurper"}}, "default")
        await asyncio.wait_for(one, TERMS.retry_period_seconds + 1)
        assert not first.is_leader
        assert (await client.get(LEASES, "manager", "default"))["spec"]["holderIdentity"] == "usurper"


@virtual_time
async def test_leader_that_cannot_renew_stops_before_the_lease_expires(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        cut_off = asyncio.get_running_loop().time()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "replace", lambda *_, **__: forever())
            await eventually(lambda: not first.may_write())
            assert asyncio.get_running_loop().time() - cut_off < TERMS.lease_duration_seconds
            await one
    assert "lease was not renewed: the API server did not answer before the deadline" in caplog.messages


@virtual_time
async def test_failure_of_the_leader_is_raised() -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    async with virtual.server() as client:
        with pytest.raises(RuntimeError, match="no"):
            await candidate(client, "first").run(fail)


@virtual_time
async def test_field_manager_of_an_earlier_term_is_superseded() -> None:
    """The leader knows from its own lease, followers once they have read the Lease; other names have no term."""
    async with virtual.server() as client:
        first, second, third = (candidate(client, name) for name in ("first", "second", "third"))
        one = await in_office(first)
        two, three = asyncio.ensure_future(second.run(forever)), asyncio.ensure_future(third.run(forever))
        await asyncio.sleep(TERMS.retry_period_seconds)
        early = first.field_manager()
        assert not any(each.is_superseded(early) for each in (first, second, third))
        await ended(one)
        await eventually(lambda: second.is_leader or third.is_leader)
        await asyncio.sleep(TERMS.retry_period_seconds)
        leader = second if second.is_leader else third
        for each in (second, third):
            assert each.is_superseded(early)
            assert not each.is_superseded(leader.field_manager())
            assert not each.is_superseded("kubectl")
            assert not each.is_superseded(f"{early}-and-more")
        await ended(two, three)


@virtual_time
async def test_leader_with_an_expired_lease_is_superseded() -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "replace", lambda *_, **__: forever())
            await eventually(lambda: not first.may_write())
            assert first.is_superseded(first.field_manager())
            await one


@virtual_time
async def test_terms_grow_although_the_lease_is_deleted() -> None:
    async with virtual.server() as client:
        first, second = candidate(client, "first"), candidate(client, "second")
        one = await in_office(first)
        two = asyncio.ensure_future(second.run(forever))
        await asyncio.sleep(TERMS.retry_period_seconds)
        await ended(one)
        await client.delete(LEASES, "manager", "default")
        await eventually(lambda: second.is_leader)
        assert second.term > first.term
        await ended(two)


# --- Renewal from a thread of its own ---------------------------------------------------------------------------------

# The tests move the clock; the thread reads it often.
BY_HAND = LeaderElectionConfig("manager", "default", retry_period_seconds=0.02)
PATIENCE_SECONDS = 60.0


class HandClock:
    """A clock that a test sets. It belongs to no event loop."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> int:
        return int(self.seconds * 1e9)

    def monotonic(self) -> float:
        return self.seconds


class _AcrossThreads(LocalTransport):
    """Requests of any thread to a server on the event loop of another."""

    def __init__(self, handler: http_messages.Handler, home: asyncio.AbstractEventLoop) -> None:
        super().__init__(handler)
        self._home = home

    async def send(self, call: ApiRequest) -> ApiResponse:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(super().send(call), self._home))


@contextmanager
def server_elsewhere() -> Iterator[Callable[[], ApiClient]]:
    """Makes clients of a server with an event loop in another thread: it responds while that of the test is blocked."""
    begun: list[tuple[asyncio.AbstractEventLoop, ApiClient, asyncio.Event]] = []
    ready = threading.Event()

    async def run() -> None:
        async with virtual.server() as client:
            over = asyncio.Event()
            begun.append((asyncio.get_running_loop(), client, over))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    loop, client, over = begun[0]
    transport = client._transport
    assert isinstance(transport, LocalTransport)
    try:
        yield lambda: ApiClient(_AcrossThreads(transport._handler, loop), random.Random(1))
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def block_until(holds: Callable[[], bool]) -> bool:
    """Wait without giving the event loop a turn."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()


async def test_blocked_event_loop_does_not_lose_the_lease() -> None:
    with server_elsewhere() as connect:
        clock = HandClock()
        election = LeaderElector(connect(), clock, BY_HAND, "first", own_connection=connect)
        leading = await in_office(election)
        for _ in range(5):  # twice the renew deadline, without one turn of this event loop
            clock.seconds += BY_HAND.renew_deadline_seconds * 0.4
            assert block_until(lambda: election._renewed_at == clock.seconds)
            assert election.may_write()
        await asyncio.sleep(0)
        assert not leading.done()
        await ended(leading)
        assert (await connect().get(LEASES, "manager", "default"))["spec"]["holderIdentity"] == ""


async def test_lost_lease_closes_the_fence_while_the_event_loop_is_blocked() -> None:
    with server_elsewhere() as connect:
        election = LeaderElector(connect(), HandClock(), BY_HAND, "first", own_connection=connect)
        leading = await in_office(election)
        assert election.may_write()
        await connect().patch(LEASES, "manager", {"spec": {"holderIdentity": "second"}}, "default")
        assert block_until(lambda: not election.may_write())
        await asyncio.wait_for(leading, PATIENCE_SECONDS)
        assert not election.is_leader


async def test_stalled_event_loop_loses_the_lease() -> None:
    """A leader that renews and decides nothing must not keep other candidates from leading."""
    with server_elsewhere() as connect:
        clock = HandClock()
        election = LeaderElector(connect(), clock, BY_HAND, "first", own_connection=connect)
        leading = await in_office(election)
        began = clock.seconds
        while clock.seconds - began < STALL_SECONDS and election.may_write():
            clock.seconds += BY_HAND.renew_deadline_seconds * 0.4
            assert block_until(lambda: election._renewed_at == clock.seconds or not election.may_write())
        assert block_until(lambda: not election.may_write())
        assert clock.seconds - began >= STALL_SECONDS
        await asyncio.wait_for(leading, PATIENCE_SECONDS)
