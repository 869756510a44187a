"""What is to be done, as data, in order. The first thing that fails ends the pass; the next one decides again.

Create            a Workload
Amend             a merge patch of a Workload
Resize            the pod counts of a Workload, where no new slice is needed
Change            what `lifecycle` wants of a Workload
Replace           an object by another state of itself: sent as a merge patch under its resourceVersion
Delete            an object, if it is still the one that was looked at
Tell              an Event, told once everything before it has worked
Again             look at the job once more after a while
Retry             the pass did not get to its end, and why
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kueue
from pykueue.lifecycle.workload_changes import Changes


@dataclass(frozen=True, slots=True)
class Create:
    workload: Tree
    job: Tree


@dataclass(frozen=True, slots=True)
class Amend:
    workload: kueue.Workload
    patch: Tree


@dataclass(frozen=True, slots=True)
class Resize:
    workload: kueue.Workload
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    workload: kueue.Workload
    changes: Changes


@dataclass(frozen=True, slots=True)
class Replace:
    kind: Kind
    before: Tree
    after: Tree
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    kind: Kind
    tree: Tree


@dataclass(frozen=True, slots=True)
class Tell:
    regarding: Tree
    reason: str
    note: str
    warning: bool = False
    action: str = ""


@dataclass(frozen=True, slots=True)
class Again:
    after: Nanoseconds


@dataclass(frozen=True, slots=True)
class Retry:
    why: str


Action: TypeAlias = Create | Amend | Resize | Change | Replace | Delete | Tell | Again | Retry
Actions: TypeAlias = tuple[Action, ...]
