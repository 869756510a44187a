"""Manifests that users have, of all job kinds: each is accepted as it is and admitted, on the real and the embedded server.

The CRDs are those of the operators. kube-controller-manager makes the pods of Deployments and StatefulSets and the Jobs of
CronJobs; no other operator runs, because a Workload is admitted before its operator makes pods. Argo Workflows, Tekton and
Agent Sandbox have no integration: the pods that they create are queued, and `pod_recipes` creates them here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import started
from cluster import assets, kind_scenario, operators, pod_recipes, real
from cluster.kind_scenario import KUEUE, Cluster, named, place
from cluster.operators import OperatorHost
from cluster.queued_kinds import KINDS
from cluster.test_operators import IMPLEMENTED, configuration, manage
from pykueue.api import registry, schema
from waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Tree = dict[str, Any]

MANIFESTS: Final = Path(__file__).resolve().parents[3] / "shared" / "reference" / "manifests"
_GROUP: Final = "kueue.x-k8s.io/v1beta2"
_QUEUES: Final = ("user-queue", "user-queue-2", "my-local-queue", "tas-user-queue")
_LEVELS: Final = ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", "kubernetes.io/hostname")
_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu", "nvidia.com/total-gpucores", "nvidia.com/total-gpumem")
_BY_KIND: Final = {kind.tree["kind"]: kind for kind in KINDS}
# Kinds that are no job themselves: kube-controller-manager makes Jobs of a CronJob.
_MADE_BY_OTHERS: Final = {"CronJob": "apis/batch/v1/cronjobs"}
# The CRD of the operator refuses these, on every API server: `cpu: 0.5` is neither an integer nor text.
_REFUSED_BY_CRD: Final = {"xgboost-dist-iris-test-train": "resources.requests.cpu.* must be of type integer"}


def manifests() -> Iterator[Any]:
    """Every file with an object of a job kind that has an operator, as its objects."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        trees = [tree for tree in yaml.safe_load_all(path.read_text()) if isinstance(tree, dict)]
        names = [tree["kind"] for tree in trees if tree["kind"] in {*_BY_KIND, *_MADE_BY_OTHERS} - {"Job"}]
        if names:
            yield pytest.param(trees, id=f"{path.relative_to(MANIFESTS)}")


def recipes() -> Iterator[Any]:
    """Every file with an object whose controller creates pods and has no integration, with the objects beside it."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        trees = [tree for tree in yaml.safe_load_all(path.read_text()) if isinstance(tree, dict)]
        if any(tree["kind"] in ("Workflow", "PipelineRun", "Sandbox") for tree in trees):
            beside = [yaml.safe_load(other.read_text()) for other in path.parent.glob("tekton-*.yaml")]
            others = [tree for tree in beside if tree["kind"] in ("Pipeline", "Task") and "tekton" in path.name]
            yield pytest.param(trees[0], others, id=f"{path.relative_to(MANIFESTS)}")


_ABSENT: Final = pytest.mark.skip(reason="the reference manifests are not beside this clone")
CASES: Final = list(manifests()) or [pytest.param([], marks=_ABSENT)]
RECIPES: Final = list(recipes()) or [pytest.param({}, [], marks=_ABSENT)]


def full_configuration(frameworks: list[str]) -> Tree:
    """The manager's configuration with the transformations that the page of the HAMi sample has."""
    replaced = [
        {
            "input": f"nvidia.com/{name}",
            "strategy": "Replace",
            "multiplyBy": "nvidia.com/gpu",
            "outputs": {f"nvidia.com/total-{name}": "1"},
        }
        for name in ("gpucores", "gpumem")
    ]
    return {**configuration(frameworks), "resources": {"transformations": replaced}}


@contextlib.contextmanager
def real_engine(folder: Path) -> Iterator[OperatorHost]:
    with real.started() as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        server.install(*map(schema.crd, registry.KUEUE))
        with operators.beside(server, kubeconfig, folder) as host:
            host.install_all()
            manage(host, full_configuration(IMPLEMENTED))
            yield host


@contextlib.contextmanager
def embedded_engine(folder: Path) -> Iterator[OperatorHost]:
    config = folder / "config.yaml"
    config.write_bytes(operators.encoded(full_configuration(IMPLEMENTED)))
    server = started.up(folder, "--runner", "none", "--durability", "memory", "--config", str(config))
    try:
        client = real.of_kubeconfig(server.kubeconfig)
        with operators.beside(client, server.kubeconfig, folder) as host:
            host.install_all()
            yield host
        client.close()
    finally:
        code, output = server.end()
    assert (code, "Traceback" in output) == (0, False), output


@pytest.fixture(scope="module", params=[real_engine, embedded_engine], ids=["kube-apiserver", "embedded"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not MANIFESTS.exists():
        pytest.skip("the reference manifests are not beside this clone")
    try:
        assets.partner("kube-controller-manager")
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))
    with request.param(tmp_path_factory.mktemp("manifests")) as host:
        host.start("kube-controller-manager")
        made = Cluster(host)
        prepare(made)
        yield made


