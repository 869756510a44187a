"""The document `forecast` of the API `views.pykueue.io`, as clients read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

from kubemachinery.fields import Field, Int32, Time
from kubemachinery.meta import ApiStruct, format_time

if TYPE_CHECKING:
    from pykueue.projection.forecast import ForecastResult, StartForecast
    from pykueue.projection.outcome import Release

FORECAST: Final = "forecast"
ANOTHER: Final = "another workload"


class ForecastItem(ApiStruct, frozen=True):
    """When one pending Workload is expected to start."""

    workload: Annotated[str, Field("The Workload, as NAMESPACE/NAME.")]
    p50: Annotated[Time | None, Field("It starts by this time in half of the cases.")] = None
    p90: Annotated[Time | None, Field("It starts by this time in 9 of 10 cases.")] = None
    beyond: Annotated[Time | None, Field("Where p50 or p90 is absent: it is later than this time.")] = None
    because: Annotated[str, Field("What lets it start: the end of another Workload, or a change of quota.")] = ""
    because_at: Annotated[Time | None, Field("When that is expected.")] = None
    reason: Annotated[str, Field("Why there is no forecast.")] = ""


class ForecastDocument(ApiStruct, frozen=True):
    """The expected starts of pending Workloads."""

    made: Annotated[Time, Field("When the forecast was computed.")]
    samples: Annotated[Int32, Field("The number of runs ahead that it rests on.")]
    complete: Annotated[bool, Field("False if the computation was cut short.")]
    assumes: Annotated[tuple[str, ...], Field("What the forecast assumes.")] = ()
    warning: Annotated[str, Field("Why the forecast is older than it should be.")] = ""
    items: Annotated[tuple[ForecastItem, ...], Field("The pending Workloads.")] = ()


def document(
    result: ForecastResult,
    assumes: Iterable[str],
    *,
    warning: str = "",
    shows: Callable[[str], bool] = lambda key: True,
    may_name: Callable[[str], bool] = lambda key: True,
) -> ForecastDocument:
    """The forecasts of the Workloads that `shows` accepts. Workloads that the reader may not name are called "another
    workload"."""
    horizon = format_time(result.horizon)
    return ForecastDocument(
        made=format_time(result.made),
        samples=result.samples,
        complete=result.is_complete,
        assumes=tuple(assumes),
        warning=warning,
        items=tuple(_item(item, horizon, may_name) for item in result.items if shows(item.key)),
    )


def _item(item: StartForecast, horizon: str, may_name: Callable[[str], bool]) -> ForecastItem:
    return ForecastItem(
        workload=item.key,
        p50=None if item.p50 is None else format_time(item.p50),
        p90=None if item.p90 is None else format_time(item.p90),
        beyond=horizon if item.p50_is_beyond or item.p90_is_beyond else None,
        because=_because(item.because, may_name),
        because_at=None if item.because is None else format_time(item.because.at),
        reason=_reason(item, may_name),
    )


def _because(because: Release | None, may_name: Callable[[str], bool]) -> str:
    if because is None:
        return ""
    return (because.key if may_name(because.key) else ANOTHER) if because.key else because.reason


def _reason(item: StartForecast, may_name: Callable[[str], bool]) -> str:
    if item.unknown and not may_name(item.unknown):
        return item.reason.replace(item.unknown, ANOTHER)
    return item.reason
