"""An elastic Job that grows: its new pods wait at their gate until the larger slice is admitted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from controllers.conftest import Environment, template
from controllers.test_metrics import page
from controllers.test_refused_writes import managed
from kubemachinery.client.errors import ApiError, Unanswered
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.unstructured import get
from pykueue.api import topology_encoding
from pykueue.lifecycle import states


async def _create_job(env: Environment, parallelism: int, job_template: dict[str, Any] | None = None) -> None:
    await env.create(
        "Job",
        "grows",
        {"parallelism": parallelism, "completions": 9, "template": job_template or template("1")},
        labels={"kueue.x-k8s.io/queue-name": "lq"},
        annotations={"kueue.x-k8s.io/elastic-job": "true"},
    )


async def _until_started(env: Environment) -> None:
    async def is_started() -> bool:
        return get(await env.read("Job", "grows"), "spec", "suspend") is False

    await env.until(is_started)


async def _pod(env: Environment, name: str) -> None:
    """Play the Job controller: create a pod from the template of the Job."""
    made = get(await env.read("Job", "grows"), "spec", "template")
    marks = made.get("metadata") or {}
    await env.create(
        "Pod", name, made["spec"], labels=marks.get("labels") or {}, annotations=marks.get("annotations") or {}
    )


async def _gates(env: Environment, name: str) -> list[str]:
    return [gate["name"] for gate in get(await env.read("Pod", name), "spec", "schedulingGates") or []]


async def test_a_job_that_grows_gets_its_new_pods_with_its_new_slice(env: Environment) -> None:
    await env.queues(cpu="3")
    async with env.manager():
        await _create_job(env, 1)

        await _until_started(env)
        await _pod(env, "grows-1")
        assert await _gates(env, "grows-1")

        async def first_passed() -> bool:
            return not await _gates(env, "grows-1")

        await env.until(first_passed)
        await _pod(env, "grows-2")
        assert await _gates(env, "grows-2")  # one pod is admitted, and it runs
        await env.patch("Job", "grows", {"spec": {"parallelism": 2}})

        async def second_passed() -> bool:
            return not await _gates(env, "grows-2")

        await env.until(second_passed)
        held = [get(each, "status", "admission", "podSetAssignments")[0]["count"] for each in await _slices(env)]
        assert held == [2]


class SlowToShow:
    """Shows pods that were released only after `show`, with the next event of a pod."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.show = asyncio.Event()

    async def send(self, request: ApiRequest) -> ApiResponse:
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(request) as lines:
            yield self._slow(lines) if request.path.endswith("/pods") else lines

    async def _slow(self, lines: Lines) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        async for line in lines:
            if b'"type":"MODIFIED"' in line and b'"schedulingGates"' not in line:
                held.append(line)
            else:
                yield line
            while held and self.show.is_set():
                yield held.pop(0)

    async def close(self) -> None:
        await self._inner.close()


async def test_a_place_is_not_given_to_a_second_pod_before_the_watch_shows_the_first(env: Environment) -> None:
    transport = SlowToShow(env.transport())
    await env.queues(cpu="3")
    async with managed(env, transport) as manager:
        await _create_job(env, 1)

        await _until_started(env)
        await _pod(env, "grows-2")

        async def is_released() -> bool:
            return not await _gates(env, "grows-2")

        await env.until(is_released)
        await _pod(env, "grows-1")
        await env.until_quiet(manager, looks=50)
        assert await _gates(env, "grows-1")
        transport.show.set()
        await env.patch("Pod", "grows-1", {"metadata": {"labels": {"seen": "yes"}}})
        await env.until_quiet(manager, looks=50)
        assert await _gates(env, "grows-1")


async def test_pods_start_and_are_measured_after_the_first_slice_was_deleted(env: Environment) -> None:
    """Later pods are created from the template of the first slice, and name it."""
    measured = (
        'kueue_pod_scheduling_gate_removal_seconds_count{cluster_queue="cq",is_group="false",'
        'name="kueue.x-k8s.io/elastic-job",replica_role="standalone"}'
    )
    await env.queues(cpu="3")
    async with env.manager() as manager:
        await _create_job(env, 1)

        await _until_started(env)
        (first,) = [each["metadata"]["name"] for each in await env.all("Workload")]
        await env.patch("Job", "grows", {"spec": {"parallelism": 2}})
        await env.until_condition(first, "Finished", "True/WorkloadSliceReplaced")
        await env.delete("Workload", first)

        async def is_gone() -> bool:
            return await env.find("Workload", first) is None

        await env.until(is_gone)
        await _pod(env, "grows-1")

        async def passed() -> bool:
            return not await _gates(env, "grows-1")

        await env.until(passed)
        await env.until_quiet(manager)
        assert (await page(env))[measured] == 1


