"""Many short Jobs through `pykueue up`, created, run and deleted: what is left of them in memory and on disk.

    python -m bench churn [--jobs=5000] [--batch=500] [--settle=65] [--json=FILE]

Jobs come in batches, their pods are simulated, and a batch is deleted once it is complete. Two namespaces take turns:
the server waits some seconds before it deletes what a deleted Job owns, and runs the Jobs of the other one meanwhile.
At the end the queues are the only objects left, with what the server keeps on purpose for a time: recent changes for
watches, Events, and the records of the history, whose file is counted apart. The memory is compared with that of a
second start on the same data directory, which has the same objects, changes and Events, and has run a few Jobs, so that
it has loaded the same code; the size of the database, its write-ahead log included, with that of the same rows written
into a new file. The rates of the first and the last fifth of the Jobs show whether a Job costs more after many others;
so does the processor time of the server for a Job, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

from bench import _figures
from bench._engines import memory_mib, process_of, until
from bench._figures import Figures, Targets
from bench.apiserver import Connection, Server, cpu, many

from kubemachinery.process import event_loop

SMALLEST = ("--jobs=20", "--batch=10", "--settle=0")
TARGETS: Targets = {"memory, ratio": ("at most", 1.3), "database, ratio": ("at most", 1.3)}
CLIENTS = 16
QUEUE = "churn"
NAMESPACES = ("churn-0", "churn-1")
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
BATCH_SECONDS = 600.0
POLL_SECONDS = 0.1
POLL_SECONDS_MAX = 1.0
MIB = 2**20


# --- The server -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def up(directory: Path) -> Iterator[Server]:
    """`pykueue up` on a data directory, with simulated pods."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    options = ("--data-dir", str(directory), "--runner", "simulated", "--log-level", "error")
    with process_of(sys.executable, "-m", "pykueue", "up", *options, log=directory / "up.log") as process:
        until(kubeconfig.exists, process)
        yield Server.of(kubeconfig.read_text(), [process.pid])


def databases(directory: Path) -> list[Path]:
    """The databases of the server; the file of the history is another one."""
    return [path for path in directory.rglob("*.db") if path.name != "history.db"]


def size_mib(directory: Path, *names: str) -> float:
    """The size of databases, with their logs."""
    return sum(path.stat().st_size for name in names for path in directory.rglob(f"{name}*")) / MIB


def vacuumed_mib(directory: Path) -> float:
    """The size of the same rows in new files. No server runs: a second connection could damage its database."""
    with tempfile.TemporaryDirectory() as home:
        for number, path in enumerate(databases(directory)):
            with contextlib.closing(sqlite3.connect(path)) as database:
                database.execute("VACUUM INTO ?", (str(Path(home) / f"{number}.db"),))
        return size_mib(Path(home), "")


# --- The Jobs ---------------------------------------------------------------------------------------------------------


