"""Worlds drawn from a seed: flavors, a tree of cohorts, queues, work, and what people do to them meanwhile.

A world is plain data, printed at the head of a story. Amounts are whole CPUs, so that anybody can check them by hand.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

Tree = dict[str, Any]

API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "default"
CHAOS_SECONDS: Final = 60.0
_DEEDS: Final = ("delete", "recreate", "touch", "deactivate", "stop", "stop", "quota", "quota", "priority")


@dataclass(frozen=True, slots=True)
class Plan:
    """One piece of work: when it comes, what it asks for, and how long it takes once it runs."""

    name: str
    at: float
    queue: str
    count: int
    cpu: int
    priority: int
    seconds: float
    stop_seconds: float
    # Runs until the story lets it end: so that there is something to wait for when people ask who waits.
    is_long: bool


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody does at some time."""

    at: float
    verb: str
    name: str
    argument: Any = None


@dataclass(frozen=True, slots=True)
class World:
    objects: tuple[Tree, ...]
    plans: tuple[Plan, ...]
    deeds: tuple[Deed, ...]


def draw(chance: random.Random) -> World:
    flavors = [f"flavor-{number}" for number in range(chance.randint(1, 2))]
    cohorts = _cohorts(chance, flavors)
    queues = _cluster_queues(chance, flavors, [each["metadata"]["name"] for each in cohorts])
    names = [each["metadata"]["name"] for each in queues]
    plans = _plans(chance, names)
    objects = (
        *(_object("ResourceFlavor", name, {}) for name in flavors),
        *cohorts,
        *queues,
        *(_object("LocalQueue", name, {"clusterQueue": name}, NAMESPACE) for name in names),
    )
    return World(objects, plans, _deeds(chance, queues, cohorts, plans))


def _object(kind: str, name: str, spec: Tree, namespace: str = "") -> Tree:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


def _cohorts(chance: random.Random, flavors: list[str]) -> list[Tree]:
    """A tree of one to three levels; the first is the root. Cohorts without an object of their own exist too."""
    levels = chance.choice((0, 1, 1, 2, 3))
    found: list[Tree] = []
    for number in range(0 if levels == 0 else chance.randint(levels, levels + 1)):
        spec: Tree = {}
        if number:
            parent = number - 1 if number < levels else chance.randrange(levels - 1) if levels > 1 else 0
            spec["parentName"] = found[parent]["metadata"]["name"]
        if chance.random() < 0.4:
            spec["resourceGroups"] = [_group(chance, flavors, 0, 6, in_cohort=bool(number))]
        found.append(_object("Cohort", f"cohort-{number}", spec))
    return found


def _cluster_queues(chance: random.Random, flavors: list[str], cohorts: list[str]) -> list[Tree]:
    found = []
    for number in range(chance.randint(1, 6)):
        cohort = chance.choice(cohorts) if cohorts and chance.random() < 0.85 else ""
        offered = flavors if chance.random() < 0.7 else flavors[:1]
        spec: Tree = {
            "namespaceSelector": {},
            "queueingStrategy": chance.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": [_group(chance, offered, 1, 8, in_cohort=bool(cohort))],
            "preemption": _preemption(chance),
        }
        if cohort:
            spec["cohortName"] = cohort
        found.append(_object("ClusterQueue", f"queue-{number}", spec))
    return found


def _group(chance: random.Random, flavors: list[str], least: int, most: int, *, in_cohort: bool) -> Tree:
    def quota() -> Tree:
        found: Tree = {"name": "cpu", "nominalQuota": str(chance.randint(least, most))}
        if in_cohort and chance.random() < 0.4:
            found["borrowingLimit"] = str(chance.randint(0, 4))
        if in_cohort and chance.random() < 0.4:
            found["lendingLimit"] = str(chance.randint(0, int(found["nominalQuota"])))
        return found

    return {"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": [quota()]} for name in flavors]}


def _preemption(chance: random.Random) -> Tree:
    found: Tree = {
        "withinClusterQueue": chance.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": chance.choice(("Never", "LowerPriority", "Any")),
    }
    if found["reclaimWithinCohort"] != "Never" and chance.random() < 0.4:
        found["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": chance.randint(0, 2)}
    return found


def _plans(chance: random.Random, queues: list[str]) -> tuple[Plan, ...]:
    return tuple(
        Plan(
            name=f"work-{number:02}",
            at=round(chance.uniform(0.0, CHAOS_SECONDS * 0.8), 3),
            queue=chance.choice(queues),
            count=chance.choice((1, 1, 1, 2)),
            cpu=chance.choice((1, 1, 2, 3, 5)),
            priority=chance.choice((0, 0, 1, 2)),
            seconds=round(chance.uniform(0.5, 15.0), 3),
            stop_seconds=round(chance.choice((0.0, chance.uniform(0.0, 3.0))), 3),
            is_long=chance.random() < 0.2,
        )
        for number in range(chance.randint(20, 40))
    )


def _deeds(chance: random.Random, queues: list[Tree], cohorts: list[Tree], plans: tuple[Plan, ...]) -> tuple[Deed, ...]:
    """What people do during the chaos. What they stop they also start again, so that everybody's turn comes."""
    found: list[Deed] = []

    def moment() -> float:
        return round(chance.uniform(1.0, CHAOS_SECONDS), 3)

    for _ in range(chance.randint(0, 8)):
        plan, queue = chance.choice(plans), chance.choice(queues)["metadata"]["name"]
        at = moment()
        match chance.choice(
            ("delete", "recreate", "touch", "deactivate", "stop", "stop", "quota", "quota", "priority")
        ):
            case "delete":
                found.append(Deed(at, "delete", plan.name))
            case "recreate":
                found += (Deed(at, "delete", plan.name), Deed(at, "create", plan.name))
            case "touch":
                found.append(Deed(at, "touch", plan.name))
            case "priority":
                found.append(Deed(at, "priority", plan.name, chance.randint(0, 3)))
            case "deactivate":
                later = round(at + chance.uniform(0.5, 10.0), 3)
                found += (Deed(at, "activate", plan.name, False), Deed(later, "activate", plan.name, True))
            case "stop":
                later = round(at + chance.uniform(0.5, 10.0), 3)
                policy, kind = chance.choice(("Hold", "HoldAndDrain")), chance.choice(("ClusterQueue", "LocalQueue"))
                found += (
                    Deed(at, "stop", queue, (kind, policy)),
                    Deed(later, "stop", queue, (kind, "None")),
                )
            case "quota":
                found.append(Deed(at, "quota", queue, chance.randint(1, 10)))
    return tuple(sorted(found, key=lambda deed: deed.at))


def workload(plan: Plan) -> Tree:
    container = {"name": "c", "image": "example.com/work:1", "resources": {"requests": {"cpu": str(plan.cpu)}}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Tree = {
        "queueName": plan.queue,
        "priority": plan.priority,
        "podSets": [{"name": "main", "count": plan.count, "template": pods}],
    }
    return _object("Workload", plan.name, spec, NAMESPACE)
