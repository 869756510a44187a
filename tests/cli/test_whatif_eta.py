"""`pykueue whatif --eta`: what it knows of the past comes from a file, or from the history of a running server [FC12]."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import meta, yaml_documents
from kubemachinery.meta import MINUTE, SECOND
from pykueue.api import registry
from pykueue.client.client import AsyncClient
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore
from shell import Shell
from started import Up
from started import up as up_in
from waiting import until

NOW = "2026-11-16T10:10:00Z"
MIDNIGHT = meta.parse_time("2026-11-17T00:00:00Z")
GATES = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {Budgets: true}
"""
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: cores}
---
apiVersion: pykueue.io/v1alpha1
kind: Budget
metadata: {name: lab}
spec: {every: Day, timeZone: ZONE, per: Total, amounts: [{resource: cpu, hours: 2}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: hours}
spec: {controllerName: pykueue.io/budget, parameters: {apiGroup: pykueue.io, kind: Budget, name: lab}}
STATUS
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: lab}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: hours}]}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: cores, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lab, namespace: default}
spec: {clusterQueue: lab}
"""
ACTIVE = """status:
  conditions:
  - {type: Active, status: "True", reason: Active, message: "", lastTransitionTime: "2026-11-01T00:00:00Z"}"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: mine, labels: {kueue.x-k8s.io/queue-name: lab}}
spec:
  activeDeadlineSeconds: 3600
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
"""
NEXT_PERIOD = "the next period of Budget lab begins"


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    Path("job.yaml").write_text(JOB)
    return Shell(capsys)


def keep_history(path: Path, now: int, core_seconds: int) -> None:
    """A history of one Workload that ended a second ago, after a minute."""
    begin, end = now - 61, now - 1
    segment = UsageSegment(begin, end, (("cores", "cpu", core_seconds * 1000 // 60),))
    record = WorkloadRecord(
        uid="past",
        namespace="default",
        name="past",
        queue="lab",
        submitted=begin,
        ended=end,
        outcome=Outcome.SUCCEEDED,
        attempts=(Attempt(begin, "lab", begin, begin, end, "Finished", "", (segment,)),),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    store = HistoryStore(path)
    store.save([record])
    store.close()


def forecast(shell: Shell, *arguments: str) -> tuple[dict[str, Any], list[str]]:
    """The forecast of the job, and what it assumes."""
    shown = shell("whatif", "-f", "job.yaml", "--eta", "-o", "json", *arguments)
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)["forecast"]
    (item,) = found["items"]
    return item, found["assumes"]


# --- A file -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("core_hours", "waits"), [(2, True), (1, False)])
def test_a_history_file_has_what_a_budget_has_spent(shell: Shell, core_hours: int, waits: bool) -> None:
    Path("lab.yaml").write_text(GATES + "---" + QUEUE.replace("ZONE", "UTC").replace("STATUS", ACTIVE))
    keep_history(Path("history.db"), meta.parse_time(NOW) // SECOND, core_hours * 3600)
    item, assumes = forecast(shell, "--in", "lab.yaml", "--history", "history.db", "--now", NOW)
    if waits:
        assert item["because"] == NEXT_PERIOD
        assert MIDNIGHT <= meta.parse_time(item["p50"]) <= MIDNIGHT + MINUTE
    else:
        assert item["p50"] == NOW
    assert "no other Workload arrives: the history is shorter than a week" in assumes


# --- A server ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """A server whose history has spent the Budget of today."""
    keep_history(tmp_path / "data" / "history.db", int(time.time()), 2 * 3600)
    (tmp_path / "gates.yaml").write_text(GATES)
    up = up_in(tmp_path, "--runner", "simulated", "--config", str(tmp_path / "gates.yaml"))
    monkeypatch.setenv("KUBECONFIG", str(up.kubeconfig))
    try:
        yield up
    finally:
        _, output = up.end()
    assert "Traceback" not in output


async def create_queue() -> None:
    """The queue with its Budget, in a time zone in which it is about noon: no day begins while the test runs."""
    zone = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"
    async with AsyncClient() as client:
        for _, tree in yaml_documents.parse(QUEUE.replace("ZONE", zone).replace("STATUS", ""), "queue"):
            known = registry.ALL.find(tree["apiVersion"], tree["kind"])
            assert known is not None
            await client.api_client.create(known[0], tree)


def test_a_server_is_asked_for_what_its_history_has(server: Up, shell: Shell) -> None:
    asyncio.run(create_queue())

    def waits_for_a_period() -> bool:
        item, assumes = forecast(shell)
        return item.get("because") == NEXT_PERIOD and "no history is given" not in " ".join(assumes)

    until(waits_for_a_period)
    assert "NAME" not in shell("queue").out  # nothing was submitted
