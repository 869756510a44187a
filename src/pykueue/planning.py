"""Offline plans: objects in, a world, one or more scheduling cycles, and the decisions as one plain object out.

No controller runs. Between two cycles of one plan only this is assumed: evicted Workloads have stopped and are pending
again, which is what makes room for those that wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import msgspec

from pykueue import settings
from pykueue.api import codec, conditions, config, defaults, kube, kueue, meta, registry, validation
from pykueue.api.conditions import EvictedReason, WorkloadCondition
from pykueue.api.errors import FieldError
from pykueue.api.meta import Nanoseconds
from pykueue.core import amounts, explain, requests
from pykueue.core.decision import Admit, Cause, Decision, Evict, FlavorAttempt, Preempt, Retry, Victim, Wait
from pykueue.core.policy import Policy
from pykueue.core.topology import Profile
from pykueue.documents import Document
from pykueue.errors import UsageError
from pykueue.lifecycle import states
from pykueue.state import admission, reading
from pykueue.state.world import World

# The kinds that have a part in scheduling. What others refer to comes before what refers to it, so that every Workload
# is read under the rules that hold for it.
KINDS: Final[tuple[type[msgspec.Struct], ...]] = (
    kube.Namespace,
    kube.LimitRange,
    kube.RuntimeClass,
    kueue.Topology,
    kueue.ResourceFlavor,
    kueue.AdmissionCheck,
    kueue.Cohort,
    kueue.ClusterQueue,
    kueue.LocalQueue,
    kube.Node,
    kube.Pod,
    kueue.Workload,
)
_ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Configured:
    """What a Configuration means for decisions."""

    policy: Policy
    accounting: requests.Accounting
    profile: Profile


@dataclass(frozen=True, slots=True)
class Case:
    """The objects of a plan, typed and complete, and the choices they are to be decided under."""

    configured: Configured
    objects: tuple[msgspec.Struct, ...]

    def with_objects(self, objects: Iterable[msgspec.Struct]) -> Case:
        """The same choices over other objects."""
        return Case(self.configured, tuple(sorted(objects, key=lambda thing: _ORDER[type(thing)])))


def read(documents: Iterable[Document]) -> Case:
    """The case that documents describe. Lists are taken apart; kinds without a part in scheduling are passed over."""
    configuration: Configured | None = None
    found: list[msgspec.Struct] = []
    names: dict[tuple[type, str, str], str] = {}
    for source, tree in _flattened(documents):
        if tree.get("kind") == config.KIND and str(tree.get("apiVersion", "")).startswith(config.GROUP):
            if configuration is not None:
                raise UsageError(f"{source}: a second Configuration; a plan has one")
            configuration = _configuration(tree, source)
            continue
        typed = _typed(source, tree)
        if typed is None:
            continue
        metadata: meta.ObjectMeta = typed.metadata  # type: ignore[attr-defined]
        name = (type(typed), metadata.namespace, metadata.name)
        if name in names:
            raise UsageError(f"{source}: {tree['kind']} {metadata.name} is already in {names[name]}")
        names[name] = source
        found.append(typed)
    chosen = configuration or _configuration({"apiVersion": config.V1BETA2, "kind": config.KIND}, "")
    return Case(chosen, ()).with_objects(found)


# Gates that only decisions know: the manager cannot be started with them, a plan can be made with them.
_OF_PLANS: Final = frozenset(
    {
        "ClusterQueueExcludeResourcePrefixes",
        "ConcurrentAdmission",
        "MultiKueueOrchestratedPreemption",
        "PrioritizePreemptorWorkloads",
        "QuotaCheck",
    }
)


def _configuration(tree: dict[str, Any], source: str) -> Configured:
    """What the Configuration means here. A plan says what would be decided, so it is less strict than a start: it knows
    gates that only decisions know, and takes exclusions together with a quota check that makes them pointless."""
    asked = tree.get("featureGates")
    gates: dict[str, Any] = asked if isinstance(asked, dict) else {}
    extra = {name: value for name, value in gates.items() if name in _OF_PLANS and isinstance(value, bool)}
    resources = tree.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    excluded = resources.get("excludeResourcePrefixes") or []
    if isinstance(excluded, list) and all(isinstance(prefix, str) for prefix in excluded):
        resources = {name: value for name, value in resources.items() if name != "excludeResourcePrefixes"}
    else:
        excluded = []
    shown = {**tree, "featureGates": {name: value for name, value in gates.items() if name not in extra}}
    loaded = settings.load({**shown, "resources": resources} if resources else _without(shown, "resources"), source)
    only_declared = gates.get("QuotaCheck") is True and resources.get("quotaCheck") == config.QuotaCheck.ONLY_DECLARED
    if only_declared:  # KEP-7513: then the exclusion lists do not count
        excluded, extra = [], {**extra, "ClusterQueueExcludeResourcePrefixes": False}
    transformations = loaded.configuration.resources.transformations if loaded.configuration.resources else ()
    accounting = requests.accounting(excluded, transformations)
    if loaded.policy.ignore_undeclared:
        # Kept as a queue's own list, because a world that looks at declared resources only drops the global one.
        accounting = requests.accounting((), transformations).for_queue(excluded)
    return Configured(
        policy=replace(
            loaded.policy.with_gates(extra), ignore_undeclared=loaded.policy.ignore_undeclared or only_declared
        ),
        accounting=accounting,
        profile=Profile.of(loaded.gates),
    )


def _without(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key != name}


def _flattened(documents: Iterable[Document]) -> Iterator[Document]:
    for source, tree in documents:
        if not isinstance(tree, dict):
            raise UsageError(f"{source}: is not an object with apiVersion and kind")
        if isinstance(tree.get("items"), list) and str(tree.get("kind", "")).endswith("List"):
            yield from _flattened(Document(f"{source} item {n}", item) for n, item in enumerate(tree["items"], start=1))
        else:
            yield Document(source, tree)


# What a server refuses and a plan can do without: a flavor with a topology and no node labels selects every node.
_UNDERSTOOD: Final = frozenset({("ResourceFlavor", "spec")})


def _typed(source: str, tree: dict[str, Any]) -> msgspec.Struct | None:
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise UsageError(f"{source}: has no apiVersion and kind")
    row = registry.ALL.find(version, kind)
    if row is None or row[0].type not in _ORDER:
        return None
    complete = defaults.for_plan(tree)
    errors = validation.structural_errors(complete)
    _refuse(source, kind, tree, [error for error in errors if (kind, error.path) not in _UNDERSTOOD])
    try:
        return codec.from_tree(complete, row[0].type)
    except codec.DecodeError as error:
        raise UsageError(f"{source}: {kind} {_name(tree)}: {error}") from None


def _refuse(source: str, kind: str, tree: dict[str, Any], errors: list[FieldError]) -> None:
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UsageError(f"{source}: {kind} {_name(tree)}: {errors[0]}{more}")


def _name(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


@dataclass(slots=True)
class Plan:
    """What came of the cycles: the decisions in order, and the world they left."""

    world: World
    workloads: Mapping[str, kueue.Workload]  # as they were given
    cycles: list[list[Decision]] = field(default_factory=list)
    admissions: dict[str, dict[str, Any]] = field(default_factory=dict)  # every reservation held, as its status says it

    @property
    def decisions(self) -> Iterator[Decision]:
        return (decision for cycle in self.cycles for decision in cycle)


def world_of(case: Case, now: Nanoseconds, *, departures: bool = False) -> World:
    """The memory as it is once all objects have been seen."""
    configured = case.configured
    policy = replace(configured.policy, departures=departures)
    world = World(policy, accounting=configured.accounting, profile=configured.profile)
    for thing in case.objects:
        world.put(thing, now)
    return world


# More cycles than anybody waits for: two Workloads that evict each other in turns would go on for ever.
CYCLES_MAX: Final = 10_000


class Progress(Enum):
    """What one more cycle came to."""

    MOVED = "somebody was let in, had to go, or will be tried next"
    STILL = "nothing changed, and nothing would in another cycle"
    OVER = "nobody was left to decide about"


def plan(
    case: Case, now: Nanoseconds, *, cycles: int = 1, until_stable: bool = False, departures: bool = False
) -> Plan:
    """Decide: so many cycles, or as many as it takes until a cycle changes nothing (at most `cycles`).

    Without `departures` the decisions are Kueue's to the letter; with them they are those of this program's manager.
    """
    made = begin(case, now, departures=departures)
    for _ in range(cycles):
        progress = advance(made, now)
        if progress is Progress.OVER or (until_stable and progress is Progress.STILL):
            break
    return made


def settle(case: Case, now: Nanoseconds) -> Plan:
    """What a manager would come to: as many cycles as it takes until one changes nothing."""
    return plan(case, now, cycles=CYCLES_MAX, until_stable=True, departures=True)


def begin(case: Case, now: Nanoseconds, *, departures: bool = False) -> Plan:
    """A plan before its first cycle."""
    workloads = {states.key(thing): thing for thing in case.objects if isinstance(thing, kueue.Workload)}
    made = Plan(world_of(case, now, departures=departures), workloads)
    for key, workload in workloads.items():
        if workload.status.admission is not None and reading.holds_quota(workload):
            made.admissions[key] = codec.to_tree(workload.status.admission)
    return made


def advance(made: Plan, now: Nanoseconds) -> Progress:
    """One more cycle; those evicted in the one before have stopped by now."""
    if made.cycles:
        _stop_evicted(made, now)
    made.world.settle(now)  # whoever that wakes is in line from here on
    before = _in_line(made.world)
    decisions = made.world.decide(now)
    if made.cycles and not decisions:
        return Progress.OVER
    made.cycles.append(decisions)
    _record(made, decisions)
    if any(isinstance(decision, (Admit, Preempt, Evict)) for decision in decisions):
        return Progress.MOVED
    # A cycle that only refuses brings nobody back in line: as many as before are the same as before.
    return Progress.STILL if _in_line(made.world) == before else Progress.MOVED


def _in_line(world: World) -> int:
    return sum(queue.in_line for queue in world.queues.values())


def _record(made: Plan, decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        if isinstance(decision, Admit):
            made.admissions[decision.workload] = admission.tree(decision.cluster_queue, decision.pod_sets)
            made.world.ledger.end(decision.workload)  # nothing is written, so there is no answer to wait for


def _stop_evicted(made: Plan, now: Nanoseconds) -> None:
    for key in sorted(key for key, held in made.world.reservations.items() if held.evicted):
        made.world.put(_stopped(made.workloads[key]), now)
        made.admissions.pop(key, None)


# What a Workload says while it holds quota, or comes back from an eviction.
_OF_A_STAY: Final = (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED, WorkloadCondition.REQUEUED)


def _stopped(workload: kueue.Workload) -> kueue.Workload:
    """The Workload once its eviction is over: without its reservation, and back in its queue."""
    over = conditions.without(workload.status.conditions, *_OF_A_STAY)
    status = msgspec.structs.replace(workload.status, admission=None, conditions=over, unhealthy_nodes=())
    return msgspec.structs.replace(workload, status=status)


# --- As one plain object ----------------------------------------------------------------------------------------------


def as_tree(made: Plan) -> dict[str, Any]:
    """The decision object: what is held, what happened, and who waits where."""
    decisions = list(made.decisions)
    admits = [decision for decision in decisions if isinstance(decision, Admit)]
    return {
        "assignments": dict(sorted(made.admissions.items())),
        "reserved": sorted({d.workload for d in admits if not d.is_second_pass}),
        "admitted": sorted({d.workload for d in admits if d.is_admitted and not d.was_admitted}),
        "preempted": dict(sorted(dict(_preempted(decisions)).items())),
        "evicted": dict(sorted(dict(_evicted(decisions)).items())),
        "replaced": dict(sorted((d.replaces, d.workload) for d in admits if d.replaces)),
        "active": _by_queue(made.world, active=True),
        "inadmissible": _by_queue(made.world, active=False),
        "events": sorted([list(event) for event in set(_events(decisions))]),
    }


_HOLDERS_SHOWN: Final = 10


def explanations(made: Plan) -> dict[str, Any]:
    """Why, for every Workload that was decided: the last decision, every flavor tried, what was short by how much, who
    holds it, and what protects those from being preempted."""
    found: dict[str, Any] = {}
    for decision in made.decisions:
        found[decision.workload] = {
            "clusterQueue": decision.cluster_queue,
            "decision": type(decision).__name__,
            "reason": decision.reason.value if isinstance(decision, (Wait, Preempt)) else "",
            "because": list(explain.of_decision(decision)),
            "tried": [_attempt_tree(e.pod_set, attempt) for e in decision.explanation for attempt in e.attempts],
            "holders": _holders_tree(made.world, decision),
        }
    return dict(sorted(found.items()))


def _attempt_tree(pod_set: str, attempt: FlavorAttempt) -> dict[str, Any]:
    return {
        "podSet": pod_set,
        "flavor": attempt.flavor,
        "outcome": attempt.kind.name,
        "borrowingLevel": attempt.level,
        "short": {
            f.resource: amounts.text(f.resource, f.short_by) for f in attempt.findings if f.resource and f.short_by
        },
    }


def _holders_tree(world: World, decision: Decision) -> list[dict[str, Any]]:
    queue = world.queues.get(decision.cluster_queue)
    workload = queue.get(decision.workload) if queue is not None else None
    if workload is None or not isinstance(decision, Wait):
        return []
    short = {
        (finding.flavor, finding.resource): None
        for explained in decision.explanation
        for finding in (*explained.findings, *(f for a in explained.attempts for f in a.findings))
        if finding.cause is Cause.SHORT
    }
    return [
        {
            "workload": holder.workload,
            "clusterQueue": holder.cluster_queue,
            "flavor": flavor,
            "resource": resource,
            "amount": amounts.text(resource, holder.amount),
            "protectedBy": holder.protected_by,
        }
        for flavor, resource in short
        for holder in explain.holders(world.snapshot, workload, flavor, resource)[:_HOLDERS_SHOWN]
    ]


def _preempted(decisions: Iterable[Decision]) -> Iterator[tuple[str, dict[str, str]]]:
    for decision in decisions:
        for victim in _ordered_victims(decision):
            yield victim.key, {"by": decision.workload, "reason": victim.reason.value}


def _ordered_victims(decision: Decision) -> tuple[Victim, ...]:
    victims = decision.victims if isinstance(decision, (Preempt, Retry)) else ()
    return tuple(victim for victim in victims if not victim.already_evicted)


def _evicted(decisions: Iterable[Decision]) -> Iterator[tuple[str, str]]:
    for decision in decisions:
        if isinstance(decision, Evict):
            yield decision.workload, EvictedReason.NODE_FAILURES.value
        elif isinstance(decision, Preempt) and decision.migrates:
            yield decision.migrates, EvictedReason.FLAVOR_MIGRATION.value


def _by_queue(world: World, *, active: bool) -> dict[str, list[str]]:
    keys = {
        name: sorted(w.key for w in (queue.active() if active else queue.parked()))
        for name, queue in sorted(world.queues.items())
    }
    return {name: found for name, found in keys.items() if found}


def _events(decisions: Iterable[Decision]) -> Iterator[tuple[str, str, str]]:
    """What would be told about Workloads: who, how urgent, and why."""
    for decision in decisions:
        for victim in _ordered_victims(decision):
            yield victim.key, "Normal", "EvictedDueToPreempted"
            yield victim.key, "Normal", "Preempted"
            yield decision.workload, "Normal", "PreemptedWorkload"
        match decision:
            case Admit():
                if not decision.is_second_pass:
                    yield decision.workload, "Normal", "QuotaReserved"
                if decision.is_admitted and not decision.repairs_node:
                    yield decision.workload, "Normal", "Admitted"
                if decision.replaces:
                    yield decision.replaces, "Normal", "WorkloadSliceReplaced"
            case Preempt():
                if decision.migrates:
                    yield decision.migrates, "Normal", "EvictedDueToFlavorMigration"
                yield decision.workload, "Warning", decision.reason.value
            case Wait():
                yield decision.workload, "Warning", decision.reason.value
            case Retry():
                yield decision.workload, "Warning", "SecondPassFailed"
            case Evict():
                yield decision.workload, "Normal", "EvictedDueToNodeFailures"
