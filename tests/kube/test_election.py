"""One leader at a time, by the Lease and by the leader's own clock."""

from __future__ import annotations

import asyncio

import pytest

import virtual
from pykueue.kube.client import Client
from pykueue.kube.election import LEASES, Election, Terms
from pykueue.simulate.loop import VirtualClock
from virtual import virtual_time
from waiting import eventually

TERMS = Terms("manager", "default")


def candidate(client: Client, name: str) -> Election:
    return Election(client, VirtualClock(asyncio.get_running_loop()), TERMS, name)


async def forever() -> None:
    await asyncio.Event().wait()


async def ended(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def in_office(election: Election) -> asyncio.Future[None]:
    """Have it lead, until the task that is returned ends."""
    leading = asyncio.ensure_future(election.run(forever))
    await eventually(lambda: election.is_leader)
    return leading


@virtual_time
async def test_of_two_candidates_one_leads_and_the_other_follows_when_it_leaves() -> None:
    async with virtual.server() as client:
        first, second = candidate(client, "first"), candidate(client, "second")
        one = await in_office(first)
        two = asyncio.ensure_future(second.run(forever))
        await asyncio.sleep(10 * TERMS.lease_seconds)
        assert not second.is_leader
        assert first.may_write()
        await ended(one)
        await eventually(lambda: second.is_leader)
        assert second.term > first.term
        await ended(two)


@virtual_time
async def test_a_leader_that_is_done_gives_the_lease_back() -> None:
    async with virtual.server() as client:
        await candidate(client, "first").run(lambda: asyncio.sleep(60))
        lease = await client.get(LEASES, "manager", "default")
        assert lease["spec"]["holderIdentity"] == ""


@virtual_time
async def test_a_leader_that_finds_another_in_its_place_stops() -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        await client.patch(LEASES, "manager", {"spec": {"holderIdentity": "usurper"}}, "default")
        await asyncio.wait_for(one, TERMS.retry_seconds + 1)
        assert not first.is_leader
        assert (await client.get(LEASES, "manager", "default"))["spec"]["holderIdentity"] == "usurper"


@virtual_time
async def test_a_leader_that_cannot_renew_stops_before_another_may_start() -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        cut_off = asyncio.get_running_loop().time()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "replace", lambda *_, **__: forever())
            await eventually(lambda: not first.may_write())
            assert asyncio.get_running_loop().time() - cut_off < TERMS.lease_seconds
            await one


@virtual_time
async def test_what_the_leader_does_fails_for_everybody_to_see() -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    async with virtual.server() as client:
        with pytest.raises(RuntimeError, match="no"):
            await candidate(client, "first").run(fail)


@virtual_time
async def test_a_signature_tells_whose_term_is_over() -> None:
    """The one who leads knows it of itself, those who follow once they have looked; strangers have no term."""
    async with virtual.server() as client:
        first, second, third = (candidate(client, name) for name in ("first", "second", "third"))
        one = await in_office(first)
        two, three = asyncio.ensure_future(second.run(forever)), asyncio.ensure_future(third.run(forever))
        await asyncio.sleep(TERMS.retry_seconds)
        early = first.signature()
        assert not any(each.is_over(early) for each in (first, second, third))
        await ended(one)
        await eventually(lambda: second.is_leader or third.is_leader)
        await asyncio.sleep(TERMS.retry_seconds)
        leader = second if second.is_leader else third
        for each in (second, third):
            assert each.is_over(early)
            assert not each.is_over(leader.signature())
            assert not each.is_over("kubectl")
            assert not each.is_over(f"{early}-and-more")
        await ended(two, three)


@virtual_time
async def test_a_leader_whose_lease_ran_out_knows_that_its_term_is_over() -> None:
    async with virtual.server() as client:
        first = candidate(client, "first")
        one = await in_office(first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "replace", lambda *_, **__: forever())
            await eventually(lambda: not first.may_write())
            assert first.is_over(first.signature())
            await one


@virtual_time
async def test_terms_grow_though_somebody_deletes_the_lease() -> None:
    async with virtual.server() as client:
        first, second = candidate(client, "first"), candidate(client, "second")
        one = await in_office(first)
        two = asyncio.ensure_future(second.run(forever))
        await asyncio.sleep(TERMS.retry_seconds)
        await ended(one)
        await client.delete(LEASES, "manager", "default")
        await eventually(lambda: second.is_leader)
        assert second.term > first.term
        await ended(two)
