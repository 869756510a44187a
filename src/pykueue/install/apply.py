"""Installation by server-side apply, and deletion. Both are idempotent.

Fields that the running manager maintains are left to it: the client configuration of webhooks and conversion. Objects
of
users are kept: the CRDs are deleted only on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.retry import retry_transient
from kubemachinery.errors import UsageError
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.unstructured import Tree
from pykueue.api import labels, registry
from pykueue.controllers import aggregation
from pykueue.errors import NegativeResult
from pykueue.install.names import MANAGED_BY, MANAGER, OWNER
from pykueue.webhooks import registration

FIELD_MANAGER: Final = "pykueue-install"
ESTABLISHED_SECONDS: Final = 60.0
GONE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_CLUSTER: Final = Scope.CLUSTER

# Reports progress, one line per call.
Report = Callable[[str], None]


def _kind(api_version: str, kind: str, scope: Scope = Scope.NAMESPACED, plural: str = "") -> Kind:
    group, _, version = api_version.rpartition("/")
    return Kind(group, kind, plural or f"{kind.lower()}s", (Version(version, storage=True),), scope)


_NAMESPACE: Final = _kind("v1", "Namespace", _CLUSTER)
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_KINDS: Final = {
    (kind.api_version, kind.kind): kind
    for kind in (
        *registration.KINDS.values(),
        registration.CRD,
        aggregation.API_SERVICE,
        _NAMESPACE,
        _kind("v1", "ServiceAccount"),
        _kind("v1", "ConfigMap"),
        _kind("v1", "Secret"),
        _kind("v1", "Service"),
        _kind("networking.k8s.io/v1", "NetworkPolicy", plural="networkpolicies"),
        _kind("policy/v1", "PodDisruptionBudget"),
        _kind("apps/v1", "Deployment"),
        _kind(_RBAC, "Role"),
        _kind(_RBAC, "RoleBinding"),
        _kind(_RBAC, "ClusterRole", _CLUSTER),
        _kind(_RBAC, "ClusterRoleBinding", _CLUSTER),
    )
}
# What refers the API server to the manager; the manager maintains its address.
_LEADING: Final = (*registration.KINDS.values(), aggregation.API_SERVICE)


def kind_of(document: Tree) -> Kind:
    return _KINDS[document["apiVersion"], document["kind"]]


def title(document: Tree) -> str:
    """Return an object as kubectl names it: `deployment.apps/kueue-controller-manager`."""
    kind, name = kind_of(document), document["metadata"]["name"]
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"


# --- Install ----------------------------------------------------------------------------------------------------------


async def install(
    client: ApiClient, documents: Sequence[Tree], report: Report, *, superseded: Sequence[Tree] = ()
) -> None:
    """Apply the manifests in order, delete superseded objects of an earlier installation, and wait until the CRDs are
    established."""
    await _refuse_foreign_manager(client, documents)
    definitions = [one for one in documents if kind_of(one) is registration.CRD]
    await _wait_for_deletions(client, definitions)
    for document in documents:
        report(f"{title(document)} {await _apply(client, document)}")
    for document in superseded:
        found = await _found(client, document)
        if found is not None and _is_ours(found):
            await _delete(client, document)
            report(f"{title(document)} deleted (not part of this configuration)")
    await _wait_for_kinds(client, definitions)
    report("the CustomResourceDefinitions of kueue.x-k8s.io are established")


async def _refuse_foreign_manager(client: ApiClient, documents: Iterable[Tree]) -> None:
    """Refuse to overwrite a manager that another tool installed under the same names."""
    for document in documents:
        if document["kind"] == "Deployment" and document["metadata"]["name"] == MANAGER:
            found = await _found(client, document)
            if found is not None and not _is_ours(found):
                namespace = document["metadata"]["namespace"]
                raise UsageError(
                    f"Deployment {MANAGER} in namespace {namespace} was not installed by pykueue; delete it first, but"
                    " keep its CRDs: deleting them deletes every queue and Workload"
                )


async def _apply(client: ApiClient, document: Tree) -> str:
    kind = kind_of(document)
    found = await _found(client, document)
    if found is not None and kind in _LEADING:
        return "unchanged (maintained by the manager)"
    if found is not None and kind is _NAMESPACE and not _is_ours(found):
        return "unchanged (existed before)"
    if found is not None and kind is registration.CRD and unstructured.get(found, "spec", "conversion", "webhook"):
        document = unstructured.put(document, ("spec", "conversion"), found["spec"]["conversion"])
    applied = await client.apply(kind, document, FIELD_MANAGER)
    if found is None:
        return "created"
    return "unchanged" if _revision(applied) == _revision(found) else "configured"


def _is_ours(found: Tree) -> bool:
    return bool(unstructured.get(found, "metadata", "labels", MANAGED_BY) == OWNER)


async def _found(client: ApiClient, document: Tree) -> Tree | None:
    metadata = document["metadata"]
    return await client.find(kind_of(document), metadata["name"], metadata.get("namespace", ""))


async def _delete(client: ApiClient, document: Tree) -> None:
    metadata = document["metadata"]
    await client.delete(kind_of(document), metadata["name"], metadata.get("namespace", ""))


def _revision(tree: Tree) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "resourceVersion"))


async def _wait_for_deletions(client: ApiClient, definitions: Sequence[Tree]) -> None:
    """Wait for CRDs that are being deleted: a CRD applied now would be deleted with all its objects."""
    going = [one["metadata"]["name"] for one in definitions]
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while going:
                found = [await client.find(registration.CRD, name) for name in going]
                going = [one["metadata"]["name"] for one in found if one and "deletionTimestamp" in one["metadata"]]
                if going:
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise NegativeResult(f"{', '.join(going)}: still being deleted after {GONE_SECONDS:.0f} seconds") from None


async def _wait_for_kinds(client: ApiClient, definitions: Sequence[Tree]) -> None:
    waiting = [definition["metadata"]["name"] for definition in definitions]
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            while waiting:
                found = [await client.get(registration.CRD, name) for name in waiting]
                waiting = [one["metadata"]["name"] for one in found if not _is_established(one)]
                if waiting:
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise NegativeResult(f"{', '.join(waiting)}: not established after {ESTABLISHED_SECONDS:.0f} seconds") from None


def _is_established(definition: Tree) -> bool:
    return any(
        (condition.get("type"), condition.get("status")) == ("Established", "True")
        for _, condition in unstructured.entries(definition, "status", "conditions")
    )


# --- Uninstall --------------------------------------------------------------------------------------------------------


async def uninstall(client: ApiClient, documents: Sequence[Tree], report: Report, *, kinds_too: bool) -> None:
    """Delete the manifests in reverse order: webhooks before the manager, so that no write waits for a missing
    webhook."""
    finalizers_removed = False
    for document in reversed(documents):
        kind = kind_of(document)
        if kind is registration.CRD and not kinds_too:
            continue
        if kind is registration.CRD and not finalizers_removed:
            await _remove_finalizers(client, report)
            finalizers_removed = True
        found = await _found(client, document)
        if kind is _NAMESPACE and found is not None and not _is_ours(found):
            report(f"{title(document)} kept (existed before)")
            continue
        await _delete(client, document)
        report(f"{title(document)} {'deleted' if found is not None else 'not found'}")
    if not kinds_too:
        report("the CustomResourceDefinitions are kept, with every queue and Workload; --crds deletes them")


async def _remove_finalizers(client: ApiClient, report: Report) -> None:
    """Remove the finalizers of our objects: without the manager they would block every deletion.

    Every kind is listed, also those without finalizers: the API server opens the storage of a kind with its first
    request, and the deletion of a CRD whose storage is not open fails and is repeated much later.
    """
    for row in registry.CUSTOM:
        try:
            found = (await retry_transient(partial(client.list, row))).items
        except errors.NotFound:
            continue
        for item in found:
            metadata: dict[str, Any] = msgspec.json.decode(item)["metadata"]
            kept = [name for name in metadata.get("finalizers", ()) if name != labels.RESOURCE_IN_USE_FINALIZER]
            if len(kept) != len(metadata.get("finalizers", ())):
                patch = {"metadata": {"finalizers": kept or None}}
                # The API server may still call the deleted webhooks for a moment.
                await retry_transient(
                    partial(client.patch, row, metadata["name"], patch, metadata.get("namespace", ""))
                )
                report(f"{row.singular}/{metadata['name']} finalizer removed")
