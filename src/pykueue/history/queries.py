"""What is asked of the history: which records, and how usage and waiting are grouped."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kubemachinery import quantity
from kubemachinery.errors import UsageError
from pykueue.core import amounts
from pykueue.history.records import RUNNING, WAITING, Outcome, Seconds, WorkloadRecord
from pykueue.history.rollups import RollupKey

STATES: Final = (WAITING, RUNNING, *(each.value for each in Outcome if each.value))

# The end of a window without one. It is also stored as the end of a record that has none.
NO_END: Final = 2**62


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted; empty fields match all. A record matches a window if a part of its life is in it."""

    since: Seconds = 0
    until: Seconds = NO_END
    namespace: str = ""
    user: str = ""
    queue: str = ""
    cluster_queue: str = ""
    # A pattern such as `train-*` for the name of the job or of the Workload.
    name: str = ""
    states: frozenset[str] = frozenset()
    evicted: bool = False
    flavor: str = ""
    # Resources of which more than an amount is requested.
    larger_than: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def needs_record(self) -> bool:
        """Whether `matches` decides about more than the stored columns do."""
        return bool(self.flavor or self.larger_than)

    def matches(self, record: WorkloadRecord) -> bool:
        """Whether a record matches, in every field."""
        return (
            record.submitted < self.until
            and (record.ended is None or record.ended >= self.since)
            and self.namespace in ("", record.namespace)
            and self.user in ("", record.user)
            and self.queue in ("", record.queue)
            and self.cluster_queue in ("", record.cluster_queue)
            and (not self.name or is_named(self.name, record))
            and (not self.states or record.state in self.states)
            and (not self.evicted or record.evictions > 0)
            and (not self.flavor or self.flavor in flavors(record))
            and all(requested(record).get(name, 0) > least for name, least in self.larger_than.items())
        )


def is_named(pattern: str, record: WorkloadRecord) -> bool:
    return fnmatch.fnmatchcase(record.job, pattern) or fnmatch.fnmatchcase(record.name, pattern)


def flavors(record: WorkloadRecord) -> frozenset[str]:
    """The flavors that a record had quota of."""
    return frozenset(
        flavor for attempt in record.attempts for segment in attempt.segments for flavor, _, _ in segment.amounts
    )


def requested(record: WorkloadRecord) -> dict[str, int]:
    """The requests of all its pods, as amounts."""
    total: dict[str, int] = {}
    for pod_set in msgspec.json.decode(record.shape) if record.shape else ():
        for resource, text in pod_set.get("requests", {}).items():
            amount = amounts.of_request(resource, quantity.parse(text))
            total[resource] = total.get(resource, 0) + amount * pod_set.get("count", 0)
    return total


def larger_than(texts: Iterable[str]) -> dict[str, int]:
    """`RESOURCE=QUANTITY` of `--larger-than`, as amounts."""
    found = {}
    for text in texts:
        resource, equals, value = text.partition("=")
        try:
            if not equals or not resource:
                raise quantity.QuantityError("must be RESOURCE=QUANTITY, such as nvidia.com/gpu=8")
            amount = quantity.parse(value)
            if amount.unscaled < 0:
                raise quantity.QuantityError("must not be negative")
            found[resource] = amounts.of_request(resource, amount)
        except quantity.QuantityError as error:
            raise UsageError(f"larger-than {text}: {error}") from None
    return found


def states(words: Iterable[str]) -> frozenset[str]:
    """The states of `--state`, in any case."""
    known = {state.lower(): state for state in STATES}
    found = set()
    for word in words:
        if word.lower() not in known:
            raise UsageError(f"state {word}: must be one of {', '.join(STATES)}")
        found.add(known[word.lower()])
    return frozenset(found)


# --- Groups -----------------------------------------------------------------------------------------------------------

# The words of `--by`, and what they group usage by.
GROUPS: Final[Mapping[str, Callable[[RollupKey], str | int]]] = {
    "day": lambda key: key.day,
    "namespace": lambda key: key.namespace,
    "queue": lambda key: key.queue,
    "clusterqueue": lambda key: key.cluster_queue,
    "user": lambda key: key.user,
    "flavor": lambda key: key.flavor,
}
# Waiting has no flavor.
WAITING_GROUPS: Final = tuple(name for name in GROUPS if name != "flavor")


def groups(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """The words of `--by`, separated by commas; one that is repeated counts once."""
    found = dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip())
    for word in found:
        if word not in known:
            raise UsageError(f"by {word}: must be of {', '.join(known)}")
    return tuple(found)


class UsageRow(NamedTuple):
    """Charged usage of one resource in one group, as amount times seconds."""

    group: tuple[str | int, ...]
    resource: str
    amount_seconds: int


def grouped(totals: Mapping[RollupKey, int], by: Sequence[str]) -> list[UsageRow]:
    """The sums by group and resource, sorted."""
    found: dict[tuple[tuple[str | int, ...], str], int] = {}
    for key, amount in totals.items():
        place = tuple(GROUPS[word](key) for word in by), key.resource
        found[place] = found.get(place, 0) + amount
    return [UsageRow(group, resource, found[group, resource]) for group, resource in sorted(found)]


class WaitingRow(NamedTuple):
    """The waiting of the Workloads of one group that started: from submission to the first admission, in seconds."""

    group: tuple[str | int, ...]
    started: int
    p50: int
    p90: int
    p99: int
    longest: int
    over_an_hour: int


_HOUR: Final = 3600


def waiting_row(group: tuple[str | int, ...], waited: list[int]) -> WaitingRow:
    """The quantiles of a group: value number ⌈q·n⌉ of the sorted values, without interpolation."""
    values = sorted(waited)

    def quantile(percent: int) -> int:
        return values[max(0, -(-percent * len(values) // 100) - 1)]

    over = sum(value > _HOUR for value in values)
    return WaitingRow(group, len(values), quantile(50), quantile(90), quantile(99), values[-1], over)
