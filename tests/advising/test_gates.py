"""Whatever keeps a ClusterQueue from admitting is a cause that its Workloads are told."""

from __future__ import annotations

import msgspec

from advising.states import case_of
from laws.worlds import NOW, QueueOf, QuotaOf, WorkloadOf, WorldOf
from pykueue.advising.why import why
from pykueue.api import kueue, meta

QUEUE = QueueOf("q0", "", (QuotaOf(10, None, None),), "Never", "Never", False)
CASE = case_of(WorldOf((), (QUEUE,), (WorkloadOf(1, "q0", 1, 0, 1),), False))


def test_a_topology_that_is_not_there() -> None:
    def placed(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ResourceFlavor):
            return thing
        spec = msgspec.structs.replace(thing.spec, topology_name="racks", node_labels={"a": "b"})
        return msgspec.structs.replace(thing, spec=spec)

    told = why(CASE.with_objects(map(placed, CASE.objects)), "ns/w1", NOW)
    assert told.causes == ("ClusterQueue q0 admits nobody: Topologies are missing: racks",)
    assert not told.starts_next


def test_cohorts_that_run_in_a_circle() -> None:
    def in_cohort(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ClusterQueue):
            return thing
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, cohort_name="one"))

    circle = [
        kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name=parent))
        for name, parent in (("one", "two"), ("two", "one"))
    ]
    told = why(CASE.with_objects([*map(in_cohort, CASE.objects), *circle]), "ns/w1", NOW)
    assert told.causes == ("ClusterQueue q0 admits nobody: the cohorts above it run in a circle",)
