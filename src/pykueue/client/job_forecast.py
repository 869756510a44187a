"""Start forecasts, read from a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from pykueue.history.documents import GROUP, VERSION
from pykueue.projection.documents import FORECAST, ForecastDocument, ForecastItem

# The server takes up to a minute to compute one, and then answers with the reason.
_TIMEOUT_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class QueueForecasts:
    """The forecasts of several LocalQueues: those that there are, and why others are missing."""

    # By namespace/name of the Workload.
    items: dict[str, ForecastItem] = field(default_factory=dict)
    # By namespace/name of the LocalQueue.
    problems: dict[str, str] = field(default_factory=dict)


async def of_workload(
    client: ApiClient, namespace: str, workload: str, *, is_thorough: bool = False
) -> tuple[ForecastDocument, ForecastItem] | None:
    """The forecast of a pending Workload; None on a server without forecasts, without permission, or if it is not
    pending. Raises KubeError with the reason if it could not be computed."""
    try:
        found = await _read(client, f"namespaces/{namespace}/workloads/{workload}", is_thorough=is_thorough)
    except errors.ApiError as error:
        if error.code >= 500:
            raise
        return None
    return (found, found.items[0]) if found.items else None


async def of_local_queues(
    client: ApiClient, queues: Iterable[tuple[str, str]], *, is_thorough: bool = False
) -> QueueForecasts:
    """The forecasts of the pending Workloads of LocalQueues, given as namespace and name. The failure of one leaves the
    others as they are."""
    forecasts = QueueForecasts()
    for namespace, name in sorted(set(queues)):
        try:
            found = await _read(client, f"namespaces/{namespace}/localqueues/{name}", is_thorough=is_thorough)
        except errors.NotFound:
            continue
        except errors.KubeError as error:
            forecasts.problems[f"{namespace}/{name}"] = str(error)
            continue
        forecasts.items.update((item.workload, item) for item in found.items)
    return forecasts


async def _read(client: ApiClient, path: str, *, is_thorough: bool) -> ForecastDocument:
    query = (("thorough", "1"),) if is_thorough else ()
    address = f"/apis/{GROUP}/{VERSION}/{path}/{FORECAST}"
    answer = await client.request(ApiRequest("GET", address, query, timeout_seconds=_TIMEOUT_SECONDS))
    return codec.decode(answer.body, ForecastDocument)
