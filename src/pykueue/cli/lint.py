"""`pykueue lint`: finds configurations that can never work, or that have unexpected effects."""

from __future__ import annotations

import click

from pykueue.cli import flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import progress
from pykueue.errors import NegativeResult


@click.command("lint")
@flags.files("A file, a folder, or -; may be repeated (default: the objects of the server).")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="The output format.")
@connects
def command(connection: Connection, files: tuple[str, ...], output: str) -> None:
    """Find queues, quotas and flavors that the server accepts, and that can never work or have unexpected effects.

    Exit code 1 if something can never work; unexpected effects are only reported.
    """
    from pykueue.analysis import lint, live_case, planner
    from pykueue.cli.plan import at, print_ignored, print_notices, read

    with progress() as report:
        if files:
            given = read(files)  # no namespace is assumed: rules about them report nothing if none are given
            case = planner.queued(given, given.jobs, at(None))
            print_ignored(case)
        else:
            case = connection.talk(lambda client, _: live_case.case(client, nodes=True, report=report))
        findings = lint.lint(case)
    print_notices(case)
    if output != "text":
        printing.document([finding.tree() for finding in findings], output)
    else:
        for finding in findings:
            click.echo(f"{finding.place}: {finding.sentence} [{finding.rule}]")
        if not findings:
            click.echo("no findings")
    never = sum(finding.severity is lint.Severity.NEVER for finding in findings)
    if never:
        raise NegativeResult(f"{never} of {len(findings)} can never work")