class DroppingTransport:
    """Drops the second reservation without an answer, once `drop` is set."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._reservations = 0
        self.sent = asyncio.Event()
        self.drop = asyncio.Event()

    async def send(self, request: ApiRequest) -> ApiResponse:
        self._reservations += request.method == "PATCH" and b'"admission"' in request.body
        if self._reservations == 2 and not self.sent.is_set():
            self.sent.set()
            await self.drop.wait()
            raise Unanswered("the connection broke")
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._inner.close()


async def test_a_slice_goes_on_if_the_larger_one_is_deactivated_before_it_has_quota(env: Environment) -> None:
    """The larger slice was admitted by the scheduler, and the write got no answer."""
    transport = DroppingTransport(env.transport())
    await env.queues(cpu="3")
    async with managed(env, transport) as manager:
        await _create_job(env, 1)

        await _until_started(env)
        (first,) = [each["metadata"]["name"] for each in await env.all("Workload")]
        await env.patch("Job", "grows", {"spec": {"parallelism": 2}})
        await transport.sent.wait()
        (second,) = [
            each["metadata"]["name"] for each in await env.all("Workload") if each["metadata"]["name"] != first
        ]
        await env.patch("Workload", second, {"spec": {"active": False}})

        async def is_read() -> bool:
            shown = manager.informers.workloads.get(second, "default")
            return shown is not None and not states.is_active(shown)

        await env.until(is_read)
        transport.drop.set()
        await env.until_quiet(manager, looks=50)
        assert await env.condition(first, "Finished") == ""
        assert await env.admitted() == [first]


async def test_a_job_that_is_preempted_while_a_larger_slice_waits_is_stopped(env: Environment) -> None:
    await env.queues(cpu="3", preemption={"withinClusterQueue": "LowerPriority"})
    async with env.manager() as manager:
        await _create_job(env, 2)

        await _until_started(env)
        await env.patch("Job", "grows", {"spec": {"parallelism": 4}})

        async def waits() -> bool:
            return len(await env.all("Workload")) == 2

        await env.until(waits)
        await env.workload("high", cpu="3", priority=9)
        await env.until_condition("high", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        assert get(await env.read("Job", "grows"), "spec", "suspend") is True


async def _slices(env: Environment) -> list[dict[str, object]]:
    """The slices that are not replaced."""
    names = await env.admitted()
    return [each for each in await env.all("Workload") if each["metadata"]["name"] in names]


# --- With a topology --------------------------------------------------------------------------------------------------

_HOST = "kubernetes.io/hostname"


async def _fleet(env: Environment, **cpus: str) -> None:
    """Nodes with so many cores, a topology over them, and the queues of its flavor."""
    for name, cpu in cpus.items():
        await env.create("Node", name, {}, labels={"pool": "tas", _HOST: name})
        ready = {"type": "Ready", "status": "True", "reason": "Fine"}
        await env.patch(
            "Node", name, {"status": {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [ready]}}, "status"
        )
        await env.patch("Node", name, {"spec": {"taints": None}})
    await env.create("Topology", "t", {"levels": [{"nodeLabel": _HOST}]})
    await env.create("ResourceFlavor", "tas", {"nodeLabels": {"pool": "tas"}, "topologyName": "t"})
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await env.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})


async def _placed_job(env: Environment, parallelism: int, topology: str, value: str) -> None:
    await _create_job(env, parallelism, {**template("1"), "metadata": {"annotations": {topology: value}}})


async def _node_of(env: Environment, name: str) -> str:
    """The node that a pod without gates is bound for."""
    pod = await env.read("Pod", name)
    found = get(pod, "spec", "nodeSelector", _HOST)
    return "" if get(pod, "spec", "schedulingGates") or not isinstance(found, str) else found


@pytest.mark.parametrize(
    ("gates", "grown"),
    [({"ElasticJobsViaWorkloadSlicesWithTAS": True}, ["n1", "n1", "n2"]), ({}, ["n2", "n2", "n2"])],
    ids=["with the gate", "without the gate"],
)
async def test_a_slice_that_grows_extends_the_placement_of_the_old_one(
    env: Environment, gates: dict[str, bool], grown: list[str]
) -> None:
    """Two pods run on n1, which is the only node at first. n2 has less capacity, and takes the third pod; without the gate
    it takes all three, two of which run elsewhere already."""
    await _fleet(env, n1="8")
    async with env.manager(featureGates=gates) as manager:
        await _placed_job(env, 2, "kueue.x-k8s.io/podset-unconstrained-topology", "true")

        await _until_started(env)
        for name in ("grows-1", "grows-2"):
            await _pod(env, name)
            await env.until(partial(_node_of, env, name))
        await env.create("Node", "n2", {}, labels={"pool": "tas", _HOST: "n2"})
        ready = {"type": "Ready", "status": "True", "reason": "Fine"}
        status = {"allocatable": {"cpu": "3", "pods": "10"}, "conditions": [ready]}
        await env.patch("Node", "n2", {"status": status}, "status")
        await env.patch("Node", "n2", {"spec": {"taints": None}})
        await env.until_quiet(manager)
        await env.patch("Job", "grows", {"spec": {"parallelism": 3}})

        async def is_replaced() -> bool:
            held = [get(each, "status", "admission", "podSetAssignments")[0]["count"] for each in await _slices(env)]
            return held == [3]

        await env.until(is_replaced)
        await env.until_quiet(manager)
        await _pod(env, "grows-3")  # after the larger slice was admitted: no news of a Workload will wake its gate
        await env.until(lambda: _node_of(env, "grows-3"))
        [held] = await _slices(env)
        assigned = get(held, "status", "admission", "podSetAssignments")[0]["topologyAssignment"]
        domains = topology_encoding.decode(assigned) or []
        assert sorted(domain.values[-1] for domain in domains for _ in range(domain.pods)) == grown
        pods = [await _node_of(env, f"grows-{number}") for number in (1, 2, 3)]
        assert pods == ["n1", "n1", "n2"]


@pytest.mark.parametrize("kind", ["required", "preferred"])
async def test_an_elastic_job_cannot_require_or_prefer_a_topology(env: Environment, kind: str) -> None:
    async with env.manager(featureGates={"ElasticJobsViaWorkloadSlicesWithTAS": True}):
        with pytest.raises(ApiError, match="is not supported for elastic jobs"):
            await _placed_job(env, 2, f"kueue.x-k8s.io/podset-{kind}-topology", _HOST)
