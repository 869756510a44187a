"""The expected start of a pending Workload: the quantiles of its forecast, and its planned start."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kubemachinery.meta import Nanoseconds, format_time
from pykueue.dashboard.workload_table import DisplayState
from pykueue.projection.forecast import StartForecast

Tree = dict[str, Any]

WAITING: Final = frozenset((DisplayState.PENDING, DisplayState.EVICTED))
# Of how many ClusterQueues one list asks for forecasts: each may be a scheduling scope of its own.
ASKED_MAX: Final = 4


class ForecastSource(Protocol):
    """The forecasts that were made. `revision` rises with each answer."""

    @property
    def revision(self) -> int: ...

    def of_workload(self, key: str, cluster_queue: str) -> StartForecast | None: ...

    def ask_later(self, cluster_queue: str) -> None: ...


def document(found: StartForecast | None, planned: Nanoseconds | None) -> Tree | None:
    """Return when a Workload is expected to start; None if neither a forecast nor a planned start is known."""
    if planned is None and (found is None or found.reason):
        return None
    forecast = found if found is not None and not found.reason else None
    return {
        "p50": _time(forecast.p50 if forecast is not None else None),
        "p90": _time(forecast.p90 if forecast is not None else None),
        "isBeyond": forecast is not None and forecast.p50_is_beyond,  # later than forecasts reach
        "planned": _time(planned),
    }


def _time(at: Nanoseconds | None) -> str | None:
    return None if at is None else format_time(at)
