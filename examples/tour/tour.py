"""A walk through the five proposals, on a server of its own: `python examples/tour/tour.py`.

Every line that it prints under a stop is read from the server. Where something does not happen, it prints that and
exits with 1. Nothing is left behind: the data of the server are in a temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.client.event_recorder import EVENTS
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind
from pykueue.api import registry

HERE = Path(__file__).parent
PROPOSALS = HERE.parent / "keps"
PATIENCE_SECONDS = 20.0

Tree = dict[str, Any]


class NotSo(Exception):
    """Something that the tour promises did not come about."""


# --- The server -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def server(data: Path, configuration: Path) -> AsyncIterator[Tour]:
    """`pykueue up` with a configuration, on the data of the time before."""
    kubeconfig = data / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    with (data / "log").open("wb") as log:
        command = ("-m", "pykueue", "up", "--data-dir", str(data), "--config", str(configuration), "--runner", "none")
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=log, stderr=log)
    print(f"$ pykueue up --config {configuration.relative_to(HERE.parent.parent)}")
    transport = None
    try:
        await until(f"the server is ready ({data / 'log'})", lambda: exists(kubeconfig))
        transport = client_config.connect(client_config.from_files([kubeconfig]), SystemClock())
        yield Tour(ApiClient(transport, random.Random()))
    finally:
        if transport is not None:
            await transport.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def until(what: str, holds: Callable[[], Awaitable[Any]]) -> Any:
    """Whatever the question is answered with, once that is something."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if found := await holds():
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise NotSo(f"it did not come about: {what}") from None


# --- What is done and seen --------------------------------------------------------------------------------------------


class Tour:
    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def stop(self, number: str, title: str) -> None:
        print(f"\nKEP-{number}: {title}")

    async def applies(self, path: Path) -> None:
        print(f"$ kubectl apply -f {path.relative_to(HERE.parent.parent)}")
        for tree in yaml.safe_load_all(await asyncio.to_thread(path.read_text, encoding="utf-8")):
            await self.makes(tree["kind"], tree)

    async def makes(self, kind: str, tree: Tree) -> None:
        row = kind_of(kind)
        await self._client.apply(row, {"apiVersion": row.api_version, "kind": row.kind, **tree}, "tour")

    async def changes(self, kind: str, name: str, patch: Tree, *, status: bool = False) -> None:
        """`name` is `namespace/name` where the kind has namespaces."""
        namespace, _, short = name.rpartition("/")
        await self._client.patch(kind_of(kind), short, patch, namespace, subresource="status" if status else "")

    async def reads(self, kind: str, name: str) -> Tree:
        namespace, _, short = name.rpartition("/")
        return await self._client.find(kind_of(kind), short, namespace) or {}

    async def all(self, kind: str | Kind) -> list[Tree]:
        row = kind if isinstance(kind, Kind) else kind_of(kind)
        return [msgspec.json.decode(item) for item in (await self._client.list(row)).items]

    async def workload_of(self, job: str) -> Tree:
        """The Workload that stands for a Job."""
        namespace, _, name = job.partition("/")

        async def found() -> Tree | None:
            for tree in await self.all("Workload"):
                owners = [owner["name"] for owner in tree["metadata"].get("ownerReferences", [])]
                if owners == [name] and tree["metadata"]["namespace"] == namespace:
                    return tree
            return None

        made: Tree = await until(f"Job {job} has a Workload", found)
        return made

    async def sees_job(self, job: str, *, run: bool, why: str = "") -> None:
        async def is_so() -> bool:
            return (await self.reads("Job", job)).get("spec", {}).get("suspend", False) is not run

        word = "runs" if run else "waits"
        await until(f"Job {job} {word}", is_so)
        print(f"  Job {job} {word}{f': {why}' if why else ''}")

    async def sees_event(self, name: str, reason: str, start: str = "") -> None:
        """The note of an Event, from this word on."""

        async def found_note() -> str:
            events = await self.all(EVENTS)
            notes = [each["note"] for each in events if (each["regarding"]["name"], each["reason"]) == (name, reason)]
            return notes[0] if notes else ""

        note = await until(f"an Event {reason} about {name}", found_note)
        print(f"  Event {reason}: {note[note.index(start) :]}")

    async def sees_condition(self, job: str, type_: str, reason: str) -> None:
        """A condition of the Workload of a Job."""

        async def condition() -> str:
            conditions = (await self.workload_of(job)).get("status", {}).get("conditions", [])
            found = [f"{each['status']}, {each['reason']}" for each in conditions if each["type"] == type_]
            return found[0] if found and found[0].endswith(f" {reason}") else ""

        print(f"  its Workload: {type_} is {await until(f'{type_} of {job} is {reason}', condition)}")


def kind_of(name: str) -> Kind:
    row = registry.ALL.named(name)
    assert row is not None, name
    return row


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- The stops --------------------------------------------------------------------------------------------------------


