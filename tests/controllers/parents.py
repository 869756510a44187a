"""The controllers of kinds made of pods, as far as tests need them: they create pods as the real ones do."""

from __future__ import annotations

from typing import Any

import msgspec

from controllers.conftest import Environment, Tree, template
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import get
from pykueue.api import kube, labels, registry
from pykueue.jobs import kinds, leader_worker_set
from pykueue.jobs.kinds import REPLICA_SET, JobKinds
from pykueue.webhooks.registration import CRD

_TABLE = JobKinds(kinds.BUILT_IN)
QUEUED = {labels.QUEUE_NAME: "lq"}


def kind_of(framework: str) -> Kind:
    row = _TABLE.framework(framework)
    assert row is not None
    return row.kind


DEPLOYMENT, STATEFUL_SET = kind_of("deployment"), kind_of("statefulset")
LWS = kind_of(leader_worker_set.FRAMEWORK)
FRAMEWORKS = ["batch/job", "deployment", "statefulset", leader_worker_set.FRAMEWORK]
INTEGRATIONS = {"integrations": {"frameworks": FRAMEWORKS}}


def pod_template(cpu: str = "1") -> Tree:
    found = template(cpu)
    del found["spec"]["restartPolicy"]
    return {"metadata": {"labels": {"app": "web"}}, "spec": found["spec"]}


async def create(env: Environment, kind: Kind, name: str, spec: Tree, **metadata: Any) -> Tree:
    place = {"name": name, "namespace": "default", "labels": QUEUED, **metadata}
    return await env.client.create(
        kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": place, "spec": spec}
    )


async def stateful_set(env: Environment, replicas: int = 2, name: str = "web", **metadata: Any) -> Tree:
    spec = {
        "replicas": replicas,
        "serviceName": name,
        "selector": {"matchLabels": {"app": "web"}},
        "template": pod_template(),
    }
    return await create(env, STATEFUL_SET, name, spec, **metadata)


async def deployment(env: Environment, replicas: int = 2, name: str = "web", **metadata: Any) -> Tree:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod_template()}
    return await create(env, DEPLOYMENT, name, spec, **metadata)


async def read(env: Environment, kind: Kind, name: str) -> Tree:
    return await env.client.get(kind, name, "default")


async def patch(env: Environment, kind: Kind, name: str, change: Tree, subresource: str = "") -> Tree:
    return await env.client.patch(kind, name, change, "default", subresource=subresource)


# --- Pods -------------------------------------------------------------------------------------------------------------


async def make_pod(env: Environment, name: str, made: Tree, owner: Tree, kind: Kind, **metadata: Any) -> Tree:
    marks = made.get("metadata") or {}
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return await env.create(
        "Pod",
        name,
        made["spec"],
        labels={**(marks.get("labels") or {}), **metadata.get("labels", {})},
        annotations={**(marks.get("annotations") or {}), **metadata.get("annotations", {})},
        ownerReferences=[reference],
    )


async def set_pods(env: Environment, name: str = "web") -> None:
    """The StatefulSet controller creates the pods that are missing."""
    found = await read(env, STATEFUL_SET, name)
    for index in range(found["spec"]["replicas"]):
        if await env.find("Pod", f"{name}-{index}") is None:
            marks = {labels.STATEFUL_SET_POD_INDEX: str(index), "statefulset.kubernetes.io/pod-name": f"{name}-{index}"}
            await make_pod(env, f"{name}-{index}", found["spec"]["template"], found, STATEFUL_SET, labels=marks)


async def replica_set(env: Environment, name: str = "web") -> Tree:
    """The Deployment controller creates the ReplicaSet of the template."""
    found = await read(env, DEPLOYMENT, name)
    spec = {key: found["spec"][key] for key in ("replicas", "selector", "template")}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    return await create(env, REPLICA_SET, f"{name}-1", spec, labels={}, ownerReferences=[reference])


async def gates(env: Environment, name: str) -> list[str]:
    return [gate["name"] for gate in get(await env.read("Pod", name), "spec", "schedulingGates") or []]


async def until_started(env: Environment, *names: str) -> None:
    """Wait until pods have no gates, and let the kubelet run them."""
    for name in names:

        async def is_started(name: str = name) -> bool:
            return await env.find("Pod", name) is not None and not await gates(env, name)

        await env.until(is_started)
        ready = {"type": "Ready", "status": "True", "reason": "Fine"}
        await env.patch("Pod", name, {"status": {"phase": "Running", "conditions": [ready]}}, "status")


async def until_gone(env: Environment, *names: str) -> None:
    for name in names:

        async def is_gone(name: str = name) -> bool:
            return await env.find("Pod", name) is None

        await env.until(is_gone)


async def workloads(env: Environment) -> list[Tree]:
    return sorted(await env.all("Workload"), key=lambda each: str(each["metadata"]["name"]))


async def until_workloads(env: Environment, count: int) -> list[Tree]:
    found: list[Tree] = []

    async def are_there() -> bool:
        nonlocal found
        found = await workloads(env)
        return len(found) == count

    await env.until(are_there)
    return found


async def events(env: Environment, kind: str) -> list[str]:
    found = [msgspec.json.decode(item) for item in (await env.client.list(_EVENTS)).items]
    return sorted(each["reason"] for each in found if get(each, "regarding", "kind") == kind)


_EVENTS = registry.KUBERNETES.of(kube.Event)


# --- LeaderWorkerSet --------------------------------------------------------------------------------------------------


async def install_lws(env: Environment) -> None:
    """A CRD that accepts every LeaderWorkerSet."""
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": any_object},
        "subresources": {"status": {}},
    }
    names = {"kind": "LeaderWorkerSet", "plural": "leaderworkersets", "singular": "leaderworkerset"}
    spec = {"group": LWS.group, "names": names, "scope": "Namespaced", "versions": [version]}
    await env.client.create(
        CRD,
        {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": f"leaderworkersets.{LWS.group}"},
            "spec": spec,
        },
    )

    async def is_served() -> bool:
        conditions = get(await env.client.get(CRD, f"leaderworkersets.{LWS.group}"), "status", "conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await env.until(is_served)


async def leader_worker_set_of(
    env: Environment, replicas: int = 2, size: int = 2, name: str = "serve", **metadata: Any
) -> Tree:
    groups = {"size": size, "leaderTemplate": pod_template(), "workerTemplate": pod_template()}
    return await create(env, LWS, name, {"replicas": replicas, "leaderWorkerTemplate": groups}, **metadata)


async def group_pod(env: Environment, group: int, index: int, name: str = "serve") -> str:
    """The controllers below a LeaderWorkerSet create one pod; 0 is the leader."""
    found = await read(env, LWS, name)
    templates = found["spec"]["leaderWorkerTemplate"]
    leader = f"{name}-{group}"
    marks = {
        leader_worker_set.NAME: name,
        leader_worker_set.GROUP_INDEX: str(group),
        labels.LWS_WORKER_INDEX: str(index),
    }
    annotations = {leader_worker_set.LEADER_NAME: leader} if index else {}
    made = templates["workerTemplate"] if index else templates["leaderTemplate"]
    pod = f"{leader}-{index}" if index else leader
    await make_pod(env, pod, made, found, LWS, labels=marks, annotations=annotations)
    return pod
