"""Running pods whose label and finalizer a user removes: the caches drop them, and they are not taken for deleted [PD10]."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controllers.conftest import Environment, environment, template
from kubemachinery.unstructured import get
from pykueue.api import labels

# With a kind made of pods the cache holds pods by their text, else by their label.
ALONE: dict[str, Any] = {"integrations": {"frameworks": ["pod"]}}
WITH_PARENTS: dict[str, Any] = {"integrations": {"frameworks": ["pod", "statefulset"]}}
UNMARKED = {"metadata": {"labels": {labels.MANAGED: None}, "finalizers": []}}
UNLABELLED = {"metadata": {"labels": {labels.MANAGED: None}}}
UNGROUPED: dict[str, str] = {}


@pytest.fixture(params=[ALONE, WITH_PARENTS], ids=["pods", "pods and parents"])
def configuration(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
async def env(tmp_path: Path, configuration: dict[str, Any]) -> AsyncIterator[Environment]:
    async with environment(tmp_path, **configuration) as env:
        await env.queues(cpu="2")
        yield env


async def _pod(env: Environment, name: str, cpu: str, group: str = "", count: int = 0) -> None:
    grouped = {labels.POD_GROUP_NAME: group} if group else UNGROUPED
    annotations = {labels.POD_GROUP_TOTAL_COUNT: str(count)} if group else UNGROUPED
    await env.create(
        "Pod",
        name,
        template(cpu)["spec"],
        labels={labels.QUEUE_NAME: "lq", **grouped},
        annotations=annotations,
    )


async def _until_started(env: Environment, *names: str) -> None:
    async def are_started() -> bool:
        return not any([get(await env.read("Pod", name), "spec", "schedulingGates") for name in names])

    await env.until(are_started)


async def test_a_pod_without_marks_keeps_its_quota_until_it_is_deleted(
    env: Environment, configuration: dict[str, Any]
) -> None:
    async with env.manager(**configuration) as manager:
        await _pod(env, "first", "2")
        await _until_started(env, "first")
        (held,) = await env.admitted()
        await env.patch("Pod", "first", UNMARKED)
        await _pod(env, "second", "2")
        await env.until_quiet(manager)
        assert await env.condition(held, "Finished") == ""
        assert await env.admitted() == [held]
        await env.delete("Pod", "first")
        await _until_started(env, "second")


@pytest.mark.parametrize(
    ("change", "excess", "kept"),
    [(UNLABELLED, "c", "a"), (UNMARKED, "a", "c")],
    ids=["label", "label and finalizer"],
)
async def test_a_pod_of_a_group_without_marks_still_counts(
    env: Environment, configuration: dict[str, Any], change: dict[str, Any], excess: str, kept: str
) -> None:
    """Another pod makes one too many: pods with the finalizer are kept first, and then the older ones."""
    async with env.manager(**configuration) as manager:
        for name in ("a", "b"):
            await _pod(env, name, "1", "group", 2)
        await _until_started(env, "a", "b")
        await env.patch("Pod", "a", change)
        await _pod(env, "c", "1", "group", 2)

        async def is_deleted() -> bool:
            return await env.find("Pod", excess) is None

        await env.until(is_deleted)
        await _until_started(env, "b", kept)
        await env.until_quiet(manager)
        assert await env.admitted() == ["group"]
