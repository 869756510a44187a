"""Runs ahead that screen heads find the same attempts as runs that evaluate every head as a whole."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue import projection
from pykueue.api import kube, kueue
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.projection import Arrival, ConstantDraws, ProjectedAttempt, SchedulerCase
from pykueue.state.intake import WatchedObject

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
@pytest.mark.parametrize("seed", [0, 5, 6, 7, 9])
def test_screening_changes_no_attempt(seed: int, is_fair: bool) -> None:  # [RA8]
    rng = random.Random(seed)
    cohort = rng.choice(("", "all", "all"))
    queues = [cluster_queue(f"q{number}", cohort, rng) for number in range(3)]
    objects: list[WatchedObject] = [
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
