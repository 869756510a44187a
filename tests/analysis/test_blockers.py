"""Everything that keeps a Workload or its ClusterQueue from being considered is reported as a cause."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from analysis.states import case_of
from kubemachinery import meta
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.analysis.explanation import explain
from pykueue.analysis.planner import Case
from pykueue.api import kueue, labels

QUEUE = QueueCase("q0", "", (QuotaCase(10, None, None),), "Never", "Never", False)
CASE = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 1, 0, 1),), False))


def test_a_topology_that_is_not_there() -> None:
    def placed(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ResourceFlavor):
            return thing
        spec = msgspec.structs.replace(thing.spec, topology_name="racks", node_labels={"a": "b"})
        return msgspec.structs.replace(thing, spec=spec)

    explained = explain(CASE.with_objects(map(placed, CASE.objects)), "ns/w1", NOW)
    assert explained.causes == ('ClusterQueue q0 is inactive: there is no Topology "racks" for TAS flavor "f0"',)
    assert not explained.starts_next


def test_cohorts_that_run_in_a_circle() -> None:
    def in_cohort(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ClusterQueue):
            return thing
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, cohort_name="one"))

    circle = [
        kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name=parent))
        for name, parent in (("one", "two"), ("two", "one"))
    ]
    explained = explain(CASE.with_objects([*map(in_cohort, CASE.objects), *circle]), "ns/w1", NOW)
    assert explained.causes == ("ClusterQueue q0 is inactive: its cohorts form a cycle",)


@pytest.mark.parametrize(
    ("gate", "mark", "cause"),
    [
        (
            "admission_gated_by",
            {"annotations": {labels.ADMISSION_GATED_BY: "example.com/budget"}},
            "its admission is gated by example.com/budget",
        ),
        (
            "concurrent_admission",
            {"labels": {labels.CONCURRENT_ADMISSION_PARENT: "true"}},
            "its variants are scheduled in its place",
        ),
    ],
)
def test_a_mark_on_a_workload_keeps_it_out_only_where_its_feature_gate_is_on(
    gate: str, mark: dict[str, dict[str, str]], cause: str
) -> None:
    def marked(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.Workload):
            return thing
        return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, **mark))

    for is_on, causes in ((True, (cause,)), (False, ())):
        admission_blockers: dict[str, Any] = {gate: is_on}
        policy = replace(CASE.configured.policy, **admission_blockers)
        case = Case(replace(CASE.configured, policy=policy), CASE.objects)
        explained = explain(case.with_objects(map(marked, case.objects)), "ns/w1", NOW)
        assert explained.causes == causes
        assert explained.starts_next is not is_on
