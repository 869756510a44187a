"""The AdmissionChecks of one controllerName: which they are, which Workloads need them, and their Active condition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery import codec, conditions
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import ObjectKey
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue, registry
from pykueue.api.conditions import ActiveCondition, AdmissionCheckActiveReason
from pykueue.controllers.informers import Informers

_CHECK: Final = registry.KUEUE.of(kueue.AdmissionCheck)


class OwnedChecks:
    """The AdmissionChecks that one controller owns, by their `spec.controllerName`."""

    def __init__(self, client: ApiClient, informers: Informers, controller_name: str) -> None:
        self._client = client
        self._informers = informers
        self._controller_name = controller_name

    def owns(self, check: kueue.AdmissionCheck | None) -> bool:
        return check is not None and check.spec.controller_name == self._controller_name

    def get(self, name: str) -> kueue.AdmissionCheck | None:
        """Return an AdmissionCheck of this controller; None if it does not exist or belongs to another."""
        check = self._informers.checks.get(name)
        return check if self.owns(check) else None

    def names(self) -> Iterator[str]:
        return (check.metadata.name for check in self._informers.checks.values() if self.owns(check))

    def of(self, workload: kueue.Workload) -> list[str]:
        """Return the names of the Workload's checks that this controller owns."""
        return [check.name for check in workload.status.admission_checks if self.get(check.name) is not None]

    def workloads(self, name: str) -> Iterator[ObjectKey]:
        """Return the Workloads that need an AdmissionCheck."""
        return self._informers.workloads_of_check(name)

    async def write_active(
        self, name: str, status: ConditionStatus, reason: AdmissionCheckActiveReason, message: str, now: Nanoseconds
    ) -> None:
        """Set the Active condition of a check of this controller, if it differs."""
        check = self.get(name)
        if check is None:
            return
        wanted = conditions.set_condition(
            check.status.conditions,
            ActiveCondition.ACTIVE,
            status,
            reason,
            message,
            now=now,
            generation=check.metadata.generation,
        )
        if wanted != check.status.conditions:
            patch = {
                "metadata": {"resourceVersion": check.metadata.resource_version},
                "status": {"conditions": [codec.to_tree(condition) for condition in wanted]},
            }
            await self._client.patch_revision(_CHECK, name, patch, subresource="status")
