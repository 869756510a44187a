"""What users do during a run, drawn from the seed.

A deed is a row of `DEEDS`, by weight; those that only some traits have stand in tables of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from simulation.engine import job_kinds
from simulation.engine.job_kinds import SimulatedKind, SimulatedParent
from simulation.engine.revisions import Tree
from simulation.engine.setup import (
    CHAOS_SECONDS,
    DEFINED_SECONDS,
    ELASTIC_PODS,
    NAMESPACE,
    NODES,
    PROBE,
    TAINT,
    Plan,
    World,
    name_of,
    preemption,
    quota_group,
    thing,
)
from simulation.engine.traits import Traits

# The label by which a ClusterQueue may choose its namespaces.
OPEN: Final = "example.com/open"


@dataclass(frozen=True, slots=True)
class UserAction:
    """An action of a user at a time."""

    at: float
    verb: str
    name: str
    argument: Any = None


class _Drawing:
    """What a deed may be about, and when."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self.rng = rng
        self.plans = world.plans
        self.cohorts = [each for each in world.objects if each["kind"] == "Cohort"]
        self.flavors = [
            each for each in world.objects if each["kind"] == "ResourceFlavor" and "nodeLabels" in each["spec"]
        ]
        self.checks = [name_of(each) for each in world.objects if each["kind"] == "AdmissionCheck"]
        queues = [each for each in world.objects if each["kind"] == "ClusterQueue" and name_of(each) != PROBE]
        self.queue = rng.choice(queues)
        self.queue_name = name_of(self.queue)
        self.plan = rng.choice(world.plans)
        self.at = round(rng.uniform(1.0, CHAOS_SECONDS), 3)
        self.later = round(self.at + rng.uniform(0.5, 10.0), 3)

    def soon_or_last(self, at: float) -> float:
        """Then; or when all else is quiet, so that nothing else requeues the Workloads concerned."""
        return self.rng.choice((at, round(CHAOS_SECONDS + self.rng.uniform(5.0, 30.0), 3)))

    def changed(self, spec: Tree) -> UserAction:
        """The queue is another one from then on."""
        return UserAction(self.soon_or_last(self.later), "change", self.queue_name, ("ClusterQueue", {"spec": spec}))

    @property
    def cohort_names(self) -> list[str]:
        return [name_of(each) for each in self.cohorts]

    @property
    def groups(self) -> list[Tree]:
        """What the queue offers."""
        found: list[Tree] = self.queue["spec"]["resourceGroups"]
        return found


Drawn: TypeAlias = Callable[[_Drawing], Iterator[UserAction]]


def draw(rng: random.Random, traits: Traits, world: World) -> list[UserAction]:
    found: list[UserAction] = []
    for _ in range(rng.randint(10, 20) if "meddling" in traits else rng.randint(0, 6)):
        found += _any_of(DEEDS, rng, world)
    found += _scaling(rng, world)
    if "node failures" in traits:
        found += _failures(rng)
    found += _made(rng, world)
    if "job kinds" in traits:
        found += _defining(rng, *job_kinds.OF_OPERATORS)
        found += _reshaping(rng, world)
    if "pods of controllers" in traits:
        found += _defining(rng, job_kinds.LEADER_WORKER_SET)
        found += _rescaling(rng, world)
    if "poison" in traits:
        for tree in rng.sample(POISON, rng.randint(1, 3)):
            found.append(UserAction(round(rng.uniform(1.0, CHAOS_SECONDS), 3), "poison", name_of(tree), tree))
    for trait, table in LATER.items():
        for _ in range(rng.randint(2, 6) if trait in traits else 0):
            found += _any_of(table, rng, world)
    return sorted(found, key=lambda action: action.at)


def _any_of(table: Mapping[str, tuple[int, Drawn]], rng: random.Random, world: World) -> Iterator[UserAction]:
    _, drawn = rng.choices(list(table.values()), [weight for weight, _ in table.values()])[0]
    return drawn(_Drawing(rng, world))


# --- Any user --------------------------------------------------------------------------------------------------------


def _stop(draw: _Drawing) -> Iterator[UserAction]:
    policy, kind = draw.rng.choice(("Hold", "HoldAndDrain")), draw.rng.choice(("ClusterQueue", "LocalQueue"))
    yield UserAction(draw.at, "stop", draw.queue_name, (kind, policy))
    yield UserAction(draw.later, "stop", draw.queue_name, (kind, "None"))


def _recreate_work(draw: _Drawing) -> Iterator[UserAction]:
    yield UserAction(draw.at, "delete", draw.plan.name)
    yield UserAction(draw.at, "create", draw.plan.name)


