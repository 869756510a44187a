"""Start forecasts, read from a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.fields import Time
from pykueue.history.documents import GROUP, VERSION
from pykueue.projection.documents import FORECAST, ForecastDocument, ForecastItem

# The server takes up to a minute to compute one, and then answers with the reason.
_TIMEOUT_SECONDS: Final = 90.0


# What the server writes before the reason.
NO_FORECAST: Final = "there is no forecast: "
# How many questions in a row may stay without an answer, each for as long as the time above.
_UNANSWERED_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class QueueForecasts:
    """The forecasts of several LocalQueues: those that there are, and why others are missing or old."""

    # By namespace/name of the Workload.
    items: dict[str, ForecastItem] = field(default_factory=dict)
    # By namespace/name of the LocalQueue: why its Workloads have no forecast.
    problems: dict[str, str] = field(default_factory=dict)
    # By namespace/name of the LocalQueue: why its forecasts are older than they should be, and when they were made.
    warnings: dict[str, str] = field(default_factory=dict)


class JobForecast(ForecastItem, frozen=True):
    """When a waiting job is expected to start, and when that was computed. `warning` has the reason if it is outdated,
    and is empty otherwise."""

    made: Time = ""
    warning: str = ""


async def of_job(client: ApiClient, namespace: str, workload: str) -> JobForecast | None:
    """The forecast of the job of a Workload; otherwise as `of_workload`."""
    found = await of_workload(client, namespace, workload)
    if found is None:
        return None
    document, item = found
    return JobForecast(**structs.asdict(item), made=document.made, warning=document.warning)


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
    unanswered = 0
    for namespace, name in sorted(set(queues)):
        local_queue = f"{namespace}/{name}"
        if unanswered >= _UNANSWERED_MAX:
            forecasts.problems[local_queue] = "not asked for: the server has not answered for other LocalQueues"
            continue
        try:
            found = await _read(client, f"namespaces/{namespace}/localqueues/{name}", is_thorough=is_thorough)
        except errors.NoSuchKind:
            forecasts.problems[local_queue] = "the server has no forecasts (feature gate StartForecast)"
            continue
        except errors.NotFound:
            continue  # the message of its Workloads has the reason
        except (errors.KubeError, codec.DecodeError) as error:
            unanswered = unanswered + 1 if isinstance(error, errors.Unanswered | errors.Busy) else 0
            forecasts.problems[local_queue] = str(error).removeprefix(NO_FORECAST)
            continue
        unanswered = 0
        if found.warning:
            forecasts.warnings[local_queue] = f"{found.warning}; made at {found.made}"
        forecasts.items.update((item.workload, item) for item in found.items)
    return forecasts


async def _read(client: ApiClient, path: str, *, is_thorough: bool) -> ForecastDocument:
    query = (("thorough", "1"),) if is_thorough else ()
    address = f"/apis/{GROUP}/{VERSION}/{path}/{FORECAST}"
    request = ApiRequest("GET", address, query, timeout_seconds=_TIMEOUT_SECONDS)
    answer = await client.request(request, repeats=False)
    return codec.decode(answer.body, ForecastDocument)
