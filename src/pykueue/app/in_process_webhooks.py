"""The door inside the process: the same decisions as hooks of the embedded server, there before it takes a request."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

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


def hooks(choices: WebhookOptions, find: FindObjects) -> tuple[AdmissionHook, ...]:
    """Our webhooks as functions of this process; `Parts.plugins` of the server is where they go, after its own."""
    sources = _StoreSources(find)
    return tuple(_hook(endpoint, choices, sources) for endpoint in endpoints(choices))


def _hook(endpoint: WebhookEndpoint, choices: WebhookOptions, sources: facts.AdmissionSources) -> AdmissionHook:
    def decide(asked: AdmissionAttributes) -> AdmissionResponse:
        request = _request(endpoint.phase, asked)
        response = review(request, _now(facts.gather(request, sources, choices)), choices)
        if response.refusal is not None:
            refusal = response.refusal
            details = {"causes": refusal.causes} if refusal.causes else None
            raise refused_by(endpoint.name, refusal.code, refusal.reason, refusal.message, details)
        return response

    def mutate(asked: AdmissionAttributes) -> Tree | None:
        return decide(asked).object

    def validate(asked: AdmissionAttributes) -> ValidationResult:
        response = decide(asked)
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


def _request(phase: Phase, asked: AdmissionAttributes) -> AdmissionRequest:
    return AdmissionRequest(
        phase=phase,
        operation=asked.operation,
        object=asked.object or {},
        old=asked.old,
        namespace=asked.namespace,
        name=asked.name,
        subresource=asked.subresource,
    )


@dataclass(frozen=True, slots=True)
class _StoreSources:
    """The server's own store, which is asked without waiting."""

    stored: FindObjects

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return next(iter(self.stored(kind.name, namespace, name)), None)

    async def owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return await self.find(self._named(kind), name, namespace)

    def _named(self, kind: Kind) -> Kind:
        """The kind with the plural that its definition gives it, where no table knows it."""
        for definition in self.stored(CRD.name, "") if not kind.plural else ():
            names = unstructured.mapping(unstructured.get(definition, "spec", "names"))
            if (unstructured.get(definition, "spec", "group"), names.get("kind")) == (kind.group, kind.kind):
                scope = Scope(unstructured.text(unstructured.get(definition, "spec", "scope")))
                return replace(kind, plural=unstructured.text(names.get("plural")), scope=scope)
        return kind

    async def objects(self, kind: Kind) -> Sequence[Tree]:
        return list(self.stored(kind.name, ""))

    def is_over(self, manager: str) -> bool:
        """Nobody else leads in this process."""
        return False


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for. Hooks of the server are called, not awaited."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a hook of this process cannot wait for somebody outside of it")
