"""The visibility API: positions in a queue alone, then through a whole system."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controllers.conftest import Environment, environment
from kubemachinery import meta
from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import Request
from kubemachinery.serving import aggregated_api
from kubeserver.protocol import authentication
from pykueue import settings
from pykueue.api import kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager
from pykueue.controllers.visibility import rows
from pykueue.core.decision import Requeue
from pykueue.core.workload import PodSetResources, WorkloadInfo, WorkloadShape
from pykueue.observe import visibility
from pykueue.state.pending_queue import PendingQueue

Tree = dict[str, Any]

SHAPE = WorkloadShape((PodSetResources("main", 1, 1, (("cpu", 1000),)),))
VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def waiting(
    key: str, *, priority: int = 0, since: int = 0, queue: str = "lq", until: int | None = None
) -> WorkloadInfo:
    return WorkloadInfo(
        key=key,
        uid=key,
        shape=SHAPE,
        local_queue=queue,
        cluster_queue="cq",
        priority=priority,
        created=since,
        queue_time=since,
        generation=1,
        back_off_until=until,
    )


def queue_of(*workloads: WorkloadInfo) -> PendingQueue:
    queue = PendingQueue("cq")
    for workload in workloads:
        queue.put(workload, 0)
    return queue


def names(places: Iterable[visibility.QueuePosition]) -> list[str]:
    return [place.key.partition("/")[2] for place in places]


class TestOrder:
    def test_priority_then_age_then_uid(self) -> None:
        queue = queue_of(
            waiting("n/d", since=2),
            waiting("n/c", since=1),
            waiting("n/b", since=1),
            waiting("n/a", priority=1, since=9),
        )
        assert names(visibility.in_cluster_queue(queue)) == ["a", "b", "c", "d"]

    def test_inadmissible_and_in_flight_workloads_have_positions_and_backoff_has_none(
        self,
    ) -> None:
        queue = queue_of(*(waiting(f"n/{name}", priority=-since) for since, name in enumerate("abcd")))
        queue.put(waiting("n/e", priority=-9, until=1000), 0)
        first = queue.pop()
        assert first is not None
        queue.requeue(first, Requeue.NO_FIT, QuotaReservedReason.WAITING_FOR_QUOTA, 0, parks_class=False)
        queue.pop()
        assert (len(list(queue.parked())), len(queue.in_flight)) == (2, 1)
        assert names(visibility.in_cluster_queue(queue)) == ["a", "b", "c", "d"]
        queue.wake(1000)
        assert names(visibility.in_cluster_queue(queue)) == ["a", "b", "c", "d", "e"]

    def test_workload_in_backoff_has_a_position_again_after_a_change(self) -> None:
        queue = queue_of(waiting("n/a"))
        queue.put(waiting("n/b", until=1000), 0)
        assert queue.pending_count == 1
        queue.put(waiting("n/b", priority=7, until=1000), 0)
        assert queue.pending_count == 1  # read again, for whatever reason
        queue.count("n/b")
        assert queue.pending_count == 2
        assert names(visibility.in_cluster_queue(queue)) == ["b", "a"]
        assert list(queue.active()) == [queue.get("n/a")]

    def test_preemptor_waiting_for_its_targets_comes_first(self) -> None:
        queue = queue_of(waiting("n/a", priority=1), waiting("n/b"))
        evictor = queue.pop()
        assert evictor is not None
        queue.requeue(evictor, Requeue.PENDING_PREEMPTION, QuotaReservedReason.WAITING_FOR_PREEMPTED_WORKLOADS, 0)
        queue.put(waiting("n/z", priority=7), 0)
        assert names(visibility.in_cluster_queue(queue)) == ["a", "z", "b"]

    def test_admission_fair_sharing_usage_orders_first(self) -> None:
        queue = queue_of(waiting("n/a", priority=9, queue="greedy"), waiting("n/b", queue="modest"))
        queue.configure({"n/greedy": 5.0, "n/modest": 0.5}.__getitem__, queue.strategy)
        assert names(visibility.in_cluster_queue(queue)) == ["b", "a"]

    def test_positions_count_per_cluster_queue_and_per_local_queue(self) -> None:
        """LocalQueues of one name in two namespaces are two."""
        keys = ["one/a", "two/b", "one/c", "one/d", "two/e"]
        queue = queue_of(*(waiting(key, since=age) for age, key in enumerate(keys)))
        queue.put(waiting("one/x", since=2, queue="other"), 0)
        places = list(visibility.in_cluster_queue(queue))
        assert [(place.key, place.in_cluster_queue, place.in_local_queue) for place in places] == [
            ("one/a", 0, 0),
            ("two/b", 1, 0),
            ("one/c", 2, 1),
            ("one/x", 3, 0),
            ("one/d", 4, 2),
            ("two/e", 5, 1),
        ]
        assert list(visibility.in_local_queue(queue, "two", "lq")) == [places[1], places[5]]
        assert not list(visibility.in_local_queue(queue, "two", "other"))


class TestSummary:
    def test_summary_has_identity_and_owner_only(self) -> None:
        owner = meta.OwnerReference("batch/v1", "Job", "j", "u-1", controller=True, block_owner_deletion=True)
        workload = kueue.Workload(
            metadata=meta.ObjectMeta(
                name="w",
                namespace="n",
                uid="u",
                labels={"secret": "x"},
                creation_timestamp="2026-01-01T00:00:00Z",
                owner_references=(owner,),
            ),
            spec=kueue.WorkloadSpec(queue_name="lq", priority=None),
        )
        assert visibility.summary([visibility.QueuePosition("n/w", "n/lq", 4, 0)], lambda key: workload) == {
            "metadata": {},
            "items": [
                {
                    "metadata": {
                        "name": "w",
                        "namespace": "n",
                        "creationTimestamp": "2026-01-01T00:00:00Z",
                        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1"}],
                    },
                    "priority": 0,
                    "localQueueName": "lq",
                    "positionInClusterQueue": 4,
                    "positionInLocalQueue": 0,
                }
            ],
        }

    def test_deleted_workload_leaves_a_gap(self) -> None:
        there = kueue.Workload(metadata=meta.ObjectMeta(name="b", namespace="n"))
        places = visibility.in_cluster_queue(queue_of(waiting("n/a"), waiting("n/b", since=1)))
        (item,) = visibility.summary(places, {"n/b": there}.get)["items"]
        assert item["positionInClusterQueue"] == 1

    def test_empty_list_is_returned(self) -> None:
        assert visibility.summary([], lambda key: None) == {"metadata": {}, "items": []}


class TestApiServices:
    def test_each_version_is_registered_with_low_priority(self) -> None:
        services = visibility.api_services(visibility.GROUP_VERSIONS, "kueue-system")
        assert [one["metadata"]["name"] for one in services] == [
            "v1beta2.visibility.kueue.x-k8s.io",
            "v1beta1.visibility.kueue.x-k8s.io",
        ]
        assert all(one["spec"]["groupPriorityMinimum"] < 1000 for one in services), "1000 is what CRDs have"
        assert not any("insecureSkipTLSVerify" in one["spec"] for one in services)
        assert all(
            one["spec"]["insecureSkipTLSVerify"]
            for one in visibility.api_services(visibility.GROUP_VERSIONS, "n", blindly=True)
        )

    def test_with_a_ca_certificates_are_verified(self) -> None:
        for one in visibility.api_services(visibility.GROUP_VERSIONS, "kueue-system", ca=b"CA", blindly=True):
            assert one["spec"]["caBundle"] == "Q0E="
            assert "insecureSkipTLSVerify" not in one["spec"]


# --- Through a whole system -------------------------------------------------------------------------------------------


@asynccontextmanager
async def crowded(data_dir: Path, **configuration: Any) -> AsyncIterator[Environment]:
    """One core, which `busy` has; then five Workloads, each less important than the one before."""
    async with environment(data_dir, **configuration) as env, env.manager(**configuration) as manager:
        await env.queues("1")
        await env.workload("busy", priority=100)
        await env.until_condition("busy", "Admitted", "True/Admitted")
        for number in range(5):
            await env.workload(f"w{number}", priority=10 - number)
        for number in range(5):
            await env.until_condition(f"w{number}", "QuotaReserved", "False/WaitingForQuota")
        await env.until_quiet(manager)
        yield env


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    async with crowded(tmp_path) as env:
        yield env


async def ask(env: Environment, queue: str, version: str = "v1beta2", **query: int | str) -> tuple[int, Tree]:
    path = f"/apis/{visibility.GROUP}/{version}/{queue}/pendingworkloads"
    request = Request("GET", path, [(name, str(value)) for name, value in query.items()])
    answer = await env.serving.embedded.server.handle_as(authentication.ADMIN, request)
    return answer.status, json.loads(answer.body)


async def shown(env: Environment, queue: str = "clusterqueues/cq", **query: Any) -> list[str]:
    code, found = await ask(env, queue, **query)
    assert code == 200, found
    return [item["metadata"]["name"] for item in found["items"]]


LOCAL = "namespaces/default/localqueues/lq"


@VERSIONS
@pytest.mark.parametrize("queue", ["clusterqueues/cq", LOCAL])
async def test_both_lists_are_served_in_both_versions(env: Environment, queue: str, version: str) -> None:
    code, found = await ask(env, queue, version)
    assert (code, found["kind"], found["apiVersion"]) == (200, visibility.KIND, f"{visibility.GROUP}/{version}")
    assert [item["positionInClusterQueue"] for item in found["items"]] == [0, 1, 2, 3, 4]
    assert [item["priority"] for item in found["items"]] == [10, 9, 8, 7, 6]


@pytest.mark.parametrize("queue", ["clusterqueues/cq", LOCAL])
async def test_offset_and_limit_cut_a_page(env: Environment, queue: str) -> None:
    assert await shown(env, queue, limit=2) == ["w0", "w1"]
    assert await shown(env, queue, offset=3) == ["w3", "w4"]
    assert await shown(env, queue, offset=1, limit=2) == ["w1", "w2"]
    assert await shown(env, queue, offset=9) == []
    assert await shown(env, queue, offset="9" * 18, limit="9" * 18) == []
    assert await shown(env, queue, limit=0) == ["w0", "w1", "w2", "w3", "w4"]
    assert await shown(env, queue, limit=-1) == []
    assert await shown(env, queue, offset=-5, limit=1) == ["w0"]
    code, refused = await ask(env, queue, limit="all")
    assert (code, refused["kind"], refused["reason"]) == (400, "Status", "BadRequest")


@pytest.mark.parametrize(
    "queue", ["clusterqueues/nope", "namespaces/default/localqueues/nope", "namespaces/nope/localqueues/lq"]
)
async def test_a_queue_that_does_not_exist_is_not_found(env: Environment, queue: str) -> None:
    code, refused = await ask(env, queue)
    assert (code, refused["kind"], refused["reason"]) == (404, "Status", "NotFound")


async def test_held_local_queue_is_not_found_and_its_workloads_are_not_listed(env: Environment) -> None:
    await env.patch("LocalQueue", "lq", {"spec": {"stopPolicy": "Hold"}})

    async def is_empty() -> bool:
        return await shown(env) == []

    await env.until(is_empty)
    assert (await ask(env, LOCAL))[0] == 404


async def test_local_queue_without_a_cluster_queue_has_no_workloads(env: Environment) -> None:
    await env.create("LocalQueue", "lost", {"clusterQueue": "nope"})

    async def is_known() -> bool:
        return (await ask(env, "namespaces/default/localqueues/lost"))[0] == 200

    await env.until(is_known)
    assert await shown(env, "namespaces/default/localqueues/lost") == []


async def test_deactivated_or_admitted_workloads_are_not_listed(env: Environment) -> None:
    await env.patch("Workload", "w0", {"spec": {"active": False}})
    await env.finish("busy")
    await env.until_condition("w1", "Admitted", "True/Admitted")
    assert await shown(env) == ["w2", "w3", "w4"]


async def test_without_the_gate_the_group_is_not_served(tmp_path: Path) -> None:
    gates = {"VisibilityOnDemand": False}
    async with environment(tmp_path, featureGates=gates) as env, env.manager(featureGates=gates):
        await env.queues("1")
        assert (await ask(env, "clusterqueues/cq"))[0] == 404
        answer = await env.serving.embedded.server.handle_as(authentication.ADMIN, Request("GET", "/apis"))
        assert visibility.GROUP not in answer.body.decode()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
async def test_kubectl_reads_it_and_still_finds_the_objects(env: Environment, tmp_path: Path) -> None:
    """The group has `clusterqueues` too: without a group, they mean the objects all the same."""

    async def kubectl(*arguments: str) -> str:
        where = ("--kubeconfig", str(env.serving.kubeconfig), "--cache-dir", str(tmp_path / "cache"))
        process = await asyncio.create_subprocess_exec("kubectl", *where, *arguments, stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode()

    path = f"/apis/{visibility.GROUP}/v1beta2/clusterqueues/cq/pendingworkloads?limit=1"
    assert json.loads(await kubectl("get", "--raw", path))["items"][0]["metadata"]["name"] == "w0"
    assert "clusterqueue.kueue.x-k8s.io/cq" in await kubectl("get", "clusterqueues", "-o", "name")
    assert "localqueue.kueue.x-k8s.io/lq" in await kubectl("get", "localqueue", "-o", "name")


async def test_follower_serves_the_same_list(env: Environment) -> None:
    """It reads everything that the leader reads, and decides nothing."""
    follower = Manager(env.client, manager_options(settings.defaults()), SystemClock(), random.Random(1))

    async def allow_all(request: Request, address: object) -> None:
        return None

    async with follower.reading():
        handler = aggregated_api.handler(rows(follower.world, follower.informers), allow_all)
        for queue in ("clusterqueues/cq", LOCAL):
            path = f"/apis/{visibility.GROUP}/v1beta2/{queue}/pendingworkloads"
            answer = await handler(Request("GET", path))
            assert json.loads(answer.body) == (await ask(env, queue))[1]
