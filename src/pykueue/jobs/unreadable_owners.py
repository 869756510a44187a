"""Owners of jobs that cannot be read: how reading fails, and what becomes of a job meanwhile.

An owner decides whether a job is queued by itself or runs under an ancestor that is ours. When the API server does not
return it (403, an error, no answer in time, discovery that fails), the rule is:

    a job that would not be ours by itself      is left alone; nothing is refused, changed or held
    a child for certain                         is left alone (`selection.belongs`)
    any other that would be ours by itself      is held (suspended, or gated) and marked with the annotation
                                                `pykueue.io/unread-owner`; it gets no Workload, so that a child is not
                                                queued beside its ancestor, and does not run, so that none is free
    one that has a Workload of its own          goes on: it was decided before that it stands for itself

The reconciler reads the owner again every `AGAIN` until it knows, and then does what the webhook would have done
(`settled`). Until then a Warning Event `OwnerNotReadable` gives the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from kubemachinery import unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.discovery import Discovery
from kubemachinery.client.errors import ApiError, KubeError, NoSuchKind, NotFound, Unanswered
from kubemachinery.kinds import Kind
from kubemachinery.meta import SECOND, Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.kueue import Workload
from pykueue.jobs import pod
from pykueue.jobs.actions import Actions, EmitJobEvent, ReplaceObject, RequeueAfter
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.selection import Ancestry, UnreadableOwner
from pykueue.lifecycle import states

log = logging.getLogger(__name__)

# How soon a job is looked at again whose owner could not be read.
AGAIN: Final[Nanoseconds] = 10 * SECOND
# A webhook has to answer within the ten seconds that the API server waits for it.
_ANSWER_SECONDS: Final = 2.0
# For so long a failure stands for all owners of a kind in a namespace. Many children of one operator arrive at once,
# and each would wait for the same failure.
_FAILURE_SECONDS: Final = 2.0


# --- Reading ----------------------------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    error: KubeError
    until: float


class OwnerReader:
    """Reads owners: from the copies of informers where there are any, otherwise from the API server.

    Every way to fail is a `KubeError`, after at most `_ANSWER_SECONDS`. Each is logged once for a kind, until an owner
    of the kind could be read again.
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
            raise Unanswered(f"the answer of the API server cannot be read: {error}") from None

    def _log(self, title: str, error: KubeError) -> None:
        cause = str(error.code) if isinstance(error, ApiError) else type(error).__name__
        if cause not in self._logged.setdefault(title, set()):
            self._logged[title].add(cause)
            log.warning("owners of kind %s cannot be read: %s", title, error)


# --- The mark ---------------------------------------------------------------------------------------------------------


def is_marked(tree: Tree) -> bool:
    """Whether an object was held because an owner could not be read."""
    return bool(unstructured.get(tree, "metadata", "annotations", labels.UNREAD_OWNER))


def marked(tree: Tree, unread: UnreadableOwner) -> Tree:
    notes = unstructured.texts(unstructured.get(tree, "metadata", "annotations"))
    return unstructured.put(tree, ("metadata", "annotations"), {**notes, labels.UNREAD_OWNER: unread.title})


def unmarked(tree: Tree) -> Tree:
    notes = unstructured.texts(unstructured.get(tree, "metadata", "annotations"))
    kept = {key: value for key, value in notes.items() if key != labels.UNREAD_OWNER}
    path = ("metadata", "annotations")
    return unstructured.put(tree, path, kept) if kept else unstructured.without(tree, path)


# --- Deciding ---------------------------------------------------------------------------------------------------------


def undecided(job: GenericJob, unread: UnreadableOwner) -> Actions:
    """What is done for a job whose owner cannot be read: the reason is published, and the owner is read again."""
    note = f"The owner {unread.title} cannot be read, so the job gets no Workload for now: {unread.reason}"
    return (EmitJobEvent(job.tree, "OwnerNotReadable", note, warning=True), RequeueAfter(AGAIN))


def settled(
    job: GenericJob,
    found: Ancestry,
    ancestor: Tree | None,
    workloads: tuple[Workload, ...],
    options: IntegrationOptions,
) -> Actions:
    """What is done for a marked object, now that its owners were looked for once more.

    Without an ancestor that is ours, the mark goes and the object is one like any other. With one, the object is
    released from what held it: a pod at once, since pods of an ancestor are never gated by themselves; another job when
    the ancestor is admitted, since its operator believes that it started the job already.
    """
    if found.unread is not None:
        return undecided(job, found.unread)
    if found.problem:
        return undecided(
            job, UnreadableOwner({"kind": job.row.kind.kind, "name": job.name}, f"the job {found.problem}")
        )
    if ancestor is None:
        return (ReplaceObject(job.row.kind, job.tree, unmarked(job.tree)),)
    title = (
        f"{unstructured.text(ancestor.get('kind'))} {unstructured.text(unstructured.get(ancestor, 'metadata', 'name'))}"
    )
    note = f"Released, since it belongs to the {title}"
    if job.row.of_pods:
        return (ReplaceObject(job.row.kind, job.tree, _freed(job.tree)), EmitJobEvent(job.tree, "Resumed", note))
    if not is_admitted(ancestor, workloads, job.tree, options):
        return (RequeueAfter(AGAIN),)
    return (ReplaceObject(job.row.kind, job.tree, unmarked(job.resumed())), EmitJobEvent(job.tree, "Resumed", note))


def _freed(tree: Tree) -> Tree:
    """A pod without anything that the webhook added. The topology gate of a pod that was made from the template of an
    admitted job is part of that template, and stays."""
    from_template = bool(pod.annotation(tree, labels.WORKLOAD))
    gates = (labels.ADMISSION_GATE,) if from_template else (labels.ADMISSION_GATE, labels.TOPOLOGY_GATE)
    tree = unmarked(pod.without_finalizer(pod.without_gates(tree, *gates)))
    notes = unstructured.texts(unstructured.get(tree, "metadata", "annotations"))
    tree = unstructured.put(
        tree, ("metadata", "annotations"), {k: v for k, v in notes.items() if k != labels.ROLE_HASH}
    )
    marks = unstructured.texts(unstructured.get(tree, "metadata", "labels"))
    return unstructured.put(tree, ("metadata", "labels"), {k: v for k, v in marks.items() if k != labels.MANAGED})


def is_admitted(ancestor: Tree, workloads: tuple[Workload, ...], child: Tree, options: IntegrationOptions) -> bool:
    """Whether a child of an ancestor may run: the newest unfinished Workload of the ancestor is admitted. Where the
    ancestor or the child is elastic, it is enough that this Workload is not evicted."""
    living = [workload for workload in workloads if not states.is_finished(workload)]
    newest = max(living, key=lambda workload: (states.created(workload), workload.metadata.uid), default=None)
    if newest is None:
        return False
    elastic = options.elastic and any(
        unstructured.get(tree, "metadata", "annotations", labels.ELASTIC_JOB) == "true" for tree in (ancestor, child)
    )
    return not states.is_evicted(newest) if elastic else states.is_admitted(newest)
