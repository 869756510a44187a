"""A Workload that is tried on several flavors at once: a parent, and a variant for each flavor (ConcurrentAdmission).

The parent belongs to the job and holds no quota; its variants compete for quota, each on one flavor. `decide` compares
the family with the policy of its ClusterQueue and returns what is due:

    parent finished              every variant is finished
    flavor without variant       a variant is created; one whose flavor has left the ClusterQueue is deleted
    parent moved                 its variants are deleted, and created in the new queue where that has a policy
    running variant evicted      the parent is evicted; once its job has stopped, the variant gives its quota back
    variant admitted             the parent is admitted with the variant's admission; worse variants are deactivated
    no variant admitted          an admitted parent is evicted, and every variant is activated
    every variant rejected       the parent is deactivated; the rejected variants are deleted, and created on activation
    variant blocked              the preemption gate of the most favorable one is opened, one in five minutes

The order of flavors in the resource group of the ClusterQueue is the order of preference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, Nanoseconds
from pykueue.api import kueue, labels, names
from pykueue.api.conditions import DeactivationReason, EvictedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.lifecycle import eviction, reservation, states, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import (
    Changes,
    DeleteWorkload,
    EmitEvent,
    RemoveFinalizer,
    SetActive,
    SetCondition,
    SetInactive,
    SetPreemptionGates,
    UnmarkParent,
)

# How long an open preemption gate keeps the gates of the other variants closed.
_GATE_PAUSE: Final = 5 * MINUTE
_GATE: Final = labels.CONCURRENT_ADMISSION_PREEMPTION_GATE


# --- Parents and variants ---------------------------------------------------------------------------------------------


def is_parent(workload: Workload) -> bool:
    return workload.metadata.labels.get(labels.CONCURRENT_ADMISSION_PARENT) == "true"


def parent_of(workload: Workload) -> meta.OwnerReference | None:
    """The Workload that this one is a variant of."""
    for owner in workload.metadata.owner_references:
        if owner.kind == "Workload" and owner.api_version == kueue.API_VERSION:
            return owner
    return None


def flavor_of(workload: Workload) -> str:
    """The flavor that a variant is tried on; a variant has one."""
    allowed = workload.metadata.annotations.get(labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS, "")
    return next((name for part in allowed.split(",") if (name := part.strip())), "")


def _is_run(parent: Workload, variant: Workload) -> bool:
    """Whether the parent was admitted with the flavor of a variant that holds quota: the pods of its job use it."""
    given = parent.status.admission
    if given is None or not (states.is_reserved(parent) and states.is_reserved(variant)):
        return False
    return any(flavor_of(variant) in assigned.flavors.values() for assigned in given.pod_set_assignments)


def _is_used(parent: Workload, variant: Workload) -> bool:
    """Whether pods may use the quota of a variant: the parent runs with it, and has a job."""
    return _is_run(parent, variant) and bool(parent.metadata.owner_references)


def _counts(workload: Workload) -> tuple[tuple[str, int], ...]:
    """How many pods of each pod set a Workload requests."""
    return tuple((pod_set.name, pod_set.count) for pod_set in workload.spec.pod_sets)


# --- The policy -------------------------------------------------------------------------------------------------------


class FamilyPolicy(msgspec.Struct, frozen=True):
    """The concurrentAdmissionPolicy of a ClusterQueue."""

    flavors: tuple[str, ...]  # by preference
    retains_first: bool = False
    last_acceptable: str | None = None

    @classmethod
    def of(cls, cluster_queue: kueue.ClusterQueue) -> FamilyPolicy | None:
        """None where the ClusterQueue has no policy."""
        policy, groups = cluster_queue.spec.concurrent_admission_policy, cluster_queue.spec.resource_groups
        if policy is None:
            return None
        constraints = policy.migration.constraints
        return cls(
            flavors=tuple(flavor.name for flavor in groups[0].flavors) if groups else (),
            retains_first=policy.migration.mode == kueue.ConcurrentAdmissionMigrationMode.RETAIN_FIRST_ADMISSION,
            last_acceptable=constraints.last_acceptable_flavor_name if constraints is not None else None,
        )

    def place(self, flavor: str | None) -> int:
        """The rank of a flavor; one that is not listed comes last."""
        return self.flavors.index(flavor) if flavor in self.flavors else len(self.flavors)

    def is_worth_a_move(self, flavor: str) -> bool:
        """Whether a Workload that runs may move to this flavor."""
        return self.last_acceptable is None or self.place(flavor) <= self.place(self.last_acceptable)


# --- What is due ------------------------------------------------------------------------------------------------------


class CreateVariant(msgspec.Struct, frozen=True):
    """A new variant, and the Event about it on the parent."""

    variant: Workload
    event: EmitEvent


class ChangeMember(msgspec.Struct, frozen=True):
    """Changes of one member of the family. `event` is emitted on the parent."""

    workload: Workload
    changes: Changes
    event: EmitEvent | None = None


FamilyAction: TypeAlias = CreateVariant | ChangeMember


class FamilyStep(msgspec.Struct, frozen=True):
    """What to write now, at most one action for each object, and when to evaluate again."""

    actions: tuple[FamilyAction, ...] = ()
    wake_at: Nanoseconds | None = None


def decide(
    parent: Workload,
    variants: Sequence[Workload],
    policy: FamilyPolicy | None,
    options: LifecycleOptions,
    now: Nanoseconds,
    *,
    short_names: bool = False,
) -> FamilyStep:
    """What is due for one family. `policy` is None where its ClusterQueue has none; `short_names` is the gate
    ShortWorkloadNames."""
    if parent.metadata.deletion_timestamp is not None:
        return FamilyStep()  # its variants are deleted with it
    if states.is_finished(parent):
        return FamilyStep(tuple(_finished(parent, variants)))
    if policy is None:
        return FamilyStep(tuple(_dissolved(parent, variants)))
    created = tuple(_created(parent, variants, policy, options, short_names))
    stale = tuple(_stale(parent, variants, policy))
    gone = [action.workload for action in stale]
    family = sorted(
        (each for each in variants if flavor_of(each) in policy.flavors and each not in gone),
        key=lambda each: policy.place(flavor_of(each)),
    )
    lost = next((each for each in variants if flavor_of(each) not in policy.flavors and _is_used(parent, each)), None)
    if lost is not None:
        return FamilyStep((*created, *stale, *_without_flavor(parent, lost)))
    evicted = _evicted(parent, family, options, now)
    if evicted is None:
        return FamilyStep((*created, *stale))  # the job of the evicted variant is still stopping
    if any(action.workload is parent for action in evicted):
        return FamilyStep((*created, *stale, *evicted))
    running = _running(parent, family, policy)
    turned = (
        *_migrated(parent, family, running, now),
        *_turned(parent, family, running, policy),
        *_rejected(parent, family, policy),
    )
    synced, again = _synced(parent, running, options, now)
    opened, pause = _opened(family, now)
    times = [time for time in (again, pause) if time is not None]
    actions = _once((*created, *stale, *evicted, *turned, *synced, *opened))
    return FamilyStep(actions, min(times, default=None))


def _once(actions: Sequence[FamilyAction]) -> tuple[FamilyAction, ...]:
    """The first action for each object: the next is decided on what that one leaves."""
    kept: list[FamilyAction] = []
    seen: set[str] = set()
    for action in actions:
        key = states.key(action.workload if isinstance(action, ChangeMember) else action.variant)
        if key not in seen:
            seen.add(key)
            kept.append(action)
    return tuple(kept)


def _finished(parent: Workload, variants: Sequence[Workload]) -> Iterator[ChangeMember]:
    end = conditions.find(parent.status.conditions, WorkloadCondition.FINISHED)
    assert end is not None, "a finished Workload has the condition"
    for variant in variants:
        if not states.is_finished(variant):
            at = states.since(parent, WorkloadCondition.FINISHED)
            finish = SetCondition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, end.reason, end.message, at)
            yield ChangeMember(variant, (finish,))


# --- Which variants there are -----------------------------------------------------------------------------------------


def _created(
    parent: Workload, variants: Sequence[Workload], policy: FamilyPolicy, options: LifecycleOptions, short_names: bool
) -> Iterator[CreateVariant]:
    """A variant copies the annotations of its parent, so none is created while one of them gates the admission; nor is
    one created for a parent that is not active."""
    if states.is_gated(parent, gates_count=options.admission_gated_by) or not states.is_active(parent):
        return
    known = {flavor_of(each) for each in variants}
    for flavor in policy.flavors:
        if flavor not in known:
            variant = _variant(parent, flavor, short_names)
            yield CreateVariant(
                variant, workload_changes.normal("CreatedVariant", f'Variant Workload "{states.key(variant)}" created')
            )


def _variant(parent: Workload, flavor: str, short_names: bool) -> Workload:
    metadata, spec = parent.metadata, parent.spec
    gates = spec.preemption_gates
    if all(gate.name != _GATE for gate in gates):
        gates = (*gates, kueue.PreemptionGate(name=_GATE))
    owner = meta.OwnerReference(
        api_version=kueue.API_VERSION,
        kind="Workload",
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    kept = {key: value for key, value in metadata.labels.items() if key != labels.CONCURRENT_ADMISSION_PARENT}
    return Workload(
        metadata=meta.ObjectMeta(
            name=names.variant_name(metadata.name, metadata.uid, flavor, short=short_names),
            namespace=metadata.namespace,
            labels=kept,
            annotations={**metadata.annotations, labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS: flavor},
            owner_references=(owner,),
        ),
        spec=replace(spec, preemption_gates=gates),
    )


def _stale(parent: Workload, variants: Sequence[Workload], policy: FamilyPolicy) -> Iterator[ChangeMember]:
    """Variants of flavors that the ClusterQueue has no longer; those in a LocalQueue that the parent has left, or with
    other pod counts, which are created again as the parent is; and rejected ones of an inactive parent, which are
    created again when the parent is activated. One whose quota the pods of the job use stays until the job has
    stopped."""
    for variant in variants:
        flavor = flavor_of(variant)
        if flavor not in policy.flavors:
            if not _is_used(parent, variant):
                yield from _deleted(variant, f'flavor "{flavor}" no longer in ClusterQueue')
        elif variant.spec.queue_name != parent.spec.queue_name and not _is_run(parent, variant):
            yield from _deleted(variant, "its parent moved to another LocalQueue")
        elif _counts(variant) != _counts(parent) and not _is_run(parent, variant):
            yield from _deleted(variant, "the pod counts of its parent changed")
        elif not states.is_active(parent) and _own_cause(variant) and not states.is_reserved(variant):
            yield from _deleted(variant, "its parent is not active")


def _dissolved(parent: Workload, variants: Sequence[Workload]) -> Iterator[ChangeMember]:
    """A parent that moved to a ClusterQueue without policy competes itself, once its variants are gone."""
    if states.is_reserved(parent):
        return
    for variant in variants:
        yield from _deleted(variant, "its ClusterQueue has no concurrentAdmissionPolicy")
    if not variants:
        yield ChangeMember(parent, (UnmarkParent(),))


def _deleted(variant: Workload, why: str) -> Iterator[ChangeMember]:
    if variant.metadata.deletion_timestamp is None:
        note = f'Variant Workload "{states.key(variant)}" deleted; {why}'
        yield ChangeMember(
            variant, (RemoveFinalizer(), DeleteWorkload()), workload_changes.normal("DeletedVariant", note)
        )


# --- Evictions --------------------------------------------------------------------------------------------------------


def _evicted(
    parent: Workload, family: Sequence[Workload], options: LifecycleOptions, now: Nanoseconds
) -> tuple[ChangeMember, ...] | None:
    """What follows from variants that were evicted and still hold quota; None while the job of one is stopping.

    The quota of a variant that runs is held until the parent has lost its own, because its pods run until then. A
    variant that never ran gives its quota back at once.
    """
    released: list[ChangeMember] = []
    for variant in family:
        if not states.is_evicted(variant) or not states.is_reserved(variant):
            continue
        if _is_run(parent, variant):
            return (
                None if states.is_evicted(parent) else (ChangeMember(parent, _evict_parent("VariantEvicted", _LOST)),)
            )
        released.append(ChangeMember(variant, eviction.release(variant, options, now)))
    return tuple(released)


def _without_flavor(parent: Workload, variant: Workload) -> Iterator[ChangeMember]:
    """The eviction of a parent that runs on a flavor that its ClusterQueue has no longer; once its job has stopped, the
    variant is deleted."""
    if not states.is_evicted(parent):
        message = f'Flavor "{flavor_of(variant)}" of the admitted variant is no longer in the ClusterQueue'
        yield ChangeMember(parent, _evict_parent("ConcurrentAdmission", message))


def _running(parent: Workload, family: Sequence[Workload], policy: FamilyPolicy) -> Workload | None:
    """The variant that the parent follows: of several that are admitted, the most favorable one; with
    RetainFirstAdmission the one that runs. Checks that pass later may admit a second one."""
    admitted = [each for each in family if states.is_admitted(each) and not states.is_evicted(each)]
    if policy.retains_first:
        admitted.sort(key=lambda each: not _is_run(parent, each))
    return next(iter(admitted), None)


def _migrated(
    parent: Workload, family: Sequence[Workload], running: Workload | None, now: Nanoseconds
) -> Iterator[ChangeMember]:
    """The eviction of the variant that runs, for a more favorable one that its checks have admitted. Deactivated, it
    would give its quota back while the job is stopping."""
    if running is None or not states.is_active(parent):
        return
    why = "due to migration to more favorable resource flavor"
    message = f"Evicted to accommodate a workload (UID: {running.metadata.uid}) {why}"
    for variant in family:
        if variant is not running and not states.is_evicted(variant) and _is_run(parent, variant):
            yield ChangeMember(variant, eviction.evict(variant, EvictedReason.FLAVOR_MIGRATION, message, now))


_LOST: Final = "Admitted variant was evicted"
_NONE_RUNS: Final = "No variant is running"


def _evict_parent(reason: str, message: str) -> Changes:
    return (SetCondition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, reason, message),)


# --- Activation -------------------------------------------------------------------------------------------------------


def _turned(
    parent: Workload, family: Sequence[Workload], running: Workload | None, policy: FamilyPolicy
) -> Iterator[ChangeMember]:
    """Variants that have to be deactivated, or activated, each with the reason in an Event."""
    for variant in family:
        is_active = states.is_active(variant)
        if is_active and (why := _deactivation_cause(variant, parent, running, policy)):
            note = f"Variant Workload deactivated due to {why}"
            yield ChangeMember(variant, (SetInactive(), workload_changes.normal("DeactivatedVariant", note)))
        elif not is_active and (why := _activation_cause(variant, parent, running, policy)):
            note = f"Variant Workload activated due to {why}"
            yield ChangeMember(variant, (SetActive(), workload_changes.normal("ActivatedVariant", note)))


def _deactivation_cause(variant: Workload, parent: Workload, running: Workload | None, policy: FamilyPolicy) -> str:
    """Why a variant is to be deactivated; empty if it is not."""
    if not states.is_active(parent):
        return f'Parent Workload "{states.key(parent)}" not active'
    if running is None or variant is running:
        return ""
    name = f'"{states.key(running)}"'
    if policy.retains_first:
        return f"RetainFirstAdmission: another Variant {name} is admitted"
    if not policy.is_worth_a_move(flavor_of(variant)):
        return f'being below lastAcceptableFlavor: "{policy.last_acceptable}" and another Variant admitted {name}'
    if policy.place(flavor_of(variant)) > policy.place(flavor_of(running)):
        return f"being lower priority than admitted Variant {name}"
    return ""


def _activation_cause(variant: Workload, parent: Workload, running: Workload | None, policy: FamilyPolicy) -> str:
    """Why a variant is to be activated again; empty if it is not.

    A variant that was deactivated for a cause of its own, such as a check that rejected it, stays inactive: activated
    again, it would be rejected again, without end. Until its eviction is written, the cause is DeactivationTarget.
    """
    is_deactivated = _own_cause(variant) is not None or states.has(variant, WorkloadCondition.DEACTIVATION_TARGET)
    if not states.is_active(parent) or is_deactivated:
        return ""
    if running is None:
        return "no other Variant being admitted"
    flavor = flavor_of(variant)
    is_better = policy.place(flavor) < policy.place(flavor_of(running))
    if policy.retains_first or not is_better or not policy.is_worth_a_move(flavor):
        return ""
    name = f'"{states.key(running)}"'
    if policy.last_acceptable is not None:
        last = policy.last_acceptable
        return f'being at least lastAcceptableFlavor: "{last}" and higher priority than admitted Variant {name}'
    return f"being higher priority than admitted Variant {name}"


def _own_cause(variant: Workload) -> tuple[DeactivationReason, str] | None:
    """Why an inactive variant was deactivated, with the message, where the cause is its own: a check that rejected it,
    a limit that it exceeded."""
    evicted = conditions.find(variant.status.conditions, WorkloadCondition.EVICTED)
    if states.is_active(variant) or evicted is None or evicted.status != ConditionStatus.TRUE:
        return None
    cause = next((cause for cause in DeactivationReason if cause.evicted == evicted.reason), None)
    return (cause, evicted.message) if cause is not None else None


def _rejected(parent: Workload, family: Sequence[Workload], policy: FamilyPolicy) -> Iterator[ChangeMember]:
    """A parent without a variant left to try is deactivated, for the cause of its most favorable variant."""
    causes = [_own_cause(variant) for variant in family]
    if len(family) < len(policy.flavors) or None in causes or not causes or not states.is_active(parent):
        return
    first = causes[0]
    assert first is not None, "every variant has a cause"
    if not states.has(parent, WorkloadCondition.DEACTIVATION_TARGET):
        message = f"every variant was deactivated; flavor {flavor_of(family[0])}: {first[1]}"
        yield ChangeMember(
            parent, (SetCondition(WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, first[0], message),)
        )


# --- The parent -------------------------------------------------------------------------------------------------------


def _synced(
    parent: Workload, running: Workload | None, options: LifecycleOptions, now: Nanoseconds
) -> tuple[tuple[ChangeMember, ...], Nanoseconds | None]:
    """The parent follows the variant that runs, which in turn has the readiness of the parent's pods."""
    if running is None:
        lost = states.is_admitted(parent) and not states.is_evicted(parent)
        return ((ChangeMember(parent, _evict_parent("ConcurrentAdmission", _NONE_RUNS)),) if lost else ()), None
    ready = _pods_ready(parent, running)
    if states.is_admitted(parent) or states.is_reserved(parent) or not states.is_active(parent):
        return ready, None
    again = _backs_off_until(parent)
    if again is not None and again > now:
        return ready, again
    return (*ready, ChangeMember(parent, _adopted(parent, running, options, now))), None


