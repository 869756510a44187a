"""`pykueue manager`: the queueing system beside an API server that is there already."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubemachinery import process
from pykueue.cli.configuration_options import CONFIG, FEATURE_GATES, address, configured, log_notices
from pykueue.cli.connection import reaches
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.cli.log_options import LoggingOptions, log_options

if TYPE_CHECKING:
    from kubemachinery.client.client_config import ClientConfig
    from pykueue.controllers.assembly import Manager
    from pykueue.controllers.decision_trace import Write
    from pykueue.settings import Settings


@click.command(name="manager")
@reaches
@CONFIG
@FEATURE_GATES
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write what is seen and decided into this file, for pykueue replay. It grows with every change.",
)
@click.option(
    "--dashboard",
    default=None,
    help="HOST:PORT to serve the dashboard at, over HTTPS, for whoever has a token of the cluster; nowhere by default.",
)
@click.option(
    "--webhook-client-ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Answer webhook requests only from clients with a certificate that this authority signed.",
)
@log_options
def command(
    reach: ConnectionFlags,
    config: Path | None,
    feature_gates: str,
    record: Path | None,
    dashboard: str | None,
    webhook_client_ca_file: Path | None,
    told: LoggingOptions,
) -> None:
    """Run the scheduler and the controllers against an API server.

    Of several managers of one cluster, one leads and the others wait. Ctrl-C or SIGTERM ends it; work that is running
    goes on, and the next manager finds everything in the cluster.
    """
    from kubemachinery.client import client_config
    from pykueue.controllers import decision_trace

    settings = configured(config, client_config.own_namespace(), feature_gates=feature_gates)
    shown_at = address("--dashboard", dashboard) if dashboard is not None else None
    target = reach.target()
    with decision_trace.trace(record, settings.tree) if record is not None else nullcontext() as write:
        process.event_loop().run(_manage(target, settings, config, told, write, shown_at, webhook_client_ca_file))


async def _manage(
    target: ClientConfig,
    settings: Settings,
    file: Path | None,
    told: LoggingOptions,
    write: Write | None,
    dashboard: tuple[str, int] | None,
    webhook_client_ca: Path | None,
) -> None:
    from pykueue.analysis import explanation
    from pykueue.app.cluster_manager import manage
    from pykueue.app.state_dump_signal import dump_on_signal
    from pykueue.controllers import decision_trace

    def built(manager: Manager) -> None:
        told.start(lambda: manager.metrics.role)
        log_notices(settings, file)
        dump_on_signal(manager)
        process.tune_garbage_collector()
        if write is not None:
            decision_trace.record(manager.world, write)

    explain = explanation.explainer(settings.tree)
    managing = manage(
        target,
        settings,
        built=built,
        dashboard=dashboard,
        explain=explain,
        webhook_client_authority=webhook_client_ca,
    )
    # One that ends by itself lost its lease, or worse: the exit code says so.
    await process.run_until(process.stop_event(), managing)
