"""`pykueue.Client` and `pykueue.AsyncClient`: submit and watch jobs from Python.

    with pykueue.Client() as client:
        job = client.submit(["python", "train.py"], cpu=2, gpus=1, queue="research")
        print(client.explain(job).suggestions)
        client.wait(job)

The server is found as kubectl finds it; after `pykueue up`, it is the one that was started last.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import random
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND
from kubemachinery.yaml_documents import Document
from pykueue import paths
from pykueue.analysis import explanation, live_case, whatif
from pykueue.analysis.explanation import Explanation
from pykueue.analysis.planner import read
from pykueue.analysis.whatif import WhatIfReport
from pykueue.api import kueue
from pykueue.client import (
    arguments,
    job_forecast,
    job_history,
    job_request,
    job_troubles,
    moments,
    pod_logs,
    queue_entries,
    unqueued,
)
from pykueue.client.job_forecast import JobForecast
from pykueue.client.job_history import JobRecords
from pykueue.client.job_service import JobService
from pykueue.client.job_status import QueuedJobStatus
from pykueue.client.queue_entries import QueueEntry
from pykueue.client.queued_job import WORKLOADS, QueuedJob
from pykueue.history import queries

T = TypeVar("T")

# Attempts, and the time between them, to find the Workload that the controllers are creating.
_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.1


class JobOptions(TypedDict, total=False):
    """The keyword arguments of `submit`, besides the command."""

    name: str
    queue: str
    cpu: str | float
    memory: str
    gpus: int
    parallelism: int
    retries: int
    time_limit_seconds: int
    expected_seconds: int
    environment: Mapping[str, str]
    priority_class: str
    image: str
    directory: str


class HistoryFilter(TypedDict, total=False):
    """The keyword arguments of `history`. Times are texts such as `monday` or `-30d`, or datetimes."""

    since: str | datetime
    until: str | datetime
    user: str
    queue: str
    cluster_queue: str
    name: str
    states: Sequence[str]
    evicted: bool
    flavor: str
    larger_than: Mapping[str, str | int]
    all_namespaces: bool


class WorkloadEvent(NamedTuple):
    """A change of a Workload, as a watch reports it."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    workload: kueue.Workload


