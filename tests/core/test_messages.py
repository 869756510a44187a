"""Messages of decisions: equal to those that Kueue writes, because tools parse them."""

from __future__ import annotations

import pytest

from pykueue.api.conditions import PreemptedReason, QuotaReservedReason
from pykueue.core import messages
from pykueue.core.decision import (
    Admit,
    Cause,
    Evict,
    FlavorAttempt,
    FlavorFinding,
    PodSetExplanation,
    Preempt,
    PreemptionMode,
    Requeue,
    SecondPassFailed,
    TargetWorkload,
    Wait,
)

SHORT = FlavorFinding(Cause.SHORT, "default", "cpu", requested=2000, available=1000)
BEYOND = FlavorFinding(Cause.BEYOND_CAPACITY, "default", "cpu", requested=5000, available=4000, earlier=2000)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (SHORT, "insufficient unused quota for cpu in flavor default, 1 more needed"),
        # What is owed is no part of what is needed.
        (
            FlavorFinding(Cause.SHORT, "default", "cpu", requested=2000, available=-1000),
            "insufficient unused quota for cpu in flavor default, 2 more needed",
        ),
        (
            BEYOND,
            (
                "insufficient quota for cpu in flavor default, previously considered podsets requests (2) + "
                "current podset request (3) > maximum capacity (4)"
            ),
        ),
        (FlavorFinding(Cause.UNDECLARED, resource="gpu"), "resource gpu unavailable in ClusterQueue"),
        (
            FlavorFinding(Cause.OTHER_SLICE_FLAVOR, "spot", "cpu", detail="default"),
            "could not assign spot flavor since the original workload is assigned: default",
        ),
        (
            FlavorFinding(Cause.NOT_NOMINATED, "spot", "cpu"),
            "skipping flavor spot as it is not found in the nomination mapping for resource cpu",
        ),
        (
            FlavorFinding(Cause.OTHER_VARIANT, "spot"),
            "skipping flavor spot due to WorkloadAllowedResourceFlavorAnnotation annotation",
        ),
    ],
)
def test_reason_of_a_flavor_equals_kueue(finding: FlavorFinding, text: str) -> None:
    assert messages.of_finding(finding) == text


def wait(*pod_sets: PodSetExplanation, message: str = "") -> Wait:
    return Wait(
        workload="ns/w",
        cluster_queue="cq",
        explanation=pod_sets,
        reason=QuotaReservedReason.WAITING_FOR_QUOTA,
        requeue=Requeue.NO_FIT,
        message=message,
    )


def test_message_lists_pod_sets_with_sorted_reasons() -> None:
    taint = FlavorFinding(Cause.NOT_ELIGIBLE, "a", detail="flavor a doesn't match node affinity")
    decision = wait(
        PodSetExplanation("driver", findings=(SHORT, taint)),
        PodSetExplanation("fits"),
        PodSetExplanation("w", (), (SHORT,)),
    )
    assert messages.message(decision) == (
        "couldn't assign flavors to pod set driver: flavor a doesn't match node affinity, "
        "insufficient unused quota for cpu in flavor default, 1 more needed; "
        "couldn't assign flavors to pod set w: insufficient unused quota for cpu in flavor default, 1 more needed"
    )


def test_pod_set_that_cannot_be_evaluated_is_stated_alone() -> None:
    broken = FlavorFinding(Cause.BROKEN, detail="no TAS flavor assigned")
    decision = wait(PodSetExplanation("a", findings=(SHORT,)), PodSetExplanation("b", findings=(broken,)))
    assert messages.message(decision) == "failed to assign flavors to pod set b: no TAS flavor assigned"


def test_message_of_a_skip_replaces_that_of_the_flavors() -> None:
    decision = wait(PodSetExplanation("main", findings=(SHORT,)), message="Workload no longer fits")
    assert messages.message(decision) == "Workload no longer fits"
    assert list(messages.details(decision)) == ["cpu in flavor default: requested 2, unused 1"]


@pytest.mark.parametrize("is_second_pass", [False, True])
def test_message_of_a_preemption_counts_its_targets(is_second_pass: bool) -> None:
    victims = tuple(TargetWorkload(name, "other", PreemptedReason.IN_CLUSTER_QUEUE) for name in ("ns/a", "ns/b"))
    explanation = (PodSetExplanation("main", findings=(SHORT,)),)
    decision = (
        SecondPassFailed(workload="ns/w", cluster_queue="cq", explanation=explanation, targets=victims)
        if is_second_pass
        else Preempt(
            workload="ns/w",
            cluster_queue="cq",
            explanation=explanation,
            reason=QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS,
            targets=victims,
        )
    )
    assert messages.message(decision) == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed. "
        "Pending the preemption of 2 workload(s)"
    )


def test_message_of_an_eviction_names_the_nodes() -> None:
    decision = Evict(workload="ns/w", cluster_queue="cq", nodes=("n1", "n2"))
    text = "Workload was evicted as there was no replacement for unhealthy node(s): n1,n2"
    assert messages.message(decision) == text


def test_considered_flavors_have_mode_borrowing_and_reasons() -> None:
    attempts = (
        FlavorAttempt("spot", PreemptionMode.NO_CANDIDATES, 1, (SHORT,)),
        FlavorAttempt(
            "tainted", PreemptionMode.NO_FIT, 0, (FlavorFinding(Cause.NOT_ELIGIBLE, "tainted", detail="why"),)
        ),
        FlavorAttempt("used", PreemptionMode.FIT, 0),
    )
    decision = Admit(
        workload="ns/w",
        cluster_queue="cq",
        pod_sets=(),
        is_admitted=True,
        explanation=(
            PodSetExplanation("main", attempts),
            PodSetExplanation("fits", (FlavorAttempt("x", PreemptionMode.FIT),)),
        ),
    )
    assert messages.considered(decision) == (
        "main: spot(preemptionMode=NoCandidates;borrow=1;insufficient unused quota for cpu in flavor default, "
        "1 more needed), tainted(NoFit;why)"
    )
