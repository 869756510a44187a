"""A fresh queueing system for tests: an API server, the controllers and simulated pods in one process.

Its clock is virtual: time passes only when the test advances it, without waiting. No port is opened, and nothing is
written to disk. The pytest fixture is registered by the installed package:

    def test_my_queues(kueue):
        kueue.apply(QUEUES)
        job = kueue.submit(["sleep", "60"], cpu=2, queue="research")
        kueue.advance(90)
        assert kueue.status(job).state == "Succeeded"
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from kubemachinery import kinds, yaml_documents
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND
from kubeserver.assembly import Embedded, Parts
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import Durability, LoadedState, MemoryJournal
from pykueue import settings
from pykueue.analysis.explanation import Explanation
from pykueue.api import config, registry
from pykueue.app import options
from pykueue.app.embedded_manager import RunnerName, embedded_manager, embedded_runner
from pykueue.app.server import managed_parts
from pykueue.client.client import AsyncClient, HistoryFilter, JobOptions
from pykueue.client.job_forecast import JobForecast
from pykueue.client.job_status import QueuedJobStatus
from pykueue.client.queue_entries import QueueEntry
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import inline_worker
from pykueue.errors import PykueueError
from pykueue.history.documents import JobRecord
from pykueue.jobs import kinds as job_kinds
from pykueue.runner.machine import Machine
from pykueue.testing.installed_server import installed
from pykueue.testing.virtual_loop import Stuck, VirtualClock, VirtualLoop

Tree = dict[str, Any]
T = TypeVar("T")

# pytest leaves the frames of this module out: a test that fails shows its own line and the sentence.
__tracebackhide__ = True

# Virtual time for the controllers to process a write.
SETTLE_SECONDS: Final = 1.0
MACHINE: Final = Machine("test-machine", cpus=8, memory_bytes=32 * 2**30, devices={})


class Kueue:
    """A running system. Calls are synchronous; time passes by `advance`, and by SETTLE_SECONDS after each write."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient, manager: Manager) -> None:
        self._runner = runner
        self._client = client
        self._manager = manager

    # --- Time ---------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float = SETTLE_SECONDS) -> None:
        """Advance the clock, and run everything that is due."""
        self._run(asyncio.sleep(seconds))

    def now(self) -> datetime:
        """The time of the virtual clock."""
        return datetime.fromtimestamp(VirtualClock(self._runner.get_loop()).now() / SECOND, UTC)

    # --- Objects ------------------------------------------------------------------------------------------------------

    def apply(self, *objects: str | Mapping[str, Any]) -> None:
        """Apply objects, as YAML or as dicts, with server-side apply."""
        for given in objects:
            for row, tree in _objects(given):
                self._run(self._client.api_client.apply(row, tree, "test"))
        self.advance()

    def get(self, kind: str, name: str, namespace: str = "default") -> Tree:
        """An object as a dict. Raises KeyError if it does not exist."""
        row = _named(kind)
        found = self._run(self._client.api_client.find(row, name, namespace if row.namespaced else ""))
        if found is None:
            raise KeyError(f"{kind} {name}")
        return found

    def all(self, kind: str, namespace: str = "") -> list[Tree]:
        row = _named(kind)
        listing = self._run(self._client.api_client.list(row, namespace if row.namespaced else ""))
        return [msgspec.json.decode(raw) for raw in listing.items]

    def patch(
        self, kind: str, name: str, patch: Mapping[str, Any], namespace: str = "default", *, subresource: str = ""
    ) -> None:
        """A merge patch of an object, or of a subresource such as `status`."""
        row = _named(kind)
        place = namespace if row.namespaced else ""
        self._run(self._client.api_client.patch(row, name, patch, place, subresource=subresource))
        self.advance()

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        row = _named(kind)
        self._run(self._client.api_client.delete(row, name, namespace if row.namespaced else ""))
        self.advance()

    # --- Jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, command: Sequence[str], **options: Unpack[JobOptions]) -> str:
        """Submit a job, as `pykueue.Client` does; `sleep N` runs for N seconds, other commands for one."""
        name = self._run(self._client.submit(command, **options))
        self.advance()
        return name

    def status(self, job: str) -> QueuedJobStatus:
        return self._run(self._client.status(job))

    def wait(self, job: str, *, timeout_seconds: float = 86_400) -> QueuedJobStatus:
        """Advance the clock until the job has finished."""
        return self._run(self._client.wait(job, timeout_seconds=timeout_seconds))

    def explain(self, job: str) -> Explanation:
        return self._run(self._client.explain(job))

    def queue(self, *, all: bool = False) -> list[QueueEntry]:
        """Running jobs, then waiting jobs in queue order; with `all` also finished ones."""
        return self._run(self._client.queue(all=all))

    def forecast(self, job: str) -> JobForecast | None:
        """When a waiting job is expected to start; None if it does not wait."""
        return self._run(self._client.forecast(job))

    def history(self, **wanted: Unpack[HistoryFilter]) -> list[JobRecord]:
        """The records of jobs, also of deleted ones; oldest first."""
        return self._run(self._client.history(**wanted))

    def metrics(self) -> str:
        """The metrics of the manager, in the text format of Prometheus."""
        return self._manager.metrics.exposition().decode()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except Stuck as stuck:
            world = self._manager.world
            known = {*world.reservations, *world.pending_keys()}
            loops = {loop.sentence() for key in known if (loop := world.loop_of(key)) is not None}
            found = "; ".join(f"preemption loop: {sentence}" for sentence in sorted(loops))
            raise Stuck(f"{stuck}; {found}" if found else str(stuck)) from None
        except PykueueError as error:
            # The test's own error: the frames between its call and the sentence are left out.
            raise error.with_traceback(None) from None


