"""`pykueue completion`: the shell script that completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print shell completion for SHELL: commands and flags, and names of what is on the server and in the kubeconfig.

    \b
    bash:  source <(pykueue completion bash)
    zsh:   source <(pykueue completion zsh)
    fish:  pykueue completion fish | source
    """
    from pykueue.cli import program

    script = get_completion_class(shell)
    assert script is not None, f"click knows no {shell}"
    click.echo(script(program, {}, "pykueue", "_PYKUEUE_COMPLETE").source())
