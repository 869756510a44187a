"""Concurrent admission: the rule `family`, and what `variants.decide` finds due for a parent and its variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from msgspec.structs import replace as with_facts

from kubemachinery import conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, SECOND
from lifecycle.workload_harness import START, WorkloadHarness, assigned, facts_of, workload
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.lifecycle import eviction, reservation, states, variants, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.variants import ChangeMember, CreateVariant, FamilyPolicy, FamilyStep
from pykueue.lifecycle.workload_changes import (
    DeleteWorkload,
    EmitEvent,
    MarkParent,
    SetActive,
    SetInactive,
)

OPTIONS = LifecycleOptions(concurrent_admission=True)
ABC = FamilyPolicy(("a", "b", "c"))
GATE = labels.CONCURRENT_ADMISSION_PREEMPTION_GATE


# --- family -----------------------------------------------------------------------------------------------------------


def test_a_workload_in_a_queue_with_a_policy_is_marked_as_a_parent() -> None:
    harness = WorkloadHarness(facts=facts_of(has_variants=True), options=OPTIONS)
    assert harness.step_once().changes == (MarkParent(),)
    harness.write((MarkParent(),))
    assert variants.is_parent(harness.workload)
    harness.facts = with_facts(harness.facts, is_parent=True)
    assert harness.settle().conditions["QuotaReserved"] == "False/PendingEvaluation"
    assert harness.step_once().changes == ()


def test_a_variant_is_not_marked_nor_is_one_that_holds_quota() -> None:
    facts = facts_of(has_variants=True)
    assert WorkloadHarness(facts=with_facts(facts, is_variant=True), options=OPTIONS).step_once().changes == ()
    assert MarkParent() not in WorkloadHarness(facts=facts, options=OPTIONS).reserved().step_once().changes


def test_without_the_gate_or_the_policy_nothing_is_marked() -> None:
    assert WorkloadHarness(facts=facts_of(has_variants=True)).step_once().changes == ()
    assert WorkloadHarness(facts=facts_of(), options=OPTIONS).step_once().changes == ()


# --- variants ---------------------------------------------------------------------------------------------------------


def parent(**spec: Any) -> Workload:
    made = workload(**spec)
    metadata = replace(
        made.metadata, name="job-train-12345", uid="p", labels={labels.CONCURRENT_ADMISSION_PARENT: "true", "x": "y"}
    )
    return replace(made, metadata=metadata)


def family(of: Workload | None = None, policy: FamilyPolicy = ABC) -> list[Workload]:
    """The variants that are created for a parent, by preference."""
    found = variants.decide(of or parent(), (), policy, OPTIONS, START)
    return [action.variant for action in found.actions if isinstance(action, CreateVariant)]


def admitted(variant: Workload) -> Workload:
    given = reservation.reserve(variant, assigned(variants.flavor_of(variant)), (), OPTIONS, START)
    return workload_changes.apply_to(variant, given, START)


def running(flavor: str) -> Workload:
    """A parent that was admitted with the variant of this flavor."""
    given = reservation.reserve(parent(), assigned(flavor), (), OPTIONS, START)
    return workload_changes.apply_to(parent(), given, START)


def evicted(variant: Workload, reason: EvictedReason = EvictedReason.PREEMPTED) -> Workload:
    return workload_changes.apply_to(variant, eviction.evict(variant, reason, "because", START), START)


def inactive(variant: Workload) -> Workload:
    return replace(variant, spec=replace(variant.spec, active=False))


def blocked(variant: Workload) -> Workload:
    written = (
        workload_changes.SetCondition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, "AdmissionGated", ""),
        workload_changes.SetCondition(
            WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.TRUE, "PreemptionGated", ""
        ),
    )
    return workload_changes.apply_to(variant, written, START)


def due(of: Workload, members: Sequence[Workload], policy: FamilyPolicy = ABC, seconds: int = 0) -> FamilyStep:
    return variants.decide(of, members, policy, OPTIONS, START + seconds * SECOND)


def turned(step: FamilyStep) -> dict[str, type]:
    """The variants that are activated or deactivated, by flavor."""
    return {
        variants.flavor_of(action.workload): type(one)
        for action in step.actions
        if isinstance(action, ChangeMember)
        for one in action.changes
        if isinstance(one, SetActive | SetInactive)
    }


def after(step: FamilyStep, member: Workload) -> Workload:
    """A member as the step leaves it."""
    for action in step.actions:
        if isinstance(action, ChangeMember) and action.workload is member:
            return workload_changes.apply_to(member, action.changes, START)
    return member


def events(step: FamilyStep) -> list[str]:
    on_parent = [action.event for action in step.actions if action.event is not None]
    own = [one for action in step.actions if isinstance(action, ChangeMember) for one in action.changes]
    return [one.reason for one in (*on_parent, *own) if isinstance(one, EmitEvent)]


def condition(member: Workload, type: WorkloadCondition) -> str:
    found = conditions.find(member.status.conditions, type)
    return f"{found.status}/{found.reason}" if found is not None else ""


def test_each_flavor_gets_a_variant_that_the_parent_owns() -> None:
    step = due(parent(priority=7, preemption_gates=(kueue.PreemptionGate(name="g"),)), ())
    made = [action.variant for action in step.actions if isinstance(action, CreateVariant)]
    assert [variants.flavor_of(each) for each in made] == ["a", "b", "c"]
    assert events(step) == ["CreatedVariant"] * 3
    first = made[0]
    assert first.metadata.name.startswith("job-train-variant-a-")
    assert first.metadata.labels == {"x": "y"}
    assert [(one.kind, one.uid, one.controller) for one in first.metadata.owner_references] == [("Workload", "p", True)]
    assert first.spec.priority == 7
    assert [gate.name for gate in first.spec.preemption_gates] == ["g", GATE]
    assert due(parent(), made).actions == ()


def test_no_variant_is_created_while_the_admission_of_the_parent_is_gated() -> None:
    gated = parent()
    gated = replace(gated, metadata=replace(gated.metadata, annotations={labels.ADMISSION_GATED_BY: "example.com/g"}))
    assert due(gated, ()).actions == ()


def test_a_variant_whose_flavor_has_left_the_cluster_queue_is_deleted() -> None:
    step = due(parent(), family(), FamilyPolicy(("a", "c")))
    assert [
        variants.flavor_of(a.workload)
        for a in step.actions
        if isinstance(a, ChangeMember) and DeleteWorkload() in a.changes
    ] == ["b"]
    assert "DeletedVariant" in events(step)


def deleted(step: FamilyStep) -> list[str]:
    """The flavors of the variants that are deleted."""
    return [
        variants.flavor_of(action.workload)
        for action in step.actions
        if isinstance(action, ChangeMember) and DeleteWorkload() in action.changes
    ]


def test_the_variant_that_runs_is_deleted_for_its_flavor_only_when_its_job_has_stopped() -> None:
    """Its quota is in use until then."""
    a, b, c = family()
    of, members, policy = running("b"), (a, admitted(b), c), FamilyPolicy(("a", "c"))
    step = due(of, members, policy)
    assert deleted(step) == []
    stopping = after(step, of)
    assert condition(stopping, WorkloadCondition.EVICTED) == "True/ConcurrentAdmission"
    assert due(stopping, members, policy).actions == ()
    stopped = workload_changes.apply_to(stopping, eviction.release(stopping, OPTIONS, START), START)
    assert deleted(due(stopped, members, policy)) == ["b"]


def test_without_a_job_that_could_use_its_quota_it_is_deleted_at_once() -> None:
    a, b, c = family()
    of, policy = running("b"), FamilyPolicy(("a", "c"))
    of = replace(of, metadata=replace(of.metadata, owner_references=()))
    assert deleted(due(of, (a, admitted(b), c), policy)) == ["b"]
    evicting = after(due(of, (a, c), policy), of)
    assert states.is_evicted(evicting)


def test_variants_in_a_local_queue_that_the_parent_has_left_are_deleted() -> None:
    moved = parent()
    moved = replace(moved, spec=replace(moved.spec, queue_name="other"))
    assert deleted(due(moved, family())) == ["a", "b", "c"]
    a, b, c = family()
    step = due(moved, (a, admitted(b), c))
    assert deleted(step) == ["a", "b", "c"], "also one with quota, which no pod uses"
    assert after(step, moved) == moved
    assert {variant.spec.queue_name for variant in family(moved)} == {"other"}


def test_variants_with_other_pod_counts_than_their_parent_are_deleted() -> None:
    """The job of a parent that waits was scaled: admitted with the former count, it would run pods without quota."""
    a, b, c = family()
    scaled = parent()
    pod_sets = tuple(replace(each, count=each.count + 1) for each in scaled.spec.pod_sets)
    scaled = replace(scaled, spec=replace(scaled.spec, pod_sets=pod_sets))
    step = due(scaled, (a, admitted(b), c))
    assert deleted(step) == ["a", "b", "c"]
    assert after(step, scaled) == scaled
    assert deleted(due(scaled, family(scaled))) == []
    runs = running("b")
    runs = replace(runs, spec=scaled.spec)
    assert "b" not in deleted(due(runs, (a, admitted(b), c)))


def test_parent_without_policy_is_unmarked_once_its_variants_are_deleted() -> None:
    step = variants.decide(parent(), family(), None, OPTIONS, START)
    assert [DeleteWorkload() in one.changes for one in step.actions if isinstance(one, ChangeMember)] == [True] * 3
    alone = parent()
    step = variants.decide(alone, (), None, OPTIONS, START)
    assert not variants.is_parent(after(step, alone))
    assert variants.decide(admitted(parent()), family(), None, OPTIONS, START).actions == ()


def test_an_admitted_variant_admits_its_parent_and_worse_variants_are_deactivated() -> None:
    of = parent()
    a, b, c = family(of)
    step = due(of, (a, admitted(b), c))
    assert turned(step) == {"c": SetInactive}
    became = after(step, of)
    assert condition(became, WorkloadCondition.ADMITTED) == "True/Admitted"
    assert became.status.admission is not None
    assert became.status.admission.pod_set_assignments[0].flavors == {"cpu": "b"}
    [adopted] = [
        action.changes for action in step.actions if isinstance(action, ChangeMember) and action.workload is of
    ]
    assert workload_changes.notifications(adopted) == (), "the reservation was counted for the variant"


def test_retain_first_admission_deactivates_every_other_variant() -> None:
    a, b, c = family()
    assert turned(due(parent(), (a, admitted(b), c), FamilyPolicy(ABC.flavors, retains_first=True))) == {
        "a": SetInactive,
        "c": SetInactive,
    }
    held = due(parent(), (inactive(a), admitted(b), inactive(c)), FamilyPolicy(ABC.flavors, retains_first=True))
    assert turned(held) == {}


def test_with_a_last_acceptable_flavor_only_variants_up_to_it_stay_active() -> None:
    policy = FamilyPolicy(ABC.flavors, last_acceptable="a")
    a, b, c = family()
    assert turned(due(parent(), (a, b, admitted(c)), policy)) == {"b": SetInactive}
    assert turned(due(parent(), (inactive(a), inactive(b), admitted(c)), policy)) == {"a": SetActive}


def test_better_variants_are_activated_while_a_worse_one_runs() -> None:
    a, b, c = family()
    assert turned(due(parent(), (inactive(a), admitted(b), inactive(c)))) == {"a": SetActive}


def test_without_an_admitted_variant_all_are_activated() -> None:
    a, b, c = family()
    assert turned(due(parent(), (inactive(a), b, inactive(c)))) == {"a": SetActive, "c": SetActive}


def test_a_variant_that_was_deactivated_for_its_own_cause_stays_inactive() -> None:
    a, b, c = family()
    rejected = inactive(evicted(a, EvictedReason.DEACTIVATED_DUE_TO_ADMISSION_CHECK))
    assert turned(due(parent(), (rejected, b, inactive(c)))) == {"c": SetActive}


def test_a_variant_is_not_activated_between_its_deactivation_and_its_eviction() -> None:
    """It would be deactivated again for the same cause, and activated, without end."""
    a, b, c = family()
    target = workload_changes.SetCondition(
        WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, "AdmissionCheck", ""
    )
    off = inactive(workload_changes.apply_to(a, (target,), START))
    assert turned(due(parent(), (off, b, inactive(c)))) == {"c": SetActive}


def rejected(variant: Workload) -> Workload:
    return inactive(evicted(variant, EvictedReason.DEACTIVATED_DUE_TO_ADMISSION_CHECK))


def test_a_parent_is_deactivated_when_every_variant_was_rejected() -> None:
    of, members = parent(), [rejected(each) for each in family()]
    step = due(of, members)
    assert condition(after(step, of), WorkloadCondition.DEACTIVATION_TARGET) == "True/AdmissionCheck"
    assert due(after(step, of), members).actions == ()
    for number in range(3):
        some = [each if at == number else rejected(each) for at, each in enumerate(family())]
        assert due(of, some).actions == ()
    assert not any(isinstance(action, ChangeMember) for action in due(of, members[:2]).actions)


def test_rejected_variants_of_an_inactive_parent_are_deleted_and_created_on_activation() -> None:
    off, (a, b, c) = parent(active=False), family()
    step = due(off, (rejected(a), inactive(b), rejected(c)))
    deleted = [
        variants.flavor_of(action.workload)
        for action in step.actions
        if isinstance(action, ChangeMember) and DeleteWorkload() in action.changes
    ]
    assert deleted == ["a", "c"]
    assert due(off, (inactive(b),)).actions == ()
    again = due(parent(), (inactive(b),)).actions
    assert [variants.flavor_of(action.variant) for action in again if isinstance(action, CreateVariant)] == ["a", "c"]


def test_an_inactive_parent_deactivates_its_variants() -> None:
    assert turned(due(parent(active=False), family())) == dict.fromkeys("abc", SetInactive)


def test_the_parent_of_an_evicted_variant_is_evicted_and_the_quota_waits_for_its_job() -> None:
    a, b, c = family()
    lost, of = evicted(admitted(b)), running("b")
    step = due(of, (a, lost, c))
    assert [action.workload for action in step.actions if isinstance(action, ChangeMember)] == [of]
    stopping = after(step, of)
    assert condition(stopping, WorkloadCondition.EVICTED) == "True/VariantEvicted"
    assert due(stopping, (a, lost, c)).actions == ()  # its job still runs on the quota
    stopped = workload_changes.apply_to(stopping, eviction.release(stopping, OPTIONS, START), START)
    freed = after(due(stopped, (a, lost, c)), lost)
    assert not states.is_reserved(freed)
    assert condition(freed, WorkloadCondition.REQUEUED) == "True/Preempted"


def test_an_evicted_variant_that_never_ran_leaves_the_parent_alone() -> None:
    """A sibling with quota that waits for its checks is deactivated when another one is admitted."""
    a, b, c = family()
    checked = reservation.reserve(c, assigned("c"), ("check",), OPTIONS, START)
    waiting = inactive(evicted(workload_changes.apply_to(c, checked, START), EvictedReason.DEACTIVATED))
    of = running("b")
    step = due(of, (a, admitted(b), waiting))
    assert not states.is_evicted(after(step, of))
    assert not states.is_reserved(after(step, waiting))


def test_an_admitted_variant_that_does_not_run_leaves_the_parent_alone() -> None:
    """Checks that pass at the same time admit two variants."""
    a, b, c = family()
    of, second = running("b"), inactive(evicted(admitted(c), EvictedReason.DEACTIVATED))
    step = due(of, (a, admitted(b), second))
    assert not states.is_evicted(after(step, of))
    assert not states.is_reserved(after(step, second))


def test_the_variant_that_runs_is_evicted_for_a_better_one_that_its_checks_admit() -> None:
    """Deactivated, it would give its quota back while its job is stopping."""
    a, b, c = family()
    of, runs = running("b"), admitted(b)
    step = due(of, (admitted(a), runs, inactive(c)))
    assert condition(after(step, runs), WorkloadCondition.EVICTED) == "True/FlavorMigration"
    assert turned(step) == {}
    assert condition(after(due(of, (admitted(a), after(step, runs), inactive(c))), of), WorkloadCondition.EVICTED) == (
        "True/VariantEvicted"
    )


def test_with_retain_first_admission_the_variant_that_runs_stays() -> None:
    a, b, c = family()
    policy = FamilyPolicy(ABC.flavors, retains_first=True)
    step = due(running("b"), (admitted(a), admitted(b), inactive(c)), policy)
    assert turned(step) == {"a": SetInactive}
    assert len(step.actions) == 1


def test_a_parent_without_a_variant_that_runs_is_evicted() -> None:
    of = admitted(parent())
    assert condition(after(due(of, family()), of), WorkloadCondition.EVICTED) == "True/ConcurrentAdmission"


def test_a_parent_that_backs_off_is_not_admitted_before_its_time() -> None:
    a, b, c = family()
    later = meta.format_time(START + MINUTE)
    of = parent()
    of = replace(of, status=replace(of.status, requeue_state=kueue.RequeueState(count=1, requeue_at=later)))
    step = due(of, (admitted(a), inactive(b), inactive(c)))
    assert (step.actions, step.wake_at) == ((), START + MINUTE)
    assert due(of, (admitted(a), inactive(b), inactive(c)), seconds=60).actions


def test_the_readiness_of_the_pods_is_copied_to_the_variant_that_runs() -> None:
    a, b, c = family()
    written = workload_changes.SetCondition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, "Started", "all run")
    of = workload_changes.apply_to(admitted(parent()), (written,), START)
    runs = admitted(a)
    step = due(of, (runs, inactive(b), inactive(c)))
    assert condition(after(step, runs), WorkloadCondition.PODS_READY) == "True/Started"
    assert due(of, (after(step, runs), inactive(b), inactive(c))).actions == ()


def test_a_finished_parent_finishes_its_variants() -> None:
    written = workload_changes.SetCondition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, "Succeeded", "done")
    a, b, c = family()
    step = due(workload_changes.apply_to(parent(), (written,), START), (a, b, c))
    assert [condition(after(step, each), WorkloadCondition.FINISHED) for each in (a, b, c)] == ["True/Succeeded"] * 3


def test_the_gate_of_the_best_blocked_variant_is_opened_and_the_next_after_five_minutes() -> None:
    a, b, c = (blocked(each) for each in family())
    step = due(parent(), (a, b, c))
    assert [action.workload for action in step.actions if isinstance(action, ChangeMember)] == [a]
    assert events(step) == ["PreemptionUngatedVariant"]
    opened = after(step, a)
    assert [(gate.name, gate.position) for gate in opened.status.preemption_gates] == [(GATE, "Open")]
    early = due(parent(), (opened, b, c), seconds=299)
    assert (early.actions, early.wake_at) == ((), START + 5 * MINUTE)
    late = due(parent(), (opened, b, c), seconds=300)
    assert [action.workload for action in late.actions if isinstance(action, ChangeMember)] == [b]


def test_no_gate_is_opened_before_a_better_variant_was_evaluated() -> None:
    a, b, c = family()
    assert due(parent(), (a, blocked(b), c)).actions == ()
    waits = workload_changes.SetCondition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, "ExceedsMaxQuota", ""
    )
    tried = workload_changes.apply_to(a, (waits,), START)
    assert [one.workload for one in due(parent(), (tried, blocked(b), c)).actions if isinstance(one, ChangeMember)]
