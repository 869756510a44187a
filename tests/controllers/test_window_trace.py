"""A trace has the windows of QuotaSchedules, and replays with them [QS9]."""

from __future__ import annotations

from kubemachinery import meta
from pykueue.api import kube, kueue
from pykueue.controllers import decision_trace
from pykueue.core.decision import Admit
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan
from pykueue.state.world import World

NOW = 1_900_000_000 * meta.SECOND


def objects() -> list[kueue.ClusterQueue | kueue.LocalQueue | kueue.ResourceFlavor | kueue.Workload | kube.Namespace]:
    quota = kueue.ResourceQuota(name="cpu", nominal_quota="1")
    group = kueue.ResourceGroup(
        covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="plain", resources=(quota,)),)
    )
    container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": "4"}))
    pod_set = kueue.PodSet(
        name="main", count=1, template=kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    )
    return [
        kube.Namespace(metadata=meta.ObjectMeta(name="default")),
        kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="plain")),
        kueue.ClusterQueue(
            metadata=meta.ObjectMeta(name="cq"),
            spec=kueue.ClusterQueueSpec(namespace_selector=meta.LabelSelector(), resource_groups=(group,)),
        ),
        kueue.LocalQueue(
            metadata=meta.ObjectMeta(name="lq", namespace="default"), spec=kueue.LocalQueueSpec(cluster_queue="cq")
        ),
        kueue.Workload(
            metadata=meta.ObjectMeta(name="w", namespace="default", uid="u"),
            spec=kueue.WorkloadSpec(queue_name="lq", pod_sets=(pod_set,)),
        ),
    ]


def test_a_trace_with_windows_replays_to_the_same_decisions() -> None:
    lines: list[bytes] = []
    world = World()
    decision_trace.record(world, lines.append)
    for thing in objects():
        world.put(thing, NOW)
    span = WindowSpan("night", NOW + meta.HOUR, NOW + 2 * meta.HOUR)
    world.set_windows((ScheduledWindows("s", (WindowQuota("cq", "plain", "cpu", nominal=4000),), (span,)),), NOW)
    assert not any(isinstance(each, Admit) for each in world.decide(NOW))
    assert world.next_wake() == span.start
    assert any(isinstance(each, Admit) for each in world.decide(span.start))
    replayed = World()
    result = decision_trace.replay(lines, replayed)
    assert result.difference is None
    assert result.calls == len(lines)
    assert replayed.reservations.keys() == world.reservations.keys() == {"default/w"}
