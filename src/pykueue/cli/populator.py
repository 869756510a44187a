"""`pykueue populator`: creates a LocalQueue in every namespace that a ClusterQueue selects, with any manager."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubemachinery import process
from kubemachinery.errors import UsageError
from pykueue.cli.connection import connection_options
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.cli.log_options import LoggingOptions, log_options

if TYPE_CHECKING:
    from kubemachinery.client.client_config import ClientConfig
    from pykueue.controllers.populator import PopulatorConfiguration


@click.command(name="populator")
@connection_options
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="A file with localQueueName, localQueueNameMode (Static or AsClusterQueue), managedJobsNamespaceSelector.",
)
@log_options
def command(connection_flags: ConnectionFlags, config: Path | None, logging_options: LoggingOptions) -> None:
    """Create a LocalQueue in every namespace that a ClusterQueue selects.

    It runs with any manager and needs no feature gate. By default the LocalQueues are named "default", and kube-system
    is skipped. It never changes or deletes a LocalQueue. Ctrl-C or SIGTERM stops it.
    """
    chosen = _configured(config)
    target = connection_flags.target()
    logging_options.start()
    process.event_loop().run(_populate(target, chosen))


def _configured(path: Path | None) -> PopulatorConfiguration:
    from kubemachinery import yaml_documents
    from pykueue.controllers import populator

    if path is None:
        return populator.PopulatorConfiguration()
    found = list(yaml_documents.read(path))
    if len(found) > 1:
        raise UsageError(f"{path}: contains {len(found)} documents; a configuration is one document")
    return populator.load(found[0].tree, str(path)) if found else populator.PopulatorConfiguration()


async def _populate(target: ClientConfig, configuration: PopulatorConfiguration) -> None:
    from pykueue.app.cluster_manager import populate

    await process.run_until(process.stop_event(), populate(target, configuration))
