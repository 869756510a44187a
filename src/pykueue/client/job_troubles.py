"""The troubles of jobs as their manager found them, read from the API `views.pykueue.io`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from pykueue.client import job_history
from pykueue.client.job_history import HistoryRequest, OnNotStored
from pykueue.history import documents
from pykueue.history.columns import local_time
from pykueue.history.documents import WorkloadTrouble, WorkloadTroubleList

if TYPE_CHECKING:
    from pykueue.analysis.explanation import Explanation


async def troubles(client: ApiClient, namespace: str) -> list[WorkloadTrouble]:
    """The troubles of the Workloads of a namespace, or of all. UsageError on a server whose manager reports none."""
    place = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{documents.GROUP}/{documents.VERSION}/{place}{documents.TROUBLES}"
    try:
        answer = await client.request(ApiRequest("GET", path))
    except errors.NotFound:
        raise UsageError("this server reports no troubles: its manager is not pykueue, or it is not running") from None
    return list(codec.decode(answer.body, WorkloadTroubleList).items)


async def past(
    client: ApiClient, wanted: HistoryRequest, on_not_stored: OnNotStored = job_history.ignored
) -> list[WorkloadTrouble]:
    """The troubles that the history has in a time window, in the order in which they were found."""
    tree = await job_history.read(client, documents.TROUBLES, wanted, on_not_stored=on_not_stored)
    return [codec.from_tree(item, WorkloadTrouble) for item in tree["items"]]


async def of_workload(client: ApiClient, key: str) -> list[WorkloadTrouble]:
    """The troubles of one Workload; none if the server reports none to this user."""
    namespace, _, name = key.partition("/")
    try:
        found = await troubles(client, namespace)
    except (UsageError, errors.ApiError):
        return []
    return [each for each in found if each.metadata.name == name]


def with_troubles(answer: Explanation, observed: Iterable[WorkloadTrouble]) -> Explanation:
    """The explanation with the troubles first that the manager observed: they have happened, while a loop that the
    explanation itself warns of is computed."""
    found = warnings(observed)
    return replace(answer, warnings=(*found, *answer.warnings)) if found else answer


def warnings(observed: Iterable[WorkloadTrouble]) -> list[str]:
    """The troubles as warnings of an explanation."""
    return [f"{each.trouble} since {local_time(each.since)}: {each.message}" for each in observed]
