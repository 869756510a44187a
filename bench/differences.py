"""Whether this manager decides as Kueue does: the same random worlds for both, compared after every step.

    python -m bench differences [--seed=a] [--worlds=40] [--only=] [--steps=12] [--fair] [--topology] [--changes]
                                  [--groups] [--anywhere] [--stop-steps=0] [--rest=1] [--patience=8]
                                  [--gates=NAME=true,…] [--alone] [--json=FILE]

Kueue is built from its published Go module, once, like kube-apiserver. All worlds share a server. In each step one
Workload of every world arrives or finishes, or with `--changes` a queue, a cohort or a Workload changes; the next step
begins when no world has changed for `--rest` seconds. Then the admissions of the managers are compared: which
Workloads have quota, of which flavors, for how many pods. A world that does not come to rest within `--patience`
seconds, as in a preemption loop, is not compared from that step on, nor are the steps after the end of a manager that
ended by itself.

The job of an evicted Workload stops at once, or with `--stop-steps` so many steps later; its quota is used until then.
With `--alone` this manager on a kube-apiserver is compared with that of `pykueue up`. Exit code 1 if any world differs.
Feature gates have their defaults in Kueue for both, and `--gates` sets them for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

import msgspec
from bench import peer
from bench._engines import Engine, embedded, real
from bench._load import BOTH_STRATEGIES, CLUSTER_QUEUE, NAMESPACE, WORKLOAD
from bench._player import SeenStatus, SeenWorkload, WatchLine, cleared_status, ended_status
from bench._worlds import FLAVORS, LEVELS, TOPOLOGY, Change, RandomWorld, Step

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Conflict, NotFound
from kubemachinery.clock import SystemClock
from pykueue import features
from pykueue.api import registry, topology_encoding

SMALLEST = ("--worlds=4", "--steps=7", "--changes", "--groups", "--alone")
EMBEDDED = "pykueue up"
KINDS = {each.kind: each for each in registry.ALL}
_POLL_SECONDS = 0.15
_READY_SECONDS = 120
# What Kueue decides otherwise with its own defaults: a gate that is on by default since Kueue 0.20, and one that exists
# only here.
_AS_KUEUE = {"RecomputeAssignmentUponPreemptionTargetsOverlap": False, "FairSharingPreemptionProgress": False}

Assignments: TypeAlias = tuple[tuple[str, int, tuple[tuple[str, str], ...], tuple[str, ...]], ...]
"""Of each pod set its name, the number of pods that are admitted, the flavor of each resource, and where pods are."""


@dataclass(frozen=True)
class State:
    """What is compared of a Workload."""

    admitted: Assignments = ()
    is_finished: bool = False

    @classmethod
    def of(cls, status: SeenStatus) -> State:
        admission = status.admission or {"podSetAssignments": ()}
        assignments = tuple(
            (
                each["name"],
                each.get("count", 0),
                tuple(sorted(each.get("flavors", {}).items())),
                _domains(each.get("topologyAssignment")),
            )
            for each in admission["podSetAssignments"]
        )
        return cls(assignments, status.has("Finished"))

    def __str__(self) -> str:
        pods = "; ".join(
            f"{name} {count} on {'/'.join(flavor for _, flavor in flavors)} {' '.join(domains)}".rstrip()
            for name, count, flavors, domains in self.admitted
        )
        return ("finished " if self.is_finished else "") + (f"[{pods}]" if pods else "pending")


States: TypeAlias = Mapping[str, State]  # by Workload


@dataclass
class Played:
    """The states of all worlds after each step, and from which step on a world did not come to rest."""

    states: list[States] = field(default_factory=list)
    restless: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    world: str
    step: int
    workloads: tuple[tuple[str, State, State | None], ...]  # those that differ; none is deleted


@dataclass
class Stage:
    """A server on which the worlds are played. It follows the Workloads, and clears the quota of evicted ones, as their
    jobs would."""

    client: ApiClient
    rest_seconds: float  # a world at rest has not changed for so long
    stop_steps: int = 0  # how many steps later the job of an evicted Workload stops
    step: int = 0
    known: dict[str, SeenWorkload] = field(default_factory=dict)
    changed_at: dict[str, float] = field(default_factory=dict)  # by world
    _clearing: set[asyncio.Task[None]] = field(default_factory=set)
    _stopping: dict[str, int] = field(default_factory=dict)  # evicted Workloads, with the step in which they stop

    async def watch(self, revision: str) -> None:
        read = msgspec.json.Decoder(WatchLine).decode
        async with self.client.watch(WORKLOAD, NAMESPACE, revision=revision) as lines:
            async for line in lines:
                event = read(line)
                if event.type in ("ADDED", "MODIFIED"):
                    self._seen(event.object)
                elif event.type == "DELETED":
                    self._deleted(event.object.metadata.name)

    def _seen(self, found: SeenWorkload) -> None:
        name, before = found.metadata.name, self.known.get(found.metadata.name)
        self.known[name] = found
        if before is None or State.of(before.status) != State.of(found.status):
            self.changed_at[_world(name)] = time.monotonic()
        if cleared_status(found.status) is not None:
            self._stopping.setdefault(name, self.step + self.stop_steps)
            self.stop_due()

    def _deleted(self, name: str) -> None:
        del self.known[name]
        self._stopping.pop(name, None)
        self.changed_at[_world(name)] = time.monotonic()

    def stop_due(self) -> None:
        """Clear the quota of evicted Workloads whose jobs stop now."""
        for name in [name for name, step in self._stopping.items() if step <= self.step]:
            del self._stopping[name]
            task = asyncio.get_running_loop().create_task(self._write(name, cleared_status))
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _write(self, name: str, change: Callable[[SeenStatus], dict[str, Any] | None]) -> None:
        while name in self.known and (status := change(self.known[name].status)) is not None:
            patch = {"metadata": {"resourceVersion": self.known[name].metadata.resource_version}, "status": status}
            try:
                await self.client.patch_revision(WORKLOAD, name, patch, NAMESPACE, subresource="status")
                return
            except Conflict:
                await asyncio.sleep(0.02)  # until the watch has brought the other write
            except NotFound:
                return

    async def take(self, step: Step) -> None:
        if step.arrival is not None:
            await self.client.create(WORKLOAD, step.arrival)
        elif step.change is not None:
            await self._make(step.change)
        else:
            await self._write(step.finishes, ended_status)

    async def _make(self, change: Change) -> None:
        kind = KINDS[change.kind]
        namespace = NAMESPACE if kind.namespaced else ""
        with contextlib.suppress(NotFound):  # a Workload that was deleted
            if change.spec is None:
                await self.client.delete(kind, change.name, namespace)
            else:
                await self.client.patch(kind, change.name, {"spec": change.spec}, namespace)

    async def rest(self, patience_seconds: float) -> list[str]:
        """Wait until all worlds are at rest; return those that are not after `patience_seconds`. At least a second
        passes: Workloads that are created within one second have no order."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = time.monotonic()
            restless = [name for name, at in self.changed_at.items() if now - max(at, began) < self.rest_seconds]
            if now - began > self.rest_seconds and (not restless or now - began > patience_seconds):
                return restless

    async def close(self) -> None:
        for task in self._clearing:
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)


