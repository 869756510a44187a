"""`pykueue version`."""

from __future__ import annotations

import platform

import click

from pykueue.version import __version__


@click.command(name="version")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
def command(output: str) -> None:
    """Print the version of pykueue and of the Python it runs on."""
    if output == "json":
        import json

        click.echo(json.dumps({"pykueue": __version__, "python": platform.python_version()}))
    else:
        click.echo(f"pykueue {__version__} (Python {platform.python_version()})")
