"""Start forecasts: quantiles of the starts of several runs ahead.

Each run is a sample: with its own draws of run times, and with the arrivals of another past week. Of N sorted starts
P50 is number (N + 1) / 2 and P90 number 0.9 · (N + 1), without interpolation: if the model is right, they cover
exactly 50 and 90 % of the starts [FC1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery.meta import HOUR, Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core.decision import Wait
from pykueue.lifecycle import states, variants
from pykueue.projection import calibration, engine
from pykueue.projection.calibration import NO_CORRECTION, Correction
from pykueue.projection.case import SchedulerCase
from pykueue.projection.check_answers import CheckAnswers
from pykueue.projection.draws import Draws
from pykueue.projection.engine import Arrival
from pykueue.projection.outcome import ProjectedAttempt, Projection, Release
from pykueue.state import workload_info

SAMPLES: Final = 19
# The largest number of samples whose decisions are few is used; more are not worth the time.
SAMPLES_MORE: Final = (99, 39)
FEW_DECISIONS: Final = 5_000
SAMPLES_MIN: Final = 9
HORIZON: Final = 7 * 24 * HOUR
# Decisions of one question [FC9].
EFFORT: Final = 100_000

DrawsOf: TypeAlias = Callable[[int], Draws]
ArrivalsOf: TypeAlias = Callable[[int], Iterable[Arrival]]
AnswersOf: TypeAlias = Callable[[int], CheckAnswers | None]


class StartForecast(msgspec.Struct, frozen=True):
    """The forecast of one Workload. Without a P50 there is none, and `reason` has the cause [FC7]."""

    key: str
    p50: Nanoseconds | None = None
    # None with a P50: fewer than SAMPLES_MIN samples, or later than the horizon.
    p90: Nanoseconds | None = None
    # P50 or P90 is later than the horizon.
    p50_is_beyond: bool = False
    p90_is_beyond: bool = False
    because: Release | None = None
    reason: str = ""
    # The Workload that `reason` names.
    unknown: str = ""


class ForecastResult(msgspec.Struct, frozen=True):
    """The forecasts of the pending Workloads of a scope."""

    made: Nanoseconds
    horizon: Nanoseconds
    samples: int
    decisions: int
    # False if the effort allowed fewer than SAMPLES_MIN samples.
    is_complete: bool
    items: tuple[StartForecast, ...]


def forecast(
    case: SchedulerCase,
    now: Nanoseconds,
    draws: DrawsOf,
    *,
    arrivals: ArrivalsOf = lambda sample: (),
    answers: AnswersOf = lambda sample: None,
    effort: int = EFFORT,
    horizon: Nanoseconds = HORIZON,
    samples: int | None = None,
) -> ForecastResult:
    """Forecast the start of every pending Workload of a case, without corrections. Without a number of `samples`, it
    depends on the effort of the first one [FC1]."""
    blocked = _blocked(case, now)
    families = _families(case)
    wanted = [key for key in _pending(case) if key not in blocked and key not in families]
    for parent, members in families.items():
        if not any(key in wanted for key in members):
            blocked.setdefault(parent, "none of its variants can start")
    runs: list[Projection] = []
    spent, count = 0, 1
    while wanted and len(runs) < count:
        number = len(runs)
        found = engine.run(
            case,
            now,
            draws(number),
            arrivals=arrivals(number),
            answers=answers(number),
            horizon=now + horizon,
            effort=effort - spent,
            grid=True,
            until_started=wanted,
            skips_loops=True,
        )
        spent += found.decisions
        if not found.is_complete and runs:
            break  # a sample that was cut short would count late starts as none
        runs.append(found)
        if number == 0:
            count = samples if samples is not None else _sample_count(found, effort)
    starts = [_with_families(run.first_attempts(), families) for run in runs]
    open_families = [key for key in families if key not in blocked]
    items = [_item(key, runs, starts, now + horizon) for key in (*wanted, *open_families)]
    items += [StartForecast(key, reason=reason) for key, reason in blocked.items()]
    return ForecastResult(
        made=now,
        horizon=now + horizon,
        samples=len(runs),
        decisions=spent,
        is_complete=not wanted or len(runs) >= SAMPLES_MIN,
        items=tuple(sorted(items, key=lambda item: item.key)),
    )


def _sample_count(first: Projection, effort: int) -> int:
    if not first.is_complete:
        return 1
    each = max(1, first.decisions)
    for count in (*(more for more in SAMPLES_MORE if more * each <= FEW_DECISIONS), SAMPLES, SAMPLES_MIN):
        if count * each <= effort:
            return count
    return max(1, effort // each)


def _item(
    key: str, runs: Sequence[Projection], starts: Sequence[Mapping[str, ProjectedAttempt]], end: Nanoseconds
) -> StartForecast:
    """The quantiles of one Workload over all samples; `starts` are the first attempts of each, `end` the horizon."""
    found: list[tuple[Nanoseconds, int]] = []
    beyond = end + 1
    for number, by_key in enumerate(starts):
        attempt = by_key.get(key)
        started = attempt.admitted if attempt is not None else None
        found.append((beyond if started is None else started, number))
    found.sort()
    count = len(found)
    p50, sample = found[(count + 1) // 2 - 1]
    endless, looping = runs[sample].endless, runs[sample].looping
    loop = f"Workloads preempt each other in turns: {_listed(looping)}" if looping else ""
    if p50 == beyond and key in looping:
        return StartForecast(key, reason=loop)
    if p50 == beyond and key in runs[sample].rejected:
        return StartForecast(key, reason="an admission check rejects it")
    if p50 == beyond and endless:
        reason = f"nothing is known about the run time of {_listed(endless)}"
        return StartForecast(key, reason=reason, unknown=endless[0])
    if not runs[sample].is_complete and p50 == beyond:
        return StartForecast(key, reason="the computation was cut short before it started")
    if loop and p50 == beyond:
        return StartForecast(key, reason=loop)
    if runs[sample].has_run_out and p50 == beyond:
        return StartForecast(key, reason="no end of another Workload lets it in")
    p90 = found[9 * (count + 1) // 10 - 1][0] if count >= SAMPLES_MIN else None
    first = starts[sample].get(key)
    return StartForecast(
        key,
        p50=None if p50 == beyond else p50,
        p90=None if p90 == beyond else p90,
        p50_is_beyond=p50 == beyond,
        p90_is_beyond=p90 == beyond,
        because=first.because if first is not None else None,
    )


def _listed(keys: tuple[str, ...]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"


def corrected(item: StartForecast, by: Correction, now: Nanoseconds, horizon: Nanoseconds) -> StartForecast:
    """The forecast with the correction of its ClusterQueue. P50 is never later than P90 [FC3]."""
    if item.p50 is None or by == NO_CORRECTION:
        return item
    p50 = now + calibration.corrected_distance(item.p50 - now, by.p50)
    p90 = None if item.p90 is None else now + calibration.corrected_distance(item.p90 - now, by.p90)
    is_beyond = p90 is not None and p90 > now + horizon
    p50 = min(p50, now + horizon if p90 is None or is_beyond else p90)
    return replace(item, p50=p50, p90=None if is_beyond else p90, p90_is_beyond=item.p90_is_beyond or is_beyond)


def bounded(item: StartForecast, latest: Nanoseconds) -> StartForecast:
    """The forecast of a Workload with a planned start, which it is not later than [FC8]."""
    if item.reason or (item.p90 is not None and item.p90 <= latest):
        return item
    p50 = latest if item.p50 is None else min(item.p50, latest)
    return replace(item, p50=p50, p90=latest, p50_is_beyond=False, p90_is_beyond=False)


# --- Workloads without a forecast -------------------------------------------------------------------------------------

_TOO_LARGE: Final = QuotaReservedReason.EXCEEDS_MAX_QUOTA
# Reasons that hold until objects change.
_NEVER: Final[Mapping[QuotaReservedReason, str]] = {
    _TOO_LARGE: "requests more than its ClusterQueue can ever have",
    QuotaReservedReason.NO_MATCHING_FLAVOR: "no flavor of its ClusterQueue matches",
    QuotaReservedReason.MISCONFIGURED: "is misconfigured",
}


def _pending(case: SchedulerCase) -> list[str]:
    return [states.key(each) for each in case.workloads() if _is_pending(each)]


def _families(case: SchedulerCase) -> dict[str, list[str]]:
    """The variants of each pending Workload that is tried on several flavors at once."""
    found: dict[str, list[str]] = {
        states.key(each): []
        for each in case.workloads()
        if workload_info.has_variants(each, case.policy) and _is_pending(each)
    }
    for each in case.workloads() if found else ():
        parent = variants.parent_of(each)
        if parent is not None:
            found.get(f"{each.metadata.namespace}/{parent.name}", []).append(states.key(each))
    return found


def _with_families(
    starts: Mapping[str, ProjectedAttempt], families: Mapping[str, Sequence[str]]
) -> Mapping[str, ProjectedAttempt]:
    """The first attempts, with those of parents: a parent starts with the first of its variants."""
    first: dict[str, ProjectedAttempt] = {}
    for parent, members in families.items():
        begun = [(at, key) for key in members if key in starts and (at := starts[key].admitted) is not None]
        if begun:
            first[parent] = starts[min(begun)[1]]
    return {**starts, **first}


def _is_pending(workload: kueue.Workload) -> bool:
    return not states.is_finished(workload) and not states.is_admitted(workload)


def _blocked(case: SchedulerCase, now: Nanoseconds) -> dict[str, str]:
    """Why there is no forecast of a pending Workload, whatever ends [FC7]."""
    world = case.world(now)
    world.settle(now)
    found: dict[str, str] = {}
    gates_count = case.policy.admission_gated_by
    for workload in case.workloads():
        key = states.key(workload)
        if not _is_pending(workload) or key in world.reservations:
            continue
        pending = world.pending_workload(key)
        if not states.is_active(workload):
            found[key] = "is deactivated"
        elif states.is_on_hold(workload):
            found[key] = "is on hold"
        elif states.is_gated(workload, gates_count=gates_count):
            found[key] = "its admission is gated"
        elif workload_info.has_variants(workload, case.policy):
            continue  # its variants are pending in its place
        elif pending is None or pending.cluster_queue not in world.queues:
            found[key] = "its queue does not exist"
        elif key not in world.queues[pending.cluster_queue] or not world.is_active(pending.cluster_queue):
            found[key] = "its queue is not active"
    return found | _never_fitting(case, now)


def _never_fitting(case: SchedulerCase, now: Nanoseconds) -> dict[str, str]:
    """The Workloads that no end of another one lets in."""
    world = case.world(now)
    found: dict[str, str] = {}
    # A window to come may raise the quota.
    never = {reason: text for reason, text in _NEVER.items() if not case.windows or reason is not _TOO_LARGE}
    while decisions := world.decide(now):
        for decision in decisions:
            if isinstance(decision, Wait) and decision.reason in never:
                found[decision.workload] = never[decision.reason]
    for key in world.pending_keys():
        reason = world.inadmissible_class_reason(key)
        if reason is not None and reason in never:
            found[key] = never[reason]
    return found
