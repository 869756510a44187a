"""What others make of `deploy`: kubectl's kustomize and Helm give what `pykueue install` gives, and a cluster takes
it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.test_install import helm as stand_in
from cli.test_install import rendered
from cluster import assets, real
from pykueue.install import chart
from pykueue.install.manifests import InstallPlan
from waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

Tree = dict[str, Any]
Run = Callable[..., str]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = str(DEPLOY / "chart")
NAMESPACE = "kueue-system"
MANAGER = "kueue-controller-manager"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kueue-validating-webhook-configuration"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{MANAGER}"
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io"
CHOSEN: list[Tree] = [
    {},
    {
        "controllerManager": {
            "replicas": 3,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "manager": {
                "image": {"repository": "images.example/pykueue", "tag": "9", "pullPolicy": "Always"},
                "podAnnotations": {"words": 'with "quotes", <signs> and {{ braces }}'},
                "priorityClassName": "system-cluster-critical",
                "resources": {"limits": {"memory": "2Gi", "cpu": "1"}},
            },
        }
    },
    {"managerConfig": {"controllerManagerConfigYaml": "# häufig\nkind: Configuration\nwebhook:\n  port: 9444\n"}},
    {"enableDashboard": True},
]


def by_name(objects: Any) -> dict[tuple[str, str], Tree]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one is not None}


def merged(values: Any, chosen: Any) -> Any:
    """As Helm does it: objects are merged, and everything else is replaced."""
    if not isinstance(values, dict) or not isinstance(chosen, dict):
        return chosen
    return {**values, **{key: merged(values[key], one) if key in values else one for key, one in chosen.items()}}


@pytest.fixture
def cluster() -> Iterator[real.Client]:
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    with real.started() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A program with a home of its own, which finds the server that a test has named there."""

    def done(*command: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return done


@pytest.fixture
def helm() -> str:
    try:
        return str(assets.helm())
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kustomize_renders_the_same_installation_and_a_cluster_accepts_it(
    cluster: real.Client, run: Run, tmp_path: Path
) -> None:
    made = by_name(yaml.safe_load_all(run("kubectl", "kustomize", str(DEPLOY))))
    assert made == by_name(rendered())
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    applied = run("kubectl", "apply", "-k", str(DEPLOY), "--server-side")
    assert applied.count("serverside-applied") == len(made)
    run("kubectl", "wait", "--for=condition=Established", "crd/workloads.kueue.x-k8s.io", "--timeout=60s")
    assert run("kubectl", "diff", "-k", str(DEPLOY), "--server-side") == "", "and has nothing to add to it"
    run(sys.executable, "-m", "pykueue", "install")
    applied = run("kubectl", "apply", "-k", str(DEPLOY), "--server-side")
    assert applied.count("serverside-applied") == len(made), "the field managers do not conflict"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kustomize_adds_the_dashboard_as_a_component(run: Run, tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    own = {"resources": ["deploy"], "components": ["deploy/dashboard"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    made = by_name(yaml.safe_load_all(run("kubectl", "kustomize", str(tmp_path))))
    assert made == by_name(rendered("--dashboard"))


@pytest.mark.parametrize("chosen", CHOSEN)
def test_helm_renders_the_templates(helm: str, run: Run, tmp_path: Path, chosen: Tree) -> None:
    """And `tests/cli/test_install.py`, which reads the templates without Helm, shows that this is the installation."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(chosen))
    run(helm, "lint", "--strict", CHART, "-f", str(values))
    made = run(helm, "template", "release", CHART, "--namespace", "batch", "-f", str(values))
    assert by_name(yaml.safe_load_all(made)) == stand_in(merged(chart.values(InstallPlan()), chosen), "batch")


def test_release_is_installed_upgraded_and_uninstalled(
    cluster: real.Client, helm: str, run: Run, tmp_path: Path
) -> None:
    """An upgrade leaves alone what the manager wrote, and the kinds stay when the release goes."""
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    release = ("kueue", CHART, "--namespace", NAMESPACE)
    run(helm, "install", *release, "--create-namespace")
    authority = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "aGVyZQ=="}
    led = cluster.request("PATCH", HOOKS, [authority], "application/json-patch+json")
    assert led.code == 200, led.body
    run(helm, "upgrade", *release, "--set", "controllerManager.replicas=2")
    assert cluster.request("GET", DEPLOYMENT).body["spec"]["replicas"] == 2
    assert cluster.request("GET", HOOKS).body["webhooks"][0]["clientConfig"]["caBundle"] == "aGVyZQ=="
    run(helm, "uninstall", "kueue", "--namespace", NAMESPACE)
    assert cluster.request("GET", DEPLOYMENT).code == 404
    assert cluster.request("GET", HOOKS).code == 404
    assert cluster.request("GET", KIND).code == 200
