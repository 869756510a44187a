"""Random clusters for the laws of the scheduler: a few cohorts, ClusterQueues, flavors and Workloads, as plain data and
as objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.state.intake import WatchedObject
from pykueue.state.scheduling_scope import SchedulingScopes
from pykueue.state.world import World

NOW = meta.parse_time("2026-01-01T00:00:00Z")
NAMESPACE = "ns"
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")


@dataclass(frozen=True)
class QuotaCase:
    nominal: int
    borrowing: int | None
    lending: int | None

    def on(self, *, in_cohort: bool) -> kueue.ResourceQuota:
        return kueue.ResourceQuota(
            name="cpu",
            nominal_quota=self.nominal,
            borrowing_limit=self.borrowing if in_cohort else None,
            lending_limit=min(self.lending, self.nominal) if in_cohort and self.lending is not None else None,
        )


@dataclass(frozen=True)
class QueueCase:
    name: str
    cohort: str
    quotas: tuple[QuotaCase, ...]  # one per flavor
    within: str
    reclaim: str
    strict: bool

    def thing(self) -> kueue.ClusterQueue:
        flavors = tuple(
            kueue.FlavorQuotas(name=f"f{n}", resources=(quota.on(in_cohort=bool(self.cohort)),))
            for n, quota in enumerate(self.quotas)
        )
        return kueue.ClusterQueue(
            metadata=meta.ObjectMeta(name=self.name),
            spec=kueue.ClusterQueueSpec(
                cohort_name=self.cohort,
                namespace_selector=meta.LabelSelector(),
                queueing_strategy="StrictFIFO" if self.strict else "BestEffortFIFO",
                resource_groups=(kueue.ResourceGroup(covered_resources=("cpu",), flavors=flavors),),
                preemption=kueue.ClusterQueuePreemption(
                    within_cluster_queue=self.within, reclaim_within_cohort=self.reclaim
                ),
            ),
        )


@dataclass(frozen=True)
class WorkloadCase:
    number: int
    queue: str
    cpu: int
    priority: int
    created: int
    flavor: str | None = None  # the flavor of its reservation

    @property
    def key(self) -> str:
        return f"{NAMESPACE}/w{self.number}"

    def thing(self) -> kueue.Workload:
        container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": self.cpu}))
        template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
        status = kueue.WorkloadStatus()
        if self.flavor is not None:
            reserved = meta.Condition(
                type="QuotaReserved",
                status="True",
                reason="QuotaReserved",
                last_transition_time=meta.format_time(NOW - self.created * meta.SECOND),
            )
            assigned = kueue.PodSetAssignment(
                name="main", count=1, flavors={"cpu": self.flavor}, resource_usage={"cpu": self.cpu}
            )
            status = kueue.WorkloadStatus(
                admission=kueue.Admission(cluster_queue=self.queue, pod_set_assignments=(assigned,)),
                conditions=(reserved,),
            )
        return kueue.Workload(
            metadata=meta.ObjectMeta(
                name=f"w{self.number}",
                namespace=NAMESPACE,
                uid=f"u{self.number}",
                generation=1,
                creation_timestamp=meta.format_time(NOW - self.created * meta.SECOND),
            ),
            spec=kueue.WorkloadSpec(
                queue_name=self.queue,
                priority=self.priority,
                pod_sets=(kueue.PodSet(name="main", count=1, template=template),),
            ),
            status=status,
        )


@dataclass(frozen=True)
class ClusterCase:
    cohorts: tuple[tuple[str, str, QuotaCase], ...]  # name, parent, own quota
    queues: tuple[QueueCase, ...]
    workloads: tuple[WorkloadCase, ...]
    fair: bool

    @property
    def policy(self) -> SchedulingPolicy:
        return SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy)) if self.fair else SchedulingPolicy()

    def things(self) -> Iterator[WatchedObject]:
        yield kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE))
        for n in range(2):
            yield kueue.ResourceFlavor(metadata=meta.ObjectMeta(name=f"f{n}"))
        for name, parent, quota in self.cohorts:
            group = kueue.ResourceGroup(
                covered_resources=("cpu",),
                flavors=(kueue.FlavorQuotas(name="f0", resources=(quota.on(in_cohort=bool(parent)),)),),
            )
            yield kueue.Cohort(
                metadata=meta.ObjectMeta(name=name),
                spec=kueue.CohortSpec(parent_name=parent, resource_groups=(group,)),
            )
        for queue in self.queues:
            yield queue.thing()
            yield kueue.LocalQueue(
                metadata=meta.ObjectMeta(name=queue.name, namespace=NAMESPACE),
                spec=kueue.LocalQueueSpec(cluster_queue=queue.name),
            )
        for workload in self.workloads:
            yield workload.thing()

    def world(self, scopes: SchedulingScopes | None = None) -> World:
        world = World(self.policy, scopes=scopes)
        for thing in self.things():
            world.put(thing, NOW)
        world.settle(NOW)
        return world


limits = st.none() | st.integers(0, 6)
quotas = st.builds(QuotaCase, st.integers(0, 8), limits, limits)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterCase:
    names = [f"co{n}" for n in range(draw(st.integers(0, 3)))]
    cohorts = tuple((name, draw(st.sampled_from(["", *names[:n]])), draw(quotas)) for n, name in enumerate(names))
    homes = st.sampled_from(["", "implicit", *names])
    queues = tuple(
        QueueCase(
            f"q{n}",
            draw(homes),
            tuple(draw(st.lists(quotas, min_size=1, max_size=2))),
            draw(st.sampled_from(POLICIES[:3])),
            draw(st.sampled_from(POLICIES)),
            draw(st.booleans()),
        )
        for n in range(draw(st.integers(1, 4)))
    )
    workloads = tuple(
        WorkloadCase(
            n,
            draw(st.sampled_from(queues)).name,
            draw(st.integers(0, 6)),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 5)),
            draw(st.sampled_from([None, None, "f0", "f1"])),
        )
        for n in range(draw(st.integers(0, 12)))
    )
    return ClusterCase(cohorts, queues, workloads, draw(st.booleans()))


def figures(world: World) -> dict[str, int]:
    """Every usage figure of every node that is not zero, by name: the whole state of quota."""
    trees = {id(queue.node.tree): queue.node.tree for queue in world.snapshot().queues.values()}
    return {
        f"{'queue' if node.is_queue else 'cohort'} {node.name} {pair.flavor}": node.usage[number]
        for tree in trees.values()
        for node in tree.nodes
        for number, pair in enumerate(tree.pairs)
        if node.usage[number]
    }
