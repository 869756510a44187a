"""`pykueue whatif`: which Workloads would start, wait or be evicted if objects changed. Nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from kubemachinery.errors import UsageError
from pykueue.cli import flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import progress
from pykueue.cli.trace_options import TraceOptions
from pykueue.errors import NegativeResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubemachinery.client.client import ApiClient
    from kubemachinery.meta import Nanoseconds
    from pykueue.analysis.planner import Case
    from pykueue.analysis.whatif import WhatIfReport
    from pykueue.projection.documents import ForecastDocument


@click.command("whatif")
@flags.files("Changed or new objects: a file, a folder, or -; may be repeated.", into="changes")
@click.option(
    "--delete", "gone", multiple=True, metavar="KIND/NAME", help="An object that would be deleted; may be repeated."
)
@flags.files("The current objects, from files instead of a server; may be repeated.", "--in")
@click.option("--now", "now_text", default=None, help="The time of the decision, RFC 3339 (default: now).")
@flags.timeout("Stop")
@click.option("--eta", is_flag=True, help="Also show when the jobs that -f adds are expected to start.")
@click.option(
    "--trace",
    default="",
    metavar="BEGIN..END|FILE",
    help="Replay the jobs of this time range of the history, or of a file in the Standard Workload Format, with and"
    " without the change. Times are as in pykueue history; an empty END is now.",
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    default=None,
    help="With --trace or --eta: read this history.db instead of the history of the server, which must not be running.",
)
@click.option(
    "--map",
    "per_processor",
    multiple=True,
    metavar="RESOURCE=QUANTITY",
    help="With a trace file: what one processor is (default: cpu=1); may be repeated.",
)
@click.option("--ignore-bad-lines", is_flag=True, help="With a trace file: leave out lines that are no jobs.")
@click.option(
    "--write-base",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="With a trace file: write the queues that it implies to this file, and stop.",
)
@click.option(
    "--repeat",
    type=flags.IntegerRange(1, 100),
    default=1,
    help="With --trace: how often to draw the run times that are not known; the table then has their range.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="With --trace: also write the comparison with charts to this HTML file.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="The output format.")
@connects
def command(
    connection: Connection,
    changes: tuple[str, ...],
    gone: tuple[str, ...],
    files: tuple[str, ...],
    now_text: str | None,
    timeout_seconds: float,
    output: str,
    eta: bool,
    **of_traces: Any,
) -> None:
    """Show what a change would do before it is made: which Workloads would start, wait or be evicted.

    The objects that -f names replace those of the same name, or are added; jobs among them are submitted. Runs the
    scheduler on the current and on the changed objects until each settles; running Workloads do not end meanwhile.

    With --trace, compares a time range instead of a moment: waiting, use, fairness and evictions with and without the
    change.

    \b
    pykueue whatif --trace 2026-11-09..2026-11-16 -f cohort-v2.yaml --report compare.html
    pykueue whatif --trace wagap-2013.swf --in base.yaml -f other.yaml
    """
    from kubemachinery import codec, meta
    from pykueue.analysis import live_case, planner, whatif
    from pykueue.analysis.object_changes import indexed
    from pykueue.cli.plan import at, case_of, print_ignored, print_ignored_and_unknown, print_notices, read, within

    options = TraceOptions(**of_traces)
    if not options.trace and click.get_current_context().get_parameter_source("trace") is ParameterSource.COMMANDLINE:
        raise UsageError("--trace: is empty; name a file, or a time range such as 2026-11-09..2026-11-16")
    if options.trace and now_text is not None:
        raise UsageError("--now cannot be combined with --trace: the times are those of the trace")
    options.check(is_forecast=eta)
    if not changes and not gone and options.write_base is None:
        raise UsageError("nothing would change: give objects with -f, or names with --delete")
    if options.trace:
        from pykueue.cli import trace_comparison

        names = [_named(text, connection.namespace or "default") for text in gone]
        trace_comparison.run(connection, options, changes, dict(zip(gone, names, strict=True)), files, output)
        return
    now, change = at(now_text), read(changes, is_change=True) if changes else planner.read(())
    if eta:
        _check_horizon(now)
    print_ignored_and_unknown(change)
    with progress() as report:
        if files:
            case = case_of(files, now, change)
            print_ignored_and_unknown(case)
        else:
            has_jobs = bool(change.jobs)
            case = connection.talk(lambda client, _: live_case.case(client, classes=has_jobs, report=report))
            print_notices(case)
        coming = whatif.next_window(change, now) if now_text is None else None
        now = coming.start if coming is not None else now
        report("Computing decisions")
        names = [_named(text, connection.namespace or "default") for text in gone]
        there = indexed(case.objects)
        for text, named in zip(gone, names, strict=True):
            if named not in there:
                raise UsageError(f"--delete {text}: not found")
        changed = whatif.changed_by(case, change, names, now)
        difference = whatif.compare(case, changed, now, within(timeout_seconds))
        forecasts = (
            _forecasts(None if files else connection, options.history, case, changed, now, report) if eta else None
        )
    print_ignored(changed)
    if change.extensions and planner.QUOTA_CALENDAR not in changed.configured.on:
        click.echo("QuotaSchedules have no effect: the gate QuotaCalendar is off", err=True)
    if coming is not None:
        click.echo(f"at {meta.format_time(coming.start)}, when window {coming.window} begins", err=True)
    if output == "text":
        for line in [*lines(difference), *forecast_lines(forecasts)]:
            click.echo(line)
    else:
        known = {} if forecasts is None else {"forecast": codec.to_tree(forecasts)}
        printing.document({**difference.tree(), **known}, output)
    if difference.before.unstable_because:
        click.echo(f"no stable state without the change: {difference.before.unstable_because}", err=True)
    if difference.after.unstable_because:
        raise NegativeResult(f"no stable state with the change: {difference.after.unstable_because}")


def _check_horizon(now: Nanoseconds) -> None:
    """Refuse a time whose forecasts would be beyond the years of the API."""
    from kubemachinery import meta
    from pykueue.projection import forecast

    try:
        meta.format_time(now + forecast.HORIZON)
    except meta.TimeError:
        raise UsageError("--now: a forecast reaches 7 days ahead, and times have years of four digits") from None


def _forecasts(
    connection: Connection | None,
    history: Path | None,
    case: Case,
    changed: Case,
    now: Nanoseconds,
    report: Callable[[str], None],
) -> ForecastDocument:
    """When the Workloads that the change adds are expected to start. What is known of the past comes from a file, or
    from the history of the server, if there is one."""
    from kubemachinery.meta import SECOND
    from pykueue.analysis import start_forecasts
    from pykueue.cli import past_records
    from pykueue.client import job_history
    from pykueue.history.learning import RunEstimate
    from pykueue.lifecycle import states

    new = start_forecasts.new_workloads(case, changed)
    estimates: dict[str, RunEstimate] = {}

    async def read(client: ApiClient, _: str) -> None:
        scope = start_forecasts.scope_of(changed, new, now)
        for workload in set(map(states.key, scope.workloads())) - set(map(states.key, new)):
            namespace, _, name = workload.partition("/")
            found = await job_history.run_time(client, namespace, name)
            if found is not None and found.p50_seconds is not None and found.p90_seconds is not None:
                estimates[workload] = start_forecasts.estimate_of(
                    found.p50_seconds, found.p90_seconds, found.limit_seconds
                )

    report("Reading the history")
    since, until = start_forecasts.past_since(changed, now), now // SECOND + 1
    past = past_records.known(connection, history, since, until)
    if connection is not None and history is None:
        connection.talk(read)
    report("Computing the forecast")
    return start_forecasts.starts(changed, new, now, estimates, past)


def forecast_lines(found: ForecastDocument | None) -> list[str]:
    """When each new Workload is expected to start."""
    from datetime import datetime

    from pykueue.projection import words

    if found is None or not found.items:
        return []
    shown = ["", "When"]
    for item in found.items:
        first, *others = words.lines(found, item, datetime.now().astimezone())
        shown += [f"  {item.workload}: {first}", *(f"    {line}" for line in others)]
    return shown


def _named(text: str, namespace: str) -> tuple[type, str, str]:
    """KIND/NAME, or KIND/NAMESPACE/NAME."""
    from pykueue.analysis import planner
    from pykueue.api import registry

    kind, *rest = text.split("/")
    if len(rest) not in (1, 2) or not all(rest):
        raise UsageError(f"--delete {text}: must be KIND/NAME or KIND/NAMESPACE/NAME")
    for type_ in planner.KINDS:
        row = registry.ALL.of(type_)
        if kind.lower() in (row.singular, row.plural, *row.short_names):
            own = rest[0] if len(rest) == 2 else namespace
            return type_, own if row.namespaced else "", rest[-1]
    raise UsageError(f"--delete {text}: {kind} is not a kind that scheduling uses")


_TITLES: Final = {
    "starts": "Would start",
    "joins": "Would be queued and wait",
    "evicted": "Would be evicted",
    "waits": "Would no longer start",
    "moves": "Would get other flavors",
    "starts_anyway": "Starts in any case",
    "evicted_anyway": "Evicted in any case",
    "waits_anyway": "Waits in any case",
}


def lines(difference: WhatIfReport) -> list[str]:
    lines = []
    for field, title in _TITLES.items():
        keys: tuple[str, ...] = getattr(difference, field)
        if keys:
            lines += [title, *(f"  {key}" for key in keys)]
    if not any(getattr(difference, field) for field in ("starts", "joins", "evicted", "waits", "moves")):
        lines.insert(0, "No Workload would be affected")
    return lines
