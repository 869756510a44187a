"""One leader at a time, by the Lease and by the leader's own clock."""

from __future__ import annotations

import asyncio

import pytest

from kube.conftest import eventually
from pykueue.clock import SystemClock
from pykueue.kube.client import Client
from pykueue.kube.election import LEASES, Election, Terms

TERMS = Terms("manager", "default", lease_seconds=1.0, renew_seconds=0.6, retry_seconds=0.05)


def candidate(client: Client, name: str) -> Election:
    return Election(client, SystemClock(), TERMS, name)


async def forever() -> None:
    await asyncio.sleep(3600)


async def ended(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_of_two_candidates_one_leads_and_the_other_follows_when_it_leaves(client: Client) -> None:
    first, second = candidate(client, "first"), candidate(client, "second")
    one = asyncio.ensure_future(first.run(forever))
    await eventually(lambda: first.is_leader)
    two = asyncio.ensure_future(second.run(forever))
    await asyncio.sleep(0.3)
    assert not second.is_leader
    assert first.may_write()
    await ended(one)
    await eventually(lambda: second.is_leader)
    assert second.term > first.term
    await ended(two)


async def test_a_leader_that_gives_the_lease_back_is_followed_at_once(client: Client) -> None:
    first = candidate(client, "first")
    await asyncio.wait_for(first.run(lambda: asyncio.sleep(0.1)), 5)
    lease = await client.get(LEASES, "manager", "default")
    assert lease["spec"]["holderIdentity"] == ""


async def test_a_leader_that_finds_another_in_its_place_stops(client: Client) -> None:
    first = candidate(client, "first")
    one = asyncio.ensure_future(first.run(forever))
    await eventually(lambda: first.is_leader)
    await client.patch(LEASES, "manager", {"spec": {"holderIdentity": "usurper"}}, "default")
    await asyncio.wait_for(one, 5)
    assert not first.is_leader
    assert (await client.get(LEASES, "manager", "default"))["spec"]["holderIdentity"] == "usurper"


async def test_a_leader_that_cannot_renew_stops_before_another_may_start(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = candidate(client, "first")
    loop = asyncio.get_running_loop()
    one = asyncio.ensure_future(first.run(forever))
    await eventually(lambda: first.is_leader)

    async def hang(*_: object, **__: object) -> dict[str, object]:
        await asyncio.sleep(3600)
        raise AssertionError

    monkeypatch.setattr(client, "replace", hang)
    cut_off = loop.time()
    await asyncio.wait_for(one, 10)
    assert loop.time() - cut_off < TERMS.lease_seconds + 2.5  # giving the lease back is tried for two seconds at most
    assert not first.may_write()


async def test_what_the_leader_does_fails_for_everybody_to_see(client: Client) -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await asyncio.wait_for(candidate(client, "first").run(fail), 5)
