"""A job of any kind beside its operator: created, admitted, preempted, resumed, ended. The steps of the tests with operators.

A scenario has a namespace, a flavor with a node label, and a ClusterQueue of its own with exactly the CPUs that the job
needs: so a Job of a higher priority in a second namespace takes all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import yaml

from cluster.operators import OperatorHost
from cluster.queued_kinds import LONG, QueuedKind
from waiting import until

Tree = dict[str, Any]

POOL: Final = "pykueue.test/pool"  # the node label of the flavors
ENDS: Final = "pykueue.test/ends"  # the annotation that ends a pod, as `stages/pod-ends.yaml` has it
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
URGENT: Final = "urgent"
KUEUE: Final = "apis/kueue.x-k8s.io/v1beta2"
_GROUP: Final = "kueue.x-k8s.io/v1beta2"
_MERGE: Final = "application/merge-patch+json"


def named(api_version: str, kind: str, name: str, **more: Any) -> Tree:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


@dataclass(frozen=True)
class Cluster:
    """Requests to the API server; writes are repeated while a webhook does not answer yet."""

    host: OperatorHost

    def make(self, collection: str, tree: Tree, namespace: str = "") -> Tree:
        path = place(collection, namespace)

        def made() -> Tree | None:
            self.host.check()
            answer = self.host.client.request("POST", path, tree)
            assert answer.code in (201, 409) or answer.code >= 429, f"{path}: {answer.code} {answer.body}"
            if answer.code == 409:
                answer = self.host.client.request("GET", f"{path}/{tree['metadata']['name']}")
            return answer.body if answer.code < 300 else None

        return until(made, f"{tree['kind']} {tree['metadata'].get('name')} is created")

    def patch(self, path: str, patch: Tree) -> None:
        def patched() -> bool:
            answer = self.host.client.request("PATCH", path, patch, _MERGE)
            assert answer.code in (200, 404) or answer.code >= 429, f"{path}: {answer.code} {answer.body}"
            return answer.code in (200, 404)

        until(patched, f"{path} is patched")

    def get(self, path: str) -> Tree | None:
        answer = self.host.client.request("GET", path)
        assert answer.code in (200, 404), answer.body
        return answer.body if answer.code == 200 else None

    def items(self, collection: str, namespace: str, query: str = "") -> list[Tree]:
        answer = self.host.client.request("GET", place(collection, namespace) + query)
        assert answer.code == 200, answer.body
        items: list[Tree] = answer.body["items"]
        return items

    def delete(self, path: str) -> None:
        options = {"propagationPolicy": "Background"}
        until(lambda: self.host.client.request("DELETE", path, options).code == 404, f"{path} is deleted")


def place(collection: str, namespace: str) -> str:
    """The path of a collection: `apis/batch/v1/jobs` in a namespace, or of the cluster."""
    if not namespace:
        return f"/{collection}"
    root, _, resource = collection.rpartition("/")
    return f"/{root}/namespaces/{namespace}/{resource}"


def prepare(cluster: Cluster) -> None:
    """Wait until the manager's webhooks are asked, and make the priority class that preempts."""
    until(lambda: suspends(cluster), "the webhooks of the manager are asked")
    urgent = named(_GROUP, "WorkloadPriorityClass", URGENT, value=1000)
    cluster.make(f"{KUEUE}/workloadpriorityclasses", urgent)


def suspends(cluster: Cluster) -> bool:
    """Whether a new Job that names a queue is suspended."""
    cluster.host.check()
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    job = named("batch/v1", "Job", "probe", spec={"template": template})
    job["metadata"]["labels"] = {QUEUE_LABEL: "queue"}
    answer = cluster.host.client.request("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All", job)
    return answer.code == 201 and answer.body["spec"]["suspend"] is True


