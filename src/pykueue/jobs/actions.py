"""What a reconcile pass does, as data, in order. An action that fails ends the pass; the next pass decides again.

CreateWorkload    create a Workload
PatchWorkload     a merge patch of a Workload
ResizeWorkload    the pod counts of a Workload, where no new slice is needed
ChangeWorkload    changes that `lifecycle` returned for a Workload
ReplaceObject     an object by another state of itself: sent as a merge patch under its resourceVersion
DeleteObject      an object, if it still has the UID that was read
EmitJobEvent      an Event, emitted once every action before it has succeeded
RequeueAfter      reconcile the job again after a duration
RetryWithBackoff  the pass could not be completed, and why
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
class CreateWorkload:
    workload: Tree
    job: Tree


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    workload: kueue.Workload
    patch: Tree


@dataclass(frozen=True, slots=True)
class ResizeWorkload:
    workload: kueue.Workload
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChangeWorkload:
    workload: kueue.Workload
    changes: Changes


@dataclass(frozen=True, slots=True)
class ReplaceObject:
    kind: Kind
    before: Tree
    after: Tree
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    kind: Kind
    tree: Tree


@dataclass(frozen=True, slots=True)
class EmitJobEvent:
    regarding: Tree
    reason: str
    note: str
    warning: bool = False
    action: str = ""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    after: Nanoseconds


@dataclass(frozen=True, slots=True)
class RetryWithBackoff:
    reason: str


Action: TypeAlias = (
    CreateWorkload
    | PatchWorkload
    | ResizeWorkload
    | ChangeWorkload
    | ReplaceObject
    | DeleteObject
    | EmitJobEvent
    | RequeueAfter
    | RetryWithBackoff
)
Actions: TypeAlias = tuple[Action, ...]
