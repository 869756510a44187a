"""What-if answers equal what then happens while the clock stands still, and a question changes nothing.

`ADVISING_CASES=1000` looks at that many random changes instead of a handful.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from analysis.states import case_of
from kubemachinery import codec, meta, yaml_documents
from laws.random_clusters import NAMESPACE, NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, clusters, quotas
from pykueue.analysis import planner, whatif
from pykueue.analysis.object_changes import indexed
from pykueue.analysis.planner import Case
from pykueue.api import kueue
from pykueue.core.decision import Admit, Evict, Preempt
from pykueue.lifecycle import states
from pykueue.state import admission
from pykueue.state.intake import is_watched
from pykueue.state.world import World

CASES = int(os.environ.get("ADVISING_CASES", "60"))


class Running:
    """The state of a running manager: one World that is updated incrementally, one change at a time."""

    def __init__(self, case: Case) -> None:
        self.objects = indexed(case.objects)
        self.world = World(structs.replace(case.configured.policy, departures=True))
        for thing in filter(is_watched, case.objects):
            self.world.put(thing, NOW)

    def settle(self) -> None:
        for _ in range(10_000):
            self.world.settle(NOW)
            in_line = self._in_line()
            decisions = self.world.decide(NOW)
            for decision in decisions:
                if isinstance(decision, Admit):
                    self._admit(decision)
            stopped = [key for key, held in self.world.reservations.items() if held.evicted]
            for key in sorted(stopped):
                self._stop(key)
            acted = any(isinstance(decision, (Admit, Preempt, Evict)) for decision in decisions)
            if not acted and in_line == self._in_line():
                return
        raise AssertionError("it never comes to rest")

    def _in_line(self) -> set[str]:
        return {workload.key for queue in self.world.queues.values() for workload in queue.active()}

    def _admit(self, decision: Admit) -> None:
        tree = admission.tree(decision.cluster_queue, decision.pod_sets)
        reserved = meta.Condition(
            type="QuotaReserved",
            status="True",
            reason="QuotaReserved",
            message="reserved",
            last_transition_time=meta.format_time(NOW),
        )
        status = kueue.WorkloadStatus(admission=codec.from_tree(tree, kueue.Admission), conditions=(reserved,))
        self._put(decision.workload, status)

    def _stop(self, key: str) -> None:
        self._put(key, kueue.WorkloadStatus())

    def _put(self, key: str, status: kueue.WorkloadStatus) -> None:
        namespace, _, name = key.partition("/")
        before = self.objects[kueue.Workload, namespace, name]
        after = msgspec.structs.replace(before, status=status)
        self.objects[kueue.Workload, namespace, name] = after
        self.world.confirm(key)
        assert is_watched(after)
        self.world.put(after, NOW)

    def holds(self) -> set[str]:
        return {key for key, held in self.world.reservations.items() if not held.evicted}


@st.composite
def changes(draw: st.DrawFn, generated: ClusterCase) -> list[msgspec.Struct]:
    """Another quota for a queue, or a newcomer."""
    queue = draw(st.sampled_from(generated.queues))
    kind = draw(st.sampled_from(["quota", "newcomer", "both"]))
    found: list[msgspec.Struct] = []
    if kind != "newcomer":
        quota: QuotaCase = draw(quotas)
        found.append(
            replace(queue, quotas=tuple(replace(quota, nominal=quota.nominal + 2) for _ in queue.quotas)).thing()
        )
    if kind != "quota":
        found.append(WorkloadCase(99, queue.name, draw(st.integers(0, 6)), draw(st.integers(0, 5)), 0).thing())
    return found


@settings(max_examples=CASES)
@given(st.data(), clusters())
def test_what_is_foretold_then_happens(data: st.DataObject, generated: ClusterCase) -> None:
    running = Running(case_of(generated))
    running.settle()
    at_rest = case_of(generated).with_objects(running.objects.values())
    change = data.draw(changes(generated))
    seen = [codec.encode(thing) for thing in at_rest.objects]

    changed = whatif.changed_by(at_rest, structs.replace(at_rest, objects=tuple(change)), (), NOW)
    foretold = whatif.compare(at_rest, changed, NOW)

    assert [codec.encode(thing) for thing in at_rest.objects] == seen, "asking changed something"
    for thing in change:
        running.objects.update(indexed([thing]))
        assert is_watched(thing)
        running.world.put(thing, NOW)
    running.settle()
    assert running.holds() == foretold.after.holds


def test_a_deleted_queue_starts_and_evicts_no_workload() -> None:
    generated = ClusterCase(
        (),
        (QueueCase("q0", "", (QuotaCase(4, None, None),), "Never", "Never", False),),
        (WorkloadCase(0, "q0", 2, 0, 1, "f0"), WorkloadCase(1, "q0", 2, 0, 1)),
        False,
    )
    gone = [(kueue.ClusterQueue, "", "q0")]
    case = case_of(generated)
    found = whatif.compare(case, whatif.changed_by(case, structs.replace(case, objects=()), gone, NOW), NOW)
    assert found.waits == (f"{NAMESPACE}/w1",)
    assert found.evicted == ()
    assert states.key(generated.workloads[0].thing()) in found.after.holds


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: JOB, namespace: work, labels: {kueue.x-k8s.io/queue-name: a}}
spec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: CPU}}}]}}}
"""


POD = """
apiVersion: v1
kind: Pod
metadata: {name: JOB, namespace: work, labels: {kueue.x-k8s.io/queue-name: a}}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: CPU}}}]}
"""


@pytest.mark.parametrize("kind", ["Job", "Pod"])
@pytest.mark.parametrize(("cpu", "field"), [("2", "starts"), ("20", "joins")])
def test_a_job_among_the_changes_is_submitted(cpu: str, field: str, kind: str) -> None:
    """And one that has its Workload already is not submitted again."""
    example = Path(__file__).resolve().parents[2] / "examples" / "plan" / "cohort.yaml"
    case = planner.read(yaml_documents.read(example))
    job = {"Job": JOB, "Pod": POD}[kind].replace("JOB", "new").replace("CPU", cpu)
    change = planner.read(yaml_documents.parse(job, "change"))
    changed = whatif.changed_by(case, change, (), meta.parse_time("2026-01-01T10:00:00Z"))
    found = whatif.compare(case, changed, meta.parse_time("2026-01-01T10:00:00Z"))
    [shown] = getattr(found, field)
    assert shown.startswith(f"work/{kind.lower()}-new-")
    again = whatif.changed_by(changed, change, (), NOW)
    assert again.objects == changed.objects
    assert again.passed_over == ((f"{kind} work/new", "has a Workload already"),)
