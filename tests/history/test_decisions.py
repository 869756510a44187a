"""The history reads only: with the gate on and off, the manager decides the same, byte for byte."""

from __future__ import annotations

import msgspec

from pykueue import testing
from pykueue.controllers import decision_trace

CLASS = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 10}


def decisions(**gates: bool) -> list[bytes]:
    """The decisions of a manager with a full queue, preemption and cancelled jobs."""
    lines: list[bytes] = []
    with testing.system({"featureGates": gates}) as kueue:

        def write(line: bytes) -> None:
            # Decisions with their time; revisions of the inputs between them differ by other writes.
            read = msgspec.json.decode(line)
            if read.get("decided"):
                lines.append(msgspec.json.encode((read["given"], read["decided"])))

        decision_trace.record(kueue._manager.world, write)
        kueue.patch("clusterqueue", "default", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
        kueue.apply({**CLASS, "metadata": {"name": "high"}})
        for number in range(6):
            kueue.submit(["sleep", str(30 + 10 * number)], name=f"job-{number}", cpu=3)
        kueue.submit(["sleep", "20"], name="urgent", cpu=6, priority_class="high")
        kueue.advance(15)
        kueue.delete("job", "job-1")
        kueue.delete("job", "job-5")
        kueue.advance(400)
        states = sorted((entry.name, entry.status.state) for entry in kueue.queue(all=True) if entry.workload)
    return [*lines, repr(states).encode()]


def test_decisions_with_and_without_a_history_are_equal() -> None:
    without = decisions(History=False)
    assert len(without) > 10
    assert decisions(History=True) == without
