"""The API client, over a socket and in process."""

from __future__ import annotations

import asyncio
import datetime
import gc
import random
import socket
import ssl
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.client import errors
from kubemachinery.client.client import METADATA, METADATA_OF_ALL, ApiClient, RateLimiter
from kubemachinery.client.http_transport import HttpTransport
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.priority import LOW, NORMAL
from kubemachinery.client.transport import ApiRequest, ApiResponse, ConnectionOptions, Transport
from kubemachinery.http_messages import Request, Response, Write
from kubeserver.protocol import server_credentials
from pykueue.api import kube, kueue, registry
from silent_server import silent_server
from virtual import virtual_time
from waiting import PATIENCE_SECONDS

CONFIG_MAP = registry.KUBERNETES.of(kube.ConfigMap)
FLAVOR = registry.KUEUE.of(kueue.ResourceFlavor)
WORKLOAD = registry.KUEUE.of(kueue.Workload)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_what_is_created_can_be_read_patched_and_deleted(client: ApiClient) -> None:
    made = await client.create(CONFIG_MAP, config_map("a", x="1"))
    assert made["metadata"]["uid"]
    assert (await client.get(CONFIG_MAP, "a", "default"))["data"] == {"x": "1"}
    patched = await client.patch(CONFIG_MAP, "a", {"data": {"y": "2"}}, "default")
    assert patched["data"] == {"x": "1", "y": "2"}
    await client.delete(CONFIG_MAP, "a", "default")
    assert await client.find(CONFIG_MAP, "a", "default") is None


async def test_delete_of_a_missing_object_is_no_error(client: ApiClient) -> None:
    await client.delete(CONFIG_MAP, "never", "default")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a?b", "a%2Fb", "a b", "a#", "a\r\nb"])
async def test_a_name_that_no_object_can_have_is_not_found_and_sends_no_request(client: ApiClient, name: str) -> None:
    """Without a name, the request would be that for the whole collection: its deletion deletes every object."""
    await client.create(CONFIG_MAP, config_map("a"))
    assert await client.find(CONFIG_MAP, name, "default") is None
    for named in (
        client.delete(CONFIG_MAP, name, "default"),
        client.get(CONFIG_MAP, name, "default"),
        client.patch(CONFIG_MAP, name, {}, "default"),
        client.patch_revision(CONFIG_MAP, name, {}, "default"),
        client.replace(CONFIG_MAP, config_map(name)),
        client.replace_revision(CONFIG_MAP, config_map(name)),
        client.apply(CONFIG_MAP, config_map(name), "me"),
        client.delete(CONFIG_MAP, "a", name or ".."),
    ):
        with pytest.raises(errors.NotFound, match="cannot be a name"):
            await named
    assert await client.find(CONFIG_MAP, "a", "default") is not None


async def test_delete_with_a_uid_keeps_another_object_of_the_same_name(client: ApiClient) -> None:
    await client.create(CONFIG_MAP, config_map("a"))
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAP, "a", "default", uid="somebody-else")


async def test_each_status_raises_its_error_class(client: ApiClient) -> None:
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAP, "none", "default")
    made = await client.create(CONFIG_MAP, config_map("a"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAP, config_map("a"))
    await client.patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, "default")
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAP, {**made, "data": {"y": "1"}})
    with pytest.raises(errors.Invalid) as caught:
        await client.create(
            FLAVOR, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "X_"}}
        )
    assert caught.value.causes


async def test_patch_with_a_stale_revision_is_a_conflict(client: ApiClient) -> None:
    made = await client.create(CONFIG_MAP, config_map("a"))
    await client.patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, "default")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIG_MAP, "a", stale, "default")


async def test_patch_can_return_the_revision_only(client: ApiClient) -> None:
    await client.create(CONFIG_MAP, config_map("a", x="1"))
    made = await client.patch_revision(CONFIG_MAP, "a", {"data": {"x": "2"}}, "default")
    found = await client.get(CONFIG_MAP, "a", "default")
    assert (found["metadata"]["resourceVersion"], found["data"]) == (made, {"x": "2"})


async def test_replace_can_return_the_revision_only(client: ApiClient) -> None:
    await client.create(CONFIG_MAP, config_map("a", x="1"))
    made = await client.replace_revision(CONFIG_MAP, config_map("a", x="2"))
    found = await client.get(CONFIG_MAP, "a", "default")
    assert (found["metadata"]["resourceVersion"], found["data"]) == (made, {"x": "2"})


async def test_create_can_return_the_metadata_only(client: ApiClient) -> None:
    made = await client.create(CONFIG_MAP, config_map("a", x="1"), accept=METADATA)
    found = await client.get(CONFIG_MAP, "a", "default")
    assert (made["kind"], made["metadata"]) == ("PartialObjectMetadata", found["metadata"])
    assert "data" not in made