def _deactivate(draw: _Drawing) -> Iterator[UserAction]:
    yield UserAction(draw.at, "activate", draw.plan.name, False)
    yield UserAction(draw.later, "activate", draw.plan.name, True)


def _recreate_queue(draw: _Drawing) -> Iterator[UserAction]:
    """Gone at some time, and there again later: with other quota, and perhaps in another cohort."""
    kind = draw.rng.choice(("ClusterQueue", "LocalQueue"))
    tree = draw.queue
    if kind == "LocalQueue":
        tree = thing("LocalQueue", draw.queue_name, {"clusterQueue": draw.queue_name}, NAMESPACE)
    yield UserAction(draw.at, "remove", draw.queue_name, kind)
    yield UserAction(draw.later, "bring back", draw.queue_name, tree)


def _move(draw: _Drawing) -> Iterator[UserAction]:
    if draw.cohorts:
        yield UserAction(draw.at, "move", draw.queue_name, draw.rng.choice(("", *draw.cohort_names)))


def _cohort(draw: _Drawing) -> Iterator[UserAction]:
    """Its own quota changes."""
    if draw.cohorts:
        name = draw.rng.choice(draw.cohort_names)
        amount = str(draw.rng.randint(0, 8))
        groups = [{**group, "flavors": [_just(amount, flavor) for flavor in group["flavors"]]} for group in draw.groups]
        yield UserAction(draw.at, "cohort", name, groups)


def _just(amount: str, flavor: Tree) -> Tree:
    """So much of it, without limits."""
    quotas = [{"name": each["name"], "nominalQuota": amount} for each in flavor["resources"]]
    return {"name": flavor["name"], "resources": quotas}


def _check(draw: _Drawing) -> Iterator[UserAction]:
    """Its controller is gone for a while."""
    if draw.checks:
        name = draw.rng.choice(draw.checks)
        yield UserAction(draw.at, "check", name, False)
        yield UserAction(draw.later, "check", name, True)


# Action -> weight among about ten actions, and how it is drawn. What is stopped or removed comes back, so that every
# turn comes.
DEEDS: Final[Mapping[str, tuple[int, Drawn]]] = {
    "delete": (2, lambda draw: iter((UserAction(draw.at, "delete", draw.plan.name),))),
    "recreate": (1, _recreate_work),
    "touch": (1, lambda draw: iter((UserAction(draw.at, "touch", draw.plan.name),))),
    "priority": (2, lambda draw: iter((UserAction(draw.at, "priority", draw.plan.name, draw.rng.randint(0, 3)),))),
    "deactivate": (1, _deactivate),
    "stop": (2, _stop),
    "quota": (3, lambda draw: iter((UserAction(draw.at, "quota", draw.queue_name, draw.rng.randint(1, 10)),))),
    "queue": (1, _recreate_queue),
    "move": (2, _move),
    "cohort": (1, _cohort),
    "check": (1, _check),
    "send elsewhere": (1, lambda draw: iter((UserAction(draw.at, "send elsewhere", draw.plan.name, draw.queue_name),))),
}


# --- Those who rebuild ------------------------------------------------------------------------------------------------


def _for_a_while(draw: _Drawing, kind: str, tree: Tree, field: str, value: Any) -> Iterator[UserAction]:
    """A field of an object is another one, and later what it was."""
    name = name_of(tree)
    yield UserAction(draw.at, "change", name, (kind, {"spec": {field: value}}))
    yield UserAction(draw.soon_or_last(draw.later), "change", name, (kind, {"spec": {field: tree["spec"].get(field)}}))


def _reparent(draw: _Drawing) -> Iterator[UserAction]:
    """A cohort goes under another one, perhaps one of its own children, which makes a circle; or under none."""
    if draw.cohorts:
        cohort = draw.rng.choice(draw.cohorts)
        others = [name for name in draw.cohort_names if name != name_of(cohort)]
        yield from _for_a_while(draw, "Cohort", cohort, "parentName", draw.rng.choice((None, *others)))


def _recreate_cohort(draw: _Drawing) -> Iterator[UserAction]:
    """Those in it stay together without it, and without what it had."""
    if draw.cohorts:
        cohort = draw.rng.choice(draw.cohorts)
        yield UserAction(draw.at, "remove", name_of(cohort), "Cohort")
        yield UserAction(draw.soon_or_last(draw.later), "bring back", name_of(cohort), cohort)


def _other_flavors(draw: _Drawing) -> Iterator[UserAction]:
    """A flavor is left out, or does not exist."""
    first, *others = draw.groups
    flavors = first["flavors"]
    kept, unknown = flavors[:-1], {**flavors[-1], "name": "flavor-unheard"}
    offered = draw.rng.choice([found for found in (kept, flavors[1:], [*kept, unknown]) if found])
    groups = [{**first, "flavors": offered}, *others]
    yield from _for_a_while(draw, "ClusterQueue", draw.queue, "resourceGroups", groups)


