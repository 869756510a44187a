"""`pykueue explain`: explains why a Workload or a job waits, and which change would admit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click

from kubemachinery.errors import UsageError
from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubemachinery.client.client import ApiClient
    from pykueue.analysis.explanation import Explanation
    from pykueue.analysis.planner import Case
    from pykueue.client.queue_entries import QueueEntry
    from pykueue.history.documents import RunTimeEstimate, WorkloadTrouble
    from pykueue.projection.documents import ForecastDocument, ForecastItem

    Observed: TypeAlias = tuple[
        RunTimeEstimate | None, list[WorkloadTrouble], tuple[ForecastDocument, ForecastItem] | None
    ]


@click.command("explain")
@click.argument("name", shell_complete=completion_candidates.jobs())
@flags.files("Objects from a file, a folder, or - instead of a server's; may be repeated.")
@click.option("--now", "now_text", default=None, help="With -f: the time of the decision, RFC 3339 (default: now).")
@click.option("--no-suggestions", is_flag=True, help="Print the causes only, without suggestions.")
@click.option("--thorough", is_flag=True, help="Search for all suggestions, without a time limit.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="The output format.")
@connects
def command(
    connection: Connection,
    name: str,
    files: tuple[str, ...],
    now_text: str | None,
    no_suggestions: bool,
    thorough: bool,
    output: str,
) -> None:
    """Explain why a Workload waits: every cause, what holds the quota, and the smallest change that would admit it.

    NAME is a Workload or a job; KIND/NAME, such as job/train, if several have that name. Each suggestion was tried
    on a copy and is minimal: all of its changes are needed. One that the nodes cannot hold comes last, with a warning.
    """
    from kubemachinery import codec
    from pykueue.analysis.explanation import explain
    from pykueue.analysis.trial import SearchBudget
    from pykueue.cli.plan import at, case_of, print_ignored_and_unknown, print_notices

    with progress() as report:
        if files:
            case, namespace = case_of(files, at(now_text)), connection.namespace or "default"
            print_ignored_and_unknown(case)
        else:
            case, namespace = connection.talk(lambda client, namespace: _live(client, namespace, report))
        named = Named.of(name)
        print_notices(case)
        key = _key(case, namespace, named)
        if key is None:
            _print_unqueued(None if files else _unqueued(connection, named), namespace, named, output)
            return
        report("Computing suggestions")
        effort = SearchBudget() if thorough else None
        answer = explain(case, key, at(now_text), suggest=not no_suggestions, effort=effort)
    estimate, when = None, None
    if not files:
        from pykueue.client import job_troubles

        estimate, observed, when = connection.talk(lambda client, _: _observed(client, key, thorough))
        answer = job_troubles.with_troubles(answer, observed)
    if output == "text":
        for line in [*lines(answer), *run_time_lines(estimate), *forecast_lines(when)]:
            click.echo(line)
    else:
        known = {} if estimate is None else {"runTime": codec.to_tree(estimate)}
        known |= {} if when is None else {"forecast": codec.to_tree(when[1])}
        printing.document({**answer.tree(), **known}, output)


async def _live(client: ApiClient, namespace: str, report: Any) -> tuple[Case, str]:
    from pykueue.analysis import live_case

    return await live_case.case(client, nodes=True, unscheduled=namespace, report=report), namespace


async def _observed(client: ApiClient, key: str, thorough: bool) -> Observed:
    """What the server knows beyond its objects, over one connection."""
    from pykueue.client import job_troubles

    estimate = await _run_time(client, key)
    return estimate, await job_troubles.of_workload(client, key), await _forecast(client, key, thorough)


async def _run_time(client: ApiClient, key: str) -> RunTimeEstimate | None:
    from pykueue.client import job_history

    namespace, _, workload = key.partition("/")
    return await job_history.run_time(client, namespace, workload)


async def _forecast(client: ApiClient, key: str, thorough: bool) -> tuple[ForecastDocument, ForecastItem] | None:
    from pykueue.client import job_forecast

    namespace, _, workload = key.partition("/")
    return await job_forecast.of_workload(client, namespace, workload, is_thorough=thorough)


def forecast_lines(found: tuple[ForecastDocument, ForecastItem] | None) -> list[str]:
    """When the Workload is expected to start; nothing if it is not pending."""
    from datetime import datetime

    from pykueue.projection import words

    if found is None:
        return []
    return ["", "When", *(f"  {line}" for line in words.lines(*found, datetime.now().astimezone()))]


def run_time_lines(estimate: RunTimeEstimate | None) -> list[str]:
    """How long the Workload will run; nothing on a server without a history."""
    from pykueue.history.columns import duration

    if estimate is None:
        return []
    limit = f"at most {duration(estimate.limit_seconds)}" if estimate.limit_seconds else ""
    if estimate.p50_seconds is None or estimate.p90_seconds is None:
        return ["", "Runs for", f"  {'; '.join(filter(None, ['no estimate: no run like it is known', limit]))}"]
    about, under = duration(estimate.p50_seconds), duration(estimate.p90_seconds)
    known = f"about {about}, at most {under} in 9 of 10 cases ({estimate.source})"
    return ["", "Runs for", f"  {'; '.join(filter(None, [known, limit]))}"]


class Named(NamedTuple):
    """KIND/NAME, or a name. KIND is a kind or resource in any spelling."""

    prefix: str
    name: str

    @classmethod
    def of(cls, text: str) -> Named:
        prefix, _, name = text.rpartition("/")
        return cls(prefix, name)

    def may_be(self, kind: str, *shorts: str) -> bool:
        named, kind = self.prefix.partition(".")[0].lower(), kind.lower()
        return named in ("", kind, f"{kind}s", *shorts)

    def __str__(self) -> str:
        return f"{self.prefix} {self.name}" if self.prefix else f"Workload or job {self.name}"


def _key(case: Case, namespace: str, named: Named) -> str | None:
    """The Workload with this name, or the newest Workload of the job with this name; None without one."""
    from pykueue.api import kueue

    if named.prefix and named.may_be("workload", "wl"):
        return f"{namespace}/{named.name}"
    workloads = [thing for thing in case.objects if isinstance(thing, kueue.Workload)]
    place = named.prefix or namespace
    if any((thing.metadata.namespace, thing.metadata.name) == (place, named.name) for thing in workloads):
        return f"{place}/{named.name}"
    found = [
        workload
        for workload in workloads
        for owner in workload.metadata.owner_references
        if (workload.metadata.namespace, owner.name) == (namespace, named.name) and named.may_be(owner.kind)
    ]
    newest = max(found, key=lambda workload: workload.metadata.creation_timestamp or "", default=None)
    return f"{namespace}/{newest.metadata.name}" if newest is not None else None


def _unqueued(connection: Connection, named: Named) -> QueueEntry | None:
    from pykueue.client import queue_entries

    found = connection.talk(lambda client, namespace: queue_entries.entries(client, namespace, every_kind=True))
    return matching(found, named)


def matching(entries: Iterable[QueueEntry], named: Named) -> QueueEntry | None:
    """The job or the pods with this name that have no Workload; None without one."""
    for entry in entries:
        if not entry.workload and named.may_be(entry.kind) and named.name in (entry.name, *entry.names):
            return entry
    return None


def _print_unqueued(entry: QueueEntry | None, namespace: str, named: Named, output: str) -> None:
    """Print why a job has no Workload. Raises UsageError while a job that was just submitted has none yet."""
    from pykueue.client.job_status import JobState

    if entry is None:
        raise UsageError(f"{named} not found in namespace {namespace}, or it has no queue label")
    word, why, place = entry.status.state, entry.status.message, f"{namespace}/{entry.name}"
    kind = entry.kind if entry.name in entry.names else f"{entry.kind} group"
    if word is not JobState.UNQUEUED:
        raise UsageError(f"{kind.lower()} {entry.name} in namespace {namespace} is not queued yet: {why}")
    if output == "text":
        click.echo(f"{kind} {place} has no Workload and is not queued\n\nWhy\n  {why}")
    else:
        tree = {entry.kind.lower(): place, "state": str(word), "localQueue": entry.queue, "causes": [why]}
        printing.document(tree, output)


_SHOWN: Final = 5


def lines(answer: Explanation) -> list[str]:
    """The explanation as lines of text."""
    from pykueue.analysis.explanation import SearchExtent

    shown = [_heading(answer)]
    if answer.warnings:
        shown += ["", "Warning", *(f"  {warning}" for warning in answer.warnings)]
    if answer.causes:
        shown += ["", "Why", *(f"  {cause}" for cause in answer.causes)]
    if answer.planned_start:
        shown += ["", "When", f"  {answer.planned_start}"]
    if answer.advice:
        shown += ["", "What would let it in", *(f"  {number}. {each}" for number, each in enumerate(answer.advice, 1))]
    if answer.not_counted:
        shown += ["", "Not counted against quota", *(f"  {each}" for each in answer.not_counted)]
    if answer.ahead:
        more = f" and {(answer.position or (0, 0))[0] - 1 - _SHOWN} more" if len(answer.ahead) > _SHOWN else ""
        shown += ["", "Ahead of it", f"  {', '.join(answer.ahead[:_SHOWN])}{more}"]
    if answer.holders:
        shown += ["", "Held by"]
        for held in answer.holders[:_SHOWN]:
            why = f" ({held['protectedBy']})" if held["protectedBy"] else ""
            shown.append(f"  {held['workload']}: {held['amount']} {held['resource']} of {held['flavor']}{why}")
    if answer.suggestions:
        shown += ["", "Suggestions"]
        for number, suggestion in enumerate(answer.suggestions, start=1):
            for n, part in enumerate(suggestion.changes):
                shown.append(f"  {f'{number}.' if not n else '  and'} {part.sentence()}")
                if part.how():
                    shown.append(f"       {part.how()}")
            if suggestion.warning:
                shown.append(f"     but {suggestion.warning}")
    if answer.search is SearchExtent.CUT_SHORT:
        shown += ["", "The search was cut short because many Workloads wait in this cohort; --thorough continues it"]
    elif answer.search is SearchExtent.COMPLETE and not answer.suggestions:
        shown += ["", "No single change of quota, priority, order or pods was found that admits it"]
    return shown


def _heading(answer: Explanation) -> str:
    if answer.state != "Pending":
        where = f" in ClusterQueue {answer.cluster_queue}" if answer.cluster_queue else ""
        return f"Workload {answer.workload} is {answer.state}{where}"
    where = f"ClusterQueue {answer.cluster_queue}" if answer.cluster_queue else f"LocalQueue {answer.queue}"
    place = f", position {answer.position[0]} ({answer.position[1]} in its LocalQueue)" if answer.position else ""
    ends = ": nothing blocks it; the next scheduling cycle admits it" if answer.starts_next else ""
    return f"Workload {answer.workload} waits in {where}{place}{ends}"
