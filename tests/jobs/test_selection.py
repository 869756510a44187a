"""Whose job is it? KEP-3589 and the walk up the owners."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobs.job_harness import JOB, KINDS, OPTIONS, POD, batch_job, pod
from kubemachinery import meta, selectors
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import selection
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.options import IntegrationOptions

SELECTOR = selectors.compile(meta.LabelSelector(match_labels={"managed": "yes"}))
IN, OUT = {"managed": "yes"}, {"managed": "no"}
NAMED = batch_job()
PLAIN = batch_job(metadata={"labels": {labels.QUEUE_NAME: None}})

ALONE = replace(OPTIONS, namespaces=SELECTOR)
ALL = replace(ALONE, manage_without_queue=True)
RESPECTED = replace(ALL, selector_always_respected=True)


@pytest.mark.parametrize(
    ("options", "tree", "namespace", "managed"),
    [
        (ALONE, NAMED, IN, True),
        (ALONE, NAMED, OUT, True),
        (ALONE, PLAIN, IN, False),
        (ALL, NAMED, OUT, True),
        (ALL, PLAIN, IN, True),
        (ALL, PLAIN, OUT, False),
        (RESPECTED, NAMED, IN, True),
        (RESPECTED, NAMED, OUT, False),
        (RESPECTED, PLAIN, IN, True),
    ],
    ids=[
        "named, selected",
        "named, not selected",
        "without queue name, not managed",
        "named, not selected, all wanted",
        "plain, selected, all wanted",
        "plain, not selected, all wanted",
        "gate: named, selected",
        "gate: named, not selected",
        "gate: plain, selected",
    ],
)
def test_which_jobs_are_managed(
    options: IntegrationOptions, tree: Tree, namespace: dict[str, str], managed: bool
) -> None:
    assert selection.is_managed(JOB, ObjectView(tree), namespace, options) is managed


def test_the_old_selector_of_pods_is_laid_over_the_new_one() -> None:
    options = replace(ALL, pod_namespaces=selectors.compile(meta.LabelSelector(match_labels={"pods": "yes"})))
    plain = pod(metadata={"labels": {labels.QUEUE_NAME: None}})
    assert not selection.is_managed(POD, ObjectView(plain), IN, options)
    assert selection.is_managed(POD, ObjectView(plain), IN | {"pods": "yes"}, options)
    assert selection.is_managed(JOB, ObjectView(PLAIN), IN, options)


# --- Ancestors --------------------------------------------------------------------------------------------------------


def thing(kind: str, name: str, owner: Tree | None = None, queue: str = "", api_version: str = "") -> Tree:
    """An object of some kind, controlled by another."""
    versions = {"Job": "batch/v1", "Pod": "v1", "ReplicaSet": "apps/v1", "Deployment": "apps/v1"}
    versions |= {"JobSet": "jobset.x-k8s.io/v1alpha2", "AppWrapper": "workload.codeflare.dev/v1beta2"}
    metadata: Tree = {"name": name, "namespace": "main", "uid": f"uid-{name}"}
    if queue:
        metadata["labels"] = {labels.QUEUE_NAME: queue}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": api_version or versions[kind], "kind": kind, "metadata": metadata}


async def ancestor(tree: Tree, *owners: Tree, options: IntegrationOptions = OPTIONS) -> tuple[Ancestry, str | None]:
    by_name = {owner["metadata"]["name"]: owner for owner in owners}

    async def find(kind: Kind, name: str, namespace: str) -> Tree | None:
        return by_name.get(name)

    found = await selection.ancestry(ObjectView(tree), KINDS, options, find)
    top = selection.ancestor(found, {}, KINDS, options)
    return found, None if top is None else top.name


WRAPPERS = replace(
    OPTIONS,
    frameworks=("batch/job", "pod", "jobset.x-k8s.io/jobset", "workload.codeflare.dev/appwrapper", "deployment"),
)


async def chain(top: str, middle: str, bottom: str, options: IntegrationOptions = WRAPPERS) -> str | None:
    wrapper = thing("AppWrapper", "wrapper", queue=top)
    job_set = thing("JobSet", "set", wrapper, middle)
    return (await ancestor(thing("Job", "job", job_set, bottom), job_set, wrapper, options=options))[1]


async def test_topmost_managed_owner_is_the_ancestor() -> None:
    assert await chain("", "", "") is None
    assert await chain("", "q", "q") == "set"
    assert await chain("q", "", "q") == "wrapper"
    assert await chain("", "", "", replace(WRAPPERS, manage_without_queue=True)) == "wrapper"


async def test_kinds_that_are_switched_off_are_walked_through() -> None:
    without_sets = replace(WRAPPERS, frameworks=("batch/job", "workload.codeflare.dev/appwrapper"))
    assert await chain("q", "", "", without_sets) == "wrapper"
    assert await chain("", "q", "", without_sets) is None


async def test_replica_sets_are_walked_through() -> None:
    deployment = thing("Deployment", "web", queue="q")
    replicas = thing("ReplicaSet", "web-1", deployment)
    assert (await ancestor(thing("Pod", "p", replicas), replicas, deployment, options=WRAPPERS))[1] == "web"


@pytest.mark.parametrize(
    "row",
    [row for row in KINDS if row.implementation is not None and row.framework != "pod"],
    ids=lambda row: row.framework,
)
async def test_every_kind_with_a_queue_can_be_the_managed_owner(row: JobIntegration) -> None:
    """A LeaderWorkerSet owns StatefulSets, and is made of pods itself."""
    owner = {**thing(row.kind.kind, "top", queue="q", api_version=row.kind.api_version), "spec": {}}
    child = thing("StatefulSet", "set", owner, api_version="apps/v1")
    options = replace(OPTIONS, frameworks=(row.framework, "statefulset"))
    assert (await ancestor(child, owner, options=options))[1] == "top"


async def test_an_unknown_owner_ends_the_walk() -> None:
    cron = thing("CronJob", "nightly", queue="q", api_version="batch/v1")
    found, top = await ancestor(thing("Job", "job", cron), cron)
    assert (found, top) == (Ancestry(), None)


async def test_an_external_framework_is_an_owner_like_any_other() -> None:
    options = replace(OPTIONS, external=frozenset({("example.com/v1", "Flow")}))
    flow = thing("Flow", "flow", queue="q", api_version="example.com/v1")
    assert (await ancestor(thing("Job", "job", flow), flow, options=options))[1] == "flow"


async def test_another_object_under_the_owners_name_is_not_the_owner() -> None:
    parent = thing("Job", "parent", queue="q")
    child = thing("Job", "child", parent)
    parent["metadata"]["uid"] = "uid-of-another"
    assert (await ancestor(child, parent))[1] is None


async def test_a_missing_owner_is_a_problem() -> None:
    found, _ = await ancestor(thing("Job", "child", thing("Job", "parent")))
    assert found.problem == "has the owner Job parent, which does not exist"


async def test_ten_levels_are_enough() -> None:
    levels = [thing("Job", "j0", queue="q")]
    for number in range(1, 12):
        levels.append(thing("Job", f"j{number}", levels[-1]))
    assert (await ancestor(levels[10], *levels))[1] == "j0"
    found, _ = await ancestor(levels[11], *levels)
    assert found.too_deep


async def test_a_circle_is_a_problem_and_not_an_endless_walk() -> None:
    first = thing("Job", "first")
    second = thing("Job", "second", first)
    first = thing("Job", "first", second)
    found, _ = await ancestor(second, first, second)
    assert found.problem == "is its own ancestor"