def _other_limits(draw: _Drawing) -> Iterator[UserAction]:
    in_cohort = "cohortName" in draw.queue["spec"]
    groups = [
        quota_group(
            draw.rng,
            [flavor["name"] for flavor in group["flavors"]],
            1,
            8,
            in_cohort=in_cohort,
            resources=group["coveredResources"],
        )
        for group in draw.groups
    ]
    yield draw.changed({"resourceGroups": groups})


def _other_policy(draw: _Drawing) -> Iterator[UserAction]:
    policy: Tree = {"borrowWithinCohort": None, **preemption(draw.rng, in_cohort="cohortName" in draw.queue["spec"])}
    yield draw.changed({"preemption": policy})


def _other_checks(draw: _Drawing) -> Iterator[UserAction]:
    rules = [{"name": name} for name in draw.checks if draw.rng.random() < 0.3]
    asked = {"admissionChecks": rules} if rules else None
    yield from _for_a_while(draw, "ClusterQueue", draw.queue, "admissionChecksStrategy", asked)


def _closed_namespace(draw: _Drawing) -> Iterator[UserAction]:
    """A queue takes only those whose namespace is open, and ours is not for a while."""
    chosen = {"matchLabels": {OPEN: "yes"}}
    yield UserAction(draw.at, "change", draw.queue_name, ("ClusterQueue", {"spec": {"namespaceSelector": chosen}}))
    for at, value in ((draw.at, None), (draw.soon_or_last(draw.later), "yes")):
        yield UserAction(at, "change", NAMESPACE, ("Namespace", {"metadata": {"labels": {OPEN: value}}}))


_REBUILDING: Final[Mapping[str, tuple[int, Drawn]]] = {
    "reparent": (3, _reparent),
    "recreate cohort": (2, _recreate_cohort),
    "flavors": (2, _other_flavors),
    "limits": (2, _other_limits),
    "preemption": (2, _other_policy),
    "checks": (2, _other_checks),
    "namespace": (2, _closed_namespace),
}


# --- Those who reach in -----------------------------------------------------------------------------------------------


def _once_it_is_there(verb: str, argument: Any = None) -> Drawn:
    def drawn(draw: _Drawing) -> Iterator[UserAction]:
        # Mostly those who do not come to their end before all is quiet. The pods of an elastic one have a gate of their
        # own, which is not simulated: that it is not suspended has no meaning.
        jobs = [plan for plan in draw.plans if plan.kind in job_kinds.KINDS and not plan.is_elastic]
        plan = draw.rng.choices(jobs, [4 if plan.is_long else 1 for plan in jobs])[0]
        at = round(draw.rng.uniform(plan.at, CHAOS_SECONDS), 3)
        yield UserAction(draw.soon_or_last(at), verb, plan.name, argument)

    return drawn


_BY_HAND: Final[Mapping[str, tuple[int, Drawn]]] = {
    "start": (5, _once_it_is_there("set suspend", False)),
    "stop": (2, _once_it_is_there("set suspend", True)),
    "delete workload": (3, _once_it_is_there("delete workload")),
    "take finalizers": (2, _once_it_is_there("take finalizers")),
}


# --- Those who look after nodes ---------------------------------------------------------------------------------------


def _other_taints(draw: _Drawing) -> Iterator[UserAction]:
    """A flavor is tainted, and later it is not."""
    name = name_of(draw.rng.choice(draw.flavors))
    for at, taints in ((draw.at, [TAINT]), (draw.soon_or_last(draw.later), None)):
        yield UserAction(at, "change", name, ("ResourceFlavor", {"spec": {"nodeTaints": taints}}))


_TAINTING: Final[Mapping[str, tuple[int, Drawn]]] = {"taints": (1, _other_taints)}

# What only the runs of a trait have, beside everything else.
LATER: Final[Mapping[str, Mapping[str, tuple[int, Drawn]]]] = {
    "rebuilding": _REBUILDING,
    "by hand": _BY_HAND,
    "taints": _TAINTING,
}


# --- Work that changes its size, and nodes ----------------------------------------------------------------------------


def _scaling(rng: random.Random, world: World) -> Iterator[UserAction]:
    elastic = [plan for plan in world.plans if plan.is_elastic]
    for _ in range(rng.randint(2, 6) if elastic else 0):
        plan: Plan = rng.choice(elastic)
        at = round(rng.uniform(plan.at, CHAOS_SECONDS), 3)
        yield UserAction(at, "scale", plan.name, rng.randint(1, ELASTIC_PODS))


