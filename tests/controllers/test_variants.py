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
    async with started as story:
        for name in quotas:
            await story.create("ResourceFlavor", name, {"nodeLabels": {"kind": name}})
        policy = {"migration": migration or {"mode": "TryPreferredFlavors"}}
        await story.create(
            "ClusterQueue",
            "cq",
            {
                "namespaceSelector": {},
                "resourceGroups": _groups(**quotas),
                "concurrentAdmissionPolicy": policy,
                **spec,
            },
        )
        await story.create("LocalQueue", "lq", {"clusterQueue": "cq"})
        yield story


async def _parent(story: System) -> Tree | None:
    return next((each for each in await story.all("Workload") if _PARENT in each["metadata"].get("labels", {})), None)


async def _variants(story: System) -> dict[str, Tree]:
    """The variants, by flavor."""
    found = [each for each in await story.all("Workload") if _FLAVOR in each["metadata"].get("annotations", {})]
    return {each["metadata"]["annotations"][_FLAVOR]: each for each in found}


def _says(workload: Tree | None, type_: str) -> str:
    for each in get(workload, "status", "conditions") or []:
        if each["type"] == type_:
            return f"{each['status']}/{each['reason']}"
    return ""


async def _until_runs_on(story: System, flavor: str) -> None:
    """The Job runs there, its Workload is admitted there, and so is one variant."""

    async def runs() -> bool:
        job, parent, variants = await story.read("Job", "job"), await _parent(story), await _variants(story)
        assigned = get(parent, "status", "admission", "podSetAssignments") or [{}]
        return (
            get(job, "spec", "suspend") is False
            and get(job, "spec", "template", "spec", "nodeSelector") == {"kind": flavor}
            and assigned[0].get("flavors") == {"cpu": flavor}
            and [name for name, each in variants.items() if _says(each, "Admitted").startswith("True")] == [flavor]
        )

    await story.until(runs)


async def _active(story: System) -> list[str]:
    return sorted(name for name, each in (await _variants(story)).items() if get(each, "spec", "active") is not False)


async def _until_active(story: System, *flavors: str) -> None:
    async def is_so() -> bool:
        return await _active(story) == sorted(flavors)

    await story.until(is_so)


async def _usage(story: System) -> dict[str, str]:
    found = get(await story.read("ClusterQueue", "cq"), "status", "flavorsReservation") or []
    return {flavor["name"]: flavor["resources"][0]["total"] for flavor in found}


async def test_a_job_runs_on_the_first_flavor_that_has_room_and_moves_to_a_better_one(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"reserved": "0", "spot": "4"}) as story:
        await story.job("job")
        await _until_runs_on(story, "spot")
        parent, variants = await _parent(story), await _variants(story)
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
        await story.quiet()
        created = await story.events(name, "CreatedVariant")
        assert sum(event.get("series", {"count": 1})["count"] for event in created) == 2  # as one series, as in Kueue
        assert await _active(story) == ["reserved", "spot"]
        await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(reserved="2", spot="4")}})
        await _until_runs_on(story, "reserved")
        await _until_active(story, "reserved")
        moved = (await _variants(story))["spot"]["metadata"]["name"]
        await story.until(lambda: story.events(moved, "EvictedDueToFlavorMigration"))
        await story.until(lambda: story.events(moved, "DeactivatedVariant"))

        async def counted_once() -> bool:
            return await _usage(story) == {"reserved": "1", "spot": "0"}

        await story.until(counted_once)


async def test_a_restarted_manager_finds_the_family_as_it_was_and_goes_on(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"reserved": "0", "spot": "4"}, managed=False) as story:
        configuration = gates("ConcurrentAdmission")
        async with story.manager(**configuration) as story.running:
            await story.job("job")
            await _until_runs_on(story, "spot")
            await story.quiet()
        before = {each["metadata"]["uid"] for each in await story.all("Workload")}
        async with story.manager(**configuration) as story.running:
            await story.quiet()
            await _until_runs_on(story, "spot")
            assert {each["metadata"]["uid"] for each in await story.all("Workload")} == before
            await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(reserved="2", spot="4")}})
            await _until_runs_on(story, "reserved")


