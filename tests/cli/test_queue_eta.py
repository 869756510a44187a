"""`pykueue queue --eta` shows the forecasts that there are, and states why others are missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.json_server import answering
from shell import Shell

Tree = dict[str, Any]
MADE = "2099-11-18T09:00:00Z"
VIEWS = "/apis/views.pykueue.io/v1alpha1/namespaces/research/localqueues"


def workload(name: str, queue: str) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "namespace": "research", "uid": name, "creationTimestamp": "2026-11-18T08:00:00Z"},
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}]
        },
    }


def answer(path: str) -> tuple[int, Tree]:
    """Four waiting Workloads in four LocalQueues: one has a forecast, one an old forecast, and two have none."""
    path = path.partition("?")[0]
    forecast: Tree = {"made": MADE, "samples": 9, "complete": True}
    if path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads":
        items = [workload(f"w-{name}", name) for name in ("good", "old", "slow", "slow-too")]
        return 200, {"kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {}, "items": items}
    if path == f"{VIEWS}/good/forecast":
        return 200, {**forecast, "items": [{"workload": "research/w-good", "p50": MADE, "p90": MADE}]}
    if path == f"{VIEWS}/old/forecast":
        items = [{"workload": "research/w-old", "p50": MADE, "p90": MADE}]
        return 200, {**forecast, "items": items, "warning": "the forecast took longer than 60 s"}
    if path.startswith(VIEWS):
        message = "there is no forecast: the forecast took longer than 60 s"
        return 500, {"kind": "Status", "code": 500, "reason": "InternalError", "message": message}
    if path.startswith("/apis/visibility"):
        return 200, {"kind": "PendingWorkloadsSummary", "items": []}
    return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [], "resources": [], "groups": []}


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with answering(answer, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield Shell(capsys)


def test_a_failed_forecast_leaves_those_of_other_queues(shell: Shell) -> None:  # [FC13]
    code, out, err = shell("queue", "--eta")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert sorted(rows) == ["w-good", "w-old", "w-slow", "w-slow-too"]
    assert {name for name, line in rows.items() if "18 Nov" in line} == {"w-good", "w-old"}
    assert err.splitlines() == [
        "no forecast of LocalQueues research/slow, research/slow-too: the forecast took longer than 60 s",
        f"the forecast is not up to date of LocalQueue research/old: the forecast took longer than 60 s; made at {MADE}",
    ]


def test_json_has_the_reason_of_each_missing_and_each_old_forecast(shell: Shell) -> None:  # [FC13]
    code, out, _ = shell("queue", "--eta", "-o", "json")
    assert code == 0
    forecasts = {each["metadata"]["name"]: each["forecast"] for each in json.loads(out)["items"]}
    assert forecasts["w-good"]["p90"] == MADE
    assert "warning" not in forecasts["w-good"]
    assert forecasts["w-old"]["warning"] == f"the forecast took longer than 60 s; made at {MADE}"
    assert forecasts["w-slow"] == {"workload": "research/w-slow", "reason": "the forecast took longer than 60 s"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--thorough"], "--thorough computes forecasts; it needs --eta"),
        (["--trouble", "--eta"], "--trouble shows no forecasts; it cannot be combined with --eta"),
    ],
)
def test_options_without_effect_are_refused(shell: Shell, options: list[str], sentence: str) -> None:
    code, _, err = shell("queue", *options)
    assert (code, err) == (2, f"pykueue: {sentence}\n")
