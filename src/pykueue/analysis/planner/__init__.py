"""Offline plans: objects in, a world, one or more scheduling cycles, and the decisions as one plain object out.

    case        documents into typed objects, and the choices they are decided under
    submitting  the jobs among them, and the Workloads that they get
    cycles      the world made of them, and cycles in it
    telling     what came of it, as one plain object

No controller runs, and no server is asked. Everybody else asks this module, by the names below.
"""

from pykueue.analysis.planner.case import CLASSES, KINDS, Case, Configured, read
from pykueue.analysis.planner.cycles import CYCLES_MAX, Progress, SchedulingPlan, advance, begin, plan, settle, world_of
from pykueue.analysis.planner.job_submission import queued
from pykueue.analysis.planner.report import as_tree, explanations, loop_tree

__all__ = [
    "CLASSES",
    "CYCLES_MAX",
    "KINDS",
    "Case",
    "Configured",
    "Progress",
    "SchedulingPlan",
    "advance",
    "as_tree",
    "begin",
    "explanations",
    "loop_tree",
    "plan",
    "queued",
    "read",
    "settle",
    "world_of",
]
