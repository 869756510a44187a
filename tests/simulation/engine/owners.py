"""The controllers around the manager, simulated: the owners of bare Workloads, Kubernetes' own Job controller, and the
controller of the admission checks. Those of a cluster's nodes and pods are in `cluster`.

Each looks at what is stored, does its part after a while, and writes with the resourceVersion that it read; when another write was
faster it looks again. A part that is no longer wanted is dropped.
"""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Conflict, KubeError, NotFound
from kubemachinery.clock import Clock
from simulation.engine import setup
from simulation.engine.revisions import Stored, Tree
from simulation.engine.server import History
from simulation.engine.setup import NODES_CHECK, Plan, World
from simulation.engine.users import kind_of

# What is done about an object: a word, and what sets it apart from the same thing at another time.
Part: TypeAlias = tuple[str, ...]

# Evictions after which the work goes back to its queue by itself.
_COMES_BACK: Final = ("Preempted", "NodeFailures")
_AGAIN_SECONDS: Final = 0.2
# For work that no plan knows of: it runs for a moment.
_STRANGER: Final = Plan("", 0.0, "", "", 1, 1, 0, 3.0, 0.0, is_long=False)


class Stage:
    """What all simulated controllers share: the client, the time, and what is stored."""

    def __init__(
        self,
        world: World,
        client: ApiClient,
        clock: Clock,
        rng: random.Random,
        log_line: Callable[[str], None],
        *,
        watches_pods: bool,
    ) -> None:
        self.plans: Mapping[str, Plan] = {plan.name: plan for plan in world.plans}
        self.client = client
        self.clock = clock
        self.rng = rng
        self.log_line = log_line
        self.watches_pods = watches_pods
        self.long_may_end = asyncio.Event()
        self.is_calm = False  # from now on checks turn Ready and stay Ready

    def plan(self, name: str) -> Plan:
        """By the name of an object; those of pods end with a number."""
        return self.plans.get(name) or self.plans.get(name.rpartition("-")[0], _STRANGER)

    def now(self) -> str:
        moment = datetime.datetime.fromtimestamp(self.clock.now() // 1_000_000_000, datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    async def until_ready(self, plan: Plan) -> None:
        if plan.ready_seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(plan.ready_seconds)

    async def until_done(self, plan: Plan) -> None:
        if plan.is_long:
            await self.long_may_end.wait()
        await asyncio.sleep(plan.seconds)

    async def write(self, kind: str, tree: Tree, status: Tree) -> None:
        """Write a status on the revision that was seen."""
        metadata = tree["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        await self.client.patch(
            kind_of(kind), metadata["name"], patch, metadata.get("namespace", ""), subresource="status"
        )


class Played:
    """A controller: `wanted` names the parts that an object asks for now; each takes a while and ends with a write."""

    resource = ""
    kind = ""
    minds_the_dying = False  # whether there is something to do about what is being deleted

    def __init__(self, stage: Stage, history: History) -> None:
        self.stage = stage
        self._latest: dict[str, Tree] = {}
        self._parts: dict[tuple[str, Part], asyncio.Task[None]] = {}
        self._refused: set[tuple[str, Part]] = set()  # parts that were drawn not to run
        history.listeners.append(self._stored)

    def wanted(self, tree: Tree) -> Iterator[Part]:
        raise NotImplementedError

    async def wait(self, plan: Plan, part: Part) -> None:
        """As long as the part takes."""
        raise NotImplementedError

    def status(self, tree: Tree, part: Part) -> Tree | None:
        """What is then written, on the newest state; None for nothing, for good."""
        raise NotImplementedError

    async def act(self, tree: Tree, part: Part) -> bool:
        """Write it; False when there is nothing to write, for good."""
        status = self.status(tree, part)
        if status is not None:
            await self.stage.write(self.kind, tree, status)
        return status is not None

    def _stored(self, stored: Stored) -> None:
        if stored.resource != self.resource:
            return
        key = f"{stored.namespace}/{stored.name}"
        if stored.op == "DELETED":
            self._latest.pop(key, None)
            self._play(key, [])
        else:
            self._latest[key] = msgspec.json.decode(stored.body)
            self.look(self._latest[key])

    def look(self, tree: Tree) -> None:
        """Begin what an object asks for now, and drop what it does not ask for any more."""
        metadata = tree["metadata"]
        is_going = "deletionTimestamp" in metadata and not self.minds_the_dying
        self._play(f"{metadata['namespace']}/{metadata['name']}", [] if is_going else list(self.wanted(tree)))

    def _play(self, key: str, wanted: list[Part]) -> None:
        for place in [place for place in self._parts if place[0] == key and place[1] not in wanted]:
            task = self._parts.pop(place)
            if task is not asyncio.current_task():
                task.cancel()
        for part in wanted:
            if (key, part) not in self._parts and (key, part) not in self._refused:
                played = self._until_played(key, part)
                self._parts[key, part] = asyncio.get_running_loop().create_task(played)

    async def _until_played(self, key: str, part: Part) -> None:
        """Play a part as long as it is wanted; when it is not any more, this is cancelled."""
        place = (key, part)
        try:
            while True:
                await self.wait(self.stage.plan(key.rpartition("/")[2]), part)
                await self._until_written(key, part)
                if place in self._refused or key not in self._latest:
                    return
        finally:
            if self._parts.get(place) is asyncio.current_task():
                del self._parts[place]

    async def _until_written(self, key: str, part: Part) -> None:
        while (tree := self._latest.get(key)) is not None:
            try:
                if not await self.act(tree, part):
                    self._refused.add((key, part))
                return
            except NotFound:
                return
            except Conflict:
                await asyncio.sleep(_AGAIN_SECONDS)
            except KubeError as error:
                self.stage.log_line(f"{self.kind} {key}: {part}: {error}")
                await asyncio.sleep(_AGAIN_SECONDS)

    async def close(self) -> None:
        tasks = list(self._parts.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Owners(Played):
    """The owner of a bare Workload: runs it while admitted, stops it when evicted and then releases the quota.

    One that was made for a Job does not run as long as that does not come, and is given up in the end.
    """

    resource = "workloads.kueue.x-k8s.io"
    kind = "Workload"

    def wanted(self, tree: Tree) -> Iterator[Part]:
        conditions = true_conditions(tree)
        if "ownerReferences" in tree["metadata"] or conditions.get("Finished") or not conditions.get("QuotaReserved"):
            return
        if conditions.get("Evicted"):
            yield ("stop",)
        elif conditions.get("Admitted") and setup.MADE in tree["metadata"].get("labels", {}):
            yield ("give up",)
        elif conditions.get("Admitted"):
            yield ("run",)
            if self.stage.watches_pods and not conditions.get("PodsReady"):
                yield ("ready",)

    async def wait(self, plan: Plan, part: Part) -> None:
        match part:
            case ("stop",):
                await asyncio.sleep(plan.stop_seconds)
            case ("ready",):
                await self.stage.until_ready(plan)
            case ("give up",):
                await self.stage.long_may_end.wait()
                await asyncio.sleep(plan.seconds)
            case _:
                await self.stage.until_ready(plan)
                await self.stage.until_done(plan)

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("stop",):
                return self._released(tree)
            case ("ready",):
                return {"conditions": self._with(tree, ("PodsReady", "True", "Started", "All pods are ready"))}
            case _:
                return {"conditions": self._with(tree, ("Finished", "True", "Succeeded", "It is done"))}

    def _released(self, tree: Tree) -> Tree:
        evicted = conditions_of(tree)["Evicted"]
        reason, message = evicted["reason"], evicted["message"]
        comes_back = "True" if reason in _COMES_BACK else "False"
        conditions = self._with(
            tree,
            ("Requeued", comes_back, reason, message),
            ("QuotaReserved", "False", "PendingEvaluation", message),
            ("Admitted", "False", "NoReservation", "The workload has no reservation"),
            *([("PodsReady", "False", "WaitForStart", "Not started")] if "PodsReady" in conditions_of(tree) else []),
        )
        return {"conditions": conditions, "admission": None}

    def _with(self, tree: Tree, *conditions: tuple[str, str, str, str]) -> list[Tree]:
        found = dict(conditions_of(tree))
        for type_, status, reason, message in conditions:
            before = found.get(type_)
            moved = before is None or before["status"] != status
            found[type_] = {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": self.stage.now() if moved or before is None else before["lastTransitionTime"],
                "observedGeneration": tree["metadata"].get("generation", 0),
            }
        return list(found.values())


class JobController(Played):
    """Kubernetes' own: pods of a Job that is not suspended come up, run and succeed, all at once or one by one, unless
    it fails; those of a suspended one go."""

    resource = "jobs.batch"
    kind = "Job"

    def wanted(self, tree: Tree) -> Iterator[Part]:
        status = tree.get("status", {})
        if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions", ())):
            return
        pods, active = _pods(tree), status.get("active", 0)
        if tree["spec"].get("suspend"):
            if active:
                yield ("stop",)
        elif active != pods or "startTime" not in status:
            yield ("start",)
        elif status.get("ready", 0) < pods:
            yield ("ready",)
        elif self.stage.plan(tree["metadata"]["name"]).is_piecemeal and _left(tree) > 1:
            yield ("one of them", str(_left(tree)))
        else:
            yield ("run",)

    async def wait(self, plan: Plan, part: Part) -> None:
        match part:
            case ("start",):
                await asyncio.sleep(0.1)
            case ("one of them", _):
                await asyncio.sleep(plan.seconds)
            case ("stop",):
                await asyncio.sleep(plan.stop_seconds)
            case ("ready",):
                await self.stage.until_ready(plan)
            case _:
                await self.stage.until_done(plan)

    def status(self, tree: Tree, part: Part) -> Tree:
        now, pods = self.stage.now(), _pods(tree)
        match part:
            case ("start",):
                return {
                    "startTime": now,
                    "active": pods,
                    "ready": 0,
                    "conditions": [self._condition("Suspended", "False")],
                }
            case ("stop",):
                return {"active": 0, "ready": 0, "conditions": [self._condition("Suspended", "True")]}
            case ("ready",):
                return {"ready": pods}
            case ("one of them", _):
                pods = min(pods, _left(tree) - 1)
                return {"active": pods, "ready": pods, "succeeded": tree["status"].get("succeeded", 0) + 1}
        if self.stage.plan(tree["metadata"]["name"]).fails:
            failed = [self._condition("FailureTarget", "True"), self._condition("Failed", "True")]
            return {"active": 0, "ready": 0, "failed": 1, "uncountedTerminatedPods": {}, "conditions": failed}
        done = [self._condition("SuccessCriteriaMet", "True"), self._condition("Complete", "True")]
        return {
            "active": 0,
            "ready": 0,
            "succeeded": tree["spec"]["completions"],
            "completionTime": now,
            "uncountedTerminatedPods": {},
            "conditions": done,
        }

    def _condition(self, type_: str, status: str) -> Tree:
        return {"type": type_, "status": status, "reason": "", "message": "", "lastTransitionTime": self.stage.now()}


def _left(job: Tree) -> int:
    """Pods that have not succeeded yet."""
    found: int = job["spec"]["completions"] - job.get("status", {}).get("succeeded", 0)
    return found


def _pods(job: Tree) -> int:
    """Pods that run at the same time."""
    parallelism: int = job["spec"]["parallelism"]
    return min(parallelism, _left(job))


class CheckController(Played):
    """Sets the admission checks of Workloads with quota: soon or late, once or twice, with changing states."""

    resource = "workloads.kueue.x-k8s.io"
    kind = "Workload"

    def wanted(self, tree: Tree) -> Iterator[Part]:
        conditions = true_conditions(tree)
        if conditions.get("Finished") or conditions.get("Evicted") or not conditions.get("QuotaReserved"):
            return
        answered = {each["type"] for each in _answers(tree) if each["status"] != "Unknown"}
        for check in tree["status"].get("admissionChecks", ()):
            if check["name"] == NODES_CHECK:
                continue
            place = (check["name"], check["lastTransitionTime"])
            if check["state"] in ("Pending", "PreemptionRequired"):
                if check["name"] not in answered:
                    yield ("answer", *place)
            elif check["state"] == "Ready":
                yield ("answer again", *place)
                yield ("think again", *place)

    async def wait(self, plan: Plan, part: Part) -> None:
        longest = {"answer": 3.0, "answer again": 2.0, "think again": 10.0}[part[0]]
        late = self.stage.rng.random() < 0.2
        await asyncio.sleep(self.stage.rng.uniform(0.0, 15.0 if late and not self.stage.is_calm else longest))

    def status(self, tree: Tree, part: Part) -> Tree | None:
        rng = self.stage.rng
        what, name, _ = part
        state = "Ready"
        if self.stage.is_calm:
            if what != "answer":
                return None
        elif what == "answer":
            words = ("Ready", "Retry", "Rejected", "PreemptionRequired")
            state = rng.choices(words, (70, 15, 5, 10))[0]
        elif rng.random() > 0.15:
            return None
        elif what == "think again":
            state = rng.choice(("Retry", "Retry", "Rejected"))
        self.stage.log_line(f"{name} of {tree['metadata']['name']}: {what}: {state}")
        if rng.random() < 0.5:
            return self._as_condition(tree, name, state)
        return self._as_state(tree, name, state)

    def _as_state(self, tree: Tree, name: str, state: str) -> Tree:
        answer: Tree = {"state": state, "message": "played", "lastTransitionTime": self.stage.now()}
        if state == "Retry" and self.stage.rng.random() < 0.5:
            answer["requeueAfterSeconds"] = self.stage.rng.randint(0, 10)
        checks = [
            {**check, **answer} if check["name"] == name else check for check in tree["status"]["admissionChecks"]
        ]
        return {"admissionChecks": checks}

    def _as_condition(self, tree: Tree, name: str, state: str) -> Tree:
        status, reason = _CONDITIONS[state]
        answer = {
            "type": name,
            "status": status,
            "reason": reason,
            "message": "played",
            "lastTransitionTime": self.stage.now(),
        }
        others = [each for each in _answers(tree) if each["type"] != name]
        return {"admissionChecksConditions": [*others, answer]}


# The two forms of a check state are equivalent.
_CONDITIONS: Final = {
    "Ready": ("True", "Ready"),
    "Retry": ("False", "Retry"),
    "Rejected": ("False", "Reject"),
    "PreemptionRequired": ("Unknown", "PreemptionRequired"),
}


def _answers(tree: Tree) -> list[Tree]:
    found: list[Tree] = tree["status"].get("admissionChecksConditions", [])
    return found


def conditions_of(tree: Tree) -> dict[str, Tree]:
    return {each["type"]: each for each in tree.get("status", {}).get("conditions", ())}


def true_conditions(tree: Tree) -> dict[str, bool]:
    return {type_: each["status"] == "True" for type_, each in conditions_of(tree).items()}
