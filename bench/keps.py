"""What two of the proposals cost: default LocalQueues in a large cluster (7610), exclusions in each decision (5800).

    python -m bench keps --json=FILE

The LocalQueues are made by a manager on the embedded server, in memory, and set against the same number of plain
creations by the same client. The exclusions are set against the same world without any. All in one run, as ratios, and
in processor time, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from bench.decisions import NAMESPACE, NOW, Made, cluster_queue, drive, local_queue, workload

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.api import kube, kueue, registry
from pykueue.app.embedded_manager import embedded_manager
from pykueue.app.server import kueue_parts
from pykueue.controllers.assembly import Manager
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.state.world import World

QUEUES: Final = 50
AT_ONCE: Final = 4  # as many as the manager has workers
QUEUE: Final = registry.KUEUE.of(kueue.LocalQueue)
CONFIG_MAP: Final = registry.KUBERNETES.of(kube.ConfigMap)

Figures = dict[str, float]


# --- 7610: default LocalQueues ----------------------------------------------------------------------------------------


async def default_local_queues(namespaces: int) -> Figures:
    """Namespaces and ClusterQueues are there first; then a manager comes, and then one namespace more."""
    chosen = settings.load(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "featureGates": {"DefaultLocalQueue": True},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        server = ServerSettings(data_dir=Path(folder), durability=Durability.MEMORY)
        async with api_server(server, kueue_parts()) as serving:
            handle = partial(serving.embedded.server.handle_as, authentication.ADMIN)
            client = ApiClient(LocalTransport(handle), random.Random(1))
            await _all_of(
                partial(client.create, registry.KUBERNETES.of(kube.Namespace)), map(_namespace, range(namespaces))
            )
            plain = await _seconds(_all_of(partial(client.create, CONFIG_MAP), map(_config_map, range(namespaces))))
            await _all_of(partial(client.create, registry.KUEUE.of(kueue.ClusterQueue)), map(_maker, range(QUEUES)))
            started = time.process_time()
            async with embedded_manager(serving.embedded, chosen) as manager:
                await _until(lambda: _has(manager, namespaces), 0.05)
                made = time.process_time() - started
                listed = manager.client.sent.get(("GET", QUEUE.plural), 0)
                started = time.process_time()
                await client.create(registry.KUBERNETES.of(kube.Namespace), _namespace(namespaces))
                await _until(lambda: client.find(QUEUE, "team", f"ns-{namespaces:05}"), 0)
                one = time.process_time() - started
                again = manager.client.sent.get(("GET", QUEUE.plural), 0)
    return {
        "plain creations, seconds": plain,
        "from the start to the last LocalQueue, seconds": made,
        "ratio to plain creations": made / plain,
        "one namespace more, milliseconds": one * 1e3,
        "LocalQueues listed or read for it": again - listed,
    }


def _namespace(number: int) -> dict[str, Any]:
    labels = {"team": f"t{number % QUEUES}"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns-{number:05}", "labels": labels}}


def _config_map(number: int) -> dict[str, Any]:
    """As large as a LocalQueue, and unused."""
    metadata = {"name": "plain", "namespace": f"ns-{number:05}", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"clusterQueue": "elsewhere"}}


def _maker(number: int) -> dict[str, Any]:
    spec = {"namespaceSelector": {"matchLabels": {"team": f"t{number}"}}, "defaultLocalQueue": {"name": "team"}}
    return {"apiVersion": QUEUE.api_version, "kind": "ClusterQueue", "metadata": {"name": f"cq-{number}"}, "spec": spec}


async def _all_of(create: Callable[[Any], Awaitable[Any]], trees: Iterable[Any]) -> None:
    waiting = iter(trees)

    async def work() -> None:
        for tree in waiting:
            await create(tree)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _seconds(work: Awaitable[None]) -> float:
    started = time.process_time()
    await work
    return time.process_time() - started


async def _has(manager: Manager, count: int) -> bool:
    return len(manager.informers.local_queues) >= count


async def _until(holds: Callable[[], Awaitable[object]], pause_seconds: float) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(pause_seconds)


# --- 5800: exclusions -------------------------------------------------------------------------------------------------

PREFIXES: Final = 64  # as many as a list may have
EXTRA: Final = tuple(f"vendor-{number}.example/thing" for number in (0, 31, 63))


def exclusions(seconds: float) -> Figures:
    """The same world without lists, with full lists that match nothing, and with lists that match what is asked for."""
    costs = {
        name: drive(name, partial(_world, lists, asked), seconds).microseconds_per_decision
        for name, lists, asked in (
            ("no lists", False, ()),
            ("full lists, nothing to leave out", True, ()),
            ("full lists, three resources to leave out", True, EXTRA),
        )
    }
    bare = costs["no lists"]
    figures = {f"{name}, us/decision": cost for name, cost in costs.items()}
    return figures | {f"{name}, ratio": cost / bare for name, cost in costs.items() if cost != bare}


def _world(lists: bool, asked: tuple[str, ...]) -> Made:
    """As the first world of `decisions`: five cohorts of six queues, with 100 Workloads each."""
    own = tuple(f"vendor-{number}.example/" for number in range(PREFIXES)) if lists else ()
    global_prefixes = tuple(f"global-{number}.example/" for number in range(PREFIXES)) if lists else ()
    world = World(SchedulingPolicy(queue_exclusions=lists), accounting=requests.accounting(global_prefixes))
    world.put(kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)), NOW)
    world.put(kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")), NOW)
    names = [f"c{cohort}-q{queue}" for cohort in range(5) for queue in range(6)]
    number = 0

    def another(queue: str) -> kueue.Workload:
        nonlocal number
        number += 1
        made = workload(number, queue, "1", 50)
        pod_set = made.spec.pod_sets[0]
        (container,) = pod_set.template.spec.containers
        needs = msgspec.structs.replace(
            container.resources, requests={**container.resources.requests, **dict.fromkeys(asked, "1")}
        )
        containers = (msgspec.structs.replace(container, resources=needs),)
        template = msgspec.structs.replace(
            pod_set.template, spec=msgspec.structs.replace(pod_set.template.spec, containers=containers)
        )
        pod_sets = (msgspec.structs.replace(pod_set, template=template),)
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=pod_sets))

    for name in names:
        queue = cluster_queue(name, name.partition("-")[0])
        spec = msgspec.structs.replace(queue.spec, exclude_resource_prefixes=own)
        world.put(msgspec.structs.replace(queue, spec=spec), NOW)
        world.put(local_queue(name, name), NOW)
    for _ in range(100):
        for name in names:
            world.put(another(name), NOW)
    world.settle(NOW)
    return world, another


# --- Both -------------------------------------------------------------------------------------------------------------


SMALLEST = ("--seconds=0.05", "--namespaces=50")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to decide in each world")
    parser.add_argument("--namespaces", type=int, default=5_000)
    given = parser.parse_args(arguments)
    figures = {"7610": asyncio.run(default_local_queues(given.namespaces)), "5800": exclusions(given.seconds)}
    for proposal, measured in figures.items():
        for name, value in measured.items():
            print(f"{proposal}  {name:60} {value:10.2f}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
