"""One Workload in a test of lifecycle rules: what is written to it, what the rules change, which Events are emitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kubemachinery import codec, conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.lifecycle import eviction, reservation, workload_changes
from pykueue.lifecycle.facts import CheckFacts, ClusterQueueFacts, LifecycleOptions, LocalQueueFacts, WorkloadFacts
from pykueue.lifecycle.step import LifecycleStep, step
from pykueue.lifecycle.workload_changes import Changes, EmitEvent

START: Nanoseconds = meta.parse_time("2026-03-01T12:00:00Z")

ONE_CHECK = (CheckFacts("c1", retry_delay_minutes=0),)
TWO_CHECKS = (*ONE_CHECK, CheckFacts("c2", retry_delay_minutes=0))


def facts_of(*checks: CheckFacts, **queue: Any) -> WorkloadFacts:
    """Queues that work, and reservations that hold."""
    return WorkloadFacts(
        local_queue=LocalQueueFacts(),
        cluster_queue=ClusterQueueFacts("cq", flavors=frozenset({"default"}), checks=checks, **queue),
        reservation_holds=True,
    )


def assigned(flavor: str = "default") -> kueue.Admission:
    pods = kueue.PodSetAssignment(name="main", flavors={"cpu": flavor}, resource_usage={"cpu": "1"}, count=1)
    return kueue.Admission(cluster_queue="cq", pod_set_assignments=(pods,))


def placed(node: str) -> kueue.Admission:
    """An admission with one pod on a node."""
    values = [{"universal": node}]
    slices = [{"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 1}}]
    placement = codec.from_tree({"levels": ["h"], "slices": slices}, kueue.TopologyAssignment)
    pods = kueue.PodSetAssignment(name="main", topology_assignment=placement)
    return replace(assigned(), pod_set_assignments=(pods,))


def workload(**spec: Any) -> Workload:
    job = meta.OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u1", controller=True)
    return Workload(
        metadata=meta.ObjectMeta(
            name="train", namespace="team", creation_timestamp=meta.format_time(START), owner_references=(job,)
        ),
        spec=kueue.WorkloadSpec(pod_sets=(kueue.PodSet(name="main", count=4),), queue_name="lq", **spec),
    )


@dataclass
class WorkloadHarness:
    """One Workload over time. Every method is an action of a user, a controller or the scheduler."""

    workload: Workload = field(default_factory=workload)
    facts: WorkloadFacts = field(default_factory=facts_of)
    options: LifecycleOptions = field(default_factory=LifecycleOptions)
    now: Nanoseconds = START
    notifications: list[workload_changes.Notification] = field(default_factory=list)

    # Writes.

    def write(self, changes: Changes) -> WorkloadHarness:
        self.workload = workload_changes.apply_to(self.workload, changes, self.now)
        self.notifications += workload_changes.notifications(changes)
        return self

    def after(self, seconds: float) -> WorkloadHarness:
        self.now += int(seconds * SECOND)
        return self

    def reserved(self, flavor: str = "default", *required: str) -> WorkloadHarness:
        names = required or tuple(check.name for check in self.queue.checks)
        return self.write(reservation.reserve(self.workload, assigned(flavor), names, self.options, self.now))

    def check_state(self, check: str, state: str, **more: Any) -> WorkloadHarness:
        """The controller of a check writes a state."""
        answered = tuple(
            replace(one, state=state, last_transition_time=meta.format_time(self.now), **more)
            if one.name == check
            else one
            for one in self.workload.status.admission_checks
        )
        return self.write((workload_changes.SetChecks(answered),))

    def with_condition(
        self, type: WorkloadCondition, status: ConditionStatus, reason: str, message: str = "because"
    ) -> WorkloadHarness:
        """A client writes a condition."""
        return self.write((workload_changes.SetCondition(type, status, reason, message),))

    def activate(self, active: bool) -> WorkloadHarness:
        self.workload = replace(self.workload, spec=replace(self.workload.spec, active=active))
        return self

    def annotated(self, **marks: str) -> WorkloadHarness:
        metadata = replace(self.workload.metadata, annotations=marks)
        self.workload = replace(self.workload, metadata=metadata)
        return self

    def released(self, *, was_started: bool = True) -> WorkloadHarness:
        """Its job is not active any more."""
        return self.write(eviction.release(self.workload, self.options, self.now, was_started=was_started))

    # Rules.

    def step_once(self, **jitter: float) -> LifecycleStep:
        return step(self.workload, self.facts, self.options, self.now, **jitter)

    def settle(self) -> WorkloadHarness:
        """Evaluate and write until nothing is due."""
        for _ in range(6):
            found = self.step_once()
            if not found.changes or workload_changes.DeleteWorkload() in found.changes:
                return self
            self.write(found.changes)
        raise AssertionError("the rules do not settle")

    # State.

    @property
    def queue(self) -> ClusterQueueFacts:
        assert self.facts.cluster_queue is not None
        return self.facts.cluster_queue

    @property
    def conditions(self) -> dict[str, str]:
        return {one.type: f"{one.status}/{one.reason}" for one in self.workload.status.conditions}

    @property
    def checks(self) -> dict[str, str]:
        return {one.name: one.state for one in self.workload.status.admission_checks}

    @property
    def mirror(self) -> dict[str, str]:
        return {one.type: f"{one.status}/{one.reason}" for one in self.workload.status.admission_checks_conditions}

    @property
    def events(self) -> list[str]:
        return [f"{one.type} {one.reason}" for one in self.notifications if isinstance(one, EmitEvent)]

    @property
    def evictions(self) -> dict[str, int]:
        stats = self.workload.status.scheduling_stats
        return {f"{one.reason}/{one.underlying_cause}": one.count for one in (stats.evictions if stats else ())}

    @property
    def holds(self) -> bool:
        return self.workload.status.admission is not None

    def message(self, type: WorkloadCondition) -> str:
        found = conditions.find(self.workload.status.conditions, type)
        return found.message if found else ""
