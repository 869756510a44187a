"""Every job kind on the real API server, driven by its real operator, with real controllers of Kubernetes and kwok's pods.

Created, suspended by our webhook, admitted, run by its operator, preempted by a higher priority, restored, resumed,
finished, deleted. Operators that take long to build are behind a switch: `make test-cluster OPERATORS=all`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cluster import assets, kind_scenario, operators, real
from cluster.kind_scenario import Cluster, Scenario
from cluster.operators import OperatorHost
from cluster.queued_kinds import KINDS, QueuedKind
from pykueue.api import registry, schema
from pykueue.jobs import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).resolve().parents[2]
IMPLEMENTED: Final = [row.framework for row in kinds.BUILT_IN if row.implementation is not None]


def configuration(frameworks: list[str]) -> dict[str, Any]:
    """The manager's configuration with these frameworks, and the feature gates that they need."""
    rows = [row for row in kinds.BUILT_IN if row.framework in frameworks]
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "integrations": {"frameworks": frameworks},
        "featureGates": {row.required_gate: True for row in rows if row.required_gate},
    }


def manage(host: OperatorHost, settings: dict[str, Any]) -> None:
    """Run `pykueue manager` beside the operators, in the namespace of an installation."""
    host.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    config = host.write("manager.yaml", settings)
    arguments = ("-m", "pykueue", "manager", "--kubeconfig", str(host.kubeconfig), "--config", config)
    host.run("manager", Path(sys.executable), *arguments, environment={"PYTHONPATH": str(ROOT / "src")})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server with Kubernetes' controllers, kwok and the manager; the CRDs of all selected operators."""
    folder = tmp_path_factory.mktemp("operators")
    try:
        names = [partner.name for partner in assets.selected()]
        for name in names:
            assets.partner(name)
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))
    with real.started() as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        server.install(*map(schema.crd, registry.KUEUE))
        with operators.beside(server, kubeconfig, folder) as host:
            host.install(*names)
            host.start("kube-controller-manager", "kube-scheduler", "kwok")
            served = [kind.framework for kind in KINDS if set(kind.partners) <= set(names)]
            manage(host, configuration([name for name in ("pod", *served) if name in IMPLEMENTED]))
            made = Cluster(host)
            kind_scenario.prepare(made)
            yield made


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_kind_is_preempted_resumed_and_ended_with_its_real_operator(cluster: Cluster, kind: QueuedKind) -> None:
    if kind.framework not in IMPLEMENTED:
        pytest.skip(f"{kind.framework} is not implemented")
    try:
        cluster.host.start(*kind.partners)
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))
    scenario = Scenario(cluster, kind)
    scenario.prepare()
    scenario.create()
    scenario.runs()
    scenario.give_way()
    scenario.resume()
    scenario.finish()
    scenario.delete()
