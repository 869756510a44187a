"""The job webhook and owners that cannot be read: no object that names no queue is held up, and none is queued twice."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines
from kubemachinery.object_view import ObjectView
from pykueue import settings
from pykueue.api import labels
from pykueue.app import in_process_webhooks
from pykueue.app.options import manager_options, webhook_options
from pykueue.install import rbac
from pykueue.jobs import admission, selection
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.webhooks import facts
from pykueue.webhooks.review import CREATE, AdmissionRequest, AdmissionResponse, Phase, WebhookOptions, review
from webhooks.conftest import DEFAULT_NAMESPACE, choices, job

Tree = dict[str, Any]

KINDS = JobKinds(BUILT_IN)
OWNERS = [(row.kind.api_version, row.kind.kind, row.kind.group, row.kind.plural) for row in KINDS]
OWNERS.append(("apps/v1", "ReplicaSet", "apps", "replicasets"))


class Server:
    """An API server that answers GETs: objects by path, a failure for what is below some paths, 404 otherwise."""

    def __init__(self) -> None:
        self.objects: dict[str, Tree] = {"/api/v1/namespaces/default": DEFAULT_NAMESPACE}
        self.failures: dict[str, ApiResponse | Exception | None] = {}
        self.asked: list[str] = []

    async def send(self, call: ApiRequest) -> ApiResponse:
        self.asked.append(call.path)
        for path, failure in self.failures.items():
            if call.path.startswith(path):
                if failure is None:
                    await asyncio.Event().wait()
                if isinstance(failure, Exception):
                    raise failure
                assert isinstance(failure, ApiResponse)
                return failure
        if call.path in self.objects:
            return ApiResponse(200, json.dumps(self.objects[call.path]).encode())
        _, _, name = call.path.rpartition("/")
        return ApiResponse(404, json.dumps({"code": 404, "reason": "NotFound", "details": {"name": name}}).encode())

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def owner_path(self, group: str, version: str, plural: str, name: str = "top") -> str:
        root = f"/apis/{group}" if group else "/api"
        return f"{root}/{version}/namespaces/default/{plural}/{name}"


@pytest.fixture
def server() -> Server:
    return Server()


def status(code: int, reason: str) -> ApiResponse:
    return ApiResponse(code, json.dumps({"kind": "Status", "code": code, "reason": reason, "message": reason}).encode())


FORBIDDEN = status(403, "Forbidden")


def child(api_version: str, kind: str, *, queue: str = "", of: str = "Job") -> Tree:
    """A Job or a Pod that an object `top` controls."""
    tree = job("child")
    if of == "Pod":
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": tree["metadata"], "spec": {"containers": []}}
    tree["metadata"]["labels"] = {labels.QUEUE_NAME: queue} if queue else {}
    owner = {"apiVersion": api_version, "kind": kind, "name": "top", "uid": "top", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


async def decided(
    server: Server, tree: Tree, chosen: WebhookOptions | None = None, phase: Phase = Phase.MUTATE
) -> AdmissionResponse:
    sources = facts.InformerSources(ApiClient(server, random.Random(1), attempts=1), ())
    request = AdmissionRequest(phase=phase, operation=CREATE, object=tree, namespace="default", name="child")
    chosen = chosen or choices()
    return review(request, await facts.gather(request, sources, chosen), chosen)


def is_held(tree: Tree | None) -> bool:
    return tree is not None and (tree["spec"].get("suspend") is True or "schedulingGates" in tree["spec"])


FAILURES = {
    "403": FORBIDDEN,
    "500": status(500, "InternalError"),
    "503": status(503, "ServiceUnavailable"),
    "connection lost": Unanswered("connection lost"),
    "not JSON": ApiResponse(200, b"<html>"),
}


@pytest.mark.parametrize("of", ["Job", "Pod"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("owner", OWNERS, ids=[owner[1] for owner in OWNERS])
async def test_an_unreadable_owner_never_touches_an_object_that_names_no_queue(
    server: Server, owner: tuple[str, str, str, str], failure: ApiResponse | Exception, of: str
) -> None:
    version, kind, group, _ = owner
    server.failures[f"/apis/{version}" if group else f"/api/{version}/namespaces/default/pods"] = failure
    for phase in Phase:
        answer = await decided(server, child(version, kind, of=of), phase=phase)
        assert (answer.refusal, answer.object, answer.warnings) == (None, None, ())


async def test_owners_of_an_object_that_names_no_queue_are_not_even_read(server: Server) -> None:
    await decided(server, child("jobset.x-k8s.io/v1alpha2", "JobSet"))
    assert not [path for path in server.asked if "jobset" in path]


@pytest.mark.parametrize("of", ["Job", "Pod"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_an_object_with_a_queue_is_held_and_marked_while_its_owner_cannot_be_read(
    server: Server, failure: ApiResponse | Exception, of: str
) -> None:
    """Held: it does not run free. Marked: it gets no Workload, so that a child is not queued beside its ancestor."""
    server.failures["/apis/jobset.x-k8s.io"] = failure
    tree = child("jobset.x-k8s.io/v1alpha2", "JobSet", queue="lq", of=of)
    answer = await decided(server, tree)
    assert answer.refusal is None
    assert answer.object is not None
    assert is_held(answer.object)
    assert answer.object["metadata"]["annotations"][labels.UNREAD_OWNER] == "JobSet top"
    response = await decided(server, answer.object, phase=Phase.VALIDATE)
    assert response.refusal is None
    assert response.warnings == (
        "its owner JobSet top could not be read: the job is held without a Workload until the owner can be read",
    )


async def test_a_silent_api_server_does_not_outlast_the_timeout_of_the_webhook(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykueue.jobs.unreadable_owners._ANSWER_SECONDS", 0.01)
    server.failures["/apis/jobset.x-k8s.io"] = None
    answer = await decided(server, child("jobset.x-k8s.io/v1alpha2", "JobSet", queue="lq"))
    assert answer.refusal is None
    assert is_held(answer.object)


async def test_without_queue_names_a_child_of_a_managed_kind_needs_no_reading(server: Server) -> None:
    """With manageJobsWithoutQueueName every object of an enabled kind is ours, and so its children are not."""
    chosen = choices(manageJobsWithoutQueueName=True)
    server.failures["/apis/batch"] = FORBIDDEN
    assert (await decided(server, child("batch/v1", "Job"), chosen)).object is None


@pytest.mark.parametrize("of", ["Job", "Pod"])
async def test_without_queue_names_a_child_of_another_kind_is_held_and_marked(server: Server, of: str) -> None:
    chosen = choices(manageJobsWithoutQueueName=True)
    server.failures["/apis/ray.io"] = FORBIDDEN
    answer = await decided(server, child("ray.io/v1", "RayJob", of=of), chosen)
    assert answer.object is not None
    assert is_held(answer.object)
    assert answer.object["metadata"]["annotations"][labels.UNREAD_OWNER] == "RayJob top"


async def test_a_kind_that_is_not_served_owns_nothing(server: Server) -> None:
    """No controller acts on such an owner, so that the job stands for itself: held, and not marked."""
    server.failures["/apis/ray.io"] = ApiResponse(404, b"404 page not found\n")
    answer = await decided(server, child("ray.io/v1", "RayJob", queue="lq"))
    assert answer.object is not None
    assert is_held(answer.object)
    assert labels.UNREAD_OWNER not in answer.object["metadata"].get("annotations", {})


async def test_an_owner_is_read_in_the_version_that_its_reference_names(server: Server) -> None:
    """An operator that moved on does not serve the version of our table any more."""
    owner = {"metadata": {"name": "top", "namespace": "default", "uid": "top"}}
    server.objects[server.owner_path("ray.io", "v2", "rayjobs")] = owner
    await decided(server, child("ray.io/v2", "RayJob", queue="lq"))
    assert server.asked[-1] == "/apis/ray.io/v2/namespaces/default/rayjobs/top"
    server.failures["/apis/ray.io/v1alpha1"] = ApiResponse(404, b"404 page not found\n")
    await decided(server, child("ray.io/v1alpha1", "RayJob", queue="lq"))
    assert server.asked[-1] == "/apis/ray.io/v1/namespaces/default/rayjobs/top"


async def test_a_failure_is_logged_once_with_its_reason(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykueue.jobs.unreadable_owners")
    server.failures["/apis/ray.io"] = FORBIDDEN
    sources = facts.InformerSources(ApiClient(server, random.Random(1), attempts=1), ())
    tree = child("ray.io/v1", "RayJob", queue="lq")
    for _ in range(3):
        request = AdmissionRequest(phase=Phase.MUTATE, operation=CREATE, object=tree, namespace="default", name="child")
        await facts.gather(request, sources, choices())
    assert caplog.messages == ["owners of kind RayJob of ray.io/v1 cannot be read: Forbidden"]


# --- With the rights that are installed -------------------------------------------------------------------------------


class Guarded(Server):
    """A server that lets through what the rendered rights of the manager allow, and discovery."""

    def __init__(self, *external: tuple[str, str]) -> None:
        super().__init__()
        self.rules = [*rbac.manager_rules(KINDS), *rbac.external_rules(KINDS, external)]

    async def send(self, call: ApiRequest) -> ApiResponse:
        parts = call.path.removeprefix("/apis/").removeprefix("/api/").split("/")
        group = parts.pop(0) if call.path.startswith("/apis/") else ""
        resource = parts[3] if len(parts) > 3 else parts[1] if len(parts) > 1 else ""
        allowed = any(
            group in rule["apiGroups"] and {resource, "*"} & set(rule["resources"]) and "get" in rule["verbs"]
            for rule in self.rules
        )
        return await super().send(call) if allowed or not resource else FORBIDDEN


@pytest.mark.parametrize("of", ["Job", "Pod"])
@pytest.mark.parametrize("owner", OWNERS, ids=[owner[1] for owner in OWNERS])
async def test_the_installed_rights_are_enough_to_read_every_owner(owner: tuple[str, str, str, str], of: str) -> None:
    version, kind, group, plural = owner
    server = Guarded()
    path = server.owner_path(group, version.rpartition("/")[2], plural)
    server.objects[path] = {"metadata": {"name": "top", "namespace": "default", "uid": "top"}}
    answer = await decided(server, child(version, kind, queue="lq", of=of))
    assert path in server.asked
    assert answer.object is not None
    assert is_held(answer.object)
    assert labels.UNREAD_OWNER not in answer.object["metadata"].get("annotations", {})


async def test_an_external_framework_is_found_under_the_plural_that_the_server_publishes() -> None:
    server = Guarded(("example.com/v1", "Sheep"))
    chosen = choices(integrations={"frameworks": ["batch/job"], "externalFrameworks": ["Sheep.v1.example.com"]})
    listed = [{"name": "flock/status", "kind": "Sheep"}, {"name": "flock", "kind": "Sheep", "namespaced": True}]
    server.objects["/apis/example.com/v1"] = {"resources": listed}
    managed = {"name": "top", "namespace": "default", "uid": "top", "labels": {labels.QUEUE_NAME: "q"}}
    server.objects["/apis/example.com/v1/namespaces/default/flock/top"] = {"metadata": managed}
    answer = await decided(server, child("example.com/v1", "Sheep", queue="lq"), chosen)
    assert answer.object is None, "it belongs to the Sheep, which names a queue"


async def test_an_external_framework_that_discovery_does_not_show_is_unreadable_or_absent() -> None:
    chosen = choices(integrations={"frameworks": ["batch/job"], "externalFrameworks": ["Sheep.v1.example.com"]})
    server = Guarded(("example.com/v1", "Sheep"))
    server.failures["/apis/example.com/v1"] = status(500, "InternalError")
    answer = await decided(server, child("example.com/v1", "Sheep", queue="lq"), chosen)
    assert answer.object is not None
    assert answer.object["metadata"]["annotations"][labels.UNREAD_OWNER] == "Sheep top"
    server.failures.clear()
    server.objects["/apis/example.com/v1"] = {"resources": []}
    answer = await decided(server, child("example.com/v1", "Sheep", queue="lq"), chosen)
    assert answer.object is not None
    assert is_held(answer.object)
    assert labels.UNREAD_OWNER not in answer.object["metadata"].get("annotations", {})


async def test_inside_the_process_the_definition_gives_the_plural() -> None:
    names = {"kind": "Sheep", "plural": "flock"}
    definition = {"spec": {"group": "example.com", "scope": "Namespaced", "names": names}}
    sheep = {"metadata": {"name": "top", "namespace": "default", "uid": "top"}}
    stored: dict[str, list[Tree]] = {
        "customresourcedefinitions.apiextensions.k8s.io": [definition],
        "flock.example.com": [sheep],
    }

    def find(kind: str, namespace: str, name: str = "") -> list[Tree]:
        return stored.get(kind, [])

    sources = in_process_webhooks._StoreSources(find)
    assert await sources.owner(selection.external_kind("example.com/v1", "Sheep"), "top", "default") == sheep
    assert await sources.owner(selection.external_kind("example.com/v1", "Goat"), "top", "default") is None


def test_webhooks_know_from_the_reconciler_which_kinds_are_not_served() -> None:
    """[JF12] A child of an enabled kind gets no default queue; while the kind is not served, nothing else queues it."""
    loaded = settings.load(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "integrations": {"frameworks": ["batch/job", "ray.io/rayjob"]},
        }
    )
    reviewing, reconciling = webhook_options(loaded), manager_options(loaded)
    known = JobAdmissionFacts(default_queue=True)
    (row,) = reviewing.kinds.enabled(["batch/job"])

    def queue() -> str | None:
        after = admission.default(row, child("ray.io/v1", "RayJob"), known, reviewing.kinds, reviewing.jobs)
        return ObjectView(after).labels.get(labels.QUEUE_NAME)

    assert queue() is None
    reconciling.kinds.not_served.add("ray.io/rayjob")
    assert queue() == labels.DEFAULT_LOCAL_QUEUE
