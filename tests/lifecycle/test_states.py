"""Predicates of one Workload, and its legal transitions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from lifecycle.workload_harness import START, WorkloadHarness, assigned, workload
from pykueue.api import kueue, labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.states import IllegalMove, State


def test_the_state_is_read_from_conditions_and_never_from_the_admission() -> None:
    odd = replace(workload(), status=kueue.WorkloadStatus(admission=assigned()))
    assert states.state(odd) is State.PENDING


@pytest.mark.parametrize(
    ("condition_types", "state"),
    [
        ([], State.PENDING),
        ([WorkloadCondition.EVICTED], State.PENDING),
        ([WorkloadCondition.QUOTA_RESERVED], State.RESERVED),
        ([WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED], State.ADMITTED),
        ([WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED, WorkloadCondition.EVICTED], State.EVICTED),
        ([WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.FINISHED], State.FINISHED),
    ],
)
def test_the_first_state_that_holds_counts(condition_types: list[WorkloadCondition], state: State) -> None:
    harness = WorkloadHarness()
    for condition in condition_types:
        harness.with_condition(condition, ConditionStatus.TRUE, "Because")
    assert states.state(harness.workload) is state


def test_illegal_transition_raises_with_the_conditions_before_and_after() -> None:
    before = WorkloadHarness().with_condition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, "Succeeded").workload
    after = workload_changes.apply_to(before, (workload_changes.DropCondition(WorkloadCondition.FINISHED),), START)
    with pytest.raises(
        IllegalMove, match=r"team/train .* finished to pending; conditions before: Finished=True/Succeeded since"
    ):
        states.check_move(before, after)


def test_an_evicted_workload_gives_back_its_quota_before_it_gets_any_again() -> None:
    assert states.MOVES[State.EVICTED] == {State.EVICTED, State.PENDING, State.FINISHED}


def test_no_checks_means_nothing_to_wait_for() -> None:
    assert states.are_checks_ready(workload())


@pytest.mark.parametrize(
    ("state", "ready"), [("Ready", True), ("Pending", False), ("Retry", False), ("PreemptionRequired", False)]
)
def test_every_listed_check_has_to_be_ready(state: str, ready: bool) -> None:
    checks = tuple(kueue.AdmissionCheckState(name=name, state=s) for name, s in (("a", "Ready"), ("b", state)))
    assert states.are_checks_ready(replace(workload(), status=kueue.WorkloadStatus(admission_checks=checks))) is ready


def test_waiting_is_counted_from_the_last_requeue_also_from_a_refusal() -> None:
    harness = (
        WorkloadHarness()
        .after(60)
        .with_condition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, "PodsReadyTimeout")
    )
    assert states.queued_since(workload()) == START
    assert states.queued_since(harness.workload) == START + 60 * SECOND


def test_only_a_lone_pod_is_a_single_pod() -> None:
    pod = meta.OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")
    alone = replace(workload(), metadata=meta.ObjectMeta(owner_references=(pod,)))
    group = replace(alone, metadata=replace(alone.metadata, annotations={labels.IS_GROUP_WORKLOAD: "true"}))
    assert states.is_owned_by_single_pod(alone)
    assert not states.is_owned_by_single_pod(group)
    assert not states.is_owned_by_single_pod(workload())
