"""`pykueue uninstall`: deletes what `pykueue install` created."""

from __future__ import annotations

import click

from pykueue.cli import install
from pykueue.cli.connection import connection_options
from pykueue.cli.connection_flags import ConnectionFlags


@click.command("uninstall")
@connection_options
@install.NAMESPACE
@click.option("--crds", is_flag=True, help="Also delete the CRDs, and with them every queue and Workload.")
def command(connection_flags: ConnectionFlags, namespace: str, crds: bool) -> None:
    """Delete what `pykueue install` created, and keep the objects of users."""
    from pykueue.install import apply, manifests

    objects = manifests.all_manifests(install.plan_of(namespace, None, "", dashboard=True))
    connection_flags.run(lambda client, _: apply.uninstall(client, objects, click.echo, kinds_too=crds))