class Scenario:
    """One job of one kind, and what is expected of it step by step."""

    def __init__(self, cluster: Cluster, kind: QueuedKind, *, simulated: bool = False) -> None:
        """With `simulated` the embedded server runs the pods, and ends them when their commands would."""
        self.cluster = cluster
        self.kind = kind
        self.simulated = simulated
        self.name = kind.framework.rpartition("/")[2]
        self.path = f"{place(kind.resource, self.name)}/{kind.tree['metadata']['name']}"

    def prepare(self) -> None:
        """Make a node, a flavor, the queue and its namespaces."""
        cluster, name = self.cluster, self.name
        node = named("v1", "Node", name)
        node["metadata"]["labels"] = {POOL: name, "kubernetes.io/hostname": name}
        cluster.make("api/v1/nodes", node)
        # The API server taints a new node until a controller, that does not run here, finds it ready.
        cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        if self.simulated:
            ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
            amounts = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            cluster.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        flavor = named(_GROUP, "ResourceFlavor", name, spec={"nodeLabels": {POOL: name}})
        cluster.make(f"{KUEUE}/resourceflavors", flavor)
        quotas = {"cpu": str(self.kind.pods), "memory": "1Ti"}
        resources = [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()]
        flavors = [{"name": name, "resources": resources}]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": list(quotas), "flavors": flavors}],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        cluster.make(f"{KUEUE}/clusterqueues", named(_GROUP, "ClusterQueue", name, spec=spec))
        for namespace in (name, self._urgent):
            cluster.make("api/v1/namespaces", named("v1", "Namespace", namespace))
            local = named(_GROUP, "LocalQueue", "queue", spec={"clusterQueue": name})
            cluster.make(f"{KUEUE}/localqueues", local, namespace)
        for collection, manifest in self.kind.before:
            cluster.make(collection, _parsed(manifest), name)

    def create(self) -> None:
        """Create the job; the webhooks suspend it at once, and one Workload (or one of each group of pods) follows."""
        tree = self.kind.tree
        tree["metadata"]["labels"] = {QUEUE_LABEL: "queue"}
        made = self.cluster.make(self.kind.resource, tree, self.name)
        assert not self.kind.suspend or _at(made, self.kind.suspend) is True, made["spec"]
        self._until(lambda: len(self.workloads()) == self.kind.workloads, "the Workloads are made")

    def runs(self) -> None:
        """Wait until every Workload is admitted and all pods of the operator run on the node of the flavor."""
        self._until(lambda: all(_has(each, "Admitted") for each in self.workloads()), "the Workloads are admitted")
        self._until(lambda: len(self.running()) == self.kind.pods, f"{self.kind.pods} pods run")
        for pod in self.running():
            assert pod["spec"]["nodeSelector"][POOL] == self.name
            assert pod["spec"]["nodeName"] == self.name
        if self.kind.suspend:
            found = self._object()
            assert not _at(found, self.kind.suspend)
            assert POOL in json.dumps(found["spec"])

    def give_way(self) -> None:
        """Create a Job with a higher priority that needs all CPUs; the job is preempted, and stands as it was created."""
        container: Tree = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(self.kind.pods)}}}
        container["command"] = ["sleep", LONG]
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        job = named("batch/v1", "Job", URGENT, spec={"template": template})
        job["metadata"]["labels"] = {QUEUE_LABEL: "queue", PRIORITY_LABEL: URGENT}
        self.cluster.make("apis/batch/v1/jobs", job, self._urgent)
        self._until(lambda: not self.running(), "no pod of the preempted job runs")
        self._until(lambda: len(self.running(self._urgent)) == 1, "the pod of the urgent Job runs")
        assert not self.running(), "a preempted job has no running pod while the urgent Job runs"
        if self.kind.suspend:
            found = self._object()
            assert _at(found, self.kind.suspend) is True
            assert POOL not in json.dumps(found["spec"]), "the node selector of the flavor is restored"
            (workload,) = self.workloads()
            evicted = _condition(workload, "Evicted")
            assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")

    def resume(self) -> None:
        """End the urgent Job, or delete it where it is simulated, and wait until the job runs again."""
        if self.simulated:
            self.cluster.delete(f"{place('apis/batch/v1/jobs', self._urgent)}/{URGENT}")
        else:
            self.end_pods(self._urgent)
            (workload,) = self.cluster.items(f"{KUEUE}/workloads", self._urgent)
            path = f"{place(f'{KUEUE}/workloads', self._urgent)}/{workload['metadata']['name']}"
            self._until(lambda: _has(self.cluster.get(path), "Finished"), "the urgent Job is finished")
        self.runs()

    def finish(self) -> None:
        """End the pods that decide, unless they end by themselves, and wait until the operator and the Workload report success."""
        if self.kind.ends is not None:
            self.cluster.host.dashboards.succeeded.add(self.name)
            if not self.simulated:
                self.end_pods(self.name, self.kind.ends)
            self._until(lambda: all(_has(each, "Finished") for each in self.workloads()), "the Workload is finished")
            for workload in self.workloads():
                assert _condition(workload, "Finished")["reason"] == "Succeeded"
            conditions = self._object().get("status", {}).get("conditions", ())
            true = {each["type"] for each in conditions if each["status"] == "True"}
            assert not self.kind.finished or true & set(self.kind.finished), true
        assert len(self.workloads()) == self.kind.workloads, "children of a queued job have no Workload of their own"

    def delete(self) -> None:
        """Delete the job; its pods and Workloads go, and the quota is free."""
        self.cluster.delete(self.path)
        self._until(lambda: not self.workloads(), "the Workloads are deleted")
        self._until(lambda: not self.cluster.items("api/v1/pods", self.name), "the pods are deleted")

    # --- Asking -------------------------------------------------------------------------------------------------------

    def workloads(self) -> list[Tree]:
        """The Workloads of the namespace that are not being deleted."""
        found = self.cluster.items(f"{KUEUE}/workloads", self.name)
        return [each for each in found if not each["metadata"].get("deletionTimestamp")]

    def running(self, namespace: str = "") -> list[Tree]:
        pods = self.cluster.items("api/v1/pods", namespace or self.name)
        return [each for each in pods if each.get("status", {}).get("phase") == "Running"]

    def end_pods(self, namespace: str, selector: str = "") -> None:
        query = f"?labelSelector={selector.replace('=', '%3D')}" if selector else ""
        for pod in self.cluster.items("api/v1/pods", namespace, query):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            self.cluster.patch(path, {"metadata": {"annotations": {ENDS: "Succeeded"}}})

    @property
    def _urgent(self) -> str:
        return f"{self.name}-urgent"

    def _object(self) -> Tree:
        found = self.cluster.get(self.path)
        assert found is not None, f"{self.path} is gone"
        return found

    def _until(self, asked: Any, what: str) -> None:
        try:
            until(asked, what)
        except AssertionError as late:
            self.cluster.host.check()
            raise AssertionError(f"{late}\n{self._report()}") from None

    def _report(self) -> str:
        """The objects that exist, for the message of a test that timed out."""
        found = self.cluster.get(self.path)
        lines = [f"logs: {self.cluster.host.folder}", f"object: {json.dumps(found, indent=1)}"]
        for workload in self.workloads():
            states = {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", ())}
            lines.append(f"Workload {workload['metadata']['name']}: {states}")
        for namespace in (self.name, self._urgent):
            for pod in self.cluster.items("api/v1/pods", namespace):
                gates = [each["name"] for each in pod["spec"].get("schedulingGates", ())]
                phase = pod.get("status", {}).get("phase")
                lines.append(
                    f"Pod {namespace}/{pod['metadata']['name']}: {phase} {gates} {pod['spec'].get('nodeName')}"
                )
            for event in self.cluster.items("api/v1/events", namespace)[-20:]:
                about = event["involvedObject"]
                lines.append(f"Event {about['kind']}/{about['name']}: {event['reason']}: {event['message']}")
        return "\n".join(lines)


def _parsed(manifest: str) -> Tree:
    tree: Tree = yaml.safe_load(manifest)
    return tree


def _at(tree: Tree, path: tuple[str, ...]) -> Any:
    value: Any = tree
    for name in path:
        value = (value or {}).get(name)
    return value


def _condition(workload: Tree, type_: str) -> Tree:
    found: Tree = next(each for each in workload["status"]["conditions"] if each["type"] == type_)
    return found


def _has(workload: Tree | None, type_: str) -> bool:
    conditions = (workload or {}).get("status", {}).get("conditions", ())
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)
