"""The page Budgets: what groups have used, and what is refused."""

from __future__ import annotations

from pathlib import Path

from dashboard import system


async def test_page_has_a_row_for_each_group_with_usage(tmp_path: Path) -> None:
    spec = {
        "every": "Week",
        "per": "ClusterQueue",
        "amounts": [{"resource": "cpu", "hours": "500"}],
        "admit": "WhileLeft",
    }
    parameters = {"apiGroup": "pykueue.io", "kind": "Budget", "name": "weekly"}
    async with system.running(tmp_path, Budgets=True) as shown:
        await shown.create("Budget", "weekly", spec)
        await shown.create("AdmissionCheck", "hours", {"controllerName": "pykueue.io/budget", "parameters": parameters})
        await shown.flavor("default")
        await shown.queue("images", cpu="40", checks=("hours",))
        await shown.workload("resnet", "images", {"cpu": "8"})
        found = await shown.until(lambda found: found["items"], "api/budgets")
    assert found["problems"] == []
    [row] = found["items"]
    assert {name: row[name] for name in ("budget", "group", "resource", "limit", "perHour", "percent", "refuses")} == {
        "budget": "weekly",
        "group": "images",
        "resource": "cpu",
        "limit": "500",
        "perHour": "8",
        "percent": 0,
        "refuses": "",
    }
