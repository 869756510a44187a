"""The server without sockets, files and clocks of its own: how a simulation runs it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kubemachinery.http_messages import Request, body_of
from kubemachinery.meta import HOUR, MINUTE, SECOND
from kubeserver.assembly import Embedded
from kubeserver.garbage_collection import event_expiry
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.protocol.authentication import Authenticator
from kubeserver.storage.sqlite import MemoryJournal
from server.conftest import CONFIG_MAPS, WIDGETS, Tree, config_map, parts, widget

EVENTS = "/api/v1/namespaces/default/events"


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1_700_000_000 * SECOND

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / SECOND


class World:
    def __init__(self, seed: int = 7) -> None:
        self.clock = Hand()
        self.server = Embedded(
            parts(),
            MemoryJournal(),
            Authenticator({"t": authentication.ADMIN}),
            self.clock,
            random.Random(seed),
            ServerInfo("test"),
        )

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Tree]:
        request = Request(
            method=method,
            path=path,
            query=list(query.items()),
            headers={"content-type": "application/json", "user-agent": "test"},
            read=body_of(json.dumps(body).encode() if body is not None else b""),
        )
        response = await self.server.server.handle_as(authentication.ADMIN, request)
        return response.status, json.loads(response.body)

    def stored(self) -> list[tuple[tuple[str, ...], bytes]]:
        objects = self.server.objects
        return [(tuple(e.key), e.body) for name in objects.resources for e in objects.collection(name)]


async def scenario(world: World) -> None:
    await world.server.start()
    for index in range(5):
        await world.ask("POST", WIDGETS, widget(generateName="w-", spec={"size": index}))
        await world.ask("POST", CONFIG_MAPS, config_map(f"c{index}", {"a": "b"}))
        world.clock.time += SECOND
    await world.ask("DELETE", f"{CONFIG_MAPS}/c3")
    await world.server.close()


async def test_the_same_seed_gives_the_same_bytes() -> None:
    one, two, other = World(7), World(7), World(8)
    for world in (one, two, other):
        await scenario(world)
    assert one.stored() == two.stored()
    assert one.stored() != other.stored(), "generated names and uids come from the seed"


async def test_events_are_kept_for_an_hour_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.server.start()

    async def report(name: str) -> None:
        event = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "Widget", "name": "w", "namespace": "default"},
            "reason": "R",
            "type": "Normal",
        }
        code, answer = await world.ask("POST", EVENTS, event)
        assert code == 201, answer

    async def names() -> list[str]:
        _, listed = await world.ask("GET", EVENTS)
        return [item["metadata"]["name"] for item in listed["items"]]

    await report("old")
    world.clock.time += HOUR - MINUTE
    await report("young")
    await world.server.old_news.drop()
    assert await names() == ["old", "young"]
    world.clock.time += 2 * MINUTE
    await world.server.old_news.drop()
    assert await names() == ["young"]
    for index in range(5):
        world.clock.time += SECOND
        await report(f"many-{index}")
    monkeypatch.setattr(event_expiry, "COUNT_MAX", 3)
    await world.server.old_news.drop()
    assert await names() == ["many-2", "many-3", "many-4"]
    await world.server.close()


async def test_the_two_faces_of_an_event_are_one_object() -> None:
    world = World()
    await world.server.start()
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Widget", "name": "w", "namespace": "default"},
        "reason": "R",
        "message": "words",
        "type": "Normal",
    }
    await world.ask("POST", EVENTS, event)
    code, other = await world.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert code == 200
    assert (other["apiVersion"], other["note"], other["regarding"]["name"]) == ("events.k8s.io/v1", "words", "w")
    await world.server.close()
