"""Objects drawn from a seed: flavors, a tree of cohorts, queues and jobs. `user_actions` draws what users change.

A world is plain data. Amounts are whole CPUs, so that they are easy to check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from simulation.engine import job_kinds
from simulation.engine.revisions import Tree
from simulation.engine.traits import Traits

API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "default"
# Namespaces beside it: one that the operator's selector takes in, and one that it does not.
TEAMS: Final = ("ours", "theirs")
CHAOS_SECONDS: Final = 40.0
CHURN_SECONDS: Final = 140.0
# By then the CRDs of operators are installed.
DEFINED_SECONDS: Final = 8.0
# No other Workload requests the quota of this queue: a new one is decided at once.
PROBE: Final = "probe"
CHECK_CONTROLLER: Final = "simulated.example.com/check"
NODES_CHECK: Final = "nodes"  # the check that asks an autoscaler
EXCLUDED: Final = "example.com/license"
UNDECLARED: Final = "example.com/widget"
RACK: Final = "example.com/rack"
HOST: Final = "kubernetes.io/hostname"
MEMORY: Final = "memory"
ZONE: Final = "example.com/zone"
_ZONES: Final = {"flavor-0": "a", "flavor-1": "b"}
TAINT: Final = {"key": "example.com/spot", "value": "yes", "effect": "NoSchedule"}
_STANDS: Final = {"key": "example.com/spot", "operator": "Exists"}
MADE: Final = "example.com/made"  # the label of a Workload that a user created for a Job
_ADDED: Final = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
PLAN: Final = "example.com/plan"  # the label with the plan of a pod
APP: Final = "example.com/app"  # the same, of a pod that a controller creates
ELASTIC_PODS: Final = 4  # the most that an elastic Job asks for
NODES: Final = 4
_STORES: Final = ("store-0", "store-1")  # flavors with memory quota only
NODE_CPUS: Final = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """One piece of work: when it comes, what it asks for, and how long it takes once it runs."""

    name: str
    at: float
    namespace: str
    queue: str
    count: int
    cpu: int
    priority: int
    seconds: float
    stop_seconds: float
    # Runs until the end of the run, so that Workloads are pending when liveness is checked.
    is_long: bool
    kind: str = "Workload"  # or Pod, several of which are a group; or one of `job_kinds`
    # How long its pods take to come up; None: they never do.
    ready_seconds: float | None = 0.0
    limit_seconds: int | None = None
    min_count: int | None = None
    also: str = ""  # another resource that each pod asks for one of
    memory: int = 0
    # A second pod set: how many pods, and what each of them asks for.
    beside: tuple[int, Tree] | None = None
    zone: str = ""  # the only one that it will run in
    stands_taints: bool = False
    prebuilt: str = ""  # the prebuilt Workload that a user creates for it
    topology: str = ""  # required, preferred or unconstrained
    is_elastic: bool = False
    is_piecemeal: bool = False  # its pods are done one after the other
    fails: bool = False


@dataclass(frozen=True, slots=True)
class World:
    objects: tuple[Tree, ...]
    plans: tuple[Plan, ...]


def draw(rng: random.Random, traits: Traits) -> World:
    flavors = [f"flavor-{number}" for number in range(rng.randint(1, 2))]
    cohorts = _cohorts(rng, traits, flavors)
    checks = _checks(rng, traits)
    queues = _cluster_queues(
        rng, traits, flavors, [name_of(each) for each in cohorts], [name_of(each) for each in checks]
    )
    plans = tuple(_plans(rng, traits, [name_of(each) for each in queues]))
    local_queues = [thing("LocalQueue", name_of(each), {"clusterQueue": name_of(each)}, NAMESPACE) for each in queues]
    objects = (
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in TEAMS),
        *_nodes(traits),
        *(_flavor(rng, name, traits) for name in flavors),
        *(thing("ResourceFlavor", name, {}) for name in _STORES if "several groups" in traits),
        *cohorts,
        *_provisioning(rng, traits),
        *checks,
        *queues,
        *local_queues,
        thing("ResourceFlavor", PROBE, {}),
        thing("ClusterQueue", PROBE, {"namespaceSelector": {}, "resourceGroups": [_probe_quota()]}),
        thing("LocalQueue", PROBE, {"clusterQueue": PROBE}, NAMESPACE),
    )
    return World(objects, plans)


def _probe_quota() -> Tree:
    quota = {"name": PROBE, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    return {"coveredResources": ["cpu"], "flavors": [quota]}


def probe() -> Tree:
    """A Workload that measures how soon a manager decides."""
    return _workload(Plan(PROBE, 0.0, NAMESPACE, PROBE, 1, 1, 0, 1.0, 0.0, is_long=False))


def thing(kind: str, name: str, spec: Tree, namespace: str = "", api_version: str = API_VERSION) -> Tree:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


def name_of(tree: Tree) -> str:
    name: str = tree["metadata"]["name"]
    return name


# --- Queues -----------------------------------------------------------------------------------------------------------


def _flavor(rng: random.Random, name: str, traits: Traits) -> Tree:
    spec: Tree = {}
    if name == "flavor-0" and "topology" in traits:
        spec = {"nodeLabels": {"example.com/pool": name}, "topologyName": "racks"}
    if "taints" in traits:
        spec.setdefault("nodeLabels", {})[ZONE] = _ZONES[name]
        if rng.random() < 0.4:
            spec["nodeTaints"] = [TAINT]
        if rng.random() < 0.3:
            spec["tolerations"] = [_STANDS]
    return thing("ResourceFlavor", name, spec)


def _nodes(traits: Traits) -> Iterator[Tree]:
    """Two racks of two nodes each."""
    if "topology" not in traits:
        return
    memory = {MEMORY: "100"} if "several groups" in traits else {}
    zone = {ZONE: _ZONES["flavor-0"]} if "taints" in traits else {}
    yield thing("Topology", "racks", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    for number in range(NODES):
        name = f"node-{number}"
        labels = {"example.com/pool": "flavor-0", RACK: f"rack-{number // 2}", HOST: name, **zone}
        node = thing("Node", name, {}, api_version="v1")
        node["metadata"]["labels"] = labels
        node["status"] = {
            "allocatable": {"cpu": str(NODE_CPUS), "pods": "110", EXCLUDED: "100", UNDECLARED: "100", **memory},
            "conditions": [node_ready("True")],
        }
        yield node


def node_ready(status: str) -> Tree:
    return {"type": "Ready", "status": status, "reason": "Played", "message": ""}


def _cohorts(rng: random.Random, traits: Traits, flavors: list[str]) -> list[Tree]:
    """A tree of one to three levels; the first is the root. Cohorts without an object of their own exist too."""
    levels = rng.choice((0, 1, 1, 2, 3))
    found: list[Tree] = []
    for number in range(0 if levels == 0 else rng.randint(levels, levels + 1)):
        spec: Tree = {}
        if number:
            parent = number - 1 if number < levels else rng.randrange(levels - 1) if levels > 1 else 0
            spec["parentName"] = name_of(found[parent])
        if rng.random() < 0.4:
            spec["resourceGroups"] = _quota_groups(rng, traits, flavors, 0, 6, in_cohort=bool(number))
        found.append(thing("Cohort", f"cohort-{number}", spec))
    return found


def _checks(rng: random.Random, traits: Traits) -> list[Tree]:
    found = []
    for number in range(rng.randint(1, 2) if "checks" in traits else 0):
        spec: Tree = {"controllerName": CHECK_CONTROLLER, "retryDelayMinutes": rng.choice((0, 0, 1))}
        if "deferred preemptions" in traits and rng.random() < 0.7:
            spec["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
        found.append(thing("AdmissionCheck", f"check-{number}", spec))
    if "provisioning" in traits:
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": NODES_CHECK}
        spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": reference}
        found.append(thing("AdmissionCheck", NODES_CHECK, spec))
    return found


def _provisioning(rng: random.Random, traits: Traits) -> Iterator[Tree]:
    if "provisioning" in traits:
        retries = {"backoffLimitCount": rng.randint(1, 3), "backoffBaseSeconds": 1, "backoffMaxSeconds": 5}
        spec = {"provisioningClassName": "played.example.com", "retryStrategy": retries}
        yield thing("ProvisioningRequestConfig", NODES_CHECK, spec)


def _cluster_queues(
    rng: random.Random, traits: Traits, flavors: list[str], cohorts: list[str], checks: list[str]
) -> list[Tree]:
    found = []
    for number in range(rng.randint(1, 4)):
        cohort = rng.choice(cohorts) if cohorts and rng.random() < 0.85 else ""
        offered = flavors if rng.random() < 0.7 else flavors[:1]
        spec: Tree = {
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": _quota_groups(rng, traits, offered, 1, 8, in_cohort=bool(cohort)),
            "preemption": preemption(rng, in_cohort=bool(cohort)),
        }
        if cohort:
            spec["cohortName"] = cohort
        if "fair sharing" in traits:
            spec["fairSharing"] = {"weight": rng.choice(("1", "1", "2", "0"))}
        if "admission fair sharing" in traits and rng.random() < 0.7:
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        asked = [name for name in checks if rng.random() < 0.7]
        if asked:
            spec["admissionChecksStrategy"] = {"admissionChecks": [_rule(rng, name, offered) for name in asked]}
        if "excluded resources" in traits and rng.random() < 0.7:
            spec["excludeResourcePrefixes"] = ["example.com/lic"]
        if "default queues" in traits and rng.random() < 0.7:
            spec["defaultLocalQueue"] = {"name": f"default-{number}"}
        if {"variants", "elastic"} & traits == {"variants"} and len(spec["resourceGroups"]) == 1:
            spec |= {"queueingStrategy": "BestEffortFIFO", "concurrentAdmissionPolicy": _migration(rng, offered)}
        found.append(thing("ClusterQueue", f"queue-{number}", spec))
    return found


def _migration(rng: random.Random, flavors: list[str]) -> Tree:
    migration: Tree = {"mode": rng.choice(("TryPreferredFlavors", "TryPreferredFlavors", "RetainFirstAdmission"))}
    if migration["mode"] == "TryPreferredFlavors" and rng.random() < 0.3:
        migration["constraints"] = {"lastAcceptableFlavorName": rng.choice(flavors)}
    return {"migration": migration}


def _rule(rng: random.Random, name: str, flavors: list[str]) -> Tree:
    return {"name": name, "onFlavors": flavors[:1]} if rng.random() < 0.3 else {"name": name}


def _quota_groups(
    rng: random.Random, traits: Traits, flavors: list[str], least: int, most: int, *, in_cohort: bool
) -> list[Tree]:
    """CPUs; and memory, which comes with them or is of other flavors."""
    group = partial(quota_group, rng, least=least, most=most, in_cohort=in_cohort)
    if "several groups" not in traits:
        return [group(flavors)]
    if "topology" in traits or rng.random() < 0.5:
        return [group(flavors, resources=("cpu", MEMORY))]
    stores = _STORES[: rng.randint(1, len(_STORES))]
    return [group(flavors), group(stores, resources=(MEMORY,))]


def quota_group(
    rng: random.Random,
    flavors: Sequence[str],
    least: int,
    most: int,
    *,
    in_cohort: bool,
    resources: Sequence[str] = ("cpu",),
) -> Tree:
    def quota(resource: str) -> Tree:
        found: Tree = {"name": resource, "nominalQuota": str(rng.randint(least, most))}
        if in_cohort and rng.random() < 0.4:
            found["borrowingLimit"] = str(rng.randint(0, 4))
        if in_cohort and rng.random() < 0.4:
            found["lendingLimit"] = str(rng.randint(0, int(found["nominalQuota"])))
        return found

    offered = [{"name": name, "resources": [quota(resource) for resource in resources]} for name in flavors]
    return {"coveredResources": list(resources), "flavors": offered}


def preemption(rng: random.Random, *, in_cohort: bool) -> Tree:
    found: Tree = {
        "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
    }
    if in_cohort and found["reclaimWithinCohort"] != "Never" and rng.random() < 0.4:
        found["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": rng.randint(0, 2)}
    return found


# --- Work -------------------------------------------------------------------------------------------------------------


def _plans(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    yield from _mixed(rng, traits, queues)
    if "pods" in traits:
        yield from _of_pods(rng, traits, queues)
    if "rush" in traits:
        yield from _rush(rng, traits, queues)
    if "churn" in traits:
        yield from _churn(rng, traits, queues[0])
    if "unnamed jobs" in traits:
        yield from _unnamed(rng)
    if "by hand" in traits:
        yield _hopeless(rng, traits, queues)
    if "job kinds" in traits:
        yield from _of_operators(rng, traits, queues)
    if "pods of controllers" in traits:
        yield from _of_controllers(rng, traits, queues)


def _of_controllers(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    """Objects of every kind made of pods, after their CRDs. Each is deleted some time after its first pod runs."""
    # Pods that are deleted because they were given up would be created again, for ever.
    drawn = ["Deployment"] if "retention" in traits else list(job_kinds.PARENTS)
    for number in range(rng.randint(2, 4)):
        kind = rng.choice(drawn)
        never_gives_up = kind == "Deployment" or "pods ready" not in traits
        yield Plan(
            name=f"{kind.lower()}-{number}",
            at=round(rng.uniform(DEFINED_SECONDS, CHAOS_SECONDS * 0.8), 3),
            namespace=NAMESPACE,
            queue=rng.choice(queues),
            count=rng.choice((1, 2, 2, 3)),
            cpu=1,
            priority=rng.choice((0, 1, 2)),
            seconds=round(rng.uniform(2.0, 15.0), 3),
            stop_seconds=round(rng.choice((0.0, rng.uniform(0.0, 3.0))), 3),
            is_long=rng.random() < 0.5,
            kind=kind,
            ready_seconds=0.0 if never_gives_up else _ready(rng),
            topology=_topology(rng, traits),
            **_particular(rng, traits),
        )


def _of_operators(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    """Objects of every kind, after their CRDs; in runs with elastic jobs, of those that can be elastic."""
    is_elastic_run = "elastic" in traits
    drawn = job_kinds.CAN_BE_ELASTIC if is_elastic_run else job_kinds.OF_OPERATORS
    for number in range(rng.randint(3, 6)):
        kind = rng.choice(drawn).kind
        is_elastic = kind.startswith("Ray") and rng.random() < (0.8 if is_elastic_run else 0.4)
        yield Plan(
            name=f"{kind.lower()}-{number}",
            at=round(rng.uniform(DEFINED_SECONDS, CHAOS_SECONDS * 0.8), 3),
            namespace=NAMESPACE,
            queue=rng.choice(queues),
            count=rng.choice((2, 2, 3)) if kind == "RayJob" else rng.choice((1, 2, 3)),
            cpu=1,
            priority=rng.choice((0, 1, 2)),
            seconds=round(rng.uniform(0.5, 12.0), 3),
            stop_seconds=round(rng.choice((0.0, rng.uniform(0.0, 3.0))), 3),
            is_long=rng.random() < 0.3,
            kind=kind,
            ready_seconds=_ready(rng) if "pods ready" in traits else 0.0,
            limit_seconds=rng.randint(1, 20) if "limited time" in traits and rng.random() < 0.4 else None,
            topology=_topology(rng, traits, is_elastic=is_elastic),
            is_elastic=is_elastic,
            fails=rng.random() < 0.15,
            **_particular(rng, traits),
        )


def _mixed(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    for number in range(rng.randint(5, 11)):
        count = rng.choice((1, 1, 1, 2, 3))
        is_job = "jobs" in traits and rng.random() < 0.85
        is_elastic = is_job and "elastic" in traits and rng.random() < 0.6
        seconds = round(rng.uniform(0.5, 12.0), 3)
        is_long = rng.random() < 0.2
        yield Plan(
            name=f"work-{number:02}",
            at=round(rng.uniform(0.0, CHAOS_SECONDS * 0.8), 3),
            namespace=NAMESPACE,
            queue=rng.choice(queues),
            count=count,
            cpu=rng.choice((1, 1, 2, 3, 5)) if count == 1 else rng.choice((1, 1, 2)),
            priority=rng.choice((0, 0, 1, 2)),
            seconds=seconds,
            stop_seconds=round(rng.choice((0.0, rng.uniform(0.0, 3.0))), 3),
            is_long=is_long,
            kind="Job" if is_job else "Workload",
            ready_seconds=_ready(rng) if "pods ready" in traits else 0.0,
            limit_seconds=rng.randint(1, 20) if "limited time" in traits and rng.random() < 0.4 else None,
            min_count=1 if "partial" in traits and count > 1 and not is_elastic and rng.random() < 0.7 else None,
            also=_also(rng, traits),
            topology=_topology(rng, traits, is_elastic=is_elastic),
            is_elastic=is_elastic,
            is_piecemeal="piecemeal" in traits and is_job and not is_elastic,
            fails="piecemeal" in traits and is_job and rng.random() < 0.2,
            **_several(rng, traits, is_job=is_job),
            **_particular(rng, traits),
            prebuilt=_prebuilt(rng, number) if "prebuilt" in traits and is_job and not is_elastic else "",
        )


def _prebuilt(rng: random.Random, number: int) -> str:
    """Its own, one that another Job waits for as well, or none."""
    found = rng.choice((number, number, max(0, number - 1), None, None))
    return "" if found is None else f"work-{found:02}-made"


def _several(rng: random.Random, traits: Traits, *, is_job: bool) -> dict[str, Any]:
    """Memory for its pods, and other pods beside them."""
    if "several groups" not in traits:
        return {}
    memory = rng.choice((0, 1, 1, 2))
    if is_job or rng.random() < 0.3:
        return {"memory": memory}
    requests = rng.choice(({"cpu": "1"}, {MEMORY: "1"}, {"cpu": "2", MEMORY: "1"}))
    return {"memory": memory, "beside": (rng.randint(1, 2), requests)}


def _particular(rng: random.Random, traits: Traits) -> dict[str, Any]:
    """About where its pods run."""
    if "taints" not in traits:
        return {}
    return {"zone": rng.choice(("", "", "", *_ZONES.values())), "stands_taints": rng.random() < 0.6}


def _of_pods(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    for number in range(rng.randint(2, 4)):
        count = rng.choice((1, 2, 3))
        yield Plan(
            name=f"pods-{number}",
            at=round(rng.uniform(0.0, CHAOS_SECONDS * 0.8), 3),
            namespace=NAMESPACE,
            queue=rng.choice(queues),
            count=count,
            cpu=1,
            priority=rng.choice((0, 1, 2)),
            seconds=round(rng.uniform(0.5, 12.0), 3),
            stop_seconds=round(rng.uniform(0.0, 3.0), 3),
            is_long=rng.random() < 0.2,
            kind="Pod",
            # A pod of its own that never came up would be replaced forever; a group is given up after a while, unless
            # it is then deleted, and created again as well.
            ready_seconds=_ready(rng) if "pods ready" in traits and count > 1 and "retention" not in traits else 0.0,
            topology=_topology(rng, traits),
            **_particular(rng, traits),
        )


def _small(traits: Traits) -> Callable[..., Plan]:
    topology = "unconstrained" if "topology" in traits else ""
    return partial(
        Plan,
        namespace=NAMESPACE,
        count=1,
        stop_seconds=0.0,
        is_long=False,
        topology=topology,
        stands_taints="taints" in traits,
    )


def _rush(rng: random.Random, traits: Traits, queues: list[str]) -> Iterator[Plan]:
    """Many at once."""
    small = _small(traits)
    for number in range(rng.randint(15, 25)):
        yield small(
            name=f"rush-{number:02}",
            at=round(rng.uniform(5.0, 15.0), 3),
            queue=rng.choice(queues),
            cpu=rng.choice((1, 1, 2)),
            priority=rng.randint(0, 3),
            seconds=round(rng.uniform(0.5, 4.0), 3),
        )


def _churn(rng: random.Random, traits: Traits, queue: str) -> Iterator[Plan]:
    """Work without end, in one queue."""
    small = _small(traits)
    for number in range(80):
        yield small(
            name=f"churn-{number:02}",
            at=round(5.0 + number * (CHURN_SECONDS - 5.0) / 80, 3),
            queue=queue,
            cpu=1,
            priority=0,
            seconds=round(rng.uniform(6.0, 12.0), 3),
        )


def _unnamed(rng: random.Random) -> Iterator[Plan]:
    """Jobs that name no queue, or none that there is."""
    for number in range(3):
        yield Plan(
            name=f"unnamed-{number}",
            at=round(rng.uniform(0.0, CHAOS_SECONDS * 0.8), 3),
            namespace=rng.choice(TEAMS),
            queue=rng.choice(("", "", "nowhere")),
            count=1,
            cpu=1,
            priority=0,
            seconds=5.0,
            stop_seconds=0.0,
            is_long=rng.random() < 0.5,
            kind="Job",
        )


def _hopeless(rng: random.Random, traits: Traits, queues: list[str]) -> Plan:
    """A Job that asks for more than there is, so that only a user would ever start it."""
    return Plan(
        name="hopeless",
        at=round(rng.uniform(0.0, CHAOS_SECONDS * 0.8), 3),
        namespace=NAMESPACE,
        queue=rng.choice(queues),
        count=1,
        cpu=100,
        priority=0,
        seconds=1.0,
        stop_seconds=0.0,
        is_long=True,
        kind="Job",
        topology=_topology(rng, traits),
    )


def _ready(rng: random.Random) -> float | None:
    """Mostly in time, sometimes too late, sometimes never."""
    return rng.choice((0.5, 0.5, 2.0, 12.0, None))


def _topology(rng: random.Random, traits: Traits, *, is_elastic: bool = False) -> str:
    if "topology" not in traits:
        return ""
    return "unconstrained" if is_elastic else rng.choice(("required", "preferred", "unconstrained"))


def _also(rng: random.Random, traits: Traits) -> str:
    wanted = [
        resource
        for trait, resource in (("excluded resources", EXCLUDED), ("undeclared resources", UNDECLARED))
        if trait in traits
    ]
    return rng.choice(wanted) if wanted and rng.random() < 0.4 else ""


def template(plan: Plan) -> Tree:
    requests = {"cpu": str(plan.cpu), **({plan.also: "1"} if plan.also else {})}
    if plan.memory:
        requests[MEMORY] = str(plan.memory)
    limits = {"limits": {plan.also: "1"}} if plan.also else {}
    found = _pods({"requests": requests, **limits})
    if plan.zone:
        found["spec"]["nodeSelector"] = {ZONE: plan.zone}
    if plan.stands_taints:
        found["spec"]["tolerations"] = [_STANDS]
    if plan.topology and plan.kind != "Workload":
        value = "true" if plan.topology == "unconstrained" else RACK
        found["metadata"] = {"annotations": {f"kueue.x-k8s.io/podset-{plan.topology}-topology": value}}
    return found


def _pods(resources: Tree) -> Tree:
    container = {"name": "c", "image": "example.com/work:1", "resources": resources}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def manifests(plan: Plan) -> list[Tree]:
    """What users submit: one object, or the pods of a group."""
    if plan.kind == "Pod":
        return [pod(plan, number) for number in range(plan.count)]
    if plan.kind in _SPECS:
        row = job_kinds.KINDS.get(plan.kind) or job_kinds.PARENTS[plan.kind]
        return [_marked(plan, thing(plan.kind, plan.name, _SPECS[plan.kind](plan), plan.namespace, row.api_version))]
    return [_workload(plan)]


def made_for(plan: Plan, *, is_wrong: bool) -> Tree:
    """The Workload of a Job, created by a user. It must contain the defaults that a server adds to the Job."""
    found = _workload(replace(plan, name=plan.prebuilt, kind="Workload", cpu=plan.cpu + is_wrong))
    found["metadata"]["labels"] = {MADE: plan.name}
    for container in found["spec"]["podSets"][0]["template"]["spec"]["containers"]:
        container.update(_ADDED)
    return found


def _workload(plan: Plan) -> Tree:
    pod_set: Tree = {"name": "main", "count": plan.count, "template": template(plan)}
    if plan.min_count is not None:
        pod_set["minCount"] = plan.min_count
    if plan.topology:
        pod_set["topologyRequest"] = {plan.topology: True if plan.topology == "unconstrained" else RACK}
    spec: Tree = {"queueName": plan.queue, "priority": plan.priority, "podSets": [pod_set]}
    if plan.beside is not None:
        count, requests = plan.beside
        spec["podSets"].append({"name": "beside", "count": count, "template": _pods({"requests": requests})})
    if plan.limit_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = plan.limit_seconds
    return thing("Workload", plan.name, spec, plan.namespace)


def _job(plan: Plan) -> Tree:
    completions = ELASTIC_PODS if plan.is_elastic else plan.count
    return {"parallelism": plan.count, "completions": completions, "template": template(plan)}


def _job_set(plan: Plan) -> Tree:
    """A driver, and the other pods as workers."""

    def replicated(name: str, pods: int) -> Tree:
        spec = {"parallelism": pods, "completions": pods, "template": template(plan)}
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    workers = [replicated("workers", plan.count - 1)] if plan.count > 1 else []
    return {"suspend": False, "replicatedJobs": [replicated("driver", 1), *workers]}


def _ray_cluster(plan: Plan) -> Tree:
    """A head, and the other pods as workers."""
    group = {"groupName": "workers", "replicas": plan.count - 1, "template": template(plan)}
    return {"suspend": False, "headGroupSpec": {"template": template(plan)}, "workerGroupSpecs": [group]}


def _ray_job(plan: Plan) -> Tree:
    """A head, a submitter, and the other pods as workers. That of an elastic one is scaled by an autoscaler."""
    cluster = _ray_cluster(replace(plan, count=plan.count - 1))
    del cluster["suspend"]
    if plan.is_elastic:
        cluster["enableInTreeAutoscaling"] = True
        cluster["autoscalerOptions"] = {"resources": {"requests": {"cpu": "1"}}}
    return {
        "suspend": False,
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": template(plan),
        "rayClusterSpec": cluster,
    }


def _pytorch_job(plan: Plan) -> Tree:
    """A master, and the other pods as workers."""

    def replicas(pods: int) -> Tree:
        return {"replicas": pods, "restartPolicy": "Never", "template": template(plan)}

    workers = {"Worker": replicas(plan.count - 1)} if plan.count > 1 else {}
    return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Master": replicas(1), **workers}}


def _serving(plan: Plan) -> Tree:
    """The template of pods that a controller keeps running."""
    found = template(plan)
    del found["spec"]["restartPolicy"]
    found.setdefault("metadata", {})["labels"] = {APP: plan.name}
    return found


def _replicas(plan: Plan) -> Tree:
    return {"replicas": plan.count, "selector": {"matchLabels": {APP: plan.name}}, "template": _serving(plan)}


def _stateful_set(plan: Plan) -> Tree:
    return {**_replicas(plan), "serviceName": plan.name}


def _leader_worker_set(plan: Plan) -> Tree:
    """Groups of a leader and a worker."""
    return {
        "replicas": plan.count,
        "leaderWorkerTemplate": {"size": 2, "leaderTemplate": _serving(plan), "workerTemplate": _serving(plan)},
    }


_SPECS: Final[Mapping[str, Callable[[Plan], Tree]]] = {
    "Job": _job,
    "JobSet": _job_set,
    "RayCluster": _ray_cluster,
    "RayJob": _ray_job,
    "PyTorchJob": _pytorch_job,
    "Deployment": _replicas,
    "StatefulSet": _stateful_set,
    "LeaderWorkerSet": _leader_worker_set,
}


def cluster_name(ray_job: Tree) -> str:
    return f"{name_of(ray_job)}-cluster"


def cluster_of(ray_job: Tree) -> Tree:
    """The RayCluster that KubeRay creates, with the labels and annotations of its RayJob."""
    metadata = ray_job["metadata"]
    owner = {"apiVersion": ray_job["apiVersion"], "kind": "RayJob", "name": metadata["name"], "uid": metadata["uid"]}
    found = thing(
        "RayCluster",
        cluster_name(ray_job),
        ray_job["spec"]["rayClusterSpec"],
        metadata["namespace"],
        ray_job["apiVersion"],
    )
    found["metadata"] |= {
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return found


def _marked(plan: Plan, found: Tree) -> Tree:
    """A job with its queue, its priority and its other labels and annotations."""
    labels = {"kueue.x-k8s.io/priority-class": f"class-{plan.priority}"}
    if plan.queue:
        labels["kueue.x-k8s.io/queue-name"] = plan.queue
    if plan.prebuilt:
        labels["kueue.x-k8s.io/prebuilt-workload-name"] = plan.prebuilt
    if plan.limit_seconds is not None:
        labels["kueue.x-k8s.io/max-exec-time-seconds"] = str(plan.limit_seconds)
    found["metadata"]["labels"] = labels
    if plan.min_count is not None:
        found["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": str(plan.min_count)}
    if plan.is_elastic:
        found["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    return found


def pod(plan: Plan, number: int) -> Tree:
    """One pod of a plan; every one has its own number."""
    found = template(plan)
    labels = {PLAN: plan.name, "kueue.x-k8s.io/queue-name": plan.queue}
    labels["kueue.x-k8s.io/priority-class"] = f"class-{plan.priority}"
    notes = found.get("metadata", {}).get("annotations", {})
    if plan.count > 1:
        labels["kueue.x-k8s.io/pod-group-name"] = plan.name
        notes = {**notes, "kueue.x-k8s.io/pod-group-total-count": str(plan.count)}
    metadata = {"name": f"{plan.name}-{number}", "namespace": plan.namespace, "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found["spec"]}


def priority_classes() -> Iterator[Tree]:
    for value in range(4):
        found = thing("WorkloadPriorityClass", f"class-{value}", {})
        del found["spec"]
        yield {**found, "value": value}
