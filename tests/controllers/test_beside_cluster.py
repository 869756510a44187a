"""A manager beside a real kube-apiserver: who reaches it, who may read, and what its account may do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster import assets, real
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind
from pykueue import settings
from pykueue.app.cluster_manager import manage
from pykueue.controllers import failure_recovery
from pykueue.controllers.aggregation import API_SERVICE
from pykueue.install import apply, manifests
from started import held_port
from waiting import eventually
from webhooks.conftest import GROUP, cluster_queue, job, kind

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]

LIST = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
RBAC = "rbac.authorization.k8s.io"
QUEUE = "kueue.x-k8s.io/queue-name"
# On the loopback interface, and yet none of the addresses that count as this machine's own.
GUARDED = "127.0.0.2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real.Client]:
    """An API server with a client certificate for the front proxy, as real clusters have."""
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    with real.started(*real.front(tmp_path_factory.mktemp("front"))) as server:
        yield server


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """One of this address that is the test's alone."""
    with held_port(request.param) as held:
        yield held


@contextlib.asynccontextmanager
async def managed(
    server: real.Client,
    metrics: str = "0",
    account: bool = False,
    dashboard: tuple[str, int] | None = None,
    external: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
) -> AsyncIterator[ApiClient]:
    """A manager beside the server, as its own account or as an administrator; and a client that may do everything."""
    written = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "metrics": {"bindAddress": metrics},
        "health": {"healthProbeBindAddress": "0"},
        "integrations": {"frameworks": ["batch/job", "pod"], "externalFrameworks": list(external)},
        "leaderElection": {"leaderElect": account},
        "featureGates": dict(gates or {}),
    }
    target = client_config.ClientConfig(
        server.url, "default", {"insecure-skip-tls-verify": True}, {"token": server.token}, Path("/")
    )
    client = ApiClient(client_config.connect(target, SystemClock()), random.Random(1))
    await apply.install(client, manifests.all_manifests(manifests.InstallPlan(written)), lambda line: None)
    if account:
        path = "/api/v1/namespaces/kueue-system/serviceaccounts/kueue-controller-manager/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        issued = await asyncio.to_thread(server.request, "POST", path, request)
        target = replace(target, user={"token": issued.body["status"]["token"]})
    chosen = settings.load(written)
    managing = asyncio.create_task(manage(target, chosen, dashboard=dashboard))
    try:
        yield client
        assert not managing.done()
    finally:
        managing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await managing
        await client.close()


async def answered(server: real.Client, code: int, path: str = LIST, **headers: str) -> real.Answer:
    """The answer, once it has this code: an API server learns of us and of new rights a moment later."""

    async def asked() -> real.Answer | None:
        answer = await asyncio.to_thread(server.request, "GET", path, **headers)
        return answer if answer.code == code else None

    answer = await eventually(asked, 0.2)
    assert answer is not None
    return answer


async def made_at_last(client: ApiClient, kind: Kind, tree: Tree) -> None:
    """Create something, once the server knows where our webhooks are."""

    async def made() -> bool:
        with contextlib.suppress(ApiError):
            await client.create(kind, tree)
            return True
        return False

    await eventually(made, 0.2)


