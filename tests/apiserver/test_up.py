"""`pykueue up`, the process: ready when its kubeconfig appears, gone on SIGTERM, and whole again after kill -9."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path

import pytest
import yaml

from apiserver.conftest import CONFIG_MAPS, Client, Running, config_map
from pykueue import app

KILLS = int(os.environ.get("APISERVER_KILLS", "2"))
PAYLOAD = {"x": "y" * 500}
FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"


class Process:
    def __init__(self, directory: Path, *more: str) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._arguments = ["--data-dir", str(directory / "data"), "--kubeconfig", str(self.kubeconfig), *more]
        self.start()

    def start(self) -> None:
        # A server takes the file of its predecessor away, but not before it has begun to run.
        self.kubeconfig.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pykueue", "up", *self._arguments], stderr=subprocess.PIPE, text=True
        )
        until = time.monotonic() + 60
        while not self.kubeconfig.exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until, "the server is not ready after a minute"
            time.sleep(0.02)

    def client(self) -> Client:
        document = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        return Client(cluster["server"], base64.b64decode(cluster["certificate-authority-data"]), user["token"])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=30)
        return self.process.returncode, told


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pykueue", "up", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_ready_with_the_queueing_api_and_ends_cleanly(tmp_path: Path) -> None:
    process = Process(tmp_path)
    try:
        client = process.client()
        assert client.get("/readyz").body == b"ok"
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
        client.post(FLAVORS, flavor).ok()
        stream = client.watch(FLAVORS)
        assert next(stream)["type"] == "ADDED"
        second = refused("--data-dir", str(tmp_path / "data"))
        assert f"process {process.process.pid}" in second
    finally:
        code, told = process.end()
    assert code == 0, told
    assert "RBAC is stored but not enforced" in told
    assert client.token not in told
    process.start()
    try:
        process.client().get(f"{FLAVORS}/f").ok()
    finally:
        assert process.end()[0] == 0


def test_our_own_crds_are_taken_from_anybody(tmp_path: Path) -> None:
    """The server takes them unread when it starts; a server that reads them must find nothing wrong."""
    with Running(app.ServerSettings(data_dir=tmp_path), app.bare_parts()) as server:
        for crd in app.kueue_parts().crds:
            made = server.client().post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            assert made.code == 201, made.tree


class Witness:
    """Watches through every kill, each time from where it was cut off."""

    def __init__(self, client: Client) -> None:
        self.revision: str = client.get(CONFIG_MAPS).ok()["metadata"]["resourceVersion"]
        self.seen: dict[str, str] = {}

    def watch(self, client: Client, until: int | None = None) -> None:
        """Until the server is gone; or until everything up to a revision has been told."""
        if until is not None and int(self.revision) >= until:
            return
        with contextlib.suppress(OSError, HTTPException, ValueError):
            for event in client.watch(CONFIG_MAPS, resourceVersion=self.revision, timeoutSeconds=30):
                details, data = event["object"]["metadata"], event["object"]["data"]
                assert event["type"] == "ADDED"
                assert int(details["resourceVersion"]) > int(self.revision), "told twice, or out of order"
                assert data == PAYLOAD, "a torn object"
                self.revision = details["resourceVersion"]
                self.seen[details["name"]] = self.revision
                if until is not None and int(self.revision) >= until:
                    return


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """Clients write until the process is gone. The next one has every write that was answered, and whoever watches
    goes on where the last one cut him off: told of each write once, in order, and of none that is not kept.
    """
    chance = random.Random(3)
    process = Process(tmp_path, "--runner", "none")
    witness = Witness(process.client())
    told: dict[str, str] = {}
    for kill in range(KILLS):
        client = process.client()

        def work(worker: int, client: Client = client, kill: int = kill) -> None:
            for turn in range(10_000):
                name = f"k{kill}-w{worker}-{turn}"
                try:
                    made = client.post(CONFIG_MAPS, config_map(name, PAYLOAD))
                except (OSError, HTTPException):
                    return
                if made.code == 201:
                    told[name] = made.tree["metadata"]["resourceVersion"]

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        threads.append(threading.Thread(target=witness.watch, args=(client,)))
        for thread in threads:
            thread.start()
        # After so many answers, and then at any moment: however busy the machine is.
        wanted, until = len(told) + chance.randint(1, 60), time.monotonic() + 60
        while len(told) < wanted:
            assert time.monotonic() < until, "nothing is acknowledged"
            time.sleep(chance.uniform(0.0, 0.01))
        process.process.kill()
        process.process.communicate()
        for thread in threads:
            thread.join(40)
        process.start()
        listed = process.client().get(CONFIG_MAPS).ok()
        found = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert told.items() <= found.items(), "an acknowledged write is gone"
        assert witness.seen.items() <= found.items(), "a watcher was told of a write that is not kept"
        assert all(item["data"] == PAYLOAD for item in listed["items"]), "a torn object"
        assert int(listed["metadata"]["resourceVersion"]) >= max(map(int, told.values()))
        witness.watch(process.client(), until=max(map(int, found.values())))
        assert witness.seen == found, "a watcher missed something"
    print(f"{KILLS} kills, {len(told)} acknowledged writes, all of them there and told once")
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
