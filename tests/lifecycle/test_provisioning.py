"""What the requests for nodes of a Workload mean, and which are due (`lifecycle.provisioning`)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery import conditions, meta
from lifecycle.workload_harness import ONE_CHECK, WorkloadHarness, facts_of
from pykueue.api import kueue, names
from pykueue.api.autoscaling import ProvisioningRequest, ProvisioningRequestSpec, ProvisioningRequestStatus
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import provisioning
from pykueue.lifecycle.provisioning import ProvisioningPlan
from pykueue.lifecycle.workload_changes import EmitEvent, SetChecks

STRATEGY = kueue.ProvisioningRequestRetryStrategy(
    backoff_limit_count=3, backoff_base_seconds=60, backoff_max_seconds=200
)
CONFIG = kueue.ProvisioningRequestConfigSpec(provisioning_class_name="class", retry_strategy=STRATEGY)


def request(attempt: int, *condition_types: str, name: str = "train", **spec: object) -> ProvisioningRequest:
    made = names.provisioning_request_name(name, "c1", attempt)
    return ProvisioningRequest(
        metadata=meta.ObjectMeta(name=made, namespace="team", uid=f"uid-{made}"),
        spec=ProvisioningRequestSpec(provisioning_class_name="class", **spec),  # type: ignore[arg-type]
        status=ProvisioningRequestStatus(
            conditions=tuple(
                meta.Condition(type=type, status="True", reason="Played", message=f"{type}!", last_transition_time="")
                for type in condition_types
            )
        ),
    )


def due(harness: WorkloadHarness, *requests: ProvisioningRequest, cleanup: bool = True) -> ProvisioningPlan:
    return provisioning.plan(harness.workload, {"c1": CONFIG}, requests, harness.now, cleanup=cleanup)


def event_notes(harness: WorkloadHarness) -> list[str]:
    return [one.note for one in harness.notifications if isinstance(one, EmitEvent)]


def reserving() -> WorkloadHarness:
    return WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle().reserved()


def test_waits_double_up_to_the_longest_and_then_there_are_no_attempts_left() -> None:
    harness, waited = reserving(), []
    for attempt in (1, 2, 3):
        (asked,) = due(harness).attempts
        assert asked.name == f"train-c1-{attempt}"
        harness.write(due(harness, request(attempt, "Failed")).changes)
        (check,) = harness.workload.status.admission_checks
        assert check.state == "Retry"
        waited.append(check.requeue_after_seconds)
        harness.settle().released().after(3600).settle().reserved()
    assert waited == [60, 120, 200]
    harness.write(due(harness, request(4, "Failed")).changes)
    assert harness.checks == {"c1": "Rejected"}
    assert harness.mirror == {"c1": "False/Reject"}


def test_an_answer_that_was_given_already_is_not_given_again() -> None:
    """The request of the attempt before outlives the eviction, where nothing cleans up: the next attempt is made."""
    harness = reserving()
    harness.write(due(harness, request(1, "Failed")).changes).settle().released().after(3600).settle().reserved()
    plan = due(harness, request(1, "Failed"), cleanup=False)
    assert [attempt.name for attempt in plan.attempts] == ["train-c1-2"]
    assert not plan.unused
    harness.write(plan.changes)
    assert harness.checks == {"c1": "Pending"}
    assert due(harness, request(1, "Failed"), request(2), cleanup=False).unused == (request(1, "Failed"),)


@pytest.mark.parametrize(
    ("condition_types", "state"),
    [
        (("Provisioned", "Failed"), "Retry"),
        (("Provisioned", "CapacityRevoked"), "Rejected"),
        (("Provisioned", "BookingExpired"), "Retry"),
        (("Accepted", "Provisioned"), "Ready"),
        (("Accepted",), "Pending"),
    ],
    ids=" and ".join,
)
def test_worst_condition_of_a_request_counts(condition_types: tuple[str, ...], state: str) -> None:
    harness = reserving()
    assert harness.write(due(harness, request(1, *condition_types)).changes).checks == {"c1": state}


def test_an_answer_counts_also_when_the_clock_was_set_back_before_it() -> None:
    harness = reserving().after(-60)
    harness.write(due(harness, request(1, "Provisioned")).changes)
    assert harness.checks == {"c1": "Ready"}


def test_a_plan_that_was_carried_out_has_nothing_left_to_do() -> None:
    for condition_types in ("Failed", "Provisioned", "Accepted", "CapacityRevoked", "BookingExpired"):
        harness = reserving()
        harness.write(due(harness, request(1, condition_types)).changes)
        assert due(harness, request(1, condition_types)) == ProvisioningPlan()


def test_evicted_workload_has_no_provisioning_request() -> None:
    harness = reserving().with_condition(WorkloadCondition.EVICTED, conditions.ConditionStatus.TRUE, "Preempted")
    assert due(harness, request(1)) == ProvisioningPlan(unused=(request(1),))
    assert due(harness, request(1), cleanup=False) == ProvisioningPlan()


def test_without_quota_no_request_is_created() -> None:
    assert due(WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle()) == ProvisioningPlan()


def test_a_request_with_other_parameters_is_not_the_current_one() -> None:
    harness = reserving().annotated(**{"provreq.kueue.x-k8s.io/zone": "b"})
    plan = due(harness, request(1, parameters={"zone": "a"}))
    assert [asked.parameters for asked in plan.attempts] == [{"zone": "b"}]
    assert plan.unused == (request(1, parameters={"zone": "a"}),)
    assert not due(harness, request(1, parameters={"zone": "b", "more": "x"})).unused


def test_failed_request_creation_is_the_message_of_the_check() -> None:
    harness = reserving()
    harness.write(provisioning.create_failed(harness.workload, "c1", "the server refused it", harness.now))
    assert harness.workload.status.admission_checks[0].message == "the server refused it"
    assert harness.checks == {"c1": "Pending"}
    assert "Warning FailedCreate" in harness.events


@pytest.mark.parametrize(
    ("condition_type", "message"),
    [
        ("Failed", "Retrying after failure: Failed!"),
        ("BookingExpired", "Retrying after booking expired: BookingExpired!"),
        ("CapacityRevoked", "CapacityRevoked!"),
        ("Provisioned", "Provisioned!"),
    ],
)
def test_messages_of_a_request_are_in_the_words_of_kueue(condition_type: str, message: str) -> None:
    harness = reserving()
    harness.write(due(harness, request(1, condition_type)).changes)
    (check,) = harness.workload.status.admission_checks
    assert check.message == message
    expected = f"Admission check c1 updated state from Pending to {check.state} with message: {message}"
    assert expected in event_notes(harness)


def test_a_check_without_a_config_or_without_need_of_nodes_has_the_message_of_kueue() -> None:
    harness = reserving()
    harness.write(provisioning.plan(harness.workload, {"c1": None}, (), harness.now).changes)
    assert harness.checks == {"c1": "Pending"}
    assert harness.workload.status.admission_checks[0].message == "the check is not active"
    other = replace(CONFIG, managed_resources=("example.com/gpu",))
    harness.write(provisioning.plan(harness.workload, {"c1": other}, (), harness.now).changes)
    assert harness.checks == {"c1": "Ready"}
    assert harness.workload.status.admission_checks[0].message == "the provisioning request is not needed"


@pytest.mark.parametrize(
    ("count", "assigned", "pods"), [(0, 0, 0), (0, None, 0), (4, 0, 0), (0, 4, 0), (2, 4, 2), (4, 2, 2), (4, None, 4)]
)
def test_pod_set_without_pods_needs_no_nodes(count: int, assigned: int | None, pods: int) -> None:
    """An elastic job may begin with no workers, and shrink while its check is pending."""
    harness = reserving()
    (pod_set,) = harness.workload.spec.pod_sets
    spec = replace(harness.workload.spec, pod_sets=(replace(pod_set, count=count),))
    admission = harness.workload.status.admission
    assert admission is not None
    (assignment,) = admission.pod_set_assignments
    admission = replace(admission, pod_set_assignments=(replace(assignment, count=assigned),))
    workload = replace(harness.workload, spec=spec, status=replace(harness.workload.status, admission=admission))
    assert provisioning.granted(workload, workload.spec.pod_sets[0]) == pods
    plan = provisioning.plan(workload, {"c1": CONFIG}, (), harness.now)
    assert bool(plan.attempts) == (pods > 0)
    messages = [check.message for each in plan.changes if isinstance(each, SetChecks) for check in each.checks]
    assert messages == ([] if pods else ["the provisioning request is not needed"])


def test_created_request_without_conditions_clears_the_message_of_the_check() -> None:
    harness = reserving()
    harness.write(provisioning.create_failed(harness.workload, "c1", "the server refused it", harness.now))
    harness.write(due(harness, request(1)).changes)
    assert harness.checks == {"c1": "Pending"}
    assert harness.workload.status.admission_checks[0].message == ""
