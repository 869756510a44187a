"""What leads an API server to our webhooks: the two webhook configurations, and who converts our kinds.

The documents derive from the table and the operator's choices, and spell every default out, so that what a server gives
back can be compared with what we want. They are narrow: nothing is asked on deletion, and jobs only where the operator
lets us look.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from kubemachinery import selectors, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.retry import create_or_update, retry_transient
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.selectors import Operator, Requirement, Selector
from kubemachinery.unstructured import Tree
from pykueue.api import labels, registry
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from pykueue.webhooks.review import Phase, WebhookOptions
from pykueue.webhooks.table import CONVERT, WebhookEndpoint, endpoints

NAMES: Final = {
    Phase.MUTATE: "kueue-mutating-webhook-configuration",
    Phase.VALIDATE: "kueue-validating-webhook-configuration",
}
TIMEOUT_SECONDS: Final = 10
# An API server notices that a kind has changed a moment after it has stored the change.
_NOTICED_SECONDS: Final = 0.5
SERVICE_PORT: Final = 443

# A cluster must be able to start its own pods while we are down.
_PROTECTED: Final = "kube-system"


def _kind(group: str, kind: str) -> Kind:
    return Kind(group, kind, f"{kind.lower()}s", (Version("v1", storage=True),), Scope.CLUSTER)


KINDS: Final = {
    Phase.MUTATE: _kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    Phase.VALIDATE: _kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
}
CRD: Final = _kind("apiextensions.k8s.io", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class WebhookClientConfig:
    """How an API server reaches us: through a Service in its cluster, or at an address of its own machine."""

    namespace: str = ""
    service: str = ""
    url: str = ""
    # Whom to believe; empty where somebody else fills it in.
    ca: bytes = b""

    def client_config(self, path: str) -> Tree:
        bundle = {"caBundle": base64.b64encode(self.ca).decode()} if self.ca else {}
        if self.url:
            return {**bundle, "url": self.url + path}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": SERVICE_PORT}
        return {**bundle, "service": service}


# --- The documents ----------------------------------------------------------------------------------------------------


def configurations(choices: WebhookOptions, reach: WebhookClientConfig, own_namespace: str) -> list[Tree]:
    """Both webhook configurations."""
    rows = endpoints(choices)
    return [
        {
            "apiVersion": KINDS[phase].api_version,
            "kind": KINDS[phase].kind,
            "metadata": {"name": NAMES[phase]},
            "webhooks": [
                webhook
                for endpoint in sorted(rows, key=lambda row: row.name)
                if endpoint.phase is phase
                for webhook in _webhooks(endpoint, choices, reach, own_namespace)
            ],
        }
        for phase in Phase
    ]


def _webhooks(
    endpoint: WebhookEndpoint, choices: WebhookOptions, reach: WebhookClientConfig, own_namespace: str
) -> Iterator[Tree]:
    if endpoint.job is None:
        yield _webhook(endpoint, endpoint.name, reach)
        return
    spared = Requirement(labels.NAMESPACE_NAME, Operator.NOT_IN, tuple(sorted({_PROTECTED, own_namespace})))
    managed = _managed(endpoint.job, choices.jobs)
    narrower = [demand for demand in managed.requirements if not _follows(demand, spared)]
    if not managed.nothing:
        yield _webhook(endpoint, endpoint.name, reach, namespaces=[spared, *narrower])
    if (managed.nothing or narrower) and not (endpoint.job.of_pods and choices.jobs.selector_always_respected):
        # A job that names a queue asks for us wherever it is: elsewhere we look at such jobs, and at no others.
        word, _, domain = endpoint.name.partition(".")
        named = Requirement(labels.QUEUE_NAME, Operator.EXISTS)
        yield _webhook(endpoint, f"{word}-named.{domain}", reach, namespaces=[spared], objects=[named])


def _managed(row: JobIntegration, options: IntegrationOptions) -> Selector:
    """The namespaces in which jobs of a kind are looked at whatever they say."""
    laid_over = options.pod_namespaces if row.of_pods and options.pod_namespaces is not None else selectors.EVERYTHING
    return Selector(
        (*options.namespaces.requirements, *laid_over.requirements),
        nothing=options.namespaces.nothing or laid_over.nothing,
    )


def _follows(demand: Requirement, known: Requirement) -> bool:
    """Whether a demand for other values than some says nothing beyond one that excludes those anyway."""
    return (demand.key, demand.operator) == (known.key, known.operator) and set(demand.values) <= set(known.values)


def _webhook(
    endpoint: WebhookEndpoint,
    name: str,
    reach: WebhookClientConfig,
    *,
    namespaces: Iterable[Requirement] = (),
    objects: Iterable[Requirement] = (),
) -> Tree:
    webhook: Tree = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": reach.client_config(endpoint.path),
        "failurePolicy": "Ignore" if endpoint.only_warns else "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": _selector(namespaces),
        "objectSelector": _selector(objects),
        "rules": [
            {
                "apiGroups": [endpoint.kind.group],
                "apiVersions": [endpoint.kind.storage.name],
                "operations": list(endpoint.operations),
                "resources": endpoint.resources,
                "scope": "*",
            }
        ],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
    if endpoint.phase is Phase.MUTATE:
        webhook["reinvocationPolicy"] = "Never"
    return webhook


def _selector(requirements: Iterable[Requirement]) -> Tree:
    demands = [
        {"key": one.key, "operator": str(one.operator)} | ({"values": list(one.values)} if one.values else {})
        for one in requirements
    ]
    return {"matchExpressions": demands} if demands else {}


# --- Making them known ------------------------------------------------------------------------------------------------


async def register(
    client: ApiClient, choices: WebhookOptions, reach: WebhookClientConfig, own_namespace: str
) -> list[str]:
    """Lead the API server to us; names what had to be changed for that. Does nothing where all is as it should be.

    Webhooks come last: until they answer, nobody can write our kinds, and so nobody meets a storage that is being set
    up anew because the kind has changed.
    """
    converting = [row for row in registry.KUEUE if row.converts]
    rows = [row for row in converting if await retry_transient(partial(_convert_here, client, row, reach))]
    await _wait_for_storage(client, rows)
    changed = [f"{CRD.kind} {row.name}" for row in rows]
    for phase, wanted in zip(Phase, configurations(choices, reach, own_namespace), strict=True):
        if await retry_transient(partial(create_or_update, client, KINDS[phase], wanted, "webhooks")):
            changed.append(f"{KINDS[phase].kind} {NAMES[phase]}")
    return changed


async def registered_port(client: ApiClient, host: str) -> int:
    """The port at which webhooks were served on this host the last time; 0 where they were not."""
    found = await client.find(KINDS[Phase.VALIDATE], NAMES[Phase.VALIDATE])
    for _, webhook in unstructured.entries(found, "webhooks"):
        address = urlsplit(unstructured.text(unstructured.get(webhook, "clientConfig", "url")))
        if address.hostname == host and address.port is not None:
            return address.port
    return 0


async def _wait_for_storage(client: ApiClient, rows: Iterable[Kind]) -> None:
    """Until the kinds that changed can be read again; the client asks again while it is told to come back."""
    rows = list(rows)
    if rows:
        await asyncio.sleep(_NOTICED_SECONDS)
    for row in rows:
        await retry_transient(partial(client.list, row))


async def _convert_here(client: ApiClient, row: Kind, reach: WebhookClientConfig) -> bool:
    """Whether the CRD of a kind had to learn where its objects are converted."""
    found = await client.get(CRD, row.name)
    wanted = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": reach.client_config(CONVERT), "conversionReviewVersions": ["v1"]},
    }
    if unstructured.get(found, "spec", "conversion") == wanted:
        return False
    await client.replace(CRD, unstructured.put(found, ("spec", "conversion"), wanted))
    return True
