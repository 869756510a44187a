"""Informers: the cache is complete, never goes back to older state, and reports every change once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kubemachinery import turns
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey, run_informers
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from pykueue.api import kube, registry
from virtual import virtual_time
from waiting import PATIENCE_SECONDS, eventually

CONFIG_MAP = registry.KUBERNETES.of(kube.ConfigMap)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def informer(client: ApiClient) -> Informer[kube.ConfigMap]:
    return Informer(client, CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1), namespace="default")


@asynccontextmanager
async def running(watched: Informer[Any]) -> AsyncIterator[list[InformerEvent[Any]]]:
    changes: list[InformerEvent[Any]] = []
    watched.add_handler(changes.append)
    task = asyncio.ensure_future(watched.run())
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def summary(changes: list[InformerEvent[Any]]) -> list[tuple[str, bool, bool]]:
    return [
        (change.key.name, change.old is not None, change.new is not None)
        for change in changes
        if change.key.name[0] == "a"
    ]


@pytest.mark.parametrize("decode", [ObjectDecoder(kube.ConfigMap), msgspec.json.decode], ids=["typed", "tree"])
async def test_cached_objects_have_no_managed_fields(client: ApiClient, decode: Any) -> None:
    """They are half of an object. A write of the cached value leaves those of the server as they are."""
    created = await client.create(CONFIG_MAP, config_map("a1", x="1"))
    assert created["metadata"]["managedFields"]
    watched: Informer[Any] = Informer(client, CONFIG_MAP, decode, random.Random(1), namespace="default")
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        await client.create(CONFIG_MAP, config_map("a2", x="1"))
        await eventually(lambda: len(watched) == 2)
    cached = [change.new for change in changes]
    metadata = [msgspec.to_builtins(value)["metadata"] for value in cached]
    assert [each["name"] for each in metadata] == ["a1", "a2"]
    assert all("managedFields" not in each for each in metadata)
    replaced = await client.replace(CONFIG_MAP, msgspec.to_builtins(cached[0]) | {"data": {"x": "2"}})
    assert replaced["metadata"]["managedFields"]


async def test_informer_lists_existing_objects_and_watches_changes(client: ApiClient) -> None:
    await client.create(CONFIG_MAP, config_map("a1", x="1"))
    watched = informer(client)
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        assert [change.initial for change in changes if change.key.name == "a1"] == [True]
        await client.create(CONFIG_MAP, config_map("a2"))
        await client.patch(CONFIG_MAP, "a1", {"data": {"x": "2"}}, "default")
        await client.delete(CONFIG_MAP, "a2", "default")
        await eventually(lambda: len(summary(changes)) == 4)
        assert summary(changes) == [("a1", False, True), ("a2", False, True), ("a1", True, True), ("a2", True, False)]
        found = watched.get("a1", "default")
        assert found is not None
        assert watched.revision_of(ObjectKey("default", "a1")) == int(found.metadata.resource_version)


async def test_index_follows_its_objects(client: ApiClient) -> None:
    watched = informer(client)
    watched.add_index("label", lambda item: item.metadata.labels.get("team", "none").split("."))
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        made = config_map("a")
        made["metadata"]["labels"] = {"team": "x.y"}
        await client.create(CONFIG_MAP, made)
        await eventually(lambda: len(summary(changes)) == 1)
        assert [str(key) for key, _ in watched.by_index("label", "x")] == ["default/a"]
        await client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"team": "y.z"}}}, "default")
        await eventually(lambda: len(summary(changes)) == 2)
        assert not list(watched.by_index("label", "x"))
        assert [str(key) for key, _ in watched.by_index("label", "z")] == ["default/a"]


async def test_index_that_has_no_objects_is_asked_only_about_the_new_state(client: ApiClient) -> None:
    asked: list[str] = []

    def keys(item: kube.ConfigMap) -> tuple[str, ...]:
        asked.append(item.metadata.labels.get("team", ""))
        return ()

    watched = informer(client)
    watched.add_index("label", keys)
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        await client.create(CONFIG_MAP, config_map("a"))
        await client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"team": "x"}}}, "default")
        await eventually(lambda: len(summary(changes)) == 2)
    assert asked == ["", "x"]


async def test_index_is_not_asked_about_changes_of_what_it_does_not_depend_on(client: ApiClient) -> None:
    asked: list[dict[str, str]] = []

    def keys(item: kube.ConfigMap) -> tuple[str, ...]:
        asked.append(dict(item.metadata.labels))
        return tuple(item.metadata.labels.values())

    watched = informer(client)
    watched.add_index("label", keys, of="metadata.labels")
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        made = config_map("a")
        made["metadata"]["labels"] = {"team": "x"}
        await client.create(CONFIG_MAP, made)
        await client.patch(CONFIG_MAP, "a", {"metadata": {"annotations": {"b": "c"}}}, "default")
        await eventually(lambda: len(summary(changes)) == 2)
        assert asked == [{"team": "x"}]
        assert [str(key) for key, _ in watched.by_index("label", "x")] == ["default/a"]
        await client.patch(CONFIG_MAP, "a", {"metadata": {"labels": {"team": "y"}}}, "default")
        await eventually(lambda: len(summary(changes)) == 3)
        assert not list(watched.by_index("label", "x"))
        assert [str(key) for key, _ in watched.by_index("label", "y")] == ["default/a"]
        await client.delete(CONFIG_MAP, "a", "default")
        await eventually(lambda: len(summary(changes)) == 4)
        assert not list(watched.by_index("label", "y"))


class Played(Transport):
    """A server that plays a script: each request gets the next response."""

    def __init__(self, *script: list[str] | ApiResponse | Exception) -> None:
        self.script = list(script)
        self.calls: list[ApiRequest] = []

    async def send(self, call: ApiRequest) -> ApiResponse:
        self.calls.append(call)
        step = self.script.pop(0)
        assert isinstance(step, ApiResponse), step
        return step

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        self.calls.append(call)
        if not self.script:
            await asyncio.sleep(3600)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, list), step
        yield self._lines(step)

    async def _lines(self, lines: list[str]) -> AsyncIterator[bytes]:
        for line in lines:
            yield line.encode()

    async def close(self) -> None:
        pass


def line(type_: str, name: str = "", revision: int = 0, uid: str = "u", **annotations: str) -> str:
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}  # type: ignore[assignment]
    return msgspec.json.encode({"type": type_, "object": {"metadata": metadata}}).decode()


END = line("BOOKMARK", revision=10, end="true")
GONE = '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'


async def played(*script: list[str] | ApiResponse | Exception) -> tuple[list[tuple[str, bool, bool]], Played]:
    transport = Played(*script)
    watched = Informer(
        ApiClient(transport, random.Random(1)), CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1)
    )
    async with running(watched) as changes:
        await eventually(lambda: not transport.script and len(transport.calls) > len(script))
    return summary(changes), transport


def queries(transport: Played) -> list[dict[str, str]]:
    return [dict(call.query) for call in transport.calls]


async def test_broken_watch_resumes_from_the_last_revision() -> None:
    seen, transport = await played([line("ADDED", "a", 5), END, line("MODIFIED", "a", 12)], [line("DELETED", "a", 13)])
    assert seen == [("a", False, True), ("a", True, True), ("a", True, False)]
    assert [query.get("resourceVersion") for query in queries(transport)] == [None, "12", "13"]


async def test_bookmark_advances_the_revision_to_resume_from() -> None:
    _, transport = await played([END, line("BOOKMARK", revision=40)], [])
    assert queries(transport)[1]["resourceVersion"] == "40"


async def test_relist_after_410_reports_deleted_objects() -> None:
    again = [line("ADDED", "ab", 20, "v"), line("BOOKMARK", revision=30, end="true")]
    seen, _ = await played([line("ADDED", "aa", 5), line("ADDED", "ab", 6, "v"), END], [GONE], again)
    assert seen == [("aa", False, True), ("ab", False, True), ("ab", True, True), ("aa", True, False)]


@virtual_time
async def test_repeated_410_is_retried_with_backoff() -> None:
    """The first relist is immediate; later ones wait with backoff."""
    transport = Played(*([END], [GONE]) * 1000)
    watched = Informer(
        ApiClient(transport, random.Random(1)), CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1)
    )
    async with running(watched):
        await asyncio.sleep(60)
    assert 4 < len(transport.calls) < 12


async def test_wait_until_current_waits_for_a_lagging_watch(client: ApiClient) -> None:
    """The object is in the cache, but the watch has not reached its revision."""
    await client.create(CONFIG_MAP, config_map("a1"))
    watched = informer(client)
    async with running(watched):
        await asyncio.wait_for(watched.wait_for_sync(), PATIENCE_SECONDS)
        reached, watched._advance = watched._advance, lambda revision: None  # type: ignore[method-assign]
        made = await client.create(CONFIG_MAP, config_map("a2"))
        catching_up = asyncio.ensure_future(watched.wait_until_current())
        await eventually(lambda: ObjectKey("default", "a2") in watched)
        await asyncio.sleep(0.05)
        assert not catching_up.done()
        reached(int(made["metadata"]["resourceVersion"]))
        await asyncio.wait_for(catching_up, PATIENCE_SECONDS)


async def test_stale_object_is_ignored() -> None:
    seen, _ = await played([line("ADDED", "a", 9), END], [line("MODIFIED", "a", 7), line("MODIFIED", "a", 9)])
    assert seen == [("a", False, True)]


async def test_stale_list_deletes_no_newer_object() -> None:
    behind = [line("BOOKMARK", revision=8, end="true")]
    seen, _ = await played([line("ADDED", "a", 9), END], [GONE], behind)
    assert seen == [("a", False, True)]


async def test_recreated_object_is_reported_as_deleted_and_added() -> None:
    seen, _ = await played([line("ADDED", "a", 5), END], [line("MODIFIED", "a", 12, "other")])
    assert seen == [("a", False, True), ("a", True, False), ("a", False, True)]


async def test_server_without_streaming_lists_is_listed_in_pages() -> None:
    refused = errors.from_response(422, b'{"kind":"Status","reason":"Invalid","code":422}')
    page = ApiResponse(
        200,
        b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"3"}}]}',
    )
    seen, transport = await played(refused, page, [line("MODIFIED", "a", 9)])
    assert seen == [("a", False, True), ("a", True, True)]
    assert queries(transport)[2]["resourceVersion"] == "7"


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "listed"])
async def test_other_tasks_run_between_the_objects_of_a_list(streams: bool) -> None:
    turns.limit(asyncio.get_running_loop(), -1)
    names = [f"a{number}" for number in range(20)]
    items = [msgspec.json.decode(line("ADDED", name, 1))["object"] for name in names]
    listing = ApiResponse(200, msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": items}))
    refused = errors.from_response(422, b'{"kind":"Status","reason":"Invalid","code":422}')
    script = [[*(line("ADDED", name, 1) for name in names), END]] if streams else [refused, listing]
    watched = informer(ApiClient(Played(*script), random.Random(1)))
    seen: list[int] = []  # how many objects the cache had, each time that another task ran before it was complete
    async with running(watched):
        while not watched.has_synced:
            seen.append(len(watched))
            await asyncio.sleep(0)
    assert len(set(seen)) >= len(names) // 2
    assert len(watched) == len(names)


async def test_undecodable_object_does_not_stop_others() -> None:
    poison = (
        line("ADDED", "ap", 4, "p").replace('"default"', '"default"', 1).replace('{"metadata"', '{"data":3,"metadata"')
    )
    seen, _ = await played([poison, line("ADDED", "a", 5), END])
    assert seen == [("a", False, True)]


async def test_informer_retries_while_the_server_is_unreachable() -> None:
    away = errors.Unanswered("refused", applied=False)
    seen, _ = await played(away, [line("ADDED", "a", 5), END])
    assert seen == [("a", False, True)]


@pytest.mark.parametrize("seed", range(3))
async def test_cache_equals_the_server_after_any_hisummary(client: ApiClient, seed: int) -> None:
    rng = random.Random(seed)
    watched = informer(client)
    async with running(watched) as changes:
        for _ in range(60):
            name = f"a{rng.randrange(6)}"
            match rng.randrange(3):
                case 0:
                    if await client.find(CONFIG_MAP, name, "default") is None:
                        await client.create(CONFIG_MAP, config_map(name))
                case 1:
                    if await client.find(CONFIG_MAP, name, "default") is not None:
                        await client.patch(CONFIG_MAP, name, {"data": {"x": str(rng.random())}}, "default")
                case _:
                    await client.delete(CONFIG_MAP, name, "default")
        listing = await client.list(CONFIG_MAP, "default")
        there = {
            item.metadata.name: item.metadata.resource_version
            for item in (msgspec.json.decode(i, type=kube.ConfigMap) for i in listing.items)
        }
        await eventually(lambda: {key.name: value.metadata.resource_version for key, value in watched.items()} == there)
        alive: set[str] = set()
        for name, existed, exists in summary(changes):
            assert existed == (name in alive), "every change starts from the value reported before"
            alive = alive | {name} if exists else alive - {name}


# --- Kinds that may be absent -----------------------------------------------------------------------------------------

NOT_SERVED = errors.from_response(404, b"404 page not found")


def optional(transport: Transport) -> Informer[kube.ConfigMap]:
    client = ApiClient(transport, random.Random(1))
    return Informer(client, CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1), may_be_absent=True)


@virtual_time
async def test_absent_kind_counts_as_listed_and_is_asked_for_at_growing_intervals() -> None:
    transport = Played(*(NOT_SERVED,) * 12, [line("ADDED", "a", 5), END])
    watched, served = optional(transport), list[bool]()
    watched.add_served_handler(served.append)
    clock, asked = asyncio.get_running_loop().time, list[float]()
    began = clock()

    class Noted(list[ApiRequest]):
        def append(self, call: ApiRequest) -> None:
            asked.append(clock() - began)
            super().append(call)

    transport.calls = Noted()
    async with running(watched) as changes:
        await asyncio.wait_for(watched.wait_for_sync(), 0.5)
        assert (list(watched.values()), watched.is_served, served) == ([], False, [False])
        await asyncio.sleep(1000)
    waits = [round(later - earlier) for earlier, later in pairwise(asked)][:12]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120, 120, 120]
    assert summary(changes) == [("a", False, True)]
    assert (watched.is_served, served) == (True, [False, True])


@virtual_time
async def test_absent_kind_is_asked_for_at_once_when_there_is_reason() -> None:
    transport = Played(*(NOT_SERVED,) * 9, [line("ADDED", "a", 5), END])
    watched = optional(transport)
    async with running(watched) as changes:
        await asyncio.sleep(200)  # the waits are 120 s long by now
        assert len(transport.calls) == 8
        watched.ask_again()
        await asyncio.sleep(0.1)
        assert (len(transport.calls), watched.is_served) == (9, False)  # asked, and too early
        await asyncio.sleep(1.1)
    assert watched.is_served
    assert summary(changes) == [("a", False, True)]


@virtual_time
async def test_kind_that_vanishes_is_asked_for_again_and_listed_again() -> None:
    again = [line("ADDED", "ab", 3, "v"), line("BOOKMARK", revision=4, end="true")]
    transport = Played([line("ADDED", "aa", 5), END], NOT_SERVED, again)
    watched, served = optional(transport), list[bool]()
    watched.add_served_handler(served.append)
    async with running(watched) as changes:
        await asyncio.sleep(60)
    assert served == [False, True]
    assert ("ab", False, True) in summary(changes)
    assert watched.get("ab", "default") is not None


@virtual_time
async def test_kind_that_must_be_there_is_waited_for() -> None:
    transport = Played(NOT_SERVED, NOT_SERVED, [END])
    watched = Informer(
        ApiClient(transport, random.Random(1)), CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1)
    )
    async with running(watched):
        await asyncio.sleep(0.1)
        assert not watched.has_synced
        await asyncio.wait_for(watched.wait_for_sync(), 60)


@virtual_time
async def test_kind_whose_crd_arrives_shortly_before_the_timeout_is_waited_for() -> None:
    """A server lists a kind some time after its CRD was installed, and answers with a retry until then."""
    slow = errors.from_response(429, b'{"kind":"Status","code":429,"message":"storage is (re)initializing"}')
    transport = Played(*(NOT_SERVED,) * 4, *(slow,) * 2, [END])
    client = ApiClient(transport, random.Random(1), attempts=1)
    watched = Informer(client, CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1))
    async with run_informers((watched,), 14.0):
        assert watched.has_synced
    assert not transport.script


@virtual_time
async def test_kind_that_is_served_and_not_listed_is_late() -> None:
    slow = errors.from_response(429, b'{"kind":"Status","code":429,"message":"storage is (re)initializing"}')
    client = ApiClient(Played(NOT_SERVED, *(slow,) * 50), random.Random(1), attempts=1)
    watched = Informer(client, CONFIG_MAP, ObjectDecoder(kube.ConfigMap), random.Random(1))
    began = asyncio.get_running_loop().time()
    with pytest.raises(ExceptionGroup) as caught:
        async with run_informers((watched,), 14.0):
            raise AssertionError
    assert str(caught.value.exceptions[0]).startswith("the API server did not list configmaps within 14 seconds")
    assert asyncio.get_running_loop().time() - began == pytest.approx(28.0)
