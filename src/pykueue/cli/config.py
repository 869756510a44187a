"""`pykueue config`: checks a Configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from kubemachinery import kubectl_yaml, yaml_documents
from kubemachinery.errors import UsageError
from pykueue import settings
from pykueue.errors import ConfigurationError, NegativeResult


@click.group(name="config")
def command() -> None:
    """Check a Configuration file."""


@command.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="The output format.")
@click.option("--namespace", default="", help="The manager's namespace, if the file does not set one.")
def check(file: Path, output: str, namespace: str) -> None:
    """Print the effective configuration of FILE (`-` reads standard input), every default filled in.

    Print each error with its path instead, and exit with 1, where `up`, `manager` and `install` would refuse FILE.
    Fields that are accepted and have no effect are named on stderr.
    """
    if str(file) == "-":
        found = list(yaml_documents.standard_input())
    else:
        found = list(yaml_documents.read(file))
    if len(found) != 1:
        raise UsageError(f"{file}: contains {len(found)} documents; a Configuration is one document")
    try:
        effective = settings.load(found[0].tree, str(file), namespace=namespace)
        if why := settings.obstacles(effective):
            raise ConfigurationError(str(file), why)
    except ConfigurationError as error:
        for finding in error.findings:
            click.echo(f"{file}: {finding}", err=True)
        count = len(error.findings)
        raise NegativeResult(f"{file}: {count} error{'s' if count > 1 else ''}, not usable") from None
    for notice in effective.notices:
        click.echo(f"{file}: notice: {notice}", err=True)
    if output == "json":
        import json

        click.echo(json.dumps(effective.tree, indent=2))
    else:
        click.echo(kubectl_yaml.dump(effective.tree), nl=False)
