"""`pykueue plan`: objects in, scheduling decisions out. No cluster is read, nothing is written."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kubemachinery import meta, yaml_documents
from kubemachinery.errors import UsageError
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner
from pykueue.analysis.planner import Case, SchedulingPlan
from pykueue.cli import flags
from pykueue.cli.progress import progress
from pykueue.core.decision import Admit, Decision, Evict, Preempt, SecondPassFailed, Wait
from pykueue.core.messages import of_decision
from pykueue.errors import NegativeResult

_FILES: Final = (".yaml", ".yml", ".json")


class PlanOptions(NamedTuple):
    """How many cycles to run, and by which rules."""

    cycles: int
    until_stable: bool
    departures: bool
    timeout_seconds: float

    def plan(self, case: Case, now: int) -> SchedulingPlan:
        return planner.plan(
            case,
            now,
            cycles=self.cycles,
            until_stable=self.until_stable,
            departures=self.departures,
            may_go_on=within(self.timeout_seconds),
        )


def within(seconds: float) -> Callable[[], bool]:
    """A function that returns whether less than `seconds` have passed since this call."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline


@click.command(name="plan")
@flags.files("A file, a folder of files, or - for standard input; may be repeated.")
@click.option("--now", "now_text", default=None, help="The time of the cycle, RFC 3339 (default: now).")
@click.option(
    "--cycles",
    type=flags.IntegerRange(1, planner.CYCLES_MAX),
    default=None,
    help="The number of cycles (default: 1).",
)
@click.option("--departures", is_flag=True, help="Apply the manager's intended departures from Kueue's rules.")
@click.option(
    "--until-stable",
    is_flag=True,
    help="Run cycles until one changes nothing. Exit code 1 on a preemption loop, or on a timeout.",
)
@flags.timeout("With --until-stable: stop")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="The output format."
)
@click.option(
    "--explain", is_flag=True, help="Show the flavors tried, the missing amounts and the Workloads that hold them."
)
@click.option(
    "--batch",
    is_flag=True,
    help='JSON Lines in and out: one {"id", "now", "case"} per line in, one decision object per line out.',
)
def command(
    files: tuple[str, ...],
    now_text: str | None,
    cycles: int | None,
    departures: bool,
    until_stable: bool,
    timeout_seconds: float,
    output: str,
    explain: bool,
    batch: bool,
) -> None:
    """Compute scheduling decisions offline, from objects in files (YAML or JSON, any mix of kinds).

    Decisions follow Kueue's rules exactly unless --departures is given. Between cycles, evicted Workloads are assumed
    to have stopped and to be pending again.
    """
    limit = timeout_seconds if until_stable else math.inf
    choices = PlanOptions(cycles or (planner.CYCLES_MAX if until_stable else 1), until_stable, departures, limit)
    if batch:
        if files:
            raise UsageError("--batch reads its cases from standard input; leave out -f")
        for line in sys.stdin.buffer:
            if line.strip():
                sys.stdout.write(json.dumps(_answer(line, now_text, choices), separators=(",", ":")) + "\n")
                sys.stdout.flush()
        return
    if not files:
        raise UsageError("nothing to plan: give files with -f, or - for standard input")
    now = at(now_text)
    with progress() as report:
        report("reading")
        case = case_of(files, now)
        report("deciding")
        made = choices.plan(case, now)
    print_ignored_and_unknown(case)
    _print(made, output, explain=explain)
    if until_stable and made.unstable_because:
        raise NegativeResult(f"not stable: {made.unstable_because}")


def _print(made: SchedulingPlan, output: str, *, explain: bool) -> None:
    if output == "table":
        _print_table(made, explain=explain)
        return
    tree = {**planner.as_tree(made), **({"explanations": planner.explanations(made)} if explain else {})}
    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        from kubemachinery import kubectl_yaml

        click.echo(kubectl_yaml.dump(tree), nl=False)


def _answer(line: bytes, now_text: str | None, choices: PlanOptions) -> dict[str, Any]:
    """The decision object of one line of a batch, or its error: an invalid case does not stop the others."""
    try:
        given = json.loads(line)
        if not isinstance(given, dict) or "case" not in given:
            raise UsageError('a line is an object with "case", and may have "id" and "now"')
        case = planner.with_used_namespaces(planner.read([Document(str(given.get("id", "case")), given["case"])]))
        return planner.as_tree(choices.plan(case, at(given.get("now", now_text))))
    except (UsageError, ValueError, RecursionError) as error:
        return {"error": str(error)}
    except Exception as error:  # a broken invariant must not end the batch either
        return {"error": f"{type(error).__name__}: {error}"}


def case_of(files: Iterable[str], now: int, change: Case | None = None) -> Case:
    """The case that files, folders and standard input describe together, with the jobs in it submitted.

    Without a Namespace object, the namespaces that it or a change to it uses are assumed to exist.
    """
    case = planner.with_used_namespaces(read(files), change)
    return planner.queued(case, case.jobs, now)