async def play(
    engine: Engine, worlds: Sequence[RandomWorld], stop_steps: int, rest_seconds: float, patience_seconds: float
) -> Played:
    """Play the steps of all worlds, as far as the manager runs."""
    target = client_config.from_files([engine.kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="differences"), random.Random(1))
    stage, played = Stage(client, rest_seconds, stop_steps), Played()
    try:
        for tree in (*_common(), *(tree for world in worlds for tree in world.objects)):
            await client.create(KINDS[tree["kind"]], tree)
            if tree["kind"] == "Node":  # the server taints a new node
                await client.patch(KINDS["Node"], tree["metadata"]["name"], {"spec": {"taints": None}})
        revision = (await client.list(WORKLOAD, NAMESPACE)).revision
        watching = asyncio.create_task(stage.watch(revision))
        await until_observed(client)
        await stage.rest(patience_seconds)
        for number in range(len(worlds[0].steps)):
            stage.step = number
            if stop_steps:
                stage.stop_due()
                await stage.rest(patience_seconds)
            for world in worlds:
                await stage.take(world.steps[number])
            for name in await stage.rest(patience_seconds):
                played.restless.setdefault(name, number)
            if not _is_running(engine.manager):
                break
            if watching.done():
                raise SystemExit("bench: the watch of Workloads ended, so that later states are not known")
            played.states.append({name: State.of(found.status) for name, found in stage.known.items()})
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    finally:
        await stage.close()
        await client.close()
    return played


async def until_observed(client: ApiClient) -> None:
    """Wait until the manager leads and has observed all ClusterQueues. On a busy machine that takes longer than worlds
    take to come to rest, and Workloads that arrive earlier would all count as pending."""
    async with asyncio.timeout(_READY_SECONDS):
        while True:
            if are_observed((await client.list(CLUSTER_QUEUE)).items):
                return
            await asyncio.sleep(_POLL_SECONDS)


def are_observed(cluster_queues: Iterable[bytes]) -> bool:
    """Whether the manager has written of each of them whether it is active."""
    statuses = [msgspec.json.decode(each).get("status", {}) for each in cluster_queues]
    return all(any(each["type"] == "Active" for each in status.get("conditions", ())) for status in statuses)


