"""However long a list is, others get their turn in between."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from apiserver.conftest import OLD_WIDGETS, WIDGETS, parts, widget
from pykueue import app, serving
from pykueue.apiserver import access, turns, watch
from pykueue.apiserver.store import Durability
from pykueue.serving import Request

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
    monkeypatch.setattr(turns, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(watch, "CHUNK_BYTES", 50_000)
    settings = app.ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with app.api_server(settings, parts()) as running:

        async def ask(request: Request) -> serving.Response:
            return await running.embedded.server.handle_as(access.ADMIN, request)

        for index in range(WIDGET_COUNT):
            body = json.dumps(widget(f"w{index:05}")).encode()
            assert (await ask(Request("POST", WIDGETS, read=serving.body_of(body)))).status == 201
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
