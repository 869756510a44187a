"""Jobs of every kind as commands see them: found by NAME or TYPE/NAME, with their Workloads and their pods.

The kinds are those of the table of job integrations. A name without a type is that of a Job; of the job of a
Workload, by its owner; of a Workload; or of an object of any kind that the server has, in this order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubemachinery import codec, unstructured
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from kubemachinery.meta import OwnerReference
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, registry, workload_owners
from pykueue.jobs import kinds
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.kinds import JobKinds

if TYPE_CHECKING:
    from pykueue.jobs.interface import GenericJob
    from pykueue.jobs.pod import PodView

JOBS: Final = registry.ALL.of(kube.Job)
PODS: Final = registry.ALL.of(kube.Pod)
WORKLOADS: Final = registry.ALL.of(kueue.Workload)


@cache
def known() -> JobKinds:
    """The table of job integrations, with those of other distributions."""
    return kinds.load()


_BUILT_IN: Final = JobKinds(kinds.BUILT_IN)


def _rows() -> Iterator[JobIntegration]:
    """The implemented integrations. Those of other distributions come last, and are loaded when they are reached: the
    entry points of all installed distributions are read for them."""
    yield from (row for row in _BUILT_IN if row.implementation is not None)
    yield from (row for row in known() if row.implementation is not None and row not in _BUILT_IN.rows)


def rows_of(types: Collection[tuple[str, str]]) -> list[JobIntegration]:
    """The implemented integrations of these kinds, each an API group and a kind, in the order of the table."""
    missing = set(types)
    found = []
    for row in _rows() if missing else ():
        if (row.kind.group, row.kind.kind) in missing:
            missing.discard((row.kind.group, row.kind.kind))
            found.append(row)
        if not missing:
            break
    return found


class QueuedJob(ObjectView):
    """A job that was read: its row and its object."""

    def __init__(self, row: JobIntegration, tree: Tree) -> None:
        super().__init__({"apiVersion": row.kind.api_version, "kind": row.kind.kind, **tree})
        self.row: Final = row

    @property
    def reference(self) -> str:
        """The name under which the same job is found again: `train` for a Job, else `pytorchjob/train`."""
        return self.name if self.row.kind == JOBS else f"{self.row.kind.singular}/{self.name}"

    @property
    def title(self) -> str:
        """The job in messages: `job train`, `pytorchjob train`, `pod group workers`."""
        return f"pod group {self.group}" if self.group else f"{self.row.kind.singular} {self.name}"

    @property
    def resource(self) -> str:
        """TYPE.GROUP/NAME, as kubectl prints it."""
        return resource_name_of(self.tree, self.name)

    @property
    def integration(self) -> GenericJob | None:
        """The job under the rules of its kind; None for one that is made of pods, whose state is that of its
        Workloads."""
        return None if self.is_made_of_pods else self.row.job(self.tree)

    @property
    def is_made_of_pods(self) -> bool:
        """Whether its pods are jobs themselves, or members of a group: a pod, or a Deployment, for instance."""
        return is_made_of_pods(self.row)

    @property
    def has_several_pods(self) -> bool:
        """Whether it may have more than one pod in its life, so that log lines have to name their pod."""
        rules = self.integration
        if rules is None:
            return self.row.kind != PODS or bool(self.group)
        pods = sum(template.count for template in rules.templates())
        # Where the templates are in another object, the number of pods is not known here.
        return pods != 1 or (unstructured.integer(self.spec.get("completions")) or 1) > 1

    @property
    def group(self) -> str:
        """The pod group of a pod; empty for any other job."""
        return _group_of(self.tree) if self.row.kind == PODS else ""


def _pod(tree: Tree) -> PodView:
    from pykueue.jobs.pod import PodView  # imports the rules of pods

    return PodView(tree)


def _group_of(tree: Tree) -> str:
    from pykueue.jobs.options import IntegrationOptions

    return _pod(tree).group_name(IntegrationOptions())


def is_made_of_pods(row: JobIntegration) -> bool:
    return row.of_pods or row.implementation is None or row.is_pod_parent


def is_held(row: JobIntegration, tree: Tree) -> bool:
    """Whether a new job was suspended, its pod gated, or the pods of its template are."""
    if not is_made_of_pods(row):
        return row.job(tree).is_suspended()
    if row.kind == PODS:
        return _pod(tree).has_gate()
    # Its template has the annotation; where the template is depends on the kind.
    return labels.POD_SUSPENDING_PARENT.encode() in msgspec.json.encode(tree.get("spec"))


def resource_name_of(tree: Tree | Mapping[str, Any], name: str) -> str:
    """TYPE.GROUP/NAME of an object of any kind."""
    group, _, _ = str(tree["apiVersion"]).rpartition("/")
    type_ = str(tree["kind"]).lower()
    return f"{type_}.{group}/{name}" if group else f"{type_}/{name}"


def kind_named(text: str) -> str:
    """The kind of a type such as `job.batch`; the type as it is, where it is not known."""
    if not text:
        return ""
    singular = text.partition(".")[0]
    return next((row.kind.kind for row in _rows() if row.kind.singular == singular), singular)


def row_named(text: str) -> JobIntegration | None:
    """The integration of a type in any spelling that kubectl takes: `pytorchjob`, `pytorchjobs.kubeflow.org`."""
    wanted = text.lower()
    for row in _rows():
        kind = row.kind
        names = {kind.singular, kind.plural, *kind.short_names}
        if wanted in names | {f"{name}.{kind.group}" for name in names}:
            return row
    return None


# --- Finding ----------------------------------------------------------------------------------------------------------


class JobFinder:
    """Finds jobs of one namespace. A job that was found is read with one request from then on."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._rows: dict[str, tuple[JobIntegration, str]] = {}  # by the text that was given

    async def find(self, given: str) -> QueuedJob | None:
        """The job of NAME or TYPE/NAME; None if there is none. Raises UsageError for a TYPE that cannot be queued."""
        if given in self._rows:
            return await self._read(*self._rows[given])
        type_, _, name = given.rpartition("/")
        if not name:
            raise UsageError(f"{given!r} names no job: the name is empty")
        found = await self._of_type(type_, name) if type_ else await self._untyped(name)
        if found is not None:
            self._rows[given] = self._rows[found.reference] = (found.row, found.name)
        return found

    async def _of_type(self, type_: str, name: str) -> QueuedJob | None:
        if type_.lower().partition(".")[0] in (WORKLOADS.singular, WORKLOADS.plural, "wl", *WORKLOADS.short_names):
            return await self._of_workload(name)
        row = row_named(type_)
        if row is None:
            raise UsageError(f"{type_} is not a kind of job: TYPE/NAME is such as job/{name} or pytorchjob/{name}")
        return await self._read(row, name)

    async def _untyped(self, name: str) -> QueuedJob | None:
        job = await self._read(job_row(), name)
        if job is not None:
            return job
        return await self._of_owned(name) or await self._of_workload(name) or await self._of_any(name)

    async def _of_owned(self, name: str) -> QueuedJob | None:
        """The job of this name that owns a Workload."""
        listed = await self._client.list(WORKLOADS, self.namespace)
        owners = (workload_owners.job_of(codec.decode(item, kueue.Workload)) for item in listed.items)
        rows = {
            row.framework: row for owner in owners if owner is not None and owner.name == name and (row := _row(owner))
        }
        found = [job for row in rows.values() if (job := await self._read(row, name)) is not None]
        return self._only(found, name)

    async def _of_workload(self, name: str) -> QueuedJob | None:
        """The job of the Workload of this name."""
        tree = await self._client.find(WORKLOADS, name, self.namespace)
        workload = codec.from_tree(tree, kueue.Workload) if tree is not None else None
        owner = (
            None
            if workload is None
            else workload_owners.job_of(workload) or next(iter(workload.metadata.owner_references), None)
        )
        row = _row(owner) if owner is not None else None
        return await self._read(row, owner.name) if row is not None and owner is not None else None

    async def _of_any(self, name: str) -> QueuedJob | None:
        """A job without a Workload, of any kind that the server has."""
        rows = [row for row in await served(self._client) if row.kind != JOBS]
        found = await asyncio.gather(*(self._read(row, name) for row in rows))
        return self._only([job for job in found if job is not None], name)

    def _only(self, found: Sequence[QueuedJob], name: str) -> QueuedJob | None:
        if len(found) > 1:
            several = ", ".join(job.reference for job in found)
            raise UsageError(f"{name} is the name of several jobs in namespace {self.namespace}: name one of {several}")
        return found[0] if found else None

    async def _read(self, row: JobIntegration, name: str) -> QueuedJob | None:
        try:
            tree = await self._client.find(row.kind, name, self.namespace)
        except errors.NoSuchKind:
            return None
        except errors.ApiError as error:
            if error.code == 403 and row.kind != JOBS:
                return None  # a kind that the user may not read is not one of their jobs
            raise
        return QueuedJob(row, tree) if tree is not None else None


def job_row() -> JobIntegration:
    """The integration of Jobs."""
    row = _BUILT_IN.framework("batch/job")
    assert row is not None, "the framework batch/job is built in"
    return row


def _row(owner: OwnerReference) -> JobIntegration | None:
    group = owner.api_version.rpartition("/")[0]
    return next(iter(rows_of({(group, owner.kind)})), None)


async def served(client: ApiClient) -> list[JobIntegration]:
    """The implemented integrations of which the server has the API group; all if it does not list its groups."""
    rows = list(_rows())
    try:
        answer = await client.request(ApiRequest("GET", "/apis"))
    except errors.ApiError:
        return rows
    groups = {"", *(group.get("name") for group in msgspec.json.decode(answer.body).get("groups") or ())}
    return [row for row in rows if row.kind.group in groups]
