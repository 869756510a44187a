"""What is written for a Workload that a scheduling cycle did not admit."""

from __future__ import annotations

from lifecycle.workload_harness import WorkloadHarness
from pykueue.api import kueue
from pykueue.api.conditions import QuotaReservedReason, WorkloadCondition
from pykueue.lifecycle import pending_status, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import Changes

REQUESTS = (kueue.PodSetRequest(name="main", resources={"cpu": "4"}),)


def tried(
    harness: WorkloadHarness, message: str = "cpu: 3 more needed", *, gated: bool = False, emit_event: bool = True
) -> Changes:
    reason = QuotaReservedReason.WAITING_FOR_QUOTA
    return pending_status.wait(
        harness.workload, reason, message, REQUESTS, harness.options, harness.now, gated=gated, emit_event=emit_event
    )


def test_failed_attempt_writes_reason_requests_and_a_warning_event() -> None:
    harness = WorkloadHarness()
    harness.write(tried(harness))
    assert harness.conditions == {"QuotaReserved": "False/WaitingForQuota", "Admitted": "False/NoReservation"}
    assert harness.workload.status.resource_requests == REQUESTS
    assert harness.events == ["Warning WaitingForQuota"]


def test_second_failed_attempt_emits_an_event_without_a_write() -> None:
    harness = WorkloadHarness()
    harness.write(tried(harness))
    before = harness.workload
    assert harness.after(5).write(tried(harness)).workload == before
    assert harness.events == ["Warning WaitingForQuota", "Warning WaitingForQuota"]


def test_the_rules_leave_it_as_it_is() -> None:
    harness = WorkloadHarness()
    assert harness.write(tried(harness)).step_once().changes == ()


def test_long_messages_are_cut_shorter_in_the_event() -> None:
    harness = WorkloadHarness()
    harness.write(tried(harness, "x" * 50_000))
    assert len(harness.message(WorkloadCondition.QUOTA_RESERVED)) == 32_768
    (event,) = [one for one in harness.notifications if isinstance(one, workload_changes.EmitEvent)]
    assert len(event.note) == 1024
    assert event.note.endswith(" ...")


def test_waiting_for_pods_of_other_workloads_emits_no_event() -> None:
    assert workload_changes.notifications(tried(WorkloadHarness(), emit_event=False)) == ()


def test_closed_preemption_gates_are_shown() -> None:
    harness = WorkloadHarness()
    assert harness.write(tried(harness, gated=True)).conditions["BlockedOnPreemptionGates"] == "True/PreemptionGated"


def test_the_older_words_when_the_gate_is_off() -> None:
    harness = WorkloadHarness(options=LifecycleOptions(observability=False))
    harness.write(tried(harness))
    assert harness.conditions == {"QuotaReserved": "False/Pending"}
    assert harness.events == ["Warning Pending"]
