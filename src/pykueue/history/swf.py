"""The Standard Workload Format 2.2: one line of 18 numbers for each job, as simulators of schedulers read it.

    1 number           5 processors given     9 limit            13 namespace       17 −1
    2 submitted        6 −1                  10 memory, KB each   14 name            18 −1
    3 waited           7 −1                  11 status            15 LocalQueue
    4 ran              8 processors asked    12 user              16 ClusterQueue

Names are numbers in the file; `names` has them by column. A number that is not known is −1. Waiting is until the first
start, and running is that of the last attempt: the format has no evictions.

Files of other programs are read too: more than 18 fields are allowed, and the further ones are ignored; lines that
begin with `;` are comments, and those of the form `; MaxProcs: 128` are the header.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubemachinery import quantity
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, parse_time
from pykueue.history.documents import JobRecord
from pykueue.history.learning import name_shape

_STATUS: Final = {"Succeeded": 1, "Failed": 0, "Cancelled": 5}
_FIELDS: Final = 18
_UNKNOWN: Final = -1
_DIGITS: Final = 18


class SwfTrace(msgspec.Struct, frozen=True):
    """A file in the format, and the names behind its numbers by column."""

    text: str
    names: dict[str, list[str]]

    @property
    def names_text(self) -> str:
        return json.dumps(self.names, indent=2, ensure_ascii=False) + "\n"


class SwfJob(msgspec.Struct, frozen=True):
    """One line of a file; −1 is unknown."""

    number: int
    submitted: int
    waited: int
    ran: int
    processors: int
    requested_processors: int
    limit: int
    memory_kb: int
    status: int
    user: int
    group: int
    executable: int
    queue: int
    partition: int


class SwfFile(msgspec.Struct, frozen=True):
    """A file as it was read: its jobs, its header, and the lines that were left out with the reason."""

    jobs: tuple[SwfJob, ...]
    header: Mapping[str, str]
    left_out: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        """A positive number of the header, such as `MaxProcs`; None without one."""
        text = self.header.get(name, "").split(" ")[0]
        if not (text.isascii() and text.isdecimal()):
            return None
        # Python converts no text of thousands of digits. Any number of so many digits is beyond every bound.
        return (int(text) if len(text) <= _DIGITS else 10**_DIGITS) or None


class _Numbers:
    """Numbers for names, from 1."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        if not name:
            return _UNKNOWN
        if name not in self._known:
            self.names.append(name)
            self._known[name] = len(self.names)
        return self._known[name]


def trace(records: Iterable[JobRecord], processor: str = "") -> SwfTrace:
    """The records that have ended, by submission. `processor` is the resource that counts as processors."""
    rows = sorted(
        (record for record in records if record.ended is not None and record.submitted is not None),
        key=lambda record: (record.submitted or "", record.metadata.name),
    )
    first = _seconds(rows[0].submitted) if rows else 0
    numbers = {column: _Numbers() for column in ("user", "namespace", "name", "queue", "clusterqueue")}
    if processor and not any(processor in record.requests for record in rows):
        raise UsageError(f"--swf-processor {processor}: no job requests it")
    lines = [_line(number, record, first, processor, numbers) for number, record in enumerate(rows, start=1)]
    written = read("\n".join(lines), "history", leave_out=True).jobs
    head = [
        "; Version: 2.2",
        "; Computer: Kubernetes, queued by pykueue",
        f"; UnixStartTime: {first}",
        "; TimeZoneString: UTC",
        f"; MaxJobs: {len(lines)}",
        # Not the largest job: who replays the file takes this number as the size of the machine.
        f"; MaxProcs: {most_used(written)}",
        *(f"; Queue: {place} {name}" for place, name in enumerate(numbers["queue"].names, start=1)),
    ]
    return SwfTrace("\n".join([*head, *lines]) + "\n", {name: found.names for name, found in numbers.items()})


def _line(number: int, record: JobRecord, first: int, processor: str, numbers: dict[str, _Numbers]) -> str:
    submitted = _seconds(record.submitted)
    waited = _seconds(record.started) - submitted if record.started else _UNKNOWN
    chosen = processor or _processor(record.requests)
    asked = _rounded(record.requests.get(chosen, "0"))
    memory = quantity.parse(record.requests.get("memory", "0")).rounded(0) // 1024
    fields = [
        number,
        submitted - first,
        max(waited, _UNKNOWN),
        _last_run(record),
        _given(record, chosen, asked),
        _UNKNOWN,
        _UNKNOWN,
        asked,
        record.limit_seconds or _UNKNOWN,
        memory // asked if memory and asked > 0 else _UNKNOWN,
        _STATUS.get(record.state, _UNKNOWN),
        numbers["user"].of(record.user),
        numbers["namespace"].of(record.metadata.namespace),
        numbers["name"].of(name_shape(record.job)),
        numbers["queue"].of(record.queue),
        numbers["clusterqueue"].of(record.cluster_queue),
        _UNKNOWN,
        _UNKNOWN,
    ]
    return " ".join(map(str, fields))


def _last_run(record: JobRecord) -> int:
    ran = [a for a in record.attempts if a.admitted is not None and a.released is not None]
    return _seconds(ran[-1].released) - _seconds(ran[-1].admitted) if ran else _UNKNOWN


