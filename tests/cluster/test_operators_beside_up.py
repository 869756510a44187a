"""Operators beside `pykueue up`, with the kubeconfig that it wrote and no other change: the embedded server queues their kinds.

The server simulates the pods, and its own controllers run Jobs, Deployments and StatefulSets: those of users, and those that
operators create. JobSet and the kinds without an operator run always, the others with OPERATORS=all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import started
from cluster import assets, kind_scenario, operators, real
from cluster.kind_scenario import Cluster, Scenario
from cluster.queued_kinds import KINDS, QueuedKind
from cluster.test_operators import IMPLEMENTED, configuration

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("beside-up")
    config = folder / "config.json"
    config.write_bytes(operators.encoded(configuration(IMPLEMENTED)))
    server = started.up(folder, "--runner", "simulated", "--durability", "memory", "--config", str(config))
    try:
        client = real.of_kubeconfig(server.kubeconfig)
        with operators.beside(client, server.kubeconfig, folder) as host:
            made = Cluster(host)
            kind_scenario.prepare(made)
            yield made
        client.close()
    finally:
        code, output = server.end()
    assert (code, "Traceback" in output) == (0, False), output


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_operator_beside_up_runs_a_queued_job(cluster: Cluster, kind: QueuedKind) -> None:
    if kind.framework not in IMPLEMENTED:
        pytest.skip(f"{kind.framework} is not implemented")
    try:
        cluster.host.start(*kind.partners)
    except assets.AssetsError as wrong:
        pytest.skip(str(wrong))
    scenario = Scenario(cluster, kind, simulated=True)
    scenario.prepare()
    scenario.create()
    scenario.runs()
    scenario.give_way()
    scenario.resume()
    scenario.delete()
    if kind.ends is not None:
        short = Scenario(cluster, kind.short, simulated=True)
        short.create()
        short.finish()
        short.delete()
