"""The webhooks as in-process admission plugins of the embedded server, active before its first request."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kubemachinery import unstructured
from kubemachinery.kinds import Kind, Scope
from kubemachinery.unstructured import Tree
from kubeserver.admission.chain import ACCEPTED, AdmissionAttributes, AdmissionHook, ValidationResult, refused_by
from kubeserver.assembly import FindObjects
from pykueue.webhooks import facts
from pykueue.webhooks.registration import CRD
from pykueue.webhooks.review import AdmissionRequest, AdmissionResponse, Phase, WebhookOptions, review
from pykueue.webhooks.table import WebhookEndpoint, endpoints

T = TypeVar("T")


def hooks(options: WebhookOptions, find: FindObjects) -> tuple[AdmissionHook, ...]:
    """Return the webhooks as admission hooks, for `Parts.plugins` of the server, after its own."""
    sources = _StoreSources(find)
    return tuple(_hook(endpoint, options, sources) for endpoint in endpoints(options))


def _hook(endpoint: WebhookEndpoint, options: WebhookOptions, sources: facts.AdmissionSources) -> AdmissionHook:
    def decide(attributes: AdmissionAttributes) -> AdmissionResponse:
        request = _request(endpoint.phase, attributes)
        response = review(request, _now(facts.gather(request, sources, options)), options)
        if response.refusal is not None:
            refusal = response.refusal
            details = {"causes": refusal.causes} if refusal.causes else None
            raise refused_by(endpoint.name, refusal.code, refusal.reason, refusal.message, details)
        return response

    def mutate(attributes: AdmissionAttributes) -> Tree | None:
        return decide(attributes).object

    def validate(attributes: AdmissionAttributes) -> ValidationResult:
        response = decide(attributes)
        return ValidationResult(warnings=response.warnings) if response.warnings else ACCEPTED

    mutates = endpoint.phase is Phase.MUTATE
    return AdmissionHook(
        name=endpoint.name,
        group=endpoint.kind.group,
        plural=endpoint.kind.plural,
        version=endpoint.kind.storage.name,
        operations=frozenset(endpoint.operations),
        subresources=frozenset(endpoint.subresources),
        mutate=mutate if mutates else None,
        validate=None if mutates else validate,
    )


def _request(phase: Phase, attributes: AdmissionAttributes) -> AdmissionRequest:
    return AdmissionRequest(
        phase=phase,
        operation=attributes.operation,
        object=attributes.object or {},
        old=attributes.old,
        namespace=attributes.namespace,
        name=attributes.name,
        subresource=attributes.subresource,
        user=attributes.user,
    )


class _StoreSources(msgspec.Struct, frozen=True):
    """Reads objects from the store of the server, without I/O."""

    stored: FindObjects

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return next(iter(self.stored(kind.name, namespace, name)), None)

    async def owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return await self.find(self._named(kind), name, namespace)

    def _named(self, kind: Kind) -> Kind:
        """Return the kind with the plural of its CRD, if it has none yet."""
        for definition in self.stored(CRD.name, "") if not kind.plural else ():
            names = unstructured.mapping(unstructured.get(definition, "spec", "names"))
            if (unstructured.get(definition, "spec", "group"), names.get("kind")) == (kind.group, kind.kind):
                scope = Scope(unstructured.text(unstructured.get(definition, "spec", "scope")))
                return replace(kind, plural=unstructured.text(names.get("plural")), scope=scope)
        return kind

    async def objects(self, kind: Kind) -> Sequence[Tree]:
        return list(self.stored(kind.name, ""))

    def is_former_leader(self, manager: str) -> bool:
        """Return False: there is no other manager for this server."""
        return False


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait. Admission hooks are called synchronously."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("an in-process admission hook cannot wait for I/O")
