"""`pykueue up`, the process: ready when its kubeconfig appears, gone on SIGTERM, and whole again after kill -9."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import yaml

import started
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.app import embedded_manager as embedding
from pykueue.app.bare_server import bare_parts
from pykueue.app.embedded_manager import RunnerName, embedded_runner
from pykueue.app.server import kueue_parts
from pykueue.cli import up
from server.conftest import CONFIG_MAPS, Client, Running, config_map
from started import Up
from waiting import PATIENCE_SECONDS, eventually, until

KILLS = int(os.environ.get("APISERVER_KILLS", "2"))
PAYLOAD = {"x": "y" * 500}
CLUSTER_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"


def client_of(server: Up) -> Client:
    return client_with(server.kubeconfig)


def client_with(kubeconfig: Path) -> Client:
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    return Client(cluster["server"], base64.b64decode(cluster["certificate-authority-data"]), user["token"])


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pykueue", "up", *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_server_continues_when_the_reader_of_its_stderr_is_gone(tmp_path: Path) -> None:
    """As in `pykueue up 2>&1 | head -1`. Every line that it prints or logs after that meets a closed pipe."""
    kubeconfig = tmp_path / "kubeconfig"
    reading, writing = os.pipe()
    os.close(reading)
    arguments = ("--data-dir", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig), "--log-level", "debug")
    with open(writing, "wb") as closed:
        process = subprocess.Popen([sys.executable, "-m", "pykueue", "up", *arguments], stderr=closed)
    try:
        until(lambda: kubeconfig.exists() or process.poll() is not None)
        client = client_with(kubeconfig)
        until(lambda: any(each["metadata"]["name"] == "default" for each in client.get(CLUSTER_QUEUES).tree["items"]))
        assert client.get("/readyz").body == b"ok"
    finally:
        process.terminate()
    assert process.wait(PATIENCE_SECONDS) == 0


def test_ready_with_the_queueing_api_and_ends_cleanly(tmp_path: Path) -> None:
    process = started.up(tmp_path)
    try:
        client = client_of(process)
        assert client.get("/readyz").body == b"ok"
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
        client.post(FLAVORS, flavor).ok()
        stream = client.watch(FLAVORS)
        assert next(stream)["type"] == "ADDED"
        second = refused("--data-dir", str(tmp_path / "data"))
        assert f"process {process.process.pid}" in second
    finally:
        code, output = process.end()
    assert code == 0, output
    assert "RBAC is stored but not enforced" in output
    assert client.token not in output
    process.start()
    try:
        client_of(process).get(f"{FLAVORS}/f").ok()
    finally:
        assert process.end()[0] == 0


async def test_the_kubeconfig_appears_when_the_runner_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits for it reads the node next, which must exist."""
    kubeconfig, usual, was_there = tmp_path / "kubeconfig", embedded_runner, []

    @contextlib.asynccontextmanager
    async def watched(*arguments: Any, **more: Any) -> AsyncIterator[Any]:
        async with usual(*arguments, **more) as made:
            was_there.append(kubeconfig.exists())
            yield made

    monkeypatch.setattr(embedding, "embedded_runner", watched)
    place = ServerSettings(data_dir=tmp_path, kubeconfig=kubeconfig, durability=Durability.MEMORY)
    serving = asyncio.create_task(up._serve(place, settings.defaults(), RunnerName.SIMULATED, discards_unknown=False))
    await eventually(lambda: kubeconfig.exists() or serving.done())
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    assert was_there == [False]


def test_the_own_crds_are_valid_for_a_bare_server(tmp_path: Path) -> None:
    """The server takes them unread when it starts; a server that reads them must find nothing wrong."""
    with Running(ServerSettings(data_dir=tmp_path), bare_parts()) as server:
        for crd in kueue_parts().crds:
            made = server.client().post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            assert made.code == 201, made.tree


class RevisionWatcher:
    """A watch that is opened again after every kill, from its last revision."""

    def __init__(self, client: Client) -> None:
        self.revision: str = client.get(CONFIG_MAPS).ok()["metadata"]["resourceVersion"]
        self.seen: dict[str, str] = {}

    def watch(self, client: Client, until: int | None = None) -> None:
        """Read events until the server stops, or until a revision is reached."""
        if until is not None and int(self.revision) >= until:
            return
        with contextlib.suppress(OSError, HTTPException, ValueError):
            for event in client.watch(CONFIG_MAPS, resourceVersion=self.revision, timeoutSeconds=300):
                details, data = event["object"]["metadata"], event["object"]["data"]
                assert event["type"] == "ADDED"
                assert int(details["resourceVersion"]) > int(self.revision), "delivered twice, or out of order"
                assert data == PAYLOAD, "a torn object"
                self.revision = details["resourceVersion"]
                self.seen[details["name"]] = self.revision
                if until is not None and int(self.revision) >= until:
                    return


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """Clients write until the process is killed. The next process has every acknowledged write, and a watch resumes at
    its last revision: it gets each write once, in order, and none that was lost.
    """
    rng = random.Random(3)
    process = started.up(tmp_path, "--runner", "none")
    watcher = RevisionWatcher(client_of(process))
    acknowledged: dict[str, str] = {}
    for kill in range(KILLS):
        client = client_of(process)

        def work(worker: int, client: Client = client, kill: int = kill) -> None:
            for turn in range(10_000):
                name = f"k{kill}-w{worker}-{turn}"
                try:
                    made = client.post(CONFIG_MAPS, config_map(name, PAYLOAD))
                except (OSError, HTTPException):
                    return
                if made.code == 201:
                    acknowledged[name] = made.tree["metadata"]["resourceVersion"]

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        threads.append(threading.Thread(target=watcher.watch, args=(client,)))
        for thread in threads:
            thread.start()
        # After so many answers, and then at any moment: however busy the machine is.
        wanted = len(acknowledged) + rng.randint(1, 60)
        until(partial(lambda count: len(acknowledged) >= count, wanted))
        time.sleep(rng.uniform(0.0, 0.01))
        process.process.kill()
        process.process.communicate()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        process.start()
        listed = client_of(process).get(CONFIG_MAPS).ok()
        found = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert acknowledged.items() <= found.items(), "an acknowledged write is lost"
        assert watcher.seen.items() <= found.items(), "a watch delivered a write that was lost"
        assert all(item["data"] == PAYLOAD for item in listed["items"]), "a torn object"
        assert int(listed["metadata"]["resourceVersion"]) >= max(map(int, acknowledged.values()))
        watcher.watch(client_of(process), until=max(map(int, found.values())))
        assert watcher.seen == found, "a watcher missed something"
    print(f"{KILLS} kills, {len(acknowledged)} acknowledged writes, all present and delivered once")
    assert process.end()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "nonsense"), "must be HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "must be HOST:PORT"),
        (("--listen", "192.0.2.1:0"), "cannot listen on 192.0.2.1"),
        (("--config", "/does/not/exist"), "/does/not/exist"),
        (("--data-dir", "/dev/null"), "the data directory cannot be used"),
        (("--data-dir", "/dev/null", "--runner", "none"), "the data directory cannot be used"),
        (("--kubeconfig", "/dev/null/file"), "the kubeconfig cannot be written: /dev/null/file: "),
        (("--view-kubeconfig", "/dev/null/file"), "the kubeconfig cannot be written: /dev/null/file: "),
    ],
)
def test_a_call_that_cannot_work_is_refused_in_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused("--data-dir", str(tmp_path), *arguments)


def test_a_configuration_that_could_not_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nzzz: 1\n")
    assert "zzz" in refused("--data-dir", str(tmp_path / "data"), "--config", str(path))
