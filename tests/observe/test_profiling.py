"""The profiling port, and the state of the scheduler in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubemachinery import http_messages, meta
from pykueue.api import defaults, kube, kueue
from pykueue.observe import profiling, state_dump
from pykueue.state.world import World
from started import free_port, up
from waiting import until


async def get(path: str, *query: tuple[str, str], method: str = "GET") -> tuple[int, str]:
    answer = await profiling.handler(lambda: [{"msg": "state"}])(http_messages.Request(method, path, list(query)))
    return answer.status, answer.body.decode()


async def test_every_path_of_the_index_is_served() -> None:
    status, index = await get("/debug/pprof/")
    assert status == 200
    for line in index.splitlines():
        path = line.split()[0]
        assert (await get(path, ("seconds", "0.05")))[0] == 200, path


async def test_a_profile_is_folded_stacks_of_what_runs() -> None:
    ended = threading.Event()

    def waits_in_a_thread() -> None:
        ended.wait()

    thread = threading.Thread(target=waits_in_a_thread)
    thread.start()
    _, profile = await get("/debug/pprof/profile", ("seconds", "0.05"))
    ended.set()
    thread.join()
    assert all(line.rpartition(" ")[2].isdecimal() for line in profile.splitlines())
    assert "<locals>.waits_in_a_thread" in profile


@pytest.mark.parametrize("seconds", ["0", "61", "nan", "soon", "-1"])
async def test_a_profile_is_bounded(seconds: str) -> None:
    status, why = await get("/debug/pprof/profile", ("seconds", seconds))
    assert (status, why) == (400, "seconds must be a number above 0 and at most 60\n")


async def test_stacks_show_threads_and_tasks() -> None:
    waiting = asyncio.create_task(asyncio.Event().wait(), name="waits-for-nothing")
    await asyncio.sleep(0)
    _, shown = await get("/debug/pprof/goroutine")
    waiting.cancel()
    assert "thread MainThread" in shown
    assert "task waits-for-nothing" in shown


async def test_unknown_paths_and_methods_are_refused() -> None:
    assert (await get("/debug/pprof/nothing"))[0] == 404
    assert (await get("/metrics"))[0] == 404
    assert (await get("/debug/pprof/heap", method="POST"))[0] == 405


def made(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Any:
    tree = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    return msgspec.convert(defaults.apply(tree), getattr(kueue, kind))


def world() -> World:
    """Two Workloads in a queue with quota for one, after a scheduling cycle."""
    found = World()
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    found.put(made("ResourceFlavor", "default", {}), 0)
    found.put(made("ClusterQueue", "cq", {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": groups}), 0)
    found.put(made("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="team"), 0)
    found.put(kube.Namespace(metadata=meta.ObjectMeta(name="team")), 0)
    for name in ("first", "second"):
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
        pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]
        found.put(made("Workload", name, {"queueName": "lq", "podSets": pod_sets}, namespace="team", uid=name), 0)
    found.settle(0)
    found.decide(0)
    found.decide(0)
    return found


def test_state_has_quota_usage_and_pending_workloads() -> None:
    shown = {line.message: line.fields for line in state_dump.records(world())}
    queue = shown["Found ClusterQueue"]
    assert (queue["cohort"], queue["quota"]) == ("all", {"default/cpu": "1"})
    assert (queue["usage"], queue["workloads"]) == ({"default/cpu": "1"}, ["team/first"])
    assert shown["Found cohort"] == {"cohort": "all", "resources": {"default/cpu": "1"}, "usage": {"default/cpu": "1"}}
    waiting = shown["Found pending and inadmissible workloads in ClusterQueue"]
    assert [*waiting["pending"], *waiting["inadmissible"]] == ["team/second"]
    assert shown["Found work under way"]["reservationsBeingWritten"] == ["team/first"]


def test_state_is_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("pykueue").setLevel(logging.ERROR)
    logger = logging.getLogger("pykueue.dumper")
    logger.addHandler(caplog.handler)
    try:
        state_dump.log_state(world())
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.messages[0] == "Started dump"
    assert caplog.messages[-1] == "Ended dump"


def test_up_serves_profiles_and_dumps_its_state_on_sigusr2(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "config.yaml"
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    file.write_text(f"{head}pprofBindAddress: 127.0.0.1:{port}\nfeatureGates: {{AllBeta: true}}\n")
    served = up(tmp_path, "--config", str(file), "--durability", "memory", "--runner", "none", "--log-format", "json")

    def state() -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/pprof/state", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    until(lambda: state() is not None)
    until(lambda: "dashboard at" in served.log.read_text(), "the manager is up")
    served.process.send_signal(signal.SIGUSR2)
    until(lambda: "Ended dump" in served.log.read_text(), "the state is dumped")
    code, output = served.end()
    lines = output.splitlines()
    assert code == 0
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert next(record["msg"] for record in records if record["logger"] == "pykueue.dumper") == "Started dump"
    (notice,) = [record for record in records if record["msg"].startswith("configuration: featureGates.AllBeta")]
    assert (notice["level"], notice["file"]) == ("warning", str(file))
