"""`pykueue history`: which jobs ran, when, and who submitted them; also after they are deleted."""

from __future__ import annotations

import csv
import importlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from kubemachinery.errors import UsageError
from pykueue import wording
from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects_but
from pykueue.errors import NegativeResult

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.client.job_history import HistoryRequest
    from pykueue.history.columns import RecordColumn
    from pykueue.history.documents import JobRecord
    from pykueue.history.store import HistoryStore

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])

FORMATS: Final = ("table", "wide", "json", "csv", "swf", "parquet")


def _moment(context: click.Context, option: click.Parameter, text: str) -> int | None:
    from kubemachinery.clock import SystemClock
    from kubemachinery.meta import SECOND
    from pykueue.client import moments

    return moments.moment(text, option.opts[0], SystemClock().now() // SECOND) if text else None


def window_options(command: CommandFunction) -> CommandFunction:
    """Add the options that history and report share: the time window, user, queues and namespaces."""
    times = "A date, a weekday, today, yesterday, 14:30, -30d or RFC 3339."
    options = (
        click.option("--since", default="", callback=_moment, help=f"The start of the time window. {times}"),
        click.option("--until", default="", callback=_moment, help="The end of the time window."),
        click.option("--user", default="", help="Only jobs that this user submitted."),
        click.option(
            "-q",
            "--queue",
            default="",
            shell_complete=completion_candidates.objects("localqueue"),
            help="Only jobs of this LocalQueue.",
        ),
        click.option(
            "-c",
            "--clusterqueue",
            "cluster_queue",
            default="",
            shell_complete=completion_candidates.objects("clusterqueue"),
            help="Only jobs that last had quota of this ClusterQueue.",
        ),
        click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces."),
    )
    found: Any = command
    for option in reversed(options):
        found = option(found)
    return cast("CommandFunction", found)


@click.group("history", cls=flags.DefaultGroup, default="list")
def command() -> None:
    """Show the history of jobs, also of deleted ones."""


@command.command("list", cls=flags.Command)
@window_options
@click.option("--name", default="", help="Only jobs with such a name; * and ? match any characters.")
@click.option("--state", "states", multiple=True, help="Only in this state, such as Failed; may be repeated.")
@click.option("--evicted", is_flag=True, help="Only jobs that were evicted.")
@click.option("--flavor", default="", help="Only jobs that had quota of this ResourceFlavor.")
@click.option(
    "--larger-than",
    multiple=True,
    metavar="RESOURCE=QUANTITY",
    help="Only jobs that request more, such as nvidia.com/gpu=8; may be repeated.",
)
@click.option("--sort", default="submitted", show_default=True, help="Columns to sort by; -COLUMN for descending.")
@click.option("--format", "columns", default="", help="Columns to show, separated by commas; help lists them.")
@click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write into this file. -o parquet needs it; -o swf writes the names behind its numbers beside it.",
)
@click.option(
    "--swf-processor",
    default="",
    help="With -o swf: the resource that counts as processors (default: the first accelerator, else cpu).",
)
@connects_but("user")
def list_records(
    connection: Connection,
    all_namespaces: bool,
    sort: str,
    columns: str,
    output: str,
    file: Path | None,
    swf_processor: str,
    **filters: Any,
) -> None:
    """List jobs that ran, run or wait in a time window, also deleted ones.

    \b
    pykueue history --since monday --user ana
    pykueue history --since -30d --state Failed -o csv
    """
    from pykueue.history import columns as table

    if columns == "help":
        printing.table(["COLUMN", "MEANING"], ([name, each.meaning] for name, each in table.COLUMNS.items()))
        return
    if columns and output in ("json", "swf"):
        raise UsageError(f"--format chooses the columns of a table; it cannot be combined with -o {output}")
    if swf_processor and output != "swf":
        raise UsageError("--swf-processor needs -o swf")
    if output == "parquet" and not columns:
        columns = ",".join(table.COLUMNS)
    chosen = table.chosen(columns, wide=output == "wide")
    keys = table.sort_keys(sort)
    found = connection.talk(_reading(filters, all_namespaces=all_namespaces))
    if not found:
        raise NegativeResult("no job matches")
    rows = table.sorted_by(found, keys)
    if all_namespaces and not columns:
        chosen = {"namespace": table.COLUMNS["namespace"], **chosen}
    _print(rows, chosen, output, file, swf_processor)


def _reading(filters: Mapping[str, Any], *, all_namespaces: bool) -> Callable[[ApiClient, str], Any]:
    async def read(client: ApiClient, namespace: str) -> list[JobRecord]:
        from pykueue.client import job_history

        wanted = request(filters, "" if all_namespaces else namespace)
        return [record async for record in job_history.records(client, wanted, on_not_stored=warn_not_stored)]

    return read


