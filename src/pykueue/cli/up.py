"""`pykueue up`: an API server and the queueing system on this machine, nothing else needed."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kubemachinery.errors import UsageError
from pykueue import paths
from pykueue.cli import signals
from pykueue.cli.log_options import Log, log_options
from pykueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pykueue import app
    from pykueue.settings import Settings

log = logging.getLogger(__name__)

CONFIG = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="A Configuration file; by default everything is as its defaults say.",
)
FEATURE_GATES = click.option(
    "--feature-gates",
    default="",
    metavar="A=true,B=false",
    help="Feature gates, as for Kueue's manager. They cannot be combined with featureGates of the Configuration.",
)


@click.command(name="up")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where everything is kept; ~/.pykueue by default. One server for each.",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    help="HOST:PORT; port 0 is the one it had last, or a free one.",
)
@CONFIG
@FEATURE_GATES
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Where to write the kubeconfig when the server is ready; kubeconfig in the data directory by default.",
)
@click.option(
    "--view-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also write a kubeconfig that can only look.",
)
@click.option(
    "--runner",
    type=click.Choice(["process", "simulated", "none"]),
    default=None,
    help="What becomes of started pods: processes of this machine, pretended ones, or nothing. By default processes, "
    "unless others than this machine can reach the server.",
)
@click.option(
    "--durability",
    type=click.Choice(["full", "relaxed", "memory"]),
    default="full",
    show_default=True,
    help="Sync writes to disk (full), to the OS (relaxed), or not at all (memory).",
)
@click.option(
    "--discard-unknown-pods",
    is_flag=True,
    help="End the processes and delete the logs of pods that the database does not know, because it is new or was "
    "restored from an older backup. They are left alone otherwise.",
)
@log_options
def command(
    data_dir: Path | None,
    listen: str,
    config: Path | None,
    feature_gates: str,
    kubeconfig: Path | None,
    view_kubeconfig: Path | None,
    runner: str | None,
    durability: str,
    discard_unknown_pods: bool,
    told: Log,
) -> None:
    """Run a Kubernetes-compatible API server with the queueing system, in one process.

    It listens on the loopback address unless told otherwise, and only lets in whoever has the kubeconfig that it
    writes. Ctrl-C or SIGTERM ends it; whatever it has answered with "done" is on the disk.
    """
    host, port = address("--listen", listen)
    chosen = configured(config, feature_gates=feature_gates)
    told.start()
    log_notices(chosen, config)
    from pykueue import app

    settings = app.ServerSettings(
        data_dir=data_dir or paths.data(),
        host=host,
        port=port,
        durability=app.Durability(durability),
        kubeconfig=kubeconfig,
        view_kubeconfig=view_kubeconfig,
        tls=chosen.tls.profile,
    )
    app.allow_many_files()
    chosen_runner = app.RunnerName(runner or _usual_runner(host))
    event_loop().run(_serve(settings, chosen, chosen_runner, discards_unknown=discard_unknown_pods))


def _usual_runner(host: str) -> str:
    """Whoever can reach the server can run programs here, so beyond this machine that has to be asked for by name."""
    from pykueue import app

    return "process" if host in app.LOOPBACK else "none"


def event_loop() -> asyncio.Runner:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def _serve(
    settings: app.ServerSettings, configured: Settings, runner: app.RunnerName, *, discards_unknown: bool
) -> None:
    from pykueue import app
    from pykueue.runner import machine

    stop = signals.told()
    try:
        here = machine.detect(settings.data_dir)
    except OSError as error:
        raise UsageError(f"the data directory cannot be used: {error.filename}: {error.strerror}") from None
    if runner is app.RunnerName.NONE:
        parts = app.managed_parts(configured, orphan_seconds=app.UNATTENDED_ORPHAN_SECONDS)
    else:
        parts = app.managed_parts(configured, here)
    async with (
        app.api_server(settings, parts, announced=False) as serving,
        app.embedded_runner(
            serving.embedded,
            runner,
            settings,
            here,
            database=serving.database,
            discards_unknown=discards_unknown,
        ) as processes,
    ):
        # Whoever waits for the kubeconfig asks for a node in the next moment. The manager may have to wait as well: for
        # kinds that its Configuration names, and that only somebody with the kubeconfig can bring.
        app.announce(settings, serving)
        if settings.kubeconfig is None:
            paths.remember(serving.kubeconfig)
        _greet(serving, settings, runner)
        await signals.until(stop, _manage(serving, configured))
        if processes is not None and processes.running and settings.durability is not app.Durability.MEMORY:
            click.echo(f"{processes.running} processes go on; the next `pykueue up` finds them again", err=True)


async def _manage(serving: app.Serving, configured: Settings) -> None:
    from pykueue import app
    from pykueue.analysis import explanation

    explain = explanation.explainer(configured.tree)
    async with app.embedded_manager(serving.embedded, configured, explain=explain) as manager:
        app.dump_on_signal(manager)
        app.calm_collector()
        # A link that lets its reader look is for the terminal of the one who started this, and not for a log file.
        token = f"#token={serving.credentials.view_token}" if sys.stderr.isatty() else ""
        click.echo(f"dashboard at {serving.url}/dashboard/{token}", err=True)
        await asyncio.Event().wait()


_PODS: Final = {
    "process": "started pods run as processes of this machine, as the user who started this",
    "simulated": "Pods are simulated; no command runs (--runner simulated)",
    "none": "started pods are left alone: nobody runs them (--runner none)",
}


def _greet(serving: app.Serving, settings: app.ServerSettings, runner: str) -> None:
    from kubemachinery.client import client_config
    from pykueue import app

    lines = [
        f"API server at {serving.url}",
        f"export KUBECONFIG={shlex.quote(str(serving.kubeconfig.resolve()))}",
        f"data in {settings.data_dir} ({settings.durability} durability; Secrets are stored unencrypted)",
        "Anyone with this kubeconfig has full access: RBAC is stored but not enforced",
        _PODS[runner],
    ]
    if "KUBECONFIG" not in os.environ and client_config.default(os.environ).is_file():
        lines.append("without this KUBECONFIG, commands and kubectl go where ~/.kube/config leads")
    if settings.host not in app.LOOPBACK:
        lines.append(f"listening on {settings.host}: everybody who can reach it can try to come in")
    click.echo("\n".join(lines), err=True)


def address(option: str, text: str) -> tuple[str, int]:
    """HOST:PORT as an option says it."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {text}: must be HOST:PORT, such as 127.0.0.1:6443")
    return host, int(port)


