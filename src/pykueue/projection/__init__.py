"""The scheduler run ahead of time: objects and run times in, projected starts out.

case        the objects and settings of a run, and the World that is built from them
draws       random numbers that depend on nothing but the seed, the Workload and the attempt
outcome     what a run found: attempts, starts, usage
check_answers  admission checks that are decided in a run
engine      the World on a virtual clock, driven by a heap of events

Every decision is one of `World.decide`: nothing of the scheduler is modelled a second time.
"""

from pykueue.projection.case import SchedulerCase
from pykueue.projection.check_answers import CheckAnswers, CheckRefusal, DueChecks
from pykueue.projection.draws import ConstantDraws, Draws, uniform
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
    "run",
    "uniform",
    "usage_changes",
]
