"""`pykueue uninstall`: takes away what `pykueue install` brought."""

from __future__ import annotations

import click

from pykueue.cli import install
from pykueue.cli.connection import reaches
from pykueue.cli.connection_flags import ConnectionFlags


@click.command("uninstall")
@reaches
@install.NAMESPACE
@click.option("--crds", is_flag=True, help="Delete our kinds as well, and with them every queue and Workload.")
def command(reach: ConnectionFlags, namespace: str, crds: bool) -> None:
    """Take away what `pykueue install` brought, and leave what people made with it."""
    from pykueue.install import apply, manifests

    objects = manifests.all_manifests(install.plan_of(namespace, None, "", dashboard=True))
    reach.run(lambda client, _: apply.uninstall(client, objects, click.echo, kinds_too=crds))