def read(files: Iterable[str], *, is_change: bool = False) -> Case:
    """The case in files, folders and standard input. Raises UsageError without an object; a Configuration alone is
    enough for a change."""
    case = planner.read(document for name in files for document in documents(name))
    is_enough = is_change and case.is_configured
    if not (case.objects or case.jobs or case.classes or case.extensions or case.passed_over or is_enough):
        raise UsageError(f"{', '.join(files)}: contains no object")
    return case


_PASSED_OVER_SHOWN: Final = 5


def print_notices(case: Case) -> None:
    """Print the notices of a case on stderr: what limits the result."""
    for notice in case.notices:
        click.echo(f"note: {notice}", err=True)


def print_ignored(case: Case) -> None:
    """Print on stderr which objects were ignored."""
    for place, why in case.passed_over[:_PASSED_OVER_SHOWN]:
        click.echo(f"{place} {why}: ignored", err=True)
    if len(case.passed_over) > _PASSED_OVER_SHOWN:
        click.echo(f"and {len(case.passed_over) - _PASSED_OVER_SHOWN} more ignored", err=True)


def print_ignored_and_unknown(case: Case) -> None:
    """Print which objects were ignored, and their unknown fields."""
    print_ignored(case)
    for place, sentence in case.unknown_fields:
        click.echo(f"{place}: {sentence}", err=True)


def at(text: object) -> int:
    """The time of `--now`; without it, the current time."""
    if text is None:
        return int(datetime.now(UTC).timestamp()) * meta.SECOND
    if not isinstance(text, str):
        raise UsageError(f"--now: {text!r} is not a time")
    try:
        return meta.parse_time(text)
    except ValueError as error:
        raise UsageError(f"--now: {error}") from None


def documents(name: str) -> Iterator[Document]:
    """The documents of a file, of the files of a folder, or of standard input."""
    if name == "-":
        yield from yaml_documents.standard_input()
        return
    if not name:
        raise UsageError("-f '': names no file")
    path = Path(name)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in _FILES and file.is_file())
        if not found:
            raise UsageError(f"{path}: a folder without {', '.join(_FILES)} files")
        for file in found:
            yield from _of_file(file)
    else:
        yield from _of_file(path)


def _of_file(path: Path) -> Iterator[Document]:
    """The documents of a file. JSON is parsed as JSON, which is much faster; on an error it is parsed as YAML."""
    if path.suffix == ".json":
        try:
            yield Document(str(path), json.loads(path.read_bytes(), object_pairs_hook=_each_once))
            return
        except (OSError, ValueError, RecursionError):
            pass  # the YAML parser reports the position of the error
    yield from yaml_documents.read(path)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key")
    return found


# --- A table for people -----------------------------------------------------------------------------------------------


def _outcome(decision: Decision) -> str:
    match decision:
        case Admit():
            return "admitted" if decision.is_admitted else "quota reserved"
        case Preempt():
            return f"preempts {len(decision.targets)}" if decision.targets else "migrates"
        case Wait():
            return f"waits: {decision.reason.value}"
        case SecondPassFailed():
            return "keeps its quota, second pass failed"
        case Evict():
            return "evicted: NodeFailures"
    return type(decision).__name__


def _print_table(made: SchedulingPlan, *, explain: bool) -> None:
    holders = {key: report["holders"] for key, report in planner.explanations(made).items()} if explain else {}
    for number, decisions in enumerate(made.cycles, start=1):
        if len(made.cycles) > 1:
            click.echo(f"cycle {number}")
        if not decisions:
            click.echo("nothing to decide")
            continue
        rows = [(d.workload, d.cluster_queue, _outcome(d), list(of_decision(d))) for d in decisions]
        widths = [max(len(title), *(len(row[n]) for row in rows)) for n, title in enumerate(_TITLES)]
        click.echo("  ".join(title.ljust(width) for title, width in zip(_TITLES, widths, strict=True)).rstrip())
        for workload, queue, outcome, sentences in rows:
            line = "  ".join((workload.ljust(widths[0]), queue.ljust(widths[1]), outcome.ljust(widths[2])))
            click.echo(line.rstrip())
            for sentence in sentences:
                click.echo(f"    {sentence}")
            for held in holders.get(workload, ()):
                why = f", protected: {held['protectedBy']}" if held["protectedBy"] else ""
                click.echo(f"    {held['workload']} holds {held['amount']} {held['resource']} of {held['flavor']}{why}")
    waiting = sum(len(queue) for queue in made.world.queues.values())
    click.echo(f"{len(made.world.reservations)} hold quota, {waiting} wait")


_TITLES: Final = ("WORKLOAD", "CLUSTERQUEUE", "DECISION")
