"""Deployments, StatefulSets and CronJobs on the embedded server: queued by the manager, run by the simulated runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from kubemachinery.kinds import Kind
from kubemachinery.meta import HOUR
from kubemachinery.unstructured import get
from pykueue.api import labels
from pykueue.runner import cron_job, deployment, stateful_set
from pykueue.runner.controllers import JOBS, PODS
from pykueue.runner.simulated_executor import SECONDS
from pykueue.testing.virtual_loop import VirtualClock, VirtualLoop
from runner.conftest import System, Tree, system

INTEGRATIONS = {"frameworks": ["batch/job", "deployment", "statefulset"]}
QUEUED = {labels.QUEUE_NAME: "lq"}


def played(folder: Path, scenario: Callable[[System], Awaitable[Any]], *, queues: bool = True) -> Any:
    """Run a scenario on a virtual clock, with a queue `lq` of three cores."""

    async def run() -> Any:
        clock = VirtualClock(asyncio.get_running_loop())
        async with system(folder, "simulated", clock, integrations=INTEGRATIONS) as here:
            if queues:
                await _queues(here)
            return await scenario(here)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


async def _queues(here: System) -> None:
    await here.create("ResourceFlavor", "plain", spec={})
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "3"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    await here.create("ClusterQueue", "cq", spec={"namespaceSelector": {}, "resourceGroups": [group]})
    await here.create("LocalQueue", "lq", spec={"clusterQueue": "cq"})


def _template(image: str = "a:1", seconds: str = "1000000") -> Tree:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"labels": {"app": "web"}, "annotations": {SECONDS: seconds}},
        "spec": {"containers": [container]},
    }


async def _create(here: System, kind: Kind, spec: Tree, marks: dict[str, str] = QUEUED) -> Tree:
    metadata = {"name": "web", "namespace": "default", "labels": marks}
    tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return await here.client.create(kind, tree)


async def _patch(here: System, kind: Kind, spec: Tree) -> None:
    await here.client.patch(kind, "web", {"spec": spec}, "default")


def _service(replicas: int, **more: Any) -> Tree:
    return {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": _template(), **more}


async def _until_ready(here: System, kind: Kind, count: int, *, updated: bool = False) -> Tree:
    async def is_ready() -> Tree | None:
        found = await here.client.get(kind, "web", "default")
        ready = get(found, "status", "readyReplicas") or 0
        current = get(found, "status", "observedGeneration") == get(found, "metadata", "generation")
        fresh = not updated or (get(found, "status", "updatedReplicas") or 0) == count
        total = get(found, "status", "replicas") or 0
        return found if current and fresh and ready == total == count else None

    found: Tree = await here.until(is_ready)
    return found


def test_queued_stateful_set_runs_ends_and_runs_again(tmp_path: Path) -> None:
    async def scenario(here: System) -> list[Any]:
        await _create(here, stateful_set.KIND, _service(2, serviceName="web"))
        await _until_ready(here, stateful_set.KIND, 2)
        (workload,) = await here.all("Workload")
        counts = [get(workload, "status", "admission", "podSetAssignments")[0]["count"]]
        await _patch(here, stateful_set.KIND, {"replicas": 0})
        await _until_ready(here, stateful_set.KIND, 0)

        async def may_grow() -> bool:
            (found,) = await here.all("Workload")
            held = [each["reason"] for each in get(found, "status", "conditions") if each["type"] == "QuotaReserved"]
            return held == ["OnHold"]

        await here.until(may_grow)
        await _patch(here, stateful_set.KIND, {"replicas": 3})
        await _until_ready(here, stateful_set.KIND, 3)
        (workload,) = await here.all("Workload")
        return [*counts, get(workload, "status", "admission", "podSetAssignments")[0]["count"]]

    assert played(tmp_path, scenario) == [2, 3]


def test_evicted_stateful_set_gets_other_pods_and_runs_them_when_admitted_again(tmp_path: Path) -> None:
    async def scenario(here: System) -> tuple[set[str], set[str]]:
        await _create(here, stateful_set.KIND, _service(2, serviceName="web"))
        await _until_ready(here, stateful_set.KIND, 2)
        before = {get(pod, "metadata", "uid") for pod in await here.all("Pod")}
        (workload,) = await here.all("Workload")
        name = get(workload, "metadata", "name")
        await here.patch("Workload", name, {"spec": {"active": False}})

        async def waits() -> bool:
            pods = await here.all("Pod")
            return [get(pod, "metadata", "name") for pod in pods if get(pod, "spec", "schedulingGates")] == ["web-0"]

        await here.until(waits)
        await here.patch("Workload", name, {"spec": {"active": True}})
        await _until_ready(here, stateful_set.KIND, 2)
        return before, {get(pod, "metadata", "uid") for pod in await here.all("Pod")}

    before, after = played(tmp_path, scenario)
    assert len(before) == len(after) == 2
    assert not before & after


def test_queued_deployment_runs_as_far_as_its_quota_and_is_rolled_out(tmp_path: Path) -> None:
    async def scenario(here: System) -> tuple[int, list[str]]:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        await _create(here, deployment.KIND, _service(4, strategy=strategy))

        async def three_run() -> bool:
            pods = await here.all("Pod")
            return len(pods) == 4 and sum(get(pod, "status", "phase") == "Running" for pod in pods) == 3

        await here.until(three_run)
        waiting = sum(bool(get(pod, "spec", "schedulingGates")) for pod in await here.all("Pod"))
        await _patch(here, deployment.KIND, {"replicas": 3, "template": _template("a:2")})
        await _until_ready(here, deployment.KIND, 3, updated=True)
        images = [get(pod, "spec", "containers")[0]["image"] for pod in await here.all("Pod")]
        return waiting, images

    assert played(tmp_path, scenario) == (1, ["a:2", "a:2", "a:2"])


def test_cron_job_creates_jobs_that_are_queued_and_end(tmp_path: Path) -> None:
    async def scenario(here: System) -> tuple[int, bool]:
        template = {"spec": {**_template(seconds="5")["spec"], "restartPolicy": "Never"}}
        job = {"metadata": {"labels": QUEUED}, "spec": {"template": template}}
        await _create(here, cron_job.KIND, {"schedule": "*/10 * * * *", "jobTemplate": job}, {})

        async def two_ended() -> bool:
            jobs = await here.all("Job")
            return sum(bool(get(each, "status", "completionTime")) for each in jobs) == 2

        await here.until(two_ended)
        found = await here.client.get(cron_job.KIND, "web", "default")
        return len(await here.all("Workload")), bool(get(found, "status", "lastSuccessfulTime"))

    assert played(tmp_path, scenario) == (2, True)


def test_deployment_without_a_queue_runs_at_once(tmp_path: Path) -> None:
    async def scenario(here: System) -> int:
        await _create(here, deployment.KIND, _service(2), {})
        await _until_ready(here, deployment.KIND, 2)
        await here.client.delete(deployment.KIND, "web", "default")

        async def is_gone() -> bool:
            return not await here.all("Pod")

        await here.until(is_gone)
        return len(await here.all("Workload"))

    assert played(tmp_path, scenario, queues=False) == 0


def test_stateful_set_waits_for_the_end_of_a_pod_that_has_a_name_of_its_own(tmp_path: Path) -> None:
    """A pod that an orphaning deletion left behind has no owner, so that its end is no event of the set."""

    async def scenario(here: System) -> tuple[list[Tree], Tree]:
        template = _template()
        metadata = {"name": "web-0", "namespace": "default"} | template["metadata"]
        await here.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )
        await _create(here, stateful_set.KIND, _service(1), {})

        async def reported() -> list[Tree] | None:
            return [each for each in await here.all("Event") if each["reason"] == "FailedCreate"] or None

        events: list[Tree] = await here.until(reported)
        await here.client.delete(PODS, "web-0", "default")
        return events, await _until_ready(here, stateful_set.KIND, 1)

    (event,), _ = played(tmp_path, scenario, queues=False)
    assert event["note"] == (
        "Pod web-0 exists, and this StatefulSet does not control it; it is created when that one is gone"
    )


def test_timers_of_the_runner_are_evaluated_again_when_the_clock_is_set(tmp_path: Path) -> None:
    """A machine that was suspended for a night starts the CronJob of the night, and deletes what has expired [CS1]."""

    async def scenario(here: System, clock: VirtualClock) -> tuple[list[str], list[str]]:
        job: Tree = {"ttlSecondsAfterFinished": 3600, "template": _template(seconds="1")}
        job["template"]["spec"]["restartPolicy"] = "Never"
        await here.create("Job", "done", spec=job)
        hour = (clock.now() // HOUR + 2) % 24
        spec = {"schedule": f"0 {hour} * * *", "jobTemplate": {"spec": {**job, "ttlSecondsAfterFinished": None}}}
        await _create(here, cron_job.KIND, spec, {})
        await asyncio.sleep(60)
        before = await _names(here)
        clock.wrong_by_seconds = 8 * 3600
        await asyncio.sleep(30)
        return before, await _names(here)

    async def run() -> tuple[list[str], list[str]]:
        clock = VirtualClock(asyncio.get_running_loop())
        async with system(tmp_path, "simulated", clock) as here:
            return await scenario(here, clock)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        before, after = runner.run(run())
    assert before == ["done"]
    assert [name.rpartition("-")[0] for name in after] == ["web"]


async def _names(here: System) -> list[str]:
    found = (msgspec.json.decode(item) for item in (await here.client.list(JOBS)).items)
    return [each["metadata"]["name"] for each in found]
