"""QuotaSchedules in plans, what-if, explanations and lint."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.errors import UsageError
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner, whatif
from pykueue.analysis.explanation import explain
from pykueue.analysis.lint import lint
from pykueue.analysis.planner import Case
from pykueue.api.quota_schedule import QuotaSchedule

Tree = dict[str, Any]
NOW = meta.parse_time("2026-12-01T12:00:00Z")


def queue(name: str, cpu: int) -> list[Tree]:
    flavor = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    return [
        made("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups}),
        made("LocalQueue", name, {"clusterQueue": name}, "default"),
    ]


def made(kind: str, name: str, spec: Tree, namespace: str = "", version: str = "kueue.x-k8s.io/v1beta2") -> Tree:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


def workload(name: str, queue: str, cpu: int, **more: Any) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    return made("Workload", name, {"queueName": queue, "podSets": [pods]}, "default") | more


def held(name: str, queue: str, cpu: int) -> Tree:
    usage = {"name": "main", "count": 1, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": str(cpu)}}
    condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    condition["lastTransitionTime"] = "2026-12-01T00:00:00Z"
    admission = {"clusterQueue": queue, "podSetAssignments": [usage]}
    return workload(name, queue, cpu, status={"admission": admission, "conditions": [condition]})


def schedule(name: str, start: str, *targets: tuple[str, Tree], **spec: Any) -> Tree:
    entries = [
        {"clusterQueue": queue, "flavors": [{"name": "plain", "resources": [{"name": "cpu", **resource}]}]}
        for queue, resource in targets
    ]
    window = {"name": "w", "start": start, "end": "2026-12-31T00:00:00Z"}
    whole = {"windows": [window], "targets": entries, **spec}
    return made("QuotaSchedule", name, whole, version="pykueue.io/v1alpha1")


def case(*trees: Tree, on: bool = True, backfill: bool = False) -> Case:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"QuotaCalendar": on, "PlannedBackfill": backfill},
    }
    namespace = made("Namespace", "default", {}, version="v1")
    everything = (configuration, namespace, made("ResourceFlavor", "plain", {}), *trees)
    return planner.read(Document(f"{tree['kind']}", tree) for tree in everything)


@pytest.mark.parametrize(("on", "admitted"), [(True, ["default/w"]), (False, [])])
def test_a_plan_applies_the_windows_in_force_while_the_gate_is_on(on: bool, admitted: list[str]) -> None:
    given = case(
        *queue("a", 1), workload("w", "a", 4), schedule("s", "2026-12-01T00:00:00Z", ("a", {"nominalQuota": 4})), on=on
    )
    assert list(planner.plan(given, NOW).world.reservations) == admitted


def test_what_if_shows_who_has_to_go_at_the_start_of_the_next_window() -> None:
    given = case(*queue("a", 4), held("x", "a", 2), held("y", "a", 2))
    change = case(schedule("s", "2026-12-02T00:00:00Z", ("a", {"change": -2}), onStart="Evict"))
    coming = whatif.next_window(change, NOW)
    assert coming is not None
    assert meta.format_time(coming.start) == "2026-12-02T00:00:00Z"
    changed = whatif.changed_by(given, change, (), coming.start)
    report = whatif.compare(given, changed, coming.start)
    assert len(report.evicted) == 1
    assert whatif.compare(given, changed, NOW).evicted == ()


def test_an_explanation_names_the_window_that_lowers_the_quota() -> None:
    given = case(
        *queue("a", 4), workload("w", "a", 2), schedule("s", "2026-12-01T00:00:00Z", ("a", {"nominalQuota": 1}))
    )
    causes = explain(given, "default/w", NOW, suggest=False).causes
    assert causes[-1] == (
        "window w of QuotaSchedule s lowers cpu of plain in ClusterQueue a from 4 to 1 until 2026-12-31T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("cpu", "windows", "sentence"),
    [
        (1, {"change": 2}, "2026-12-02T00:00:00Z at the latest: window w of QuotaSchedule s begins then"),
        (4, {"nominalQuota": 8}, "2026-12-01T14:01:00Z at the latest: everything it waits for has a run-time limit"),
    ],
)
def test_an_explanation_names_the_window_that_a_planned_start_waits_for(
    cpu: int, windows: Tree, sentence: str
) -> None:  # [BF2]
    cluster_queue, local_queue = queue("a", cpu)
    cluster_queue["metadata"]["annotations"] = {"pykueue.io/backfill": "EASY"}
    cluster_queue["spec"]["queueingStrategy"] = "StrictFIFO"
    running = held("x", "a", 1)
    running["spec"]["maximumExecutionTimeSeconds"] = 7200
    for condition in running["status"]["conditions"]:
        condition["lastTransitionTime"] = meta.format_time(NOW)
    running["status"]["conditions"].append({**running["status"]["conditions"][0], "type": "Admitted"})
    waiting = workload("w", "a", cpu if cpu > 1 else 3)
    given = case(
        cluster_queue,
        local_queue,
        running,
        waiting,
        schedule("s", "2026-12-02T00:00:00Z", ("a", windows)),
        backfill=True,
    )
    assert explain(given, "default/w", NOW, suggest=False).planned_start == f"its start is planned for {sentence}"


def test_a_planned_start_when_a_window_ends_names_it() -> None:  # [BF2]
    cluster_queue, local_queue = queue("a", 4)
    cluster_queue["metadata"]["annotations"] = {"pykueue.io/backfill": "EASY"}
    cluster_queue["spec"]["queueingStrategy"] = "StrictFIFO"
    lowered = schedule("s", "2026-12-01T00:00:00Z", ("a", {"nominalQuota": 1}))
    given = case(cluster_queue, local_queue, workload("w", "a", 2), lowered, backfill=True)
    assert explain(given, "default/w", NOW, suggest=False).planned_start == (
        "its start is planned for 2026-12-31T00:00:00Z at the latest: window w of QuotaSchedule s ends then"
    )


def test_lint_reports_targets_that_do_not_exist_sums_that_differ_and_notice_without_effect() -> None:
    start = "2026-12-01T00:00:00Z"
    given = case(
        *queue("a", 4),
        *queue("b", 1),
        schedule("even", start, ("a", {"change": -2}), ("b", {"nominalQuota": 3})),
        schedule("uneven", start, ("a", {"change": -2}), ("b", {"change": 3})),
        schedule("lost", start, ("c", {"change": -2}), notice="5m"),
    )
    found = [(each.place, each.rule, each.sentence) for each in lint(given) if each.rule.startswith("schedule")]
    assert found == [
        ("QuotaSchedule lost", "schedule-notice", "notice has no effect without onStart: Evict"),
        ("QuotaSchedule lost", "schedule-target", "ClusterQueue c does not exist"),
        ("QuotaSchedule uneven", "schedule-sum", "takes 2 cpu of plain and gives 3"),
    ]


def test_a_plan_refuses_a_schedule_with_an_unknown_time_zone() -> None:
    broken = schedule("s", "2026-12-01T00:00:00Z", ("a", {"change": 1}), timeZone="Mars/Olympus")
    with pytest.raises(UsageError, match=r"QuotaSchedule s: spec.timeZone: Invalid value"):
        case(broken)


def test_lint_counts_no_more_than_a_queue_has_as_taken() -> None:  # [QS8]
    beyond = schedule("beyond", "2026-12-01T00:00:00Z", ("a", {"change": -2000}), ("b", {"change": 2000}))
    given = case(*queue("a", 4), *queue("b", 1), beyond)
    found = [each.sentence for each in lint(given) if each.rule == "schedule-sum"]
    assert found == ["takes 4 cpu of plain and gives 2k"]


def test_a_stored_schedule_that_cannot_be_read_has_no_effect_and_is_reported() -> None:
    given = case(*queue("a", 4), schedule("s", "2026-12-01T00:00:00Z", ("a", {"change": 1})))
    (read,) = given.extensions
    assert isinstance(read, QuotaSchedule)
    spec = replace(read.spec, time_zone="Mars/Olympus", windows=(replace(read.spec.windows[0], start="then"),))
    stored = replace(given, extensions=(replace(read, spec=spec),))
    assert planner.windows_of(stored, NOW) == ()
    found = [(each.place, each.sentence) for each in lint(stored) if each.rule == "schedule-calendar"]
    assert [place for place, _ in found] == ["QuotaSchedule s"]
    assert found[0][1].startswith("has no effect: 'then' is not an RFC 3339 time")
