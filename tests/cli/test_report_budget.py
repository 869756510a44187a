"""`pykueue report budget`: the lines of a Budget for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.json_server import answering
from shell import Shell

GROUP = {"group": "ana", "resource": "cpu", "spent": "1", "limit": "4", "perHour": "2", "percent": 25,
         "spentAt": "2099-12-31T23:30:00Z"}  # fmt: skip
BUDGET: dict[str, Any] = {
    "apiVersion": "pykueue.io/v1alpha1",
    "kind": "Budget",
    "metadata": {"name": "weekly"},
    "spec": {"every": "Week", "timeZone": "Europe/Berlin", "per": "User", "amounts": [{"resource": "cpu", "hours": 4}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Counted", "message": ""}],
        # Later than now, so that nothing is added to what is spent.
        "observedAt": "2099-12-31T22:00:00Z",
        "periodEnd": "2100-01-03T23:00:00Z",
        "groups": [GROUP],
    },
}


def budgets(path: str) -> tuple[int, dict[str, Any]]:
    return 200, {"kind": "BudgetList", "apiVersion": "v1", "metadata": {}, "items": [BUDGET]}


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with answering(budgets, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield Shell(capsys)


def test_table_has_times_of_the_time_zone_of_the_budget(shell: Shell) -> None:
    _, line = shell("report", "budget").out.splitlines()
    assert " Mon 04 Jan 00:00 " in line
    assert line.endswith("Fri 01 Jan 00:30")


def test_csv_and_json_have_times_that_programs_read(shell: Shell) -> None:
    [row] = json.loads(shell("report", "budget", "-o", "json").out)
    assert (row["until"], row["spent_by"]) == ("2100-01-03T23:00:00Z", "2099-12-31T23:30:00Z")
    assert shell("report", "budget", "-o", "csv").out.splitlines() == [
        "budget,group,resource,until,spent,percent,limit,per_hour,spent_by",
        "weekly,ana,cpu,2100-01-03T23:00:00Z,1,25,4,2,2099-12-31T23:30:00Z",
    ]
