"""`pykueue up`: an API server and the queueing system on this machine, nothing else needed."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kubemachinery import process
from kubemachinery.errors import UsageError
from pykueue import paths
from pykueue.cli.configuration_options import CONFIG, FEATURE_GATES, address, configured, log_notices
from pykueue.cli.log_options import LoggingOptions, log_options

if TYPE_CHECKING:
    from kubeserver.serve import ServerSettings, Serving
    from pykueue.app.embedded_manager import RunnerName
    from pykueue.settings import Settings


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
    told: LoggingOptions,
) -> None:
    """Run a Kubernetes-compatible API server with the queueing system, in one process.

    It listens on the loopback address unless told otherwise, and only lets in whoever has the kubeconfig that it
    writes. Ctrl-C or SIGTERM ends it; whatever it has answered with "done" is on the disk.
    """
    host, port = address("--listen", listen)
    chosen = configured(config, feature_gates=feature_gates)
    told.start()
    log_notices(chosen, config)
    from kubeserver.serve import ServerSettings
    from kubeserver.storage.sqlite import Durability
    from pykueue.app.embedded_manager import RunnerName

    settings = ServerSettings(
        data_dir=data_dir or paths.data(),
        host=host,
        port=port,
        durability=Durability(durability),
        kubeconfig=kubeconfig,
        view_kubeconfig=view_kubeconfig,
        tls=chosen.tls.profile,
    )
    process.raise_open_files_limit()
    chosen_runner = RunnerName(runner or _usual_runner(host))
    process.event_loop().run(_serve(settings, chosen, chosen_runner, discards_unknown=discard_unknown_pods))


def _usual_runner(host: str) -> str:
    """Whoever can reach the server can run programs here, so beyond this machine that has to be asked for by name."""
    from pykueue.app.ports import LOOPBACK

    return "process" if host in LOOPBACK else "none"


async def _serve(settings: ServerSettings, configured: Settings, runner: RunnerName, *, discards_unknown: bool) -> None:
    from kubeserver.serve import announce, api_server
    from kubeserver.storage.sqlite import Durability
    from pykueue.app.embedded_manager import RunnerName, embedded_runner
    from pykueue.app.server import UNATTENDED_ORPHAN_SECONDS, managed_parts, runner_database
    from pykueue.runner import machine

    stop = process.stop_event()
    try:
        here = machine.detect(settings.data_dir)
    except OSError as error:
        raise UsageError(f"the data directory cannot be used: {error.filename}: {error.strerror}") from None
    if runner is RunnerName.NONE:
        parts = managed_parts(configured, orphan_seconds=UNATTENDED_ORPHAN_SECONDS)
    else:
        parts = managed_parts(configured, here)
    async with (
        api_server(settings, parts, announced=False) as serving,
        embedded_runner(
            serving.embedded,
            runner,
            settings,
            here,
            database=runner_database(serving.loaded),
            discards_unknown=discards_unknown,
        ) as processes,
    ):
        # Whoever waits for the kubeconfig asks for a node in the next moment. The manager may have to wait as well: for
        # kinds that its Configuration names, and that only somebody with the kubeconfig can bring.
        announce(settings, serving)
        if settings.kubeconfig is None:
            paths.remember(serving.kubeconfig)
        _greet(serving, settings, runner)
        await process.run_until(stop, _manage(serving, configured))
        if processes is not None and processes.running and settings.durability is not Durability.MEMORY:
            click.echo(f"{processes.running} processes go on; the next `pykueue up` finds them again", err=True)


async def _manage(serving: Serving, configured: Settings) -> None:
    from pykueue.analysis import explanation
    from pykueue.app.embedded_manager import embedded_manager
    from pykueue.app.state_dump_signal import dump_on_signal

    explain = explanation.explainer(configured.tree)
    async with embedded_manager(serving.embedded, configured, explain=explain) as manager:
        dump_on_signal(manager)
        process.tune_garbage_collector()
        # A link that lets its reader look is for the terminal of the one who started this, and not for a log file.
        token = f"#token={serving.credentials.view_token}" if sys.stderr.isatty() else ""
        click.echo(f"dashboard at {serving.url}/dashboard/{token}", err=True)
        await asyncio.Event().wait()


_PODS: Final = {
    "process": "started pods run as processes of this machine, as the user who started this",
    "simulated": "Pods are simulated; no command runs (--runner simulated)",
    "none": "started pods are left alone: nobody runs them (--runner none)",
}


def _greet(serving: Serving, settings: ServerSettings, runner: str) -> None:
    from kubemachinery.client import client_config
    from pykueue.app.ports import LOOPBACK

    lines = [
        f"API server at {serving.url}",
        f"export KUBECONFIG={shlex.quote(str(serving.kubeconfig.resolve()))}",
        f"data in {settings.data_dir} ({settings.durability} durability; Secrets are stored unencrypted)",
        "Anyone with this kubeconfig has full access: RBAC is stored but not enforced",
        _PODS[runner],
    ]
    if "KUBECONFIG" not in os.environ and client_config.default(os.environ).is_file():
        lines.append("without this KUBECONFIG, commands and kubectl go where ~/.kube/config leads")
    if settings.host not in LOOPBACK:
        lines.append(f"listening on {settings.host}: everybody who can reach it can try to come in")
    click.echo("\n".join(lines), err=True)
