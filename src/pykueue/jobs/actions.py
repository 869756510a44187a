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

from typing import TypeAlias

import msgspec

from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kueue
from pykueue.lifecycle.workload_changes import Changes


class CreateWorkload(msgspec.Struct, frozen=True):
    workload: Tree
    job: Tree


class PatchWorkload(msgspec.Struct, frozen=True):
    workload: kueue.Workload
    patch: Tree


class ResizeWorkload(msgspec.Struct, frozen=True):
    workload: kueue.Workload
    counts: tuple[int, ...]


class ChangeWorkload(msgspec.Struct, frozen=True):
    workload: kueue.Workload
    changes: Changes


class ReplaceObject(msgspec.Struct, frozen=True):
    kind: Kind
    before: Tree
    after: Tree
    subresource: str = ""


class DeleteObject(msgspec.Struct, frozen=True):
    kind: Kind
    tree: Tree


class EmitJobEvent(msgspec.Struct, frozen=True):
    regarding: Tree
    reason: str
    note: str
    warning: bool = False
    action: str = ""


class RequeueAfter(msgspec.Struct, frozen=True):
    after: Nanoseconds


class RetryWithBackoff(msgspec.Struct, frozen=True):
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
