"""Scenarios as text: a small cluster, commands, and below the line the expected output.

    # A queue borrows what its cohort leaves, and no more. [TR8]
    cluster-queue a  cohort=eng cpu=10+5
    cluster-queue b  cohort=eng cpu=10
    holds         b1 queue=b cpu=8
    submit        a1 queue=a cpu=14
    cycle
    ----
    a1 waits (WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed

A file holds scenarios one after another, each begun by its `#` line. The options of an object follow its name as
`word=value` or a bare word. Quota is `resource=nominal`, `+borrowing limit`, `-lending limit`, with `flavor/` in front where
it is not the flavor `default`. Flavors, LocalQueues (named as their ClusterQueue) and the namespace `ns` exist once they
are named. Times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from msgspec import structs

from kubemachinery import codec, meta, quantity
from pykueue.api import backfill, kube, kueue, labels, topology_encoding
from pykueue.api.config import ResourceTransformation
from pykueue.core import amounts, messages, requests
from pykueue.core.decision import Admit, Decision, Evict, Preempt, SecondPassFailed, Wait
from pykueue.core.policy import GATES, FairSharingStrategy, SchedulingPolicy, UsageHistory
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.core.topology import PlacementOptions
from pykueue.state.intake import WatchedObject
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan
from pykueue.state.world import World

DAY = meta.parse_time("2026-01-01T00:00:00Z")
NAMESPACE = "ns"
Options = dict[str, str]


@dataclass(frozen=True)
class Scenario:
    """One scenario of a file: its title, its commands and the expected output."""

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
        commands, _, expected = "\n".join(lines).partition("----")
        found.append(
            Scenario(
                file,
                title.removeprefix("# "),
                tuple(commands.strip().splitlines()),
                tuple(expected.strip().splitlines()),
            )
        )
    return found


def run(scenario: Scenario) -> tuple[str, ...]:
    """Run the commands and return the output."""
    runner = ScenarioRunner()
    for line in scenario.commands:
        runner.run(line)
    return tuple(runner.output)


@dataclass
class ScenarioRunner:
    """Runs the commands of one scenario on a `World`; every command appends its lines to `output`."""

    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    transformations: list[ResourceTransformation] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    _world: World | None = None
    _named: set[str] = field(default_factory=set)
    _workloads: dict[str, kueue.Workload] = field(default_factory=dict)
    _queues: dict[str, kueue.ClusterQueue] = field(default_factory=dict)
    _announced: dict[str, int | None] = field(default_factory=dict)  # the planned starts of Workloads
    _schedules: dict[str, ScheduledWindows] = field(default_factory=dict)
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
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        _COMMANDS[command](self, names, options)

    # Settings.

    def gate(self, names: list[str], options: Options) -> None:
        known = set(GATES.values())
        assert options.keys() <= known, f"no such gate: {options.keys() - known}"
        self.policy = self.policy.with_gates({name: value == "on" for name, value in options.items()})

    def fair_sharing(self, names: list[str], options: Options) -> None:
        strategies = tuple(FairSharingStrategy(name) for name in names) or tuple(FairSharingStrategy)
        self.policy = structs.replace(self.policy, fair_sharing=strategies)

    def ignore_undeclared(self, names: list[str], options: Options) -> None:
        self.policy = structs.replace(self.policy, ignore_undeclared=True)

    def as_kueue(self, names: list[str], options: Options) -> None:
        self.policy = structs.replace(self.policy, departures=False)

    def history(self, names: list[str], options: Options) -> None:
        past = UsageHistory(float(options["half-life"]), float(options["interval"]), {})
        self.policy = structs.replace(self.policy, usage_history=past)

    def transform(self, names: list[str], options: Options) -> None:
        """What one unit of a resource counts as; `replace` where it does not count itself."""
        strategy = "Replace" if "replace" in names else "Retain"
        self.transformations.append(ResourceTransformation(input=names[0], strategy=strategy, outputs=dict(options)))

    # Objects.

    def limit_range(self, names: list[str], options: Options) -> None:
        limits = kube.LimitRangeItem(type="Container", default_request={"cpu": options["default-request"]})
        metadata = meta.ObjectMeta(name="limits", namespace=NAMESPACE)
        self._put(kube.LimitRange(metadata=metadata, spec=kube.LimitRangeSpec(limits=(limits,))))

    def topology(self, names: list[str], options: Options) -> None:
        levels = tuple(kueue.TopologyLevel(node_label=_level(level)) for level in options["levels"].split(","))
        self._put(kueue.Topology(metadata=meta.ObjectMeta(name=names[0]), spec=kueue.TopologySpec(levels=levels)))

    def node(self, names: list[str], options: Options) -> None:
        name = names[0]
        taints = (kube.Taint(key="tainted", value="yes", effect="NoSchedule"),) if "tainted" in names else ()
        domains = {_level(word): value for word, value in options.items() if word in ("block", "rack", "zone")}
        self._put(
            kube.Node(
                metadata=meta.ObjectMeta(name=name, labels={**domains, _level("host"): name}),
                spec=kube.NodeSpec(taints=taints),
                status=kube.NodeStatus(
                    allocatable={"cpu": options["cpu"], "pods": options.get("pods", "99")},
                    conditions=(kube.NodeCondition(type="Ready", status="True"),),
                ),
            )
        )

    def local_queue(self, names: list[str], options: Options) -> None:
        used = kueue.AdmissionFairSharingStatus(
            consumed_resources={"cpu": options.get("consumed", "0")}, last_update=meta.format_time(DAY)
        )
        self._put(
            kueue.LocalQueue(
                metadata=meta.ObjectMeta(name=names[0], namespace=NAMESPACE),
                spec=kueue.LocalQueueSpec(cluster_queue=options["queue"], fair_sharing=_weight(options)),
                status=kueue.LocalQueueStatus(
                    fair_sharing=kueue.LocalQueueFairSharingStatus(admission_fair_sharing_status=used)
                ),
            )
        )

    def flavor(self, names: list[str], options: Options) -> None:
        node_labels = dict(pair.split(":", 1) for pair in options.get("labels", "").split(",") if pair)
        taints = tuple(
            kube.Taint(key=key, value=value, effect=effect)
            for key, value, effect in (taint.split(":") for taint in options.get("taints", "").split(",") if taint)
        )
        self._put(
            kueue.ResourceFlavor(
                metadata=meta.ObjectMeta(name=names[0]),
                spec=kueue.ResourceFlavorSpec(
                    node_labels=node_labels, node_taints=taints, topology_name=options.get("topology", "")
                ),
            )
        )
        self._named.add(names[0])

    def cohort(self, names: list[str], options: Options) -> None:
        self._put(
            kueue.Cohort(
                metadata=meta.ObjectMeta(name=names[0]),
                spec=kueue.CohortSpec(
                    parent_name=options.get("parent", ""),
                    resource_groups=self._groups(options),
                    fair_sharing=_weight(options),
                ),
            )
        )

    def drop_cohort(self, names: list[str], options: Options) -> None:
        self.world.drop(kueue.Cohort(metadata=meta.ObjectMeta(name=names[0])))

    def check(self, names: list[str], options: Options) -> None:
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

    def cluster_queue(self, names: list[str], options: Options) -> None:
        name = names[0]
        borrow = None
        if "borrow-within" in options:
            threshold = int(options["threshold"]) if "threshold" in options else None
            borrow = kueue.BorrowWithinCohort(policy=options["borrow-within"], max_priority_threshold=threshold)
        rules = tuple(kueue.AdmissionCheckStrategyRule(name=c) for c in options.get("checks", "").split(",") if c)
        queue = kueue.ClusterQueue(
            metadata=meta.ObjectMeta(name=name, annotations=_backfill(options)),
            spec=kueue.ClusterQueueSpec(
                cohort_name=options.get("cohort", ""),
                resource_groups=self._groups(options),
                namespace_selector=None if "selects-nothing" in names else meta.LabelSelector(),
                queueing_strategy="StrictFIFO" if "strict" in names else "BestEffortFIFO",
                stop_policy="Hold" if "stopped" in names else "None",
                admission_scope=(
                    kueue.AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing")
                    if "usage-based" in names
                    else None
                ),
                fair_sharing=_weight(options),
                preemption=kueue.ClusterQueuePreemption(
                    within_cluster_queue=options.get("within", "Never"),
                    reclaim_within_cohort=options.get("reclaim", "Never"),
                    borrow_within_cohort=borrow,
                ),
                flavor_fungibility=kueue.FlavorFungibility(
                    when_can_borrow=options.get("when-can-borrow", "MayStopSearch"),
                    when_can_preempt=options.get("when-can-preempt", "TryNextFlavor"),
                    preference=options.get("preference"),
                ),
                admission_checks_strategy=kueue.AdmissionChecksStrategy(admission_checks=rules) if rules else None,
                concurrent_admission_policy=_concurrent(options) if "concurrent" in names else None,
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

    def submit(self, names: list[str], options: Options) -> None:
        for name in names:
            self._workloads[name] = self._workload(name, options)
            self._put(self._workloads[name])

    def holds(self, names: list[str], options: Options) -> None:
        """A Workload with a reservation; `evicted` while it is being evicted; `unplaced` while its checks are Ready and its
        placement is delayed."""
        name, *flags = names
        pending = self._workload(name, options)
        since = meta.format_time(DAY + int(options.get("since", options.get("at", "0"))) * meta.SECOND)
        assigned = tuple(
            kueue.PodSetAssignment(
                name=pod_set.name,
                count=int(options.get("assigned", pod_set.count)),
                flavors={resource: options.get("flavor", "default") for resource in self._used(options)},
                resource_usage={
                    resource: _times(amount, int(options.get("assigned", pod_set.count)))
                    for resource, amount in self._used(options).items()
                },
                topology_assignment=_placement(options),
                delayed_topology_request="Pending" if "unplaced" in flags else None,
            )
            for pod_set in pending.spec.pod_sets
        )
        shown = [("QuotaReserved", "QuotaReserved")]
        shown += [("Admitted", "Admitted")] if "unplaced" not in flags else []
        shown += [("Evicted", "Preempted")] if "evicted" in flags else []
        status = kueue.WorkloadStatus(
            admission=kueue.Admission(cluster_queue=options["queue"], pod_set_assignments=assigned),
            conditions=tuple(
                meta.Condition(type=kind, status="True", reason=reason, last_transition_time=since)
                for kind, reason in shown
            ),
            admission_checks=(kueue.AdmissionCheckState(name="c", state="Ready"),) if "unplaced" in flags else (),
            reclaimable_pods=_reclaimable(options),
            unhealthy_nodes=(kueue.UnhealthyNode(name=options["lost"]),) if "lost" in options else (),
        )
        self._workloads[name] = msgspec.structs.replace(pending, status=status)
        self._put(self._workloads[name])

    def finish(self, names: list[str], options: Options) -> None:
        for name in names:
            done = meta.Condition(type="Finished", status="True", reason="Succeeded")
            before = self._workloads[name]
            self._put(msgspec.structs.replace(before, status=kueue.WorkloadStatus(conditions=(done,))))

    def stop(self, names: list[str], options: Options) -> None:
        """The jobs of evicted Workloads have stopped: the Workloads are pending again. `preempted=reason`: with the
        condition `Preempted` since now."""
        since = meta.format_time(self.now)
        shown = tuple(
            meta.Condition(type="Preempted", status="True", reason=options[word], last_transition_time=since)
            for word in ("preempted",)
            if word in options
        )
        for name in names:
            before = self._workloads[name]
            self._workloads[name] = msgspec.structs.replace(before, status=kueue.WorkloadStatus(conditions=shown))
            self._put(self._workloads[name])

    def schedule(self, names: list[str], options: Options) -> None:
        """A QuotaSchedule with one window, named `w`. Targets are `queue/flavor/resource=nominal`, or of a Cohort with
        `cohort:` in front; `+n` and `-n` are a change. `from` and `to` are seconds; with `every`, it begins again that often until `last`."""
        name, *flags = names
        start, end, every = (int(options.get(word, 0)) for word in ("from", "to", "every"))
        begins = range(start, int(options["last"]) + 1, every) if every else (start,)
        self._schedules[name] = ScheduledWindows(
            name,
            tuple(_window_quota(cell, text) for cell, text in options.items() if "/" in cell),
            tuple(WindowSpan("w", DAY + at * meta.SECOND, DAY + (at + end - start) * meta.SECOND) for at in begins),
            ends_before="ends-before" in flags,
            repeats=bool(every),
        )
        self.world.set_windows(self._schedules.values(), self.now)

    def drop_schedule(self, names: list[str], options: Options) -> None:
        for name in names:
            del self._schedules[name]
        self.world.set_windows(self._schedules.values(), self.now)

    def wait(self, names: list[str], options: Options) -> None:
        self._seconds += int(names[0])

    # Commands with output.

    def cycle(self, names: list[str], options: Options) -> None:
        for decision in sorted(self.world.decide(self.now), key=lambda d: d.workload):
            self.output.append(_line(decision))

    def drain(self, names: list[str], options: Options) -> None:
        """Cycles until there is nothing to decide: the last decision for each Workload, and what became of plans."""
        last: dict[str, Decision] = {}
        while decisions := self.world.decide(self.now):
            last.update((decision.workload, decision) for decision in decisions)
        for _, decision in sorted(last.items()):
            self.output.append(_line(decision))
            if isinstance(decision, Wait) and decision.advice:
                self.output.append(f"  would let it in: {decision.advice}")
        for change in self.world.take_plan_changes():
            date = f" {meta.format_time(change.date)[11:]}" if change.date is not None else ""
            cause = f" ({change.cause})" if change.cause is not None else ""
            self.output.append(f"  {_short(change.workload)}: {change.event}{date}{cause}")
            self._announced[_short(change.workload)] = change.date

    def loops(self, names: list[str], options: Options) -> None:
        """The preemption loops that were found since the last such command."""
        found = self.world.take_new_loops()
        for loop in found:
            steps = ", ".join(f"{_short(step.preemptor)} preempts {_short(step.target)}" for step in loop.preemptions)
            self.output.append(f"{loop.title()} after {loop.rounds} rounds: {steps}")
        if not found:
            self.output.append("no new loop")

    def wake(self, names: list[str], options: Options) -> None:
        """The time of the next timer comes."""
        at = self.world.next_wake()
        assert at is not None, "there is no timer"
        self._seconds = (at - DAY) // meta.SECOND
        self.output.append(f"{meta.format_time(self.now)[11:]}")

    def restart(self, names: list[str], options: Options) -> None:
        """A new process reads the objects, with the dates that were announced. Admitted Workloads are put by `holds`."""
        held = {name: workload for name, workload in self._workloads.items() if workload.status.admission is not None}
        self._world = None
        for name in sorted(self._named):
            self._put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name=name)))
        for queue in self._queues.values():
            spec = kueue.LocalQueueSpec(cluster_queue=queue.metadata.name)
            self._put(queue)
            self._put(
                kueue.LocalQueue(metadata=meta.ObjectMeta(name=queue.metadata.name, namespace=NAMESPACE), spec=spec)
            )
        for name, workload in self._workloads.items():
            date = self._announced.get(name)
            if date is not None and name not in held:
                marks = {**workload.metadata.annotations, backfill.PLANNED_START: meta.format_time(date)}
                metadata = msgspec.structs.replace(workload.metadata, annotations=marks)
                workload = msgspec.structs.replace(workload, metadata=metadata)
            self._put(workload)
        self.world.set_windows(self._schedules.values(), self.now)

    def recheck(self, names: list[str], options: Options) -> None:
        for name in names:
            result = self.world.recheck(f"{NAMESPACE}/{name}", self.now)
            match result:
                case Holds():
                    self.output.append(f"{name}'s reservation holds")
                case HoldsAfter():
                    targets = ", ".join(f"{_short(v.key)} ({v.reason})" for v in result.targets)
                    self.output.append(f"{name}'s reservation holds once these are evicted: {targets}")
                case Lost():
                    self.output.append(f"{name}'s reservation does not hold: {result.why}")

    def queues(self, names: list[str], options: Options) -> None:
        self.world.settle(self.now)
        for name in names or sorted(self._queues):
            queue = self.world.queues[name]
            active = " ".join(sorted(_short(w.key) for w in queue.active())) or "-"
            inadmissible = " ".join(sorted(_short(w.key) for w in queue.parked())) or "-"
            self.output.append(f"{name}: active {active}, inadmissible {inadmissible}")

    def usage(self, names: list[str], options: Options) -> None:
        self.world.settle(self.now)
        for name in names:
            node = self.world.snapshot().queues[name].node
            used = {node.tree.pairs[n]: node.usage[n] for n in range(len(node.tree.pairs))}
            shown = ", ".join(f"{pair.resource} {amount / 1000:g}" for pair, amount in sorted(used.items()) if amount)
            self.output.append(f"{name} uses {shown or 'nothing'}")

    def _used(self, options: Options) -> dict[str, str]:
        """What a reservation uses per pod: a ClusterQueue that covers `pods` counts them, too."""
        groups = self._queues[options["queue"]].spec.resource_groups if options["queue"] in self._queues else ()
        counts_pods = any("pods" in group.covered_resources for group in groups)
        return {**_requests(options), **({"pods": "1"} if counts_pods else {})}

    def _put(self, thing: WatchedObject) -> None:
        self.world.put(thing, self.now)

    def _groups(self, options: Options) -> tuple[kueue.ResourceGroup, ...]:
        """Resources that share their flavors are one group."""
        quotas: dict[str, dict[str, kueue.ResourceQuota]] = {}
        for word, value in options.items():
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

    def _workload(self, name: str, options: Options) -> kueue.Workload:
        selector = dict(pair.split(":", 1) for pair in options.get("selects", "").split(",") if pair)
        limits: dict[str, str | int | float] = {"cpu": options["limit"]} if "limit" in options else {}
        needs = kube.ResourceRequirements(requests=dict(_requests(options)), limits=limits)
        container = kube.Container(name="c", resources=needs)
        pod_set = kueue.PodSet(
            name="main",
            count=int(options.get("count", "1")),
            min_count=int(options["min"]) if "min" in options else None,
            template=kube.PodTemplateSpec(
                spec=kube.PodSpec(
                    containers=(container,), init_containers=_first_containers(options), node_selector=selector
                )
            ),
            topology_request=_topology_request(options),
        )
        created = DAY + int(options.get("at", "0")) * meta.SECOND
        status = kueue.WorkloadStatus(reclaimable_pods=_reclaimable(options), preemption_gates=_opened(options))
        if "evicted-for" in options:
            reason, since = options["evicted-for"].split("@")
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
                generation=int(options.get("generation", "1")),
                annotations=_annotations(options),
                owner_references=_owners(options),
                creation_timestamp=meta.format_time(created),
            ),
            spec=kueue.WorkloadSpec(
                queue_name=options.get("via", options["queue"]),
                priority=int(options.get("priority", "0")),
                pod_sets=(pod_set,),
                preemption_gates=tuple(kueue.PreemptionGate(name=name) for name in _named(options, "gates")),
                maximum_execution_time_seconds=int(options["run-time"]) if "run-time" in options else None,
            ),
            status=status,
        )


_RESOURCES = ("cpu", "memory", "pods", "gpu")
_NOT_IN_QUOTA = ("widget", "socket")
_COMMANDS: dict[str, Callable[[ScenarioRunner, list[str], Options], None]] = {
    "gate": ScenarioRunner.gate,
    "fair-sharing": ScenarioRunner.fair_sharing,
    "ignore-undeclared": ScenarioRunner.ignore_undeclared,
    "as-kueue": ScenarioRunner.as_kueue,
    "history": ScenarioRunner.history,
    "transform": ScenarioRunner.transform,
    "limit-range": ScenarioRunner.limit_range,
    "topology": ScenarioRunner.topology,
    "node": ScenarioRunner.node,
    "local-queue": ScenarioRunner.local_queue,
    "flavor": ScenarioRunner.flavor,
    "cohort": ScenarioRunner.cohort,
    "drop-cohort": ScenarioRunner.drop_cohort,
    "check": ScenarioRunner.check,
    "cluster-queue": ScenarioRunner.cluster_queue,
    "submit": ScenarioRunner.submit,
    "holds": ScenarioRunner.holds,
    "finish": ScenarioRunner.finish,
    "stop": ScenarioRunner.stop,
    "schedule": ScenarioRunner.schedule,
    "drop-schedule": ScenarioRunner.drop_schedule,
    "wait": ScenarioRunner.wait,
    "cycle": ScenarioRunner.cycle,
    "drain": ScenarioRunner.drain,
    "loops": ScenarioRunner.loops,
    "wake": ScenarioRunner.wake,
    "restart": ScenarioRunner.restart,
    "recheck": ScenarioRunner.recheck,
    "queues": ScenarioRunner.queues,
    "usage": ScenarioRunner.usage,
}


def _window_quota(cell: str, text: str) -> WindowQuota:
    name, flavor, resource = cell.split("/")
    amount = amounts.of_quota(resource, quantity.parse(text.removeprefix("+")))
    is_cohort, name = name.startswith("cohort:"), name.removeprefix("cohort:")
    if text[0] in "+-":
        return WindowQuota(name, flavor, resource, is_cohort, change=amount)
    return WindowQuota(name, flavor, resource, is_cohort, nominal=amount)


def _backfill(options: Options) -> dict[str, str]:
    """`backfill=EASY plan-after=10m drain-after=24h depth=2`: the annotations of planned backfill."""
    names = {
        "backfill": backfill.MODE,
        "depth": backfill.DEPTH,
        "plan-after": backfill.PLAN_AFTER,
        "drain-after": backfill.DRAIN_AFTER,
    }
    return {annotation: options[word] for word, annotation in names.items() if word in options}


def _requests(options: Options) -> dict[str, str]:
    return {
        resource: options[resource]
        for resource in (*_RESOURCES, *_NOT_IN_QUOTA)
        if resource in options and resource != "pods"
    }


def _first_containers(options: Options) -> tuple[kube.Container, ...]:
    """`init=3,sidecar:1`: the cpu of each container that starts before the main one, in this order."""
    return tuple(
        kube.Container(
            name=f"i{n}",
            resources=kube.ResourceRequirements(requests={"cpu": word.removeprefix("sidecar:")}),
            restart_policy="Always" if word.startswith("sidecar:") else "",
        )
        for n, word in enumerate(word for word in options.get("init", "").split(",") if word)
    )


def _named(options: Options, word: str) -> list[str]:
    return [name for name in options.get(word, "").split(",") if name]


def _opened(options: Options) -> tuple[kueue.PreemptionGateState, ...]:
    """`gates=g,h opened=g`: preemption gates of the spec, and those that are open in the status."""
    since = meta.format_time(DAY)
    return tuple(
        kueue.PreemptionGateState(name=name, position="Open", last_transition_time=since)
        for name in _named(options, "opened")
    )


def _concurrent(options: Options) -> kueue.ConcurrentAdmissionPolicy:
    """`concurrent last=f`: Workloads are tried on every flavor, and may migrate to one not behind `f`."""
    constraints = kueue.ConcurrentAdmissionConstraints(last_acceptable_flavor_name=options.get("last"))
    return kueue.ConcurrentAdmissionPolicy(
        migration=kueue.ConcurrentAdmissionMigration(
            mode="TryPreferredFlavors", constraints=constraints if "last" in options else None
        )
    )


def _owners(options: Options) -> tuple[meta.OwnerReference, ...]:
    """`variant-of=p allowed=f`: the variant of a Workload for one flavor."""
    if "variant-of" not in options:
        return ()
    name = options["variant-of"]
    return (meta.OwnerReference(api_version=kueue.API_VERSION, kind="Workload", name=name, uid=name),)


def _annotations(options: Options) -> dict[str, str]:
    """`elastic=yes`: the Workload of an elastic job; `replaces=w`: a slice that replaces another."""
    return {
        **({labels.ELASTIC_JOB: "true"} if "elastic" in options else {}),
        **({labels.WORKLOAD_ALLOWED_RESOURCE_FLAVORS: options["allowed"]} if "allowed" in options else {}),
        **(
            {labels.WORKLOAD_SLICE_REPLACEMENT_FOR: f"{NAMESPACE}/{options['replaces']}"}
            if "replaces" in options
            else {}
        ),
    }


def _level(word: str) -> str:
    return {"host": "kubernetes.io/hostname"}.get(word, f"example.com/{word}")


def _topology_request(options: Options) -> kueue.PodSetTopologyRequest | None:
    if "required" in options:
        return kueue.PodSetTopologyRequest(required=_level(options["required"]))
    if "preferred" in options:
        return kueue.PodSetTopologyRequest(preferred=_level(options["preferred"]))
    if "unconstrained" in options:
        return kueue.PodSetTopologyRequest(unconstrained=True)
    return None


def _placement(options: Options) -> kueue.TopologyAssignment | None:
    """`on=n1:2,n2:1`: the number of pods on each node."""
    if "on" not in options:
        return None
    pods = [place.split(":") for place in options["on"].split(",")]
    tree = topology_encoding.encode(
        [_level("host")], [topology_encoding.EncodedDomain((node,), int(count)) for node, count in pods]
    )
    return codec.from_tree(tree, kueue.TopologyAssignment)


def _times(amount: str, count: int) -> str:
    return str(int(amount) * count) if amount.isdigit() else amount


def _reclaimable(options: Options) -> tuple[kueue.ReclaimablePod, ...]:
    return (kueue.ReclaimablePod(name="main", count=int(options["done"])),) if "done" in options else ()


def _weight(options: Options) -> kueue.FairSharing | None:
    return kueue.FairSharing(weight=options["weight"]) if "weight" in options else None


def _short(key: str) -> str:
    return key.removeprefix(f"{NAMESPACE}/")


def _line(decision: Decision) -> str:
    name = _short(decision.workload)
    match decision:
        case Admit():
            flavors = sorted({flavor for pod_set in decision.pod_sets for flavor in pod_set.flavors.values()})
            pods = sum(pod_set.count for pod_set in decision.pod_sets)
            outcome = "admitted" if decision.is_admitted else "reserves quota"
            assumes = ", ".join(_short(target.key) for target in decision.assumed_targets)
            later = f", to preempt {assumes} later" if assumes else ""
            places = [d for p in decision.pod_sets if p.placement for d in p.placement.domains]
            placed = " at " + ", ".join(f"{'/'.join(d.values)}: {d.count}" for d in places) if places else ""
            return f"{name} {outcome}: {pods} on {', '.join(flavors) or 'no flavor'}{placed}{later}"
        case Preempt():
            if decision.migrates:
                return f"{name} evicts {_short(decision.migrates)} to migrate to a more favorable flavor"
            targets = ", ".join(f"{_short(v.key)} ({v.reason})" for v in decision.targets)
            return f"{name} preempts {targets}"
        case Wait():
            why = "; ".join(messages.of_decision(decision))
            return f"{name} waits ({decision.reason})" + (f": {why}" if why else "")
        case SecondPassFailed():
            return f"the second pass of {name} failed"
        case Evict():
            return f"{name} is evicted"
    raise AssertionError(f"unknown decision: {decision}")


def rewrite(file: Path, outputs: Iterator[tuple[Scenario, tuple[str, ...]]]) -> None:
    """Write the actual output of the scenarios into their file, for review."""
    rewritten = [str(replace(scenario, expected=output)) for scenario, output in outputs]
    file.write_text("\n\n".join(rewritten) + "\n")
