"""The users of a run: they create queues, submit jobs, and change objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.kinds import Kind, Scope, Version
from pykueue.api import registry
from simulation.engine import job_kinds, setup
from simulation.engine.revisions import BY_HAND, Tree
from simulation.engine.setup import NAMESPACE, Plan, World, name_of
from simulation.engine.user_actions import UserAction

_WAIT_TO_RETURN_SECONDS: Final = 1.0


def kind_of(name: str) -> Kind:
    if name == _DEFINITION.kind:
        return _DEFINITION
    simulated = job_kinds.KINDS.get(name) or job_kinds.PARENTS.get(name)
    row = registry.ALL.named(name)
    if row is None and simulated is not None:
        version = Version(simulated.api_version.rpartition("/")[2], storage=True)
        return Kind(simulated.group, simulated.kind, simulated.plural, (version,), subresources=("status",))
    assert row is not None, f"there is no kind {name}"
    return row


_DEFINITION: Final = Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    (Version("v1", storage=True),),
    Scope.CLUSTER,
)


class Users:
    def __init__(
        self, world: World, actions: Sequence[UserAction], client: ApiClient, log_line: Callable[[str], None]
    ) -> None:
        self._world = world
        self._deeds = actions
        self._plans = {plan.name: plan for plan in world.plans}
        self._client = client
        self._log = log_line
        self._returning: list[asyncio.Task[None]] = []
        # Plans whose pods are to be there, and are replaced by `cluster.Crews` when they are deleted too early.
        self.wants: set[str] = set()

    async def build(self) -> None:
        for tree in (*setup.priority_classes(), *self._world.objects):
            await self._create(tree)

    async def act(self) -> None:
        """Every action, at its time."""
        coming = [UserAction(plan.at, "create", plan.name) for plan in self._world.plans]
        for action in sorted((*coming, *self._deeds), key=lambda action: action.at):
            await asyncio.sleep(max(0.0, action.at - asyncio.get_running_loop().time()))
            about = "" if action.argument is None or isinstance(action.argument, dict) else f" {action.argument}"
            try:
                await _VERBS[action.verb](self, action)
                self._log(f"{action.verb} {action.name}{about}")
            except KubeError as error:
                # Users get refusals too: the object is deleted, or may not be changed now.
                self._log(f"{action.verb} {action.name}{about}: refused: {error}")
        await asyncio.gather(*self._returning)

    async def probe(self) -> None:
        await self._create(setup.probe())

    # --- Work ---------------------------------------------------------------------------------------------------------

    async def _submit(self, action: UserAction) -> None:
        for tree in setup.manifests(self._plans[action.name]):
            await self._create(tree)
        self.wants.add(action.name)

    async def _delete(self, action: UserAction) -> None:
        plan = self._plans[action.name]
        self.wants.discard(action.name)
        for name in await self._names(plan):
            await self._client.delete(kind_of(plan.kind), name, plan.namespace)
        if plan.kind == "Pod" and plan.count > 1:
            # Pods of a group may be replaced, so their end alone does not end it.
            await self._client.delete(kind_of("Workload"), plan.name, plan.namespace)

    async def _names(self, plan: Plan) -> list[str]:
        if plan.kind != "Pod":
            return [plan.name]
        return [
            each["metadata"]["name"]
            for each in await self._list("Pod")
            if each["metadata"].get("labels", {}).get(setup.PLAN) == plan.name
        ]

    async def _touch(self, action: UserAction) -> None:
        await self._patch_work(action.name, {"metadata": {"labels": {"touched": f"at-{action.at}"}}})

    async def _priority(self, action: UserAction) -> None:
        if self._plans[action.name].kind == "Workload":
            await self._patch_work(action.name, {"spec": {"priority": action.argument}})
        else:
            labels = {"kueue.x-k8s.io/priority-class": f"class-{action.argument}"}
            await self._patch_work(action.name, {"metadata": {"labels": labels}})

    async def _activate(self, action: UserAction) -> None:
        """Through the Workload; that of a Job or of pods is found by its owners."""
        plan = self._plans[action.name]
        if plan.kind == "Workload":
            await self._patch_work(action.name, {"spec": {"active": action.argument}})
            return
        for name in await self._workloads_of(plan):
            await self._patch("Workload", name, {"spec": {"active": action.argument}})

    async def _workloads_of(self, plan: Plan) -> list[str]:
        names = await self._names(plan)
        if plan.kind in job_kinds.PARENTS:
            pods = await self._list("Pod")
            names += [name_of(each) for each in pods if each["metadata"].get("labels", {}).get(setup.APP) == plan.name]
        return [
            tree["metadata"]["name"]
            for tree in await self._list("Workload")
            if any(owner["name"] in names for owner in tree["metadata"].get("ownerReferences", ()))
        ]

    async def _send_elsewhere(self, action: UserAction) -> None:
        if self._plans[action.name].kind == "Workload":
            await self._patch_work(action.name, {"spec": {"queueName": action.argument}})
        else:
            labels = {"kueue.x-k8s.io/queue-name": action.argument}
            await self._patch_work(action.name, {"metadata": {"labels": labels}})

    async def _scale(self, action: UserAction) -> None:
        """Another number of pods. The workers of a RayJob are scaled by its autoscaler, in its RayCluster."""
        plan = self._plans[action.name]
        if plan.kind == "Job":
            await self._patch_work(action.name, {"spec": {"parallelism": action.argument}})
            return
        if plan.kind in job_kinds.PARENTS:
            await self._patch_work(action.name, {"spec": {"replicas": action.argument}})
            return
        name = f"{plan.name}-cluster" if plan.kind == "RayJob" else plan.name
        found = await self._client.get(kind_of("RayCluster"), name, plan.namespace)
        groups = [{**each, "replicas": action.argument - 1} for each in job_kinds.ray_groups(found["spec"])]
        await self._patch("RayCluster", name, {"spec": {"workerGroupSpecs": groups}})

    async def _patch_work(self, name: str, patch: Tree) -> None:
        plan = self._plans[name]
        for each in await self._names(plan):
            await self._client.patch(kind_of(plan.kind), each, patch, plan.namespace)

    # --- By hand ------------------------------------------------------------------------------------------------------

    async def _set_suspend(self, action: UserAction) -> None:
        """A user starts or stops a job, and marks the write."""
        if self._plans[action.name].kind in job_kinds.KINDS:
            patch: Any = action.argument
            for key in reversed(job_kinds.KINDS[self._plans[action.name].kind].suspend_path):
                patch = {key: patch}
            mark = {"annotations": {BY_HAND: f"at-{action.at}"}}
            await self._patch_work(action.name, {"metadata": mark, **patch})

    async def _delete_workload(self, action: UserAction) -> None:
        """That of a job, which stays."""
        plan = self._plans[action.name]
        for name in await self._workloads_of(plan) if plan.kind in job_kinds.KINDS else ():
            await self._client.delete(kind_of("Workload"), name, plan.namespace)

    async def _make_workload(self, action: UserAction) -> None:
        await self._create(setup.made_for(self._plans[action.name], is_wrong=action.argument))

    async def _take_finalizers(self, action: UserAction) -> None:
        for name in await self._workloads_of(self._plans[action.name]):
            await self._patch("Workload", name, {"metadata": {"finalizers": None}})

    # --- Nodes --------------------------------------------------------------------------------------------------------

    async def _lose_node(self, action: UserAction) -> None:
        match action.argument:
            case "gone":
                await self._client.delete(kind_of("Node"), action.name)
            case "ill":
                await self._patch(
                    "Node", action.name, {"status": {"conditions": [setup.node_ready("False")]}}, "status"
                )
            case _:
                taint = {"key": "example.com/repair", "effect": "NoExecute"}
                await self._patch("Node", action.name, {"spec": {"taints": [taint]}})

    async def _mend_node(self, action: UserAction) -> None:
        tree = next(each for each in self._world.objects if each["metadata"]["name"] == action.name)
        if await self._client.find(kind_of("Node"), action.name) is None:
            await self._create(tree)
        else:
            await self._patch("Node", action.name, {"spec": {"taints": None}})
            await self._patch("Node", action.name, {"status": tree["status"]}, "status")

    # --- Queues -------------------------------------------------------------------------------------------------------

    async def _stop(self, action: UserAction) -> None:
        kind, policy = action.argument
        await self._patch(kind, action.name, {"spec": {"stopPolicy": policy}})

    async def _quota(self, action: UserAction) -> None:
        found = await self._client.get(kind_of("ClusterQueue"), action.name)
        for group in found["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource["nominalQuota"] = str(action.argument)
                    if "lendingLimit" in resource:
                        resource["lendingLimit"] = str(min(action.argument, int(resource["lendingLimit"])))
        await self._client.replace(kind_of("ClusterQueue"), found)

    async def _move(self, action: UserAction) -> None:
        await self._patch("ClusterQueue", action.name, {"spec": {"cohortName": action.argument or None}})

    async def _change_cohort(self, action: UserAction) -> None:
        await self._patch("Cohort", action.name, {"spec": {"resourceGroups": action.argument}})

    async def _change(self, action: UserAction) -> None:
        kind, patch = action.argument
        await self._patch(kind, action.name, patch)

    async def _remove(self, action: UserAction) -> None:
        row = kind_of(action.argument)
        await self._client.delete(row, action.name, NAMESPACE if row.namespaced else "")

    async def _bring_back(self, action: UserAction) -> None:
        self._returning.append(asyncio.create_task(self._until_back(action.argument)))

    async def _until_back(self, tree: Tree) -> None:
        """What is in use goes only when it is not; as long as that takes, it cannot come back."""
        row, place = kind_of(tree["kind"]), tree["metadata"].get("namespace", "")
        for _ in range(100):
            try:
                found = await self._client.find(row, tree["metadata"]["name"], place)
                if found is None:
                    await self._create(tree)
                    self._log(f"{tree['kind']} {tree['metadata']['name']} is back")
                    return
                if "deletionTimestamp" not in found["metadata"]:
                    return
            except KubeError as error:
                self._log(f"{tree['kind']} {tree['metadata']['name']} cannot come back yet: {error}")
            await asyncio.sleep(_WAIT_TO_RETURN_SECONDS)

    async def _check(self, action: UserAction) -> None:
        await self._patch(
            "AdmissionCheck", action.name, {"status": {"conditions": [active(action.argument)]}}, "status"
        )

    async def _define(self, action: UserAction) -> None:
        await self._create(action.argument)

    async def _poison(self, action: UserAction) -> None:
        await self._create(action.argument)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def _create(self, tree: Tree) -> None:
        await self._client.create(kind_of(tree["kind"]), tree)
        if tree["kind"] == "Node":
            # A server marks every new node as not ready; the kubelet removes the taint.
            await self._patch("Node", tree["metadata"]["name"], {"spec": {"taints": None}})
        if "status" in tree:
            await self._patch(tree["kind"], tree["metadata"]["name"], {"status": tree["status"]}, "status")
        if tree["kind"] == "AdmissionCheck" and tree["metadata"]["name"] != setup.NODES_CHECK:
            status = {"conditions": [active(True)]}
            await self._patch("AdmissionCheck", tree["metadata"]["name"], {"status": status}, "status")

    async def _patch(self, kind: str, name: str, patch: Tree, subresource: str = "") -> None:
        row = kind_of(kind)
        await self._client.patch(row, name, patch, NAMESPACE if row.namespaced else "", subresource=subresource)

    async def _list(self, kind: str) -> list[Tree]:
        found = await self._client.list(kind_of(kind), NAMESPACE)
        return [msgspec.json.decode(item) for item in found.items]


def active(is_active: bool) -> Tree:
    """The Active condition that a check's controller sets."""
    return {
        "type": "Active",
        "status": "True" if is_active else "False",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }


_VERBS: Final[Mapping[str, Callable[[Users, UserAction], Awaitable[None]]]] = {
    "create": Users._submit,
    "delete": Users._delete,
    "touch": Users._touch,
    "priority": Users._priority,
    "activate": Users._activate,
    "send elsewhere": Users._send_elsewhere,
    "scale": Users._scale,
    "set suspend": Users._set_suspend,
    "delete workload": Users._delete_workload,
    "take finalizers": Users._take_finalizers,
    "make workload": Users._make_workload,
    "lose node": Users._lose_node,
    "mend node": Users._mend_node,
    "stop": Users._stop,
    "quota": Users._quota,
    "move": Users._move,
    "cohort": Users._change_cohort,
    "change": Users._change,
    "remove": Users._remove,
    "bring back": Users._bring_back,
    "check": Users._check,
    "define": Users._define,
    "poison": Users._poison,
}
