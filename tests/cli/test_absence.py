"""`pykueue up` is restarted, or killed and started again: commands that wait, follow or watch continue."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import started
from kubemachinery.client import client_config, errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.http_transport import HttpTransport
from kubemachinery.errors import UsageError
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.app.bare_server import bare_parts
from pykueue.client.client import AsyncClient, WorkloadEvent
from started import Up
from waiting import PATIENCE_SECONDS, eventually, until


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    with started.held_port() as port:
        server = started.up(tmp_path, "--listen", f"127.0.0.1:{port}")
        monkeypatch.setenv("KUBECONFIG", os.fspath(server.kubeconfig))
        try:
            yield server
        finally:
            assert "Traceback" not in (output := server.end()[1]), output


class Command:
    """A command that runs for a while, and its output so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out, self._err = folder / f"{words[0]}.out", folder / f"{words[0]}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen([sys.executable, "-m", "pykueue", *words], stdout=out, stderr=err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def away(self) -> list[str]:
        """Its messages about a server that is not reachable."""
        return [line for line in self.err.splitlines() if line.endswith("; waiting up to 5 min for the server")]

    def has_printed(self, text: str) -> bool:
        return self.out == text

    def ended(self) -> tuple[int, str]:
        return self._process.wait(PATIENCE_SECONDS), self.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_commands_outlast_a_server_that_starts_again(up: Up, tmp_path: Path, number: int) -> None:
    gates = [tmp_path / f"gate-{n}" for n in range(2)]
    steps = [f"while [ ! -e {gate} ]; do sleep 0.05; done; rm {gate}; echo {gate.name}" for gate in gates]
    async with AsyncClient() as client:
        await client.submit(["true"], name="short")
        await client.submit(["sh", "-c", "; ".join(("echo began", *steps))], name="long", cpu="100m")
    last = f"until [ -e {tmp_path}/over ]; do sleep 0.05; done; exit 3"
    commands = {
        "began\n": Command(tmp_path, "logs", "-f", "long"),
        "job short succeeded\n": Command(tmp_path, "wait", "short", "long"),
        "job last submitted to queue default\n": Command(
            tmp_path, "submit", "--name", "last", "--cpu", "100m", "--wait", "--", "sh", "-c", last
        ),
    }
    for first_words, command in commands.items():
        until(partial(command.has_printed, first_words))

    up.end(number)
    until(lambda: all(command.away for command in commands.values()))
    gates[0].touch()
    until(lambda: not gates[0].exists())  # output is written while no command follows it
    up.start()
    gates[1].touch()
    (tmp_path / "over").touch()

    followed, waited, submitted = commands.values()
    assert followed.ended() == (0, "began\ngate-0\ngate-1\n")
    assert waited.ended() == (0, "job short succeeded\njob long succeeded\n")
    assert submitted.ended() == (1, "job last submitted to queue default\n")
    assert submitted.err.endswith("job last failed with exit code 3; no retries left\n")
    server = client_config.from_files([up.kubeconfig]).server
    for command in commands.values():
        [message] = command.away
        assert message.startswith(server), "once, with its name"


async def test_news_go_on_when_the_server_is_back(up: Up, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each Event once: those from before the restart are not repeated."""
    received: list[WorkloadEvent] = []
    async with AsyncClient() as client:

        async def listen() -> None:
            async for news in client.watch():
                received.append(news)

        listening = asyncio.create_task(listen())

        def of(job: str) -> list[str]:
            return [one.type for one in received if one.workload.metadata.name.startswith(f"job-{job}-")]

        await client.submit(["true"], name="before")
        await client.wait("before")
        await asyncio.to_thread(up.end)
        await eventually(lambda: "for the server" in caplog.text)
        await asyncio.to_thread(up.start)
        await client.submit(["true"], name="after")
        await client.wait("after")
        await eventually(lambda: "ADDED" in of("after"))
        assert of("before").count("ADDED") == 1
        assert caplog.text.count("for the server") == 1
        await client.cancel("before")
        await eventually(lambda: of("before")[-1] == "DELETED")
        assert not listening.done()
        listening.cancel()
        await asyncio.wait({listening})


async def test_watching_without_a_server_fails_at_once() -> None:
    with started.held_port() as port:
        unreachable = HttpTransport(f"http://127.0.0.1:{port}")
        async with AsyncClient(api_client=ApiClient(unreachable, random.Random(1), attempts=1)) as client:
            with pytest.raises(errors.Unanswered, match="cannot be reached: Connection refused"):
                await anext(client.watch())


async def test_a_server_that_starts_again_listens_where_it_did(tmp_path: Path) -> None:
    async def listened(port: int = 0) -> int:
        settings = ServerSettings(data_dir=tmp_path, port=port, durability=Durability.MEMORY)
        async with api_server(settings, bare_parts()) as serving:
            return int(serving.url.rpartition(":")[2])

    with started.held_port() as port:
        assert await listened(port) == port
        assert await listened() == port
        with socket.create_server(("127.0.0.1", port)):
            assert await listened() != port, "another process has it now"
    (tmp_path / "port").write_text("99999999")
    assert await listened()


async def test_a_second_server_leaves_the_way_to_the_first_one_alone(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path)
    async with api_server(settings, bare_parts()) as first:
        before = first.kubeconfig.read_text()
        with pytest.raises(UsageError, match="is in use by another server"):
            async with api_server(settings, bare_parts()):
                pass
        assert first.kubeconfig.read_text() == before
