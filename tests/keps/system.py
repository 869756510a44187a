"""A whole system, and the operations that the tests of the proposals use.

A test runs on the embedded server, or on a real kube-apiserver with the manager beside it (`engines`): the fixture
`engine`.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from controllers.conftest import Environment
from kubemachinery import meta
from kubemachinery.client.errors import AlreadyExists, Conflict, NotFound
from kubemachinery.client.event_recorder import EVENTS
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import get
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner
from pykueue.analysis.explanation import Explanation, explain
from pykueue.api import kube, registry
from pykueue.controllers.assembly import Manager
from pykueue.webhooks.registration import CRD

if TYPE_CHECKING:
    from keps.engines import Engine

Tree = dict[str, Any]


class System(Environment):
    """A server, a manager on it, and simulated users and controllers."""

    running: Manager | None = None

    @property
    def kubeconfig(self) -> Path:
        """How programs of their own reach the server."""
        return self.serving.kubeconfig

    @property
    def manager_now(self) -> Manager:
        assert self.running is not None
        return self.running

    # --- Administrators -----------------------------------------------------------------------------------------------

    async def cluster_queue(self, name: str = "cq", quota: Mapping[str, str] | None = None, **spec: Any) -> Tree:
        """One flavor `plain` with this quota for each resource; five cores by default."""
        amounts = quota or {"cpu": "5"}
        if await self.find("ResourceFlavor", "plain") is None:
            await self.create("ResourceFlavor", "plain", {})
        flavor = {"name": "plain", "resources": [{"name": r, "nominalQuota": q} for r, q in amounts.items()]}
        group = {"coveredResources": list(amounts), "flavors": [flavor]}
        return await self.create("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": [group], **spec})

    async def queue(self, quota: Mapping[str, str] | None = None, **spec: Any) -> None:
        """A ClusterQueue `cq`, and a LocalQueue `lq` that leads to it."""
        await self.cluster_queue("cq", quota, **spec)
        await self.create("LocalQueue", "lq", {"clusterQueue": "cq"})

    async def namespace(self, name: str, **labels: str) -> None:
        await self.create("Namespace", name, {}, labels=labels)

    async def remove_namespace(self, name: str) -> None:
        """Delete a namespace, also on a real server, where no namespace controller runs."""
        row = registry.KUBERNETES.of(kube.Namespace)
        await self.client.delete(row, name)
        if (found := await self.client.find(row, name)) is not None:
            with suppress(NotFound, Conflict):
                await self.client.replace(row, {**found, "spec": {"finalizers": []}}, "finalize")

        async def is_gone() -> bool:
            return await self.find("Namespace", name) is None

        await self.until(is_gone)

    async def node(self, name: str, has: Mapping[str, str], **labels: str) -> None:
        """A node that is ready for pods."""
        await self.create("Node", name, {}, labels={"kubernetes.io/hostname": name, **labels})
        ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": now()}
        amounts = {"pods": "10", **has}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        await self.patch("Node", name, {"status": status}, "status")
        await self.patch("Node", name, {"spec": {"taints": None}})

    async def relabel(self, namespace: str, **labels: str | None) -> None:
        await self.patch("Namespace", namespace, {"metadata": {"labels": labels}})

    async def install(self, crd: Tree, kind: Kind) -> None:
        """A CRD, until its kind is served. A real server keeps it for later tests."""
        with suppress(AlreadyExists):
            await self.client.create(CRD, crd)

        async def is_served() -> bool:
            try:
                await self.client.list(kind)
            except NotFound:
                return False
            return True

        await self.until(is_served)

    # --- Workloads ----------------------------------------------------------------------------------------------------

    async def asks(self, name: str, requests: Mapping[str, str] | None = None, queue: str = "lq", **spec: Any) -> Tree:
        """A Workload of one pod that requests this; four cores by default."""
        resources = {"requests": dict(requests or {"cpu": "4"})}
        container = {"name": "c", "image": "registry.example/app:1", "resources": resources}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        return await self.create("Workload", name, {"queueName": queue, "podSets": pod_sets, **spec})

    async def release(self, name: str) -> None:
        """Play the job controller of an evicted Workload: its pods are gone, the quota goes back."""
        new = {"status": "False", "reason": "Pending", "message": "", "lastTransitionTime": now()}
        types = ("QuotaReserved", "Admitted")

        def released(found: Tree) -> Tree:
            others = [each for each in found["status"]["conditions"] if each["type"] not in types]
            return {"conditions": [*others, *({"type": type_, **new} for type_ in types)], "admission": None}

        await self.amend("Workload", name, released)

    # --- Admission checks ---------------------------------------------------------------------------------------------

    async def check(self, name: str, **spec: Any) -> None:
        """An AdmissionCheck whose controller is there."""
        await self.create("AdmissionCheck", name, {"controllerName": f"checks.example/{name}", **spec})
        await self.set_condition("AdmissionCheck", name, "Active", "True", "Active")

    async def answers(self, workload: str, check: str, state: str, **more: Any) -> None:
        """The check's controller sets the state."""
        await self.answer_together(workload, {check: state}, **more)

    async def answer_together(self, workload: str, states: Mapping[str, str], **more: Any) -> None:
        """Several controllers set their states in one write."""
        await self.until_condition(workload, "QuotaReserved", "True/QuotaReserved")
        await self.until_asked(workload, *states)
        new = {"message": "", "lastTransitionTime": now(), **more}

        def answered(found: Tree) -> Tree:
            others = [each for each in found["status"]["admissionChecks"] if each["name"] not in states]
            return {"admissionChecks": [*others, *({"name": n, "state": state, **new} for n, state in states.items())]}

        await self.amend("Workload", workload, answered)

    async def states(self, workload: str) -> dict[str, str]:
        """The state of each check, by name."""
        found = await self.read("Workload", workload)
        return {each["name"]: each["state"] for each in get(found, "status", "admissionChecks") or []}

    async def until_asked(self, workload: str, *checks: str) -> None:
        async def asked() -> bool:
            return set(checks) <= (await self.states(workload)).keys()

        await self.until(asked)

    async def until_states(self, workload: str, **states: str) -> None:
        async def are_as_expected() -> bool:
            return await self.states(workload) == states

        await self.until(are_as_expected)

    # --- Looking ------------------------------------------------------------------------------------------------------

    async def find_in(self, namespace: str, kind: str, name: str) -> Tree | None:
        row = registry.ALL.named(kind)
        assert row is not None
        return await self.client.find(row, name, namespace)

    async def until_there(self, namespace: str, kind: str, name: str) -> Tree:
        async def there() -> bool:
            return await self.find_in(namespace, kind, name) is not None

        await self.until(there)
        found = await self.find_in(namespace, kind, name)
        assert found is not None
        return found

    async def events(self, name: str, reason: str) -> list[Tree]:
        """The Events about an object that give this reason; Events of an earlier manager may arrive late."""
        found = [msgspec.json.decode(item) for item in (await self.client.list(EVENTS)).items]
        own = [each for each in found if each["reportingInstance"] == self.manager_now.recorder.instance]
        return [each for each in own if each["regarding"]["name"] == name and each["reason"] == reason]

    async def explain(self, workload: str, **configuration: Any) -> Explanation:
        """What `pykueue explain` finds about a Workload, on the objects that the server has now."""
        head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        found = [Document("the configuration", {**head, **configuration})]
        for kind in planner.KINDS:
            row = registry.ALL.of(kind)
            trees = [msgspec.json.decode(item) for item in (await self.client.list(row)).items]
            about = {"apiVersion": row.api_version, "kind": row.kind}
            found += [Document(tree["metadata"]["name"], {**tree, **about}) for tree in trees]
        moment = int(datetime.datetime.now(datetime.UTC).timestamp()) * meta.SECOND
        return explain(planner.read(found), f"default/{workload}", moment, suggest=False)

    async def quiet(self) -> None:
        """Wait until the manager has read all there is, and has nothing to do."""
        await self.until_quiet(self.manager_now, looks=20)


@asynccontextmanager
async def system(engine: Engine, **configuration: Any) -> AsyncIterator[System]:
    """A system with this Configuration, running."""
    async with engine.served(**configuration) as env, env.manager(**configuration) as env.running:
        yield env


def gates(*names: str) -> Tree:
    return {"featureGates": dict.fromkeys(names, True)}


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