def configured(path: Path | None, namespace: str = "", *, feature_gates: str = "") -> Settings:
    """The settings of a file and of the flag `--feature-gates`. A Configuration that no manager can start with is
    refused before anything starts. `namespace` is the manager's own, for a Configuration that names none."""
    from pykueue import settings

    flagged = settings.flagged_gates(feature_gates)
    source = str(path) if path is not None else "--feature-gates"
    chosen = settings.load(written(path), source, namespace=namespace, flagged=flagged)
    if found := settings.obstacles(chosen):
        raise ConfigurationError(source, found)
    return chosen


def written(path: Path | None) -> object:
    """The one document of a Configuration file; without a file, a Configuration that says nothing."""
    from kubemachinery import yaml_documents
    from pykueue.api import config

    if path is None:
        return {"apiVersion": config.V1BETA2, "kind": config.KIND}
    found = list(yaml_documents.read(path))
    if len(found) != 1:
        raise UsageError(f"{path}: holds {len(found)} documents; a Configuration is one")
    return found[0].tree


def log_notices(settings: Settings, path: Path | None) -> None:
    """Log what the operator should know of the Configuration: fields without effect, old spellings."""
    for notice in settings.notices:
        log.warning("configuration: %s", notice, extra={"file": str(path)} if path is not None else {})
