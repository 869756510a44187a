"""Concurrent admission: a Job is tried on every flavor of its ClusterQueue at once, and may move to a better one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keps.engines import Embedded
from keps.system import System, Tree, gates, system
from kubemachinery.unstructured import get

_PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
_FLAVOR = "kueue.x-k8s.io/workload-allowed-resource-flavors"
_GATE = "kueue.x-k8s.io/concurrent-admission"


def _groups(**quotas: str) -> list[Tree]:
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for name, cpu in quotas.items()]
    return [{"coveredResources": ["cpu"], "flavors": flavors}]


@asynccontextmanager
async def _concurrent(
    tmp_path: Path, quotas: dict[str, str], migration: Tree | None = None, *, managed: bool = True, **spec: Any
) -> AsyncIterator[System]:
    """A ClusterQueue with these flavors, by preference, whose Workloads are tried on all of them."""
    configuration = gates("ConcurrentAdmission")
    engine = Embedded(tmp_path)
    started = system(engine, **configuration) if managed else engine.served(**configuration)
    async with started as env:
        for name in quotas:
            await env.create("ResourceFlavor", name, {"nodeLabels": {"kind": name}})
        policy = {"migration": migration or {"mode": "TryPreferredFlavors"}}
        await env.create(
            "ClusterQueue",
            "cq",
            {
                "namespaceSelector": {},
                "resourceGroups": _groups(**quotas),
                "concurrentAdmissionPolicy": policy,
                **spec,
            },
        )
        await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})
        yield env


async def _parent(env: System) -> Tree | None:
    return next((each for each in await env.all("Workload") if _PARENT in each["metadata"].get("labels", {})), None)


async def _variants(env: System) -> dict[str, Tree]:
    """The variants, by flavor."""
    found = [each for each in await env.all("Workload") if _FLAVOR in each["metadata"].get("annotations", {})]
    return {each["metadata"]["annotations"][_FLAVOR]: each for each in found}


def _condition(workload: Tree | None, type_: str) -> str:
    for each in get(workload, "status", "conditions") or []:
        if each["type"] == type_:
            return f"{each['status']}/{each['reason']}"
    return ""


async def _until_runs_on(env: System, flavor: str) -> None:
    """The Job runs there, its Workload is admitted there, and so is one variant."""

    async def runs() -> bool:
        job, parent, variants = await env.read("Job", "job"), await _parent(env), await _variants(env)
        assigned = get(parent, "status", "admission", "podSetAssignments") or [{}]
        return (
            get(job, "spec", "suspend") is False
            and get(job, "spec", "template", "spec", "nodeSelector") == {"kind": flavor}
            and assigned[0].get("flavors") == {"cpu": flavor}
            and [name for name, each in variants.items() if _condition(each, "Admitted").startswith("True")] == [flavor]
        )

    await env.until(runs)


async def _active(env: System) -> list[str]:
    return sorted(name for name, each in (await _variants(env)).items() if get(each, "spec", "active") is not False)


async def _until_active(env: System, *flavors: str) -> None:
    async def is_so() -> bool:
        return await _active(env) == sorted(flavors)

    await env.until(is_so)


async def _usage(env: System) -> dict[str, str]:
    found = get(await env.read("ClusterQueue", "cq"), "status", "flavorsReservation") or []
    return {flavor["name"]: flavor["resources"][0]["total"] for flavor in found}


async def test_a_job_runs_on_the_first_flavor_that_fits_and_moves_to_a_better_one(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"reserved": "0", "spot": "4"}) as env:
        await env.job("job")
        await _until_runs_on(env, "spot")
        parent, variants = await _parent(env), await _variants(env)
        assert parent is not None
        assert [owner["kind"] for owner in parent["metadata"]["ownerReferences"]] == ["Job"]
        assert sorted(variants) == ["reserved", "spot"]
        name = parent["metadata"]["name"]
        base = name.rpartition("-")[0]
        for flavor, variant in variants.items():
            assert variant["metadata"]["name"].startswith(f"{base}-variant-{flavor}-")
            assert [owner["name"] for owner in variant["metadata"]["ownerReferences"]] == [name]
            assert _PARENT not in variant["metadata"].get("labels", {})
            assert variant["spec"]["preemptionGates"] == [{"name": _GATE}]
        await env.quiet()
        created = await env.events(name, "CreatedVariant")
        assert sum(event.get("series", {"count": 1})["count"] for event in created) == 2  # as one series, as in Kueue
        assert await _active(env) == ["reserved", "spot"]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(reserved="2", spot="4")}})
        await _until_runs_on(env, "reserved")
        await _until_active(env, "reserved")
        moved = (await _variants(env))["spot"]["metadata"]["name"]
        await env.until(lambda: env.events(moved, "EvictedDueToFlavorMigration"))
        await env.until(lambda: env.events(moved, "DeactivatedVariant"))

        async def counted_once() -> bool:
            return await _usage(env) == {"reserved": "1", "spot": "0"}

        await env.until(counted_once)


async def test_a_restarted_manager_finds_the_family_as_it_was_and_goes_on(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"reserved": "0", "spot": "4"}, managed=False) as env:
        configuration = gates("ConcurrentAdmission")
        async with env.manager(**configuration) as env.running:
            await env.job("job")
            await _until_runs_on(env, "spot")
            await env.quiet()
        before = {each["metadata"]["uid"] for each in await env.all("Workload")}
        async with env.manager(**configuration) as env.running:
            await env.quiet()
            await _until_runs_on(env, "spot")
            assert {each["metadata"]["uid"] for each in await env.all("Workload")} == before
            await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(reserved="2", spot="4")}})
            await _until_runs_on(env, "reserved")


async def test_with_retain_first_admission_the_other_variants_are_deactivated(tmp_path: Path) -> None:
    quotas = {"a": "0", "b": "4", "c": "4"}
    async with _concurrent(tmp_path, quotas, {"mode": "RetainFirstAdmission"}) as env:
        await env.job("job")
        await _until_runs_on(env, "b")
        await _until_active(env, "b")
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="4", b="4", c="4")}})
        await env.quiet()
        await _until_runs_on(env, "b")


async def test_a_running_job_moves_no_further_down_than_the_last_acceptable_flavor(tmp_path: Path) -> None:
    constraints = {"lastAcceptableFlavorName": "a"}
    migration = {"mode": "TryPreferredFlavors", "constraints": constraints}
    async with _concurrent(tmp_path, {"a": "0", "b": "0", "c": "4"}, migration) as env:
        await env.job("job")
        await _until_runs_on(env, "c")
        await _until_active(env, "a", "c")
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="0", b="4", c="4")}})
        await env.quiet()
        await _until_runs_on(env, "c")
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="4", b="4", c="4")}})
        await _until_runs_on(env, "a")


async def test_variants_follow_the_flavors_of_the_cluster_queue(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "0", "b": "0"}) as env:
        await env.create("ResourceFlavor", "c", {})
        await env.job("job")

        async def has(*flavors: str) -> bool:
            return sorted(await _variants(env)) == sorted(flavors)

        await env.until(lambda: has("a", "b"))
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="0", c="0")}})
        await env.until(lambda: has("a", "c"))
        parent = await _parent(env)
        assert parent is not None
        await env.until(lambda: env.events(parent["metadata"]["name"], "DeletedVariant"))


async def test_a_job_that_moves_to_a_queue_without_policy_is_admitted_there(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "0", "b": "0"}) as env:
        await env.create("ResourceFlavor", "plain", {})
        await env.create("ClusterQueue", "other", {"namespaceSelector": {}, "resourceGroups": _groups(plain="4")})
        await env.create("LocalQueue", "other", {"clusterQueue": "other"})
        await env.job("job")

        async def has_variants() -> bool:
            return len(await _variants(env)) == 2

        await env.until(has_variants)
        await env.patch("Job", "job", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})

        async def runs() -> bool:
            return get(await env.read("Job", "job"), "spec", "suspend") is False

        await env.until(runs)
        assert await _variants(env) == {}
        assert await _parent(env) is None


async def test_a_finished_job_finishes_its_variants_and_frees_their_quota(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}) as env:
        await env.job("job")
        await _until_runs_on(env, "a")
        parent = await _parent(env)
        assert parent is not None
        await env.finish(parent["metadata"]["name"])

        async def all_finished() -> bool:
            found = (await _variants(env)).values()
            return all(_condition(each, "Finished") == "True/Succeeded" for each in found)

        await env.until(all_finished)

        async def freed() -> bool:
            return await _usage(env) == {"a": "0", "b": "0"}

        await env.until(freed)


async def test_a_deactivated_parent_stops_its_job_and_comes_back_when_activated(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}) as env:
        await env.job("job")
        await _until_runs_on(env, "a")
        parent = await _parent(env)
        assert parent is not None
        name = parent["metadata"]["name"]
        await env.patch("Workload", name, {"spec": {"active": False}})
        await _until_active(env)

        async def stopped() -> bool:
            is_suspended = get(await env.read("Job", "job"), "spec", "suspend") is True
            return is_suspended and await _usage(env) == {"a": "0", "b": "0"}

        await env.until(stopped)
        await env.patch("Workload", name, {"spec": {"active": True}})
        await _until_runs_on(env, "a")


async def test_quota_is_released_also_while_the_local_queue_is_missing(tmp_path: Path) -> None:
    """The parent without quota belongs to no ClusterQueue then; the evicted variant still does."""
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}) as env:
        await env.job("job")
        await _until_runs_on(env, "a")
        parent = await _parent(env)
        assert parent is not None
        await env.delete("LocalQueue", "lq")
        await env.patch("Workload", parent["metadata"]["name"], {"spec": {"active": False}})

        async def released() -> bool:
            return [_condition(each, "QuotaReserved")[:5] for each in (await _variants(env)).values()] == ["False"] * 2

        await env.until(released)


async def test_variants_follow_a_local_queue_that_is_created_again_for_another_cluster_queue(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "0", "b": "0"}) as env:
        await env.job("job")
        await _until_active(env, "a", "b")
        await env.create("ResourceFlavor", "c", {"nodeLabels": {"kind": "c"}})
        policy = {"migration": {"mode": "TryPreferredFlavors"}}
        spec = {"namespaceSelector": {}, "resourceGroups": _groups(c="1"), "concurrentAdmissionPolicy": policy}
        await env.create("ClusterQueue", "other", spec)
        await env.delete("LocalQueue", "lq")

        async def is_gone() -> bool:
            return all(each["metadata"]["name"] != "lq" for each in await env.all("LocalQueue"))

        await env.until(is_gone)
        await env.quiet()
        await env.create("LocalQueue", "lq", {"clusterQueue": "other"})
        await _until_runs_on(env, "c")


async def test_a_parent_with_every_variant_rejected_is_deactivated_and_tried_again_when_activated(
    tmp_path: Path,
) -> None:
    checks = {"admissionChecks": [{"name": "budget"}]}
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}, admissionChecksStrategy=checks) as env:
        await env.check("budget")
        await env.job("job")

        async def answer(state: str, *flavors: str) -> None:
            """Answer the check of each variant that holds quota, once."""
            found = await _variants(env)
            for each in [found[name] for name in flavors if _condition(found.get(name), "QuotaReserved")[:4] == "True"]:
                if each["metadata"]["uid"] not in answered:
                    answered.add(each["metadata"]["uid"])
                    await env.answers(each["metadata"]["name"], "budget", state)

        async def is_deactivated() -> bool:
            await answer("Rejected", "a", "b")
            return _condition(await _parent(env), "Evicted") == "True/DeactivatedDueToAdmissionCheck"

        answered: set[str] = set()
        await env.until(is_deactivated)
        assert len(answered) == 2
        parent = await _parent(env)
        assert parent is not None
        assert parent["spec"]["active"] is False

        async def has_no_variants() -> bool:
            return await _variants(env) == {}

        await env.until(has_no_variants)
        await env.patch("Workload", parent["metadata"]["name"], {"spec": {"active": True}})

        async def runs() -> bool:
            await answer("Ready", "a")  # the other variant is evicted when this one is admitted
            return get(await env.read("Job", "job"), "spec", "suspend") is False

        await env.until(runs)


async def test_a_preempted_job_is_tried_on_every_flavor_again(tmp_path: Path) -> None:
    lower = {"withinClusterQueue": "LowerPriority"}
    async with _concurrent(tmp_path, {"a": "1", "b": "0"}, preemption=lower) as env:
        await env.create_class("high", 9)
        await env.job("job")
        await _until_runs_on(env, "a")
        await env.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})

        async def has_taken_over() -> bool:
            runs = [get(await env.read("Job", name), "spec", "suspend") is False for name in ("job", "urgent")]
            return runs == [False, True]

        await env.until(has_taken_over)

        async def is_counted() -> bool:
            return await _usage(env) == {"a": "1", "b": "0"}

        await env.until(is_counted)


async def test_one_variant_at_a_time_may_preempt(tmp_path: Path) -> None:
    """Both flavors are taken by Workloads of lower priority: only the gate of the more favorable variant is opened."""
    lower = {"withinClusterQueue": "LowerPriority"}
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}, preemption=lower) as env:
        await env.create_class("high", 9)
        for name in ("one", "two"):
            await env.job(name)

        async def both_run() -> bool:
            return all([get(await env.read("Job", name), "spec", "suspend") is False for name in ("one", "two")])

        await env.until(both_run)
        await env.quiet()
        await env.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})

        async def urgent_runs() -> bool:
            return get(await env.read("Job", "urgent"), "spec", "suspend") is False

        await env.until(urgent_runs)
        preempted = [each for each in await env.all("Workload") if "Preempted" in str(get(each, "status"))]
        flavors = {each["metadata"]["annotations"].get(_FLAVOR) for each in preempted if _condition(each, "Preempted")}
        assert flavors == {"a"}


async def test_without_the_gate_the_policy_has_no_effect(tmp_path: Path) -> None:
    async with system(Embedded(tmp_path)) as env:
        for name in ("a", "b"):
            await env.create("ResourceFlavor", name, {})
        policy = {"migration": {"mode": "TryPreferredFlavors"}}
        spec = {"namespaceSelector": {}, "resourceGroups": _groups(a="1", b="1"), "concurrentAdmissionPolicy": policy}
        await env.create("ClusterQueue", "cq", spec)
        await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})
        await env.job("job")
        await env.until(lambda: env.admitted())
        await env.quiet()
        assert len(await env.all("Workload")) == 1
        assert await _parent(env) is None