def _defining(rng: random.Random, *kinds: SimulatedKind | SimulatedParent) -> Iterator[UserAction]:
    """The CRDs of operators are installed: before the manager looks for them, or after."""
    for tree in job_kinds.definitions(*kinds):
        yield UserAction(rng.choice((0.0, round(rng.uniform(0.0, DEFINED_SECONDS), 3))), "define", name_of(tree), tree)


def _reshaping(rng: random.Random, world: World) -> Iterator[UserAction]:
    """A RayCluster that is not elastic gets another number of workers, and starts again with them; that of a RayJob is
    scaled."""
    clusters = [plan for plan in world.plans if plan.kind == "RayCluster" and not plan.is_elastic]
    for plan in clusters:
        if rng.random() < 0.4:
            at = round(rng.uniform(plan.at, CHAOS_SECONDS), 3)
            yield UserAction(at, "scale", plan.name, rng.randint(1, ELASTIC_PODS))
    for plan in world.plans:
        if plan.kind == "RayJob" and plan.is_elastic and rng.random() < 0.7:
            # Its autoscaler; also when all else is quiet, so that nothing else reconciles the job.
            at = round(rng.uniform(plan.at + 3.0, CHAOS_SECONDS + 30.0), 3)
            yield UserAction(at, "scale", plan.name, rng.randint(1, ELASTIC_PODS))


def _rescaling(rng: random.Random, world: World) -> Iterator[UserAction]:
    """An object made of pods gets another number of them, or none; also when all else is quiet."""
    for plan in world.plans:
        if plan.kind in job_kinds.PARENTS and rng.random() < 0.6:
            at = round(rng.uniform(plan.at + 1.0, CHAOS_SECONDS + 30.0), 3)
            way = rng.choice(("to none", "by none", "at once"))
            if way != "at once":
                yield UserAction(at, "scale", plan.name, 0)
                at = round(at + rng.uniform(4.0, 12.0), 3)
            if way != "to none":
                yield UserAction(at, "scale", plan.name, rng.randint(1, 3))


def _made(rng: random.Random, world: World) -> Iterator[UserAction]:
    """Mostly the Workload of a Job is made around the time when that comes, sometimes long after, sometimes never."""
    for plan in world.plans:
        if plan.prebuilt == f"{plan.name}-made" and rng.random() < 0.85:
            late = CHAOS_SECONDS + rng.uniform(5.0, 30.0)
            at = rng.choice((plan.at + rng.uniform(-5.0, 5.0), late))
            yield UserAction(round(max(0.0, at), 3), "make workload", plan.name, rng.random() < 0.15)


def _failures(rng: random.Random) -> Iterator[UserAction]:
    for number in rng.sample(range(NODES), rng.randint(1, 2)):
        at, name = round(rng.uniform(5.0, CHAOS_SECONDS), 3), f"node-{number}"
        yield UserAction(at, "lose node", name, rng.choice(("gone", "ill", "tainted")))
        if rng.random() < 0.6:
            yield UserAction(round(at + rng.uniform(0.5, 20.0), 3), "mend node", name)


# --- Poison -----------------------------------------------------------------------------------------------------------


def _poison_work(name: str, queue: str, requests: Tree, **more: Any) -> Tree:
    container = {"name": "c", "image": "example.com/work:1", "resources": {"requests": requests}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container], **more}}
    spec = {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": pods}]}
    return thing("Workload", f"poison-{name}", spec, NAMESPACE)


# Poison objects: a server accepts them, and no controller can use them.
POISON: Final = (
    thing("Cohort", "poison-chicken", {"parentName": "poison-egg"}),
    thing("Cohort", "poison-egg", {"parentName": "poison-chicken"}),
    thing("ClusterQueue", "poison-circle", {"namespaceSelector": {}, "cohortName": "poison-chicken"}),
    thing("LocalQueue", "poison-circle", {"clusterQueue": "poison-circle"}, NAMESPACE),
    thing("LocalQueue", "poison-nowhere", {"clusterQueue": "poison-nothing"}, NAMESPACE),
    _poison_work("huge", "queue-0", {"cpu": "9223372036854775807"}),
    _poison_work("tiny", "queue-0", {"cpu": "1n"}),
    _poison_work("circle", "poison-circle", {"cpu": "1"}),
    _poison_work("nowhere", "poison-nowhere", {"cpu": "1"}),
    _poison_work("selector", "queue-0", {"cpu": "1"}, nodeSelector={"example.com/moon": "full"}),
    _poison_work("class", "queue-0", {"cpu": "1"}, runtimeClassName="there-is-none"),
)