def differences(worlds: Sequence[RandomWorld], one: Played, other: Played) -> list[Difference]:
    """The first step of each world after which the two differ, unless one of them was not at rest by then."""
    found = []
    for world in worlds:
        restless = min(one.restless.get(world.name, sys.maxsize), other.restless.get(world.name, sys.maxsize))
        for number, (left, right) in enumerate(zip(one.states, other.states, strict=False)):
            if number >= restless:
                break
            differ = tuple(
                (name, left[name], right.get(name))
                for name in sorted(left)
                if _world(name) == world.name and left[name] != right.get(name)
            )
            if differ:
                found.append(Difference(world.name, number, differ))
                break
    return found


def _common() -> Iterator[dict[str, Any]]:
    """The objects that all worlds share."""
    version = WORKLOAD.api_version
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    levels = [{"nodeLabel": label} for label in LEVELS]
    yield {"apiVersion": version, "kind": "Topology", "metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}}
    for name in FLAVORS:
        yield {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}}


def _domains(assignment: Any) -> tuple[str, ...]:
    """Where the pods of a pod set are: the last label of each domain, with how many."""
    if not assignment:
        return ()
    return tuple(sorted(f"{domain.values[-1]}:{domain.pods}" for domain in topology_encoding.decode(assignment) or ()))


def _world(workload: str) -> str:
    return workload.partition("-")[0]


def _is_running(pid: int) -> bool:
    """A child that has ended and was not waited for is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


@contextlib.contextmanager
def _engine(name: str, gates: Mapping[str, bool], *, is_alone: bool, fair: bool) -> Iterator[Engine]:
    settings: dict[str, Any] = {"fairSharing": BOTH_STRATEGIES} if fair else {}
    if name == EMBEDDED:
        settings["featureGates"] = {**_AS_KUEUE, **gates}
        with embedded({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **settings}) as engine:
            yield engine
    else:
        program = peer.programs(is_alone=is_alone)[name]
        own = _AS_KUEUE if name == peer.OURS else program.configuration["featureGates"]
        settings["featureGates"] = {**own, **gates}
        with real(0, replace(program, configuration={**program.configuration, **settings})) as engine:
            yield engine


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench differences")
    parser.add_argument("--seed", default="a")
    parser.add_argument("--worlds", type=int, default=40)
    parser.add_argument("--only", default="", help="numbers of worlds, instead of all up to --worlds")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fair", action="store_true", help="with fair sharing and both preemption strategies")
    parser.add_argument("--topology", action="store_true", help="with topologies, and pods that are to be near")
    parser.add_argument("--changes", action="store_true", help="with changes of queues, cohorts and Workloads")
    parser.add_argument(
        "--groups", action="store_true", help="with several resource groups; with --topology, slices and groups of pods"
    )
    parser.add_argument("--anywhere", action="store_true", help="with --topology, also pods without a topology request")
    parser.add_argument("--stop-steps", type=int, default=0, help="how many steps later evicted jobs stop")
    parser.add_argument("--alone", action="store_true", help="with pykueue up instead of Kueue")
    parser.add_argument(
        "--rest",
        type=float,
        default=1.0,
        help="seconds without a change after which a world is at rest, at least 1: more on a busy machine",
    )
    parser.add_argument("--patience", type=float, default=8.0, help="seconds that a world may take to come to rest")
    parser.add_argument("--gates", default="", help="feature gates of both managers, such as PriorityBoost=true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    gates, problems = features.parse(chosen.gates)
    if problems:
        parser.error("; ".join(f"--gates: {each.name} {each.message}" for each in problems))
    kinds = {each: getattr(chosen, each) for each in ("fair", "topology", "changes", "groups", "anywhere")}
    worlds = [
        RandomWorld(chosen.seed, number, chosen.steps, **kinds)
        for number in (map(int, chosen.only.split(",")) if chosen.only else range(chosen.worlds))
    ]
    beside = EMBEDDED if chosen.alone else peer.KUEUE
    played: dict[str, Played] = {}
    for name in (beside, peer.OURS):
        with _engine(name, gates, is_alone=chosen.alone, fair=chosen.fair) as engine:
            played[name] = asyncio.run(play(engine, worlds, chosen.stop_steps, max(1.0, chosen.rest), chosen.patience))
        states, restless = played[name].states, sorted(played[name].restless)
        admitted = sum(bool(each.admitted) for each in states[-1].values()) if states else 0
        ended = "" if len(states) == chosen.steps else f"; ENDED in step {len(states)}"
        print(
            f"  {name}: {admitted} Workloads with quota at the end,"
            f" not at rest: {', '.join(restless) or 'none'}{ended}",
            flush=True,
        )
    found = differences(worlds, played[beside], played[peer.OURS])
    steps_of = {each.name: each.steps for each in worlds}
    steps = min(len(each.states) for each in played.values())
    for each in found:
        print(f"{each.world}, step {each.step}: {steps_of[each.world][each.step]}")
        for name, left, right in each.workloads:
            print(f"    {name}: {beside} {left}, {peer.OURS} {right}")
    figures = {"worlds": len(worlds), "steps": steps, "different": len(found)}
    print(f"{figures['different']} of {figures['worlds']} worlds differ in {steps} steps")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
