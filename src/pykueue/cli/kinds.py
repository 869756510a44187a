"""What the commands of kueuectl share: kinds with their short names, dry runs, and delegation to kubectl."""

from __future__ import annotations

from typing import Any, Final

import click

from pykueue.cli import completion_candidates, flags, kubectl_process, printing
from pykueue.cli.printing import OutputFormat

ALIASES: Final = {
    "clusterqueue": ("cq", "clusterqueues"),
    "localqueue": ("lq", "localqueues"),
    "resourceflavor": ("rf", "resourceflavors"),
    "workload": ("kwl", "kueueworkload", "kueueworkloads", "wl", "workloads"),
    "pods": ("po", "pod"),
}
OURS: Final = ("workload", "clusterqueue", "localqueue", "resourceflavor")
_FULL: Final = {short: name for name, shorts in ALIASES.items() for short in shorts}
GROUP: Final = "kueue.x-k8s.io"
# Printed after the result.
DRY: Final = {"none": "", "client": " (client dry run)", "server": " (server dry run)"}


class KindGroup(click.Group):
    """Commands by kind, also under the short names of the kind."""

    command_class = flags.Command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _FULL.get(cmd_name, cmd_name))


dry_run = click.option(
    "--dry-run",
    cls=flags.LooseOption,
    alone="client",
    spaced=tuple(DRY),
    type=click.Choice(tuple(DRY)),
    default="none",
    help="client: print what would be sent; server: send it, and store nothing.",
)
prints = printing.prints("json", "yaml", "name")
labels = click.option("-l", "--selector", default="", help="A label query, such as team=a,tier!=test.")
fields = click.option("--field-selector", default="", help="A field query, such as metadata.name=a.")
all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")


def print_result(tree: dict[str, Any], form: OutputFormat, done: str, dry: str = "none") -> None:
    """Print a changed object, its name, or a line such as `clusterqueue.kueue.x-k8s.io/a created`."""
    name = f"{tree['kind'].lower()}.{GROUP}/{tree['metadata']['name']}"
    if form.is_document:
        form.document(tree)
    else:
        click.echo(name if form.word == "name" else f"{name} {done}{DRY[dry]}")


class _KubectlCommand(click.Command):
    """A command whose arguments are those of kubectl. Only a whole word is a request for help: click itself would find
    the option -h also within `-o=jsonpath=…`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked = [word for word in args if word in ctx.help_option_names]
        return super().parse_args(ctx, asked or ["--", *args])


def through_kubectl(verb: str, kind: str) -> click.Command:
    """A command that is replaced by `kubectl VERB`, with all of its arguments."""

    @click.command(kind, cls=_KubectlCommand)
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=completion_candidates.objects(kind))
    def command(words: tuple[str, ...]) -> None:
        kubectl_process.replace_process(verb, f"{kind}s.{GROUP}", *words)

    command.help = f"As `kubectl {verb} {kind}s.{GROUP}`, with all of its options."
    command.short_help = f"As kubectl {verb}."
    return command