def warn_not_stored(count: int) -> None:
    """Print that an answer of the history is not complete."""
    lacks = "record is not stored yet, and is", "records are not stored yet, and are"
    click.echo(f"{wording.counted(count, *lacks)} missing or older here: the history cannot be written", err=True)


def request(filters: Mapping[str, Any], namespace: str) -> HistoryRequest:
    from pykueue.client.job_history import HistoryRequest

    return HistoryRequest(namespace=namespace, **filters)


def _print(
    rows: Sequence[JobRecord],
    chosen: Mapping[str, RecordColumn],
    output: str,
    file: Path | None,
    swf_processor: str,
) -> None:
    from pykueue.history import swf

    match output:
        case "table" | "wide":
            head = [name.replace("_", "-").upper() for name in chosen]
            cells = ([column.cell(row) for column in chosen.values()] for row in rows)
            if file is None:
                printing.table(head, cells)
            else:
                _write(file, printing.plain_table(head, cells))
        case "json":
            from kubemachinery import codec

            _write(file, _json([codec.to_tree(row) for row in rows]))
        case "csv":
            given = chosen.items()
            values = ({name: column.value(row) for name, column in given} for row in rows)
            _write(file, csv_text(list(chosen), values))
        case "swf":
            trace = swf.trace(rows, swf_processor)
            if left_out := sum(row.ended is None for row in rows):
                click.echo(f"left out {wording.counted(left_out, 'job')} without an end", err=True)
            _write(file, trace.text)
            if file is not None:
                file.with_name(f"{file.name}.names.json").write_text(trace.names_text, encoding="utf-8")
        case "parquet":
            if file is None:
                raise UsageError("-o parquet: name a file with --to")
            write_parquet(file, [{name: column.value(row) for name, column in chosen.items()} for row in rows])


def _json(items: list[dict[str, Any]]) -> str:
    import json

    return json.dumps(printing.listed(items), indent=2, ensure_ascii=False) + "\n"


def csv_text(head: Sequence[str], rows: Any) -> str:
    """Rows as CSV, with a head."""
    text = io.StringIO()
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    """The value; with an apostrophe before it if it is a text that spreadsheets would compute, such as the name of a
    user `=HYPERLINK(…)`."""
    if not isinstance(value, str) or len(value) < 2 or value[0] not in "=+-@\t\r":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


_WHOLE: Final = frozenset({"waited", "ran", "exit", "evicted", "pods", "priority", "limit", "expected"})
_FRACTIONS: Final = frozenset({"gpu_hours", "cpu_hours"})


def column_type(name: str) -> type:
    """The type of the values of a column."""
    return int if name in _WHOLE else float if name in _FRACTIONS else str


def write_parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as Parquet, if pyarrow is installed."""
    try:
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("-o parquet needs pyarrow: pip install 'pykueue[parquet]'") from None
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    # Given, and not read from the rows: a column without a value would have no type, and files could not be joined.
    schema = pyarrow.schema([(name, types[column_type(name)]) for name in (rows[0] if rows else {})])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), file)


def _write(file: Path | None, text: str) -> None:
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")


# --- The file ---------------------------------------------------------------------------------------------------------

FILE = click.option(
    "--file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    default=None,
    help="The history (default: history.db in the data directory of `pykueue up`).",
)


@contextmanager
def _opened(file: Path | None) -> Iterator[HistoryStore]:
    """The history of a server that does not run: one file has one writer."""
    from pykueue import paths
    from pykueue.history.store import HistoryStore

    path = file or paths.data() / "history.db"
    if not path.exists():
        raise UsageError(f"{path}: does not exist")
    store = HistoryStore(path)
    try:
        yield store
    finally:
        store.close()


@command.command("check")
@FILE
def check(file: Path | None) -> None:
    """Compare usage by day with the records, while no server uses the file."""
    with _opened(file) as store:
        found, count = store.ask(lambda one: (one.check(), one.count()))
    if found:
        raise NegativeResult("\n".join(found))
    click.echo(f"{wording.counted(count, 'record')}; usage by day equals their sum")


@command.command("purge")
@FILE
@click.option("--user", required=True, help="The user whose name is replaced.")
def purge(file: Path | None, user: str) -> None:
    """Replace the name of a user by a hash of it, while no server uses the file. Usage by day is kept."""
    if not user:
        raise UsageError("--user: the name is empty")
    with _opened(file) as store:
        count, days = store.ask(lambda one: one.anonymize(user))
    if not count and not days:
        raise NegativeResult(f"no record names the user {user}")
    usage = "" if count else " and in usage by day"
    click.echo(f"replaced the name in {wording.counted(count, 'record')}{usage}")
