"""`pykueue completion`: prints the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print shell completion for SHELL: commands and flags, and names of objects and contexts.

    \b
    bash:  source <(pykueue completion bash)
    zsh:   source <(pykueue completion zsh)
    fish:  pykueue completion fish | source
    """
    from pykueue.cli import program

    script = get_completion_class(shell)
    assert script is not None, f"click does not support {shell}"
    click.echo(script(program, {}, "pykueue", "_PYKUEUE_COMPLETE").source())