async def test_with_retain_first_admission_the_other_variants_are_deactivated(tmp_path: Path) -> None:
    quotas = {"a": "0", "b": "4", "c": "4"}
    async with _concurrent(tmp_path, quotas, {"mode": "RetainFirstAdmission"}) as story:
        await story.job("job")
        await _until_runs_on(story, "b")
        await _until_active(story, "b")
        await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="4", b="4", c="4")}})
        await story.quiet()
        await _until_runs_on(story, "b")


async def test_a_running_job_moves_no_further_down_than_the_last_acceptable_flavor(tmp_path: Path) -> None:
    constraints = {"lastAcceptableFlavorName": "a"}
    migration = {"mode": "TryPreferredFlavors", "constraints": constraints}
    async with _concurrent(tmp_path, {"a": "0", "b": "0", "c": "4"}, migration) as story:
        await story.job("job")
        await _until_runs_on(story, "c")
        await _until_active(story, "a", "c")
        await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="0", b="4", c="4")}})
        await story.quiet()
        await _until_runs_on(story, "c")
        await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="4", b="4", c="4")}})
        await _until_runs_on(story, "a")


async def test_variants_follow_the_flavors_of_the_cluster_queue(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "0", "b": "0"}) as story:
        await story.create("ResourceFlavor", "c", {})
        await story.job("job")

        async def has(*flavors: str) -> bool:
            return sorted(await _variants(story)) == sorted(flavors)

        await story.until(lambda: has("a", "b"))
        await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": _groups(a="0", c="0")}})
        await story.until(lambda: has("a", "c"))
        parent = await _parent(story)
        assert parent is not None
        await story.until(lambda: story.events(parent["metadata"]["name"], "DeletedVariant"))


async def test_a_job_that_moves_to_a_queue_without_policy_is_admitted_there(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "0", "b": "0"}) as story:
        await story.create("ResourceFlavor", "plain", {})
        await story.create("ClusterQueue", "other", {"namespaceSelector": {}, "resourceGroups": _groups(plain="4")})
        await story.create("LocalQueue", "other", {"clusterQueue": "other"})
        await story.job("job")

        async def has_variants() -> bool:
            return len(await _variants(story)) == 2

        await story.until(has_variants)
        await story.patch("Job", "job", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})

        async def runs() -> bool:
            return get(await story.read("Job", "job"), "spec", "suspend") is False

        await story.until(runs)
        assert await _variants(story) == {}
        assert await _parent(story) is None


async def test_a_finished_job_finishes_its_variants_and_frees_their_quota(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}) as story:
        await story.job("job")
        await _until_runs_on(story, "a")
        parent = await _parent(story)
        assert parent is not None
        await story.finish(parent["metadata"]["name"])

        async def all_finished() -> bool:
            found = (await _variants(story)).values()
            return all(_says(each, "Finished") == "True/Succeeded" for each in found)

        await story.until(all_finished)

        async def freed() -> bool:
            return await _usage(story) == {"a": "0", "b": "0"}

        await story.until(freed)


async def test_a_deactivated_parent_stops_its_job_and_comes_back_when_activated(tmp_path: Path) -> None:
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}) as story:
        await story.job("job")
        await _until_runs_on(story, "a")
        parent = await _parent(story)
        assert parent is not None
        name = parent["metadata"]["name"]
        await story.patch("Workload", name, {"spec": {"active": False}})
        await _until_active(story)

        async def stopped() -> bool:
            is_suspended = get(await story.read("Job", "job"), "spec", "suspend") is True
            return is_suspended and await _usage(story) == {"a": "0", "b": "0"}

        await story.until(stopped)
        await story.patch("Workload", name, {"spec": {"active": True}})
        await _until_runs_on(story, "a")


