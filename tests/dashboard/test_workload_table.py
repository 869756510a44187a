"""The rows of the dashboard: what is read off a Workload, and how rows are found, counted and ordered."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery.meta import Condition, ObjectMeta, OwnerReference
from pykueue.api import kueue, labels
from pykueue.dashboard import workload_table
from pykueue.dashboard.workload_table import DisplayState, WorkloadQuery, WorkloadRow, WorkloadTable

DAY = "2026-01-01T00:00:00Z"


def workload(*true: str, active: bool = True, **metadata: Any) -> kueue.Workload:
    conditions = tuple(
        Condition(type=each, status="True", reason="R", message="", last_transition_time=DAY) for each in true
    )
    named = {"name": "train", "namespace": "lab", "creation_timestamp": DAY, **metadata}
    spec = kueue.WorkloadSpec(queue_name="fast", active=active, priority=7)
    return kueue.Workload(metadata=ObjectMeta(**named), spec=spec, status=kueue.WorkloadStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("true", "active", "expected"),
    [
        ((), True, DisplayState.PENDING),
        ((), False, DisplayState.INACTIVE),
        (("QuotaReserved",), True, DisplayState.RESERVED),
        (("QuotaReserved", "Admitted"), True, DisplayState.ADMITTED),
        (("QuotaReserved", "Admitted", "Evicted"), True, DisplayState.EVICTED),
        (("Evicted",), True, DisplayState.PENDING),  # it has stopped, and waits again
        (("QuotaReserved", "Admitted", "Finished"), True, DisplayState.FINISHED),
        (("QuotaReserved", "Admitted"), False, DisplayState.ADMITTED),  # still running until it is evicted
    ],
)
def test_display_state_of_a_workload(true: tuple[str, ...], active: bool, expected: DisplayState) -> None:
    assert workload_table.display_state(workload(*true, active=active)) is expected


def test_row_names_the_controller_owner() -> None:
    owners = (
        OwnerReference(api_version="v1", kind="ConfigMap", name="other", uid="1"),
        OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="2", controller=True),
    )
    found = workload_table.row(workload(owner_references=owners), "gpu")
    assert found == WorkloadRow(
        "lab", "train", "fast", "gpu", "Job/train", DisplayState.PENDING, 7, DAY, "lab/train fast gpu job/train pending"
    )


def test_row_names_the_job_whose_pods_own_the_workload_too() -> None:
    owners = tuple(
        OwnerReference(api_version=version, kind=kind, name=name, uid=name)
        for version, kind, name in (("v1", "Pod", "web-0"), ("apps/v1", "StatefulSet", "web"))
    )
    named = {labels.JOB_OWNER_GVK: "apps/v1, Kind=StatefulSet", labels.JOB_OWNER_NAME: "web"}
    assert workload_table.row(workload(owner_references=owners, annotations=named), "gpu").job == "StatefulSet/web"
    assert workload_table.row(workload(owner_references=owners), "gpu").job == ""


def row(name: str, **fields: Any) -> WorkloadRow:
    whole = {"namespace": "lab", "queue": "q", "cluster_queue": "cq", "job": "", "state": DisplayState.PENDING, "priority": 0,
             "created": DAY, **fields}  # fmt: skip
    return WorkloadRow(
        name=name, searched=f"{whole['namespace']}/{name} {whole['queue']} {whole['state']}".lower(), **whole
    )


ROWS = [
    row("a", priority=5, created="2026-01-03"),
    row("b", state=DisplayState.ADMITTED, created="2026-01-02"),
    row("c", namespace="shop", queue="other", cluster_queue="second", created="2026-01-01"),
    row("d", priority=5, created="2026-01-04"),
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (WorkloadQuery(), "d a b c"),  # the newest first
        (WorkloadQuery(descending=False), "c b a d"),
        (WorkloadQuery(sort="name", descending=False), "a b d c"),
        (WorkloadQuery(sort="priority"), "a d b c"),  # equals by namespace and name, whichever way it goes
        (WorkloadQuery(sort="state", descending=False), "a d c b"),
        (WorkloadQuery(namespace="shop"), "c"),
        (WorkloadQuery(queue="other"), "c"),
        (WorkloadQuery(cluster_queue="cq", state="Pending"), "d a"),
        (WorkloadQuery.searching("LAB pending"), "d a"),
        (WorkloadQuery.searching("admitted"), "b"),
        (WorkloadQuery.searching("nowhere"), ""),
    ],
)
def test_rows_are_found_and_ordered(query: WorkloadQuery, names: str) -> None:
    filled = WorkloadTable()
    for each in ROWS:
        filled.put(each)
    assert [found.name for found in filled.query(query)] == names.split()


def test_counts_and_answers_follow_every_change() -> None:
    kept = WorkloadTable()
    assert kept.put(row("a"))
    assert not kept.put(row("a"))  # nothing new
    assert [found.name for found in kept.query(WorkloadQuery())] == ["a"]
    kept.put(row("a", state=DisplayState.ADMITTED))
    kept.put(row("b", cluster_queue="second"))
    assert kept.totals() == {
        "Pending": 1,
        "QuotaReserved": 0,
        "Admitted": 1,
        "Evicted": 0,
        "Inactive": 0,
        "Finished": 0,
    }
    assert kept.count("cq", DisplayState.PENDING) == 0
    assert kept.count("second", DisplayState.PENDING) == 1
    assert kept.drop(("lab", "b"))
    assert not kept.drop(("lab", "b"))
    assert [found.name for found in kept.query(WorkloadQuery())] == ["a"]
    assert kept.count("second", DisplayState.PENDING) == 0
