"""The columns of `pykueue history`: for people as cells, for programs as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kubemachinery import quantity
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, parse_time
from pykueue.history.documents import JobRecord

_HOUR: Final = 3600
_GPU: Final = "gpu"


class RecordColumn(NamedTuple):
    """A column: what it means, its value, and its cell where that is not the value as text."""

    meaning: str
    value: Callable[[JobRecord], Any]
    shown: Callable[[Any], str] = lambda value: "" if value is None else str(value)

    def cell(self, record: JobRecord) -> str:
        return self.shown(self.value(record))


def duration(seconds: int | None) -> str:
    """`42m`, `5h12m`, `3d4h`: two units at most."""
    if seconds is None:
        return ""
    parts = [
        (seconds // 86_400, "d"),
        (seconds % 86_400 // 3600, "h"),
        (seconds % 3600 // 60, "m"),
        (seconds % 60, "s"),
    ]
    first = next((place for place, (number, _) in enumerate(parts) if number), 3)
    kept = parts[first : first + 2]
    return "".join(f"{number}{unit}" for number, unit in kept if number) or "0s"


def local_time(text: str | None) -> str:
    """A time of the API as month, day and time of day of this machine."""
    if not text:
        return ""
    return datetime.fromtimestamp(parse_time(text) // SECOND, UTC).astimezone().strftime("%m-%d %H:%M")


def _hours(record: JobRecord, wanted: Callable[[str], bool]) -> float:
    found = (text for name, text in record.resource_seconds.items() if wanted(name))
    return sum(quantity.parse(text).milli_value() for text in found) / 1000 / _HOUR


def _is_gpu(resource: str) -> bool:
    return resource.rpartition("/")[2].startswith(_GPU) or resource.endswith(f".{_GPU}")


def _rounded(value: float) -> str:
    return f"{value:.1f}" if value else ""


COLUMNS: Final[Mapping[str, RecordColumn]] = {
    "job": RecordColumn("The name of the job, or of a Workload without one.", lambda r: r.job),
    "namespace": RecordColumn("The namespace.", lambda r: r.metadata.namespace),
    "queue": RecordColumn("The LocalQueue.", lambda r: r.queue),
    "clusterqueue": RecordColumn("The ClusterQueue that last reserved quota.", lambda r: r.cluster_queue),
    "user": RecordColumn("Who submitted the job.", lambda r: r.user),
    "state": RecordColumn("Waiting, Running, Succeeded, Failed, Cancelled, Replaced or Unknown.", lambda r: r.state),
    "submitted": RecordColumn("When the Workload was created.", lambda r: r.submitted, local_time),
    "started": RecordColumn("When it was first admitted.", lambda r: r.started, local_time),
    "ended": RecordColumn("When it ended.", lambda r: r.ended, local_time),
    "waited": RecordColumn("Seconds without admission.", lambda r: r.waited_seconds, duration),
    "ran": RecordColumn("Seconds with admission.", lambda r: r.ran_seconds, duration),
    "exit": RecordColumn("The exit code.", lambda r: r.exit_code),
    "evicted": RecordColumn("How often it was evicted.", lambda r: r.evictions),
    "gpu_hours": RecordColumn("Admitted GPUs times hours.", lambda r: _hours(r, _is_gpu), _rounded),
    "cpu_hours": RecordColumn("Admitted cpu times hours.", lambda r: _hours(r, lambda n: n == "cpu"), _rounded),
    "pods": RecordColumn("The number of pods.", lambda r: r.pods),
    "requests": RecordColumn(
        "The requests of all pods.", lambda r: ", ".join(f"{name} {amount}" for name, amount in r.requests.items())
    ),
    "priority": RecordColumn("The priority.", lambda r: r.priority),
    "class": RecordColumn("The class of the priority.", lambda r: r.priority_class),
    "kind": RecordColumn("The kind of the job.", lambda r: r.job_kind),
    "workload": RecordColumn("The name of the Workload.", lambda r: r.workload),
    "uid": RecordColumn("The UID of the Workload.", lambda r: r.metadata.name),
    "limit": RecordColumn("The limit of the run time, in seconds.", lambda r: r.limit_seconds, duration),
    "expected": RecordColumn("The expected run time, in seconds.", lambda r: r.expected_seconds, duration),
    "why": RecordColumn("Why each attempt ended.", lambda r: ", ".join(a.reason for a in r.attempts if a.reason)),
    "exact": RecordColumn(
        "no: a state is missing, so that a time is a bound, or the clock was set meanwhile.",
        lambda r: "no" if r.inexact else "yes",
    ),
}

_USUAL: Final = (
    "job", "queue", "user", "state", "submitted", "waited", "ran", "exit", "evicted", "gpu_hours", "cpu_hours", "ended",
)  # fmt: skip
_WIDE: Final = (*_USUAL, "started", "clusterqueue", "pods", "requests", "priority", "limit", "workload")


def chosen(text: str, *, wide: bool) -> dict[str, RecordColumn]:
    """The columns of `--format`, or the usual ones."""
    names = [word.strip().lower().replace("-", "_") for word in text.split(",") if word.strip()]
    if text and not names:
        raise UsageError(f"--format {text}: names no column; the columns are {', '.join(COLUMNS)}")
    for name in names:
        _known(name, "--format")
    return {name: COLUMNS[name] for name in names or (_WIDE if wide else _USUAL)}


def _known(name: str, option: str) -> None:
    if name not in COLUMNS:
        raise UsageError(f"{option} {name}: is no column; the columns are {', '.join(COLUMNS)}")


def sort_keys(text: str) -> list[tuple[str, bool]]:
    """The columns of `--sort`, each with whether it is descending."""
    keys = []
    for word in text.split(","):
        name = word.strip().lower().replace("-", "_")
        descending, name = name.startswith("_"), name.removeprefix("_")
        _known(name, "--sort")
        keys.append((name, descending))
    return keys


def sorted_by(records: Iterable[JobRecord], keys: Sequence[tuple[str, bool]]) -> list[JobRecord]:
    """The records by some columns; missing values come first, ties stay in the order in which they were recorded.

    Times have whole seconds, so that two jobs submitted in one second are a tie.
    """
    rows = list(records)
    for name, descending in reversed(keys):
        value = COLUMNS[name].value
        rows.sort(key=lambda record: _comparable(value(record)), reverse=descending)
    return rows


def _comparable(value: Any) -> tuple[bool, Any]:
    return (False, 0) if value is None else (True, value)
