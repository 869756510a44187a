"""`pykueue resume`: resumes queues and Workloads."""

from __future__ import annotations

from typing import Any

import click

from pykueue.cli import completion_candidates, flags, kinds
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat
from pykueue.cli.stop import change


@click.group("resume", cls=kinds.KindGroup)
def command() -> None:
    """Resume a ClusterQueue, a LocalQueue or a Workload."""


def _resumes(kind: str, title: str, spec: dict[str, Any]) -> click.Command:
    @click.command(kind, cls=flags.Command)
    @click.argument("name", shell_complete=completion_candidates.objects(kind))
    @kinds.dry_run
    @kinds.prints
    @connects
    def resume(connection: Connection, name: str, dry_run: str, form: OutputFormat) -> None:
        change(connection, kind, name, spec, "resumed", dry_run, form)

    resume.help = (
        f"Resume a {title} that was stopped{', by its name or that of its job' if kind == 'workload' else ''}."
    )
    return resume


command.add_command(_resumes("clusterqueue", "ClusterQueue", {"stopPolicy": "None"}))
command.add_command(_resumes("localqueue", "LocalQueue", {"stopPolicy": "None"}))
command.add_command(_resumes("workload", "Workload", {"active": True}))
