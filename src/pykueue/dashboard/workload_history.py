"""The documents of one Workload: requests, assignments, and its history in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubemachinery import conditions
from pykueue.api import kube, kueue
from pykueue.dashboard import workload_table
from pykueue.dashboard.workload_table import WorkloadRow
from pykueue.lifecycle import states

Tree = dict[str, Any]

# The length of a message in a list; whole messages are in the history.
_MESSAGE_MAX: Final = 240
# How many Events a history has. A Workload that is preempted again and again has thousands within an hour.
EVENTS_MAX: Final = 200


def detail(workload: kueue.Workload, row: WorkloadRow) -> Tree:
    """Return the current details of a Workload."""
    spec, status = workload.spec, workload.status
    return {
        **line(workload, row),
        "uid": workload.metadata.uid,
        "active": spec.active,
        "priorityClass": spec.priority_class_ref.name if spec.priority_class_ref is not None else "",
        "pods": [{"name": each.name, "count": each.count} for each in spec.pod_sets],
        "requests": [{"name": each.name, "resources": dict(each.resources)} for each in status.resource_requests],
        "assignments": [
            {"name": each.name, "flavors": dict(each.flavors), "resources": dict(each.resource_usage)}
            for each in (status.admission.pod_set_assignments if status.admission is not None else ())
        ],
        "checks": [
            {"name": each.name, "state": each.state, "message": each.message} for each in status.admission_checks
        ],
    }


def line(workload: kueue.Workload, row: WorkloadRow) -> Tree:
    """Return the line of a list. State and message are read from the same object: the row may be a second older."""
    return {
        "namespace": row.namespace,
        "name": row.name,
        "queue": row.queue,
        "clusterQueue": row.cluster_queue,
        "job": row.job,
        "state": workload_table.display_state(workload).value,
        "priority": row.priority,
        "created": row.created,
        "message": _cut(message(workload)),
    }


def message(workload: kueue.Workload) -> str:
    """Return the message of the condition that determines its state; empty if there is none."""
    found = states.state_condition(workload)
    return (found.message or found.reason) if found is not None else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX else f"{text[: _MESSAGE_MAX - 1]}…"


def timeline(workload: kueue.Workload, events: Iterable[kube.Event]) -> list[Tree]:
    """Return its creation, conditions, checks and latest Events, oldest first; entries of the same time stay in this
    order."""
    latest = sorted(map(_event, events), key=_moment)[-EVENTS_MAX:]
    return sorted([*_creation(workload), *_conditions(workload), *_checks(workload), *latest], key=_moment)


def _moment(entry: Tree) -> str:
    """Return the time of an entry, sortable: without the Z, a whole second sorts before its fractions."""
    time: str = entry["time"]
    return time.removesuffix("Z")


def _creation(workload: kueue.Workload) -> Iterator[Tree]:
    queue = workload.spec.queue_name
    yield _entry("created", workload.metadata.creation_timestamp, "Created", f"queue {queue}" if queue else "")


def _conditions(workload: kueue.Workload) -> Iterator[Tree]:
    for each in workload.status.conditions:
        title = each.type if each.status == conditions.ConditionStatus.TRUE else f"{each.type}: {each.status}"
        yield _entry("condition", each.last_transition_time, title, each.message, each.reason)


def _checks(workload: kueue.Workload) -> Iterator[Tree]:
    for each in workload.status.admission_checks:
        yield _entry("check", each.last_transition_time, f"{each.name}: {each.state}", each.message)


def _event(event: kube.Event) -> Tree:
    last = event.series.last_observed_time if event.series is not None else event.deprecated_last_timestamp
    count = event.series.count if event.series is not None else event.deprecated_count
    time = last or event.event_time or event.metadata.creation_timestamp
    return {**_entry("event", time, event.reason, event.note, event.type), "count": max(count, 1)}


def _entry(source: str, time: str | None, title: str, message: str, reason: str = "") -> Tree:
    return {"source": source, "time": time or "", "title": title, "reason": reason, "message": message}
