"""What the commands of kueuectl have in common: names of kinds with their short forms, dry runs, and kubectl itself."""

from __future__ import annotations

import os
import shutil
from typing import Any, Final, NoReturn

import click

from kubemachinery.errors import UsageError
from pykueue import paths
from pykueue.cli import completion_candidates, flags, printing
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
# What is said after what was done.
DRY: Final = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


class KindGroup(click.Group):
    """Commands by kind, which may be named by their short forms."""

    command_class = flags.Command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _FULL.get(cmd_name, cmd_name))


dry_run = click.option(
    "--dry-run",
    cls=flags.LooseOption,
    alone="client",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    help="client: print what would be sent; server: have it checked, and not kept.",
)
prints = printing.prints("json", "yaml", "kyaml", "name")
labels = click.option("-l", "--selector", default="", help="A label query, such as team=a,tier!=test.")
fields = click.option("--field-selector", default="", help="A field query, such as metadata.name=a.")
all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")


def tell(tree: dict[str, Any], form: OutputFormat, done: str, dry: str = "none") -> None:
    """What became of an object: itself, its name, or a line such as `clusterqueue.kueue.x-k8s.io/a created`."""
    name = f"{tree['kind'].lower()}.{GROUP}/{tree['metadata']['name']}"
    if form.is_document:
        form.document(tree)
    else:
        click.echo(name if form.word == "name" else f"{name} {done}{DRY[dry]}")


def through_kubectl(verb: str, kind: str) -> click.Command:
    """A command that hands everything to kubectl."""

    @click.command(kind, context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=completion_candidates.objects(kind))
    def command(words: tuple[str, ...]) -> None:
        run_kubectl(verb, f"{kind}s.{GROUP}", *words)

    command.help = f"As `kubectl {verb} {kind}s.{GROUP}`, with all of its options."
    command.short_help = f"As kubectl {verb}."
    return command


def run_kubectl(*words: str) -> NoReturn:
    """Become kubectl. Where it would find no server, it is shown the one that `pykueue up` left word of."""
    program = shutil.which("kubectl")
    if program is None:
        raise UsageError("kubectl is not on the PATH; this command hands over to it")
    last, usual = paths.kubeconfig(), os.path.expanduser("~/.kube/config")
    environment = dict(os.environ)
    if "KUBECONFIG" not in environment and not os.path.exists(usual) and last.exists():
        environment["KUBECONFIG"] = str(last)
    os.execve(program, ["kubectl", *words], environment)
