"""The one reconciler of all kinds, as a decision: a job and the world around it in, actions out."""

from __future__ import annotations

from pykueue.api.meta import Nanoseconds
from pykueue.api.trees import Tree
from pykueue.jobs.actions import Actions
from pykueue.jobs.contract import Job
from pykueue.jobs.facts import Facts
from pykueue.jobs.options import Options


def reconcile(job: Job, facts: Facts, options: Options, now: Nanoseconds) -> Actions:
    """What is to be done for a job that exists."""
    raise NotImplementedError


def orphaned(workloads: tuple[Tree, ...], options: Options, now: Nanoseconds) -> Actions:
    """What is to be done with the Workloads of a job that is gone."""
    raise NotImplementedError
