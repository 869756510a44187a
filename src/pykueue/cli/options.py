"""`pykueue options`: the connection flags shared by all commands."""

from __future__ import annotations

import click

from pykueue.cli.connection_flags import FLAGS


@click.command("options")
def command() -> None:
    """List the connection flags shared by all commands. They are the same as kubectl's."""
    formatter = click.HelpFormatter(width=100)
    flags = [(f"{flag.short}, --{flag.name}" if flag.short else f"    --{flag.name}", flag.help) for flag in FLAGS]
    formatter.write_dl(
        [("    --kubeconfig", "The kubeconfig file."), ("    --context", "A context of the kubeconfig."), *flags]
    )
    click.echo(formatter.getvalue(), nl=False)
