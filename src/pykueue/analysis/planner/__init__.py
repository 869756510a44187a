"""Offline plans: objects in, one or more scheduling cycles, decisions out as one plain object.

    case            documents as typed objects, and the settings they are decided under
    job_numbers     numbers of jobs that the API server refuses
    job_submission  the jobs among them, and their Workloads
    cycles          scheduling cycles over a case
    report          the result, as one plain object

No controller runs, and no server is read. Other packages import from this package only.
"""

from pykueue.analysis.planner.case import (
    CLASSES,
    EXTENSIONS,
    KINDS,
    Case,
    Configured,
    place_of,
    read,
    with_used_namespaces,
)
from pykueue.analysis.planner.cycles import (
    BUDGETS,
    CYCLES_MAX,
    QUOTA_CALENDAR,
    Progress,
    SchedulingPlan,
    advance,
    begin,
    plan,
    scheduler_case,
    settle,
    windows_of,
    world_of,
)
from pykueue.analysis.planner.job_submission import queued
from pykueue.analysis.planner.report import as_tree, explanations, loop_tree

__all__ = [
    "BUDGETS",
    "CLASSES",
    "CYCLES_MAX",
    "EXTENSIONS",
    "KINDS",
    "QUOTA_CALENDAR",
    "Case",
    "Configured",
    "Progress",
    "SchedulingPlan",
    "advance",
    "as_tree",
    "begin",
    "explanations",
    "loop_tree",
    "place_of",
    "plan",
    "queued",
    "read",
    "scheduler_case",
    "settle",
    "windows_of",
    "with_used_namespaces",
    "world_of",
]
