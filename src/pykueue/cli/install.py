"""`pykueue install`: what a cluster needs before the manager can run in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
import yaml

from pykueue.api import registry, schema
from pykueue.errors import UsageError

NAMESPACE: Final = "kueue-system"
WEBHOOK_SERVICE: Final = "kueue-webhook-service"


def documents(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The objects to install, in the order in which a cluster wants them."""
    service = {"namespace": namespace, "name": WEBHOOK_SERVICE, "path": "/convert"}
    rows = sorted(registry.KUEUE, key=lambda row: row.name)
    return [schema.crd(row, webhook={"service": service}) for row in rows]


def render(objects: list[dict[str, Any]], form: str) -> str:
    """The objects as one YAML stream, or as a List in JSON."""
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2) + "\n"
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True)


@click.command("install")
@click.option("--dry-run", is_flag=True, help="Print what would be installed, and touch no cluster.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file for each object into this directory instead of printing them.",
)
@click.option("--namespace", default=NAMESPACE, show_default=True, help="Where the manager will run.")
@click.option("--kubeconfig", type=click.Path(), help="The cluster to install into.")
def command(dry_run: bool, output: str, directory: Path | None, namespace: str, kubeconfig: str | None) -> None:
    """Render what a cluster needs: so far, the CustomResourceDefinitions of kueue.x-k8s.io.

    Try it with `pykueue install --dry-run | kubectl apply --server-side -f -`.
    """
    if not dry_run:
        raise UsageError(
            "install: applying to a cluster is not offered yet; render with --dry-run and apply the result with kubectl"
        )
    objects = documents(namespace)
    if directory is None:
        click.echo(render(objects, output), nl=False)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for each in objects:
        (directory / f"{each['metadata']['name']}.{output}").write_text(render([each], output))
