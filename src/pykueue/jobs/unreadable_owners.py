"""Owners of jobs that cannot be read: how reading fails, and what happens to a job meanwhile.

An owner decides whether a job is queued by itself or runs under a managed ancestor. While the API server does not
return it (403, an error, no answer in time, discovery that fails), the rules are:

    a job that would not be managed by itself   is left alone; nothing is refused, changed or held
    a child of an ancestor certainly managed    is left alone (`selection.has_managed_ancestor`)
    any other that would be managed by itself   is held (suspended, or gated) and marked with the annotation
                                                `pykueue.io/unread-owner`; it gets no Workload, so that a child is not
                                                queued beside its ancestor, and does not run, so that it uses no quota
                                                that was not reserved
    one that has a Workload of its own          continues: it was decided before that it has no managed ancestor

The reconciler reads the owner again every `AGAIN` until that succeeds, and then does what the webhook would have done
(`settled`). Until then a Warning Event `OwnerNotReadable` has the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.discovery import Discovery
from kubemachinery.client.errors import ApiError, KubeError, NoSuchKind, NotFound, Unanswered
from kubemachinery.kinds import Kind
from kubemachinery.meta import SECOND, Nanoseconds, OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.kueue import Workload
from pykueue.jobs import pod
from pykueue.jobs.actions import Actions, EmitJobEvent, ReplaceObject, RequeueAfter
from pykueue.jobs.facts import Ancestry, UnreadableOwner
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle import states

log = logging.getLogger(__name__)

# How soon the owner of a job is read again.
AGAIN: Final[Nanoseconds] = 10 * SECOND
# A webhook has to answer within the ten seconds that the API server waits for.
_ANSWER_SECONDS: Final = 2.0
# How long a failure is returned for every owner of a kind in a namespace. Many children of one operator are created
# at once, and each would wait for the same failure.
_FAILURE_SECONDS: Final = 2.0


# --- Reading ----------------------------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    error: KubeError
    until: float


class OwnerReader:
    """Reads owners: from the caches of informers where there is one, otherwise from the API server.

    Every failure is a `KubeError`, after at most `_ANSWER_SECONDS`. Each is logged once per kind, until an owner
    of the kind can be read again.
    """

    def __init__(self, client: ApiClient, copy: Callable[[Kind, str, str], Tree | None] = lambda *_: None) -> None:
        self._client = client
        self._copy = copy
        self._discovery = Discovery(client)
        self._failures: dict[tuple[str, str], _Failure] = {}
        self._logged: dict[str, set[str]] = {}

    async def __call__(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        found = self._copy(kind, name, namespace)
        if found is not None:
            return found
        title, now = f"{kind.kind} of {kind.api_version}", asyncio.get_running_loop().time()
        failure = self._failures.get((title, namespace))
        if failure is not None and now < failure.until:
            raise failure.error
        try:
            found = await self._read(kind, name, namespace)
        except KubeError as error:
            self._discovery.forget(kind)
            self._failures[title, namespace] = _Failure(error, now + _FAILURE_SECONDS)
            self._log(title, error)
            raise
        self._failures.pop((title, namespace), None)
        if self._logged.pop(title, None):
            log.info("owners of kind %s can be read again", title)
        return found

    async def _read(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._client.get(await self._discovery.resolved(kind), name, namespace)
        except NoSuchKind:
            raise
        except NotFound:
            return None
        except TimeoutError:
            raise Unanswered(f"the API server did not answer within {_ANSWER_SECONDS:g} seconds") from None
        except (msgspec.DecodeError, OSError) as error:
            raise Unanswered(f"the answer of the API server cannot be decoded: {error}") from None

    def _log(self, title: str, error: KubeError) -> None:
        cause = str(error.code) if isinstance(error, ApiError) else type(error).__name__
        if cause not in self._logged.setdefault(title, set()):
            self._logged[title].add(cause)
            log.warning("owners of kind %s cannot be read: %s", title, error)


# --- The mark ---------------------------------------------------------------------------------------------------------


def is_marked(job: ObjectView) -> bool:
    """Whether an object was held because an owner could not be read."""
    return bool(job.annotations.get(labels.UNREAD_OWNER))


def marked(tree: Tree, unread: UnreadableOwner) -> Tree:
    return ObjectView(tree).with_annotations({labels.UNREAD_OWNER: unread.title})


def unmarked(tree: Tree) -> Tree:
    return ObjectView(tree).without_annotation(labels.UNREAD_OWNER)


# --- Deciding ---------------------------------------------------------------------------------------------------------


def event(job: ObjectView, problem: str) -> EmitJobEvent:
    """The Event for a job of which it cannot be decided whether it has a managed ancestor, as `Ancestry.problem`."""
    return EmitJobEvent(
        job.tree, "OwnerNotReadable", f"The job {problem}, so no Workload is created for it", warning=True
    )


def undecided(job: ObjectView, unread: UnreadableOwner) -> Actions:
    """The actions for a job whose owner cannot be read: emit the reason, and read the owner again."""
    note = f"The owner {unread.title} cannot be read, so no Workload is created for the job: {unread.reason}"
    return (EmitJobEvent(job.tree, "OwnerNotReadable", note, warning=True), RequeueAfter(AGAIN))


def settled(
    job: GenericJob,
    found: Ancestry,
    ancestor: ObjectView | None,
    workloads: tuple[Workload, ...],
    options: IntegrationOptions,
) -> Actions:
    """The actions for a marked object, after its owners were read again.

    Without a managed ancestor, the mark is removed and the object is reconciled as any other. With one, the object is
    released: a pod at once, since pods of a managed ancestor are never gated themselves; another job when the ancestor
    is admitted, since its operator has already started the job.
    """
    if found.unread is not None:
        return undecided(job, found.unread)
    if found.problem:
        return undecided(job, UnreadableOwner(_reference(job), f"the job {found.problem}"))
    if ancestor is None:
        return (ReplaceObject(job.row.kind, job.tree, unmarked(job.tree)),)
    note = f"Released: it belongs to the {ancestor.kind} {ancestor.name}"
    if job.row.of_pods:
        return (ReplaceObject(job.row.kind, job.tree, _released(job)), EmitJobEvent(job.tree, "Resumed", note))
    if not is_admitted(ancestor, workloads, job, options):
        return (RequeueAfter(AGAIN),)
    return (ReplaceObject(job.row.kind, job.tree, unmarked(job.resumed())), EmitJobEvent(job.tree, "Resumed", note))


def _reference(job: GenericJob) -> OwnerReference:
    kind = job.row.kind
    return OwnerReference(api_version=kind.api_version, kind=kind.kind, name=job.name, uid=job.uid)


def _released(job: GenericJob) -> Tree:
    """A pod without anything that the webhook added. The topology gate of a pod that was created from the template of
    an admitted job is part of that template, and stays."""
    from_template = bool(job.annotations.get(labels.WORKLOAD))
    gates = (labels.ADMISSION_GATE,) if from_template else (labels.ADMISSION_GATE, labels.TOPOLOGY_GATE)
    tree = unmarked(pod.without_finalizer(pod.without_gates(job.tree, *gates)))
    tree = ObjectView(tree).without_annotation(labels.ROLE_HASH)
    return ObjectView(tree).without_label(labels.MANAGED)


def is_admitted(
    ancestor: ObjectView, workloads: tuple[Workload, ...], child: ObjectView, options: IntegrationOptions
) -> bool:
    """Whether a child of an ancestor may run: the newest unfinished Workload of the ancestor is admitted, and not
    evicted. If the ancestor or the child is elastic, it is enough that this Workload is not evicted.

    An evicted Workload stays admitted until the pods of the job are gone. A child that the operator does not stop would
    keep its pods for ever: KubeRay leaves the old RayCluster of a suspended RayService running [JF27].
    """
    living = [workload for workload in workloads if not states.is_finished(workload)]
    newest = max(living, key=lambda workload: (states.created(workload), workload.metadata.uid), default=None)
    if newest is None:
        return False
    elastic = options.elastic and any(each.annotations.get(labels.ELASTIC_JOB) == "true" for each in (ancestor, child))
    return not states.is_evicted(newest) and (elastic or states.is_admitted(newest))
