"""`pykueue up`: an API server and the queueing system on this machine, without other dependencies."""

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
from kubemachinery.meta import SECOND
from pykueue import paths, wording
from pykueue.cli.configuration_options import (
    CONFIG,
    FEATURE_GATES,
    HISTORY,
    HISTORY_RETENTION,
    HISTORY_USER_LABEL,
    OFF,
    STARVING_AFTER,
    address,
    configured,
    explainer,
    log_notices,
)
from pykueue.cli.log_options import LoggingOptions, log_options
from pykueue.cli.progress import to_stderr

if TYPE_CHECKING:
    from kubeserver.serve import ServerSettings, Serving
    from pykueue.app.embedded_manager import RunnerName
    from pykueue.controllers.history_recorder import HistoryOptions
    from pykueue.settings import Settings


@click.command(name="up")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The data directory of the server (default: ~/.pykueue).",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    help="HOST:PORT; port 0 is the previous port, or a free one.",
)
@CONFIG
@FEATURE_GATES
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Where to write the kubeconfig when the server is ready (default: kubeconfig in the data directory).",
)
@click.option(
    "--view-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also write a read-only kubeconfig.",
)
@click.option(
    "--runner",
    type=click.Choice(["process", "simulated", "none"]),
    default=None,
    help="How started pods run: as processes of this machine, simulated, or not at all. Default: processes, "
    "unless other machines can reach the server.",
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
    help="End the processes and delete the logs of pods that are not in the database, because it is new or was "
    "restored from an older backup. Without this option they are not touched.",
)
@HISTORY
@HISTORY_RETENTION
@HISTORY_USER_LABEL
@STARVING_AFTER
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
    history: str,
    history_retention: int | None,
    history_user_label: str,
    starving_after: int,
    logging_options: LoggingOptions,
) -> None:
    """Run a Kubernetes-compatible API server with the queueing system, in one process.

    It listens on the loopback address by default, and accepts only clients with the kubeconfig that it writes. Ctrl-C
    or SIGTERM stops it; acknowledged writes are durable.
    """
    host, port = address("--listen", listen)
    # Without a Configuration, jobs are marked with who submitted them. A file is taken as it is: it may be Kueue's.
    chosen = configured(config, feature_gates=feature_gates, defaults={"WorkloadHints": True} if config is None else {})
    logging_options.start()
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
    from pykueue.app import options

    kept = None
    if history != OFF:
        in_memory = settings.durability is Durability.MEMORY
        path = Path(history) if history else settings.data_dir / "history.db"
        kept = options.history_options(
            chosen,
            None if in_memory and not history else path,
            retention_seconds=history_retention,
            user_label=history_user_label,
        )
    options.require_history(chosen, kept)
    process.event_loop().run(
        _serve(
            settings,
            chosen,
            chosen_runner,
            discards_unknown=discard_unknown_pods,
            history=kept,
            starving_after=starving_after,
        )
    )


def _usual_runner(host: str) -> str:
    """The default runner: none when other machines can reach the server, because clients could run programs here."""
    from pykueue.app.ports import LOOPBACK

    return "process" if host in LOOPBACK else "none"


async def _serve(
    settings: ServerSettings,
    configured: Settings,
    runner: RunnerName,
    *,
    discards_unknown: bool,
    history: HistoryOptions | None = None,
    starving_after: int = 86_400 * SECOND,
) -> None:
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
            database=runner_database(serving.database),
            discards_unknown=discards_unknown,
        ) as processes,
    ):
        # Clients wait for the kubeconfig and use the Node at once. The manager may still wait for kinds that its
        # Configuration names, which a client with the kubeconfig has to install.
        if settings.kubeconfig is None:
            paths.remember(serving.kubeconfig)
        announce(settings, serving)
        _greet(serving, settings, runner)
        await process.run_until(stop, _manage(serving, configured, history, starving_after))
        if processes is not None and processes.running and settings.durability is not Durability.MEMORY:
            running = wording.counted(processes.running, "process continues", "processes continue")
            to_stderr(f"{running}; the next `pykueue up` adopts what still runs")


async def _manage(serving: Serving, configured: Settings, history: HistoryOptions | None, starving_after: int) -> None:
    from pykueue.app.embedded_manager import embedded_manager
    from pykueue.app.state_dump_signal import dump_on_signal

    managed = embedded_manager(
        serving.embedded, configured, explain=explainer(configured), history=history, starving_after=starving_after
    )
    async with managed as manager:
        dump_on_signal(manager)
        process.tune_garbage_collector()
        # The link contains a token: it is printed to a terminal, and not to a log file.
        token = f"#token={serving.credentials.view_token}" if sys.stderr.isatty() else ""
        to_stderr(f"dashboard at {serving.url}/dashboard/{token}")
        await asyncio.Event().wait()


_PODS: Final = {
    "process": "Pods run as processes of this machine, as the current user",
    "simulated": "Pods are simulated; no command runs (--runner simulated)",
    "none": "Pods do not run (--runner none)",
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
        lines.append("without this KUBECONFIG, pykueue and kubectl use ~/.kube/config")
    if settings.host not in LOOPBACK:
        lines.append(f"listening on {settings.host}: every machine that reaches it can attempt to connect")
    to_stderr("\n".join(lines))