async def default_local_queues(tour: Tour) -> None:
    tour.stop("7610", "a ClusterQueue makes a LocalQueue in every namespace that it selects")
    await tour.applies(PROPOSALS / "7610.yaml")
    made = await until("a LocalQueue in physics", lambda: tour.reads("LocalQueue", "physics/research"))
    print(f"  LocalQueue physics/research leads to {made['spec']['clusterQueue']}; its marks:")
    for key, value in sorted({**made["metadata"]["labels"], **made["metadata"]["annotations"]}.items()):
        print(f"    {key}: {value}")
    await tour.sees_job("physics/train", run=True)
    print("$ a namespace biology, with a LocalQueue research made by hand, gets the label team=research")
    await tour.makes("Namespace", {"metadata": {"name": "biology"}})
    by_hand = {"metadata": {"name": "research", "namespace": "biology"}, "spec": {"clusterQueue": "mine"}}
    await tour.makes("LocalQueue", by_hand)
    await tour.changes("Namespace", "biology", {"metadata": {"labels": {"team": "research"}}})
    await tour.sees_event("research", "LocalQueueExists")
    print("$ another ClusterQueue for the same LocalQueue, with a selector that could meet the first one's")
    research = await tour.reads("ClusterQueue", "research")
    selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    try:
        spec = {**research["spec"], "namespaceSelector": selector}
        await tour.makes("ClusterQueue", {"metadata": {"name": "rival"}, "spec": spec})
    except ApiError as error:
        print(f"  refused: {error.causes[0]}")
    else:
        raise NotSo("a rival was accepted")


async def managed_namespaces(tour: Tour) -> None:
    tour.stop("3589", "one selector decides in which namespaces jobs without a queue are managed")
    await tour.applies(PROPOSALS / "3589.yaml")
    await tour.sees_job("team/sneaky", run=False, why="it names no queue, and the namespace is managed")
    await tour.sees_job("platform/backup", run=True, why="it names no queue, and its namespace is not selected")


async def exclusions(tour: Tour) -> None:
    tour.stop("5800", "a ClusterQueue leaves resources out of its quota, beside the global list")
    await tour.applies(PROPOSALS / "5800.yaml")
    await tour.sees_job("default/left-out", run=True)
    workload = await tour.workload_of("default/left-out")
    await tour.sees_event(workload["metadata"]["name"], "QuotaReserved", "not counted")
    await tour.sees_job("default/counted", run=False, why="the other queue has no quota for what it asks")
    await tour.sees_condition("default/counted", "QuotaReserved", "NoMatchingFlavor")
    print("$ ClusterQueue web gets excludeResourcePrefixes: [vendor.example/]")
    await tour.changes("ClusterQueue", "web", {"spec": {"excludeResourcePrefixes": ["vendor.example/"]}})
    await tour.sees_job("default/counted", run=True, why="at once, and nothing was restarted")


async def two_stages(tour: Tour) -> None:
    tour.stop("993", "quota first, then whatever else has to agree")
    await tour.applies(PROPOSALS / "993.yaml")
    print("$ the budget office opens: AdmissionCheck budget is Active")
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now()}
    await tour.changes("AdmissionCheck", "budget", {"status": {"conditions": [active]}}, status=True)
    await tour.sees_condition("default/train", "QuotaReserved", "QuotaReserved")
    await tour.sees_job("default/train", run=False, why="it has quota, and the budget office has not answered")
    await answer(tour, "Ready")
    await tour.sees_job("default/train", run=True)
    await answer(tour, "Retry")
    await tour.sees_job("default/train", run=False, why="what was allowed may be taken back")
    await tour.sees_condition("default/train", "Requeued", "AdmissionCheck")


async def answer(tour: Tour, state: str) -> None:
    print(f"$ the budget office answers {state}")
    workload = await tour.workload_of("default/train")
    name = f"default/{workload['metadata']['name']}"
    check = {"name": "budget", "state": state, "message": "", "lastTransitionTime": now()}
    await tour.changes("Workload", name, {"status": {"admissionChecks": [check]}}, status=True)


async def quota_check(tour: Tour) -> None:
    tour.stop("7513", "quota counts only what ClusterQueues declare")
    await tour.applies(PROPOSALS / "7513.yaml")
    await tour.sees_job("default/fits", run=True, why="64 cores are not counted, and 8 GPUs fit")
    await tour.sees_job("default/too-many-gpus", run=False)
    await tour.sees_condition("default/too-many-gpus", "QuotaReserved", "ExceedsMaxQuota")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pykueue-tour-") as folder:
        async with server(Path(folder), HERE / "configuration.yaml") as tour:
            await default_local_queues(tour)
            await managed_namespaces(tour)
            await exclusions(tour)
            await two_stages(tour)
        print("\nThe server ends and comes back with what it held, under another configuration.")
        async with server(Path(folder), PROPOSALS / "7513-configuration.yaml") as tour:
            await tour.sees_job("physics/train", run=True, why="as before")
            await quota_check(tour)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (NotSo, ApiError) as error:
        sys.exit(f"tour: {error}")
