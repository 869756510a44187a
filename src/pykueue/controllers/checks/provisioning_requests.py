"""Creates ProvisioningRequests with what they refer to, and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubemachinery import codec, meta, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import AlreadyExists, KubeError
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, names, registry
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.controllers.checks import pod_templates
from pykueue.controllers.workload_writer import WORKLOAD
from pykueue.jobs.podsets import Missing, PodSetConflict
from pykueue.lifecycle.provisioning import ProvisioningAttempt

REQUEST: Final = registry.AUTOSCALING.of(ProvisioningRequest)
_TEMPLATE: Final = registry.KUBERNETES.of(kube.PodTemplate)


class CannotCreateRequest(KubeError):
    """The pods of a Workload cannot be put into a request now. It is tried again."""


class StillDeleting(KubeError):
    """An object of an earlier attempt has the name that is needed, and is not gone yet. It is waited for, without a
    message: that would stay on the check as the cause of whatever becomes of the Workload."""


class ProvisioningRequestClient:
    def __init__(self, client: ApiClient, flavors: Callable[[], Mapping[str, kueue.ResourceFlavor]]) -> None:
        self._client = client
        self._flavors = flavors
        self._deleted: set[str] = set()  # UIDs whose end the watch has not shown yet
        self._handed_over: dict[tuple[str, str], str] = {}  # requests that own their templates, and their UIDs

    def is_going(self, request: ProvisioningRequest) -> bool:
        return request.metadata.uid in self._deleted or request.metadata.deletion_timestamp is not None

    def forget(self, request: ProvisioningRequest) -> None:
        """Forget a deleted request."""
        self._deleted.discard(request.metadata.uid)
        if self._handed_over.get(_place(request)) == request.metadata.uid:
            del self._handed_over[_place(request)]

    async def delete(self, request: ProvisioningRequest) -> None:
        metadata = request.metadata
        await self._client.delete(REQUEST, metadata.name, metadata.namespace, uid=metadata.uid)
        self._deleted.add(metadata.uid)

    async def make(self, workload: kueue.Workload, attempt: ProvisioningAttempt) -> bool:
        """Create a request, after what it refers to; whether it was created, False if it exists."""
        # The typed copy does not keep all of a pod's template, and a PodTemplate needs all of it.
        tree = await self._client.get(WORKLOAD, workload.metadata.name, workload.metadata.namespace)
        asked = pod_templates.asked(workload, tree, attempt.config, self._flavors())
        if isinstance(asked, PodSetConflict | Missing):
            raise CannotCreateRequest(asked.message)
        pod_sets = []
        # Whatever happens to the request: from here on its templates are new ones, which the Workload owns.
        self._handed_over.pop((workload.metadata.namespace, attempt.name), None)
        for each in asked:
            name = names.provisioning_template_name(attempt.name, each.pod_set)
            await self._make_template({**_owned(_TEMPLATE, name, workload), "template": each.template})
            pod_sets.append({"podTemplateRef": {"name": name}, "count": each.count})
        spec = {
            "provisioningClassName": attempt.config.provisioning_class_name,
            "parameters": dict(attempt.parameters),
            "podSets": pod_sets,
        }
        is_new = True
        try:
            made = await self._client.create(REQUEST, {**_owned(REQUEST, attempt.name, workload), "spec": spec})
        except AlreadyExists:
            found = await self._own(workload, attempt.name)
            if found is None:
                raise
            if unstructured.get(found, "metadata", "deletionTimestamp") is not None:
                raise StillDeleting(f"{REQUEST.kind} {attempt.name} is being deleted") from None
            made, is_new = found, False  # made before, and the watch has not shown it yet
        await self.hand_over(codec.from_tree(made, ProvisioningRequest))
        return is_new

    async def _make_template(self, tree: Tree) -> None:
        """Handle a template of the same name: left from a failed attempt, or being deleted with its request."""
        try:
            await self._client.create(_TEMPLATE, tree)
        except AlreadyExists:
            name = tree["metadata"]["name"]
            await self._client.delete(_TEMPLATE, name, tree["metadata"]["namespace"])
            try:
                await self._client.create(_TEMPLATE, tree)
            except AlreadyExists:
                raise StillDeleting(f"{_TEMPLATE.kind} {name} is being deleted") from None

    async def _own(self, workload: kueue.Workload, name: str) -> Tree | None:
        """Return the request of this name, if it belongs to the Workload."""
        found = await self._client.find(REQUEST, name, workload.metadata.namespace)
        owners = unstructured.sequence(unstructured.get(found, "metadata", "ownerReferences"))
        is_own = any(unstructured.get(owner, "uid") == workload.metadata.uid for owner in owners)
        return found if is_own else None

    async def hand_over(self, request: ProvisioningRequest) -> None:
        """Make the request the owner of its templates: they are deleted with it. Until then the Workload owns them."""
        metadata = request.metadata
        if self._handed_over.get(_place(request)) == metadata.uid:
            return
        owners = [_reference(REQUEST, metadata)]
        for pod_set in request.spec.pod_sets:
            tree = await self._client.find(_TEMPLATE, pod_set.pod_template_ref.name, metadata.namespace)
            if tree is not None and unstructured.get(tree, "metadata", "ownerReferences") != owners:
                await self._client.replace(_TEMPLATE, unstructured.put(tree, ("metadata", "ownerReferences"), owners))
        self._handed_over[_place(request)] = metadata.uid


def _place(request: ProvisioningRequest) -> tuple[str, str]:
    return request.metadata.namespace, request.metadata.name


def _owned(kind: Kind, name: str, workload: kueue.Workload) -> Tree:
    """Return the metadata of an object that a Workload owns."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": workload.metadata.namespace,
            "labels": {labels.MANAGED: "true"},
            "ownerReferences": [_reference(WORKLOAD, workload.metadata)],
        },
    }


def _reference(kind: Kind, metadata: meta.ObjectMeta) -> Tree:
    owner = meta.OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name=metadata.name, uid=metadata.uid, controller=True
    )
    return codec.to_tree(owner)
