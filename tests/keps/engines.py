"""Where tests run: the embedded server in this process, or a real kube-apiserver with the manager beside it.

A real server takes long to start, so that one serves all tests; between two of them it is emptied.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster import real
from controllers.conftest import environment
from keps.system import System, Tree
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind, Version
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.api import kube, kueue, labels, registry, schema
from pykueue.app.cluster_manager import manage
from pykueue.app.server import kueue_parts
from pykueue.controllers.assembly import Manager
from pykueue.webhooks import registration
from pykueue.webhooks.review import Phase


class Engine(Protocol):
    def served(self, **configuration: Any) -> AbstractAsyncContextManager[System]:
        """A server with the CRDs, without a manager."""
        ...

    def bare(self) -> AbstractAsyncContextManager[System]:
        """The same without webhooks, as while they are down."""
        ...


@dataclass
class Embedded:
    data_dir: Path

    @asynccontextmanager
    async def served(self, **configuration: Any) -> AsyncIterator[System]:
        async with environment(self.data_dir, **configuration) as env:
            yield System(env.serving)

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[System]:
        server = ServerSettings(data_dir=self.data_dir, durability=Durability.MEMORY)
        async with api_server(server, kueue_parts()) as serving:
            yield System(serving)


# --- A real server ----------------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    server: real.Client
    kubeconfig: Path

    @asynccontextmanager
    async def served(self, **configuration: Any) -> AsyncIterator[System]:
        target = client_config.from_files([self.kubeconfig])
        transport = client_config.connect(target, SystemClock())
        try:
            yield _Beside(ApiClient(transport, random.Random(1)), target, self.kubeconfig)
        finally:
            await transport.close()
            sweep(self.server)

    def bare(self) -> AbstractAsyncContextManager[System]:
        return self.served()  # webhooks come with the manager


class _Beside(System):
    """The manager talks to its server over HTTPS, and the server to its webhooks."""

    def __init__(self, client: ApiClient, target: client_config.ClientConfig, kubeconfig: Path) -> None:
        self.client = client
        self._target = target
        self._kubeconfig = kubeconfig

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    @asynccontextmanager
    async def manager(self, **configuration: Any) -> AsyncIterator[Manager]:
        gates = {"VisibilityOnDemand": False, **configuration.get("featureGates", {})}
        quiet = {"metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"}}
        chosen = settings.load(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {"qps": -1},
                **quiet,
                **configuration,
                "featureGates": gates,
            }
        )
        built: asyncio.Future[Manager] = asyncio.get_running_loop().create_future()
        managing = asyncio.create_task(manage(self._target, chosen, built=built.set_result))
        try:
            manager = await built
            await self.until(lambda: self._is_asked(managing))
            yield manager
        finally:
            managing.cancel()
            await asyncio.wait([managing])

    async def quiet(self) -> None:
        """Watch events of a real server arrive later, also those of the manager's own writes."""
        seen: list[int] = []
        while (now := await self._caught_up()) != seen:
            seen = now
            await super().quiet()

    async def _caught_up(self) -> list[int]:
        copies = self.manager_now.copies
        await asyncio.gather(*(copy.wait_until_current() for copy in copies))
        return [copy.revision for copy in copies]

    async def _is_asked(self, managing: asyncio.Task[None]) -> bool:
        """Whether the server asks both webhooks by now: one puts our finalizer on flavors, one refuses bad ones."""
        if managing.done():
            managing.result()
        try:
            made = await self.client.create(_FLAVOR, _flavor({}), dry_run=True)
            if labels.RESOURCE_IN_USE_FINALIZER not in made["metadata"].get("finalizers", []):
                return False
            await self.client.create(_FLAVOR, _flavor({"nodeLabels": {"not a label!": "x"}}), dry_run=True)
        except KubeError as error:
            return "denied the request" in str(error)
        return False


_FLAVOR = registry.KUEUE.of(kueue.ResourceFlavor)


def _flavor(spec: Tree) -> Tree:
    return {"apiVersion": _FLAVOR.api_version, "kind": _FLAVOR.kind, "metadata": {"name": "probe"}, "spec": spec}


@contextmanager
def real_cluster(folder: Path) -> Iterator[Cluster]:
    """A real server with our kinds."""
    with real.started() as server:
        server.install(*map(schema.crd, registry.KUEUE))
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        assert server.request("POST", _NAMESPACE.path(), home).code == 201
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        yield Cluster(server, kubeconfig)


# --- Sweeping ---------------------------------------------------------------------------------------------------------

_NAMESPACE = registry.KUBERNETES.of(kube.Namespace)
_KEPT = ("default", "kueue-system", "kube-")
_MOVING = [
    Kind("apps", kind, f"{kind.lower()}s", (Version("v1", storage=True),))
    for kind in ("Deployment", "StatefulSet", "ReplicaSet")
]


def sweep(server: real.Client) -> None:
    """Delete everything that a test left, with or without finalizers."""
    _disable_webhooks(server)
    kinds = [row for row in registry.ALL if row.kind not in ("Namespace", "Secret", "ConfigMap", "Lease")]
    for kind in (*_MOVING, *kinds):
        answer = server.request("GET", kind.path())
        for item in answer.body.get("items") or [] if answer.code == 200 else []:
            _remove(server, kind, item["metadata"])
    for item in server.request("GET", _NAMESPACE.path()).body["items"]:
        if not item["metadata"]["name"].startswith(_KEPT):
            server.request("DELETE", _NAMESPACE.path(name=item["metadata"]["name"]))
            # No namespace controller runs here that would do this.
            done = {**item, "spec": {"finalizers": []}}
            done["metadata"].pop("resourceVersion")
            server.request("PUT", _NAMESPACE.path(name=item["metadata"]["name"], subresource="finalize"), done)


def _disable_webhooks(server: real.Client) -> None:
    """Disable the webhooks: no server listens for them. One that is never called stays, so that the next manager finds its port again."""
    for phase, kind in registration.KINDS.items():
        path = kind.path(name=registration.NAMES[phase])
        found = server.request("GET", path)
        if found.code == 200 and found.body.get("webhooks"):
            never = [
                {
                    "apiGroups": ["unused.example"],
                    "apiVersions": ["v1"],
                    "resources": ["none"],
                    "operations": ["CREATE"],
                }
            ]
            kept = {**found.body["webhooks"][0], "rules": never} if phase is Phase.VALIDATE else None
            server.request("PUT", path, {**found.body, "webhooks": [kept] if kept else []})


def _remove(server: real.Client, kind: Kind, metadata: Tree) -> None:
    path = kind.path(metadata.get("namespace", ""), metadata["name"])
    if metadata["name"].startswith("system-"):
        return  # PriorityClasses of the server's own
    free = {"metadata": {"finalizers": None}}
    while metadata.get("finalizers") and (
        server.request("PATCH", path, free, content_type="application/merge-patch+json").code >= 500
    ):
        time.sleep(0.05)  # the server has not noticed yet that webhooks are not to be asked
    server.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
