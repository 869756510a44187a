"""Start forecasts, read from a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from pykueue.errors import NegativeResult
from pykueue.history.documents import GROUP, VERSION
from pykueue.projection.documents import FORECAST, ForecastDocument, ForecastItem

# The server takes up to a minute to compute one, and then answers with the reason.
_TIMEOUT_SECONDS: Final = 90.0


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
) -> dict[str, ForecastItem]:
    """The forecasts of the pending Workloads of LocalQueues, given as namespace and name, by namespace/name of the
    Workload. Raises NegativeResult with the reason if the server has none."""
    items: dict[str, ForecastItem] = {}
    for namespace, name in sorted(set(queues)):
        try:
            found = await _read(client, f"namespaces/{namespace}/localqueues/{name}", is_thorough=is_thorough)
        except errors.NotFound:
            continue
        except errors.ApiError as error:
            raise NegativeResult(f"the server has no forecast of LocalQueue {namespace}/{name}: {error}") from None
        items.update((item.workload, item) for item in found.items)
    return items


async def _read(client: ApiClient, path: str, *, is_thorough: bool) -> ForecastDocument:
    query = (("thorough", "1"),) if is_thorough else ()
    address = f"/apis/{GROUP}/{VERSION}/{path}/{FORECAST}"
    answer = await client.request(ApiRequest("GET", address, query, timeout_seconds=_TIMEOUT_SECONDS))
    return codec.decode(answer.body, ForecastDocument)
