"""Jobs and pods with a queue label and without a Workload, and the reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubemachinery import codec, meta
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, registry
from pykueue.client import job_status, queued_job
from pykueue.client.queued_job import JOBS, PODS, QueuedJob
from pykueue.jobs.integration import JobIntegration

if TYPE_CHECKING:
    from pykueue.jobs.podsets import PodSetTemplate

EVENTS: Final = registry.ALL.of(kube.Event)
POD_CLASSES: Final = registry.ALL.of(kube.PriorityClass)


@dataclass(frozen=True, slots=True)
class Unqueued:
    """A job, a pod, or the pods of a group."""

    name: str
    members: tuple[meta.ObjectMeta, ...]
    pods: tuple[tuple[kube.PodSpec, int], ...]  # and how many of each
    tree: Mapping[str, Any]  # of the first
    priority_class: str  # the PriorityClass of the pods; empty without one
    # Whether it is a pod of a group that has a Workload, which does not own the pod. Its reconciler adds it to the
    # owners in a moment, unless a Warning Event has the reason why not.
    in_queued_group: bool = False
    trouble: str = ""


async def look(
    client: ApiClient, namespace: str, workloads: Sequence[kueue.Workload], *, every_kind: bool = False
) -> list[Unqueued]:
    """Those of a namespace, or of all. Kinds that the user may not list are skipped.

    One list for each kind is many requests. Without `every_kind` only kinds that are in use are listed: Jobs, pods, the
    kinds of jobs with a Workload, and those that a warning Event is about; all, if there is no Workload.
    """
    rows = await (queued_job.served(client) if every_kind or not workloads else _in_use(client, namespace, workloads))
    queued = {owner.uid for workload in workloads for owner in workload.metadata.owner_references}
    groups = {(workload.metadata.namespace, workload.metadata.name) for workload in workloads}
    found = [
        one
        for one in (*await _jobs(client, namespace, rows, queued), *await _pods(client, namespace, groups))
        if not queued & {member.uid for member in one.members}
    ]
    troubles = await _troubles(client, meta.ObjectMeta(namespace=namespace)) if found else {}
    known = [replace(one, trouble=await _trouble(client, one, troubles)) for one in found]
    return [one for one in known if one.trouble or not one.in_queued_group]


async def trouble(client: ApiClient, job: QueuedJob) -> str:
    """Why a job has no Workload."""
    one = _of_job(job)
    return await _trouble(client, one, await _troubles(client, one.members[0]))


async def _in_use(client: ApiClient, namespace: str, workloads: Iterable[kueue.Workload]) -> Sequence[JobIntegration]:
    """The integrations whose kind is in use."""
    names = {(owner.api_version, owner.kind) for workload in workloads for owner in workload.metadata.owner_references}
    # Warnings about pods and Workloads are many, and these are looked at in any case.
    fields = "type=Warning,regarding.kind!=Pod,regarding.kind!=Workload,regarding.kind!=Job"
    with contextlib.suppress(errors.ApiError):
        for item in (await client.list(EVENTS, namespace, fields=fields)).items:
            about = codec.decode(item, kube.Event).regarding
            if about is not None:
                names.add((about.api_version or "", about.kind or ""))
    types = {(api_version.rpartition("/")[0], kind) for api_version, kind in names}
    return queued_job.rows_of(types | {(JOBS.group, JOBS.kind)})


async def _jobs(
    client: ApiClient, namespace: str, rows: Iterable[JobIntegration], queued: Collection[str]
) -> list[Unqueued]:
    """Suspended jobs of these kinds with a queue label, without those of the UIDs `queued`. A job with a controller is
    queued with its owner."""
    rows = [row for row in rows if not queued_job.is_made_of_pods(row)]
    listed = await asyncio.gather(*(_named(client, row.kind, namespace) for row in rows))
    jobs = [
        QueuedJob(row, msgspec.json.decode(item)) for row, items in zip(rows, listed, strict=True) for item in items
    ]
    # The rules of a kind are imported for a job that may be unqueued, which is rare.
    rest = [job for job in jobs if job.uid not in queued and job.controller is None]
    return [_of_job(job) for job in rest if queued_job.is_held(job.row, job.tree)]


def _of_job(job: QueuedJob) -> Unqueued:
    rules, metadata = job.integration, codec.from_tree(dict(job.metadata), meta.ObjectMeta)
    templates = rules.templates() if rules is not None else ()
    pods = tuple(_pods_of(job.tree, each) for each in templates)
    named = rules.priority_class() if rules is not None else None
    return Unqueued(job.name, (metadata,), pods, job.tree, _class_of(pods) if named is None else named)


def _class_of(pods: Iterable[tuple[kube.PodSpec, int]]) -> str:
    """The PriorityClass of pods: that of the first with one."""
    return next((spec.priority_class_name for spec, _ in pods if spec.priority_class_name), "")


def _pods_of(tree: Tree, template: PodSetTemplate) -> tuple[kube.PodSpec, int]:
    """The pods of a template; without containers if the template cannot be read, which the server reports."""
    try:
        return codec.from_tree(template.at(tree).get("spec") or {}, kube.PodSpec), template.count
    except codec.DecodeError:
        return kube.PodSpec(), template.count


async def _pods(client: ApiClient, namespace: str, queued_groups: Collection[tuple[str, str]]) -> list[Unqueued]:
    """Gated pods with a queue label; those of a pod group together, unless the group has a Workload."""
    units: dict[tuple[str, str, bool], list[tuple[kube.Pod, msgspec.Raw]]] = {}
    for item in await _named(client, PODS, namespace, fields="spec.nodeName="):
        pod = codec.decode(item, kube.Pod)
        is_held = any(gate.name == labels.ADMISSION_GATE for gate in pod.spec.scheduling_gates)
        has_parent = labels.POD_SUSPENDING_PARENT in pod.metadata.annotations
        if is_held and (pod.metadata.controller is None or has_parent):
            # The annotation first, as the reconciler reads it.
            marks = (pod.metadata.annotations, pod.metadata.labels)
            group = next((each[labels.POD_GROUP_NAME] for each in marks if each.get(labels.POD_GROUP_NAME)), "")
            in_queued_group = (pod.metadata.namespace, group) in queued_groups
            unit = pod.metadata.name if in_queued_group or not group else group
            units.setdefault((pod.metadata.namespace, unit, in_queued_group), []).append((pod, item))
    return [
        Unqueued(
            name,
            tuple(pod.metadata for pod, _ in members),
            tuple((pod.spec, 1) for pod, _ in members),
            _headed(msgspec.json.decode(members[0][1]), PODS),
            _class_of((pod.spec, 1) for pod, _ in members),
            in_queued_group,
        )
        for (_, name, in_queued_group), members in units.items()
    ]


async def _named(client: ApiClient, kind: Kind, namespace: str, fields: str = "") -> list[msgspec.Raw]:
    """Objects with a queue label that is not empty."""
    try:
        return (
            await client.list(kind, namespace, labels=f"{labels.QUEUE_NAME},{labels.QUEUE_NAME}!=", fields=fields)
        ).items
    except errors.ApiError:
        return []


def _headed(tree: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **tree}


# --- Why --------------------------------------------------------------------------------------------------------------


async def _troubles(client: ApiClient, about: meta.ObjectMeta) -> Mapping[str, str]:
    """The last warning Events of an object, or of its namespace; empty if the user may not list Events."""
    only = f",regarding.uid={about.uid}" if about.uid else ""
    try:
        found = await client.list(EVENTS, about.namespace, fields=f"type=Warning{only}")
    except errors.ApiError:
        return {}
    return job_status.troubles(codec.decode(item, kube.Event) for item in found.items)


async def _trouble(client: ApiClient, one: Unqueued, troubles: Mapping[str, str]) -> str:
    """The last warning Event, or a missing PriorityClass of its pods, which has no Event."""
    reported = next((troubles[member.uid] for member in one.members if member.uid in troubles), "")
    named = one.priority_class
    if reported or not named or labels.PRIORITY_CLASS in one.members[0].labels:
        return reported
    try:
        found = await client.find(POD_CLASSES, named)
    except errors.ApiError:
        return ""
    return "" if found is not None else f'{POD_CLASSES.kind} "{named}" not found'
