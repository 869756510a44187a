"""The people of a story: they build the world, submit work, and change their minds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.kinds import Kind
from pykueue.api import registry
from simulation.engine import setup
from simulation.engine.revisions import BY_HAND, Tree
from simulation.engine.setup import NAMESPACE, Plan, World
from simulation.engine.user_actions import Deed

_WAIT_TO_RETURN_SECONDS: Final = 1.0


def kind_of(name: str) -> Kind:
    row = registry.ALL.named(name)
    assert row is not None, f"there is no kind {name}"
    return row


class People:
    def __init__(self, world: World, deeds: Sequence[Deed], client: ApiClient, tell: Callable[[str], None]) -> None:
        self._world = world
        self._deeds = deeds
        self._plans = {plan.name: plan for plan in world.plans}
        self._client = client
        self._tell = tell
        self._returning: list[asyncio.Task[None]] = []
        # Plans whose pods are to be there, and are made anew by `cluster.Crews` when they go too early.
        self.wants: set[str] = set()

    async def build(self) -> None:
        for tree in (*setup.priority_classes(), *self._world.objects):
            await self._create(tree)

    async def act(self) -> None:
        """Everything that people do, at its time."""
        coming = [Deed(plan.at, "create", plan.name) for plan in self._world.plans]
        for deed in sorted((*coming, *self._deeds), key=lambda deed: deed.at):
            await asyncio.sleep(max(0.0, deed.at - asyncio.get_running_loop().time()))
            about = "" if deed.argument is None or isinstance(deed.argument, dict) else f" {deed.argument}"
            try:
                await _VERBS[deed.verb](self, deed)
                self._tell(f"{deed.verb} {deed.name}{about}")
            except KubeError as error:
                # People meet refusals too: what they wanted to change is gone, or may not be changed now.
                self._tell(f"{deed.verb} {deed.name}{about}: refused: {error}")
        await asyncio.gather(*self._returning)

    async def probe(self) -> None:
        await self._create(setup.probe())

    # --- Work ---------------------------------------------------------------------------------------------------------

    async def _submit(self, deed: Deed) -> None:
        for tree in setup.manifests(self._plans[deed.name]):
            await self._create(tree)
        self.wants.add(deed.name)

    async def _delete(self, deed: Deed) -> None:
        plan = self._plans[deed.name]
        self.wants.discard(deed.name)
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
            if each["metadata"]["labels"].get(setup.PLAN) == plan.name
        ]

    async def _touch(self, deed: Deed) -> None:
        await self._patch_work(deed.name, {"metadata": {"labels": {"touched": f"at-{deed.at}"}}})

    async def _priority(self, deed: Deed) -> None:
        if self._plans[deed.name].kind == "Workload":
            await self._patch_work(deed.name, {"spec": {"priority": deed.argument}})
        else:
            labels = {"kueue.x-k8s.io/priority-class": f"class-{deed.argument}"}
            await self._patch_work(deed.name, {"metadata": {"labels": labels}})

    async def _activate(self, deed: Deed) -> None:
        """Through the Workload; that of a Job or of pods is found by its owners."""
        plan = self._plans[deed.name]
        if plan.kind == "Workload":
            await self._patch_work(deed.name, {"spec": {"active": deed.argument}})
            return
        for name in await self._workloads_of(plan):
            await self._patch("Workload", name, {"spec": {"active": deed.argument}})

    async def _workloads_of(self, plan: Plan) -> list[str]:
        names = await self._names(plan)
        return [
            tree["metadata"]["name"]
            for tree in await self._list("Workload")
            if any(owner["name"] in names for owner in tree["metadata"].get("ownerReferences", ()))
        ]

    async def _send_elsewhere(self, deed: Deed) -> None:
        if self._plans[deed.name].kind == "Workload":
            await self._patch_work(deed.name, {"spec": {"queueName": deed.argument}})
        else:
            labels = {"kueue.x-k8s.io/queue-name": deed.argument}
            await self._patch_work(deed.name, {"metadata": {"labels": labels}})

    async def _scale(self, deed: Deed) -> None:
        await self._patch_work(deed.name, {"spec": {"parallelism": deed.argument}})

    async def _patch_work(self, name: str, patch: Tree) -> None:
        plan = self._plans[name]
        for each in await self._names(plan):
            await self._client.patch(kind_of(plan.kind), each, patch, plan.namespace)

    # --- By hand ------------------------------------------------------------------------------------------------------

    async def _set_suspend(self, deed: Deed) -> None:
        """Somebody starts or stops a Job himself, and leaves his mark."""
        if self._plans[deed.name].kind == "Job":
            mark = {"annotations": {BY_HAND: f"at-{deed.at}"}}
            await self._patch_work(deed.name, {"metadata": mark, "spec": {"suspend": deed.argument}})

    async def _delete_workload(self, deed: Deed) -> None:
        """That of a Job, which stays."""
        plan = self._plans[deed.name]
        for name in await self._workloads_of(plan) if plan.kind == "Job" else ():
            await self._client.delete(kind_of("Workload"), name, plan.namespace)

    async def _make_workload(self, deed: Deed) -> None:
        await self._create(setup.made_for(self._plans[deed.name], is_wrong=deed.argument))

    async def _take_finalizers(self, deed: Deed) -> None:
        for name in await self._workloads_of(self._plans[deed.name]):
            await self._patch("Workload", name, {"metadata": {"finalizers": None}})

    # --- Nodes --------------------------------------------------------------------------------------------------------

    async def _lose_node(self, deed: Deed) -> None:
        match deed.argument:
            case "gone":
                await self._client.delete(kind_of("Node"), deed.name)
            case "ill":
                await self._patch("Node", deed.name, {"status": {"conditions": [setup.node_ready("False")]}}, "status")
            case _:
                taint = {"key": "example.com/repair", "effect": "NoExecute"}
                await self._patch("Node", deed.name, {"spec": {"taints": [taint]}})

    async def _mend_node(self, deed: Deed) -> None:
        tree = next(each for each in self._world.objects if each["metadata"]["name"] == deed.name)
        if await self._client.find(kind_of("Node"), deed.name) is None:
            await self._create(tree)
        else:
            await self._patch("Node", deed.name, {"spec": {"taints": None}})
            await self._patch("Node", deed.name, {"status": tree["status"]}, "status")

    # --- Queues -------------------------------------------------------------------------------------------------------

    async def _stop(self, deed: Deed) -> None:
        kind, policy = deed.argument
        await self._patch(kind, deed.name, {"spec": {"stopPolicy": policy}})

    async def _quota(self, deed: Deed) -> None:
        found = await self._client.get(kind_of("ClusterQueue"), deed.name)
        for group in found["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource["nominalQuota"] = str(deed.argument)
                    if "lendingLimit" in resource:
                        resource["lendingLimit"] = str(min(deed.argument, int(resource["lendingLimit"])))
        await self._client.replace(kind_of("ClusterQueue"), found)

    async def _move(self, deed: Deed) -> None:
        await self._patch("ClusterQueue", deed.name, {"spec": {"cohortName": deed.argument or None}})

    async def _change_cohort(self, deed: Deed) -> None:
        await self._patch("Cohort", deed.name, {"spec": {"resourceGroups": deed.argument}})

    async def _change(self, deed: Deed) -> None:
        kind, patch = deed.argument
        await self._patch(kind, deed.name, patch)

    async def _remove(self, deed: Deed) -> None:
        row = kind_of(deed.argument)
        await self._client.delete(row, deed.name, NAMESPACE if row.namespaced else "")

    async def _bring_back(self, deed: Deed) -> None:
        self._returning.append(asyncio.create_task(self._until_back(deed.argument)))

    async def _until_back(self, tree: Tree) -> None:
        """What is in use goes only when it is not; as long as that takes, it cannot come back."""
        row, place = kind_of(tree["kind"]), tree["metadata"].get("namespace", "")
        for _ in range(100):
            try:
                found = await self._client.find(row, tree["metadata"]["name"], place)
                if found is None:
                    await self._create(tree)
                    self._tell(f"{tree['kind']} {tree['metadata']['name']} is back")
                    return
                if "deletionTimestamp" not in found["metadata"]:
                    return
            except KubeError as error:
                self._tell(f"{tree['kind']} {tree['metadata']['name']} cannot come back yet: {error}")
            await asyncio.sleep(_WAIT_TO_RETURN_SECONDS)

    async def _check(self, deed: Deed) -> None:
        await self._patch("AdmissionCheck", deed.name, {"status": {"conditions": [active(deed.argument)]}}, "status")

    async def _poison(self, deed: Deed) -> None:
        await self._create(deed.argument)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def _create(self, tree: Tree) -> None:
        await self._client.create(kind_of(tree["kind"]), tree)
        if tree["kind"] == "Node":
            # A server marks every new node as not ready; whoever runs it takes the mark off.
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
    """The condition by which a check's controller says that it is there."""
    return {
        "type": "Active",
        "status": "True" if is_active else "False",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }


_VERBS: Final[Mapping[str, Callable[[People, Deed], Awaitable[None]]]] = {
    "create": People._submit,
    "delete": People._delete,
    "touch": People._touch,
    "priority": People._priority,
    "activate": People._activate,
    "send elsewhere": People._send_elsewhere,
    "scale": People._scale,
    "set suspend": People._set_suspend,
    "delete workload": People._delete_workload,
    "take finalizers": People._take_finalizers,
    "make workload": People._make_workload,
    "lose node": People._lose_node,
    "mend node": People._mend_node,
    "stop": People._stop,
    "quota": People._quota,
    "move": People._move,
    "cohort": People._change_cohort,
    "change": People._change,
    "remove": People._remove,
    "bring back": People._bring_back,
    "check": People._check,
    "poison": People._poison,
}
