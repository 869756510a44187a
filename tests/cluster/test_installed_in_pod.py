"""The manager in a pod of a real cluster: found by its service account, reached through Services, with its own rights.

There are no kubelets here, so the pod is a process, its mounts are a folder, and the router from a Service to a pod is
the
test. Everything else is the real thing: tokens, certificates, roles, webhooks, aggregation, and the audit log of the
API
server, which records what was refused to the manager.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import assets, real
from started import held_port
from waiting import PATIENCE_SECONDS, until
from webhooks.conftest import GROUP, cluster_queue, job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]  # one long scenario with many waits

Tree = dict[str, Any]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "provisioning"
NAMESPACE = "kueue-system"
ACCOUNT = "kueue-controller-manager"
ACCOUNT_USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
KUEUE = f"/apis/{GROUP}"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
QUEUE = "kueue.x-k8s.io/queue-name"
RACK = "example.com/rack"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
WAITING = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/plain/pendingworkloads"
# On the loopback interface, and yet none of the addresses that count as this machine's own.
GUARDED = "127.0.0.2"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "users": [ACCOUNT_USER]},
        {"level": "None"},
    ],
}


class Cluster:
    """A real API server, and what an administrator does with it."""

    def __init__(self, server: real.Client, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def make(self, path: str, tree: Tree) -> Tree:
        return self._write(f"{tree['kind']} {tree['metadata']['name']} is created", "POST", path, tree)

    def patch(self, path: str, patch: Tree) -> None:
        self._write(f"{path} is changed", "PATCH", path, patch, "application/merge-patch+json")

    def _write(self, what: str, *request: Any) -> Tree:
        """Write as soon as its webhooks answer."""

        def written() -> Tree | None:
            answer = self.server.request(*request)
            assert answer.code < 300 or answer.code >= 429, answer.body
            return answer.body if answer.code < 300 else None

        body: Tree = until(written, what)
        return body

    def get(self, path: str) -> Tree:
        body: Tree = self.server.request("GET", path).body
        return body

    def items(self, path: str) -> list[Tree]:
        """A list, once it can be had: an aggregated API is unavailable for a while."""
        answer = self.server.request("GET", path)
        return answer.body["items"] if answer.code == 200 else []

    def delete(self, path: str) -> None:
        """Delete an object as soon as its webhooks answer, and wait until it is deleted."""
        options = {"propagationPolicy": "Background"}
        until(lambda: self.server.request("DELETE", path, options).code == 404, f"{path} is gone")

    def token(self, bound: str) -> str:
        """A token of the manager's account, which lasts as long as the Secret that it is bound to."""
        secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        made = self.make(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": bound}})
        reference = {"apiVersion": "v1", "kind": "Secret", "name": bound, "uid": made["metadata"]["uid"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": ""},
                   "spec": {"boundObjectRef": reference}}  # fmt: skip
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
        return str(self.make(path, request)["status"]["token"])

    def lead(self, service: str, port_name: str, port: int) -> None:
        """Route a Service to a port of this machine. The API server would refuse it, so it is written to etcd."""
        tree = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": service, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
        }
        key, value = f"/registry/endpointslices/{NAMESPACE}/{service}", json.dumps(tree)
        body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
        with urllib.request.urlopen(f"{self.server.etcd_url}/v3/kv/put", json.dumps(body).encode()) as answer:
            assert answer.status == 200

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Whether the manager's account may do this in its namespace; the API server learns of rights a moment
        later."""
        asked = {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": resource}
        tree = {"apiVersion": "authorization.k8s.io/v1", "spec": {"user": ACCOUNT_USER, "resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(
            self.server.request("POST", path, {**tree, "kind": "SubjectAccessReview"}).body["status"]["allowed"]
        )

    def audited(self) -> list[Tree]:
        """All that the manager asked of the API server, and how it was answered."""
        whole, _, _ = (self.folder / "audit.log").read_text().rpartition("\n")  # the last line may be half written
        return [json.loads(line) for line in whole.splitlines()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
    with real.started(
        *real.front(tmp_path),
        "--enable-aggregator-routing=true",
        f"--audit-policy-file={tmp_path / 'audit.yaml'}",
        f"--audit-log-path={tmp_path / 'audit.log'}",
    ) as server:
        yield Cluster(server, tmp_path)


class Pod:
    """The manager's pod: what is mounted into it, and the process."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        hosts = {"webhooks": "127.0.0.1", "metrics": GUARDED, "probes": "127.0.0.1", "lists": "127.0.0.1"}
        self._held = contextlib.ExitStack()
        self.ports = {name: self._held.enter_context(held_port(host)) for name, host in hosts.items()}
        self.log = folder / "manager.log"
        self._config = folder / "config.yaml"
        self._mounted = folder / "serviceaccount"
        self._server = cluster.server
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": self.ports["webhooks"]},
            "metrics": {"bindAddress": f"{GUARDED}:{self.ports['metrics']}"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.ports['probes']}"},
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": self.ports["lists"]},
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "featureGates": {"DefaultLocalQueue": True},
        }
        self._config.write_text(yaml.safe_dump(configuration))
        (folder / "admin").write_text(cluster.server.kubeconfig())
        command = [sys.executable, "-m", "pykueue", "install", "--kubeconfig", str(folder / "admin")]
        subprocess.run([*command, "--config", str(self._config)], check=True, stdout=subprocess.DEVNULL)
        for right in (("list", "kueue.x-k8s.io", "workloads"), ("update", "coordination.k8s.io", "leases")):
            until(partial(cluster.allows, *right), "the manager's rights are known")
        cluster.lead("kueue-webhook-service", "https-webhook", self.ports["webhooks"])
        cluster.lead("kueue-visibility-server", "https", self.ports["lists"])
        assert cluster.server.ca is not None
        self._mounted.mkdir()
        (self._mounted / "ca.crt").write_bytes(cluster.server.ca)
        (self._mounted / "namespace").write_text(NAMESPACE)
        self.renew(cluster.token("first"))

    def renew(self, token: str) -> None:
        """As a kubelet does it: the new file takes the place of the old one at once."""
        fresh = self._mounted / "token.fresh"
        fresh.write_text(token)
        fresh.rename(self._mounted / "token")

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        host, _, port = self._server.url.removeprefix("https://").partition(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(self.log.parent)}
        program = Path(__file__).with_name("in_pod.py")
        arguments = ["manager", "--config", str(self._config), "--log-level", "debug"]
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, program, self._mounted, *arguments], env=environment, stdout=log, stderr=log
            )
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE_SECONDS)
                finally:
                    process.kill()
                    process.wait()
                    self._held.close()

    def asked(self, name: str, path: str, host: str = "127.0.0.1", *, tls: bool = False, token: str = "") -> int:
        """The code with which one of its ports answers; 0 for no answer."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = self.ports[name]
        connection = (
            http.client.HTTPSConnection(host, port, context=context) if tls else http.client.HTTPConnection(host, port)
        )
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status
        return 0


def started(cluster: Cluster, name: str) -> Tree:
    """A Job, once it is no longer suspended."""
    until(lambda: cluster.get(f"{JOBS}/{name}")["spec"]["suspend"] is False, f"job {name} starts")
    return cluster.get(f"{JOBS}/{name}")


def is_free(cluster: Cluster, name: str) -> bool:
    return not cluster.get(f"{PODS}/{name}")["spec"].get("schedulingGates")


def queue(cluster: Cluster, name: str, flavor: Tree, **spec: Any) -> None:
    """A ClusterQueue with a flavor of its own and a LocalQueue, all of the same name."""
    kept = {"apiVersion": GROUP, "metadata": {"name": name}}
    cluster.make(f"{KUEUE}/resourceflavors", {**kept, "kind": "ResourceFlavor", "spec": flavor})
    tree = cluster_queue(name, "2", **spec)
    tree["spec"]["resourceGroups"][0]["flavors"][0]["name"] = name
    cluster.make(f"{KUEUE}/clusterqueues", tree)
    local = {**kept, "kind": "LocalQueue", "spec": {"clusterQueue": name}}
    cluster.make(f"{KUEUE}/namespaces/default/localqueues", local)


def jobs_and_priorities(cluster: Cluster) -> None:
    """A job starts, gives way to one that matters more, and starts again when that is done."""
    cohort = {"apiVersion": GROUP, "kind": "Cohort", "metadata": {"name": "all"}, "spec": {}}
    cluster.make(f"{KUEUE}/cohorts", cohort)
    preemption = {"withinClusterQueue": "LowerPriority"}
    queue(cluster, "plain", {}, cohortName="all", preemption=preemption, defaultLocalQueue={"name": "everybody"})
    made = f"{KUEUE}/namespaces/default/localqueues/everybody"
    until(lambda: cluster.server.request("GET", made).code == 200, "the namespace gets its LocalQueue")
    urgent = {"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    cluster.make(f"{KUEUE}/workloadpriorityclasses", urgent)
    cluster.make(JOBS, job("modest", **{QUEUE: "plain"}))
    started(cluster, "modest")
    first = job("first", **{QUEUE: "plain", "kueue.x-k8s.io/priority-class": "urgent"})
    first["spec"] |= {"parallelism": 2, "completions": 2}
    cluster.make(JOBS, first)
    until(lambda: cluster.get(f"{JOBS}/modest")["spec"]["suspend"], "the lesser job gives way")
    started(cluster, "first")
    listed = until(lambda: cluster.items(WAITING), "who waits is listed by the API server")
    assert [one["metadata"]["ownerReferences"][0]["name"] for one in listed] == ["modest"]
    done = {"status": "True", "reason": "Done", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ended = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 2}
    conditions = [{"type": kind, **done} for kind in ("SuccessCriteriaMet", "Complete")]
    cluster.patch(f"{JOBS}/first/status", {"status": {**ended, "conditions": conditions}})
    started(cluster, "modest")
    cluster.delete(f"{JOBS}/modest")


def pods_in_a_rack(cluster: Cluster) -> None:
    """A pod is held back, gets quota and a rack, and may be scheduled; it has to go when its queue is drained."""
    levels = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]}
    topology = {"apiVersion": GROUP, "kind": "Topology", "metadata": {"name": "racks"}, "spec": levels}
    cluster.make(f"{KUEUE}/topologies", topology)
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
    labels = {RACK: "r1", "kubernetes.io/hostname": "node"}
    made = cluster.make(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": labels}}
    )
    cluster.patch(f"/api/v1/nodes/{made['metadata']['name']}", {"spec": {"taints": None}})
    cluster.patch(
        "/api/v1/nodes/node/status", {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
    )
    queue(cluster, "racks", {"nodeLabels": {RACK: "r1"}, "topologyName": "racks"})
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    notes = {"kueue.x-k8s.io/podset-required-topology": RACK}
    metadata = {"name": "lone", "labels": {QUEUE: "racks"}, "annotations": notes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    assert cluster.make(PODS, pod)["spec"]["schedulingGates"], "the webhook is asked through its Service"
    until(lambda: is_free(cluster, "lone"), "the pod may be scheduled")
    assert cluster.get(f"{PODS}/lone")["spec"]["nodeSelector"][RACK] == "r1"
    cluster.patch(f"{KUEUE}/clusterqueues/racks", {"spec": {"stopPolicy": "HoldAndDrain"}})
    until(lambda: cluster.server.request("GET", f"{PODS}/lone").code == 404, "the pod is deleted")


def nodes_on_demand(cluster: Cluster) -> None:
    """An autoscaler is asked for nodes, and the job starts when they are there."""
    for file in ("provisioningrequests.yaml", "queue.yaml", "job.yaml"):
        for tree in yaml.safe_load_all((EXAMPLES / file).read_text()):
            cluster.make(_collection(tree), tree)
        if file.startswith("provisioning"):
            until(lambda: cluster.server.request("GET", REQUESTS).code == 200, "the kind is served")
    (asked,) = until(lambda: cluster.items(REQUESTS), "the autoscaler is asked")
    provided = {"type": "Provisioned", "status": "True", "reason": "Done", "message": ""}
    status = {"conditions": [{**provided, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
              "provisioningClassDetails": {"NodeGroup": "g-17"}}  # fmt: skip
    cluster.patch(f"{REQUESTS}/{asked['metadata']['name']}/status", {"status": status})
    assert started(cluster, "render")["spec"]["template"]["spec"]["nodeSelector"]["example.com/group"] == "g-17"
    cluster.delete(f"{JOBS}/render")


def _collection(tree: Tree) -> str:
    """Where objects of this kind are made; all kinds here are called by the simplest plural."""
    root = f"/apis/{tree['apiVersion']}" if "/" in tree["apiVersion"] else f"/api/{tree['apiVersion']}"
    namespace = tree["metadata"].get("namespace")
    return f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{tree['kind'].lower()}s"


def test_manager_in_a_pod_works_with_its_own_permissions_and_rotated_tokens(cluster: Cluster, tmp_path: Path) -> None:
    pod = Pod(cluster, tmp_path)
    with pod.running() as process:
        until(lambda: process.poll() is not None or pod.asked("probes", "/readyz") == 200, "it is ready")
        assert process.poll() is None, pod.log.read_text()[-3000:]
        jobs_and_priorities(cluster)
        pods_in_a_rack(cluster)
        nodes_on_demand(cluster)
        for token, code in ((cluster.server.token, 200), ("guess", 401), ("", 403)):
            assert pod.asked("metrics", "/metrics", GUARDED, tls=True, token=token) == code

        pod.renew(second := cluster.token("second"))
        until(lambda: _identity(second) in _identities(cluster), "the new token is used")
        cluster.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/first")
        cluster.make(JOBS, job("later", **{QUEUE: "plain"}))
        started(cluster, "later")
        for name in ("plain", "racks", "elastic"):
            cluster.delete(f"{KUEUE}/namespaces/default/localqueues/{name}")
            if name == "plain":
                cluster.delete(f"{KUEUE}/namespaces/default/localqueues/everybody")
                cluster.delete(f"{JOBS}/later")
                cluster.delete(f"{JOBS}/first")
            cluster.delete(f"{KUEUE}/clusterqueues/{name}")
            cluster.delete(f"{KUEUE}/resourceflavors/{name}")
    assert process.returncode == 0, pod.log.read_text()[-3000:]
    refused = [one for one in cluster.audited() if one["responseStatus"]["code"] in (401, 403)]
    assert not refused, "\n".join(f"{one['verb']} {one['requestURI']}" for one in refused)
    assert "Traceback" not in pod.log.read_text()


def _identity(token: str) -> str:
    """What an API server calls a token in its log."""
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


def _identities(cluster: Cluster) -> set[str]:
    key = "authentication.kubernetes.io/credential-id"
    return {one for event in cluster.audited() for one in event["user"].get("extra", {}).get(key, ())}
