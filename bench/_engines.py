"""Servers with a manager to measure: `pykueue up`, or a kube-apiserver and etcd with a manager beside it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

import yaml

from pykueue.api import registry, schema
from pykueue.webhooks.certificate_bundle import NAMES, CertificateBundle
from pykueue.webhooks.certificate_renewal import renewed

ROOT = Path(__file__).resolve().parents[1]
# Writes and Events of the manager; requests of the server itself do not count.
COUNTED = ("workloads", "events", "clusterqueues", "localqueues", "cohorts")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Engine:
    """A server that answers and a manager that leads."""

    kubeconfig: Path
    manager: int  # process id
    requests: Callable[[], dict[str, int]]  # up to now, as "VERB resource"
    counts_all_clients: bool  # whether those of this process are among them
    server: tuple[int, ...] = ()  # process ids of the API server and its store, if they are other processes


def serve(folder: Path) -> None:
    """`pykueue up`, which also writes the number of requests of its manager to a file at each SIGUSR1."""
    from kubemachinery.process import event_loop, tune_garbage_collector
    from kubeserver.serve import ServerSettings, api_server
    from pykueue import settings
    from pykueue.app.embedded_manager import embedded_manager
    from pykueue.app.server import managed_parts

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        configuration = json.loads((folder / "configuration").read_text())
        chosen = settings.load(configuration, "the configuration") if configuration else settings.defaults()
        server = ServerSettings(data_dir=folder / "data")
        async with (
            api_server(server, managed_parts(chosen)) as up,
            embedded_manager(up.embedded, chosen) as manager,
        ):
            tune_garbage_collector()

            def count() -> None:
                sent = {f"{verb} {plural}": times for (verb, plural), times in manager.client.sent.items()}
                (folder / "sent.new").write_text(json.dumps(sent))
                (folder / "sent.new").rename(folder / "sent")

            loop.add_signal_handler(signal.SIGUSR1, count)
            (folder / "ready").write_text(str(up.kubeconfig))
            await stop.wait()

    event_loop().run(run())


@contextlib.contextmanager
def embedded(configuration: Mapping[str, Any] | None = None) -> Iterator[Engine]:
    """The server of `pykueue up`, with the manager inside."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "configuration").write_text(json.dumps(configuration))
        with process_of(sys.executable, __file__, home) as process:
            until((folder / "ready").exists, process)

            def requests() -> dict[str, int]:
                (folder / "sent").unlink(missing_ok=True)
                process.send_signal(signal.SIGUSR1)
                until((folder / "sent").exists, process)
                found: dict[str, int] = json.loads((folder / "sent").read_text())
                return found

            yield Engine(folder / "data" / "kubeconfig", process.pid, requests, counts_all_clients=False)


@dataclass(frozen=True)
class Program:
    """A manager to measure: how it is started, its settings beside the common configuration, its CRDs."""

    command: tuple[str, ...]
    crds: tuple[dict[str, Any], ...]
    configuration: Mapping[str, Any] = field(default_factory=dict)
    # Where below /etc it reads the certificate of its metrics endpoint; that path cannot be configured. It gets an /etc
    # of its own, in a mount namespace.
    certificates_in_etc: str = ""


def ours(*, webhooks: bool) -> Program:
    start = ("-m", "pykueue", "manager") if webhooks else (str(ROOT / "bench" / "_manager.py"),)
    return Program((sys.executable, *start), tuple(schema.crd(row) for row in registry.KUEUE))


def another(
    command: Sequence[str],
    crds: Path,
    configuration: Mapping[str, Any] | None = None,
    *,
    certificates_in_etc: str = "",
) -> Program:
    """Another manager of the same API.

    Its webhooks are not called, but it looks for their certificates. Its CRDs are served without conversion, as ours
    are, so that v1beta2 has to be the version that is stored.
    """
    found = tuple(yaml.safe_load(path.read_text()) for path in sorted(crds.glob("*.yaml")))
    for tree in found:
        tree["spec"].pop("conversion", None)
        versions = tree["spec"]["versions"]
        if any(each["name"] == "v1beta2" for each in versions):
            for each in versions:
                each["storage"] = each["name"] == "v1beta2"
    settings = {"internalCertManagement": {"enable": False}, **(configuration or {})}
    return Program(tuple(command), found, settings, certificates_in_etc)


@contextlib.contextmanager
def real(cap: int, program: Program) -> Iterator[Engine]:
    """A kube-apiserver and etcd with a manager beside it, of at most `cap` requests a second; 0: no limit."""
    import started
    from cluster import real as cluster

    with cluster.started() as server, tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        for tree in program.crds:
            server.request("POST", _CRDS, tree)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        server.request("POST", "/api/v1/namespaces", namespace)
        for row in registry.KUEUE:
            while server.request("GET", row.path()).code != 200:
                time.sleep(0.1)
        kept = renewed(CertificateBundle(), ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
        folders = [folder]
        if program.certificates_in_etc:
            folders.append(folder / "etc" / program.certificates_in_etc)
            folders[-1].mkdir(parents=True)
        for part, file in NAMES.items():
            for each in folders:
                (each / file).write_bytes(getattr(kept, part))
        limit = {"qps": float(cap), "burst": cap} if cap else {"qps": -1.0}
        (folder / "config").write_text(
            json.dumps(
                {
                    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                    "kind": "Configuration",
                    "clientConnection": limit,
                    "leaderElection": {"leaderElect": False},
                    "metrics": {"bindAddress": "0"},
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{started.free_port()}"},
                    "webhook": {"host": "127.0.0.1", "port": started.free_port(), "certDir": str(folder)},
                    **program.configuration,
                }
            )
        )
        arguments = ("--kubeconfig", str(kubeconfig), "--config", str(folder / "config"))
        prefix = _with_etc(folder / "etc") if program.certificates_in_etc else ()
        with process_of(*prefix, *program.command, *arguments, log=folder / "manager.log") as process:

            def requests() -> dict[str, int]:
                return _requests_of(server.request("GET", "/metrics").body)

            yield Engine(
                kubeconfig, process.pid, requests, counts_all_clients=True, server=tuple(server.process_ids.values())
            )


def _with_etc(etc: Path) -> tuple[str, ...]:
    """The beginning of a command that runs with this folder as its /etc. The process id stays the same."""
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc))


def _requests_of(metrics: str) -> dict[str, int]:
    """What the server counted, watches and refusals included."""
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            verb = "PATCH" if labels["verb"] == "APPLY" else labels["verb"]
            found[f"{verb} {labels['resource']}"] += int(float(line.rsplit(" ", 1)[1]))
    return dict(found)


@contextlib.contextmanager
def process_of(*arguments: str, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block. Its output goes to `log`, whose last lines are shown if it fails."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            has_failed = process.poll() is not None
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if has_failed and log:
                print(f"{arguments[0]} ended:\n{log.read_text()[-2000:]}", file=sys.stderr)


def until(true: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("bench: the manager ended or does not answer")
        time.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, what: str = "VmRSS") -> float:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
