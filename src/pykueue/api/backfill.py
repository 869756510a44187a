"""The annotations of a ClusterQueue that enable planned backfill: their names, values and problems (rules BF)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from kubemachinery import meta
from kubemachinery.meta import SECOND, Nanoseconds

MODE: Final = "pykueue.io/backfill"
DEPTH: Final = "pykueue.io/backfill-depth"
PLAN_AFTER: Final = "pykueue.io/backfill-plan-after"
DRAIN_AFTER: Final = "pykueue.io/backfill-drain-after"
BY: Final = "pykueue.io/backfill-by"

PLANNED_START: Final = "pykueue.io/planned-start"
"""On Workloads: the latest start that is planned for them, written by the manager."""

ANNOTATIONS: Final = (MODE, DEPTH, PLAN_AFTER, DRAIN_AFTER, BY)
MOST_PLANNED: Final = 32
NEVER: Final = "never"

_DEPTH_OF_EASY: Final = 1
_PLAN_AFTER: Final[Nanoseconds] = 600 * SECOND
_DRAIN_AFTER: Final[Nanoseconds] = 24 * 3600 * SECOND


class BackfillMode(StrEnum):
    """How many Workloads of a ClusterQueue have a planned start: the first, or the first 32."""

    EASY = "EASY"
    CONSERVATIVE = "Conservative"


class BackfillSettings(msgspec.Struct, frozen=True):
    """The backfill of one ClusterQueue. `plan_after` and `drain_after` count in BestEffortFIFO queues only."""

    depth: int
    plan_after: Nanoseconds = _PLAN_AFTER
    drain_after: Nanoseconds | None = _DRAIN_AFTER  # None: never


class AnnotationProblem(NamedTuple):
    """An annotation whose value is invalid, and why."""

    annotation: str
    value: str
    message: str
    supported: tuple[str, ...] = ()


def settings(annotations: Mapping[str, str]) -> BackfillSettings | None:
    """The backfill that the annotations enable; None without it, or where one of them is invalid."""
    if MODE not in annotations or problems(annotations):
        return None
    default_depth = _DEPTH_OF_EASY if annotations[MODE] == BackfillMode.EASY else MOST_PLANNED
    drain = annotations.get(DRAIN_AFTER)
    return BackfillSettings(
        depth=int(annotations.get(DEPTH, default_depth)),
        plan_after=_duration(annotations[PLAN_AFTER]) if PLAN_AFTER in annotations else _PLAN_AFTER,
        drain_after=_DRAIN_AFTER if drain is None else None if drain == NEVER else _duration(drain),
    )


def problems(annotations: Mapping[str, str]) -> list[AnnotationProblem]:
    """What is wrong with the annotations, in the order of `ANNOTATIONS`."""
    found = []
    mode = annotations.get(MODE)
    modes = tuple(BackfillMode)
    if mode is not None and mode not in modes:
        found.append(AnnotationProblem(MODE, mode, "is not a backfill mode", modes))
    depth = annotations.get(DEPTH)
    if depth is not None and not (depth.isascii() and depth.isdecimal() and 1 <= int(depth[:9]) <= MOST_PLANNED):
        found.append(AnnotationProblem(DEPTH, depth, f"must be an integer from 1 to {MOST_PLANNED}"))
    for name in (PLAN_AFTER, DRAIN_AFTER):
        text = annotations.get(name)
        if text is not None and not (name == DRAIN_AFTER and text == NEVER) and not _is_duration(text):
            alternative = f", or {NEVER}" if name == DRAIN_AFTER else ""
            found.append(AnnotationProblem(name, text, f"must be a duration such as 10m{alternative}"))
    if BY in annotations:
        found.append(AnnotationProblem(BY, annotations[BY], "is not implemented: backfill counts limits only"))
    if mode is None:
        found += [
            AnnotationProblem(name, annotations[name], f"has no effect without {MODE}")
            for name in (DEPTH, PLAN_AFTER, DRAIN_AFTER)
            if name in annotations
        ]
    return found


def _is_duration(text: str) -> bool:
    try:
        return meta.parse_duration(text) >= 0
    except meta.TimeError:
        return False


def _duration(text: str) -> Nanoseconds:
    return meta.parse_duration(text)