@pytest.mark.parametrize(("page", "requests"), [(3, 3), (0, 1)])
async def test_list_reads_all_pages(transport: Transport, rng: random.Random, page: int, requests: int) -> None:
    client = ApiClient(transport, rng, page=page)
    for number in range(7):
        await client.create(CONFIG_MAP, config_map(f"a{number}"))
    listing = await client.list(CONFIG_MAP, "default")
    names = [item for item in listing.items if b'"a' in bytes(item)]
    assert len(names) == 7
    assert int(listing.revision) > 0
    assert client.sent["GET", "configmaps"] == requests


async def test_empty_metadata_list_is_empty(client: ApiClient) -> None:
    """A kube-apiserver returns null instead of an empty list of metadata; so does kubeserver."""
    assert (await client.list(WORKLOAD, accept=METADATA_OF_ALL)).items == []


async def test_server_side_apply_creates_and_owns(client: ApiClient) -> None:
    applied = await client.apply(CONFIG_MAP, config_map("a", x="1"), "me")
    assert applied["metadata"]["managedFields"][0]["manager"] == "me"


async def test_requests_are_counted_by_verb_and_kind(client: ApiClient) -> None:
    await client.create(CONFIG_MAP, config_map("a"))
    await client.find(CONFIG_MAP, "a", "default")
    assert client.sent == {("POST", "configmaps"): 1, ("GET", "configmaps"): 1}


class Flaky(LocalTransport):
    """A transport that returns these responses first."""

    def __init__(self, *first: ApiResponse | Exception) -> None:
        self.first = list(first)
        self.calls: list[ApiRequest] = []

    async def send(self, call: ApiRequest) -> ApiResponse:
        self.calls.append(call)
        answer = self.first.pop(0) if self.first else ApiResponse(200, b"{}")
        if isinstance(answer, Exception):
            raise answer
        return answer


BUSY = ApiResponse(429, b'{"kind":"Status","reason":"TooManyRequests","code":429}', {"Retry-After": "0"})
TIMED_OUT = ApiResponse(504, b'{"kind":"Status","reason":"Timeout","code":504}')
NOT_REACHED = errors.Unanswered("refused", applied=False)
LOST = errors.Unanswered("reset")


@pytest.mark.parametrize("trouble", [BUSY, TIMED_OUT, NOT_REACHED, LOST])
async def test_read_is_retried_after_any_transient_error(trouble: ApiResponse | Exception) -> None:
    flaky = Flaky(trouble)
    await ApiClient(flaky, random.Random(1)).get(CONFIG_MAP, "a", "default")
    assert len(flaky.calls) == 2


@pytest.mark.parametrize("trouble", [BUSY, NOT_REACHED])
async def test_write_is_retried_when_it_was_not_carried_out(trouble: ApiResponse | Exception) -> None:
    flaky = Flaky(trouble)
    await ApiClient(flaky, random.Random(1)).create(CONFIG_MAP, config_map("a"))
    assert len(flaky.calls) == 2


@pytest.mark.parametrize("trouble", [TIMED_OUT, LOST])
async def test_write_that_may_have_been_carried_out_is_not_retried(trouble: ApiResponse | Exception) -> None:
    flaky = Flaky(trouble)
    with pytest.raises(errors.KubeError):
        await ApiClient(flaky, random.Random(1)).create(CONFIG_MAP, config_map("a"))
    assert len(flaky.calls) == 1


@pytest.mark.parametrize("page", [b"", b"<html></html>", b"[]", b'{"kind": "ConfigMap"}', b"\xff"])
async def test_response_that_is_no_object_leaves_the_write_unknown(page: bytes) -> None:
    """Such as the page of a proxy: it ends no controller."""
    flaky = Flaky(ApiResponse(200, page))
    with pytest.raises(
        errors.Unanswered, match="the response to PATCH /api/v1/namespaces/default/configmaps/a"
    ) as caught:
        await ApiClient(flaky, random.Random(1)).patch_revision(CONFIG_MAP, "a", {}, "default")
    assert caught.value.applied is None
    assert len(flaky.calls) == 1


