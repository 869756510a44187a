"""The people and controllers around the manager: they submit, run, stop and finish work, and change their minds.

A played job does what lifecycle asks of the owner of a Workload: it runs while admitted; told that it is evicted, it
stops its pods and then gives the quota back in one write; when its time is over it says Finished. Its writes are
conditional on the revision that it saw, as a job controller's are, and it tries again when somebody was faster.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any, Final

import msgspec

from pykueue.api import registry
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError, Conflict, KubeError, NotFound
from pykueue.simulate import worlds
from pykueue.simulate.revisions import Stored
from pykueue.simulate.server import History
from pykueue.simulate.worlds import NAMESPACE, Deed, Tree, World

_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
# Evictions after which the work goes back to its queue by itself.
_COMES_BACK: Final = ("Preempted", "NodeFailures")


class Players:
    def __init__(self, world: World, client: Client, history: History, clock: Clock) -> None:
        self._world = world
        self._plans = {plan.name: plan for plan in world.plans}
        self._client = client
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, Tree] = {}
        self._long_may_end = asyncio.Event()
        # When each piece of work started to run for good; one that is evicted starts anew.
        self.trace: list[str] = []
        history.listeners.append(self._stored)

    # --- People -------------------------------------------------------------------------------------------------------

    async def build(self) -> None:
        for tree in self._world.objects:
            await self._create(tree)

    async def act(self) -> None:
        """Everything that people do, at its time."""
        coming = [Deed(plan.at, "create", plan.name) for plan in self._world.plans]
        for deed in sorted((*coming, *self._world.deeds), key=lambda deed: deed.at):
            await asyncio.sleep(max(0.0, deed.at - asyncio.get_running_loop().time()))
            try:
                await self._do(deed)
                self._tell(f"{deed.verb} {deed.name}{'' if deed.argument is None else f' {deed.argument}'}")
            except ApiError as error:
                # People meet refusals too: what they wanted to change is gone, or may not be changed now.
                self._tell(f"{deed.verb} {deed.name}: refused: {error}")

    async def _do(self, deed: Deed) -> None:
        match deed.verb:
            case "create":
                await self._create(worlds.workload(self._plans[deed.name]))
            case "delete":
                await self._client.delete(_kind("Workload"), deed.name, NAMESPACE)
            case "touch":
                await self._patch("Workload", deed.name, {"metadata": {"labels": {"touched": f"at-{deed.at}"}}})
            case "priority":
                await self._patch("Workload", deed.name, {"spec": {"priority": deed.argument}})
            case "activate":
                await self._patch("Workload", deed.name, {"spec": {"active": deed.argument}})
            case "stop":
                kind, policy = deed.argument
                await self._patch(kind, deed.name, {"spec": {"stopPolicy": policy}})
            case "quota":
                await self._change_quota(deed.name, deed.argument)

    async def _change_quota(self, queue: str, amount: int) -> None:
        found = await self._client.get(_kind("ClusterQueue"), queue)
        for group in found["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource["nominalQuota"] = str(amount)
                    if "lendingLimit" in resource:
                        resource["lendingLimit"] = str(min(amount, int(resource["lendingLimit"])))
        await self._client.replace(_kind("ClusterQueue"), found)

    async def _create(self, tree: Tree) -> None:
        await self._client.create(_kind(tree["kind"]), tree)

    async def _patch(self, kind: str, name: str, patch: Tree, subresource: str = "") -> None:
        row = _kind(kind)
        place = NAMESPACE if row.namespaced else ""
        await self._client.patch(row, name, patch, place, subresource=subresource)

    def let_long_ones_end(self) -> None:
        self._long_may_end.set()

    # --- Jobs ---------------------------------------------------------------------------------------------------------

    def _stored(self, stored: Stored) -> None:
        if stored.resource != _WORKLOADS:
            return
        name = stored.name
        if stored.op == "DELETED":
            self._latest.pop(name, None)
            self._end(name)
            return
        tree = self._latest[name] = msgspec.json.decode(stored.body)
        wanted = _wanted(tree)
        under_way = self._tasks.get(name)
        if under_way is not None and under_way.get_name() != wanted:
            self._end(name)
            under_way = None
        if wanted and under_way is None:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._play(name, wanted), name=wanted)

    def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _play(self, name: str, part: str) -> None:
        plan = self._plans[name]
        if part == "run":
            if plan.is_long:
                await self._long_may_end.wait()
            await asyncio.sleep(plan.seconds)
        else:
            await asyncio.sleep(plan.stop_seconds)
        while (tree := self._latest.get(name)) is not None and _wanted(tree) == part:
            status = self._finished(tree) if part == "run" else self._released(tree)
            revision = tree["metadata"]["resourceVersion"]
            try:
                await self._patch(
                    "Workload", name, {"metadata": {"resourceVersion": revision}, "status": status}, "status"
                )
                self._tell(f"{name} {'finished' if part == 'run' else 'stopped'}")
                return
            except Conflict:
                await asyncio.sleep(0.01)
            except NotFound:
                return
            except KubeError as error:
                self._tell(f"{name}: {error}")
                return

    def _finished(self, tree: Tree) -> Tree:
        return {"conditions": self._with(tree, ("Finished", "True", "Succeeded", "It is done"))}

    def _released(self, tree: Tree) -> Tree:
        evicted = _conditions(tree)["Evicted"]
        reason, message = evicted["reason"], evicted["message"]
        comes_back = "True" if reason in _COMES_BACK else "False"
        said = self._with(
            tree,
            ("Requeued", comes_back, reason, message),
            ("QuotaReserved", "False", "PendingEvaluation", message),
            ("Admitted", "False", "NoReservation", "The workload has no reservation"),
        )
        return {"conditions": said, "admission": None}

    def _with(self, tree: Tree, *said: tuple[str, str, str, str]) -> list[Tree]:
        found = dict(_conditions(tree))
        for type_, status, reason, message in said:
            before = found.get(type_)
            moved = before is None or before["status"] != status
            found[type_] = {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": self._time() if moved or before is None else before["lastTransitionTime"],
                "observedGeneration": tree["metadata"].get("generation", 0),
            }
        return list(found.values())

    def _time(self) -> str:
        return _rfc3339(self._clock.now())

    def _tell(self, line: str) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():9.3f} {line}")

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _rfc3339(nanoseconds: int) -> str:
    moment = datetime.datetime.fromtimestamp(nanoseconds // 1_000_000_000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _wanted(tree: Tree) -> str:
    """What the owner of a Workload has to do about it now: run it, stop it, or nothing."""
    said = {type_: each["status"] == "True" for type_, each in _conditions(tree).items()}
    if said.get("Finished") or "deletionTimestamp" in tree["metadata"] or not said.get("QuotaReserved"):
        return ""
    if said.get("Evicted"):
        return "stop"
    return "run" if said.get("Admitted") else ""


def _conditions(tree: Tree) -> dict[str, Tree]:
    return {each["type"]: each for each in tree.get("status", {}).get("conditions", ())}


def _kind(name: str) -> Any:
    row = registry.ALL.named(name)
    assert row is not None, f"there is no kind {name}"
    return row
