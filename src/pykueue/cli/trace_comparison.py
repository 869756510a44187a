"""`pykueue whatif --trace`: reads the trace and the objects, compares, and prints."""

from __future__ import annotations

import codecs
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from kubemachinery import codec, kubectl_yaml, process
from kubemachinery.clock import SystemClock
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, format_time
from pykueue import wording
from pykueue.analysis import comparison_report, live_case, planner, policy_comparison, replay_processes, traces, whatif
from pykueue.analysis.object_changes import indexed
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import PolicyComparison
from pykueue.analysis.traces import SwfMapping, Trace
from pykueue.api import kueue, registry
from pykueue.cli import past_records, printing
from pykueue.cli.connection import Connection
from pykueue.cli.plan import print_ignored_and_unknown, print_notices, read
from pykueue.cli.progress import progress
from pykueue.cli.trace_options import TraceOptions
from pykueue.client import moments
from pykueue.errors import NegativeResult
from pykueue.history import swf


def run(
    connection: Connection,
    options: TraceOptions,
    changes: Sequence[str],
    gone: Mapping[str, tuple[type, str, str]],
    files: Sequence[str],
    output: str,
) -> None:
    """Compare a trace with and without a change. `gone` are the objects to delete, by the text that named them."""
    with progress() as report:
        report("reading the trace")
        trace = _range(connection, options) if options.is_range else _file(options)
        if options.write_base is not None:
            _write_base(options.write_base, trace)
            return
        base = _base(connection, trace, files, report, is_range=options.is_range)
        changed = _changed(base, trace, changes, gone)
        with _interruptible() as may_go_on, process.rare_garbage_collection():
            found = policy_comparison.compare(
                trace,
                base,
                changed,
                repeat=options.repeat,
                processes=replay_processes.processes_for(trace),
                report=report,
                may_go_on=may_go_on,
            )
    if options.report_file is not None:
        options.report_file.write_text(comparison_report.html(found), encoding="utf-8")
    _print(found, output)
    if found.is_interrupted:
        raise click.Abort
    if not found.is_complete:
        raise NegativeResult


def _print(found: PolicyComparison, output: str) -> None:
    if output != "text":
        printing.document(comparison_report.tree(found), output)
        return
    for line in comparison_report.leading(found):
        click.echo(line)
    click.echo(comparison_report.counted(found))
    head, *rows = comparison_report.table(found)
    printing.table(head, rows)
    for line in comparison_report.following(found):
        click.echo(line)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """A function that returns False after Ctrl-C; a second Ctrl-C ends the program at once."""
    interrupted = False

    def note(*_: Any) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: not interrupted
    finally:
        signal.signal(signal.SIGINT, before)


# --- The trace --------------------------------------------------------------------------------------------------------


def _file(options: TraceOptions) -> Trace:
    path = Path(options.trace)
    try:
        with path.open("rb") as file:
            data = file.read(swf.BYTES + 1)
    except OSError as error:
        raise UsageError(f"--trace {path}: {error.strerror or error}") from None
    text = swf.decode(data, f"--trace {path}")
    names = _names(path.with_name(f"{path.name}.names.json"))
    mapping = SwfMapping(per_processor=traces.per_processor(options.per_processor), names=names)
    return traces.of_swf(swf.read(text, str(path), leave_out=options.ignore_bad_lines), str(path), mapping)


def _names(path: Path) -> dict[str, list[str]]:
    """The names behind the numbers of a trace file, by column; none if there is no such file beside it."""
    try:
        return msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8), type=dict[str, list[str]])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{path}: is not an object of lists of names: {error}") from None


def _range(connection: Connection, options: TraceOptions) -> Trace:
    now = SystemClock().now() // SECOND
    first, _, last = options.trace.partition("..")
    begin = moments.moment(first, "--trace", now)
    end = min(now, moments.moment(last, "--trace", now) if last else now)
    if begin >= end:
        raise UsageError(f"--trace {options.trace}: the time range is empty")
    found, since = past_records.between(connection, options.history, begin, end)
    span = f"{format_time(begin * SECOND)} to {format_time(end * SECOND)}"
    if since is None:
        raise UsageError(f"--trace {options.trace}: the history is empty")
    if since > begin:
        raise UsageError(f"--trace {options.trace}: the history begins at {format_time(since * SECOND)}")
    trace = traces.of_records(found, begin, end, f"the history from {span}")
    if not trace.jobs:
        raise UsageError(f"--trace {options.trace}: the history has no job from {span}")
    return trace


def _write_base(path: Path, trace: Trace) -> None:
    shown = []
    for thing in trace.objects:
        row = registry.ALL.of(type(thing))
        tree = codec.to_tree(thing)
        shown.append(kubectl_yaml.dump({"apiVersion": row.api_version, "kind": row.kind, **tree}))
    path.write_text("---\n".join(shown), encoding="utf-8")
    click.echo(f"wrote {wording.counted(len(shown), 'object')} to {path}")


# --- The objects ------------------------------------------------------------------------------------------------------


def _base(
    connection: Connection, trace: Trace, files: Sequence[str], report: Callable[[str], None], *, is_range: bool
) -> Case:
    """The objects without the change: those of --in, of the file, or of the server."""
    if files:
        case = read(files)
        print_ignored_and_unknown(case)
    elif is_range:
        case = connection.talk(lambda client, _: live_case.case(client, report=report))
        print_notices(case)
    else:
        return planner.read(()).with_objects(trace.objects)
    objects = [thing for thing in case.objects if not isinstance(thing, kueue.Workload)]
    return case.with_objects(objects if is_range else traces.with_queues(trace, objects, trace.source))


def _changed(
    base: Case,
    trace: Trace,
    changes: Sequence[str],
    gone: Mapping[str, tuple[type, str, str]],
) -> Case:
    change = read(changes, is_change=True) if changes else planner.read(())
    print_ignored_and_unknown(change)
    there = indexed(base.objects)
    for text, named in gone.items():
        if named not in there:
            raise UsageError(f"--delete {text}: not found")
    own = [thing for thing in change.objects if not isinstance(thing, kueue.Workload)]
    if change.jobs or len(own) < len(change.objects):
        click.echo("note: jobs and Workloads of the change are ignored: the jobs are those of the trace", err=True)
    change = replace(change.with_objects(own), jobs=())
    return whatif.changed_by(base, change, list(gone.values()), trace.begin * SECOND)
