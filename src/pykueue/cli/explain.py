"""`pykueue explain`: explains why a Workload or a job waits, and which change would admit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubemachinery.errors import UsageError
from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubemachinery.client.client import ApiClient
    from kubemachinery.meta import ObjectMeta
    from kubemachinery.unstructured import Tree
    from pykueue.analysis.planner import Case
    from pykueue.client.queue_entries import QueueEntry
    from pykueue.history.documents import RunTimeEstimate
    from pykueue.projection.documents import ForecastDocument, ForecastItem


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
    if now_text is not None and not files:
        raise UsageError("--now is the time of the decision about objects of files; it needs -f")
    named, suggests = Named.of(name), not no_suggestions
    with progress() as report:
        found: Explained | None = None
        if not files and not thorough:
            report("Asking the server")
            found = connection.talk(lambda client, namespace: _served(client, namespace, named, suggests))
        if found is None:
            found = _computed(connection, named, files, now_text, suggests, thorough, output, report)
    if found is None:
        return
    if output == "text":
        for line in text_lines(found):
            click.echo(line)
        return
    from kubemachinery import codec

    known = {} if found.estimate is None else {"runTime": codec.to_tree(found.estimate)}
    if isinstance(found.when, str):
        known["forecast"] = {"reason": found.when}
    elif found.when is not None:
        known["forecast"] = codec.to_tree(found.when[1])
    printing.document({**found.tree, **known}, output)


class Explained(NamedTuple):
    """An explanation as `Explanation.tree` has it, and what the server knows beyond its objects."""

    tree: Tree
    estimate: RunTimeEstimate | None = None
    # The sentence why there is none, if it could not be computed.
    when: tuple[ForecastDocument, ForecastItem] | str | None = None


def text_lines(found: Explained) -> list[str]:
    """The explanation as lines of text, with one section "When" for a planned start and a forecast."""
    forecast, estimate = forecast_lines(found.when), run_time_lines(found.estimate)
    if found.tree.get("plannedStart"):
        return [*lines(found.tree, forecast), *estimate]
    return [*lines(found.tree), *estimate, *(["", "When", *forecast] if forecast else ())]


async def _served(client: ApiClient, namespace: str, named: Named, suggests: bool) -> Explained | None:
    """The explanation of a manager that serves it, as that of `pykueue up` does: the command needs no scheduler then.
    None where no manager does."""
    from pykueue.client import served_explanation

    places = () if named.is_workload else dict.fromkeys((namespace, named.prefix or namespace))
    key = _key(await served_explanation.workloads(client, places), namespace, named)
    tree = await served_explanation.of_workload(client, key, suggests=suggests) if key is not None else None
    return await _with_observed(client, tree, False) if tree is not None else None


def _computed(
    connection: Connection,
    named: Named,
    files: tuple[str, ...],
    now_text: str | None,
    suggests: bool,
    thorough: bool,
    output: str,
    report: Callable[[str], None],
) -> Explained | None:
    """The explanation of the objects of files or of the server, computed here. None after printing why a job has no
    Workload."""
    from pykueue.analysis.explanation import explain
    from pykueue.analysis.trial import SearchBudget
    from pykueue.api import kueue
    from pykueue.cli.plan import at, case_of, print_ignored_and_unknown, print_notices

    if files:
        case, namespace = case_of(files, at(now_text)), connection.namespace or "default"
        print_ignored_and_unknown(case)
    else:
        case, namespace = connection.talk(lambda client, namespace: _live(client, namespace, report))
    print_notices(case)
    key = _key((thing.metadata for thing in case.objects if isinstance(thing, kueue.Workload)), namespace, named)
    if key is None:
        _print_unqueued(None if files else _unqueued(connection, named), namespace, named, output)
        return None
    report("Computing suggestions")
    effort = SearchBudget() if thorough else None
    tree = explain(case, key, at(now_text), suggest=suggests, effort=effort).tree()
    return Explained(tree) if files else connection.talk(lambda client, _: _with_observed(client, tree, thorough))


async def _live(client: ApiClient, namespace: str, report: Any) -> tuple[Case, str]:
    from pykueue.analysis import live_case

    return await live_case.case(client, nodes=True, unscheduled=namespace, report=report), namespace


async def _with_observed(client: ApiClient, tree: Tree, thorough: bool) -> Explained:
    """The explanation with the troubles that the manager observed, the run time and the forecast."""
    from pykueue.client import job_troubles

    key = tree["workload"]
    # A run that is over has a length, and is in the history: an estimate of it would only be above that length.
    estimate = await _run_time(client, key) if tree["state"] != _FINISHED else None
    warnings = job_troubles.warnings(await job_troubles.of_workload(client, key))
    # Only a pending Workload has a forecast.
    when = await _forecast(client, key, thorough) if tree["state"] == _PENDING else None
    return Explained({**tree, "warnings": [*warnings, *tree["warnings"]]}, estimate, when)


async def _run_time(client: ApiClient, key: str) -> RunTimeEstimate | None:
    from pykueue.client import job_history

    namespace, _, workload = key.partition("/")
    return await job_history.run_time(client, namespace, workload)


async def _forecast(client: ApiClient, key: str, thorough: bool) -> tuple[ForecastDocument, ForecastItem] | str | None:
    from kubemachinery.client import errors
    from pykueue.client import job_forecast

    namespace, _, workload = key.partition("/")
    try:
        return await job_forecast.of_workload(client, namespace, workload, is_thorough=thorough)
    except errors.KubeError as error:
        return str(error)


def forecast_lines(found: tuple[ForecastDocument, ForecastItem] | str | None) -> list[str]:
    """When the Workload is expected to start; nothing if it is not pending."""
    from datetime import datetime

    from pykueue.projection import words

    if found is None:
        return []
    if isinstance(found, str):
        from pykueue.client import job_forecast

        return [f"  no forecast: {found.removeprefix(job_forecast.NO_FORECAST)}"]
    return [f"  {line}" for line in words.lines(*found, datetime.now().astimezone())]


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
        if not name:
            raise UsageError(f"{text!r} names no Workload or job: the name is empty")
        return cls(prefix, name)

    def may_be(self, kind: str, *shorts: str) -> bool:
        named, kind = self.prefix.partition(".")[0].lower(), kind.lower()
        return named in ("", kind, f"{kind}s", *shorts)

    @property
    def is_workload(self) -> bool:
        """Whether it names a Workload by its kind."""
        return bool(self.prefix) and self.may_be("workload", "wl")

    def __str__(self) -> str:
        return f"{self.prefix} {self.name}" if self.prefix else f"Workload or job {self.name}"


def _key(workloads: Iterable[ObjectMeta], namespace: str, named: Named) -> str | None:
    """The Workload with this name, or the newest Workload of the job with this name; None without one."""
    if named.is_workload:
        return f"{namespace}/{named.name}"
    known, place = list(workloads), named.prefix or namespace
    if any((found.namespace, found.name) == (place, named.name) for found in known):
        return f"{place}/{named.name}"
    owned = [
        found
        for found in known
        for owner in found.owner_references
        if (found.namespace, owner.name) == (namespace, named.name) and named.may_be(owner.kind)
    ]
    newest = max(owned, key=lambda found: found.creation_timestamp or "", default=None)
    return f"{namespace}/{newest.name}" if newest is not None else None


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


_PENDING: Final = "Pending"
_FINISHED: Final = "Finished"
_SHOWN: Final = 5


def lines(tree: Tree, forecast: Iterable[str] = ()) -> list[str]:
    """An explanation (`Explanation.tree`) as lines of text; the lines of a forecast follow its planned start."""
    shown = [_heading(tree)]
    if tree["warnings"]:
        shown += ["", "Warning", *(f"  {warning}" for warning in tree["warnings"])]
    if tree["causes"]:
        shown += ["", "Why", *(f"  {cause}" for cause in tree["causes"])]
    if tree.get("plannedStart"):
        shown += ["", "When", f"  {tree['plannedStart']}", *forecast]
    if advice := tree.get("advice"):
        shown += ["", "What would let it in", *(f"  {number}. {each}" for number, each in enumerate(advice, 1))]
    if tree["notCounted"]:
        shown += ["", "Not counted against quota", *(f"  {_not_counted(each)}" for each in tree["notCounted"])]
    if ahead := tree["ahead"]:
        place = tree["position"]["inClusterQueue"] if tree["position"] else 0
        more = f" and {place - 1 - _SHOWN} more" if len(ahead) > _SHOWN else ""
        shown += ["", "Ahead of it", f"  {', '.join(ahead[:_SHOWN])}{more}"]
    if tree["holders"]:
        shown += ["", "Held by"]
        for held in tree["holders"][:_SHOWN]:
            why = f" ({held['protectedBy']})" if held["protectedBy"] else ""
            shown.append(f"  {held['workload']}: {held['amount']} {held['resource']} of {held['flavor']}{why}")
    if tree["suggestions"]:
        shown += ["", "Suggestions"]
        for number, suggestion in enumerate(tree["suggestions"], start=1):
            for n, part in enumerate(suggestion["changes"]):
                shown.append(f"  {f'{number}.' if not n else '  and'} {part['change']}")
                if part["command"]:
                    shown.append(f"       {part['command']}")
            if suggestion["warning"]:
                shown.append(f"     but {suggestion['warning']}")
    if tree["search"] == "cut short":
        shown += ["", "The search was cut short because many Workloads wait in this cohort; --thorough continues it"]
    elif tree["search"] == "complete" and not tree["suggestions"]:
        shown += ["", "No single change of quota, priority, order or pods was found that admits it"]
    return shown


def _heading(tree: Tree) -> str:
    queue = tree["clusterQueue"]
    if tree["state"] != _PENDING:
        where = f" in ClusterQueue {queue}" if queue else ""
        return f"Workload {tree['workload']} is {tree['state']}{where}"
    where = f"ClusterQueue {queue}" if queue else f"LocalQueue {tree['localQueue']}"
    at = tree["position"]
    place = f", position {at['inClusterQueue']} ({at['inLocalQueue']} in its LocalQueue)" if at else ""
    ends = ": nothing blocks it; the next scheduling cycle admits it" if tree["startsNext"] else ""
    return f"Workload {tree['workload']} waits in {where}{place}{ends}"


def _not_counted(tree: Tree) -> str:
    if "prefix" not in tree:
        return f"{tree['resource']} (not declared)"
    where = "the ClusterQueue" if tree["list"] == "ClusterQueue" else "the configuration"
    return f"{tree['resource']} (prefix {tree['prefix']!r} of {where})"
