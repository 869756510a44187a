"""Kinds beside the jobs: objects that jobs refer to, objects that trigger them, and their CRDs that come later."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.conftest import Environment, environment
from controllers.operated import CRDS, OperatedJob, install
from jobs.batch_kind import A_PLAN, PLAN, ROW, STAGE, batch
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import Tree, get
from pykueue.jobs import kinds
from waiting import eventually

CHOSEN = {"integrations": {"frameworks": ["batch/job", ROW.framework]}}


@pytest.fixture(autouse=True)
def _installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind Batch is installed, as an entry point would do it."""
    monkeypatch.setattr(kinds, "load", lambda: kinds.JobKinds((*kinds.BUILT_IN, ROW)))


async def counts(job: OperatedJob) -> list[int]:
    return [pod_set["count"] for each in await job.workloads() for pod_set in each["spec"]["podSets"]]


async def plan_pods(env: Environment, pods: int) -> Tree:
    return await env.client.patch(PLAN, "three", {"spec": {"pods": pods}})


async def test_related_object_is_read_and_a_second_kind_triggers_the_job(tmp_path: Path) -> None:
    async with environment(tmp_path, **CHOSEN) as env:
        await install(env, (ROW.kind, PLAN, STAGE))
        await env.queues(cpu="1")  # nothing is admitted
        await env.client.create(PLAN, A_PLAN)
        async with env.manager(**CHOSEN) as manager:
            job = await OperatedJob.created(env, ROW.kind, batch(plan="three"))
            await env.until_condition(await job.workload(), "QuotaReserved", "False/ExceedsMaxQuota")
            await env.until_quiet(manager)
            assert await counts(job) == [3, 1]
            await plan_pods(env, 4)
            await env.until_quiet(manager)
            assert await counts(job) == [3, 1]  # a related object triggers nothing by itself
            owner = {
                "apiVersion": ROW.kind.api_version,
                "kind": ROW.kind.kind,
                "name": job.name,
                "uid": (await job.tree())["metadata"]["uid"],
                "controller": True,
            }
            metadata = {"name": "s", "namespace": "default", "ownerReferences": [owner]}
            await env.client.create(STAGE, {"apiVersion": STAGE.api_version, "kind": "Stage", "metadata": metadata})
            await eventually(lambda: _are(job, [4, 1]))


async def _are(job: OperatedJob, expected: list[int]) -> bool:
    return await counts(job) == expected


async def test_missing_second_kind_holds_up_nothing(tmp_path: Path) -> None:
    async with environment(tmp_path, **CHOSEN) as env:
        await install(env, (ROW.kind,))
        await env.queues(cpu="8")
        async with env.manager(**CHOSEN) as manager:
            job = await OperatedJob.created(env, ROW.kind, batch())  # refers to no Plan
            await job.until_suspended(("spec", "suspend"), False)
            assert 'pykueue_framework_waiting{framework="example.com/batch"' in manager.metrics.exposition().decode()
            with pytest.raises(ApiError, match="refers to Plan three, which does not exist"):
                await OperatedJob.created(env, ROW.kind, _named("second"))
            await install(env, (PLAN, STAGE))
            await env.client.create(PLAN, A_PLAN)
            second = await OperatedJob.created(env, ROW.kind, _named("second"))
            await second.workload()
            assert await counts(second) == [3, 1]


def _named(name: str) -> Tree:
    tree = batch(plan="three")
    return {**tree, "metadata": {**tree["metadata"], "name": name}}


async def test_job_waits_for_a_required_object_that_was_deleted(tmp_path: Path) -> None:
    """Admitted, but not started: its pod sets cannot be built."""
    async with environment(tmp_path, **CHOSEN) as env:
        await install(env, (ROW.kind, PLAN, STAGE))
        await env.queues(cpu="8")
        await env.client.create(PLAN, A_PLAN)
        job = await OperatedJob.created(env, ROW.kind, batch(plan="three"))
        await env.client.delete(PLAN, "three", "")
        async with env.manager(**CHOSEN):
            await eventually(lambda: _has_event(env, "ErrWorkloadCompose"))
            assert await job.workloads() == []
            await env.client.create(PLAN, A_PLAN)
            await job.until_suspended(("spec", "suspend"), False)


async def _has_event(env: Environment, reason: str) -> bool:
    return reason in [get(event, "reason") for event in await env.all("Event")]


async def _serve(env: Environment, served: bool) -> None:
    """An upgrade of an operator removes a version of its kind; its objects are still stored."""
    found = await env.client.get(CRDS, ROW.kind.name)
    (version, *_) = found["spec"]["versions"]
    other = {**version, "name": "v9", "served": True, "storage": True}
    versions = [{**version, "served": served, "storage": False}, other]
    await env.client.patch(CRDS, ROW.kind.name, {"spec": {"versions": versions}})


async def test_workloads_of_a_kind_that_is_not_served_stay_as_they_are(tmp_path: Path) -> None:
    """Their jobs may run: only the version that the manager reads is gone."""
    async with environment(tmp_path, **CHOSEN) as env:
        await install(env, (ROW.kind, PLAN, STAGE))
        await env.queues(cpu="9")
        jobs: dict[str, str] = {}
        async with env.manager(**CHOSEN):
            for name in ("runs", "unwanted"):
                job = await OperatedJob.created(
                    env, ROW.kind, {**batch(), "metadata": {**batch()["metadata"], "name": name}}
                )
                jobs[name] = await job.workload()
                await env.until_condition(jobs[name], "Admitted", "True/Admitted")
        await _serve(env, False)
        async with env.manager(**CHOSEN) as manager:
            await env.delete("Workload", jobs["unwanted"])
            await eventually(lambda: _is_gone(env, jobs["unwanted"]))
            await env.until_quiet(manager)
            assert await env.condition(jobs["runs"], "Finished") == ""
            assert await env.admitted() == [jobs["runs"]]


async def test_workloads_of_jobs_that_are_deleted_with_their_kind_are_finished(tmp_path: Path) -> None:
    async with environment(tmp_path, **CHOSEN) as env:
        await install(env, (ROW.kind, PLAN, STAGE))
        await env.queues(cpu="9")
        async with env.manager(**CHOSEN):
            job = await OperatedJob.created(env, ROW.kind, batch())
            workload = await job.workload()
            await env.until_condition(workload, "Admitted", "True/Admitted")
            await env.client.delete(CRDS, ROW.kind.name)
            await eventually(lambda: _is_over(env, workload))


async def _is_gone(env: Environment, workload: str) -> bool:
    return await env.find("Workload", workload) is None


async def _is_over(env: Environment, workload: str) -> bool:
    found = await env.find("Workload", workload)
    return found is None or await env.condition(workload, "Finished") == "True/OwnerNotFound"
