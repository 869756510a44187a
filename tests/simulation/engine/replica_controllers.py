"""The controllers of kinds made of pods, simulated: those of Deployments, StatefulSets and LeaderWorkerSets.

Each creates the pods that are missing, deletes those beyond, and writes a status. The controllers in between
(ReplicaSets, the StatefulSets of a LeaderWorkerSet) are left out: an object controls its pods itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import msgspec

from kubemachinery.client.errors import KubeError, NotFound
from simulation.engine import job_kinds
from simulation.engine.owners import Stage, true_conditions
from simulation.engine.revisions import Stored, Tree
from simulation.engine.server import History
from simulation.engine.users import kind_of

_OVER: Final = ("Succeeded", "Failed")
_AGAIN_SECONDS: Final = 0.3
_REVISION: Final = "example.com/revision"
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_GROUP: Final = 10  # pods of a LeaderWorkerSet have numbers: ten times the group, and the index in it

# (number, template, labels, annotations) of a pod
Slot = tuple[int, Tree, Tree, Tree]


class ReplicaControllers:
    """All of them, for every object by its UID."""

    def __init__(self, stage: Stage, history: History) -> None:
        self._stage = stage
        self._parents: dict[str, Tree] = {}
        self._pods: dict[str, dict[str, Tree]] = {}
        self._made: Counter[str] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        history.listeners.append(self._stored)

    def _stored(self, stored: Stored) -> None:
        if stored.resource in job_kinds.PARENTS_BY_RESOURCE:
            tree = msgspec.json.decode(stored.body)
            uid = tree["metadata"]["uid"]
            if stored.op == "DELETED":
                self._parents.pop(uid, None)
            else:
                self._parents[uid] = tree
        elif stored.resource == "pods":
            tree = msgspec.json.decode(stored.body)
            uid = job_kinds.controller(tree)
            known = self._pods.setdefault(uid, {})
            if stored.op == "DELETED":
                known.pop(stored.name, None)
            else:
                known[stored.name] = tree
        else:
            return
        if uid in self._parents:
            self._look(uid)

    def _look(self, uid: str) -> None:
        loop = asyncio.get_running_loop()
        if uid not in self._tasks:
            self._tasks[uid] = loop.create_task(self._until_settled(uid))
        runs = any(_is_ready(pod) for pod in self._pods.get(uid, {}).values())
        if runs and uid not in self._ending:
            self._ending[uid] = loop.create_task(self._until_deleted(uid))
        elif not runs and uid in self._ending:
            self._ending.pop(uid).cancel()

    async def _until_settled(self, uid: str) -> None:
        try:
            while True:
                await asyncio.sleep(_AGAIN_SECONDS)
                parent = self._parents.get(uid)
                if parent is None or "deletionTimestamp" in parent["metadata"]:
                    return
                step = self._step(parent, self._pods.get(uid, {}))
                if step is None:
                    return
                try:
                    await step
                except KubeError as error:
                    self._stage.log_line(f"{parent['kind']} {parent['metadata']['name']}: {error}")
        finally:
            del self._tasks[uid]

    async def _until_deleted(self, uid: str) -> None:
        """Its user deletes it some time after the first of its pods runs."""
        metadata = self._parents[uid]["metadata"]
        kind = kind_of(self._parents[uid]["kind"])
        await self._stage.until_done(self._stage.plan(metadata["name"]))
        while uid in self._parents:
            try:
                await self._stage.client.delete(kind, metadata["name"], metadata["namespace"], uid=uid)
                return
            except NotFound:
                return
            except KubeError:
                await asyncio.sleep(_AGAIN_SECONDS)

    # --- One step -----------------------------------------------------------------------------------------------------

    def _step(self, parent: Tree, pods: dict[str, Tree]) -> Coroutine[Any, Any, None] | None:
        """The next write about an object; None if there is nothing to do."""
        revision = _revision(parent)
        deployment = parent["kind"] == "Deployment"
        living = {name: pod for name, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}
        if deployment:
            living = {name: pod for name, pod in living.items() if pod.get("status", {}).get("phase") not in _OVER}
        slots = list(_slots(parent))
        wanted = {f"{parent['metadata']['name']}-{slot[0]}" for slot in slots}
        for number, (name, pod) in enumerate(sorted(living.items())):
            is_over = pod.get("status", {}).get("phase") in _OVER
            is_old = pod["metadata"]["labels"].get(_REVISION) != revision
            is_beyond = number >= len(slots) if deployment else name not in wanted
            if is_over or is_old or is_beyond:
                return self._delete(pod)
        if deployment and len(living) < len(slots):
            number = self._made[parent["metadata"]["uid"]]
            return self._create(parent, (number, *slots[0][1:]), revision)
        missing = None if deployment else _first_missing(parent, slots, pods)
        if missing is not None:
            return self._create(parent, missing, revision)
        return self._reported(parent, living)

    async def _create(self, parent: Tree, slot: Slot, revision: str) -> None:
        number, template, labels, annotations = slot
        metadata, marks = parent["metadata"], template.get("metadata", {})
        owner = {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "controller": True}
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-{number}",
                "namespace": metadata["namespace"],
                "labels": {**marks.get("labels", {}), **labels, _REVISION: revision},
                "annotations": {**marks.get("annotations", {}), **annotations},
                "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}],
            },
            "spec": template["spec"],
        }
        self._made[metadata["uid"]] += 1
        await self._stage.client.create(kind_of("Pod"), tree)

    async def _delete(self, pod: Tree) -> None:
        metadata = pod["metadata"]
        await self._stage.client.delete(kind_of("Pod"), metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _reported(self, parent: Tree, pods: dict[str, Tree]) -> Coroutine[Any, Any, None] | None:
        """The status, where it differs."""
        size = 2 if parent["kind"] == "LeaderWorkerSet" else 1
        ready = sum(map(_is_ready, pods.values()))
        counts: Tree = {
            "replicas": len(pods) // size,
            "readyReplicas": ready // size,
            "updatedReplicas": len(pods) // size,
        }
        if parent["kind"] == "StatefulSet":
            counts |= {"currentRevision": "1", "updateRevision": "1"}
        before = parent.get("status", {})
        if all(before.get(key, 0) == value for key, value in counts.items()):
            return None
        return self._stage.write(parent["kind"], parent, counts)

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *self._ending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_ready(pod: Tree) -> bool:
    return bool(true_conditions(pod).get("Ready")) and "deletionTimestamp" not in pod["metadata"]


def _revision(parent: Tree) -> str:
    """Another one for another template, whose pods replace those before."""
    spec = parent["spec"]
    template = spec.get("leaderWorkerTemplate") or spec["template"]
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:8]


def _slots(parent: Tree) -> Iterator[Slot]:
    """The pods that it has to have, in the order of their creation."""
    spec = parent["spec"]
    for number in range(spec["replicas"]):
        if parent["kind"] != "LeaderWorkerSet":
            labels = {"apps.kubernetes.io/pod-index": str(number)} if parent["kind"] == "StatefulSet" else {}
            yield number, spec["template"], labels, {}
            continue
        of_group = {f"{_LWS}/name": parent["metadata"]["name"], f"{_LWS}/group-index": str(number)}
        leader = f"{parent['metadata']['name']}-{number * _GROUP}"
        groups = spec["leaderWorkerTemplate"]
        yield number * _GROUP, groups["leaderTemplate"], {**of_group, f"{_LWS}/worker-index": "0"}, {}
        worker = {**of_group, f"{_LWS}/worker-index": "1"}
        yield number * _GROUP + 1, groups["workerTemplate"], worker, {f"{_LWS}/leader-name": leader}


def _first_missing(parent: Tree, slots: list[Slot], pods: dict[str, Tree]) -> Slot | None:
    """The first pod that is missing. Those of a StatefulSet come one after the other, each when the last is ready; a
    worker comes after its leader."""
    name = parent["metadata"]["name"]
    for slot in slots:
        found = pods.get(f"{name}-{slot[0]}")
        if found is None:
            return slot
        if parent["kind"] == "StatefulSet" and not _is_ready(found):
            return None
    return None
