"""`pykueue explain` prints the explanation of the manager of `pykueue up`; it is the one that the command computes from
the objects of the server."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.client_config import ClientConfig
from kubemachinery.clock import SystemClock
from pykueue import features
from pykueue.api import quota_schedule, registry
from pykueue.cli import explain
from scripted_server import answering, request_head
from shell import Shell
from started import up
from waiting import until

Tree = dict[str, Any]
SCHEDULES = registry.EXTENSIONS.of(quota_schedule.QuotaSchedule)
WINDOW = {"name": "w", "start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}


# Without topologies the manager watches neither nodes nor pods.
TOPOLOGIES = [name for name, gate in features.GATES.items() if gate.default and "TAS" in name]
OFF = ",".join(f"{name}=false" for name in ("TopologyAwareScheduling", *TOPOLOGIES))


@pytest.fixture(
    scope="module", params=["QuotaCalendar=true", f"QuotaCalendar=true,{OFF}"], ids=["default", "no topologies"]
)
def kubeconfig(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    server = up(tmp_path_factory.mktemp("up"), "--durability", "memory", "--feature-gates", request.param)
    try:
        yield server.kubeconfig
    finally:
        server.end()


@pytest.fixture
def shell(kubeconfig: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return Shell(capsys)


def create_schedule(kubeconfig: Path, quota: str) -> None:
    """Create a QuotaSchedule that gives the ClusterQueue of `pykueue up` another quota of cpu."""
    resource = {"name": "cpu", "nominalQuota": quota}
    target = {"clusterQueue": "default", "flavors": [{"name": "default-flavor", "resources": [resource]}]}
    tree = {
        "apiVersion": SCHEDULES.api_version,
        "kind": SCHEDULES.kind,
        "metadata": {"name": "lower"},
        "spec": {"windows": [WINDOW], "targets": [target]},
    }

    async def create() -> None:
        transport = client_config.connect(client_config.from_files([kubeconfig]), SystemClock())
        client = ApiClient(transport, random.Random(1))
        try:
            await client.create(SCHEDULES, tree)
        finally:
            await client.close()

    asyncio.run(create())


def explained(shell: Shell, name: str, *arguments: str) -> Tree:
    tree: Tree = json.loads(shell("explain", name, "-o", "json", *arguments).out)
    # These change with time.
    return {field: value for field, value in tree.items() if field not in ("runTime", "forecast")}


def test_served_explanation_is_the_computed_one(shell: Shell, kubeconfig: Path, tmp_path: Path) -> None:
    shell("submit", "--name", "runs", "--cpu", "100m", "--", "sleep", "600")
    shell("submit", "--name", "ends", "--cpu", "100m", "--", "true")
    # No node has this label: its pods get no node.
    container = {"name": "c", "image": "i", "command": ["true"], "resources": {"requests": {"cpu": "100m"}}}
    pod = {"containers": [container], "restartPolicy": "Never", "nodeSelector": {"nowhere": "true"}}
    metadata = {"name": "lost", "labels": {"kueue.x-k8s.io/queue-name": "default"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert shell("submit", "-f", str(tmp_path / "job.json")).code == 0
    until(lambda: "no node fits" in shell("explain", "lost").out)
    until(lambda: "is Finished" in shell("explain", "ends").out)
    shell("submit", "--name", "huge", "--cpu", "9999", "--", "true")
    until(lambda: "Suggestions" in shell("explain", "huge").out)
    assert "Suggestions" not in shell("explain", "huge", "--no-suggestions").out
    for name in ("runs", "ends", "job/lost", "huge"):
        assert explained(shell, name) == explained(shell, name, "--thorough")
    create_schedule(kubeconfig, "500m")
    shell("submit", "--name", "waits", "--cpu", "600m", "--", "true")
    until(lambda: "QuotaSchedule lower lowers cpu" in shell("explain", "waits").out)
    assert explained(shell, "waits") == explained(shell, "waits", "--thorough")


def test_a_reservation_of_more_than_its_source_has_is_created_with_a_warning(shell: Shell) -> None:
    what = ["--flavor", "default-flavor", "--from", "default", "--to", "absent", "--at", "23:00", "--for", "1h"]
    made = shell("reserve", "huge", "--resource", "cpu=2000", *what)
    assert made.code == 0
    assert made.out == "quotaschedule.pykueue.io/huge created\n"
    assert made.err == "warning: quotaschedule.pykueue.io/huge: ClusterQueue absent does not exist\n"
    shell("create", "clusterqueue", "absent", "--nominal-quota", "default-flavor:cpu=0")
    shell("reserve", "delete", "huge")
    made = shell("reserve", "huge", "--resource", "cpu=2000", *what)
    assert made.code == 0
    assert re.fullmatch(
        r"warning: quotaschedule.pykueue.io/huge: takes \d+ cpu of default-flavor and gives 2k\n", made.err
    )
    shell("reserve", "delete", "huge")


def test_an_explanation_without_a_forecast_has_the_reason() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        body = json.dumps(
            {"kind": "Status", "code": 500, "reason": "InternalError", "message": "there is no forecast: too long"}
        ).encode()
        head = f"HTTP/1.1 500 Failed\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async def found() -> Any:
        async with answering(refuse) as address:
            transport = client_config.connect(ClientConfig(address, "", {}, {}, Path()), SystemClock())
            client = ApiClient(transport, random.Random(1))
            try:
                return await explain._forecast(client, "default/w", False)
            finally:
                await client.close()

    assert explain.forecast_lines(asyncio.run(found())) == ["  no forecast: too long"]


def test_a_planned_start_and_a_forecast_are_in_one_section() -> None:
    tree: Tree = {
        "workload": "ns/w", "state": "Pending", "startsNext": False, "clusterQueue": "q", "localQueue": "main",
        "position": None, "warnings": [], "causes": ["it waits"], "notCounted": [], "ahead": [], "holders": [],
        "suggestions": [], "search": "",
    }  # fmt: skip
    when = ["When", "  its start is planned", "  no forecast: too long"]
    planned = explain.text_lines(explain.Explained({**tree, "plannedStart": "its start is planned"}, None, "too long"))
    assert [line for line in planned if line.startswith("When")] == ["When"]
    assert planned[planned.index("When") :] == when
    assert explain.text_lines(explain.Explained(tree, None, "too long"))[-3:] == ["", "When", "  no forecast: too long"]
