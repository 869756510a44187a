"""Would a Workload get in if this changed? Answered by the brain, on a copy of the objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pykueue import planning
from pykueue.advising.parts import Part, indexed
from pykueue.api import kueue
from pykueue.api.meta import Nanoseconds
from pykueue.planning import Case, Plan, Progress
from pykueue.state import reading


@dataclass(slots=True)
class Trial:
    """A Workload, the world around it, and how often the brain was asked."""

    case: Case
    target: str
    now: Nanoseconds
    runs: int = field(default=0, init=False)
    _shortages: Mapping[tuple[str, str], int] | None = field(default=None, init=False)

    def admits(self, parts: Sequence[Part] = ()) -> bool:
        """Whether the Workload gets its quota with these changes, however many cycles and evictions it takes."""
        made, now = self.begin(parts)
        for _ in range(planning.CYCLES_MAX):
            progress = planning.advance(made, now)
            if self.is_in(made):
                return True
            if progress is not Progress.MOVED:
                return False
        return False

    def run(self, parts: Sequence[Part] = ()) -> Plan:
        """The same to its end."""
        made, now = self.begin(parts)
        for _ in range(planning.CYCLES_MAX):
            if planning.advance(made, now) is not Progress.MOVED:
                break
        return made

    def begin(self, parts: Sequence[Part] = ()) -> tuple[Plan, Nanoseconds]:
        self.runs += 1
        now = max(self.now, *(part.later_than() for part in parts)) if parts else self.now
        return planning.begin(changed(self.case, parts), now, departures=True), now

    def shortages(self) -> Mapping[tuple[str, str], int]:
        """What the brain says is missing as things are, by flavor and resource. Asked once."""
        if self._shortages is None:
            self._shortages = {
                (finding.flavor, finding.resource): finding.short_by
                for decision in self.run().decisions
                if decision.workload == self.target
                for explained in decision.explanation
                for finding in (*explained.findings, *(each for a in explained.attempts for each in a.findings))
                if finding.short_by
            }
        return self._shortages

    def is_in(self, made: Plan) -> bool:
        held = made.world.reservations.get(self.target)
        return held is not None and not held.evicted


def changed(case: Case, parts: Iterable[Part]) -> Case:
    """The case with these changes made."""
    objects = indexed(case.objects)
    for part in parts:
        part.apply(objects)
    return case.with_objects(objects.values())


def narrowed(case: Case, target: str) -> Case:
    """The case without the trees that have nothing to do with the Workload.

    Trees do not touch each other, except where their flavors share nodes: then everything stays.
    """
    world = planning.world_of(case, 0)
    world.settle(0)
    workload = world.pending(target)
    held = world.reservations.get(target)
    name = held.cluster_queue if held is not None else workload.cluster_queue if workload is not None else ""
    if name not in world.structure.cluster_queues or any(isinstance(thing, kueue.Topology) for thing in case.objects):
        return case
    near = {name, *world.structure.companions(name)}
    leads_there = {
        (thing.metadata.namespace, thing.metadata.name)
        for thing in case.objects
        if isinstance(thing, kueue.LocalQueue) and thing.spec.cluster_queue in near
    }

    def belongs(thing: object) -> bool:
        match thing:
            case kueue.ClusterQueue():
                return thing.metadata.name in near
            case kueue.LocalQueue():
                return thing.spec.cluster_queue in near
            case kueue.Workload():
                if reading.holds_quota(thing) and thing.status.admission is not None:
                    return thing.status.admission.cluster_queue in near
                return (thing.metadata.namespace, thing.spec.queue_name) in leads_there
        return True

    return case.with_objects(thing for thing in case.objects if belongs(thing))