def prepare(cluster: Cluster) -> None:
    """A ClusterQueue with more than enough of everything, on two racks of one block."""
    until(lambda: kind_scenario.suspends(cluster), "the webhooks of the manager are asked")
    topology = {"levels": [{"nodeLabel": label} for label in _LEVELS]}
    cluster.make(f"{KUEUE}/topologies", named(_GROUP, "Topology", "racks", spec=topology))
    amounts = {"cpu": "1000", "memory": "4Ti", "pods": "1000", "nvidia.com/gpu": "100"}
    ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
    for name in ("a", "b"):
        node = named("v1", "Node", name)
        node["metadata"]["labels"] = dict(zip(_LEVELS, ("block", f"rack-{name}", name), strict=True))
        cluster.make("api/v1/nodes", node)
        cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        cluster.patch(f"/api/v1/nodes/{name}/status", {"status": status})
    for name, spec in (("plain", {}), ("racks", {"topologyName": "racks", "nodeLabels": {_LEVELS[0]: "block"}})):
        cluster.make(f"{KUEUE}/resourceflavors", named(_GROUP, "ResourceFlavor", name, spec=spec))
        resources = [{"name": resource, "nominalQuota": "4Ti"} for resource in _RESOURCES]
        group = {"coveredResources": list(_RESOURCES), "flavors": [{"name": name, "resources": resources}]}
        queue = {"namespaceSelector": {}, "resourceGroups": [group]}
        cluster.make(f"{KUEUE}/clusterqueues", named(_GROUP, "ClusterQueue", name, spec=queue))


@pytest.mark.parametrize("trees", CASES)
def test_known_manifest_is_accepted_and_admitted(cluster: Cluster, trees: list[Tree]) -> None:
    (job,) = (tree for tree in trees if tree["kind"] in {*_BY_KIND, *_MADE_BY_OTHERS})
    kind = _BY_KIND.get(job["kind"])
    if kind is not None and kind.framework not in IMPLEMENTED:
        pytest.skip(f"{kind.framework} is not implemented")
    in_racks = any("topology" in str(tree) for tree in trees)
    namespace = namespace_of(cluster, job, "racks" if in_racks else "plain")
    resource = kind.resource if kind is not None else _MADE_BY_OTHERS[job["kind"]]
    if namespace in _REFUSED_BY_CRD:
        with pytest.raises(AssertionError, match=_REFUSED_BY_CRD[namespace]):
            cluster.make(resource, job, namespace)
        return
    made = cluster.make(resource, job, namespace)
    until_admitted(cluster, namespace)
    cluster.delete(f"{place(resource, namespace)}/{made['metadata']['name']}")


@pytest.mark.parametrize(("tree", "others"), RECIPES)
def test_pods_of_a_controller_without_an_integration_are_queued(
    cluster: Cluster, tree: Tree, others: list[Tree]
) -> None:
    namespace = namespace_of(cluster, tree, "plain")
    cluster.host.client.install(*(kind.crd for kind in pod_recipes.KINDS.values()))
    made, *beside = [
        cluster.make(pod_recipes.KINDS[each["kind"]].resource, each, namespace) for each in (tree, *others)
    ]
    pods = pod_recipes.pods(made, beside)
    for pod in pods:
        stored = cluster.make("api/v1/pods", pod, namespace)
        assert {"name": "kueue.x-k8s.io/admission"} in stored["spec"]["schedulingGates"]
    found = until_admitted(cluster, namespace, len(pods))
    assert {owner["name"] for one in found for owner in one["metadata"]["ownerReferences"]} == {
        pod["metadata"]["name"] for pod in pods
    }
    for pod in pods:
        cluster.delete(f"{place('api/v1/pods', namespace)}/{pod['metadata']['name']}")


def namespace_of(cluster: Cluster, job: Tree, cluster_queue: str) -> str:
    """A namespace of its own for the job, with the queues that the files name. They name the default one, or none."""
    namespace: str = job["metadata"].get("name") or job["metadata"]["generateName"].rstrip("-")
    cluster.make("api/v1/namespaces", named("v1", "Namespace", namespace))
    for name in _QUEUES:
        local = named(_GROUP, "LocalQueue", name, spec={"clusterQueue": cluster_queue})
        cluster.make(f"{KUEUE}/localqueues", local, namespace)
    job["metadata"].pop("namespace", None)
    return namespace


def until_admitted(cluster: Cluster, namespace: str, least: int = 1) -> list[Tree]:
    """Wait until there are so many Workloads in a namespace, and all are admitted."""

    def admitted() -> list[Tree]:
        cluster.host.check()
        found = cluster.items(f"{KUEUE}/workloads", namespace)
        true = [
            {each["type"] for each in one.get("status", {}).get("conditions", ()) if each["status"] == "True"}
            for one in found
        ]
        return found if len(found) >= least and all("Admitted" in each for each in true) else []

    return until(admitted, f"the Workloads of {namespace} are admitted")
