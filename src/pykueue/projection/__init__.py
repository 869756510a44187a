"""The scheduler run ahead of time: objects and run times in, projected starts out.

case        the objects and settings of a run, and the World that is built from them
draws       random numbers that depend on nothing but the seed, the Workload and the attempt
outcome     what a run found: attempts, starts, usage
check_answers  admission checks that are decided in a run
engine      the World on a virtual clock, driven by a heap of events

Every decision is one of `World.decide`: nothing of the scheduler is modelled a second time.

The names are imported when they are used: clients read the documents of forecasts without the scheduler.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykueue.projection.case import SchedulerCase
    from pykueue.projection.check_answers import CheckAnswers, CheckRefusal, DueChecks
    from pykueue.projection.draws import ConstantDraws, Draws, correlated, uniform
    from pykueue.projection.engine import EFFORT_MAX, Arrival, ScheduledChange, run
    from pykueue.projection.outcome import ProjectedAttempt, Projection, Release, usage_changes

__all__ = [
    "EFFORT_MAX",
    "Arrival",
    "CheckAnswers",
    "CheckRefusal",
    "ConstantDraws",
    "Draws",
    "DueChecks",
    "ProjectedAttempt",
    "Projection",
    "Release",
    "ScheduledChange",
    "SchedulerCase",
    "correlated",
    "run",
    "uniform",
    "usage_changes",
]

_MODULES: Final = {
    **dict.fromkeys(("SchedulerCase",), "case"),
    **dict.fromkeys(("CheckAnswers", "CheckRefusal", "DueChecks"), "check_answers"),
    **dict.fromkeys(("ConstantDraws", "Draws", "correlated", "uniform"), "draws"),
    **dict.fromkeys(("EFFORT_MAX", "Arrival", "ScheduledChange", "run"), "engine"),
    **dict.fromkeys(("ProjectedAttempt", "Projection", "Release", "usage_changes"), "outcome"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
