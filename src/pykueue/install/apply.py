"""Bringing documents to a cluster by server-side apply, and taking them away again. Both can be repeated at will.

What the manager looks after once it runs is left to it: where webhooks and conversion lead. What people made with our
kinds is theirs: the kinds stay, unless somebody says otherwise.
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

# Says what happens, a line at a time.
Tell = Callable[[str], None]


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
# What leads an API server to the manager; only the manager knows where it is.
_LEADING: Final = (*registration.KINDS.values(), aggregation.API_SERVICE)


def kind_of(document: Tree) -> Kind:
    return _KINDS[document["apiVersion"], document["kind"]]


def title(document: Tree) -> str:
    """An object as people name it: `deployment.apps/kueue-controller-manager`."""
    kind, name = kind_of(document), document["metadata"]["name"]
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"


# --- There ------------------------------------------------------------------------------------------------------------


async def install(client: ApiClient, documents: Sequence[Tree], tell: Tell, *, superseded: Sequence[Tree] = ()) -> None:
    """Apply the documents in order, take away what an earlier installation left of those that are superseded, and wait
    until our kinds are served."""
    await _refuse_strangers(client, documents)
    definitions = [one for one in documents if kind_of(one) is registration.CRD]
    await _wait_for_deletions(client, definitions)
    for document in documents:
        tell(f"{title(document)} {await _apply(client, document)}")
    for document in superseded:
        found = await _found(client, document)
        if found is not None and _is_ours(found):
            await _delete(client, document)
            tell(f"{title(document)} deleted, because it led nowhere any more")
    await _wait_for_kinds(client, definitions)
    tell("the kinds of kueue.x-k8s.io are served")


async def _refuse_strangers(client: ApiClient, documents: Iterable[Tree]) -> None:
    """A manager that somebody else installed under the same names must not be overwritten piece by piece."""
    for document in documents:
        if document["kind"] == "Deployment" and document["metadata"]["name"] == MANAGER:
            found = await _found(client, document)
            if found is not None and not _is_ours(found):
                namespace = document["metadata"]["namespace"]
                raise UsageError(
                    f"Deployment {MANAGER} in namespace {namespace} was not installed by pykueue; delete it first, and"
                    " leave its CRDs where they are, for every queue and Workload goes with them"
                )


async def _apply(client: ApiClient, document: Tree) -> str:
    kind = kind_of(document)
    found = await _found(client, document)
    if found is not None and kind in _LEADING:
        return "left to the manager"
    if found is not None and kind is _NAMESPACE and not _is_ours(found):
        return "was there before"
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
    """What is applied to a kind that is being deleted goes with it, and all that people make of it."""
    going = [one["metadata"]["name"] for one in definitions]
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while going:
                found = [await client.find(registration.CRD, name) for name in going]
                going = [one["metadata"]["name"] for one in found if one and "deletionTimestamp" in one["metadata"]]
                if going:
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise NegativeResult(
            f"{', '.join(going)}: being deleted, and not gone after {GONE_SECONDS:.0f} seconds"
        ) from None


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
        raise NegativeResult(f"{', '.join(waiting)}: not served after {ESTABLISHED_SECONDS:.0f} seconds") from None


def _is_established(definition: Tree) -> bool:
    return any(
        (condition.get("type"), condition.get("status")) == ("Established", "True")
        for _, condition in unstructured.entries(definition, "status", "conditions")
    )


# --- And away ---------------------------------------------------------------------------------------------------------


async def uninstall(client: ApiClient, documents: Sequence[Tree], tell: Tell, *, kinds_too: bool) -> None:
    """Delete the documents, the last first: webhooks go before the manager, so that nobody's write waits for it."""
    objects_are_free = False
    for document in reversed(documents):
        kind = kind_of(document)
        if kind is registration.CRD and not kinds_too:
            continue
        if kind is registration.CRD and not objects_are_free:
            await _let_go(client, tell)
            objects_are_free = True
        found = await _found(client, document)
        if kind is _NAMESPACE and found is not None and not _is_ours(found):
            tell(f"{title(document)} stays, because it was there before")
            continue
        await _delete(client, document)
        tell(f"{title(document)} {'deleted' if found is not None else 'was not there'}")
    if not kinds_too:
        tell("the CustomResourceDefinitions stay, and with them every queue and Workload; --crds deletes them, too")


async def _let_go(client: ApiClient, tell: Tell) -> None:
    """Take our finalizers off: with the manager gone, nobody else would, and nothing could be deleted any more."""
    for row in registry.KUEUE:
        try:
            found = (await client.list(row)).items
        except errors.NotFound:
            continue
        for item in found:
            metadata: dict[str, Any] = msgspec.json.decode(item)["metadata"]
            kept = [name for name in metadata.get("finalizers", ()) if name != labels.RESOURCE_IN_USE_FINALIZER]
            if len(kept) != len(metadata.get("finalizers", ())):
                patch = {"metadata": {"finalizers": kept or None}}
                # The API server learns a moment later that our webhooks are gone.
                await retry_transient(
                    partial(client.patch, row, metadata["name"], patch, metadata.get("namespace", ""))
                )
                tell(f"{row.singular}/{metadata['name']} may go")
