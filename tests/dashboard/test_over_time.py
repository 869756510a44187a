"""The page Over time: what its charts show, and who may read it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from dashboard.system import System
from pykueue.dashboard import over_time
from pykueue.history import charts
from pykueue.history.queries import UsageRow, WaitingRow

DAY = 86_400
NOW = 20_003 * DAY + DAY // 2
SINCE = 20_000 * DAY


def test_usage_is_the_mean_of_each_day_beside_the_quota() -> None:
    rows = [
        UsageRow((20_001,), "cpu", 4000 * DAY),
        UsageRow((20_003,), "cpu", 2000 * DAY // 2),
        UsageRow((20_001,), "nvidia.com/gpu", 8 * DAY),
    ]
    gpu, cpu = over_time.usage_charts(rows, {"cpu": 8000, "nvidia.com/gpu": 8}, SINCE, NOW)
    assert gpu.title == "nvidia.com/gpu in use"  # all of its quota was used
    used, quota = cpu.lines
    assert used.is_step
    # Half of the last day has passed.
    assert [value for _, value in used.points] == [0, 4, 0, 2, 2]
    assert [value for _, value in quota.points] == [8, 8]
    assert ElementTree.fromstring(charts.svg(cpu)).tag.endswith("svg")


def test_resource_without_quota_has_no_line_for_it() -> None:
    (chart,) = over_time.usage_charts([UsageRow((20_000,), "cpu", 1000)], {}, SINCE, NOW)
    assert [line.name for line in chart.lines] == ["used, mean of the day"]


def test_bytes_are_shown_in_gib() -> None:
    rows = [UsageRow((20_000,), "memory", 3 * 2**30 * DAY)]
    (chart,) = over_time.usage_charts(rows, {"memory": 47 * 2**29}, SINCE, NOW)
    assert [line.points[0][1] for line in chart.lines] == [3, 23.5]
    text = charts.svg(chart)
    assert ">20Gi<" in text
    assert "e+" not in text
    assert over_time.top_users([UsageRow(("ana",), "memory", 3 * 2**30 * 3600)]) == [
        {"resource": "memory, Gi", "user": "ana", "hours": 3.0}
    ]


def test_waiting_breaks_on_days_without_a_start() -> None:
    rows = [WaitingRow((20_000,), 3, 60, 600, 900, 900, 0), WaitingRow((20_002,), 1, 5, 5, 5, 5, 0)]
    p50, p90 = over_time.waiting_chart(rows, SINCE, NOW).lines
    assert [value for _, value in p50.points] == [60, 60, None, None, 5, 5, None, None]
    assert [value for _, value in p90.points] == [600, 600, None, None, 5, 5, None, None]


def test_users_are_sorted_by_usage_of_each_resource() -> None:
    rows = [UsageRow(("ben",), "cpu", 3_600_000), UsageRow(("ana",), "cpu", 7_200_000), UsageRow(("",), "gpu", 3600)]
    assert [(each["resource"], each["user"], each["hours"]) for each in over_time.top_users(rows)] == [
        ("cpu", "ana", 2.0),
        ("cpu", "ben", 1.0),
        ("gpu", "unknown", 1.0),
    ]


async def test_page_has_charts_of_a_cluster_queue(shown: System) -> None:
    await shown.flavor("default")
    for name in ("images", "teaching"):
        await shown.queue(name, cpu="40", memory="128Gi")
    await shown.workload("resnet", "images", {"cpu": "8"})
    found = await shown.until(
        lambda found: len(found["charts"]) == 3, "api/overtime", clusterQueue="images", days="7"
    )  # cpu, memory, and waiting once it has started
    assert (found["clusterQueue"], found["days"], found["queues"]) == ("images", 7, ["images", "teaching"])
    titles = [re.search(r'aria-label="([^:"]*)', text) for text in found["charts"]]
    assert {each[1] for each in titles if each} >= {"cpu in use", "memory in use"}
    assert (await shown.query("api/overtime"))[1]["clusterQueue"] == found["queues"][0]
    assert (await shown.query("api/overtime", clusterQueue="none"))[0] == 404
    assert (await shown.query("api/overtime", days="many"))[0] == 400
