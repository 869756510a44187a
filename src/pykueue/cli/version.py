"""`pykueue version`."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

from pykueue.cli.connection import connection_options
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.errors import PykueueError
from pykueue.version import __version__

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from kubemachinery.client.client_config import ClientConfig


@click.command(name="version")
@click.option("--client", "only_own", is_flag=True, help="Print the client version only.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="The output format.")
@connection_options
def command(connection_flags: ConnectionFlags, only_own: bool, output: str) -> None:
    """Print the version of pykueue and of the Python it runs on, and the image of the manager on the cluster."""
    image = "" if only_own else _manager_image(connection_flags)
    if output == "json":
        import json

        versions = {"pykueue": __version__, "python": platform.python_version()}
        click.echo(json.dumps(versions | ({"managerImage": image} if image else {})))
        return
    click.echo(f"pykueue {__version__} (Python {platform.python_version()})")
    if image:
        click.echo(f"manager image {image}")


def _manager_image(connection_flags: ConnectionFlags) -> str:
    """The image of the manager's Deployment; empty without one, or when it cannot be read."""
    from kubemachinery import unstructured
    from kubemachinery.kinds import Kind, Version
    from pykueue.api.config import DEFAULT_NAMESPACE
    from pykueue.install.names import MANAGER

    deployments = Kind("apps", "Deployment", "deployments", (Version("v1", storage=True),))

    async def work(client: ApiClient, target: ClientConfig) -> str:
        found = await client.find(deployments, MANAGER, DEFAULT_NAMESPACE) or {}
        containers = [
            container for _, container in unstructured.entries(found, "spec", "template", "spec", "containers")
        ]
        return next((unstructured.text(each.get("image")) for each in containers if each.get("name") == "manager"), "")

    try:
        return connection_flags.run(work)
    except PykueueError:
        return ""