class AsyncClient:
    """A client for one namespace. An asynchronous context manager."""

    def __init__(
        self,
        *,
        kubeconfig: str = "",
        context: str = "",
        namespace: str = "",
        api_client: ApiClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._reaches_out = api_client is None  # else the system is in this process, and runs no commands
        if api_client is None:
            target = client_config.find(
                os.environ,
                kubeconfig,
                overrides=client_config.ConfigOverrides(context=context),
                fallback=paths.kubeconfig(),
            )
            namespace = namespace or target.namespace
            api_client = ApiClient(client_config.connect(target, self._clock), random.Random())
        self.namespace = namespace or "default"
        self.api_client = api_client
        self._service = JobService(api_client, self.namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, sort: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.api_client.close()

    async def submit(self, command: Sequence[str], **options: Unpack[JobOptions]) -> str:
        """Submit a command as a job; returns its name. It waits in its queue until quota is available.

        Raises TypeError for a keyword that is not in `JobOptions`: a misspelled option must not be dropped.
        """
        for unknown in options.keys() - JobOptions.__annotations__.keys():
            nearest = difflib.get_close_matches(unknown, JobOptions.__annotations__, n=1)
            meant = f". Did you mean '{nearest[0]}'?" if nearest else ""
            raise TypeError(f"submit() got an unexpected keyword argument '{unknown}'{meant}")
        if isinstance(command, str):
            raise UsageError(f"command must be a list of words, such as ['python', 'train.py'], not {command!r}")
        environment = arguments.environment(options.get("environment", {}))
        gpus = arguments.whole_number(options.get("gpus", 0), "gpus", 0)
        parallelism = arguments.whole_number(options.get("parallelism", 1), "parallelism", 1)
        retries = arguments.whole_number(options.get("retries", 0), "retries", 0)
        limit, expected = options.get("time_limit_seconds"), options.get("expected_seconds")
        if limit is not None:
            limit = arguments.whole_number(limit, "time_limit_seconds", 1)
        if expected is not None:
            expected = arguments.whole_number(expected, "expected_seconds", 1)
        here = self._reaches_out and await self._service.runs_processes()
        if self._reaches_out and not here and not options.get("image"):
            raise UsageError("this server runs containers: name an image")
        memory = options.get("memory", "")
        wanted = job_request.JobRequest(
            command=tuple(command),
            name=options.get("name", ""),
            queue=await self._service.queue(options.get("queue", "")),
            namespace=self.namespace,
            cpu=job_request.amount(str(options.get("cpu", job_request.CPU)), "cpu"),
            memory=job_request.amount(memory, "memory") if memory else "",
            gpus=gpus,
            parallelism=parallelism,
            retries=retries,
            time_limit_seconds=limit,
            expected_seconds=expected,
            environment=environment,
            priority_class=await self._service.priority_class(options.get("priority_class", "")),
            image=options.get("image") or job_request.NO_IMAGE,
            directory=options.get("directory", ""),
        )
        if here:
            wanted = job_request.with_local_environment(wanted, os.environ, wanted.directory or os.getcwd())
        return (await self._service.submit(job_request.job(wanted, self._clock.now()))).name

    async def status(self, job: str) -> QueuedJobStatus:
        """The state of a job, and the reason for it."""
        return await self._service.status(arguments.job_name(job))

    async def wait(self, job: str, *, timeout_seconds: float | None = None) -> QueuedJobStatus:
        """Wait until the job has finished, and return its status. Raises NegativeResult on a timeout."""
        limit = arguments.timeout(timeout_seconds)
        return await self._service.finished(arguments.job_name(job), lambda _: None, limit)

    async def logs(self, job: str, *, follow: bool = False) -> str:
        """The log of its pods; with `follow`, until the job has finished."""
        lines: list[bytes] = []
        options = pod_logs.PodLogOptions(follow=follow)
        await self._service.logs(arguments.job_name(job), options, lambda line: lines.append(line.text), lambda _: None)
        return b"\n".join(line.rstrip(b"\n") for line in lines).decode(errors="replace")

    async def cancel(self, job: str) -> None:
        await self._service.cancel(arguments.job_name(job))

    async def queue(self, *, all: bool = False) -> list[QueueEntry]:
        """Running jobs, then waiting jobs in queue order; with `all` also finished ones, those of the last day also if
        they are deleted, and `run` of each entry with its times, exit code and user."""
        present = self._clock.now() if all else None
        found = await queue_entries.entries(self.api_client, self.namespace, present, every_kind=all)
        return [entry for entry in found if all or not entry.status.state.is_finished]

    async def explain(self, job: str, *, suggest: bool = True) -> Explanation:
        """Why a job or a Workload waits, and which changes would admit it; see `pykueue.analysis`."""
        key = await self._workload_of(arguments.job_name(job))
        case = await live_case.case(self.api_client, nodes=True, unscheduled=self.namespace, report=lambda _: None)
        found = explanation.explain(case, f"{self.namespace}/{key}", self._clock.now(), suggest=suggest)
        observed = await job_troubles.of_workload(self.api_client, found.workload)
        return job_troubles.with_troubles(found, observed)

    async def _workload_of(self, job: str) -> str:
        """The name of the Workload of a job. It is created shortly after the job."""
        if await self._service.find_job(job) is None:
            return job  # a Workload by its own name
        for _ in range(_LOOKS):
            named = await self._service.job(job)
            workload = await self._service.workload(named)
            if workload is not None:
                if (
                    named.group
                    and named.name == job.rpartition("/")[2]
                    and all(owner.uid != named.uid for owner in workload.metadata.owner_references)
                ):
                    await self._refuse_stray(named)
                return workload.metadata.name
            await asyncio.sleep(_LOOK_SECONDS)
        why = (await self._service.status(job)).message or "does it name a queue?"
        raise UsageError(f"job {job} has no Workload: {why}")

    async def _refuse_stray(self, pod: QueuedJob) -> None:
        """Raise UsageError for a pod of a group that the Workload of the group has no place for, with the reason."""
        why = await unqueued.trouble(self.api_client, pod)
        if why:
            raise UsageError(f"pod {pod.name} has no Workload: {why}")

    async def forecast(self, job: str) -> JobForecast | None:
        """When a waiting job is expected to start; None if it does not wait, or the server has no forecasts. Its
        `warning` states why it is an old one. Raises KubeError with the reason if it could not be computed."""
        job = arguments.job_name(job)
        for entry in await self.queue():
            if job in (entry.name, *entry.names) and entry.workload:
                return await job_forecast.of_job(self.api_client, entry.namespace, entry.workload)
        return None

    async def history(self, **wanted: Unpack[HistoryFilter]) -> JobRecords:
        """The records of jobs that are running, waiting or over, also of deleted ones; oldest first. `not_stored` of
        the result is how many are missing, or are in an older state, because the history cannot be written."""
        not_stored: list[int] = []
        request = self._history_request(wanted)
        asked = job_history.records(self.api_client, request, on_not_stored=not_stored.append)
        found = JobRecords([record async for record in asked])
        found.sort(key=lambda record: (record.submitted or "", record.metadata.name))
        found.not_stored = sum(not_stored)
        return found

    def _history_request(self, wanted: HistoryFilter) -> job_history.HistoryRequest:
        for unknown in wanted.keys() - HistoryFilter.__annotations__.keys():
            raise TypeError(f"history() got an unexpected keyword argument '{unknown}'")

        def seconds(given: str | datetime | None, name: str) -> int | None:
            if isinstance(given, datetime):
                return int(given.timestamp())
            return None if given is None else moments.moment(given, name, self._clock.now() // SECOND)

        def text(name: str) -> str:
            return arguments.text(wanted.get(name, ""), name)

        return job_history.HistoryRequest(
            namespace="" if wanted.get("all_namespaces") else self.namespace,
            since=seconds(arguments.time(wanted.get("since"), "since"), "since"),
            until=seconds(arguments.time(wanted.get("until"), "until"), "until"),
            user=text("user"),
            queue=text("queue"),
            cluster_queue=text("cluster_queue"),
            name=text("name"),
            states=tuple(sorted(queries.states(arguments.words(wanted.get("states", ()), "states")))),
            evicted=wanted.get("evicted", False),
            flavor=text("flavor"),
            larger_than=arguments.amounts(wanted.get("larger_than", {}), "larger_than"),
        )

    async def whatif(self, *objects: Mapping[str, Any]) -> WhatIfReport:
        """Which Workloads would start, wait or be evicted if these objects were applied; jobs are submitted."""
        change = read(Document(f"object {n}", dict(tree)) for n, tree in enumerate(arguments.objects(objects), start=1))
        case = await live_case.case(self.api_client, classes=bool(change.jobs), report=lambda _: None)
        now = self._clock.now()
        return whatif.compare(case, whatif.changed_by(case, change, (), now), now)

    async def watch(self) -> AsyncGenerator[WorkloadEvent]:
        """Yield changes of Workloads, beginning with the existing ones. An unreachable server is retried."""
        news: asyncio.Queue[WorkloadEvent | None] = asyncio.Queue()
        copy = Informer(
            self.api_client, WORKLOADS, ObjectDecoder(kueue.Workload), random.Random(), namespace=self.namespace
        )
        copy.add_handler(lambda change: news.put_nowait(_workload_event(change)))
        kept_up = asyncio.create_task(copy.run(self._service.outlast))
        kept_up.add_done_callback(lambda _: news.put_nowait(None))
        try:
            while (one := await news.get()) is not None:
                yield one
            await kept_up
        finally:
            kept_up.cancel()
            await asyncio.gather(kept_up, return_exceptions=True)


def _workload_event(change: InformerEvent[kueue.Workload]) -> WorkloadEvent:
    if change.new is None:
        assert change.old is not None, "a deleted object has an old state"
        return WorkloadEvent("DELETED", change.old)
    return WorkloadEvent("ADDED" if change.old is None else "MODIFIED", change.new)


class Client:
    """The synchronous client. A context manager.

    Its event loop runs in its own thread: a notebook has a running loop already, in which no other call can block.
    """

    def __init__(self, *, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="pykueue.Client", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(_made(kubeconfig, context, namespace))
        except BaseException:
            _end(self._loop, self._thread, None)
            raise
        # Closes a client that was left open: at garbage collection, or at the end of the program.
        self._finalizer = weakref.finalize(self, _end, self._loop, self._thread, self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, sort: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. A second call does nothing."""
        self._finalizer()

    @property
    def namespace(self) -> str:
        return self._client.namespace

    def submit(self, command: Sequence[str], **options: Unpack[JobOptions]) -> str:
        """Submit a command as a job; returns its name. It waits in its queue until quota is available."""
        return self._run(self._client.submit(command, **options))

    def status(self, job: str) -> QueuedJobStatus:
        """The state of a job, and the reason for it."""
        return self._run(self._client.status(job))

    def wait(self, job: str, *, timeout_seconds: float | None = None) -> QueuedJobStatus:
        """Wait until the job has finished, and return its status. Raises NegativeResult on a timeout."""
        return self._run(self._client.wait(job, timeout_seconds=timeout_seconds))

    def logs(self, job: str, *, follow: bool = False) -> str:
        """The log of its pods; with `follow`, until the job has finished."""
        return self._run(self._client.logs(job, follow=follow))

    def cancel(self, job: str) -> None:
        self._run(self._client.cancel(job))

    def queue(self, *, all: bool = False) -> list[QueueEntry]:
        """Running jobs, then waiting jobs in queue order; with `all` also finished ones."""
        return self._run(self._client.queue(all=all))

    def explain(self, job: str, *, suggest: bool = True) -> Explanation:
        """Why a job or a Workload waits, and which changes would admit it."""
        return self._run(self._client.explain(job, suggest=suggest))

    def forecast(self, job: str) -> JobForecast | None:
        """When a waiting job is expected to start; None if it does not wait, or the server has no forecasts. Its
        `warning` states why it is an old one. Raises KubeError with the reason if it could not be computed."""
        return self._run(self._client.forecast(job))

    def history(self, **wanted: Unpack[HistoryFilter]) -> JobRecords:
        """The records of jobs that are running, waiting or over, also of deleted ones; oldest first. `not_stored` of
        the result is how many are missing, or are in an older state, because the history cannot be written."""
        return self._run(self._client.history(**wanted))

    def whatif(self, *objects: Mapping[str, Any]) -> WhatIfReport:
        """Which Workloads would start, wait or be evicted if these objects were applied."""
        return self._run(self._client.whatif(*objects))

    def watch(self) -> Generator[WorkloadEvent]:
        """Yield changes of Workloads, beginning with the existing ones."""
        news = self._client.watch()
        try:
            while True:
                try:
                    yield self._run(_next(news))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():  # with the client, its watches end
                self._run(_closed(news))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise UsageError("the client is closed")
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()  # the caller was interrupted, by Ctrl-C for instance
            raise


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: AsyncClient | None) -> None:
    """Close the client in its loop, and end the loop. Garbage collection may run in the thread that ends, which cannot
    join itself."""

    async def end() -> None:
        try:
            if client is not None:
                await client.close()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:
        thread.join()


async def _made(kubeconfig: str, context: str, namespace: str) -> AsyncClient:
    """Create the client in the thread of its loop."""
    return AsyncClient(kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _next(news: AsyncGenerator[WorkloadEvent]) -> WorkloadEvent:
    return await anext(news)


async def _closed(news: AsyncGenerator[WorkloadEvent]) -> None:
    await news.aclose()
