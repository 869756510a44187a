"""One Workload on the dashboard: a sentence for the list, and its history for the page."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery import codec
from pykueue.api import kube, kueue
from pykueue.dashboard import workload_history, workload_table

Tree = dict[str, Any]


def condition(type_: str, status: str, message: str, time: str = "2026-01-01T10:00:00Z", reason: str = "Why") -> Tree:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def workload(*conditions: Tree, **status: Any) -> kueue.Workload:
    metadata = {"name": "train", "namespace": "lab", "creationTimestamp": "2026-01-01T10:00:00Z"}
    spec = {"queueName": "fast", "podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]}
    tree = {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **status}}
    return codec.from_tree(tree, kueue.Workload)


RESERVED = condition("QuotaReserved", "True", "reserved")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], ""),
        ([condition("QuotaReserved", "False", "no room")], "no room"),
        ([condition("QuotaReserved", "True", "reserved")], "reserved"),
        ([condition("QuotaReserved", "True", "reserved"), condition("Admitted", "True", "runs")], "runs"),
        ([RESERVED, condition("Admitted", "True", "runs"), condition("Evicted", "True", "has to go")], "has to go"),
        ([condition("QuotaReserved", "False", "no room"), condition("Evicted", "True", "has to go")], "no room"),
        ([condition("Evicted", "True", "has to go"), condition("Finished", "True", "done")], "done"),
        ([condition("QuotaReserved", "False", "")], "Why"),
    ],
)
def test_message_is_that_of_the_condition_of_the_state(conditions: list[Tree], expected: str) -> None:
    assert workload_history.message(workload(*conditions)) == expected


def test_line_has_state_and_message_of_one_object() -> None:
    """Also where the row was read before the object changed."""
    before = workload(RESERVED, condition("Admitted", "True", "runs"))
    after = workload(condition("QuotaReserved", "False", "no room"), condition("Evicted", "True", "has to go"))
    line = workload_history.line(after, workload_table.row(before, "cq"))
    assert (line["state"], line["message"]) == ("Pending", "no room")


def event(reason: str, time: str, **more: Any) -> kube.Event:
    return codec.from_tree({"metadata": {}, "eventTime": time, "reason": reason, "note": "note", **more}, kube.Event)


def test_history_merges_conditions_checks_and_events_in_order() -> None:
    entries = workload_history.timeline(
        workload(
            condition("Admitted", "True", "runs", "2026-01-01T10:00:09Z"),
            condition("QuotaReserved", "False", "no room", "2026-01-01T10:00:02Z"),
            admissionChecks=[
                {"name": "budget", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T10:00:05Z"}
            ],
        ),
        [
            event("Admitted", "2026-01-01T10:00:09.250000Z"),
            event(
                "Pending", "2026-01-01T10:00:02.5Z", series={"count": 4, "lastObservedTime": "2026-01-01T10:00:07.1Z"}
            ),
        ],
    )
    assert [(each["title"], each.get("count")) for each in entries] == [
        ("Created", None),
        ("QuotaReserved: False", None),
        ("budget: Ready", None),
        ("Pending", 4),  # where it was last seen
        ("Admitted", None),
        ("Admitted", 1),  # the Event comes after the transition that it reports
    ]


def test_history_has_the_latest_events() -> None:
    """In a preemption loop there are thousands; the list of the server is not in the order of time."""
    times = [
        f"2026-01-01T11:{number // 60:02}:{number % 60:02}.5Z" for number in range(workload_history.EVENTS_MAX + 70)
    ]
    entries = workload_history.timeline(workload(RESERVED), [event("Preempted", time) for time in reversed(times)])
    assert [each["source"] for each in entries[:3]] == ["created", "condition", "event"]
    assert [each["time"] for each in entries[2:]] == times[70:]


def test_deprecated_event_times_are_read() -> None:
    old = codec.from_tree(
        {"metadata": {}, "reason": "Old", "deprecatedLastTimestamp": "2026-01-01T10:00:03Z", "deprecatedCount": 2},
        kube.Event,
    )
    (_, entries) = workload_history.timeline(workload(), [old])
    assert (entries["time"], entries["count"]) == ("2026-01-01T10:00:03Z", 2)
