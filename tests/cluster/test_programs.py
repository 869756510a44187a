"""Go programs against our server: informers that outlive it, and an operator's test suite that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import started
from cluster import assets
from server.conftest import Client
from server.test_up import client_of
from started import Up, held_port
from waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).resolve().parents[2] / "deploy" / "crds"
ROOTS = {"pods": "/api/v1", "jobs": "/apis/batch/v1", "workloads": "/apis/kueue.x-k8s.io/v1beta2"}
View = dict[str, dict[str, str]]


def program(name: str) -> Path:
    try:
        return assets.program(name)
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))


@pytest.mark.parametrize(
    ("suite", "passing"),
    [("operator", 3), ("webhooked", 7)],
    ids=["operator", "with webhooks"],
)
def test_an_operators_suite_runs_on_the_stand_ins(tmp_path: Path, suite: str, passing: int) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "pykueue", "testenv", "path", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    done = subprocess.run(
        [program(suite), "-test.v"],
        env={
            **os.environ,
            "KUBEBUILDER_ASSETS": found.stdout.strip(),
            "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": f"{PATIENCE_SECONDS:.0f}s",
            "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT": f"{PATIENCE_SECONDS:.0f}s",
            "CRDS": str(CRDS),
        },
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("--- PASS") == passing


class Informers:
    """The informers of a Go program, and the objects in their caches."""

    def __init__(self, kubeconfig: Path, *, watch_list: bool) -> None:
        environment = {"KUBECONFIG": str(kubeconfig), "KUBE_FEATURE_WatchListClient": str(watch_list).lower()}
        self._process = subprocess.Popen(
            [program("informers")],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._read() == "synced\n"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def view(self) -> View:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        known: View = json.loads(self._read())
        return known

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_SECONDS)


def listed(client: Client) -> View:
    return {
        resource: {
            f"{item['metadata']['namespace']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for item in client.get(f"{root}/{resource}").ok()["items"]
        }
        for resource, root in ROOTS.items()
    }


def agree(informers: Informers, client: Client) -> None:
    until(lambda: informers.view() == listed(client))
    assert all(listed(client).values())


def create(client: Client, name: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod}}
    specs: dict[str, tuple[str, str, Any]] = {
        "pods": ("v1", "Pod", pod),
        "jobs": ("batch/v1", "Job", {"template": {"spec": pod}}),
        "workloads": ("kueue.x-k8s.io/v1beta2", "Workload", {"queueName": "none", "podSets": [pod_set]}),
    }
    for resource, (version, kind, spec) in specs.items():
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        client.post(f"{ROOTS[resource]}/namespaces/default/{resource}", made).ok()


def happen(client: Client, moment: str) -> None:
    """Of every resource, one object is made, one changed and one deleted."""
    create(client, f"made-{moment}")
    for resource, root in ROOTS.items():
        path = f"{root}/namespaces/default/{resource}"
        client.merge(f"{path}/changed-{moment}", {"metadata": {"labels": {"changed": "yes"}}}).ok()
        # A grace period would leave the pod waiting for a kubelet.
        client.delete(f"{path}/deleted-{moment}", gracePeriodSeconds="0").ok()


@contextlib.contextmanager
def informed(server: Up, *, watch_list: bool) -> Iterator[Informers]:
    informers = Informers(server.kubeconfig, watch_list=watch_list)
    try:
        yield informers
    finally:
        informers.close()


@contextlib.contextmanager
def ended(server: Up) -> Iterator[Up]:
    try:
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("watch_list", [True, False], ids=["WatchList", "list and watch"])
def test_informers_stay_in_sync_over_restarts(tmp_path: Path, watch_list: bool) -> None:
    """What happens just before the server ends and just after it is back reaches them, deletions too."""
    endings = {"term": signal.SIGTERM, "kill": signal.SIGKILL}
    with held_port() as port, ended(started.up(tmp_path, "--listen", f"127.0.0.1:{port}")) as server:
        client = client_of(server)
        for ending in endings:
            for moment in (f"before-{ending}", f"after-{ending}"):
                create(client, f"changed-{moment}")
                create(client, f"deleted-{moment}")
        with informed(server, watch_list=watch_list) as informers:
            agree(informers, client)
            for ending, number in endings.items():
                happen(client, f"before-{ending}")
                server.end(number)
                server.start()
                client = client_of(server)
                happen(client, f"after-{ending}")
                agree(informers, client)
