"""Scenarios as text: a small world, commands, and beneath them the story that comes of it.

    # A queue borrows what its cohort leaves, and no more. [TR8]
    cluster-queue a  cohort=eng cpu=10+5
    cluster-queue b  cohort=eng cpu=10
    holds         b1 queue=b cpu=8
    submit        a1 queue=a cpu=14
    cycle
    ----
    a1 waits (WaitingForQuota): cpu of flavor default: 14 asked, 12 free, 2 short

A file holds scenarios one after another, each begun by its `#` line. What is said of an object follows its name as
`word=value` or a bare word. Quota is `resource=nominal`, `+borrowing limit`, `-lending limit`, with `flavor/` in front where
it is not the flavor `default`. Flavors, LocalQueues (named as their ClusterQueue) and the namespace `ns` exist once they
are named. Times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kubemachinery import codec, meta
from pykueue.api import kube, kueue, labels, topology_encoding
from pykueue.api.config import ResourceTransformation
from pykueue.core import messages, requests
from pykueue.core.decision import Admit, Decision, Evict, Preempt, SecondPassFailed, Wait
from pykueue.core.policy import GATES, FairSharingStrategy, SchedulingPolicy, UsageHistory
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.core.topology import PlacementOptions
from pykueue.state.intake import WatchedObject
from pykueue.state.world import World

DAY = meta.parse_time("2026-01-01T00:00:00Z")
NAMESPACE = "ns"
Words = dict[str, str]


@dataclass(frozen=True)
class Scenario:
    """One scenario of a file: its title, its commands and the story that is expected."""

    file: Path
    title: str
    commands: tuple[str, ...]
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"# {self.title}", *self.commands, "----", *self.expected])


def read(file: Path) -> list[Scenario]:
    found = []
    for part in re.split(r"(?m)^(?=# )", file.read_text())[1:]:
        title, *lines = part.strip().splitlines()
        commands, _, scenario_runner = "\n".join(lines).partition("----")
        found.append(
            Scenario(
                file,
                title.removeprefix("# "),
                tuple(commands.strip().splitlines()),
                tuple(scenario_runner.strip().splitlines()),
            )
        )
    return found


def tell(scenario: Scenario) -> tuple[str, ...]:
    """Run the commands; the story as it comes out."""
    teller = Teller()
    for line in scenario.commands:
        teller.run(line)
    return tuple(teller.scenario_runner)


@dataclass
class Teller:
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    transformations: list[ResourceTransformation] = field(default_factory=list)
    scenario_runner: list[str] = field(default_factory=list)
    _world: World | None = None
    _named: set[str] = field(default_factory=set)
    _workloads: dict[str, kueue.Workload] = field(default_factory=dict)
    _queues: dict[str, kueue.ClusterQueue] = field(default_factory=dict)
    _seconds: int = 0

    @property
    def world(self) -> World:
        if self._world is None:
            profile = PlacementOptions(elastic=self.policy.elastic_slices_with_topology)
            self._world = World(self.policy, accounting=requests.accounting((), self.transformations), profile=profile)
            self._world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), self.now)
        return self._world

    @property
    def now(self) -> int:
        return DAY + self._seconds * meta.SECOND

    def run(self, line: str) -> None:
        command, *rest = line.split()
        names = [word for word in rest if "=" not in word]
        said = dict(word.split("=", 1) for word in rest if "=" in word)
        _COMMANDS[command](self, names, said)

    # Choices.

    def gate(self, names: list[str], said: Words) -> None:
        known = set(GATES.values())
        assert said.keys() <= known, f"no such gate: {said.keys() - known}"
        self.policy = self.policy.with_gates({name: value == "on" for name, value in said.items()})

    def fair_sharing(self, names: list[str], said: Words) -> None:
        strategies = tuple(FairSharingStrategy(name) for name in names) or tuple(FairSharingStrategy)
        self.policy = replace(self.policy, fair_sharing=strategies)

    def ignore_undeclared(self, names: list[str], said: Words) -> None:
        self.policy = replace(self.policy, ignore_undeclared=True)

    def as_kueue(self, names: list[str], said: Words) -> None:
        self.policy = replace(self.policy, departures=False)

    def history(self, names: list[str], said: Words) -> None:
        past = UsageHistory(float(said["half-life"]), float(said["interval"]), {})
        self.policy = replace(self.policy, usage_history=past)

    def transform(self, names: list[str], said: Words) -> None:
        """What one unit of a resource counts as; `replace` where it does not count itself."""
        strategy = "Replace" if "replace" in names else "Retain"
        self.transformations.append(ResourceTransformation(input=names[0], strategy=strategy, outputs=dict(said)))

    # Objects.

    def limit_range(self, names: list[str], said: Words) -> None:
        limits = kube.LimitRangeItem(type="Container", default_request={"cpu": said["default-request"]})
        metadata = meta.ObjectMeta(name="limits", namespace=NAMESPACE)
        self._put(kube.LimitRange(metadata=metadata, spec=kube.LimitRangeSpec(limits=(limits,))))

    def topology(self, names: list[str], said: Words) -> None:
        levels = tuple(kueue.TopologyLevel(node_label=_level(level)) for level in said["levels"].split(","))
        self._put(kueue.Topology(metadata=meta.ObjectMeta(name=names[0]), spec=kueue.TopologySpec(levels=levels)))

    def node(self, names: list[str], said: Words) -> None:
        name = names[0]
        taints = (kube.Taint(key="tainted", value="yes", effect="NoSchedule"),) if "tainted" in names else ()
        domains = {_level(word): value for word, value in said.items() if word in ("block", "rack", "zone")}
        self._put(
            kube.Node(
                metadata=meta.ObjectMeta(name=name, labels={**domains, _level("host"): name}),
                spec=kube.NodeSpec(taints=taints),
                status=kube.NodeStatus(
                    allocatable={"cpu": said["cpu"], "pods": said.get("pods", "99")},
                    conditions=(kube.NodeCondition(type="Ready", status="True"),),
                ),
            )
        )

    def local_queue(self, names: list[str], said: Words) -> None:
        used = kueue.AdmissionFairSharingStatus(
            consumed_resources={"cpu": said.get("consumed", "0")}, last_update=meta.format_time(DAY)
        )
        self._put(
            kueue.LocalQueue(
                metadata=meta.ObjectMeta(name=names[0], namespace=NAMESPACE),
                spec=kueue.LocalQueueSpec(cluster_queue=said["queue"], fair_sharing=_weight(said)),
                status=kueue.LocalQueueStatus(
                    fair_sharing=kueue.LocalQueueFairSharingStatus(admission_fair_sharing_status=used)
                ),
            )
        )

    def flavor(self, names: list[str], said: Words) -> None:
        node_labels = dict(pair.split(":", 1) for pair in said.get("labels", "").split(",") if pair)
        taints = tuple(
            kube.Taint(key=key, value=value, effect=effect)
            for key, value, effect in (taint.split(":") for taint in said.get("taints", "").split(",") if taint)
        )
        self._put(
            kueue.ResourceFlavor(
                metadata=meta.ObjectMeta(name=names[0]),
                spec=kueue.ResourceFlavorSpec(
                    node_labels=node_labels, node_taints=taints, topology_name=said.get("topology", "")
                ),
            )
        )
        self._named.add(names[0])

    def cohort(self, names: list[str], said: Words) -> None:
        self._put(
            kueue.Cohort(
                metadata=meta.ObjectMeta(name=names[0]),
                spec=kueue.CohortSpec(
                    parent_name=said.get("parent", ""), resource_groups=self._groups(said), fair_sharing=_weight(said)
                ),
            )
        )

    def drop_cohort(self, names: list[str], said: Words) -> None:
        self.world.drop(kueue.Cohort(metadata=meta.ObjectMeta(name=names[0])))

    def check(self, names: list[str], said: Words) -> None:
        active = meta.Condition(type="Active", status="False" if "inactive" in names else "True")
        self._put(
            kueue.AdmissionCheck(
                metadata=meta.ObjectMeta(name=names[0]),
                spec=kueue.AdmissionCheckSpec(
                    controller_name="example.com/check",
                    preemption_policy="AfterCheckPassedOrOnDemand" if "waits-with-preemption" in names else "Anytime",
                ),
                status=kueue.AdmissionCheckStatus(conditions=(active,)),
            )
        )

    def cluster_queue(self, names: list[str], said: Words) -> None:
        name = names[0]
        borrow = None
        if "borrow-within" in said:
            threshold = int(said["threshold"]) if "threshold" in said else None
            borrow = kueue.BorrowWithinCohort(policy=said["borrow-within"], max_priority_threshold=threshold)
        rules = tuple(kueue.AdmissionCheckStrategyRule(name=c) for c in said.get("checks", "").split(",") if c)
        queue = kueue.ClusterQueue(
            metadata=meta.ObjectMeta(name=name),
            spec=kueue.ClusterQueueSpec(
                cohort_name=said.get("cohort", ""),
                resource_groups=self._groups(said),
                namespace_selector=None if "selects-nothing" in names else meta.LabelSelector(),
                queueing_strategy="StrictFIFO" if "strict" in names else "BestEffortFIFO",
                stop_policy="Hold" if "stopped" in names else "None",
                admission_scope=(
                    kueue.AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing")
                    if "usage-based" in names
                    else None
                ),
                fair_sharing=_weight(said),
                preemption=kueue.ClusterQueuePreemption(
                    within_cluster_queue=said.get("within", "Never"),
                    reclaim_within_cohort=said.get("reclaim", "Never"),
                    borrow_within_cohort=borrow,
                ),
                flavor_fungibility=kueue.FlavorFungibility(
                    when_can_borrow=said.get("when-can-borrow", "MayStopSearch"),
                    when_can_preempt=said.get("when-can-preempt", "TryNextFlavor"),
                    preference=said.get("preference"),
                ),
                admission_checks_strategy=kueue.AdmissionChecksStrategy(admission_checks=rules) if rules else None,
                concurrent_admission_policy=_concurrent(said) if "concurrent" in names else None,
            ),
        )
        self._put(queue)
        self._queues[name] = queue
        if name not in self._named:
            self._named.add(name)
            self._put(
                kueue.LocalQueue(
                    metadata=meta.ObjectMeta(name=name, namespace=NAMESPACE),
                    spec=kueue.LocalQueueSpec(cluster_queue=name),
                )
            )

    def submit(self, names: list[str], said: Words) -> None:
        for name in names:
            self._workloads[name] = self._workload(name, said)
            self._put(self._workloads[name])

    def holds(self, names: list[str], said: Words) -> None:
        """A Workload that has its reservation; `evicted` while it is on its way out."""
        name, *flags = names
        pending = self._workload(name, said)
        since = meta.format_time(DAY + int(said.get("since", said.get("at", "0"))) * meta.SECOND)
        assigned = tuple(
            kueue.PodSetAssignment(
                name=pod_set.name,
                count=int(said.get("assigned", pod_set.count)),
                flavors={resource: said.get("flavor", "default") for resource in self._used(said)},
                resource_usage={
                    resource: _times(amount, int(said.get("assigned", pod_set.count)))
                    for resource, amount in self._used(said).items()
                },
                topology_assignment=_placement(said),
            )
            for pod_set in pending.spec.pod_sets
        )
        told = [("QuotaReserved", "QuotaReserved"), ("Admitted", "Admitted")]
        told += [("Evicted", "Preempted")] if "evicted" in flags else []
        status = kueue.WorkloadStatus(
            admission=kueue.Admission(cluster_queue=said["queue"], pod_set_assignments=assigned),
            conditions=tuple(
                meta.Condition(type=kind, status="True", reason=reason, last_transition_time=since)
                for kind, reason in told
            ),
            reclaimable_pods=_reclaimable(said),
            unhealthy_nodes=(kueue.UnhealthyNode(name=said["lost"]),) if "lost" in said else (),
        )
        self._workloads[name] = msgspec.structs.replace(pending, status=status)
        self._put(self._workloads[name])

    def finish(self, names: list[str], said: Words) -> None:
        for name in names:
            done = meta.Condition(type="Finished", status="True", reason="Succeeded")
            before = self._workloads[name]
            self._put(msgspec.structs.replace(before, status=kueue.WorkloadStatus(conditions=(done,))))

    def stop(self, names: list[str], said: Words) -> None:
        """The jobs of evicted Workloads have ended: they are pending again."""
        for name in names:
            before = self._workloads[name]
            self._put(msgspec.structs.replace(before, status=kueue.WorkloadStatus()))

    def wait(self, names: list[str], said: Words) -> None:
        self._seconds += int(names[0])

    # Questions.

    def cycle(self, names: list[str], said: Words) -> None:
        for decision in sorted(self.world.decide(self.now), key=lambda d: d.workload):
            self.scenario_runner.append(_told(decision))

    def recheck(self, names: list[str], said: Words) -> None:
        for name in names:
            verdict = self.world.recheck(f"{NAMESPACE}/{name}", self.now)
            match verdict:
                case Holds():
                    self.scenario_runner.append(f"{name}'s reservation holds")
                case HoldsAfter():
                    targets = ", ".join(f"{_short(v.key)} ({v.reason})" for v in verdict.targets)
                    self.scenario_runner.append(f"{name}'s reservation holds once these are gone: {targets}")
                case Lost():
                    self.scenario_runner.append(f"{name}'s reservation does not hold: {verdict.why}")

    def queues(self, names: list[str], said: Words) -> None:
        self.world.settle(self.now)
        for name in names or sorted(self._queues):
            queue = self.world.queues[name]
            in_line = " ".join(sorted(_short(w.key) for w in queue.active())) or "-"
            parked = " ".join(sorted(_short(w.key) for w in queue.parked())) or "-"
            self.scenario_runner.append(f"{name}: in line {in_line}, parked {parked}")

    def usage(self, names: list[str], said: Words) -> None:
        self.world.settle(self.now)
        for name in names:
            node = self.world.snapshot().queues[name].node
            used = {node.tree.pairs[n]: node.usage[n] for n in range(len(node.tree.pairs))}
            told = ", ".join(f"{pair.resource} {amount / 1000:g}" for pair, amount in sorted(used.items()) if amount)
            self.scenario_runner.append(f"{name} uses {told or 'nothing'}")

    def _used(self, said: Words) -> dict[str, str]:
        """What a reservation uses per pod: a queue that covers `pods` counts them too."""
        groups = self._queues[said["queue"]].spec.resource_groups if said["queue"] in self._queues else ()
        counts_pods = any("pods" in group.covered_resources for group in groups)
        return {**_requests(said), **({"pods": "1"} if counts_pods else {})}

    def _put(self, thing: WatchedObject) -> None:
        self.world.put(thing, self.now)

    def _groups(self, said: Words) -> tuple[kueue.ResourceGroup, ...]:
        """Resources that share their flavors are one group."""
        quotas: dict[str, dict[str, kueue.ResourceQuota]] = {}
        for word, value in said.items():
            flavor, _, resource = word.rpartition("/")
            amount = re.fullmatch(r"([^+-]+)(?:\+([^-]+))?(?:-(.+))?", value)
            if (flavor or resource in _RESOURCES) and amount is not None:
                nominal, borrowing, lending = amount.groups()
                quotas.setdefault(flavor or "default", {})[resource] = kueue.ResourceQuota(
                    name=resource, nominal_quota=nominal, borrowing_limit=borrowing, lending_limit=lending
                )
        for flavor in quotas:
            if flavor not in self._named:
                self.flavor([flavor], {})
        groups: dict[tuple[str, ...], list[kueue.FlavorQuotas]] = {}
        for flavor, of_flavor in quotas.items():
            listed = kueue.FlavorQuotas(name=flavor, resources=tuple(of_flavor.values()))
            groups.setdefault(tuple(of_flavor), []).append(listed)
        return tuple(
            kueue.ResourceGroup(covered_resources=resources, flavors=tuple(flavors))
            for resources, flavors in groups.items()
        )

    def _workload(self, name: str, said: Words) -> kueue.Workload:
        selector = dict(pair.split(":", 1) for pair in said.get("selects", "").split(",") if pair)
        limits: dict[str, str | int | float] = {"cpu": said["limit"]} if "limit" in said else {}
        needs = kube.ResourceRequirements(requests=dict(_requests(said)), limits=limits)
        container = kube.Container(name="c", resources=needs)
        pod_set = kueue.PodSet(
            name="main",
            count=int(said.get("count", "1")),
            min_count=int(said["min"]) if "min" in said else None,
            template=kube.PodTemplateSpec(
                spec=kube.PodSpec(
                    containers=(container,), init_containers=_first_containers(said), node_selector=selector
                )
            ),
            topology_request=_topology_request(said),
        )
        created = DAY + int(said.get("at", "0")) * meta.SECOND
        status = kueue.WorkloadStatus(reclaimable_pods=_reclaimable(said), preemption_gates=_opened(said))
        if "evicted-for" in said:
            reason, since = said["evicted-for"].split("@")
            evicted = meta.Condition(
                type="Evicted",
                status="True",
                reason=reason,
                last_transition_time=meta.format_time(DAY + int(since) * meta.SECOND),
            )
            status = msgspec.structs.replace(status, conditions=(evicted,))
        return kueue.Workload(
            metadata=meta.ObjectMeta(
                name=name,
                namespace=NAMESPACE,
                uid=name,
                generation=int(said.get("generation", "1")),
                annotations=_annotations(said),
                owner_references=_owners(said),
                creation_timestamp=meta.format_time(created),
            ),
            spec=kueue.WorkloadSpec(
                queue_name=said.get("via", said["queue"]),
                priority=int(said.get("priority", "0")),
                pod_sets=(pod_set,),
                preemption_gates=tuple(kueue.PreemptionGate(name=name) for name in _named(said, "gates")),
            ),
            status=status,
        )


_RESOURCES = ("cpu", "memory", "pods", "gpu")
_NOT_IN_QUOTA = ("widget", "socket")
_COMMANDS: dict[str, Callable[[Teller, list[str], Words], None]] = {
    "gate": Teller.gate,
    "fair-sharing": Teller.fair_sharing,
    "ignore-undeclared": Teller.ignore_undeclared,
    "as-kueue": Teller.as_kueue,
    "history": Teller.history,
    "transform": Teller.transform,
    "limit-range": Teller.limit_range,
    "topology": Teller.topology,
    "node": Teller.node,
    "local-queue": Teller.local_queue,
    "flavor": Teller.flavor,
    "cohort": Teller.cohort,
    "drop-cohort": Teller.drop_cohort,
    "check": Teller.check,
    "cluster-queue": Teller.cluster_queue,
    "submit": Teller.submit,
    "holds": Teller.holds,
    "finish": Teller.finish,
    "stop": Teller.stop,
    "wait": Teller.wait,
    "cycle": Teller.cycle,
    "recheck": Teller.recheck,
    "queues": Teller.queues,
    "usage": Teller.usage,
}


def _requests(said: Words) -> dict[str, str]:
    return {
        resource: said[resource]
        for resource in (*_RESOURCES, *_NOT_IN_QUOTA)
        if resource in said and resource != "pods"
    }


def _first_containers(said: Words) -> tuple[kube.Container, ...]:
    """`init=3,sidecar:1`: the cpu of each container that starts before the main one, in this order."""
    return tuple(
        kube.Container(
            name=f"i{n}",
            resources=kube.ResourceRequirements(requests={"cpu": word.removeprefix("sidecar:")}),
            restart_policy="Always" if word.startswith("sidecar:") else "",
        )
        for n, word in enumerate(word for word in said.get("init", "").split(",") if word)
    )


def _named(said: Words, word: str) -> list[str]:
    return [name for name in said.get(word, "").split(",") if name]


def _opened(said: Words) -> tuple[kueue.PreemptionGateState, ...]:
    """`gates=g,h opened=g`: preemption gates of the spec, and those that are open in the status."""
    since = meta.format_time(DAY)
    return tuple(
        kueue.PreemptionGateState(name=name, position="Open", last_transition_time=since)
        for name in _named(said, "opened")
    )


def _concurrent(said: Words) -> kueue.ConcurrentAdmissionPolicy:
    """`concurrent last=f`: Workloads are tried on every flavor, and may move to one not behind `f`."""
    constraints = kueue.ConcurrentAdmissionConstraints(last_acceptable_flavor_name=said.get("last"))
    return kueue.ConcurrentAdmissionPolicy(
        migration=kueue.ConcurrentAdmissionMigration(
            mode="TryPreferredFlavors", constraints=constraints if "last" in said else None
        )
    )


def _owners(said: Words) -> tuple[meta.OwnerReference, ...]:
    """`variant-of=p allowed=f`: the variant of a Workload for one flavor."""
    if "variant-of" not in said:
        return ()
    name = said["variant-of"]
    return (meta.OwnerReference(api_version=kueue.API_VERSION, kind="Workload", name=name, uid=name),)


def _annotations(said: Words) -> dict[str, str]:
    """`elastic=yes`: the Workload of an elastic job; `replaces=w`: a slice that takes over from another."""
    return {
        **({labels.ELASTIC_JOB: "true"} if "elastic" in said else {}),
        **({labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS: said["allowed"]} if "allowed" in said else {}),
        **({labels.WORKLOAD_SLICE_REPLACEMENT_FOR: f"{NAMESPACE}/{said['replaces']}"} if "replaces" in said else {}),
    }


def _level(word: str) -> str:
    return {"host": "kubernetes.io/hostname"}.get(word, f"example.com/{word}")


def _topology_request(said: Words) -> kueue.PodSetTopologyRequest | None:
    if "required" in said:
        return kueue.PodSetTopologyRequest(required=_level(said["required"]))
    if "preferred" in said:
        return kueue.PodSetTopologyRequest(preferred=_level(said["preferred"]))
    if "unconstrained" in said:
        return kueue.PodSetTopologyRequest(unconstrained=True)
    return None


def _placement(said: Words) -> kueue.TopologyAssignment | None:
    """`on=n1:2,n2:1`: so many pods on each node."""
    if "on" not in said:
        return None
    pods = [place.split(":") for place in said["on"].split(",")]
    tree = topology_encoding.encode(
        [_level("host")], [topology_encoding.EncodedDomain((node,), int(count)) for node, count in pods]
    )
    return codec.from_tree(tree, kueue.TopologyAssignment)


def _times(amount: str, count: int) -> str:
    return str(int(amount) * count) if amount.isdigit() else amount


def _reclaimable(said: Words) -> tuple[kueue.ReclaimablePod, ...]:
    return (kueue.ReclaimablePod(name="main", count=int(said["done"])),) if "done" in said else ()


def _weight(said: Words) -> kueue.FairSharing | None:
    return kueue.FairSharing(weight=said["weight"]) if "weight" in said else None


def _short(key: str) -> str:
    return key.removeprefix(f"{NAMESPACE}/")


def _told(decision: Decision) -> str:
    name = _short(decision.workload)
    match decision:
        case Admit():
            flavors = sorted({flavor for pod_set in decision.pod_sets for flavor in pod_set.flavors.values()})
            pods = sum(pod_set.count for pod_set in decision.pod_sets)
            outcome = "admitted" if decision.is_admitted else "reserves quota"
            assumes = ", ".join(_short(victim.key) for victim in decision.assumed_targets)
            later = f", to preempt {assumes} later" if assumes else ""
            places = [d for p in decision.pod_sets if p.placement for d in p.placement.domains]
            placed = " at " + ", ".join(f"{'/'.join(d.values)}: {d.count}" for d in places) if places else ""
            return f"{name} {outcome}: {pods} on {', '.join(flavors) or 'no flavor'}{placed}{later}"
        case Preempt():
            if decision.migrates:
                return f"{name} evicts {_short(decision.migrates)} to take its place on a better flavor"
            targets = ", ".join(f"{_short(v.key)} ({v.reason})" for v in decision.targets)
            return f"{name} preempts {targets}"
        case Wait():
            why = "; ".join(messages.of_decision(decision))
            return f"{name} waits ({decision.reason})" + (f": {why}" if why else "")
        case SecondPassFailed():
            return f"{name} tries again"
        case Evict():
            return f"{name} is evicted"
    raise AssertionError(decision)


def rewrite(file: Path, stories: Iterator[tuple[Scenario, tuple[str, ...]]]) -> None:
    """Write down the stories as they came out, to be reviewed as prose."""
    told: list[Any] = [str(replace(scenario, expected=scenario_runner)) for scenario, scenario_runner in stories]
    file.write_text("\n\n".join(told) + "\n")
