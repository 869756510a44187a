"""Decisions of the CronJob controller: a CronJob and its Jobs in; a Job to create, Jobs to delete and a status out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions, cron_schedule, replicas
from pykueue.runner.cron_schedule import ScheduleError

KIND: Final = Kind("batch", "CronJob", "cronjobs", (Version("v1", storage=True),))
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
# A due time is searched for back to here: a schedule that is due at all is due at least once in eight years.
_LONGEST_AGO: Final = 8 * 366 * 24 * 3600 * meta.SECOND


class CronPlan(msgspec.Struct, frozen=True):
    """What to do, in this order: write the status, delete Jobs, create one."""

    status: Tree
    delete: tuple[Tree, ...] = ()
    create: Tree | None = None
    requeue_after_seconds: float | None = None
    # Why nothing can be scheduled.
    problem: str = ""


class _JobView(ObjectView):
    @property
    def has_succeeded(self) -> bool:
        return conditions.find_true(self.status, "Complete") is not None

    @property
    def has_failed(self) -> bool:
        return conditions.find_true(self.status, "Failed") is not None

    @property
    def is_active(self) -> bool:
        return not self.has_succeeded and not self.has_failed


def decide(tree: Tree, jobs: Sequence[Tree], now: int) -> CronPlan:
    """Return the plan for a CronJob; `jobs` are the Jobs that it owns."""
    owner = ObjectView(tree)
    owned = [_JobView(each) for each in jobs]
    status = _status(owner, owned)
    old = _old(owner, owned)
    if owner.is_deleting or owner.spec.get("suspend") is True:
        return CronPlan(status, old)
    try:
        schedule = cron_schedule.parse(unstructured.text(owner.spec.get("schedule")))
        zone = _zone(unstructured.text(owner.spec.get("timeZone")))
    except ScheduleError as why:
        return CronPlan(status, old, problem=str(why))
    moment = datetime.fromtimestamp(now / meta.SECOND, zone)
    due = schedule.last_until(moment, datetime.fromtimestamp(_earliest(owner, now) / meta.SECOND, zone))
    following = schedule.next_after(moment)
    wait = None if following is None else max(0.01, (following - moment).total_seconds())
    active = [each for each in owned if each.is_active]
    policy = owner.spec.get("concurrencyPolicy")
    if due is None or (policy == "Forbid" and active):
        return CronPlan(status, old, requeue_after_seconds=wait)
    made = _job(owner, due)
    status["lastScheduleTime"] = meta.format_time(int(due.timestamp()) * meta.SECOND)
    if any(each.name == made["metadata"]["name"] for each in owned):
        return CronPlan(status, old, requeue_after_seconds=wait)
    replaced = tuple(each.tree for each in active) if policy == "Replace" else ()
    return CronPlan(status, (*old, *replaced), made, wait)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        raise ScheduleError(f"the time zone {name!r} is not known") from None


def _earliest(owner: ObjectView, now: int) -> int:
    """From when on a due time counts: since the last Job, and no longer ago than the deadline."""
    last = unstructured.text(owner.status.get("lastScheduleTime")) or owner.creation_timestamp
    since = meta.parse_time(last) if last else now
    since = max(since, now - _LONGEST_AGO)
    deadline = unstructured.integer(owner.spec.get("startingDeadlineSeconds"))
    return since if deadline is None else max(since, now - deadline * meta.SECOND)


def _job(owner: ObjectView, due: datetime) -> Tree:
    template = unstructured.mapping(owner.spec.get("jobTemplate"))
    marks = unstructured.mapping(template.get("metadata"))
    moment = int(due.timestamp())
    metadata: Tree = {
        "name": f"{owner.name}-{moment // 60}",
        "namespace": owner.namespace,
        "labels": dict(unstructured.mapping(marks.get("labels"))),
        "annotations": {
            **unstructured.mapping(marks.get("annotations")),
            SCHEDULED: meta.format_time(moment * meta.SECOND),
        },
        "ownerReferences": [replicas.reference(owner, KIND)],
    }
    spec = dict(unstructured.mapping(template.get("spec")))
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _old(owner: ObjectView, owned: Sequence[_JobView]) -> tuple[Tree, ...]:
    """The finished Jobs beyond the history that is kept, oldest first."""
    found: list[Tree] = []
    for limit, among in (
        (replicas.number(owner.spec, "successfulJobsHistoryLimit", 3), [job for job in owned if job.has_succeeded]),
        (replicas.number(owner.spec, "failedJobsHistoryLimit", 1), [job for job in owned if job.has_failed]),
    ):
        among.sort(key=lambda job: (job.creation_timestamp, job.name))
        found += [job.tree for job in among[: max(0, len(among) - limit)] if not job.is_deleting]
    return tuple(found)


def _status(owner: ObjectView, owned: Sequence[_JobView]) -> Tree:
    ended = [unstructured.text(job.status.get("completionTime")) for job in owned if job.has_succeeded]
    found: Tree = {
        "active": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "namespace": job.namespace, "uid": job.uid}
            for job in sorted(owned, key=lambda job: job.name)
            if job.is_active
        ]
    }
    last = max(filter(None, (*ended, unstructured.text(owner.status.get("lastSuccessfulTime")))), default="")
    for key, value in (
        ("lastScheduleTime", unstructured.text(owner.status.get("lastScheduleTime"))),
        ("lastSuccessfulTime", last),
    ):
        if value:
            found[key] = value
    return found
