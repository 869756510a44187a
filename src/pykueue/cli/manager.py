"""`pykueue manager`: the queueing system for an existing API server."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubemachinery import process
from pykueue.cli.configuration_options import (
    CONFIG,
    FEATURE_GATES,
    HISTORY_RETENTION,
    HISTORY_USER_LABEL,
    STARVING_AFTER,
    address,
    configured,
    explainer,
    log_notices,
)
from pykueue.cli.connection import connection_options
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.cli.log_options import LoggingOptions, log_options

if TYPE_CHECKING:
    from kubemachinery.client.client_config import ClientConfig
    from pykueue.controllers.assembly import Manager
    from pykueue.controllers.decision_trace import Write
    from pykueue.controllers.history_recorder import HistoryOptions
    from pykueue.settings import Settings


@click.command(name="manager")
@connection_options
@CONFIG
@FEATURE_GATES
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Record inputs and decisions in this file, for pykueue replay. It grows with every change.",
)
@click.option(
    "--dashboard",
    default=None,
    help="HOST:PORT of the dashboard, over HTTPS, for users with a token of the cluster (default: no dashboard).",
)
@click.option(
    "--webhook-client-ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Accept webhook requests only from clients with a certificate signed by this authority.",
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Keep the history of Workloads in this file, on a volume of one manager (default: no history).",
)
@HISTORY_RETENTION
@HISTORY_USER_LABEL
@STARVING_AFTER
@log_options
def command(
    connection_flags: ConnectionFlags,
    config: Path | None,
    feature_gates: str,
    record: Path | None,
    dashboard: str | None,
    webhook_client_ca_file: Path | None,
    history: Path | None,
    history_retention: int | None,
    history_user_label: str,
    starving_after: int,
    logging_options: LoggingOptions,
) -> None:
    """Run the scheduler and the controllers against an API server.

    Of several managers of one cluster, one is the leader and the others are on standby. Ctrl-C or SIGTERM stops it;
    running jobs continue, and the next manager reads its state from the cluster.
    """
    from kubemachinery.client import client_config
    from pykueue.controllers import decision_trace

    settings = configured(config, client_config.own_namespace(), feature_gates=feature_gates)
    shown_at = address("--dashboard", dashboard) if dashboard is not None else None
    target = connection_flags.target()
    from pykueue.app import options

    kept = None
    if history is not None:
        kept = options.history_options(
            settings, history, retention_seconds=history_retention, user_label=history_user_label
        )
    options.require_history(settings, kept)
    with decision_trace.trace(record, settings.tree) if record is not None else nullcontext() as write:
        process.event_loop().run(
            _manage(
                target,
                settings,
                config,
                logging_options,
                write,
                shown_at,
                webhook_client_ca_file,
                kept,
                starving_after,
            )
        )


async def _manage(
    target: ClientConfig,
    settings: Settings,
    file: Path | None,
    logging_options: LoggingOptions,
    write: Write | None,
    dashboard: tuple[str, int] | None,
    webhook_client_ca: Path | None,
    history: HistoryOptions | None,
    starving_after: int,
) -> None:
    from pykueue.app.cluster_manager import manage
    from pykueue.app.state_dump_signal import dump_on_signal
    from pykueue.controllers import decision_trace

    def built(manager: Manager) -> None:
        logging_options.start(lambda: manager.metrics.role)
        log_notices(settings, file)
        dump_on_signal(manager)
        process.tune_garbage_collector(is_growing=True)
        if write is not None:
            decision_trace.record(manager.world, write)

    managing = manage(
        target,
        settings,
        built=built,
        dashboard=dashboard,
        explain=explainer(settings),
        webhook_client_authority=webhook_client_ca,
        history=history,
        starving_after=starving_after,
    )
    # A manager that stops by itself has lost its lease or failed: the exit code is not 0.
    await process.run_until(process.stop_event(), managing)
