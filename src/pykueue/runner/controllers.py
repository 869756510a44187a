"""The controllers of the runner: they read, decide through `job`, `node_assignment` and `pod`, and write."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from kubemachinery import unstructured
from kubemachinery.client import event_recorder
from kubemachinery.client.client import METADATA, ApiClient
from kubemachinery.client.controller import Controller, Result
from kubemachinery.client.errors import KubeError, NotFound
from kubemachinery.client.event_recorder import EventRecorder, EventReference, PendingEvent
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.unstructured import Tree
from pykueue.api import kube, registry
from pykueue.runner import conditions, container_attempts, job, node_assignment, pod
from pykueue.runner.conditions import ConditionUpdate
from pykueue.runner.executor import ContainerExecutor
from pykueue.runner.process_spec import StartProblem

JOBS: Final = registry.ALL.of(kube.Job)
PODS: Final = registry.ALL.of(kube.Pod)
NODES: Final = registry.ALL.of(kube.Node)

Trees: TypeAlias = Informer[Tree]

_OF_JOB: Final = "job"
_BEHIND_SECONDS: Final = 0.01
# Changes of pods that do not end are collected for so long, as in the job controller of Kubernetes, before the status
# of their Job is written: they only change how many are ready, and a short pod has ended by then.
_PODS_BATCH_SECONDS: Final = 1.0
_PROBLEM_SECONDS: Final = 2.0


def _metadata(tree: Tree, name: str) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", name))


def _key(tree: Tree) -> ObjectKey:
    return ObjectKey(_metadata(tree, "namespace"), _metadata(tree, "name"))


def _revision(tree: Tree) -> int:
    return int(_metadata(tree, "resourceVersion") or 0)


def _emit_event(recorder: EventRecorder, about: Tree, type_: str, reason: str, note: str, *, by: str) -> None:
    reference = EventReference(
        unstructured.text(about.get("apiVersion")),
        unstructured.text(about.get("kind")),
        _metadata(about, "name"),
        _metadata(about, "namespace"),
        _metadata(about, "uid"),
        _metadata(about, "resourceVersion"),
    )
    recorder.emit(PendingEvent(reference, type_, reason, note, by))


# --- Jobs -------------------------------------------------------------------------------------------------------------


def _jobs_of(tree: Tree) -> Iterable[str]:
    """The Job that controls a pod, as namespace/name (an informer index)."""
    for _, owner in unstructured.entries(tree, "metadata", "ownerReferences"):
        if owner.get("controller") and owner.get("kind") == "Job":
            yield str(ObjectKey(_metadata(tree, "namespace"), unstructured.text(owner.get("name"))))


def _is_owned(tree: Tree, uid: str) -> bool:
    return any(owner.get("uid") == uid for _, owner in unstructured.entries(tree, "metadata", "ownerReferences"))


def _is_progress(old: Tree, new: Tree) -> bool:
    """Whether a pod was active and is: it was bound, started, became ready, or restarted a container."""
    return not (_is_over(old) or _is_over(new)) and _metadata(old, "deletionTimestamp") == _metadata(
        new, "deletionTimestamp"
    )


class BatchJobController:
    """Creates the pods of Jobs, counts them, and writes the status of each Job."""

    REPORTS_AS: Final = "job-controller"

    def __init__(
        self, client: ApiClient, jobs: Trees, pods: Trees, notes: EventRecorder, clock: Clock, rng: random.Random
    ) -> None:
        self._client, self._jobs, self._pods = client, jobs, pods
        self._events, self._clock = notes, clock
        # The revisions (of Jobs, of pods) that the informers must have reached before a Job is reconciled again: until
        # then they lack what this controller has written.
        self._awaited: dict[ObjectKey, tuple[int, int]] = {}
        self.loop: Controller[ObjectKey] = Controller("jobs", self._reconcile, rng, workers=8)
        pods.add_index(_OF_JOB, _jobs_of)
        jobs.add_handler(lambda change: self.loop.add(change.key, priority=change.priority))
        pods.add_handler(self._pod_seen)

    def _pod_seen(self, change: InformerEvent[Tree]) -> None:
        is_urgent = change.old is None or change.new is None or not _is_progress(change.old, change.new)
        for seen in (change.old, change.new):
            for owner in _jobs_of(seen) if seen is not None else ():
                namespace, _, name = owner.partition("/")
                if is_urgent:
                    self.loop.add(ObjectKey(namespace, name), priority=change.priority)
                else:
                    self.loop.queue.add_after(ObjectKey(namespace, name), _PODS_BATCH_SECONDS)

    async def _reconcile(self, key: ObjectKey) -> Result:
        of_jobs, of_pods = self._awaited.get(key, (0, 0))
        if self._jobs.revision < of_jobs or self._pods.revision < of_pods:
            return _BEHIND_SECONDS
        self._awaited.pop(key, None)
        tree = self._jobs.get(key.name, key.namespace)
        uid = _metadata(tree, "uid") if tree is not None else ""
        found = [each for _, each in self._pods.by_index(_OF_JOB, str(key))]
        await self._release(key, [each for each in found if not _is_owned(each, uid)])
        if tree is None or not job.is_managed_here(tree):
            return None
        plan = job.decide(tree, [each for each in found if _is_owned(each, uid)], self._clock.now())
        await self._carry_out(key, tree, plan)
        return plan.requeue_after_seconds

    async def _carry_out(self, key: ObjectKey, tree: Tree, plan: job.JobPlan) -> None:
        if plan.status != tree.get("status"):
            written = await self._client.replace_revision(JOBS, {**tree, "status": plan.status}, "status")
            self._await(key, job_revision=int(written))
            self._emit_condition_events(tree, plan.status)
        await self._release(key, plan.release)
        for each in plan.delete:
            await self._delete(each)
        for each in plan.discard:
            await self._release(key, [each])
            await self._delete(each)
            _emit_event(
                self._events,
                tree,
                event_recorder.NORMAL,
                "SuccessfulDelete",
                _pod_note("Deleted", each),
                by=self.REPORTS_AS,
            )
        for each in plan.create:
            made = await self._client.create(PODS, each, accept=METADATA)
            self._await(key, pod_revision=_revision(made))
            _emit_event(
                self._events,
                tree,
                event_recorder.NORMAL,
                "SuccessfulCreate",
                _pod_note("Created", made),
                by=self.REPORTS_AS,
            )
        if plan.expired:
            await self._client.delete(JOBS, key.name, key.namespace, uid=_metadata(tree, "uid"))

    async def _release(self, key: ObjectKey, pods: Iterable[Tree]) -> None:
        """Remove the tracking finalizer. The resourceVersion in the patch protects finalizers that others add
        meanwhile."""
        for each in pods:
            before = unstructured.sequence(unstructured.get(each, "metadata", "finalizers"))
            if job.FINALIZER not in before:
                continue
            left = [name for name in before if name != job.FINALIZER]
            patch = {"metadata": {"resourceVersion": _metadata(each, "resourceVersion"), "finalizers": left or None}}
            try:
                written = await self._client.patch_revision(PODS, _key(each).name, patch, _key(each).namespace)
            except NotFound:
                continue
            self._await(key, pod_revision=int(written))

    async def _delete(self, each: Tree) -> None:
        await self._client.delete(PODS, _key(each).name, _key(each).namespace, uid=_metadata(each, "uid"))

    def _await(self, key: ObjectKey, *, job_revision: int = 0, pod_revision: int = 0) -> None:
        of_job, of_pods = self._awaited.get(key, (0, 0))
        self._awaited[key] = (max(of_job, job_revision), max(of_pods, pod_revision))

    def _emit_condition_events(self, tree: Tree, status: Tree) -> None:
        """Emit Events for conditions that became true."""
        before = unstructured.mapping(tree.get("status"))
        for type_, kind, reason in _CONDITION_EVENTS:
            found = conditions.find_true(status, type_)
            if found is not None and conditions.find_true(before, type_) is None:
                note = unstructured.text(found.get("message"))
                _emit_event(
                    self._events,
                    tree,
                    kind,
                    reason or unstructured.text(found.get("reason")),
                    note,
                    by=self.REPORTS_AS,
                )


# Conditions of a Job that get an Event: the condition type, the Event type, and the reason if it is not the one of the
# condition.
_CONDITION_EVENTS: Final = (
    ("Complete", event_recorder.NORMAL, "Completed"),
    ("Failed", event_recorder.WARNING, ""),
    ("Suspended", event_recorder.NORMAL, "Suspended"),
)


def _pod_note(verb: str, tree: Tree) -> str:
    return f"{verb} pod: {_metadata(tree, 'name')}"


# --- Pods -------------------------------------------------------------------------------------------------------------


class PodController:
    """Binds pods to nodes, runs them on the nodes it serves, and writes their status."""

    REPORTS_AS: Final = "pykueue-runner"

    def __init__(
        self,
        client: ApiClient,
        pods: Trees,
        nodes: Trees,
        executor: ContainerExecutor,
        notes: EventRecorder,
        clock: Clock,
        rng: random.Random,
        serves: Callable[[str], bool],
    ) -> None:
        self._client, self._pods, self._nodes = client, pods, nodes
        self._executor, self._events, self._clock = executor, notes, clock
        self._serves = serves
        self._allocations = node_assignment.NodeAllocations()
        self._unschedulable: dict[ObjectKey, None] = {}
        self._uids: dict[ObjectKey, str] = {}
        self._keys: dict[str, ObjectKey] = {}
        self.loop: Controller[ObjectKey] = Controller("pods", self._reconcile, rng, workers=8)
        pods.add_handler(self._pod_seen)
        nodes.add_handler(lambda _: self._requeue_unschedulable())
        executor.on_change = self._wake

    def _pod_seen(self, change: InformerEvent[Tree]) -> None:
        tree = change.new
        if tree is None or _is_over(tree):
            gone = change.new or change.old
            if gone is not None and self._allocations.free(_metadata(gone, "uid")):
                self._requeue_unschedulable()
        elif node := unstructured.text(unstructured.get(tree, "spec", "nodeName")):
            self._allocations.take(_metadata(tree, "uid"), node, tree)
        self.loop.add(change.key, priority=change.priority)

    def _wake(self, uid: str) -> None:
        if key := self._keys.get(uid):
            self.loop.add(key)

    def _requeue_unschedulable(self) -> None:
        for key in self._unschedulable:
            self.loop.add(key)
        self._unschedulable.clear()

    async def _reconcile(self, key: ObjectKey) -> Result:
        tree = self._pods.get(key.name, key.namespace)
        uid = _metadata(tree, "uid") if tree is not None else ""
        before = self._uids.get(key, "")
        if before and before != uid:
            await self._executor.discard(before)
            self._keys.pop(before, None)
            del self._uids[key]
        if tree is None:
            return None
        self._uids[key], self._keys[uid] = uid, key
        node = unstructured.text(unstructured.get(tree, "spec", "nodeName"))
        if not node:
            return None if _is_over(tree) else await self._place(key, tree)
        if not self._serves(node):
            return None
        if not _is_over(tree):
            return await self._run(key, tree)
        if unstructured.get(tree, "metadata", "deletionTimestamp") is not None:
            # All containers have ended: the pod is deleted now, without waiting for the end of its grace period.
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace_seconds=0)
        return None

    # --- Placing ------------------------------------------------------------------------------------------------------

    async def _place(self, key: ObjectKey, tree: Tree) -> Result:
        if unstructured.get(tree, "metadata", "deletionTimestamp") or unstructured.get(tree, "spec", "schedulingGates"):
            return None
        served = [node for (_, name), node in self._nodes.items() if self._serves(name)]
        try:
            node = node_assignment.select_node(tree, served, self._allocations)
        except LookupError as why:
            self._unschedulable[key] = None
            unscheduled = ConditionUpdate("PodScheduled", False, "Unschedulable", str(why))
            status = {**tree.get("status", {}), "conditions": self._conditions(tree, unscheduled)}
            if status != tree.get("status"):
                await self._write(key, tree, status)
                _emit_event(
                    self._events, tree, event_recorder.WARNING, "FailedScheduling", str(why), by="default-scheduler"
                )
            return None
        # Assumed before the write: this controller is the only scheduler, and the watch confirms it later.
        self._allocations.take(_metadata(tree, "uid"), node, tree)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"namespace": key.namespace, "name": key.name, "uid": _metadata(tree, "uid")}
        try:
            await self._client.create(PODS, {"metadata": metadata, "target": target}, subresource="binding")
        except BaseException:
            self._allocations.free(_metadata(tree, "uid"))
            raise
        _emit_event(
            self._events,
            tree,
            event_recorder.NORMAL,
            "Scheduled",
            f"Successfully assigned {key.namespace}/{key.name} to {node}",
            by="default-scheduler",
        )
        return None

    def _conditions(self, tree: Tree, *updates: ConditionUpdate) -> list[Tree]:
        return conditions.merge(unstructured.mapping(tree.get("status")), updates, self._clock.now())

    # --- Running ------------------------------------------------------------------------------------------------------

    async def _run(self, key: ObjectKey, tree: Tree) -> Result:
        step = self._step(tree, {})
        problems: dict[str, StartProblem] = {}
        for name in step.start:
            if problem := await self._start(tree, name):
                problems[name] = problem
        if step.start:
            step = self._step(tree, problems)
        for stop in step.stop:
            self._executor.stop(_metadata(tree, "uid"), stop.container, kill=stop.kill)
        await self._write(key, tree, step.status)
        waits = [
            wait for wait in (step.requeue_after_seconds, _PROBLEM_SECONDS if problems else None) if wait is not None
        ]
        return min(waits, default=None)

    async def report_ended(self) -> None:
        """Write the ends of containers that ended while no runner ran, before Jobs are judged by the time of now: one
        whose pod succeeded in time has not exceeded its deadline."""
        is_written = False
        for key, tree in list(self._pods.items()):
            node = unstructured.text(unstructured.get(tree, "spec", "nodeName"))
            made = self._executor.attempts(tree) if self._serves(node) and not _is_over(tree) else {}
            if not any(attempts and attempts[-1].ended is not None for attempts in made.values()):
                continue
            step = self._step(tree, {})
            if not step.start:
                with contextlib.suppress(KubeError):  # the controller of pods tries again
                    await self._write(ObjectKey(*key), tree, step.status)
                    is_written = True
        if is_written:
            with contextlib.suppress(KubeError):
                await self._pods.wait_until_current()

    def _step(self, tree: Tree, problems: dict[str, StartProblem]) -> pod.PodStep:
        now = self._clock.now()
        return pod.step(tree, container_attempts.with_lost(tree, self._executor.attempts(tree)), now, problems)

    async def _start(self, tree: Tree, name: str) -> StartProblem | None:
        container = container_attempts.find(tree, name)
        assert container is not None, name
        made = self._executor.attempts(tree)
        if not made:
            for note in self._executor.ignored(tree):
                _emit_event(self._events, tree, event_recorder.WARNING, "Ignored", note, by=self.REPORTS_AS)
        number = made[name][-1].number + 1 if made.get(name) else 0
        problem = await self._executor.start(tree, container, number)
        if problem is None:
            _emit_event(
                self._events, tree, event_recorder.NORMAL, "Started", f"Started container {name}", by=self.REPORTS_AS
            )
        else:
            _emit_event(self._events, tree, event_recorder.WARNING, "Failed", problem.message, by=self.REPORTS_AS)
        return problem

    async def _write(self, key: ObjectKey, tree: Tree, status: Tree) -> None:
        """Write the status; a conflict if the pod has changed since it was read."""
        if status == tree.get("status"):
            return
        metadata: dict[str, Any] = {"resourceVersion": _metadata(tree, "resourceVersion")}
        patch = {"metadata": metadata, "status": status}
        await self._client.patch_revision(PODS, key.name, patch, key.namespace, subresource="status")


def _is_over(tree: Tree) -> bool:
    return unstructured.text(unstructured.get(tree, "status", "phase")) in ("Succeeded", "Failed")
