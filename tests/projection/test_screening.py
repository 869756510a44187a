"""Runs ahead that screen heads find the same attempts as runs that evaluate every head as a whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue import projection
from pykueue.api import kube, kueue
from pykueue.core import preemption
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.core.preemption import TargetSearch
from pykueue.projection import Arrival, ConstantDraws, ProjectedAttempt, SchedulerCase
from pykueue.state.intake import WatchedObject
from pykueue.state.world import World

NOW = 1_800_000_000 * SECOND
NAMESPACE = "team"
RESOURCES = ("cpu", "memory")


def cluster_queue(name: str, cohort: str, rng: random.Random) -> kueue.ClusterQueue:
    """A ClusterQueue with one or two flavors, some of them with two resource groups."""

    def flavors(resources: tuple[str, ...]) -> tuple[kueue.FlavorQuotas, ...]:
        return tuple(
            kueue.FlavorQuotas(
                name=flavor,
                resources=tuple(
                    kueue.ResourceQuota(
                        name=resource,
                        nominal_quota=str(rng.randrange(2, 7)),
                        borrowing_limit=rng.choice((None, None, "2")) if cohort else None,
                    )
                    for resource in resources
                ),
            )
            for flavor in ("one", "two")[: rng.randrange(1, 3)]
        )

    together = kueue.ResourceGroup(covered_resources=RESOURCES, flavors=flavors(RESOURCES))
    return kueue.ClusterQueue(
        metadata=meta.ObjectMeta(name=name),
        spec=kueue.ClusterQueueSpec(
            cohort_name=cohort,
            namespace_selector=meta.LabelSelector(),
            queueing_strategy=rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            resource_groups=(together,) if rng.random() < 0.7 else _split(rng),
            preemption=kueue.ClusterQueuePreemption(
                reclaim_within_cohort=rng.choice(("Any", "Any", "Never", "LowerPriority")),
                within_cluster_queue=rng.choice(("LowerPriority", "Never", "LowerOrNewerEqualPriority")),
            ),
        ),
    )


def _split(rng: random.Random) -> tuple[kueue.ResourceGroup, ...]:
    return tuple(
        kueue.ResourceGroup(
            covered_resources=(resource,),
            flavors=(
                kueue.FlavorQuotas(
                    name=flavor,
                    resources=(kueue.ResourceQuota(name=resource, nominal_quota=str(rng.randrange(2, 7))),),
                ),
            ),
        )
        for resource, flavor in zip(RESOURCES, ("one", "two"), strict=True)
    )


def workload(number: int, queue: str, rng: random.Random, at: int) -> kueue.Workload:
    requests = {"cpu": str(rng.randrange(1, 5))}
    if rng.random() < 0.5:
        requests["memory"] = str(rng.randrange(1, 5))
    container = kube.Container(name="c", resources=kube.ResourceRequirements(requests=dict(requests)))
    pod_set = kueue.PodSet(
        name="main", count=1, template=kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    )
    metadata = meta.ObjectMeta(
        name=f"w{number}",
        namespace=NAMESPACE,
        uid=f"u{number:05}",
        generation=1,
        creation_timestamp=meta.format_time(at),
    )
    spec = kueue.WorkloadSpec(queue_name=queue, priority=rng.choice((0, 0, 10)), pod_sets=(pod_set,))
    return kueue.Workload(metadata=metadata, spec=spec)


def described(attempt: ProjectedAttempt) -> tuple[Any, ...]:
    return attempt.key, attempt.number, attempt.reserved, attempt.usage, attempt.released, attempt.preemptor


@pytest.mark.parametrize("is_fair", [False, True])
@pytest.mark.parametrize("has_levels", [False, True])
@pytest.mark.parametrize("seed", [0, 5, 6, 7, 9])
def test_screening_changes_no_attempt(seed: int, has_levels: bool, is_fair: bool) -> None:  # [RA8]
    rng = random.Random(seed)
    cohort = rng.choice(("", "all", "all"))
    cohorts = ("left", "right", "left", "right") if has_levels else (cohort,) * 3
    queues = [cluster_queue(f"q{number}", name, rng) for number, name in enumerate(cohorts)]
    objects: list[WatchedObject] = [
        *(
            kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name="all"))
            for name in sorted(set(cohorts))
            if has_levels
        ),
        *(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name=name)) for name in ("one", "two")),
        kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)),
        *queues,
        *(
            kueue.LocalQueue(
                metadata=meta.ObjectMeta(name=queue.metadata.name, namespace=NAMESPACE),
                spec=kueue.LocalQueueSpec(cluster_queue=queue.metadata.name),
            )
            for queue in queues
        ),
    ]
    times = sorted(NOW + rng.randrange(0, 3000) * SECOND for _ in range(60))
    arrivals = [
        Arrival(at, workload(number, rng.choice(queues).metadata.name, rng, at)) for number, at in enumerate(times)
    ]
    lengths = {each.workload.metadata.uid: rng.randrange(60, 900) for each in arrivals}
    draws = ConstantDraws(lambda each: lengths[each.metadata.uid], stop=2)
    case = SchedulerCase(
        tuple(objects), policy=SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy) if is_fair else ())
    )
    screened, whole = (
        projection.run(case, NOW, draws, arrivals=arrivals, effort=2_000, explains=explains)
        for explains in (False, True)
    )
    assert whole.attempts
    assert [described(each) for each in screened.attempts] == [described(each) for each in whole.attempts]
    assert screened.pending.keys() == whole.pending.keys()
    assert screened.decisions == whole.decisions


def reserved(name: str, queue: str, cpu: int, priority: int) -> kueue.Workload:
    """A Workload that holds quota on flavor `one`."""
    made = workload(0, queue, random.Random(0), NOW)
    assigned = kueue.PodSetAssignment(name="main", count=1, flavors={"cpu": "one"}, resource_usage={"cpu": str(cpu)})
    status = kueue.WorkloadStatus(
        admission=kueue.Admission(cluster_queue=queue, pod_set_assignments=(assigned,)),
        conditions=(
            meta.Condition(
                type="QuotaReserved", status="True", reason="x", last_transition_time=meta.format_time(NOW - SECOND)
            ),
        ),
    )
    return replace(
        made,
        metadata=replace(made.metadata, name=name, uid=name),
        spec=replace(made.spec, priority=priority),
        status=status,
    )


@pytest.mark.parametrize("is_fair", [False, True])
@pytest.mark.parametrize(
    ("cohorts", "reclaim", "within", "own", "other", "has_targets"),
    [
        (("all", "all"), "Any", "Never", (0, 0), (8, 10), True),  # the other one borrows
        (("left", "right"), "Any", "Never", (0, 0), (8, 10), True),  # the same, two levels up
        (("all", "all"), "LowerPriority", "Never", (0, 0), (8, 10), False),  # of a higher priority
        (("all", "all"), "LowerPriority", "Never", (0, 0), (8, 0), True),
        (("all", "all"), "Never", "Never", (0, 0), (8, 0), False),
        (("all", "all"), "Any", "Never", (4, 0), (4, 0), False),  # all within their quota
        (("all", "all"), "Never", "LowerPriority", (4, 0), (4, 0), True),  # of the own queue
        (("all", "all"), "Never", "LowerPriority", (4, 5), (4, 0), False),
    ],
)
def test_quick_test_for_preemption_targets_agrees_with_the_search(
    cohorts: tuple[str, str],
    reclaim: str,
    within: str,
    own: tuple[int, int],
    other: tuple[int, int],
    has_targets: bool,
    is_fair: bool,
) -> None:  # [RA8]
    quota = kueue.FlavorQuotas(name="one", resources=(kueue.ResourceQuota(name="cpu", nominal_quota="4"),))
    group = kueue.ResourceGroup(covered_resources=("cpu",), flavors=(quota,))
    rules = kueue.ClusterQueuePreemption(reclaim_within_cohort=reclaim, within_cluster_queue=within)
    pending = replace(workload(9, "a", random.Random(0), NOW), spec=replace(_spec(3), queue_name="a", priority=5))
    world = World(SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy) if is_fair else ()))
    things: list[WatchedObject] = [
        kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)),
        kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="one")),
        *(
            kueue.Cohort(metadata=meta.ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name="all"))
            for name in ("left", "right")
        ),
        *(
            kueue.ClusterQueue(
                metadata=meta.ObjectMeta(name=name),
                spec=kueue.ClusterQueueSpec(
                    cohort_name=cohort,
                    namespace_selector=meta.LabelSelector(),
                    resource_groups=(group,),
                    preemption=rules,
                ),
            )
            for name, cohort in zip("ab", cohorts, strict=True)
        ),
        *(
            reserved(f"of-{queue}", queue, cpu, priority)
            for queue, (cpu, priority) in (("a", own), ("b", other))
            if cpu
        ),
        kueue.LocalQueue(
            metadata=meta.ObjectMeta(name="a", namespace=NAMESPACE), spec=kueue.LocalQueueSpec(cluster_queue="a")
        ),
        pending,
    ]
    for thing in things:
        world.put(thing, NOW)
    world.settle(NOW)
    snapshot, info = world.snapshot(), world.pending_workload(f"{NAMESPACE}/w9")
    assert info is not None
    queue = snapshot.queues["a"]
    number = queue.node.tree.number("one", "cpu")
    search = TargetSearch(snapshot, world.policy, NOW, info, queue, frozenset((number,)), {number: 3000})
    assert bool(preemption.find(search)) is has_targets
    assert preemption.may_find(world.policy, snapshot, info, queue, number, 3000) is has_targets


def _spec(cpu: int) -> kueue.WorkloadSpec:
    container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": str(cpu)}))
    template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    return kueue.WorkloadSpec(pod_sets=(kueue.PodSet(name="main", count=1, template=template),))