async def raw(port: int, tls: ssl.SSLContext, path: str, host: str = "127.0.0.1", **headers: str) -> str:
    """The responses of the manager's own port to any client."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return answer.decode()


async def test_who_waits_is_shown_through_the_api_server_to_those_who_may(cluster: real.Client) -> None:
    async with managed(cluster) as client:
        await answered(cluster, 404)
        await made_at_last(client, kind("ClusterQueue"), cluster_queue())
        assert (await answered(cluster, 200)).body["items"] == []

        grace = {"Impersonate_User": "grace"}
        await answered(cluster, 403, **grace)
        bound = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "grace"},
            "roleRef": {
                "apiGroup": RBAC,
                "kind": "ClusterRole",
                "name": "kueue-pending-workloads-cq-viewer-role",
            },
            "subjects": [{"kind": "User", "name": "grace", "apiGroup": RBAC}],
        }
        await client.create(apply.kind_of(bound), bound)
        await answered(cluster, 200, **grace)
        await answered(cluster, 403, LIST.replace("clusterqueues", "namespaces/default/localqueues"), **grace)

        found = await client.get(API_SERVICE, "v1beta2.visibility.kueue.x-k8s.io")
        assert "insecureSkipTLSVerify" not in found["spec"]
        authority = base64.b64decode(found["spec"]["caBundle"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        answer = await raw(found["spec"]["service"]["port"], tls, LIST, **{"X-Remote-User": "system:admin"})
        assert answer.startswith("HTTP/1.1 403"), "a client that cannot prove to be the API server cannot impersonate"
        assert "system:anonymous" in answer


@pytest.mark.parametrize("port", [GUARDED], indirect=True)
async def test_metrics_that_others_can_reach_are_for_those_who_may(cluster: real.Client, port: int) -> None:
    async with managed(cluster, f"{GUARDED}:{port}"):
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

        async def response() -> str:
            with contextlib.suppress(OSError):
                return await raw(port, tls, "/metrics", GUARDED)
            return ""

        assert (await eventually(response, 0.1)).startswith("HTTP/1.1 403")
        assert (await raw(port, tls, "/metrics", GUARDED, Authorization="Bearer guess")).startswith("HTTP/1.1 401")
        allowed = await raw(port, tls, "/metrics", GUARDED, Authorization=f"Bearer {cluster.token}")
        assert allowed.startswith("HTTP/1.1 200")
        assert "kueue_" in allowed


@pytest.mark.parametrize("port", ["127.0.0.1"], indirect=True)
async def test_the_dashboard_shows_each_what_the_cluster_lets_them_see(cluster: real.Client, port: int) -> None:
    """Ada may look at Workloads and Events of one namespace, and the manager has no rights but its own."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    rules = [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
    ]
    role: Tree = {"apiGroup": RBAC, "kind": "Role", "name": "ada"}
    place = {"name": "ada", "namespace": "default"}
    made: list[Tree] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place},
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": place, "rules": rules},
        {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": place, "roleRef": role,
         "subjects": [{"kind": "ServiceAccount", **place}]},
    ]  # fmt: skip
    async with managed(cluster, account=True, dashboard=("127.0.0.1", port)) as client:
        for each in made:
            await client.create(apply.kind_of(each), each)
        path = "/api/v1/namespaces/default/serviceaccounts/ada/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        issued = await asyncio.to_thread(cluster.request, "POST", path, request)
        pods = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]
        workload = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": "seen", "namespace": "default"},
                    "spec": {"queueName": "nowhere", "podSets": pods}}  # fmt: skip
        await made_at_last(client, kind("Workload"), workload)

        async def asked(path: str, token: str) -> str:
            return await raw(port, tls, f"/dashboard/{path}", Authorization=f"Bearer {token}")

        ada = issued.body["status"]["token"]

        async def is_seen() -> bool:
            # Webhooks are served a moment before anything else is.
            with contextlib.suppress(OSError):
                return '"name":"seen"' in await asked("api/workloads?namespace=default", ada)
            return False

        await eventually(is_seen, 0.2)
        assert '"history":[' in (one := await asked("api/workloads/default/seen", ada))
        assert '"note":""' in one, "the manager may read the Events that it serves"
        for path, token, code in (
            ("", "", 200),
            ("api/overview", ada, 403),
            ("api/workloads", ada, 403),
            ("api/workloads?namespace=kube-system", ada, 403),
            ("api/overview", "guess", 401),
            ("api/overview", cluster.token, 200),
        ):
            assert (await asked(path, token)).startswith(f"HTTP/1.1 {code}"), path
        await client.delete(kind("Workload"), "seen", "default")


async def test_the_rights_that_are_installed_are_enough_for_its_work(
    cluster: real.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The manager as the account of its Deployment: it leads, is asked, admits and starts, and is refused nothing."""
    async with managed(cluster, account=True) as client:
        await made_at_last(client, kind("ClusterQueue"), cluster_queue("rights"))
        flavor = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "plain"}, "spec": {}}
        await client.create(kind("ResourceFlavor"), flavor)
        place = {"name": "lq", "namespace": "default"}
        queue = {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "rights"}}
        await client.create(kind("LocalQueue"), queue)
        await client.create(kind("Job"), job(**{QUEUE: "lq"}))
        pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        metadata = {"name": "lone", "namespace": "default", "labels": {QUEUE: "lq"}}
        await client.create(kind("Pod"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})

        async def both_may_start() -> bool:
            waits = (await client.get(kind("Job"), "train", "default"))["spec"]["suspend"]
            return not waits and "schedulingGates" not in (await client.get(kind("Pod"), "lone", "default"))["spec"]

        await eventually(both_may_start, 0.1)
        await client.delete(kind("Job"), "train", "default")
        await client.delete(kind("Pod"), "lone", "default")
        await client.delete(kind("LocalQueue"), "lq", "default")
        await client.delete(kind("ClusterQueue"), "rights")

        async def is_gone() -> bool:
            return await client.find(kind("ClusterQueue"), "rights") is None

        await eventually(is_gone, 0.1)
    refused = [
        line for line in caplog.messages if "forbidden" in line and "cannot be led to the visibility" not in line
    ]
    assert refused == []


async def test_a_pod_that_hangs_on_an_unreachable_node_is_deleted_by_force(
    cluster: real.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rights that are installed. There is no kubelet: a deleted pod stays until it is deleted by force."""
    monkeypatch.setattr(failure_recovery, "FORCED_AFTER_SECONDS", 0)
    async with managed(cluster, account=True, gates={"FailureRecoveryPolicy": True}) as client:
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}, "spec": {"taints": [taint]}}
        await client.create(kind("Node"), node)
        spec = {"nodeName": "lost", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i"}]}
        for name, allows in (("refuses", "false"), ("hangs", "true")):
            marks = {"kueue.x-k8s.io/safe-to-forcefully-delete": allows}
            metadata = {"name": name, "namespace": "default", "annotations": marks}
            await made_at_last(
                client, kind("Pod"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
            await client.delete(kind("Pod"), name, "default")

        async def is_gone() -> bool:
            return await client.find(kind("Pod"), "hangs", "default") is None

        await eventually(is_gone, 0.1)

        async def event_is_emitted() -> bool:
            found = (await client.list(kind("Event"), "default")).items
            return any(b"KueueForcefullyDeleted" in bytes(each) and b'"hangs"' in bytes(each) for each in found)

        await eventually(event_is_emitted, 0.1)
        assert (await client.get(kind("Pod"), "refuses", "default"))["status"]["phase"] == "Pending"
        await client.delete(kind("Pod"), "refuses", "default", grace_seconds=0)
        await client.delete(kind("Node"), "lost")
