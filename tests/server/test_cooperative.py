"""However long a list is, others get their turn in between."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubemachinery import http_messages
from kubemachinery.http_messages import Request
from kubeserver.protocol import authentication, cooperative
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage import watch
from kubeserver.storage.sqlite import Durability
from server.conftest import OLD_WIDGETS, WIDGETS, parts, widget
from waiting import PATIENCE_SECONDS

WIDGET_COUNT = 1_000

AS_TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
AS_METADATA = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
RED = [("fieldSelector", "spec.color=red")]
FROM_NOW = [("watch", "true"), ("timeoutSeconds", "1")]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Request("GET", WIDGETS, headers=AS_TABLE), id="a Table"),
        pytest.param(Request("GET", WIDGETS, headers=AS_METADATA), id="metadata only"),
        pytest.param(Request("GET", WIDGETS, query=RED), id="a selector that nothing matches"),
        pytest.param(Request("GET", OLD_WIDGETS), id="another version"),
        pytest.param(Request("GET", WIDGETS, query=FROM_NOW, headers=AS_TABLE), id="a watch that begins with all"),
        pytest.param(Request("DELETE", WIDGETS), id="a deletion of all"),
    ],
)
async def test_a_long_list_leaves_turns_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Request
) -> None:
    """Every moment is a long one here, so that the answer does not depend on how fast the machine is."""
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(watch, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(watch, "CHUNK_BYTES", 50_000)
    settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(settings, parts()) as running:

        async def ask(request: Request) -> http_messages.Response:
            return await running.embedded.server.handle_as(authentication.ADMIN, request)

        for index in range(WIDGET_COUNT):
            body = json.dumps(widget(f"w{index:05}")).encode()
            assert (await ask(Request("POST", WIDGETS, read=http_messages.body_of(body)))).status == 201
        others = 0

        async def take_turns() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        taking = asyncio.create_task(take_turns())
        response = await ask(request_)
        assert response.status == 200
        if response.stream is not None:
            lines = 0

            async def write(data: bytes) -> None:
                nonlocal lines
                lines += data.count(b"\n")
                if lines == WIDGET_COUNT:
                    taking.cancel()

            await response.stream(write)
            assert lines == WIDGET_COUNT
        taking.cancel()
        assert others >= WIDGET_COUNT // 100


class TestWorkers:
    async def test_one_user_cannot_take_the_threads_of_another(self) -> None:
        """Ten long pieces of one user are waiting; the piece of another user is done before the second of them."""
        done: list[str] = []
        go_on = threading.Event()

        def work(name: str) -> None:
            assert go_on.wait(PATIENCE_SECONDS)
            done.append(name)

        with ThreadPoolExecutor(1) as executor:
            workers = cooperative.Workers(executor, running_max=1)
            greedy = [asyncio.create_task(workers.run("greedy", lambda: work("greedy"))) for _ in range(10)]
            await asyncio.sleep(0)
            modest = asyncio.create_task(workers.run("modest", lambda: work("modest")))
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(modest, *greedy)
        assert done.index("modest") == 1

    async def test_the_loop_turns_while_long_work_is_done(self) -> None:
        turned = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            work = cooperative.Workers(executor).run("user", lambda: turned.wait(PATIENCE_SECONDS))
            running = asyncio.create_task(work)
            await asyncio.sleep(0)
            turned.set()
            assert await running

    async def test_short_work_is_done_at_once_and_a_failure_is_passed_on(self) -> None:
        with ThreadPoolExecutor(1) as executor:
            workers = cooperative.Workers(executor)
            assert await workers.run("user", threading.get_ident, is_long=False) == threading.get_ident()
            assert await workers.run("user", threading.get_ident) != threading.get_ident()
            with pytest.raises(ZeroDivisionError):
                await workers.run("user", lambda: 1 // 0)
