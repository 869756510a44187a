"""Runs of a system whose Workloads preempt each other in turns, from a seed: Jobs with pods come and go, managers are
stopped and started, and the gate `LoopGuard` lets time pass between the rounds. A judge reads every revision; at the end
the records of troubles are compared with what was reported."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from controllers.test_troubles import job, priority_class
from history.recorded_world import RecordedWorld, recorded_server
from kubemachinery import yaml_documents
from kubemachinery.meta import SECOND, parse_time
from pykueue import settings, testing
from pykueue.api import config
from pykueue.client import job_troubles
from pykueue.client.job_history import HistoryRequest
from simulation.judged_journal import JudgedJournal
from simulation.loop_judge import LoopJudge

LOOPS = Path(__file__).parents[1] / "state" / "loops"
CASES = ("livelock-33", "livelock-51", "livelock-11")
STEPS = 10
GATES = {"FairSharingPreemptionProgress": False, "LoopGuard": True}


def case(name: str) -> tuple[settings.Settings, list[dict[str, Any]]]:
    """The configuration of a livelock, and its objects with Jobs in place of its Workloads."""
    trees = [document.tree for document in yaml_documents.read(LOOPS / f"{name}.yaml")]
    fair = next(tree for tree in trees if tree["kind"] == "Configuration")["fairSharing"]
    head = {"apiVersion": config.V1BETA2, "kind": config.KIND, "fairSharing": fair, "featureGates": GATES}
    objects = [tree for tree in trees if tree["kind"] not in ("Configuration", "Workload", "Namespace")]
    workloads = [tree for tree in trees if tree["kind"] == "Workload"]
    priorities = sorted({tree["spec"].get("priority", 0) for tree in workloads})
    objects += [priority_class(f"p{value}", value) for value in priorities]
    for tree in workloads:
        (pod_set,) = tree["spec"]["podSets"]
        requests = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
        cpu = int(requests["cpu"]) * int(pod_set.get("count", 1))
        priority = f"p{tree['spec'].get('priority', 0)}"
        objects.append(job(tree["metadata"]["name"], tree["spec"]["queueName"], cpu, priority=priority))
    return settings.load(head, "simulation"), objects


class LoopRun:
    """One run."""

    def __init__(
        self, rng: random.Random, made: RecordedWorld, judge: LoopJudge, objects: list[dict[str, Any]]
    ) -> None:
        self._rng = rng
        self._made = made
        self._judge = judge
        self._objects = objects
        self._stack = AsyncExitStack()
        self._jobs: list[dict[str, Any]] = [tree for tree in objects if tree["kind"] == "Job"]
        self._away: list[dict[str, Any]] = []

    async def play(self) -> None:
        rng = self._rng
        async with self._stack:
            await self._stack.enter_async_context(self._made.manager())
            for tree in self._objects:
                await self._apply(tree)
            for _ in range(STEPS):
                await asyncio.sleep(rng.choice((20, 45, 90, 200)))
                match rng.choice(("wait", "wait", "leave", "return", "return", "restart")):
                    case "leave" if self._jobs:
                        self._away.append(self._jobs.pop(rng.randrange(len(self._jobs))))
                        await self._made.client.cancel(self._away[-1]["metadata"]["name"])
                    case "return" if self._away:
                        self._jobs.append(self._away.pop())
                        await self._apply(self._jobs[-1])
                    case "restart":
                        await self._stack.pop_all().aclose()
                        self._judge.restarted()
                        await self._stack.enter_async_context(self._made.manager())
                    case _:
                        pass
            for tree in self._jobs:
                await self._made.client.cancel(tree["metadata"]["name"])
            await asyncio.sleep(240)
            await self._compare_records()
            await self._stack.pop_all().aclose()

    async def _apply(self, tree: dict[str, Any]) -> None:
        await self._made.api.apply(testing._kind(tree), testing._placed(tree), "simulation")
        await asyncio.sleep(0.1)

    async def _compare_records(self) -> None:
        """Every loop that was reported has a record of that time, and all of them have ended [LG9]."""
        records = await job_troubles.past(self._made.api, HistoryRequest(namespace="default", since=0))
        spans: dict[str, list[tuple[int, int | None]]] = {}
        for each in records:
            ended = parse_time(each.ended) // SECOND if each.ended else None
            if ended is None:
                self._judge.violate("LG9", each.job, f"{each.trouble} has not ended, and no job is left")
            if each.trouble == "EvictionLoop":
                found = parse_time(each.found or "") // SECOND
                spans.setdefault(each.metadata.name, []).append((found, ended))
        for workload, at in self._judge.reported:
            self._judge.counted["reported"] += 1
            if not any(found <= at and (ended is None or at <= ended) for found, ended in spans.get(workload, ())):
                self._judge.violate("LG9", workload, f"the loop that is reported at {at} has no record")


async def run(seed: int, path: Path, judge: LoopJudge) -> None:
    """Play one run; the judge has the violations, and how often what they are about happened."""
    rng = random.Random(seed)
    chosen, objects = case(CASES[seed % len(CASES)])
    async with recorded_server(chosen, JudgedJournal(judge)) as (embedded, clock):
        made = RecordedWorld(embedded, clock, path / f"history-{seed}.db", chosen)
        await LoopRun(rng, made, judge, objects).play()
