"""Planned backfill in the whole system on a virtual clock: limits of jobs, annotation, Events, columns, refusals."""

from __future__ import annotations

import pytest

from pykueue.api import backfill
from pykueue.testing import Kueue
from pykueue.testing.virtual_loop import VirtualClock

CONFIGURATION = {"featureGates": {"PlannedBackfill": True, "WorkloadHints": True}}


def queues(**annotations: str) -> str:
    marks = "".join(f"    {name}: {value}\n" for name, value in annotations.items())
    return f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: any}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: physics
  annotations:
{marks or "    {}"}
spec:
  namespaceSelector: {{}}
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: any, resources: [{{name: cpu, nominalQuota: 10}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: physics}}
spec: {{clusterQueue: physics}}
"""


def planned(kueue: Kueue, job: str) -> str | None:
    [found] = [each for each in kueue.all("workload") if each["metadata"]["ownerReferences"][0]["name"] == job]
    return (found["metadata"].get("annotations") or {}).get(backfill.PLANNED_START)


def notes(kueue: Kueue, reason: str) -> list[str]:
    return [each.get("note") or each["message"] for each in kueue.all("event") if each["reason"] == reason]


def reasons(kueue: Kueue) -> set[str]:
    return {each["reason"] for each in kueue.all("event")}


@pytest.mark.kueue(configuration=CONFIGURATION)
def test_small_jobs_pass_a_large_one_and_do_not_delay_it(kueue: Kueue) -> None:
    kueue.apply(queues(**{backfill.MODE: "EASY"}))
    kueue.submit(["sleep", "7000"], name="running", cpu=6, queue="physics", time_limit_seconds=7200)
    kueue.submit(["sleep", "600"], name="big", cpu=10, queue="physics", time_limit_seconds=3600)
    kueue.submit(["sleep", "3600"], name="short", cpu=2, queue="physics", time_limit_seconds=3600)
    kueue.submit(["sleep", "3600"], name="long", cpu=2, queue="physics", time_limit_seconds=14400)
    states = {name: kueue.status(name).state for name in ("running", "big", "short", "long")}
    assert states == {"running": "Running", "big": "Waiting", "short": "Running", "long": "Waiting"}
    kueue.advance(5)
    assert planned(kueue, "big") is not None
    assert "whose start is planned for" in kueue.status("long").message
    kueue.advance(7100)
    assert kueue.status("big").state in ("Running", "Starting")
    assert planned(kueue, "big") is None
    assert {"StartPlanned", "PlanKept"} <= reasons(kueue)


@pytest.mark.kueue(configuration=CONFIGURATION)
def test_a_start_that_moves_within_a_minute_of_its_first_event_has_an_event_with_the_cause(kueue: Kueue) -> None:
    kueue.apply(
        queues(**{backfill.MODE: "Conservative"})
        + """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
"""
    )
    kueue.submit(["sleep", "7000"], name="running", cpu=6, queue="physics", time_limit_seconds=7200)
    kueue.submit(["sleep", "600"], name="big", cpu=10, queue="physics", time_limit_seconds=3600)
    kueue.advance(5)
    first = planned(kueue, "big")
    kueue.submit(
        ["sleep", "600"], name="ahead", cpu=10, queue="physics", time_limit_seconds=3600, priority_class="urgent"
    )
    kueue.advance(10)
    second = planned(kueue, "big")
    assert first is not None
    assert second is not None
    assert first < second
    assert notes(kueue, "StartReplanned") == []
    kueue.advance(60)
    cause = "a workload ahead of it in the order of its ClusterQueue takes precedence"
    assert notes(kueue, "StartReplanned") == [
        f"The start of the workload is planned for {second} at the latest, because {cause}"
    ]


@pytest.mark.kueue(configuration=CONFIGURATION)
def test_a_date_is_improved_also_after_a_clock_that_was_ahead_is_put_back(kueue: Kueue) -> None:
    """[CS6] [TL8] And the Event of it is emitted."""
    clock = kueue._client._clock
    assert isinstance(clock, VirtualClock)
    kueue.apply(queues(**{backfill.MODE: "EASY"}))
    for name, cpu, limit in (("first", 6, 7200), ("second", 2, 14400), ("third", 1, 7200)):
        kueue.submit(["sleep", "7000"], name=name, cpu=cpu, queue="physics", time_limit_seconds=limit)
    clock.wrong_by_seconds = 3000
    kueue.submit(["sleep", "600"], name="big", cpu=10, queue="physics", time_limit_seconds=3600)
    kueue.advance(5)
    late = planned(kueue, "big")
    kueue.delete("job", "third")
    kueue.advance(200)
    clock.wrong_by_seconds = 0
    kueue.advance(5)
    kueue.delete("job", "second")
    kueue.advance(200)
    early = planned(kueue, "big")
    assert late is not None
    assert early is not None
    assert early < late
    assert len(notes(kueue, "StartReplanned")) == 1


@pytest.mark.kueue(configuration=CONFIGURATION)
def test_invalid_annotations_are_refused(kueue: Kueue) -> None:
    invalid: dict[str, tuple[dict[str, str], str]] = {
        "mode": ({backfill.MODE: "Easy"}, 'must be one of "Conservative", "EASY"'),
        "depth": ({backfill.MODE: "EASY", backfill.DEPTH: "'33'"}, "must be an integer from 1 to 32"),
        "duration": ({backfill.MODE: "EASY", backfill.PLAN_AFTER: "soon"}, "must be a duration such as 10m"),
        "estimates": ({backfill.MODE: "EASY", backfill.BY: "Estimates"}, "is not implemented"),
        "alone": ({backfill.DEPTH: "'2'"}, "has no effect without pykueue.io/backfill"),
    }
    for name, (marks, message) in invalid.items():
        with pytest.raises(Exception, match=r"metadata\.annotations") as refused:
            kueue.apply(queues(**marks))
        assert message in str(refused.value), name
