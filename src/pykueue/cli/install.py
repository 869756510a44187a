"""`pykueue install`: renders or applies the manifests of the manager."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubemachinery.errors import UsageError
from pykueue.cli.configuration_options import FEATURE_GATES, written
from pykueue.cli.connection import check_namespace, connection_options
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pykueue.install.manifests import InstallPlan

NAMESPACE = click.option("--namespace", default="kueue-system", show_default=True, help="The namespace of the manager.")
CONFIG = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The Configuration of the manager; it selects the jobs that webhooks receive.",
)


@click.command("install")
@connection_options
@NAMESPACE
@CONFIG
@FEATURE_GATES
@click.option("--image", default="", help="The image of the manager.")
@click.option("--dashboard", is_flag=True, help="Serve the dashboard from the manager, with its own Service.")
@click.option("--history", is_flag=True, help="Keep the history of Workloads, on a volume of its own.")
@click.option(
    "--history-size", default="5Gi", show_default=True, help="The size of that volume: 1Gi holds two million Workloads."
)
@click.option(
    "--api-server-cidr",
    "api_server",
    multiple=True,
    metavar="CIDR",
    help="Accept webhook and visibility API requests from these addresses only; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the manifests, and change no cluster.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --dry-run: write files for kubectl apply -k into this directory instead of printing.",
)
def command(
    connection_flags: ConnectionFlags,
    namespace: str,
    config: Path | None,
    feature_gates: str,
    image: str,
    dashboard: bool,
    history: bool,
    history_size: str,
    api_server: tuple[str, ...],
    dry_run: bool,
    output: str,
    directory: Path | None,
) -> None:
    """Install CRDs, roles, the Configuration, webhooks, and a Deployment of the manager.

    Repeat it to upgrade an installation: objects that are no longer part of it, such as the dashboard's, are deleted.
    Objects created by users are not touched.
    """
    from pykueue.client import job_request
    from pykueue.install import apply, kustomize, manifests

    plan = plan_of(namespace, config, image, dashboard=dashboard, feature_gates=feature_gates)
    plan = replace(plan, api_server=tuple(map(_cidr, api_server)))
    if history:
        if not plan.settings.gates["History"]:
            raise UsageError("install: --history needs the gate History")
        plan = replace(plan, history_size=job_request.amount(history_size, "--history-size"))
    for notice in plan.settings.notices:
        click.echo(f"{config or '--feature-gates'}: notice: {notice}", err=True)
    objects = manifests.all_manifests(plan)
    if directory is not None:
        if not dry_run:
            raise UsageError("install: --to needs --dry-run")
        for name, text in kustomize.files(plan):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
    elif dry_run:
        click.echo(kustomize.render(objects, output), nl=False)
    else:
        gone = manifests.superseded(plan)
        connection_flags.run(lambda client, _: apply.install(client, objects, click.echo, superseded=gone))


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise UsageError(f"--api-server-cidr: {error}") from None


def plan_of(
    namespace: str, config: Path | None, image: str, *, dashboard: bool, feature_gates: str = ""
) -> InstallPlan:
    """The manifests to install. A Configuration that the installed manager would refuse is refused here; the gates of
    the flag are written into the installed Configuration."""
    from pykueue import settings
    from pykueue.install.manifests import IMAGE, InstallPlan

    check_namespace(namespace)

    source, tree = str(config) if config is not None else "--feature-gates", written(config)
    if not isinstance(tree, dict):
        raise UsageError(f"{source}: a Configuration is one object")
    tree = settings.with_flagged_gates(tree, settings.flagged_gates(feature_gates), source)
    plan = InstallPlan(tree, namespace, image or IMAGE, dashboard=dashboard, source=source)
    if found := settings.obstacles(plan.settings):
        raise ConfigurationError(source, found)
    return plan
