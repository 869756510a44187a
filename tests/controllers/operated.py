"""Jobs of a kind with a CRD on the embedded server: a small CRD, and a test that writes the status of the operator."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from controllers.conftest import Environment
from kubemachinery.client.errors import AlreadyExists, Conflict
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.unstructured import Tree, get
from pykueue.api import registry
from waiting import eventually

CRDS = Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    (Version("v1", storage=True),),
    Scope.CLUSTER,
)
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd(kind: Kind) -> Tree:
    """A CRD of a kind that accepts any spec and any status."""
    version = {
        "name": kind.storage.name,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}},
    }
    names = {"kind": kind.kind, "listKind": kind.list_kind, "plural": kind.plural, "singular": kind.singular}
    spec = {"group": kind.group, "names": names, "scope": str(kind.scope), "versions": [version]}
    return {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": {"name": kind.name}, "spec": spec}


async def install(env: Environment, kinds: Iterable[Kind]) -> None:
    """Install the CRDs of kinds that the server does not have."""
    for kind in kinds:
        if kind.group not in ("", "batch", "apps"):
            with suppress(AlreadyExists):
                await env.client.create(CRDS, crd(kind))


class OperatedJob:
    """A job on the server, as a user and an operator see it."""

    def __init__(self, env: Environment, kind: Kind, name: str) -> None:
        self.env, self.kind, self.name = env, kind, name

    @classmethod
    async def created(cls, env: Environment, kind: Kind, tree: Tree, **labels: str) -> OperatedJob:
        """Create a job in namespace `default`, with these labels in addition to its own."""
        metadata = {
            "name": tree["metadata"]["name"],
            "namespace": "default",
            "labels": {**tree["metadata"].get("labels", {}), **labels},
            "annotations": tree["metadata"].get("annotations", {}),
        }
        await eventually(lambda: _is_created(env, kind, {**tree, "metadata": metadata}))
        return cls(env, kind, metadata["name"])

    async def tree(self) -> Tree:
        return await self.env.client.get(self.kind, self.name, "default")

    async def status(self, status: Tree) -> None:
        """The operator writes the status."""

        async def is_written() -> bool:
            revision = (await self.tree())["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": revision}, "status": status}
            with suppress(Conflict):
                await self.env.client.patch(self.kind, self.name, patch, "default", subresource="status")
                return True
            return False

        await eventually(is_written)

    async def delete(self) -> None:
        await self.env.client.delete(self.kind, self.name, "default")

    async def workloads(self) -> list[Tree]:
        """The Workloads that the job owns."""
        return [
            each
            for each in await self.env.all("Workload")
            if any(
                (owner["kind"], owner["name"]) == (self.kind.kind, self.name)
                for owner in each["metadata"].get("ownerReferences") or []
            )
        ]

    async def workload(self) -> str:
        """The name of its Workload, once it has one."""
        await eventually(self.workloads)
        (found,) = await self.workloads()
        return str(found["metadata"]["name"])

    async def until_suspended(self, path: tuple[str, ...], suspended: bool) -> Tree:
        """The job once it is suspended, or started."""

        async def holds() -> bool:
            return bool(get(await self.tree(), *path)) is suspended

        await eventually(holds)
        return await self.tree()


async def _is_created(env: Environment, kind: Kind, tree: Tree) -> bool:
    """A server serves a CRD shortly after it was created."""
    known = registry.ALL.find(kind.api_version, kind.kind)
    if known is None and await env.client.find(CRDS, kind.name, "") is None:
        raise AssertionError(f"the CRD {kind.name} is not installed")
    await env.client.create(kind, tree)
    return True
