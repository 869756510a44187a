"""`pykueue options`: the flags that every command takes which talks to a server."""

from __future__ import annotations

import click

from pykueue.cli.reach import FLAGS


@click.command("options")
def command() -> None:
    """List the flags that every command takes which talks to a server; they are kubectl's."""
    formatter = click.HelpFormatter(width=100)
    flags = [(f"{flag.short}, --{flag.name}" if flag.short else f"    --{flag.name}", flag.help) for flag in FLAGS]
    formatter.write_dl(
        [("    --kubeconfig", "The file that says all this."), ("    --context", "A context of it."), *flags]
    )
    click.echo(formatter.getvalue(), nl=False)
