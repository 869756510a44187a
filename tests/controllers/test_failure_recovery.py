"""Pods that hang while they are deleted on an unreachable node: who is deleted by force, when, and what is written."""

from __future__ import annotations

import pytest

from controllers.conftest import Environment, template
from kubemachinery import codec
from kubemachinery.meta import SECOND, parse_time
from kubemachinery.unstructured import Tree, get
from pykueue import features
from pykueue.api import kube
from pykueue.controllers import failure_recovery

GATE = {"FailureRecoveryPolicy": True}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
ALLOWED = {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_recovery, "FORCED_AFTER_SECONDS", 0)


async def _node(env: Environment, name: str, *taints: Tree) -> None:
    await env.create("Node", name, {})
    await env.patch("Node", name, {"spec": {"taints": list(taints)}})


async def _hanging_pod(env: Environment, name: str, node: str, phase: str = "Running", **annotations: str) -> None:
    """Create a pod that runs on a node, and delete it: without a kubelet it stays."""
    marks = annotations or ALLOWED
    # A finalizer keeps the object, so that what was written to it can be read.
    spec = {**template("1")["spec"], "terminationGracePeriodSeconds": 1, "nodeName": node}
    await env.create("Pod", name, spec, annotations=marks, finalizers=["example.com/kept"])
    other = {"type": "Ready", "status": "True"}
    await env.patch("Pod", name, {"status": {"phase": phase, "conditions": [other]}}, "status")
    await env.delete("Pod", name)


async def _condition(env: Environment, name: str) -> Tree | None:
    conditions = get(await env.read("Pod", name), "status", "conditions") or []
    return next((each for each in conditions if each["type"] == "KueueFailureRecovery"), None)


async def _events(env: Environment) -> list[Tree]:
    return [each for each in await env.all("Event") if each["reason"] == "KueueForcefullyDeleted"]


async def _is_forced(env: Environment, name: str) -> bool:
    pod = await env.read("Pod", name)
    return await _condition(env, name) is not None and get(pod, "metadata", "deletionGracePeriodSeconds") == 0


@pytest.mark.parametrize(("phase", "after"), [("Running", "Failed"), ("Failed", "Failed"), ("Succeeded", "Succeeded")])
async def test_a_pod_that_allows_it_is_failed_and_deleted(env: Environment, phase: str, after: str) -> None:
    await _node(env, "lost", UNREACHABLE)
    await _hanging_pod(env, "hangs", "lost", phase)
    async with env.manager(featureGates=GATE):
        await env.until(lambda: _is_forced(env, "hangs"))
        pod = await env.read("Pod", "hangs")
        assert get(pod, "status", "phase") == after
        assert {each["type"] for each in get(pod, "status", "conditions")} == {"Ready", "KueueFailureRecovery"}
        found = await _condition(env, "hangs")
        assert found is not None
        assert (found["status"], found["reason"]) == ("True", "KueueForcefullyDeleted")
        assert "node lost is unreachable" in found["message"]
        await env.until(lambda: _events(env))
        assert [(each["type"], get(each, "regarding", "name")) for each in await _events(env)] == [("Warning", "hangs")]
        await env.patch("Pod", "hangs", {"metadata": {"finalizers": None}})
        assert await env.find("Pod", "hangs") is None


async def test_a_pod_is_deleted_when_its_node_becomes_unreachable(env: Environment) -> None:
    await _node(env, "well")
    await _hanging_pod(env, "hangs", "well")
    async with env.manager(featureGates=GATE) as manager:
        await env.until_quiet(manager)
        assert await _condition(env, "hangs") is None
        await env.patch("Node", "well", {"spec": {"taints": [UNREACHABLE]}})
        await env.until(lambda: _is_forced(env, "hangs"))


async def test_pods_that_do_not_allow_it_or_run_elsewhere_are_left_alone(env: Environment) -> None:
    await _node(env, "lost", UNREACHABLE)
    await _node(env, "well", {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    refused = {"kueue.x-k8s.io/safe-to-forcefully-delete": "false"}
    await _hanging_pod(env, "refuses", "lost", **refused)
    await _hanging_pod(env, "reachable", "well")
    await _hanging_pod(env, "nodeless", "gone")
    await env.create("Pod", "alive", {**template("1")["spec"], "nodeName": "lost"}, annotations=ALLOWED)
    await _hanging_pod(env, "hangs", "lost")
    async with env.manager(featureGates=GATE) as manager:
        await env.until(lambda: _is_forced(env, "hangs"))
        await env.until_quiet(manager)
        for name in ("refuses", "reachable", "nodeless", "alive"):
            assert await _condition(env, name) is None
            assert get(await env.read("Pod", name), "metadata", "deletionGracePeriodSeconds") != 0


async def test_without_the_gate_nothing_is_deleted_by_force(env: Environment) -> None:
    await _node(env, "lost", UNREACHABLE)
    await _hanging_pod(env, "hangs", "lost")
    async with env.manager() as manager:
        await env.until_quiet(manager)
        assert await _condition(env, "hangs") is None
        assert all(loop.name != "failure-recovery" for loop in manager.loops)


async def test_it_needs_no_topology(env: Environment) -> None:
    """Nodes and pods are read for it alone, and scheduling does not depend on them."""
    await _node(env, "lost", UNREACHABLE)
    await _hanging_pod(env, "hangs", "lost")
    tas = "TopologyAwareScheduling"
    off = {name: False for name, gate in features.GATES.items() if name == tas or tas in gate.needs}
    async with env.manager(featureGates={**GATE, **off}) as manager:
        await env.until(lambda: _is_forced(env, "hangs"))
        assert manager.informers.pods not in manager.informers.scheduling


def test_a_pod_has_a_minute_after_its_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletionTimestamp is the end of the grace period, not its beginning."""
    monkeypatch.setattr(failure_recovery, "FORCED_AFTER_SECONDS", 60)
    ends = "2026-01-01T00:00:30Z"
    pod = codec.from_tree({"metadata": {"name": "a", "deletionTimestamp": ends}}, kube.Pod)
    assert failure_recovery.due_at(pod) == parse_time(ends) + 60 * SECOND
