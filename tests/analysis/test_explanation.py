"""Why a Workload waits: all causes at once, its own as well as those of its queues."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from analysis.states import case_of
from kubemachinery import meta
from kubemachinery.errors import UsageError
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.analysis.explanation import Explanation, explain
from pykueue.analysis.planner import Case
from pykueue.api import kube, kueue

QUEUE = QueueCase("q0", "", (QuotaCase(10, None, None),), "Never", "Never", False)
HOLDER = WorkloadCase(0, "q0", 8, 0, 9, "f0")


def asked(*workloads: WorkloadCase, queue: QueueCase = QUEUE, key: str = "ns/w1") -> Explanation:
    return explain(case_of(ClusterCase((), (queue,), workloads, False)), key, NOW)


def test_a_shortage_names_the_holders_and_what_protects_them() -> None:
    explained = asked(HOLDER, WorkloadCase(1, "q0", 6, 0, 1))
    assert explained.causes == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f0, 4 more needed",
        "cpu in flavor f0: requested 6, unused 2",
        "flavor f0: no preemption candidates",
    )
    assert [(held["workload"], held["amount"], held["protectedBy"]) for held in explained.holders] == [
        ("ns/w0", "8", "withinClusterQueue is Never")
    ]
    assert explained.position == (1, 1)


def test_a_workload_behind_the_head_of_a_strict_queue_names_the_head() -> None:
    explained = asked(
        HOLDER, WorkloadCase(2, "q0", 6, 0, 5), WorkloadCase(1, "q0", 1, 0, 1), queue=replace(QUEUE, strict=True)
    )
    assert explained.causes == ("it would fit alone; ns/w2 is ahead",)
    assert explained.ahead == ("ns/w2",)
    assert explained.position == (2, 2)
    assert "deactivate ns/w2, which is ahead of it" in [each.sentence() for each in explained.suggestions]


def test_one_that_was_never_tried_because_another_of_its_kind_did_not_get_in_can_ask_all_the_same() -> None:
    """Its status has no reason; see docs/decisions/0019."""
    first = asked(HOLDER, WorkloadCase(1, "q0", 6, 0, 1), WorkloadCase(2, "q0", 6, 0, 2), key="ns/w1")
    second = asked(HOLDER, WorkloadCase(1, "q0", 6, 0, 1), WorkloadCase(2, "q0", 6, 0, 2), key="ns/w2")
    assert second.causes == first.causes != ()


def test_a_workload_that_fits_is_reported_as_about_to_start() -> None:
    explained = asked(WorkloadCase(1, "q0", 1, 0, 1))
    assert (explained.starts_next, explained.causes, explained.suggestions) == (True, (), ())


def changed(case: Case, kind: type, **fields: object) -> Case:
    def spec(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kind):
            return thing
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, **fields))  # type: ignore[attr-defined]

    return case.with_objects(spec(thing) for thing in case.objects)


def test_all_closed_gates_are_reported_and_opened_together() -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 1, 0, 1),), False))
    case = changed(case, kueue.ClusterQueue, stop_policy="Hold", namespace_selector=meta.LabelSelector({"team": "a"}))
    case = changed(case, kueue.LocalQueue, stop_policy="HoldAndDrain")
    case = changed(case, kueue.Workload, active=False)
    explained = explain(case, "ns/w1", NOW)
    assert explained.causes == (
        "it is deactivated",
        "LocalQueue ns/q0 is stopped",
        "ClusterQueue q0 is stopped",
        "namespace ns is not selected by ClusterQueue q0",
    )
    [only] = explained.suggestions
    assert [part.sentence() for part in only.changes] == [
        "activate ns/w1",
        "resume LocalQueue ns/q0",
        "resume ClusterQueue q0",
        "label namespace ns with team=a",
    ]
    assert [part.how() for part in only.changes][3] == "kubectl label --overwrite namespace ns team=a"


def test_the_cause_of_a_deactivation_by_the_manager_is_reported() -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 1, 0, 1),), False))
    message = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    evicted = meta.Condition(
        type="Evicted", status="True", reason="DeactivatedDueToRequeuingLimitExceeded", message=message
    )
    objects = [
        msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, conditions=(evicted,)))
        if isinstance(thing, kueue.Workload)
        else thing
        for thing in changed(case, kueue.Workload, active=False).objects
    ]
    assert explain(case.with_objects(iter(objects)), "ns/w1", NOW).causes == (
        "it is deactivated due to exceeding the maximum number of re-queuing retries",
    )


def test_a_missing_queue_is_reported_and_created_where_one_cluster_queue_exists() -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 1, 0, 1),), False))
    without = case.with_objects(thing for thing in case.objects if not isinstance(thing, kueue.LocalQueue))
    explained = explain(without, "ns/w1", NOW)
    assert explained.causes == ("LocalQueue ns/q0 does not exist",)
    assert [each.sentence() for each in explained.suggestions] == ["create LocalQueue ns/q0 of ClusterQueue q0"]


def test_a_missing_namespace_is_reported() -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 1, 0, 1),), False))
    without = case.with_objects(thing for thing in case.objects if not isinstance(thing, kube.Namespace))
    assert explain(without, "ns/w1", NOW).causes[0] == "namespace ns does not exist"


def test_a_running_workload_is_explained_by_its_conditions() -> None:
    explained = asked(HOLDER, key="ns/w0")
    assert (explained.state, explained.cluster_queue, explained.causes) == (
        "QuotaReserved",
        "q0",
        ("QuotaReserved: QuotaReserved",),
    )


def test_an_unknown_name_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="Workload ns/nobody does not exist"):
        asked(key="ns/nobody")
