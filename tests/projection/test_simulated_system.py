"""With known run times, a run ahead finds every start of the simulated system [TL-L4]."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubemachinery import meta
from kubemachinery.meta import SECOND
from kubemachinery.yaml_documents import Document
from pykueue import projection
from pykueue.analysis import planner
from pykueue.api import kueue as api
from pykueue.lifecycle import states
from pykueue.projection import forecast
from pykueue.testing import Kueue

KINDS = {
    "namespace": "v1",
    "resourceflavor": "kueue.x-k8s.io/v1beta2",
    "cohort": "kueue.x-k8s.io/v1beta2",
    "clusterqueue": "kueue.x-k8s.io/v1beta2",
    "localqueue": "kueue.x-k8s.io/v1beta2",
    "workload": "kueue.x-k8s.io/v1beta2",
}
NAMES = {
    "namespace": "Namespace",
    "resourceflavor": "ResourceFlavor",
    "cohort": "Cohort",
    "clusterqueue": "ClusterQueue",
    "localqueue": "LocalQueue",
    "workload": "Workload",
}


def cluster_queue(name: str, cpu: int, strategy: str, cohort: str = "", **preemption: str) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": cpu}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default-flavor", "resources": [quota]}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            **({"cohortName": cohort} if cohort else {}),
            "resourceGroups": [group],
            "preemption": preemption,
        },
    }


def local_queue(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": name},
    }


def case_of(system: Kueue) -> projection.SchedulerCase:
    documents = [
        Document(kind, {"apiVersion": version, "kind": NAMES[kind], **tree})
        for kind, version in KINDS.items()
        for tree in system.all(kind)
    ]
    return planner.scheduler_case(planner.read(documents), departures=True)


def sleep_seconds(workload: api.Workload) -> int:
    return int(workload.spec.pod_sets[0].template.spec.containers[0].command[1])


def starts_after(system: Kueue, time: int) -> dict[str, list[int]]:
    """The recorded admissions of attempts that had not ended at a time, in seconds since 1970."""
    return {
        record.workload: [
            meta.parse_time(each.admitted) // SECOND
            for each in record.attempts
            if each.admitted is not None and meta.parse_time(each.released or "") > time
        ]
        for record in system.history()
    }


PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@pytest.mark.parametrize(
    ("strategy", "preemption", "seed"),
    [
        ("StrictFIFO", {}, 0),
        ("BestEffortFIFO", {}, 1),
        ("BestEffortFIFO", PREEMPTION, 1),
        ("StrictFIFO", PREEMPTION, 2),
    ],
)
def test_starts_of_the_simulated_system_are_found_to_the_second(
    kueue: Kueue, strategy: str, preemption: dict[str, str], seed: int
) -> None:
    rng = random.Random(seed)
    queues = [cluster_queue(name, 4, strategy, "all", **preemption) for name in ("a", "b")]
    kueue.apply(*queues, local_queue("a"), local_queue("b"))
    for number in range(12):
        command = ["sleep", str(rng.randrange(20, 300))]
        kueue.submit(command, name=f"job-{number}", cpu=rng.randrange(1, 5), queue=rng.choice("ab"))
    case, now = case_of(kueue), round(kueue.now().timestamp()) * SECOND
    found = projection.run(case, now, projection.ConstantDraws(sleep_seconds))
    kueue.advance(4000)
    assert not found.pending
    happened = starts_after(kueue, now)
    projected: dict[str, list[int]] = {}
    for attempt in found.attempts:
        assert attempt.admitted is not None
        projected.setdefault(attempt.key.partition("/")[2], []).append(attempt.admitted // SECOND)
    assert {states.key(each).partition("/")[2] for each in case.workloads()} == set(projected)
    assert projected == {name: happened[name] for name in projected}
    if preemption:
        return
    # A forecast handles events on a grid, so starts may be later by the width of a few of its steps [FC-L2].
    made = forecast.forecast(case, now, lambda sample: projection.ConstantDraws(sleep_seconds))
    assert made.samples >= forecast.SAMPLES_MIN
    for item in made.items:
        assert item.p50 is not None
        assert item.p50 == item.p90
        start = happened[item.key.partition("/")[2]][-1]
        assert 0 <= item.p50 // SECOND - start <= 2 + (start - now // SECOND) // 20
