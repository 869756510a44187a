"""The modules that the commands users type most import, run against a real `pykueue up`: imports are most of their
processor time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykueue.jobs import kinds
from pykueue.jobs.integration import ImplementationPath
from started import up

# Of the modules of job kinds, a command imports those of the jobs that it decides about.
KIND_MODULES = {
    f"pykueue.jobs.{row.implementation.module}"
    for row in kinds.BUILT_IN
    if isinstance(row.implementation, ImplementationPath)
}
SERVERS = ("kubeserver", "pykueue.app", "pykueue.controllers", "pykueue.webhooks", "pykueue.dashboard", "aiohttp")
SCHEDULER = ("pykueue.core.cycle", "pykueue.state", "pykueue.projection.case", "pykueue.analysis", "kubemachinery.cel")
HISTORY = ("pykueue.history", "pykueue.runner")
# Requests are sent with a client of our own.
UNNEEDED = ("http.client", "cryptography", "importlib.metadata")
# What a manager without a dashboard does not need: 3 MiB of its memory.
NOT_IN_MANAGERS = (
    *("prometheus_client", "http.server", "http.client", "wsgiref", "socketserver", "urllib.request", "email", "html"),
    *("mimetypes", "lzma", "bz2", "gzip", "zipfile", "shutil", "tempfile", "importlib.resources"),
    *("kubeserver", "pykueue.dashboard", "pykueue.runner", "aiohttp", "cryptography", "importlib.metadata"),
)

# Creating a dataclass generates and compiles code: fifty times the time of a Struct. Those of `pykueue.client` are
# for users, who may want `dataclasses.asdict`.
GENERATED = {
    "pykueue.core.requests.Accounting",  # has a field that is computed from others
}

_SCRIPT = """
import sys
from pykueue.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""
_DATACLASSES_SCRIPT = """
import sys
from pykueue.cli import main
try:
    main(sys.argv[1:])
finally:
    own = [module for name, module in sys.modules.items() if name.startswith(("pykueue.", "kubemachinery."))]
    types = {value for module in own for value in vars(module).values() if isinstance(value, type)}
    print(*(f"{each.__module__}.{each.__qualname__}" for each in types if hasattr(each, "__dataclass_fields__")),
          file=sys.stderr)
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a server with a job that runs, and one that waits."""
    server = up(tmp_path_factory.mktemp("up"), "--durability", "memory")
    try:
        for name, cpu in (("runs", "1"), ("waits", "100000")):
            modules_of(server.kubeconfig, "submit", "--name", name, "--cpu", cpu, "--", "true")
        yield server.kubeconfig
    finally:
        server.end()


def modules_of(kubeconfig: Path, *arguments: str, script: str = _SCRIPT) -> set[str]:
    """The modules that a command has imported when it ends, or what else the script prints."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def below(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    """Those of the modules that are in these packages."""
    return sorted(name for name in modules if f"{name}.".startswith(tuple(f"{each}." for each in packages)))


@pytest.mark.parametrize("arguments", [("queue",), ("submit", "--dry-run", "--", "true")], ids=lambda each: each[0])
def test_queue_and_submit_import_no_rules_and_no_scheduler(kubeconfig: Path, arguments: tuple[str, ...]) -> None:
    modules = modules_of(kubeconfig, *arguments)
    assert "pykueue.jobs.kinds" in modules
    assert not KIND_MODULES & modules
    assert not below(modules, (*SERVERS, *SCHEDULER, *HISTORY, *UNNEEDED, "pykueue.jobs.interface"))


@pytest.mark.parametrize("arguments", [("queue",), ("submit", "--dry-run", "--", "true")], ids=lambda each: each[0])
def test_queue_and_submit_create_few_dataclasses(kubeconfig: Path, arguments: tuple[str, ...]) -> None:
    found = modules_of(kubeconfig, *arguments, script=_DATACLASSES_SCRIPT)
    assert "pykueue.client.job_status.QueuedJobStatus" in found
    assert {name for name in found if not name.startswith("pykueue.client.")} <= GENERATED


@pytest.mark.parametrize("name", ["job/runs", "waits"])
def test_explain_leaves_the_scheduler_to_the_manager(kubeconfig: Path, name: str) -> None:
    modules = modules_of(kubeconfig, "explain", name)
    assert "pykueue.client.served_explanation" in modules
    assert not KIND_MODULES & modules
    assert not below(modules, (*SERVERS, *SCHEDULER, *UNNEEDED, "pykueue.runner"))


def test_explain_that_computes_imports_no_server_and_no_cel(kubeconfig: Path) -> None:
    modules = modules_of(kubeconfig, "explain", "job/runs", "--thorough")
    assert "pykueue.analysis.explanation" in modules
    # Pods are read by the rules of pods, whichever the kind of the job.
    assert KIND_MODULES & modules <= {"pykueue.jobs.pod"}
    assert not below(modules, (*SERVERS, *UNNEEDED, "kubemachinery.cel"))


def test_manager_imports_no_dashboard_and_no_servers_of_the_standard_library() -> None:
    script = "import sys, pykueue.cli.manager, pykueue.app.cluster_manager; print(*sys.modules, file=sys.stderr)"
    modules = modules_of(Path("none"), script=script)
    assert "pykueue.observe.metrics" in modules
    assert not below(modules, NOT_IN_MANAGERS)


def test_help_imports_no_client() -> None:
    modules = modules_of(Path("none"), "--help")
    assert not below(modules, ("kubemachinery.client", "pykueue.client", "pykueue.jobs", "asyncio", "msgspec", "yaml"))


def test_up_imports_the_planner_for_the_first_explanation(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT, "up", "--data-dir", str(tmp_path), "--durability", "memory"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("dashboard at"):
            assert process.poll() is None
        process.terminate()
        modules = set(process.stderr.read().split())
    assert "pykueue.controllers.assembly" in modules
    assert not below(modules, ("pykueue.analysis",))