def _backs_off_until(parent: Workload) -> Nanoseconds | None:
    """When a parent whose pods were not ready in time may start again."""
    state = parent.status.requeue_state
    return states.moment(state.requeue_at) if state is not None and state.requeue_at else None


def _adopted(parent: Workload, running: Workload, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """The admission of the variant becomes that of the parent. Notifications of the reservation were
    published for the variant."""
    assert running.status.admission is not None, "an admitted variant has an admission"
    made = workload_changes.on_status(reservation.reserve(parent, running.status.admission, (), options, now))
    message = f"The variant {running.metadata.name} is admitted"
    return (*made, SetCondition(WorkloadCondition.ADMITTED, ConditionStatus.TRUE, "Admitted", message))


def _pods_ready(parent: Workload, running: Workload) -> tuple[ChangeMember, ...]:
    parent_ready = conditions.find(parent.status.conditions, WorkloadCondition.PODS_READY)
    if parent_ready is None:
        return ()
    copied = SetCondition(
        WorkloadCondition.PODS_READY, ConditionStatus(parent_ready.status), parent_ready.reason, parent_ready.message
    )
    shown = conditions.find(running.status.conditions, WorkloadCondition.PODS_READY)
    is_same = shown is not None and (shown.status, shown.reason, shown.message) == (
        parent_ready.status,
        parent_ready.reason,
        parent_ready.message,
    )
    return () if is_same else (ChangeMember(running, (copied,)),)


# --- Preemption gates -------------------------------------------------------------------------------------------------


def _opened(family: Sequence[Workload], now: Nanoseconds) -> tuple[tuple[ChangeMember, ...], Nanoseconds | None]:
    """One variant at a time may preempt: the most favorable that needs to, another one only after a pause."""
    competing = [each for each in family if _competes(each)]
    candidate = _candidate(competing)
    if candidate is None:
        return (), None
    since = [gate.last_transition_time for each in competing for gate in each.status.preemption_gates if _is_open(gate)]
    last = max((states.moment(time) or 0 for time in since), default=None)
    if last is not None and now < last + _GATE_PAUSE:
        return (), last + _GATE_PAUSE
    others = tuple(gate for gate in candidate.status.preemption_gates if gate.name != _GATE)
    opened = kueue.PreemptionGateState(
        name=_GATE, position=kueue.PreemptionGatePosition.OPEN.value, last_transition_time=meta.format_time(now)
    )
    note = f'Opened preemption gate for variant workload "{states.key(candidate)}"'
    changes: Changes = (
        SetPreemptionGates((*others, opened)),
        workload_changes.normal("PreemptionUngatedVariant", note),
    )
    return (ChangeMember(candidate, changes),), now + _GATE_PAUSE


def _candidate(competing: Sequence[Workload]) -> Workload | None:
    """The most favorable variant that is blocked; none while a more favorable one has not been evaluated."""
    for variant in competing:
        if any(_is_open(gate) for gate in variant.status.preemption_gates):
            continue
        if states.has(variant, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES):
            return variant
        if conditions.find(variant.status.conditions, WorkloadCondition.QUOTA_RESERVED) is None:
            return None
    return None


def _competes(variant: Workload) -> bool:
    return (
        states.is_active(variant)
        and not states.is_finished(variant)
        and not states.is_reserved(variant)
        and not states.is_on_hold(variant)
    )


def _is_open(gate: kueue.PreemptionGateState) -> bool:
    return gate.name == _GATE and gate.position == kueue.PreemptionGatePosition.OPEN
