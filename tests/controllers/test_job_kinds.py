"""Every kind with a suspend field on the embedded server, from creation through a preemption to its end. The test
writes the status that the operator of the kind would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.conftest import Environment, environment
from controllers.operated import CRDS, OperatedJob, crd, install
from jobs.job_harness import KINDS
from jobs.samples import SAMPLES
from jobs.samples.jobset import job_set
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree, get
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.interface import GenericJob
from waiting import eventually

ROWS = [row for row in KINDS if row.implementation is not None and "." in row.kind.group and not row.is_pod_parent]
JOB_SET = next(row for row in ROWS if row.kind.kind == "JobSet")
QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}
PREEMPTION = {"withinClusterQueue": "LowerPriority"}
FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", *(row.framework for row in ROWS)]}}
GATES = {row.required_gate: True for row in ROWS if row.required_gate}
EVERYTHING = {**FRAMEWORKS, **({"featureGates": GATES} if GATES else {})}


async def queues(env: Environment) -> None:
    """A LocalQueue `lq` with 8 cores and memory that is never short."""
    amounts = {"cpu": "8", "memory": "1Ti"}
    quota = {"name": "plain", "resources": [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]}
    group = {"coveredResources": list(amounts), "flavors": [quota]}
    await env.create("ResourceFlavor", "plain", {})
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": PREEMPTION}
    await env.create("ClusterQueue", "cq", spec)
    await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})


async def create_related(env: Environment, row: JobIntegration) -> None:
    kinds = {(kind.group, kind.kind): kind for kind in row.reads}
    for tree in SAMPLES[row.framework].related:
        kind = kinds[tree["apiVersion"].rpartition("/")[0], tree["kind"]]
        place = {"namespace": "default"} if kind.namespaced else {}
        await env.client.create(kind, {**tree, "metadata": {"name": tree["metadata"]["name"], **place}})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.framework)
async def test_job_is_queued_preempted_resumed_and_finished(row: JobIntegration, tmp_path: Path) -> None:
    sample, implementation = SAMPLES[row.framework], row.implementation_type
    assert implementation is not None
    assert issubclass(implementation, GenericJob)
    path = implementation.suspend_path
    async with environment(tmp_path, **EVERYTHING) as env:
        await install(env, (row.kind, *row.second_kinds))
        await create_related(env, row)
        await env.create_class("urgent", 100)
        await queues(env)
        manifest = _without(sample.job(), path)
        job = await OperatedJob.created(env, row.kind, manifest)
        assert get(await job.tree(), *path) is True
        async with env.manager(**EVERYTHING):
            await job.until_suspended(path, False)
            await job.status(sample.running)
            workload = await job.workload()
            await env.create(
                "Job", "urgent", _eight_cores(), labels={**QUEUE, "kueue.x-k8s.io/priority-class": "urgent"}
            )
            await job.until_suspended(path, True)
            await job.status(sample.stopped)
            await env.until_condition(workload, "QuotaReserved", "False/WaitingForQuota")
            await env.delete("Job", "urgent")
            await job.until_suspended(path, False)
            assert await job.workload() == workload
            await job.status(sample.running)
            if sample.succeeded is not None:
                await job.status(sample.succeeded)
                await env.until_condition(workload, "Finished", "True/Succeeded")


def _without(tree: Tree, path: tuple[str, ...]) -> Tree:
    head, *rest = path
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return {**tree, head: _without(tree[head], tuple(rest))}


def _eight_cores() -> Tree:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "8"}}}
    return {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}


# --- A CRD that is installed later ------------------------------------------------------------------------------------


async def test_missing_crd_holds_up_nothing_and_is_picked_up_when_it_arrives(tmp_path: Path) -> None:
    only = {"integrations": {"frameworks": ["batch/job", JOB_SET.framework]}}
    async with environment(tmp_path, **only) as env:
        await env.queues(cpu="8")
        async with env.manager(**only) as manager:
            await env.job("first")
            await env.until(lambda: _has_started(env, "first"))
            assert _waiting(manager.metrics.exposition().decode(), JOB_SET.framework) == 1.0
            assert await _events(env, JOB_SET.kind) == ["JobKindNotServed"]
            await env.client.create(CRDS, crd(JOB_SET.kind))
            job = await OperatedJob.created(env, JOB_SET.kind, job_set("late"))
            await job.until_suspended(("spec", "suspend"), False)
            assert _waiting(manager.metrics.exposition().decode(), JOB_SET.framework) == 0.0
            await eventually(lambda: _has_event(env, JOB_SET.kind, "JobKindServed"))


async def _has_started(env: Environment, name: str) -> bool:
    return not get(await env.read("Job", name), "spec", "suspend")


def _waiting(exposition: str, framework: str) -> float:
    lines = [line for line in exposition.splitlines() if line.startswith("pykueue_framework_waiting{")]
    (line,) = [line for line in lines if f'framework="{framework}"' in line]
    return float(line.rpartition(" ")[2])


async def _events(env: Environment, kind: Kind) -> list[str]:
    await eventually(lambda: _has_event(env, kind, "JobKindNotServed"))
    return await _reasons(env, kind)


async def _has_event(env: Environment, kind: Kind, reason: str) -> bool:
    return reason in await _reasons(env, kind)


async def _reasons(env: Environment, kind: Kind) -> list[str]:
    return [each["reason"] for each in await env.all("Event") if _regarding(each) == kind.name]


def _regarding(event: Tree) -> str:
    return str(get(event, "regarding", "name") or get(event, "involvedObject", "name"))


# --- Children ---------------------------------------------------------------------------------------------------------


async def test_job_of_a_job_set_has_no_workload_and_is_suspended_with_it(tmp_path: Path) -> None:
    """A Job that the JobSet controller created is a child, whether or not it has a queue name [JF27]."""
    async with environment(tmp_path, **EVERYTHING) as env:
        await install(env, (JOB_SET.kind,))
        await env.queues(cpu="1")  # too little for the JobSet
        async with env.manager(**EVERYTHING) as manager:
            parent = await OperatedJob.created(env, JOB_SET.kind, job_set())
            workload = await parent.workload()
            await env.until_condition(workload, "QuotaReserved", "False/ExceedsMaxQuota")
            owner = {
                "apiVersion": JOB_SET.kind.api_version,
                "kind": "JobSet",
                "name": "pair",
                "uid": (await parent.tree())["metadata"]["uid"],
                "controller": True,
            }
            spec = _eight_cores()
            await env.create("Job", "pair-driver-0", spec, labels=QUEUE, ownerReferences=[owner])
            await env.until(lambda: _is_suspended(env, "pair-driver-0"))
            await env.until_quiet(manager)
            assert [each["metadata"]["name"] for each in await env.all("Workload")] == [workload]


async def _is_suspended(env: Environment, name: str) -> bool:
    return bool(get(await env.read("Job", name), "spec", "suspend"))


async def test_deleted_job_set_releases_its_quota(tmp_path: Path) -> None:
    async with environment(tmp_path, **EVERYTHING) as env:
        await install(env, (JOB_SET.kind,))
        await env.queues(cpu="8")
        async with env.manager(**EVERYTHING):
            job = await OperatedJob.created(env, JOB_SET.kind, job_set())
            await job.until_suspended(("spec", "suspend"), False)
            await job.delete()
            await env.until(lambda: _holds_nothing(env))


async def _holds_nothing(env: Environment) -> bool:
    return not await env.admitted()
