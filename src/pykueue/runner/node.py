"""The Node of this machine with its heartbeat, and first queues of its size."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import Final

from kubemachinery import meta, unstructured
from kubemachinery.client import retry
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, registry
from pykueue.runner import conditions
from pykueue.runner.conditions import ConditionUpdate
from pykueue.runner.machine import Machine
from pykueue.runner.process_spec import LOOPBACK
from pykueue.version import __version__

log = logging.getLogger(__name__)

FLAVOR: Final = "default-flavor"
# Jobs that name no queue use the LocalQueue of this name.
QUEUE: Final = "default"
NAMESPACE: Final = "default"

_NODES: Final = registry.ALL.of(kube.Node)
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_LEASES: Final = registry.ALL.of(kube.Lease)
_LEASE_NAMESPACE: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
_RENEW_SECONDS: Final = 10.0
# The status is large and rarely changes, so it is written less often than the Lease.
_RENEWALS_PER_STATUS: Final = 30


def initial_queues(machine: Machine) -> Sequence[Tree]:
    """Return a flavor, a ClusterQueue with the whole capacity of the machine, and a LocalQueue: enough for a first
    job."""
    quotas = [{"name": name, "nominalQuota": text} for name, text in machine.capacity.items() if name != "pods"]
    group = {
        "coveredResources": [quota["name"] for quota in quotas],
        "flavors": [{"name": FLAVOR, "resources": quotas}],
    }
    return (
        _object(registry.ALL.of(kueue.ResourceFlavor), FLAVOR, {}),
        _object(registry.ALL.of(kueue.ClusterQueue), QUEUE, {"namespaceSelector": {}, "resourceGroups": [group]}),
        _object(registry.ALL.of(kueue.LocalQueue), QUEUE, {"clusterQueue": QUEUE}),
    )


def _object(kind: Kind, name: str, spec: Tree) -> Tree:
    metadata = {"name": name, **({"namespace": NAMESPACE} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


class NodeHeartbeat:
    """Creates the Node of this machine, and renews its Lease and status."""

    def __init__(self, client: ApiClient, machine: Machine, clock: Clock) -> None:
        self._client = client
        self._machine = machine
        self._clock = clock

    async def begin(self) -> None:
        """Create the Node, or update it, and mark it ready."""
        await retry.retry_transient(self._ensure)
        await retry.retry_transient(self._renew)

    async def run(self) -> None:
        """Renew the Lease and the status until cancelled. A failed write is logged and repeated at the next
        interval."""
        for turn in itertools.count(1):
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await retry.retry_transient(self._renew if turn % _RENEWALS_PER_STATUS else self._ensure)
            except KubeError as error:
                log.warning("cannot renew the heartbeat of node %s: %s", self._machine.name, error)

    async def _renew(self) -> None:
        metadata = {"name": self._machine.name, "namespace": _LEASE_NAMESPACE}
        spec = {
            "holderIdentity": self._machine.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": meta.format_micro_time(self._clock.now()),
        }
        lease = {"apiVersion": _LEASES.api_version, "kind": _LEASES.kind, "metadata": metadata, "spec": spec}
        await retry.create_or_update(self._client, _LEASES, lease, "spec")

    async def _ensure(self) -> None:
        machine = self._machine
        found = await self._client.find(_NODES, machine.name)
        if found is None:
            labels = {
                "kubernetes.io/hostname": machine.name,
                "kubernetes.io/os": machine.system,
                "kubernetes.io/arch": machine.architecture,
            }
            metadata = {"name": machine.name, "labels": labels}
            found = await self._client.create(_NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        taints = unstructured.sequence(unstructured.get(found, "spec", "taints"))
        kept = [taint for taint in taints if unstructured.get(taint, "key") != _NOT_READY]
        if kept != taints:
            found = await self._client.replace(_NODES, unstructured.put(found, ("spec", "taints"), kept))
        await self._client.replace(_NODES, {**found, "status": self._status(found)}, "status")

    def _status(self, node: Tree) -> Tree:
        """Return the status. Capacity that others have added, such as devices of plugins, is kept."""
        before, now = unstructured.mapping(node.get("status")), self._clock.now()
        ready = ConditionUpdate("Ready", True, "RunnerReady", "the runner is ready to run pods")
        updated = conditions.merge(before, [ready], now)
        moment = meta.format_time(now)
        return {
            **before,
            "capacity": {**unstructured.texts(before.get("capacity")), **self._machine.capacity},
            "allocatable": {**unstructured.texts(before.get("allocatable")), **self._machine.capacity},
            "conditions": [
                {key: value for key, value in each.items() if key != "lastProbeTime"} | {"lastHeartbeatTime": moment}
                for each in updated
            ],
            "addresses": [
                {"type": "InternalIP", "address": LOOPBACK},
                {"type": "Hostname", "address": self._machine.name},
            ],
            "nodeInfo": _info(self._machine),
        }


def _info(machine: Machine) -> Tree:
    unknown = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")
    return {
        **dict.fromkeys(unknown, ""),
        "operatingSystem": machine.system,
        "architecture": machine.architecture,
        "containerRuntimeVersion": "none://processes",
        "kubeletVersion": f"pykueue-{__version__}",
    }
