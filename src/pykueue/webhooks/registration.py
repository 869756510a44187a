"""The registration of webhooks: the two webhook configurations, and the conversion of CRDs.

The documents derive from the table and the options, and contain every default, so that they can be compared with what
the server returns. They are narrow: no webhook is called on deletion, and for jobs only in selected namespaces.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kubemachinery import selectors, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.retry import create_or_update, retry_transient
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.selectors import Operator, Requirement, Selector
from kubemachinery.unstructured import Tree
from pykueue.api import kube, labels, registry
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from pykueue.webhooks.review import Phase, WebhookOptions
from pykueue.webhooks.table import CONVERT, WebhookEndpoint, endpoints

NAMES: Final = {
    Phase.MUTATE: "kueue-mutating-webhook-configuration",
    Phase.VALIDATE: "kueue-validating-webhook-configuration",
}
TIMEOUT_SECONDS: Final = 10
# An API server applies a change of a CRD shortly after it has stored it.
_CRD_APPLIED_SECONDS: Final = 0.5
SERVICE_PORT: Final = 443

# A cluster must be able to start its own pods while the manager is down.
_PROTECTED: Final = "kube-system"
_MARKED: Final[Tree] = {
    "name": "marked",
    "expression": "has(object.metadata.annotations) && "
    f"'{labels.POD_SUSPENDING_PARENT}' in object.metadata.annotations",
}


def _kind(group: str, kind: str) -> Kind:
    return Kind(group, kind, f"{kind.lower()}s", (Version("v1", storage=True),), Scope.CLUSTER)


KINDS: Final = {
    Phase.MUTATE: _kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    Phase.VALIDATE: _kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
}
CRD: Final = _kind("apiextensions.k8s.io", "CustomResourceDefinition")


class WebhookClientConfig(msgspec.Struct, frozen=True):
    """How an API server reaches the webhooks: by a Service of its cluster, or by a URL on its machine."""

    namespace: str = ""
    service: str = ""
    url: str = ""
    # The CA bundle; empty where another program sets it.
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
    if not managed.nothing and not narrower:
        return
    word, _, domain = endpoint.name.partition(".")
    if not (endpoint.job.of_pods and choices.jobs.selector_always_respected):
        # A job with a queue name is managed in every namespace: in others only such jobs are reviewed.
        named = Requirement(labels.QUEUE_NAME, Operator.EXISTS)
        yield _webhook(endpoint, f"{word}-named.{domain}", reach, namespaces=[spared], objects=[named])
    if endpoint.kind == registry.KUBERNETES.of(kube.Pod) and any(row.is_pod_parent for row in choices.job_kinds):
        # So are the pods of a StatefulSet with a queue name: its template has a mark, and no label [SS1].
        yield _webhook(endpoint, f"{word}-marked.{domain}", reach, namespaces=[spared], condition=_MARKED)


def _managed(row: JobIntegration, options: IntegrationOptions) -> Selector:
    """The namespaces in which every job of a kind is reviewed."""
    laid_over = options.pod_namespaces if row.of_pods and options.pod_namespaces is not None else selectors.EVERYTHING
    return Selector(
        (*options.namespaces.requirements, *laid_over.requirements),
        nothing=options.namespaces.nothing or laid_over.nothing,
    )


def _follows(demand: Requirement, known: Requirement) -> bool:
    """Whether a NotIn requirement excludes nothing that the known one does not exclude."""
    return (demand.key, demand.operator) == (known.key, known.operator) and set(demand.values) <= set(known.values)


def _webhook(
    endpoint: WebhookEndpoint,
    name: str,
    reach: WebhookClientConfig,
    *,
    namespaces: Iterable[Requirement] = (),
    objects: Iterable[Requirement] = (),
    condition: Tree | None = None,
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
    if condition is not None:
        webhook["matchConditions"] = [condition]
    if endpoint.phase is Phase.MUTATE:
        webhook["reinvocationPolicy"] = "Never"
    return webhook


def _selector(requirements: Iterable[Requirement]) -> Tree:
    demands = [
        {"key": one.key, "operator": str(one.operator)} | ({"values": list(one.values)} if one.values else {})
        for one in requirements
    ]
    return {"matchExpressions": demands} if demands else {}


# --- Writing them -----------------------------------------------------------------------------------------------------


async def register(
    client: ApiClient, choices: WebhookOptions, reach: WebhookClientConfig, own_namespace: str
) -> list[str]:
    """Register the webhooks; returns the names of the objects that were changed.

    Webhook configurations are written last: until the webhooks answer, no client can write the kinds, and so no write
    meets a storage that is set up again after a change of its CRD.
    """
    converting = [row for row in registry.KUEUE if row.converts]
    rows = [row for row in converting if await retry_transient(partial(_set_conversion, client, row, reach))]
    await _wait_for_storage(client, rows)
    changed = [f"{CRD.kind} {row.name}" for row in rows]
    for phase, wanted in zip(Phase, configurations(choices, reach, own_namespace), strict=True):
        if await retry_transient(partial(create_or_update, client, KINDS[phase], wanted, "webhooks")):
            changed.append(f"{KINDS[phase].kind} {NAMES[phase]}")
    return changed


async def registered_port(client: ApiClient, host: str) -> int:
    """The port that is registered for this host; 0 if none is.

    First the one of the conversion: as long as no manager serves it, objects of an older version cannot be listed.
    """
    crds = [await client.find(CRD, row.name) for row in registry.KUEUE if row.converts]
    webhooks = [unstructured.get(crd, "spec", "conversion", "webhook") for crd in crds if crd is not None]
    found = await client.find(KINDS[Phase.VALIDATE], NAMES[Phase.VALIDATE])
    webhooks += [webhook for _, webhook in unstructured.entries(found, "webhooks")]
    for webhook in webhooks:
        address = urlsplit(unstructured.text(unstructured.get(webhook, "clientConfig", "url")))
        if address.hostname == host and address.port is not None:
            return address.port
    return 0


async def _wait_for_storage(client: ApiClient, rows: Iterable[Kind]) -> None:
    """Wait until the changed kinds can be listed; the client retries meanwhile."""
    rows = list(rows)
    if rows:
        await asyncio.sleep(_CRD_APPLIED_SECONDS)
    for row in rows:
        await retry_transient(partial(client.list, row))


async def _set_conversion(client: ApiClient, row: Kind, reach: WebhookClientConfig) -> bool:
    """Set the conversion webhook of a CRD; returns whether it was changed."""
    found = await client.get(CRD, row.name)
    wanted = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": reach.client_config(CONVERT), "conversionReviewVersions": ["v1"]},
    }
    if unstructured.get(found, "spec", "conversion") == wanted:
        return False
    await client.replace(CRD, unstructured.put(found, ("spec", "conversion"), wanted))
    return True