def _objects(given: str | Mapping[str, Any]) -> list[tuple[kinds.Kind, Tree]]:
    """The objects of a text or of a tree, each with its kind."""
    try:
        trees = [d.tree for d in yaml_documents.parse(given, "apply")] if isinstance(given, str) else [dict(given)]
        return [(_kind(tree), _placed(tree)) for tree in trees]
    except PykueueError as error:
        raise error.with_traceback(None) from None


@contextmanager
def system(
    configuration: Mapping[str, Any] | None = None, *, runner: str = "simulated", seed: int = 0
) -> Iterator[Kueue]:
    """A fresh system for the block. With `runner="none"` pods do not run."""
    document = {"apiVersion": config.V1BETA2, "kind": config.KIND, **(configuration or {})}
    chosen = settings.load(document, "the test's configuration")
    base = installed()
    with asyncio.Runner(loop_factory=VirtualLoop) as loop:
        life = _Life(base, chosen, RunnerName(runner), seed)
        client = loop.run(life.begin())
        try:
            yield Kueue(loop, client, life.manager)
        finally:
            loop.run(life.end())


class _Life:
    """The life of a system in one task, because context managers must be left in the task that entered them."""

    def __init__(
        self, base: tuple[Parts, LoadedState], chosen: settings.Settings, runner: RunnerName, seed: int
    ) -> None:
        self._base = base
        self._chosen = chosen
        self._runner = runner
        self._seed = seed

    async def begin(self) -> AsyncClient:
        loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        began: asyncio.Future[AsyncClient] = loop.create_future()
        self._task = loop.create_task(self._live(began))
        either: list[asyncio.Future[Any]] = [began, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        await asyncio.sleep(SETTLE_SECONDS)
        return began.result()

    async def end(self) -> None:
        self._over.set()
        await self._task

    async def _live(self, began: asyncio.Future[AsyncClient]) -> None:
        clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(self._seed)
        base, loaded = self._base
        machine = MACHINE if self._runner is not RunnerName.NONE else None
        own = managed_parts(self._chosen, machine)
        # Initial objects are created although the loaded state looks like that of a restarted server.
        parts = replace(base, plugins=own.plugins, initial=(*base.initial, *own.first))
        embedded = Embedded(
            parts, MemoryJournal(), authentication.Authenticator({}, ()), clock, rng, ServerInfo("test"), loaded=loaded
        )
        history = options.history_options(self._chosen, None, worker=lambda: inline_worker)
        place = ServerSettings(data_dir=Path(), durability=Durability.MEMORY)
        await embedded.start()
        try:
            async with (
                embedded_manager(embedded, self._chosen, clock, rng, history=history) as self.manager,
                embedded_runner(embedded, self._runner, place, MACHINE, clock, rng),
            ):
                api_client = ApiClient(LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), rng)
                began.set_result(AsyncClient(namespace="default", api_client=api_client, clock=clock))
                await self._over.wait()
        finally:
            await embedded.close()


_CRDS: Final = kinds.Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    (kinds.Version("v1", storage=True),),
    kinds.Scope.CLUSTER,
    short_names=("crd",),
)


@cache
def _known() -> kinds.Kinds:
    """The kinds of the tables, those of every job integration, and CustomResourceDefinitions, which the latter need."""
    rows = tuple(job_kinds.load())
    of_jobs = (*(row.kind for row in rows), *(kind for row in rows for kind in row.second_kinds))
    known: dict[tuple[str, str], kinds.Kind] = {}
    for kind in (*registry.ALL, *of_jobs, job_kinds.REPLICA_SET, _CRDS):
        known.setdefault((kind.group, kind.kind), kind)
    return kinds.Kinds(known.values())


def _named(kind: str) -> kinds.Kind:
    if (row := _known().named(kind)) is None:
        raise UsageError(f"{kind} is not a known kind")
    return row


def _kind(tree: Mapping[str, Any]) -> kinds.Kind:
    found = _known().find(str(tree.get("apiVersion", "")), str(tree.get("kind", "")))
    if found is None:
        raise UsageError(f"{tree.get('apiVersion')} {tree.get('kind')} is not a known kind")
    return found[0]


def _placed(tree: Mapping[str, Any]) -> Tree:
    """The object, in the namespace `default` unless it has one."""
    metadata = dict(tree.get("metadata") or {})
    if _kind(tree).namespaced:
        metadata.setdefault("namespace", "default")
    return {**tree, "metadata": metadata}