def queues() -> Iterator[tuple[str, dict[str, Any]]]:
    def kueue(kind: str, spec: dict[str, Any], **place: str) -> dict[str, Any]:
        metadata = {"name": QUEUE, **place}
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}

    quota = {"name": "cpu", "nominalQuota": "1000"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": QUEUE, "resources": [quota]}]}]
    yield f"{GROUP}/resourceflavors", kueue("ResourceFlavor", {})
    yield f"{GROUP}/clusterqueues", kueue("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups})
    for namespace in NAMESPACES:
        yield "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        local = kueue("LocalQueue", {"clusterQueue": QUEUE}, namespace=namespace)
        yield f"{GROUP}/namespaces/{namespace}/localqueues", local


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m"}}}
    template = {
        "metadata": {"annotations": {"pykueue.io/simulated-seconds": "0"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


async def count(connection: Connection, path: str, text: bytes) -> int:
    return (await connection.send("GET", path)).count(text)


async def wait(connection: Connection, path: str, text: bytes, wanted: int) -> None:
    """Wait until a list has a text so many times. A list takes time of the server, so later ones come more rarely."""
    deadline, pause = time.monotonic() + BATCH_SECONDS, POLL_SECONDS
    while (found := await count(connection, path, text)) != wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"{path}: {found} instead of {wanted} after {BATCH_SECONDS:.0f} s")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, POLL_SECONDS_MAX)


async def run_batch(server: Server, namespace: str, first: int, size: int) -> None:
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"

    async def create(client: Connection, index: int) -> None:
        await client.send("POST", jobs, job(f"job-{first + index:06}"))

    await many(server, CLIENTS, size, create)
    # A connection of its own for each batch: the server closes one that was idle for long.
    connection = await server.connect()
    await wait(connection, jobs, b'"type":"Complete"', size)
    await connection.send("DELETE", f"{jobs}?propagationPolicy=Background")
    for path in (jobs, f"{GROUP}/namespaces/{namespace}/workloads", pods):
        await wait(connection, path, b'"uid":', 0)
    connection.close()


def parts(jobs: int, batch: int) -> Iterator[tuple[int, int]]:
    """The first Job and the number of Jobs of each batch. The second one is a half: the namespaces take turns then."""
    first = 0
    for number in itertools.count():
        size = min(max(1, batch // 2) if number == 1 else batch, jobs - first)
        if size <= 0:
            return
        yield first, size
        first += size


def fifths(batches: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first and the last fifth of the batches, from the end of one to the end of another.

    At the end of a batch another one is half done. So neither begins with the first batch or ends with the last one,
    where there is none beside it; and both have as many batches of each namespace.
    """
    edge = len(NAMESPACES)
    size = max(1, batches // 5 // edge) * edge
    if batches < 2 * edge + size:
        return (0, batches), (0, batches)
    return (edge, edge + size), (batches - edge - size, batches - edge)


def over(values: Sequence[float], span: tuple[int, int]) -> float:
    return values[span[1]] - values[span[0]]


async def churn(server: Server, jobs: int, batch: int, settle: float) -> Figures:
    connection = await server.connect()
    for path, body in queues():
        await connection.send("POST", path, body)
    connection.close()
    memory, processor = memory_mib(server.pids[0]), [cpu(server.pids)]
    batches = parts(jobs, batch)
    times, done = [time.perf_counter()], [0]

    async def work(namespace: str) -> None:
        for first, size in batches:
            await run_batch(server, namespace, first, size)
            times.append(time.perf_counter())
            processor.append(cpu(server.pids))
            done.append(done[-1] + size)
            holds = f"{memory_mib(server.pids[0]):.0f} MiB"
            print(f"{done[-1]} of {jobs} Jobs, {times[-1] - times[0]:.0f} s, {holds}", file=sys.stderr, flush=True)

    await asyncio.gather(*map(work, NAMESPACES))
    early, late = fifths(len(times) - 1)
    await asyncio.sleep(settle)
    return {
        "jobs": float(jobs),
        "jobs/s": jobs / (times[-1] - times[0]),
        "jobs/s, first fifth": over(done, early) / over(times, early),
        "jobs/s, last fifth": over(done, late) / over(times, late),
        "CPU ms a Job": (processor[-1] - processor[0]) * 1e3 / jobs,
        "CPU ms a Job, first fifth": over(processor, early) * 1e3 / over(done, early),
        "CPU ms a Job, last fifth": over(processor, late) * 1e3 / over(done, late),
        "memory MiB before the first Job": memory,
        "memory MiB": memory_mib(server.pids[0]),
    }


def measure(jobs: int, batch: int, settle: float) -> Figures:
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home)
        with up(directory) as server:
            figures = event_loop().run(churn(server, jobs, max(1, batch // len(NAMESPACES)), settle))
            figures["database MiB"] = size_mib(directory, *(path.name for path in databases(directory)))
            figures["history file MiB"] = size_mib(directory, "history.db")
        figures["database MiB, vacuumed"] = vacuumed_mib(directory)
        with up(directory) as server:
            event_loop().run(run_batch(server, NAMESPACES[0], jobs, CLIENTS))
            time.sleep(settle)
            figures["memory MiB after a second start"] = memory_mib(server.pids[0])
    figures["memory, ratio"] = figures["memory MiB"] / figures["memory MiB after a second start"]
    figures["database, ratio"] = figures["database MiB"] / figures["database MiB, vacuumed"]
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--batch", type=int, default=500, help="Jobs that exist at a time")
    parser.add_argument("--settle", type=float, default=65.0, help="seconds before memory is read: two compactions")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    figures = measure(given.jobs, given.batch, given.settle)
    print(_figures.table(figures, TARGETS))
    if given.json:
        _figures.save(figures, TARGETS, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
