"""States of one Workload, written as its controllers would write them."""

from __future__ import annotations

from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus, set_condition
from kubemachinery.meta import SECOND
from pykueue.api import kube, kueue
from pykueue.api.conditions import WorkloadCondition

START = meta.parse_time("2026-11-16T09:00:00Z") // SECOND
CREATED = meta.format_time(START * SECOND)


class Life:
    """A Workload whose states follow each other; each call returns the next one. Times are seconds after START."""

    def __init__(
        self, pods: int = 4, *, uid: str = "a", name: str = "job-train", cpu: str = "1", at: int = 0, job: str = "train"
    ) -> None:
        self._cpu = int(cpu)
        container = kube.Container(name="main", resources=kube.ResourceRequirements(requests={"cpu": cpu}))
        template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
        owner = meta.OwnerReference(api_version="batch/v1", kind="Job", name=job, uid=f"job-{uid}", controller=True)
        self.workload = kueue.Workload(
            metadata=meta.ObjectMeta(
                name=name,
                namespace="ns",
                uid=uid,
                resource_version="1",
                creation_timestamp=_text(at),
                owner_references=(owner,),
            ),
            spec=kueue.WorkloadSpec(
                pod_sets=(kueue.PodSet(name="main", count=pods, template=template),), queue_name="research"
            ),
        )
        self.pods = pods

    def annotated(self, **annotations: str) -> kueue.Workload:
        found = {f"pykueue.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
        return self._next(metadata=replace(self.workload.metadata, annotations=found))

    def reserved(self, at: int, count: int | None = None, flavor: str = "a100") -> kueue.Workload:
        count = self.pods if count is None else count
        given = kueue.PodSetAssignment(
            name="main", flavors={"cpu": flavor}, resource_usage={"cpu": str(count * self._cpu)}, count=count
        )
        admission = kueue.Admission(cluster_queue="physics", pod_set_assignments=(given,))
        self._set(WorkloadCondition.EVICTED, ConditionStatus.FALSE, "QuotaReserved", at, only_if_present=True)
        self._set(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE, "QuotaReserved", at)
        return self._next(status=replace(self.workload.status, admission=admission))

    def admitted(self, at: int) -> kueue.Workload:
        self._set(WorkloadCondition.ADMITTED, ConditionStatus.TRUE, "Admitted", at)
        return self._next()

    def started(self, at: int) -> kueue.Workload:
        """Reserved and admitted in one write."""
        self.reserved(at)
        return self.admitted(at)

    def reclaimable(self, count: int) -> kueue.Workload:
        done = (kueue.ReclaimablePod(name="main", count=count),)
        return self._next(status=replace(self.workload.status, reclaimable_pods=done))

    def evicted(self, at: int, reason: str = "Preempted", message: str = "") -> kueue.Workload:
        message = message or "Preempted to accommodate a workload (UID: big, JobUID: x) due to prioritization"
        self._set(WorkloadCondition.EVICTED, ConditionStatus.TRUE, reason, at, message)
        return self._next()

    def released(self, at: int) -> kueue.Workload:
        for condition in (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED):
            self._set(condition, ConditionStatus.FALSE, "Pending", at)
        return self._next(status=replace(self.workload.status, admission=None))

    def finished(self, at: int, reason: str = "Succeeded") -> kueue.Workload:
        self._set(WorkloadCondition.FINISHED, ConditionStatus.TRUE, reason, at)
        return self._next()

    def deleting(self, at: int) -> kueue.Workload:
        return self._next(metadata=replace(self.workload.metadata, deletion_timestamp=_text(at)))

    def resized(self, pods: int) -> kueue.Workload:
        """Another number of pods in the specification, and in the assignment of an elastic job."""
        self.pods = pods
        (pod_set,) = self.workload.spec.pod_sets
        spec = replace(self.workload.spec, pod_sets=(replace(pod_set, count=pods),))
        self.workload = replace(self.workload, spec=spec)
        return self._next()

    def moved(self, queue: str) -> kueue.Workload:
        """Another LocalQueue."""
        self.workload = replace(self.workload, spec=replace(self.workload.spec, queue_name=queue))
        return self._next()

    def touched(self) -> kueue.Workload:
        """A write that changes nothing that is recorded."""
        return self._next()

    def _set(
        self,
        condition: WorkloadCondition,
        status: ConditionStatus,
        reason: str,
        at: int,
        message: str = "",
        *,
        only_if_present: bool = False,
    ) -> None:
        before = self.workload.status
        if only_if_present and not any(found.type == condition for found in before.conditions):
            return
        now = (START + at) * SECOND
        changed = set_condition(before.conditions, condition.value, status, reason, message, now=now, generation=1)
        self.workload = replace(self.workload, status=replace(before, conditions=changed))

    def _next(
        self, *, metadata: meta.ObjectMeta | None = None, status: kueue.WorkloadStatus | None = None
    ) -> kueue.Workload:
        metadata = metadata or self.workload.metadata
        revision = int(metadata.resource_version) + 1
        self.workload = replace(
            self.workload,
            metadata=replace(metadata, resource_version=str(revision)),
            status=status or self.workload.status,
        )
        return self.workload


def _text(at: int) -> str:
    return meta.format_time((START + at) * SECOND)