def _processor(requests: dict[str, str]) -> str:
    """What counts as a processor of a job: its first accelerator, or cpu."""
    return min((name for name in requests if "/" in name), default="cpu")


def _given(record: JobRecord, processor: str, asked: int) -> int:
    """The processors of the last attempt when it was admitted: fewer than asked for, if the job was admitted partly."""
    ran = [each for each in record.attempts if each.admitted is not None]
    if not ran:
        return 0
    amounts = [each.amount for each in ran[-1].usage if each.start == ran[-1].admitted and each.resource == processor]
    # Quota does not count every resource.
    return sum(map(_rounded, amounts)) if amounts else asked


def _rounded(amount: str) -> int:
    return quantity.parse(amount).rounded(0)


def _seconds(text: str | None) -> int:
    return parse_time(text) // SECOND if text else 0


# --- Reading ----------------------------------------------------------------------------------------------------------

# The latest time and the longest run that are taken for one: about 2,100 years. A submission counts from the start of
# the trace, which has the same bound; so all of them are in years of four digits, which times of the API have.
LONGEST: Final = 2**36
# The most processors that a job can have: a processor is a pod, and their count is a number of 32 bits.
MOST: Final = 2**31 - 1


# The largest file that is read, and the largest text of a compressed one.
BYTES: Final = 512 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
# The first bytes of files that are not read, and what they are.
_OTHERS: Final = {
    b"\xfd7zXZ\x00": "compressed by xz",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x00\x00\xfe\xff": "UTF-32 text",
}


def decode(data: bytes, source: str, limit: int = BYTES) -> str:
    """The text of a file: UTF-8, with or without a byte order mark, and as it is or compressed by gzip, whatever the
    name of the file. Comments in other encodings of one byte are accepted; numbers are ASCII in all of them."""
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(limit + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{source}: is a damaged gzip file: {error}") from None
    if len(data) > limit:
        raise UsageError(f"{source}: has more than {limit // 2**20} MiB")
    for start, what in _OTHERS.items():
        if data.startswith(start):
            raise UsageError(f"{source}: is {what}; a trace is UTF-8 text, as it is or compressed by gzip")
    if b"\x00" in data:
        raise UsageError(f"{source}: contains NUL bytes; a trace is UTF-8 text, as it is or compressed by gzip")
    return data.decode("utf-8-sig", errors="replace")


# Not `splitlines`: it also ends lines at control characters, which comments may contain.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# `float` also accepts `1_000`, digits of other scripts and `infinity`, which are no numbers of the format.
_OF_NUMBERS: Final = frozenset("0123456789+-.eE")


def read(text: str, source: str, *, leave_out: bool = False) -> SwfFile:
    """The jobs and the header of a file.

    Raises UsageError with the number and the reason of the first line that is no job. With `leave_out` such lines are
    left out, and reported in the result.
    """
    jobs, header, bad = [], dict[str, str](), []
    for place, line in enumerate(_LINE_END.split(text), start=1):
        if not line.strip():
            continue
        if line.lstrip().startswith(";"):
            name, colon, value = line.lstrip("; \t").partition(":")
            if colon and name not in header:
                header[name.strip()] = value.strip()
            continue
        found = _job(line.split())
        if isinstance(found, SwfJob):
            jobs.append(found)
        elif leave_out:
            bad.append(f"line {place}: {found}")
        else:
            raise UsageError(f"{source}, line {place}: {found}")
    return SwfFile(tuple(jobs), header, tuple(bad))


def most_used(jobs: Iterable[SwfJob]) -> int:
    """The most processors that were in use at a time; at least those of the largest job that ran, and 1."""
    changes: dict[int, int] = {}
    largest = 1
    for job in jobs:
        if job.ran < 0:
            continue
        largest = max(largest, job.processors, job.requested_processors)
        begin = job.submitted + max(job.waited, 0)
        # A job that ended in the second in which it started is in use for that second.
        end = begin + max(job.ran, 1)
        changes[begin] = changes.get(begin, 0) + max(job.processors, 0)
        changes[end] = changes.get(end, 0) - max(job.processors, 0)
    used = most = 0
    for moment in sorted(changes):
        used += changes[moment]
        most = max(most, used)
    return max(most, largest)


def _job(fields: Sequence[str]) -> SwfJob | str:
    """The job of a line, or why it is none."""
    if len(fields) < _FIELDS:
        return f"has {len(fields)} fields; a job of the Standard Workload Format has {_FIELDS}"
    texts = fields[:_FIELDS]
    if not _OF_NUMBERS.issuperset("".join(texts)):
        return "a field is no number"
    try:
        # Some traces write fractions of seconds.
        values = [int(text) if text.isdecimal() and len(text) <= _DIGITS else int(float(text)) for text in texts]
    except (ValueError, OverflowError):
        return "a field is no number"
    found = SwfJob(*(values[field - 1] for field in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16)))
    if found.submitted < 0:
        return "the time of submission is negative"
    for name, seconds in (("waiting", found.waited), ("run", found.ran)):
        if seconds < _UNKNOWN:
            return f"the {name} time is negative"
    if max(found.submitted, found.waited, found.ran, found.limit) > LONGEST:
        return f"a time is longer than {LONGEST} s"
    if max(found.processors, found.requested_processors) > MOST:
        return f"a number of processors is larger than {MOST}"
    return found
