"""`pykueue uninstall`: takes away what `pykueue install` brought."""

from __future__ import annotations

import click

from pykueue.cli import install


@click.command("uninstall")
@install.KUBECONFIG
@install.NAMESPACE
@click.option("--crds", is_flag=True, help="Delete our kinds as well, and with them every queue and Workload.")
def command(kubeconfig: str, namespace: str, crds: bool) -> None:
    """Take away what `pykueue install` brought, and leave what people made with it."""
    from pykueue.installing import applying, documents

    objects = documents.everything(install.plan_of(namespace, None, ""))
    install.with_client(kubeconfig, lambda client: applying.uninstall(client, objects, click.echo, kinds_too=crds))
