"""`pykueue lint`: configurations that can never work, or that will surprise."""

from __future__ import annotations

import click

from pykueue.cli import flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import progress
from pykueue.errors import NegativeResult


@click.command("lint")
@flags.files("A file, a folder, or -, may be repeated; a server's objects by default.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print it.")
@connects
def command(connection: Connection, files: tuple[str, ...], output: str) -> None:
    """Look for queues, quotas and flavors that a server takes and that will not do what their author thinks.

    Exit code 1 when there is something that can never work; what may only surprise is told and passes.
    """
    from pykueue.analysis import lint, live_case
    from pykueue.cli.plan import at, case_of, tell_notices, tell_passed_over

    with progress() as told:
        if files:
            case = case_of(files, at(None))
            tell_passed_over(case)
        else:
            case = connection.talk(lambda client, _: live_case.case(client, nodes=True, told=told))
        findings = lint.lint(case)
    tell_notices(case)
    if output != "text":
        printing.document([finding.tree() for finding in findings], output)
    else:
        for finding in findings:
            click.echo(f"{finding.place}: {finding.sentence} [{finding.rule}]")
        if not findings:
            click.echo("nothing to complain about")
    hopeless = sum(finding.severity is lint.Severity.NEVER for finding in findings)
    if hopeless:
        raise NegativeResult(f"{hopeless} of {len(findings)} can never work")