async def test_a_parent_with_every_variant_rejected_is_deactivated_and_tried_again_when_activated(
    tmp_path: Path,
) -> None:
    checks = {"admissionChecks": [{"name": "budget"}]}
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}, admissionChecksStrategy=checks) as story:
        await story.check("budget")
        await story.job("job")

        async def answer(state: str) -> set[str]:
            """Answer the check of every variant that holds quota; the UIDs of those."""
            asked = [each for each in (await _variants(story)).values() if _says(each, "QuotaReserved")[:4] == "True"]
            for each in asked:
                if get(each, "status", "admissionChecks")[0]["state"] == "Pending":
                    await story.answers(each["metadata"]["name"], "budget", state)
            return {each["metadata"]["uid"] for each in asked}

        async def is_deactivated() -> bool:
            rejected.update(await answer("Rejected"))
            return _says(await _parent(story), "Evicted") == "True/DeactivatedDueToAdmissionCheck"

        rejected: set[str] = set()
        await story.until(is_deactivated)
        assert len(rejected) == 2
        parent = await _parent(story)
        assert parent is not None
        assert parent["spec"]["active"] is False

        async def has_no_variants() -> bool:
            return await _variants(story) == {}

        await story.until(has_no_variants)
        await story.patch("Workload", parent["metadata"]["name"], {"spec": {"active": True}})

        async def runs() -> bool:
            await answer("Ready")
            return get(await story.read("Job", "job"), "spec", "suspend") is False

        await story.until(runs)


async def test_a_preempted_job_is_tried_on_every_flavor_again(tmp_path: Path) -> None:
    lower = {"withinClusterQueue": "LowerPriority"}
    async with _concurrent(tmp_path, {"a": "1", "b": "0"}, preemption=lower) as story:
        await story.create_class("high", 9)
        await story.job("job")
        await _until_runs_on(story, "a")
        await story.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})

        async def has_taken_over() -> bool:
            runs = [get(await story.read("Job", name), "spec", "suspend") is False for name in ("job", "urgent")]
            return runs == [False, True]

        await story.until(has_taken_over)

        async def is_counted() -> bool:
            return await _usage(story) == {"a": "1", "b": "0"}

        await story.until(is_counted)


async def test_one_variant_at_a_time_may_preempt(tmp_path: Path) -> None:
    """Both flavors are taken by Workloads of lower priority: only the gate of the more favorable variant is opened."""
    lower = {"withinClusterQueue": "LowerPriority"}
    async with _concurrent(tmp_path, {"a": "1", "b": "1"}, preemption=lower) as story:
        await story.create_class("high", 9)
        for name in ("one", "two"):
            await story.job(name)

        async def both_run() -> bool:
            return all([get(await story.read("Job", name), "spec", "suspend") is False for name in ("one", "two")])

        await story.until(both_run)
        await story.quiet()
        await story.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})

        async def urgent_runs() -> bool:
            return get(await story.read("Job", "urgent"), "spec", "suspend") is False

        await story.until(urgent_runs)
        preempted = [each for each in await story.all("Workload") if "Preempted" in str(get(each, "status"))]
        flavors = {each["metadata"]["annotations"].get(_FLAVOR) for each in preempted if _says(each, "Preempted")}
        assert flavors == {"a"}


async def test_without_the_gate_the_policy_has_no_effect(tmp_path: Path) -> None:
    async with system(Embedded(tmp_path)) as story:
        for name in ("a", "b"):
            await story.create("ResourceFlavor", name, {})
        policy = {"migration": {"mode": "TryPreferredFlavors"}}
        spec = {"namespaceSelector": {}, "resourceGroups": _groups(a="1", b="1"), "concurrentAdmissionPolicy": policy}
        await story.create("ClusterQueue", "cq", spec)
        await story.create("LocalQueue", "lq", {"clusterQueue": "cq"})
        await story.job("job")
        await story.until(lambda: story.admitted())
        await story.quiet()
        assert len(await story.all("Workload")) == 1
        assert await _parent(story) is None
