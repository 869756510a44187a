"""The figures of cohorts and queues, from a world that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubemachinery import codec
from pykueue.api import kueue
from pykueue.core.queue import FlavorResource
from pykueue.dashboard import overview
from pykueue.dashboard.overview import Overview, QuotaFigures
from pykueue.dashboard.workload_table import DisplayState, WorkloadRow, WorkloadTable
from pykueue.state.world import World

Tree = dict[str, Any]
CPU = FlavorResource("default", "cpu")


def queue(name: str, cohort: str, cpu: str, lends: str | None = None) -> kueue.ClusterQueue:
    quota: Tree = {"name": "cpu", "nominalQuota": cpu} | ({"lendingLimit": lends} if lends else {})
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    spec = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group]}
    return codec.from_tree({"metadata": {"name": name}, "spec": spec}, kueue.ClusterQueue)


def cohort(name: str, parent: str = "", cpu: str = "") -> kueue.Cohort:
    flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}] if cpu else []
    return codec.from_tree(
        {"metadata": {"name": name}, "spec": {"parentName": parent, "resourceGroups": groups}}, kueue.Cohort
    )


def holder(name: str, cluster_queue: str, cpu: str) -> kueue.Workload:
    time = "2026-01-01T00:00:00Z"
    admitted = [
        {"type": each, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time}
        for each in ("QuotaReserved", "Admitted")
    ]
    given = [{"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu}, "count": 1}]
    pods = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]
    return codec.from_tree(
        {
            "metadata": {"name": name, "namespace": "lab", "uid": name},
            "spec": {"queueName": "q", "podSets": pods},
            "status": {
                "conditions": admitted,
                "admission": {"clusterQueue": cluster_queue, "podSetAssignments": given},
            },
        },
        kueue.Workload,
    )


def looked_at(*things: Any, counts: WorkloadTable | None = None) -> Overview:
    world = World()
    world.put(codec.from_tree({"metadata": {"name": "default"}}, kueue.ResourceFlavor), 0)
    for thing in things:
        world.put(thing, 0)
    world.settle(0)
    queues = [thing for thing in things if isinstance(thing, kueue.ClusterQueue)]
    return Overview(world, queues, counts or WorkloadTable())


def test_a_cohort_sums_up_what_is_beneath_it_and_its_own_quota() -> None:
    found = looked_at(
        cohort("root", cpu="5"),
        cohort("team", "root"),
        queue("a", "team", "10", lends="4"),  # keeps 6 for itself
        queue("b", "root", "20"),
        holder("w", "a", "7"),
    )
    assert found.cohorts["team"].figures[CPU].nominal == 10_000
    assert found.cohorts["root"].figures[CPU] == QuotaFigures(nominal=35_000, used=7_000, limit=35_000)
    assert found.queue("a") == {**found.queues["a"].tree(), "path": ["team", "root"]}
    assert [entry.name for entry in found.page("", "root", "name", descending=False)] == ["a", "b"]


@pytest.mark.parametrize(
    ("used_by_a", "used_by_b", "a", "b"),
    [
        ("0", "0", (0, 0), (0, 0)),
        ("12", "0", (2, 0), (0, 2)),  # a has 2 of b's 10
        ("12", "8", (2, 0), (0, 2)),
        ("12", "4", (2, 0), (0, 2)),
        ("6", "3", (0, 0), (0, 0)),
    ],
)
def test_what_one_queue_borrows_another_has_lent(
    used_by_a: str, used_by_b: str, a: tuple[int, int], b: tuple[int, int]
) -> None:
    found = looked_at(
        queue("a", "team", "10"), queue("b", "team", "10"), holder("x", "a", used_by_a), holder("y", "b", used_by_b)
    )
    for name, expected in (("a", a), ("b", b)):
        figures = found.queues[name].figures[CPU]
        assert (figures.borrowed // 1000, figures.lent // 1000) == expected


def test_a_queue_that_lends_nothing_has_all_of_its_own_left() -> None:
    found = looked_at(queue("a", "team", "10"), queue("b", "team", "10", lends="0"), holder("x", "a", "10"))
    assert found.queues["b"].figures[CPU].lent == 0


def counted(cluster_queue: str, pending: int) -> Iterator[WorkloadRow]:
    for number in range(pending):
        yield WorkloadRow("lab", f"{cluster_queue}-{number}", "q", cluster_queue, "", DisplayState.PENDING, 0, "", "")


def test_overview_shows_the_busiest_queues_and_counts_the_rest() -> None:
    counts = WorkloadTable()
    for number in range(40):
        for each in counted(f"q{number:02}", pending=number):
            counts.put(each)
    tree = looked_at(*(queue(f"q{number:02}", "big", "1") for number in range(40)), counts=counts).tree()
    (big,) = tree["members"]
    assert [member["name"] for member in big["members"]] == ["q39", "q38", "q37", "q36", "q35", "q34", "q33", "q32"]
    assert (big["queues"], big["pending"]) == (40, sum(range(40)))


def test_overview_size_is_bounded() -> None:
    found = looked_at(*(queue(f"q{number}", f"c{number}", "1") for number in range(overview.LINES_MAX)))
    tree = found.tree()

    def lines(members: list[Tree]) -> int:
        return sum(1 + lines(member.get("members", [])) for member in members)

    assert lines(tree["members"]) <= overview.LINES_MAX
    assert len(tree["members"]) + tree["cohortsLeftOut"] == overview.LINES_MAX


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"text": "", "cohort": "", "sort": "name"}, "a b c"),
        ({"text": "", "cohort": "team", "sort": "name", "descending": True}, "b a"),
        ({"text": "", "cohort": overview.NO_COHORT, "sort": "name"}, "c"),
        ({"text": "TEAM b", "cohort": "", "sort": "name"}, "b"),
        ({"text": "", "cohort": "", "sort": "pending", "descending": True}, "c a b"),
        ({"text": "", "cohort": "", "sort": "used", "descending": True}, "b a c"),
    ],
)
def test_queues_are_found_and_ordered(asked: Tree, names: str) -> None:
    counts = WorkloadTable()
    for each in counted("c", pending=3):
        counts.put(each)
    found = looked_at(
        queue("a", "team", "10"), queue("b", "team", "10"), queue("c", "", "10"), holder("w", "b", "5"), counts=counts
    )
    assert [entry.name for entry in found.page(**{"descending": False, **asked})] == names.split()


def test_flavor_lists_its_queues() -> None:
    found = looked_at(queue("a", "", "10"), queue("b", "", "5"))
    assert [each["queue"] for each in found.flavor("default")["queues"]] == ["a", "b"]
    assert found.flavor("other")["total"] == 0


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("memory", 64 * 2**30, "64Gi"),
        ("memory", 24_682_416 * 2**10, "23.5Gi"),
        ("memory", 2**63 - 1, "<unlimited>"),
        ("pods", 12, "12"),
    ],
)
def test_amounts_have_a_short_text(resource: str, amount: int, text: str) -> None:
    tree = QuotaFigures(nominal=amount).tree(FlavorResource("f", resource))
    assert tree["text"]["nominal"] == text


def test_unlimited_quota_has_no_figure() -> None:
    assert QuotaFigures(nominal=2**63 - 1).tree(CPU)["nominal"] is None