async def test_failed_connection_reports_the_write_as_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is open, and the server does not complete the handshake."""
    monkeypatch.setattr("kubemachinery.client.http_transport.CONNECT_SECONDS", 0.05)
    async with silent_server() as (host, port):
        transport = HttpTransport(f"https://{host}:{port}")
        with pytest.raises(errors.Unanswered) as caught:
            await transport.send(ApiRequest("POST", "/"))
        await transport.close()
    assert caught.value.applied is False


async def test_retries_end_after_the_maximum_number_of_attempts() -> None:
    flaky = Flaky(*[NOT_REACHED] * 20)
    client = ApiClient(flaky, random.Random(1))
    client._backoff = lambda attempt, error: 0.0  # type: ignore[method-assign]
    with pytest.raises(errors.Unanswered):
        await client.get(CONFIG_MAP, "a", "default")
    assert len(flaky.calls) == 6


@virtual_time
async def test_rate_limiter_allows_a_burst_and_then_the_rate() -> None:
    limit, loop = RateLimiter(qps=100, burst=5), asyncio.get_running_loop()
    start = loop.time()
    for _ in range(5):
        await limit.take()
    assert loop.time() == start
    for _ in range(5):
        await limit.take()
    assert loop.time() - start == pytest.approx(0.05)


@virtual_time
async def test_low_priority_waits_behind_normal_but_is_not_starved() -> None:
    limit, came = RateLimiter(qps=1000, burst=1), ""

    async def ask(who: str) -> None:
        nonlocal came
        await limit.take(priority=LOW if who == "p" else NORMAL)
        came += who

    await asyncio.gather(*(ask(who) for who in "-ppp" + 25 * "u"))
    assert came == "-" + 9 * "u" + "p" + 9 * "u" + "p" + 7 * "u" + "p"


@virtual_time
async def test_cancelled_wait_consumes_no_token() -> None:
    limit = RateLimiter(qps=1, burst=1)
    await limit.take()
    gave_up = [asyncio.ensure_future(limit.take()) for _ in range(10)]
    last = asyncio.ensure_future(limit.take())
    await asyncio.sleep(0)
    for each in gave_up:
        each.cancel()
    await asyncio.wait_for(last, 1.1)


async def test_closed_fence_allows_reads_and_no_writes(client: ApiClient) -> None:
    """A client that lost the lease sends no write, whatever it waited for before."""
    fenced = client.with_fence(lambda: False)
    with pytest.raises(errors.Fenced):
        await fenced.create(CONFIG_MAP, config_map("a"))
    assert await fenced.find(CONFIG_MAP, "a", "default") is None
    await client.with_fence(lambda: True).create(CONFIG_MAP, config_map("a"))
    assert await fenced.find(CONFIG_MAP, "a", "default") is not None


@virtual_time
async def test_fence_is_checked_after_the_rate_limit() -> None:
    is_open, limit = True, RateLimiter(qps=20, burst=1)
    await limit.take()

    async def never(request: Request) -> Response:
        raise AssertionError(request)

    client = ApiClient(LocalTransport(never), random.Random(1), limit).with_fence(lambda: is_open)
    writing = asyncio.ensure_future(client.create(CONFIG_MAP, config_map("a")))
    await asyncio.sleep(0.01)
    is_open = False
    with pytest.raises(errors.Fenced):
        await writing


async def test_fence_is_checked_in_the_turn_that_writes_the_body() -> None:
    """A process can be stopped in any turn of its loop, so the write is sent in the turn that checks its fence."""
    on_the_wire = b""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def look() -> None:
            nonlocal on_the_wire
            accepted, _ = listening.accept()
            with accepted:
                # The kernel may need a moment to deliver it; nothing is written meanwhile, because the loop is blocked here.
                accepted.settimeout(PATIENCE_SECONDS)
                while not on_the_wire.endswith(b"what was meant"):
                    on_the_wire += accepted.recv(10_000)

        def fence() -> bool:
            asyncio.get_running_loop().call_soon(look)
            return True

        transport = HttpTransport(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(errors.Unanswered):  # `look` closes the connection
            await transport.send(ApiRequest("PATCH", "/somewhere", (), b"what was meant", "text/plain", fence=fence))
        await transport.close()
    assert on_the_wire.endswith(b"what was meant")


def test_error_quotes_the_page_of_a_proxy() -> None:
    error = errors.from_response(502, b"<html>bad gateway</html>")
    assert (error.code, str(error)) == (502, "<html>bad gateway</html>")


def test_a_stream_that_is_left_early_leaves_no_connection_open(tmp_path: Path) -> None:
    """The server does not take part in the TLS closing, and the event loop ends right after the client was closed."""
    credentials = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(credentials.server, None, credentials.ca)
    is_over = threading.Event()

    def answer(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        with tls.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            is_over.wait(PATIENCE_SECONDS)

    async def read_one_line(port: int) -> bytes:
        trusting = ssl.create_default_context(cadata=credentials.ca.decode())
        transport = HttpTransport(f"https://127.0.0.1:{port}", ConnectionOptions(tls=trusting))
        async with transport.stream(ApiRequest("GET", "/")) as lines:
            first = await anext(aiter(lines))
        await transport.close()
        return first

    with socket.create_server(("127.0.0.1", 0)) as listening, warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        server = threading.Thread(target=answer, args=(listening,))
        server.start()
        assert asyncio.run(read_one_line(listening.getsockname()[1])) == b"{}\n"
        gc.collect()
        is_over.set()
        server.join(PATIENCE_SECONDS)
    assert left_open == []


async def test_a_stream_in_process_keeps_no_chunk_that_was_read() -> None:
    chunk, is_read = b'{"a":1}\n' * 1_000 + b'{"b"', asyncio.Event()

    async def stream(write: Write) -> None:
        await write(chunk)
        await is_read.wait()
        await write(b":2}\n")

    async def handler(request: Request) -> Response:
        return Response(stream=stream)

    async with LocalTransport(handler).stream(ApiRequest("GET", "/")) as lines:
        iterator = aiter(lines)
        assert [await anext(iterator) for _ in range(1_000)] == [b'{"a":1}\n'] * 1_000
        last = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)
        # The variable, which `stream` shares, and the argument of this call.
        assert sys.getrefcount(chunk) == 2
        is_read.set()
        assert await last == b'{"b":2}\n'
