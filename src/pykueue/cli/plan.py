"""`pykueue plan`: the objects given, the scheduling decisions out. No cluster is asked, nothing is written."""

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
    """How far to plan, and whose decisions."""

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
    """Whether less than so many seconds have passed since this call."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline


@click.command(name="plan")
@flags.files("A file, a folder of files, or - for standard input; may be repeated.")
@click.option("--now", "now_text", default=None, help="The time of the cycle, RFC 3339; by default the present.")
@click.option(
    "--cycles",
    type=click.IntRange(1, planner.CYCLES_MAX),
    default=None,
    help="How many cycles to run; one by default.",
)
@click.option("--departures", is_flag=True, help="Decide as the manager does where it departs from Kueue on purpose.")
@click.option(
    "--until-stable",
    is_flag=True,
    help="Run cycles until one changes nothing. Exit code 1 if the decisions repeat without end, or the time is over.",
)
@flags.timeout("With --until-stable: stop")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print it.")
@click.option("--explain", is_flag=True, help="Say for each Workload what was tried, what is short and who holds it.")
@click.option(
    "--batch", is_flag=True, help='JSON Lines in and out: {"id", "now", "case"} a line, a decision object each.'
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
    """Decide offline: what a scheduling cycle would do with the objects in files (YAML or JSON, any mix of kinds).

    Decisions are Kueue's to the letter unless --departures is given. Between cycles, evicted Workloads are taken to
    have stopped and to be pending again.
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
    with progress() as told:
        told("reading")
        case = case_of(files, now)
        told("deciding")
        made = choices.plan(case, now)
    tell_left_out(case)
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
    """The decision object of one line of a batch, or what is wrong with it: one bad case stops nobody else."""
    try:
        given = json.loads(line)
        if not isinstance(given, dict) or "case" not in given:
            raise UsageError('a line is an object with "case", and may have "id" and "now"')
        case = planner.read([Document(str(given.get("id", "case")), given["case"])])
        return planner.as_tree(choices.plan(case, at(given.get("now", now_text))))
    except (UsageError, ValueError, RecursionError) as error:
        return {"error": str(error)}
    except Exception as error:  # a broken promise of ours must not end the batch either
        return {"error": f"{type(error).__name__}: {error}"}


def case_of(files: Iterable[str], now: int) -> Case:
    """The case that files, folders and standard input describe together, with the jobs in it submitted."""
    case = read(files)
    return planner.queued(case, case.jobs, now)


def read(files: Iterable[str]) -> Case:
    """What files, folders and standard input hold; nothing at all is a mistake."""
    case = planner.read(document for name in files for document in _documents(name))
    if not (case.objects or case.jobs or case.classes or case.passed_over):
        raise UsageError(f"{', '.join(files)}: no object is in it")
    return case


_PASSED_OVER_SHOWN: Final = 5


def tell_notices(case: Case) -> None:
    """Say on stderr what limits the answers about a case."""
    for notice in case.notices:
        click.echo(f"note: {notice}", err=True)


def tell_passed_over(case: Case) -> None:
    """What was given and plays no part is said, for whoever thinks that it did."""
    for place, why in case.passed_over[:_PASSED_OVER_SHOWN]:
        click.echo(f"{place} {why}: passed over", err=True)
    if len(case.passed_over) > _PASSED_OVER_SHOWN:
        click.echo(f"and {len(case.passed_over) - _PASSED_OVER_SHOWN} more passed over", err=True)


def tell_left_out(case: Case) -> None:
    """The same, and what nobody knows."""
    tell_passed_over(case)
    for place, sentence in case.unknown_fields:
        click.echo(f"{place}: {sentence}", err=True)


def at(text: object) -> int:
    """The time that `--now` says; the present where it says nothing."""
    if text is None:
        return int(datetime.now(UTC).timestamp()) * meta.SECOND
    if not isinstance(text, str):
        raise UsageError(f"--now: {text!r} is not a time")
    try:
        return meta.parse_time(text)
    except ValueError as error:
        raise UsageError(f"--now: {error}") from None


def _documents(name: str) -> Iterator[Document]:
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
    """JSON is read as JSON, which is much faster; whatever is none after all may still be YAML."""
    if path.suffix == ".json":
        try:
            yield Document(str(path), json.loads(path.read_bytes(), object_pairs_hook=_each_once))
            return
        except (OSError, ValueError, RecursionError):
            pass  # the other way of reading says what is wrong, and where
    yield from yaml_documents.read(path)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is written twice")
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
            return "keeps its quota, tries again"
        case Evict():
            return "evicted: NodeFailures"
    return type(decision).__name__


def _print_table(made: SchedulingPlan, *, explain: bool) -> None:
    holders = {key: told["holders"] for key, told in planner.explanations(made).items()} if explain else {}
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
