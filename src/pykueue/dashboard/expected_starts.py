"""The expected start of a pending Workload: the quantiles of its forecast, and its planned start."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kubemachinery.meta import Nanoseconds, format_time
from pykueue.dashboard.workload_table import DisplayState
from pykueue.projection.documents import ANOTHER
from pykueue.projection.forecast import StartForecast

Tree = dict[str, Any]

WAITING: Final = frozenset((DisplayState.PENDING, DisplayState.EVICTED))
# Of how many ClusterQueues one list asks for forecasts: each may be a scheduling scope of its own.
ASKED_MAX: Final = 4


class ForecastSource(Protocol):
    """The forecasts that were made. `revision` rises with each answer and each failure."""

    @property
    def revision(self) -> int: ...

    def of_workload(self, key: str, cluster_queue: str) -> StartForecast | None: ...

    def problem(self, cluster_queue: str) -> str:
        """Why the forecasts of a ClusterQueue are missing or outdated; empty if they are neither."""

    def ask_later(self, cluster_queue: str) -> None: ...


def document(found: StartForecast | None, planned: Nanoseconds | None, problem: str = "") -> Tree | None:
    """Return when a Workload is expected to start, and why its forecast is missing or outdated; None if nothing is
    known, not even a reason. `problem` is that of all forecasts of its ClusterQueue."""
    forecast = found if found is not None and not found.reason else None
    reason = problem or (_reason(found) if found is not None else "")
    if planned is None and forecast is None and not reason:
        return None
    return {
        "p50": _time(forecast.p50 if forecast is not None else None),
        "p90": _time(forecast.p90 if forecast is not None else None),
        "isBeyond": forecast is not None and forecast.p50_is_beyond,  # later than forecasts reach
        "planned": _time(planned),
        "reason": reason,
    }


def _reason(found: StartForecast) -> str:
    """Why a Workload has no forecast. Another Workload is not named: the readers of a page have different rights."""
    is_other = found.unknown and found.unknown != found.key
    return found.reason.replace(found.unknown, ANOTHER) if is_other else found.reason


def _time(at: Nanoseconds | None) -> str | None:
    return None if at is None else format_time(at)
