"""Reviews as an API server posts them, and the answers it gets."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from kubemachinery import http_messages
from kubemachinery.kinds import Kind
from pykueue.webhooks import limits, review_handler, workers
from pykueue.webhooks.review import NO_FACTS, AdmissionRequest, Phase, review
from webhooks.conftest import (
    DEFAULT_NAMESPACE,
    GROUP,
    StoredObjects,
    admission_review,
    choices,
    cluster_queue,
    job,
    patched,
    post,
)

Tree = dict[str, Any]

MUTATE = "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"
VALIDATE = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"
QUEUE = "kueue.x-k8s.io/queue-name"


def handler(*objects: Tree) -> http_messages.Handler:
    return review_handler.handler(choices(), StoredObjects(DEFAULT_NAMESPACE, *objects))


async def test_a_change_travels_as_a_json_patch() -> None:
    tree = cluster_queue(quota="5000m")
    code, answer = await post(handler(), MUTATE, admission_review(tree))
    assert (code, answer["apiVersion"], answer["kind"]) == (200, "admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("0b4a", True)
    made = patched(tree, response)
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "5"


async def test_nothing_to_change_is_no_patch() -> None:
    finished = cluster_queue()
    finished["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
    _, answer = await post(handler(), MUTATE, admission_review(finished))
    assert answer["response"] == {"uid": "0b4a", "allowed": True}


async def test_a_refusal_carries_code_reason_and_causes() -> None:
    _, answer = await post(handler(), VALIDATE, admission_review(cluster_queue(quota="-1")))
    response = answer["response"]
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    place = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [place]
    assert place in response["status"]["message"]


@pytest.mark.parametrize(
    ("manager", "before", "after", "allowed"),
    [
        pytest.param("an old leader", None, "cq", False, id="quota-that-comes-late"),
        pytest.param("an old leader", "other", "cq", False, id="other-quota-that-comes-late"),
        pytest.param("an old leader", "cq", "cq", True, id="something-else-that-comes-late"),
        pytest.param("an old leader", "cq", None, True, id="quota-that-is-given-back"),
        pytest.param("the leader", None, "cq", True, id="quota-in-time"),
        pytest.param("", None, "cq", True, id="no-field-manager"),
    ],
)
async def test_only_the_current_leader_may_reserve_quota(
    manager: str, before: str | None, after: str | None, allowed: bool
) -> None:
    def workload(queue: str | None) -> Tree:
        pod_set = {"name": "main", "count": 1, "template": job()["spec"]["template"]}
        tree: Tree = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}
        tree["spec"] = {"queueName": "lq", "podSets": [pod_set]}
        given = {"clusterQueue": queue, "podSetAssignments": [{"name": "main", "count": 1}]}
        return {**tree, "status": {"admission": given} if queue else {}}

    review = admission_review(workload(after), workload(before))
    review["request"] |= {"subResource": "status", "options": {"kind": "PatchOptions", "fieldManager": manager}}
    _, answer = await post(handler(), "/validate-kueue-x-k8s-io-v1beta2-workload", review)
    assert answer["response"]["allowed"] is allowed, answer
    if not allowed:
        assert answer["response"]["status"]["message"].startswith("an old leader is no longer the leader")


async def test_job_review_reads_namespace_and_default_objects() -> None:
    """The namespace and its default LocalQueue are read before the decision."""
    local_queue = {
        "apiVersion": GROUP,
        "kind": "LocalQueue",
        "metadata": {"name": "default", "namespace": "default"},
        "spec": {"clusterQueue": "cq"},
    }
    tree = job()
    _, answer = await post(handler(local_queue), "/mutate-batch-v1-job", admission_review(tree))
    made = patched(tree, answer["response"])
    assert made["metadata"]["labels"][QUEUE] == "default"
    assert made["spec"]["suspend"] is True
    local_queue["spec"]["stopPolicy"] = "Hold"  # type: ignore[index]
    _, answer = await post(handler(local_queue), "/mutate-batch-v1-job", admission_review(tree))
    assert patched(tree, answer["response"]) == tree


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/mutate-nothing", {}, 404),
        (MUTATE, b"{", 400),
        (MUTATE, {}, 400),
        (MUTATE, [], 400),
        (MUTATE, {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "a"}}, 400),
        (MUTATE, b" " * (limits.REVIEW_BYTES_MAX + 1), 413),
        (MUTATE, b"[" * 100_000, 400),
        ("/convert", {"request": {"uid": "a", "objects": "?"}}, 400),
    ],
)
async def test_malformed_review_gets_a_plain_text_error(path: str, body: object, code: int) -> None:
    answered, text = await post(handler(), path, body)
    assert answered == code
    assert len(text.splitlines()) == 1


# --- Bounds -----------------------------------------------------------------------------------------------------------

WORKLOAD = "/mutate-kueue-x-k8s-io-v1beta2-workload"


def workload(pod_sets: int) -> Tree:
    sets = [{"name": f"p{i}", "count": 1, "template": job()["spec"]["template"]} for i in range(pod_sets)]
    metadata = {"name": "w", "namespace": "default"}
    return {"apiVersion": GROUP, "kind": "Workload", "metadata": metadata, "spec": {"podSets": sets}}


@pytest.mark.parametrize("path", [WORKLOAD, WORKLOAD.replace("mutate", "validate")])
@pytest.mark.parametrize("is_old", [False, True])
async def test_absurdly_long_list_is_refused_by_its_length(path: str, is_old: bool) -> None:
    old, new = (workload(73), workload(1)) if is_old else (None, workload(73))
    code, answer = await post(handler(), path, admission_review(new, old))
    status = answer["response"]["status"]
    assert (code, answer["response"]["uid"], answer["response"]["allowed"]) == (200, "0b4a", False)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == "spec.podSets: Too many: 73: must have at most 18 items"
    assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.podSets"]


def test_absurdly_long_list_is_found_without_decoding_its_entries() -> None:
    encoded = b'{"apiVersion":"%s","kind":"Workload","spec":{"podSets":[%s]}}' % (
        GROUP.encode(),
        b",".join([b"1"] * 200),
    )
    found = limits.excess_in_json(encoded)
    assert found is not None
    assert found.value == 200


@pytest.mark.parametrize("phase", Phase)
def test_absurdly_long_list_is_refused_in_the_process_as_well(phase: Phase) -> None:
    """The embedded server asks for decisions without a wire between."""
    asked = AdmissionRequest(phase=phase, operation="CREATE", object=workload(73), namespace="default", name="w")
    refusal = review(asked, NO_FACTS, choices()).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == (422, "spec.podSets: Too many: 73: must have at most 18 items")


async def test_list_that_is_a_little_too_long_is_left_to_the_schema() -> None:
    _, answer = await post(handler(), WORKLOAD, admission_review(workload(19)))
    assert answer["response"]["allowed"] is True


async def test_conversion_of_too_many_objects_is_refused_by_their_number() -> None:
    review = conversion_review("kueue.x-k8s.io/v1beta1", *[cluster_queue()] * (limits.CONVERSIONS_MAX + 1))
    code, answer = await post(handler(), "/convert", review)
    assert (code, answer["response"]["convertedObjects"]) == (200, [])
    assert answer["response"]["result"]["status"] == "Failure"
    assert answer["response"]["result"]["message"].startswith("1001 objects in one review")


async def test_announced_size_is_refused_before_a_byte_is_read() -> None:
    async def read(limit: int) -> bytes:
        raise AssertionError("the body was read")

    size = {"content-length": str(limits.REVIEW_BYTES_MAX + 1)}
    answer = await handler()(http_messages.Request("POST", MUTATE, headers=size, read=read))
    assert answer.status == 413


class Stalled:
    """A request whose body does not come."""

    def __init__(self, size: int) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.request = http_messages.Request("POST", MUTATE, headers={"content-length": str(size)}, read=self._read)

    async def _read(self, limit: int) -> bytes:
        self.begun.set()
        await self.over.wait()
        return b"{"


async def test_large_reviews_in_flight_are_bounded_and_leave_capacity_for_ordinary_ones() -> None:
    serve, large = handler(), workers.LARGE_BYTES + 1
    stalled = [Stalled(large) for _ in range(workers.LARGE_MAX)]
    waiting = [asyncio.ensure_future(serve(each.request)) for each in stalled]
    for each in stalled:
        await each.begun.wait()
    refused = await serve(Stalled(large).request)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    unannounced, _ = await post(serve, MUTATE, admission_review(cluster_queue()))
    assert unannounced == 429
    ordinary = msgspec.json.encode(admission_review(cluster_queue()))
    size = {"content-length": str(len(ordinary))}
    answer = await serve(http_messages.Request("POST", MUTATE, headers=size, read=http_messages.body_of(ordinary)))
    assert answer.status == 200
    for each in stalled:
        each.over.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {400}
    code, _ = await post(serve, MUTATE, admission_review(cluster_queue()))
    assert code == 200


async def test_slow_ordinary_bodies_take_no_place_from_others() -> None:
    serve = handler()
    stalled = [Stalled(100) for _ in range(workers.ORDINARY_MAX + 1)]
    waiting = [asyncio.ensure_future(serve(each.request)) for each in stalled]
    for each in stalled:
        await each.begun.wait()
    ordinary = msgspec.json.encode(admission_review(cluster_queue()))
    size = {"content-length": str(len(ordinary))}
    answer = await serve(http_messages.Request("POST", MUTATE, headers=size, read=http_messages.body_of(ordinary)))
    assert answer.status == 200
    for each in stalled:
        each.over.set()
    await asyncio.gather(*waiting)


async def test_decisions_run_beside_the_event_loop() -> None:
    """A review that is being decided about does not keep the event loop from running."""
    lane = workers.WorkerPool("test", 1)
    begun, over = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert over.wait(60)
        return threading.current_thread().name

    running = asyncio.ensure_future(lane.run(work))
    while not begun.is_set():
        await asyncio.sleep(0)
    over.set()
    assert (await running).startswith("webhook-test")


async def test_reviews_are_posted() -> None:
    answer = await handler()(http_messages.Request("GET", MUTATE))
    assert answer.status == 405


async def test_failed_decision_refuses_one_write_and_no_other() -> None:
    class Broken(StoredObjects):
        async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
            raise ConnectionError("no answer")

    serve = review_handler.handler(choices(), Broken())
    _, answer = await post(serve, "/mutate-batch-v1-job", admission_review(job()))
    assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 500)
    assert "Job default/train" in answer["response"]["status"]["message"]
    _, answer = await post(serve, MUTATE, admission_review(cluster_queue()))
    assert answer["response"]["allowed"] is True


# --- Conversion -------------------------------------------------------------------------------------------------------


def conversion_review(wanted: str, *objects: Tree) -> Tree:
    request = {"uid": "77", "desiredAPIVersion": wanted, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


async def test_objects_are_converted_in_the_order_they_came() -> None:
    objects = [cluster_queue(name, cohortName=f"team-{name}") for name in ("a", "b")]
    _, answer = await post(handler(), "/convert", conversion_review("kueue.x-k8s.io/v1beta1", *objects))
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("77", {"status": "Success"})
    assert [one["spec"]["cohort"] for one in response["convertedObjects"]] == ["team-a", "team-b"]
    assert {one["apiVersion"] for one in response["convertedObjects"]} == {"kueue.x-k8s.io/v1beta1"}


async def test_with_one_object_that_cannot_be_converted_none_is() -> None:
    bad = {**cluster_queue(), "kind": "Widget"}
    _, answer = await post(handler(), "/convert", conversion_review("kueue.x-k8s.io/v1beta1", cluster_queue(), bad))
    response = answer["response"]
    assert response["convertedObjects"] == []
    assert response["result"]["status"] == "Failure"
    assert "Widget" in response["result"]["message"]
