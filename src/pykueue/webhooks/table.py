"""Which kinds are reviewed, on which operations, under which names and paths. Other modules derive from this table.

Names and paths are those of the public API: `mclusterqueue.kb.io` is served at `/mutate-kueue-x-k8s-io-v1beta2-
clusterqueue`. Kinds that are not in the table have only a schema.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubemachinery.kinds import Kind
from pykueue.api import budget, kueue, quota_schedule, registry
from pykueue.jobs.kinds import JobIntegration
from pykueue.webhooks.review import CREATE, UPDATE, Phase, WebhookOptions

CONVERT: Final = "/convert"

_PREFIX: Final = {Phase.MUTATE: "m", Phase.VALIDATE: "v"}


class WebhookEndpoint(msgspec.Struct, frozen=True):
    """One kind, in one of the two phases."""

    phase: Phase
    kind: Kind
    operations: tuple[str, ...]
    subresources: tuple[str, ...] = ("",)
    # The integration of a job; None for Kueue's kinds and ours.
    job: JobIntegration | None = None
    # Whether this webhook only warns: Kueue has none for the kind. It is registered with failurePolicy Ignore.
    only_warns: bool = False

    @property
    def name(self) -> str:
        return f"{_PREFIX[self.phase]}{self.kind.singular}.kb.io"

    @property
    def path(self) -> str:
        group = self.kind.group.replace(".", "-")
        return f"/{self.phase}-{group}-{self.kind.storage.name}-{self.kind.singular}"

    @property
    def resources(self) -> list[str]:
        """The kind and its subresources, as the rules of a webhook configuration name them."""
        return [f"{self.kind.plural}/{sub}" if sub else self.kind.plural for sub in self.subresources]


def _validated(type_: type, *subresources: str) -> WebhookEndpoint:
    return WebhookEndpoint(Phase.VALIDATE, registry.CUSTOM.of(type_), (CREATE, UPDATE), ("", *subresources))


def _warned_about(type_: type) -> WebhookEndpoint:
    return WebhookEndpoint(Phase.VALIDATE, registry.KUEUE.of(type_), (CREATE, UPDATE), only_warns=True)


def _defaulted(type_: type) -> WebhookEndpoint:
    return WebhookEndpoint(Phase.MUTATE, registry.KUEUE.of(type_), (CREATE,))


OWN: Final = (
    _defaulted(kueue.ClusterQueue),
    _defaulted(kueue.ResourceFlavor),
    _defaulted(kueue.Workload),
    _validated(kueue.ClusterQueue),
    _validated(kueue.Cohort),
    _validated(kueue.ResourceFlavor),
    _validated(kueue.Workload, "status"),
    _validated(budget.Budget),
    _validated(quota_schedule.QuotaSchedule),
    _warned_about(kueue.AdmissionCheck),
    _warned_about(kueue.MultiKueueCluster),
    _warned_about(kueue.MultiKueueConfig),
)


def endpoints(choices: WebhookOptions) -> tuple[WebhookEndpoint, ...]:
    """The endpoints under these options."""
    return (*OWN, *(endpoint for row in choices.job_kinds for endpoint in _of_jobs(row)))


def _of_jobs(row: JobIntegration) -> tuple[WebhookEndpoint, ...]:
    return (
        WebhookEndpoint(Phase.MUTATE, row.kind, (CREATE, UPDATE) if row.defaults_on_update else (CREATE,), job=row),
        WebhookEndpoint(Phase.VALIDATE, row.kind, (CREATE, UPDATE), job=row),
    )
