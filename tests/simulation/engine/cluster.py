"""The rest of a cluster, simulated: kubelets, controllers that replace pods, and an autoscaler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from kubemachinery.client.errors import KubeError
from simulation.engine import job_kinds, setup
from simulation.engine.owners import Part, Played, Stage, true_conditions
from simulation.engine.revisions import Stored, Tree
from simulation.engine.server import History
from simulation.engine.setup import Plan
from simulation.engine.users import kind_of

_OVER: Final = ("Succeeded", "Failed")
_ANYWHERE: Final = "some-node"
_AGAIN_SECONDS: Final = 1.0


class Kubelet(Played):
    """Scheduler and kubelet in one: a pod whose gates are gone gets a node, comes up, runs and succeeds; one that is
    deleted ends, and goes; one whose node is lost has failed."""

    resource = "pods"
    kind = "Pod"
    minds_the_dying = True

    def __init__(self, stage: Stage, history: History) -> None:
        super().__init__(stage, history)
        self._ill: set[str] = set()
        history.listeners.append(self._node_stored)

    def _node_stored(self, stored: Stored) -> None:
        if stored.resource != "nodes":
            return
        tree = msgspec.json.decode(stored.body)
        if stored.op == "DELETED" or not true_conditions(tree).get("Ready") or tree["spec"].get("taints"):
            self._ill.add(stored.name)
        else:
            self._ill.discard(stored.name)
        for pod in list(self._latest.values()):
            if pod["spec"].get("nodeName") == stored.name:
                self.look(pod)

    def wanted(self, tree: Tree) -> Iterator[Part]:
        spec, phase = tree["spec"], tree.get("status", {}).get("phase")
        if "deletionTimestamp" in tree["metadata"]:
            if tree["metadata"].get("deletionGracePeriodSeconds"):
                yield ("end",)
        elif phase in _OVER or spec.get("schedulingGates"):
            return
        elif "nodeName" not in spec:
            yield ("bind",)
        elif spec["nodeName"] in self._ill:
            yield ("fail",)
        elif not true_conditions(tree).get("Ready"):
            yield ("ready",)
        elif not job_kinds.controller(tree):
            yield ("run",)  # one of a controller runs until that deletes it

    async def wait(self, plan: Plan, part: Part) -> None:
        match part:
            case ("end",):
                await asyncio.sleep(plan.stop_seconds)
            case ("ready",):
                await self.stage.until_ready(plan)
            case ("run",):
                await self.stage.until_done(plan)
            case _:
                await asyncio.sleep(0.1)

    async def act(self, tree: Tree, part: Part) -> bool:
        metadata = tree["metadata"]
        match part:
            case ("bind",):
                wanted = tree["spec"].get("nodeSelector", {}).get(setup.HOST, _ANYWHERE)
                if wanted in self._ill:
                    await asyncio.sleep(_AGAIN_SECONDS)
                    return True
                place = {key: metadata[key] for key in ("name", "namespace", "uid")}
                target = {"apiVersion": "v1", "kind": "Node", "name": wanted}
                row = kind_of("Pod")
                await self.stage.client.create(row, {"metadata": place, "target": target}, subresource="binding")
                return True
            case ("end",):
                if tree.get("status", {}).get("phase") not in _OVER:
                    await self.stage.write(self.kind, tree, {"phase": "Failed"})
                row = kind_of("Pod")
                await self.stage.client.delete(
                    row, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_seconds=0
                )
                return True
        return await super().act(tree, part)

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("ready",):
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.stage.now()}
                return {"phase": "Running", "conditions": [*tree.get("status", {}).get("conditions", ()), ready]}
            case ("fail",):
                return {"phase": "Failed"}
        return {"phase": "Succeeded"}


class Crews:
    """Replace pods that were deleted before they finished, as a ReplicaSet does, under new names."""

    def __init__(self, stage: Stage, history: History, wants: Collection[str]) -> None:
        self._stage = stage
        self._wants = wants
        self._pods: dict[str, dict[str, Tree]] = {}  # plan -> name -> pod
        self._made: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        history.listeners.append(self._stored)

    def _stored(self, stored: Stored) -> None:
        if stored.resource != "pods":
            return
        tree = msgspec.json.decode(stored.body)
        name = tree["metadata"].get("labels", {}).get(setup.PLAN)
        if name is None:
            return
        known = self._pods.setdefault(name, {})
        if stored.op == "ADDED":
            self._made[name] = self._made.get(name, 0) + 1
        if stored.op == "DELETED" and tree.get("status", {}).get("phase") != "Succeeded":
            known.pop(stored.name, None)
        else:
            known[stored.name] = tree
        if name not in self._tasks and self._missing(name):
            self._tasks[name] = asyncio.get_running_loop().create_task(self._until_complete(name))

    def _missing(self, name: str) -> bool:
        living = [
            pod
            for pod in self._pods[name].values()
            if pod.get("status", {}).get("phase") != "Failed" and "deletionTimestamp" not in pod["metadata"]
        ]
        return name in self._wants and len(living) < self._stage.plan(name).count

    async def _until_complete(self, name: str) -> None:
        plan = self._stage.plan(name)
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            if not self._missing(name):
                del self._tasks[name]
                return
            number = plan.count + self._made[name]
            with contextlib.suppress(KubeError):
                await self._stage.client.create(kind_of("Pod"), setup.pod(plan, number))
                self._stage.log_line(f"pod {plan.name}-{number} takes the place of another")

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Autoscaler(Played):
    """Provides the nodes of ProvisioningRequests, or reports a failure, or revokes them."""

    resource = "provisioningrequests.autoscaling.x-k8s.io"
    kind = "ProvisioningRequest"

    def wanted(self, tree: Tree) -> Iterator[Part]:
        conditions = true_conditions(tree)
        if conditions.get("Failed") or conditions.get("CapacityRevoked") or conditions.get("BookingExpired"):
            return
        yield ("think again",) if conditions.get("Provisioned") else ("answer",)

    async def wait(self, plan: Plan, part: Part) -> None:
        await asyncio.sleep(self.stage.rng.uniform(0.0, 3.0 if part == ("answer",) else 20.0))

    def status(self, tree: Tree, part: Part) -> Tree | None:
        rng = self.stage.rng
        word = "Provisioned"
        if part == ("think again",):
            if self.stage.is_calm or rng.random() < 0.8:
                return None
            word = rng.choice(("BookingExpired", "CapacityRevoked"))
        elif not self.stage.is_calm:
            word = rng.choices(("Provisioned", "Failed"), (80, 20))[0]
        self.stage.log_line(f"request {tree['metadata']['name']}: {word}")
        conditions = {
            "type": word,
            "status": "True",
            "reason": "Played",
            "message": "played",
            "lastTransitionTime": self.stage.now(),
        }
        return {"conditions": [*tree.get("status", {}).get("conditions", ()), conditions]}
