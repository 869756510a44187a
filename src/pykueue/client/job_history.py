"""The history of jobs, read from the API `views.pykueue.io`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, format_time
from pykueue.history import documents
from pykueue.history.documents import JobRecord, RunTimeEstimate, UsageItem, WaitingItem
from pykueue.history.records import Seconds

_PAGE: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """Which records are wanted; empty fields match all."""

    namespace: str = ""
    since: Seconds | None = None
    until: Seconds | None = None
    user: str = ""
    queue: str = ""
    cluster_queue: str = ""
    name: str = ""
    states: Iterable[str] = ()
    evicted: bool = False
    flavor: str = ""
    # RESOURCE=QUANTITY
    larger_than: Iterable[str] = ()
    # Usage and waiting only: what to group by.
    by: str = ""

    def query(self) -> list[tuple[str, str]]:
        """The parameters of the request."""
        single = {
            "since": "" if self.since is None else format_time(self.since * SECOND),
            "until": "" if self.until is None else format_time(self.until * SECOND),
            "user": self.user,
            "queue": self.queue,
            "clusterQueue": self.cluster_queue,
            "name": self.name,
            "evicted": "true" if self.evicted else "",
            "flavor": self.flavor,
            "by": self.by,
        }
        several = [*(("state", state) for state in self.states), *(("largerThan", text) for text in self.larger_than)]
        return [*((name, value) for name, value in single.items() if value), *several]


# Called with the number of records that an answer lacks because they could not be stored yet, if there are any.
OnNotStored: TypeAlias = Callable[[int], None]


def ignored(count: int) -> None:
    """For callers that do not need the number."""


class JobRecords(list[JobRecord]):
    """Records of jobs. `not_stored` is how many are missing, or are in an older state, because the history cannot be
    written; 0 as a rule."""

    not_stored = 0


async def records(
    client: ApiClient, wanted: HistoryRequest, *, limit: int | None = None, on_not_stored: OnNotStored = ignored
) -> AsyncIterator[JobRecord]:
    """The records that match, page by page, in the order in which they were first recorded; at most `limit`."""
    after = ""
    while True:
        page = [("limit", str(limit or _PAGE)), *([("continue", after)] if after else [])]
        tree = await read(client, documents.RECORDS, wanted, page, on_not_stored=ignored if after else on_not_stored)
        for item in tree["items"]:
            yield codec.from_tree(item, JobRecord)
        after = tree["metadata"].get("continue", "")
        if not after or limit is not None:
            return


async def usage(client: ApiClient, wanted: HistoryRequest, on_not_stored: OnNotStored = ignored) -> list[UsageItem]:
    """Admitted quota times seconds, by group and resource."""
    tree = await read(client, documents.USAGE, wanted, on_not_stored=on_not_stored)
    return [codec.from_tree(item, UsageItem) for item in tree["items"]]


async def waiting(client: ApiClient, wanted: HistoryRequest, on_not_stored: OnNotStored = ignored) -> list[WaitingItem]:
    """The time from submission to the first admission, by group."""
    tree = await read(client, documents.WAITING, wanted, on_not_stored=on_not_stored)
    return [codec.from_tree(item, WaitingItem) for item in tree["items"]]


async def run_time(client: ApiClient, namespace: str, workload: str) -> RunTimeEstimate | None:
    """The estimate of the run time of a Workload; None on a server without a history."""
    path = (
        f"/apis/{documents.GROUP}/{documents.VERSION}/namespaces/{namespace}/workloads/{workload}/{documents.RUN_TIME}"
    )
    try:
        answer = await client.request(ApiRequest("GET", path))
    except errors.ApiError:
        return None
    return codec.decode(answer.body, RunTimeEstimate)


async def kept_log(client: ApiClient, namespace: str, job_uid: str, tail: int | None) -> list[dict[str, str]]:
    """The logs of a deleted job by pod and container; none on a server that does not keep them."""
    query = (("job", job_uid), *((("tail", str(tail)),) if tail is not None else ()))
    path = f"/apis/{documents.GROUP}/{documents.VERSION}/namespaces/{namespace}/joblogs"
    try:
        answer = await client.request(ApiRequest("GET", path, query))
    except errors.ApiError:
        return []
    found: list[dict[str, str]] = msgspec.json.decode(answer.body)["items"]
    return found


async def read(
    client: ApiClient,
    resource: str,
    wanted: HistoryRequest,
    more: Iterable[tuple[str, str]] = (),
    *,
    on_not_stored: OnNotStored = ignored,
) -> dict[str, Any]:
    """A list from the history. UsageError on a server without one."""
    # Quoted: with a name that is none, the request would have another path, and the answer would be that there is none.
    place = f"namespaces/{quote(wanted.namespace, safe='')}/" if wanted.namespace else ""
    path = f"/apis/{documents.GROUP}/{documents.VERSION}/{place}{resource}"
    try:
        answer = await client.request(ApiRequest("GET", path, (*wanted.query(), *more)))
    except errors.NotFound:
        raise UsageError(
            "this server has no history: start `pykueue up` without --history off, or `pykueue manager` with --history"
        ) from None
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    if not_stored := found.get("notStored", 0):
        on_not_stored(not_stored)
    return found
