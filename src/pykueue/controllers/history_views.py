"""The API `views.pykueue.io`: the history of Workloads, their usage and their waiting, read from the store.

    workloads/runtime the estimate of the run time of one Workload
    workloadrecords   one record for each Workload, in pages
    usage             admitted quota times seconds, by group
    waiting           quantiles of the time until the first admission, by group

Each is a list, of one namespace or of all: a user with permission for one namespace sees that one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias, TypeVar

from kubemachinery import codec, meta, status
from kubemachinery.clock import Clock
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND
from kubemachinery.serving.views import CollectionView, SubresourceView, VirtualResource
from kubemachinery.turns import in_turns
from kubemachinery.unstructured import Tree
from pykueue.api import schema
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.controllers.informers import Informers
from pykueue.history import documents, queries, records
from pykueue.history.queries import NO_END, RecordFilter
from pykueue.history.records import Seconds
from pykueue.history.store import HistoryStore, HistoryStoreError

T = TypeVar("T")
Parameters: TypeAlias = Mapping[str, tuple[str, ...]]

LIMIT: Final = 1_000
LIMIT_MAX: Final = 10_000
# How many records are read before other questions, and records that are to be stored, have their turn. The pods and the
# requests of a record are not columns: where a filter is about them, each record is read.
READ_TOGETHER: Final = 5_000

_WINDOW: Final = {
    "since": "The start of the time window, in RFC 3339.",
    "until": "The end of the time window, in RFC 3339.",
    "user": "Only of this user.",
    "queue": "Only of this LocalQueue.",
    "clusterQueue": "Only of this ClusterQueue.",
}
_RECORD_PARAMETERS: Final = {
    **_WINDOW,
    "name": "Only jobs or Workloads with such a name; * and ? match any characters.",
    "state": "Only in this state; may be repeated.",
    "evicted": "With true, only those that were evicted.",
    "flavor": "Only those that had quota of this ResourceFlavor.",
    "largerThan": "Only those that request more, as RESOURCE=QUANTITY; may be repeated.",
    "limit": f"The size of a page; {LIMIT} by default, {LIMIT_MAX} at most.",
    "continue": "The token of the page before.",
}


class _Lists:
    def __init__(self, recorder: HistoryRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock

    async def records(self, namespace: str, given: Parameters) -> Tree:
        with as_bad_request():
            wanted = record_filter(namespace, given)
            limit = _number(given, "limit", LIMIT, LIMIT_MAX)
            begin = documents.after(given["continue"][0]) if given.get("continue", ("",))[0] else 0
            if begin is None:
                raise UsageError("continue: is not the token of a page")
        items: list[Tree] = []
        after, now = begin, self._now()
        while True:
            # Reading does not keep the store from being written for long, nor the loop from continuing.
            question = partial(
                HistoryStore.select, wanted=wanted, after=after, limit=limit - len(items), most_read=READ_TOGETHER
            )
            found, after = await self._ask(question)
            items += [documents.record_item(record, now) async for record in in_turns(found)]
            if not after or len(items) == limit:
                return documents.record_list(items, after, self._recorder.not_stored)

    async def usage(self, namespace: str, given: Parameters) -> Tree:
        with as_bad_request():
            wanted, by = record_filter(namespace, given), queries.groups(_first(given, "by"), queries.GROUPS)
        now = self._now()
        totals = await self._ask(lambda store: store.usage(wanted, now))
        return documents.usage_list(queries.grouped(totals, by), by, self._recorder.not_stored)

    async def waiting(self, namespace: str, given: Parameters) -> Tree:
        with as_bad_request():
            wanted, by = record_filter(namespace, given), queries.groups(_first(given, "by"), queries.WAITING_GROUPS)
        rows = await self._ask(lambda store: store.waiting(wanted, by))
        return documents.waiting_list(rows, by, self._recorder.not_stored)

    async def _ask(self, question: Callable[[HistoryStore], T]) -> T:
        try:
            return await self._recorder.ask(question)
        except HistoryStoreError as error:
            raise status.StatusError(503, "ServiceUnavailable", f"the history cannot be read: {error}") from None

    def _now(self) -> Seconds:
        return self._clock.now() // SECOND


def rows(recorder: HistoryRecorder | None, informers: Informers, clock: Clock) -> tuple[VirtualResource, ...]:
    """Return the resources; none without a history."""
    if recorder is None:
        return ()
    lists = _Lists(recorder, clock)

    def run_time(namespace: str, name: str, _: Mapping[str, int]) -> Tree:
        workload = informers.workloads.get(name, namespace)
        if workload is None:
            raise status.not_found(documents.GROUP, "workloads", name)
        record, elapsed = recorder.observed(workload)
        estimate, lasted = recorder.run_times.estimate(record), recorder.lasted_seconds(record)
        found = documents.run_time_document(estimate, records.limit_seconds(workload), elapsed, lasted)
        return {"metadata": {"name": name, "namespace": namespace}, **codec.to_tree(found)}

    estimates = SubresourceView(
        kind="RunTimeEstimate", read=run_time, schema=lambda: schema.of_type(documents.RunTimeEstimate)
    )
    by = "Words to group by, separated by commas"
    views = (
        (
            "WorkloadRecord",
            documents.RECORDS,
            CollectionView(
                kind="WorkloadRecordList",
                read=lists.records,
                schema=lambda: schema.of_type(documents.JobRecordList),
                parameters=_RECORD_PARAMETERS,
            ),
        ),
        (
            "Usage",
            documents.USAGE,
            CollectionView(
                kind="UsageList",
                read=lists.usage,
                schema=lambda: schema.of_type(documents.UsageList),
                parameters={**_WINDOW, "by": f"{by}: {', '.join(queries.GROUPS)}."},
            ),
        ),
        (
            "Waiting",
            documents.WAITING,
            CollectionView(
                kind="WaitingList",
                read=lists.waiting,
                schema=lambda: schema.of_type(documents.WaitingList),
                parameters={**_WINDOW, "by": f"{by}: {', '.join(queries.WAITING_GROUPS)}."},
            ),
        ),
    )
    workloads = VirtualResource(
        group=documents.GROUP,
        version=documents.VERSION,
        kind="Workload",
        plural="workloads",
        views={documents.RUN_TIME: estimates},
    )
    return workloads, *(
        VirtualResource(group=documents.GROUP, version=documents.VERSION, kind=kind, plural=plural, collection=view)
        for kind, plural, view in views
    )


# --- Parameters -------------------------------------------------------------------------------------------------------


@contextmanager
def as_bad_request() -> Iterator[None]:
    """Raise a usage error as the answer 400."""
    try:
        yield
    except UsageError as error:
        raise status.bad_request(str(error)) from None


def record_filter(namespace: str, given: Parameters) -> RecordFilter:
    since, until = _moment(given, "since", 0), _moment(given, "until", NO_END)
    if until < since and _first(given, "since"):
        raise UsageError(f"until {_first(given, 'until')}: is before since {_first(given, 'since')}")
    return RecordFilter(
        since=since,
        until=until,
        namespace=namespace,
        user=_first(given, "user"),
        queue=_first(given, "queue"),
        cluster_queue=_first(given, "clusterQueue"),
        name=_first(given, "name"),
        states=queries.states(given.get("state", ())),
        evicted=_truth(given, "evicted"),
        flavor=_first(given, "flavor"),
        larger_than=queries.larger_than(given.get("largerThan", ())),
    )


def _first(given: Parameters, name: str) -> str:
    return given.get(name, ("",))[0]


def _truth(given: Parameters, name: str) -> bool:
    text = _first(given, name).lower()
    if text not in ("", "true", "false"):
        raise UsageError(f"{name} {text[:100]}: must be true or false")
    return text == "true"


def _moment(given: Parameters, name: str, otherwise: Seconds) -> Seconds:
    text = _first(given, name)
    if not text:
        return otherwise
    try:
        return meta.parse_time(text) // SECOND
    except meta.TimeError as error:
        raise UsageError(f"{name} {text[:100]}: {error}") from None


def _number(given: Parameters, name: str, otherwise: int, most: int) -> int:
    text = _first(given, name) or str(otherwise)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{name} {text[:100]}: must be a whole number")
    return min(int(text), most) or otherwise
