"""All manifests of an installation, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kubemachinery.unstructured import Tree
from pykueue import settings
from pykueue.api import config, registry, schema
from pykueue.install import manager_deployment, rbac
from pykueue.install.names import LABELS, document
from pykueue.jobs import kinds as job_kinds
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.observe import visibility
from pykueue.settings import Settings
from pykueue.version import __version__
from pykueue.webhooks import registration
from pykueue.webhooks.registration import WebhookClientConfig
from pykueue.webhooks.review import WebhookOptions
from pykueue.webhooks.table import CONVERT

NAMESPACE: Final = config.DEFAULT_NAMESPACE
IMAGE: Final = f"pykueue:{__version__}"


@dataclass(frozen=True)
class InstallPlan:
    """The options of an installation."""

    # The Configuration as the operator wrote it; it is installed unchanged.
    written: Tree = field(default_factory=lambda: {"apiVersion": config.V1BETA2, "kind": config.KIND})
    namespace: str = NAMESPACE
    image: str = IMAGE
    kinds: JobKinds = field(default_factory=job_kinds.load)
    # Whether the manager serves the dashboard, with its own Service.
    dashboard: bool = False
    # The source of the Configuration, for messages.
    source: str = "configuration"
    # The address ranges from which the API server calls webhooks; none is any address.
    api_server: tuple[str, ...] = ()
    # The size of the volume for the history, such as 5Gi; empty: no history.
    history_size: str = ""

    @property
    def settings(self) -> Settings:
        return settings.load(self.written, self.source, namespace=self.namespace)

    @property
    def choices(self) -> WebhookOptions:
        found = self.settings
        options = IntegrationOptions.of(found.configuration, found.gates, found.pod_namespace_selector)
        return WebhookOptions.of(self.kinds, options, found.gates, only_declared=found.ignores_undeclared)


def all_manifests(plan: InstallPlan) -> list[Tree]:
    """Return all manifests: referenced objects first; webhooks last, because they block writes until the manager serves
    them."""
    found = plan.settings.configuration
    own = found.internal_cert_management or config.InternalCertManagement()
    return [
        document("v1", "Namespace", plan.namespace),
        *crds(plan),
        *rbac.documents(plan.namespace, own.webhook_secret_name, plan.kinds, plan.choices.jobs.external),
        *manager_deployment.documents(
            plan.written,
            plan.settings,
            plan.namespace,
            plan.image,
            dashboard=plan.dashboard,
            api_server=plan.api_server,
            history_size=plan.history_size,
        ),
        *visibility_api_services(plan),
        *webhooks(plan),
    ]


def superseded(plan: InstallPlan) -> list[Tree]:
    """Return the Services, network policies and APIServices that an installation with other options would have, and
    this one has not. The volume of the history stays: it holds data."""
    fullest = InstallPlan(namespace=plan.namespace, kinds=plan.kinds, dashboard=True, history_size="1Gi")
    wanted = {(one["kind"], one["metadata"]["name"]) for one in all_manifests(plan)}
    leading = [one for one in all_manifests(fullest) if one["kind"] in ("Service", "NetworkPolicy", "APIService")]
    return [one for one in leading if (one["kind"], one["metadata"]["name"]) not in wanted]


def reach(plan: InstallPlan) -> WebhookClientConfig:
    own = plan.settings.configuration.internal_cert_management or config.InternalCertManagement()
    return WebhookClientConfig(namespace=plan.namespace, service=own.webhook_service_name)


def crds(plan: InstallPlan) -> Iterator[Tree]:
    """Yield the CRDs of Kueue's kinds and of ours, by name."""
    converter = reach(plan).client_config(CONVERT)
    for row in sorted(registry.CUSTOM, key=lambda row: row.name):
        yield schema.crd(row, webhook=converter)


def webhooks(plan: InstallPlan) -> Iterator[Tree]:
    yield from map(_labelled, registration.configurations(plan.choices, reach(plan), plan.namespace))


def visibility_api_services(plan: InstallPlan) -> Iterator[Tree]:
    """Yield the APIServices of the visibility API and of `views.pykueue.io`. The manager adds its CA; without own
    certificates the API server does not verify it."""
    found = plan.settings
    own = found.configuration.internal_cert_management or config.InternalCertManagement()
    groups = visibility.GROUP_VERSIONS if found.gates["VisibilityOnDemand"] else ()
    services = visibility.api_services((*groups, rbac.HISTORY), plan.namespace, blindly=not own.enable)
    yield from map(_labelled, services)


def _labelled(made: Tree) -> Tree:
    return {**made, "metadata": {**made["metadata"], "labels": dict(LABELS)}}
