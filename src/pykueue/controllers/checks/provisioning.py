"""The check `kueue.x-k8s.io/provisioning-request`: nodes are requested after quota is reserved and before pods start.

`lifecycle.provisioning` decides what the requests of a Workload mean and which are due; this controller writes, creates
and deletes. A cluster without an autoscaler does not serve ProvisioningRequests: they are watched once there is such a
check and the server serves them, and until then the check is not active.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.errors import ApiError, Busy, Conflict, KubeError, NotFound
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.client.transport import ApiRequest
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.kinds import Kind
from pykueue.api import kueue, labels, registry
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.api.conditions import AdmissionCheckActiveReason
from pykueue.controllers.checks.owned_checks import OwnedChecks
from pykueue.controllers.checks.provisioning_requests import REQUEST, CannotCreateRequest, ProvisioningRequestClient
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WORKLOAD, WorkloadWriter
from pykueue.lifecycle import provisioning
from pykueue.lifecycle import workload_changes as change
from pykueue.lifecycle.provisioning import ProvisioningAttempt
from pykueue.observe.events import PROVISIONING

log = logging.getLogger(__name__)

_CONFIG: Final = registry.KUEUE.of(kueue.ProvisioningRequestConfig)

_WORKERS: Final = 4
_OWNER: Final = "owner"
_UNTIL_SERVED_SECONDS: Final = 10.0


class ProvisioningController:
    """One loop over Workloads, one over the checks; `run` watches the ProvisioningRequests."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        clock: Clock,
        rng: random.Random,
        *,
        cleanup: bool,
        excluded: Callable[[kueue.Workload], frozenset[str]],
    ) -> None:
        self._client = client
        self._checks = OwnedChecks(client, informers, labels.PROVISIONING_CONTROLLER)
        self._writer = writer
        self._clock = clock
        self._cleanup = cleanup
        self._excluded = excluded  # the resources of a Workload that its ClusterQueue or the Configuration excludes
        self.configs = _copy(client, _CONFIG, kueue.ProvisioningRequestConfig, rng)
        self._request_client = ProvisioningRequestClient(
            client, lambda: {key.name: flavor for key, flavor in informers.flavors.items()}
        )
        self._requests = _copy(client, REQUEST, ProvisioningRequest, rng)
        self._requests.add_index(_OWNER, _owners)
        self._is_needed = asyncio.Event()  # there is a check of this controller
        self._is_served: bool | None = None  # None: not known yet
        self.loop: Controller[ObjectKey] = Controller("provisioning", self._reconcile, rng, workers=_WORKERS)
        self.checks_loop: Controller[str] = Controller("provisioning-checks", self._reconcile_check, rng)
        informers.workloads.add_handler(self._workload_seen)
        informers.checks.add_handler(self._check_seen)
        self.configs.add_handler(self._config_seen)
        self._requests.add_handler(self._request_seen)

    async def run(self) -> None:
        """Watch ProvisioningRequests, once there is a check that needs them and the server serves them."""
        await self._is_needed.wait()
        while True:
            if await self._find_requests():
                break
            await asyncio.sleep(_UNTIL_SERVED_SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._requests.run(), name=REQUEST.name)
            await self._requests.wait_for_sync()
            self._add_all()

    async def _find_requests(self) -> bool:
        try:
            await self._client.request(ApiRequest("GET", REQUEST.path(), (("limit", "1"),)))
            found = True
        except NotFound:
            found = False
        except KubeError as error:
            log.info("provisioning: %s", error)
            return False
        if self._is_served is None and not found:
            log.warning("the server does not serve %s: AdmissionChecks that need it are not active", REQUEST.name)
        if found != self._is_served:
            self._is_served = found
            self._add_all()
        return found

    def _add_all(self) -> None:
        for check in self._checks.names():
            self.checks_loop.add(check)
            self._add_workloads(check)

    # --- Events -------------------------------------------------------------------------------------------------------

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        workload = change.new
        if workload is None:
            return
        if self._checks.of(workload) or any(True for _ in self._requests.by_index(_OWNER, workload.metadata.uid)):
            self.loop.add(change.key)

    def _check_seen(self, change: InformerEvent[kueue.AdmissionCheck]) -> None:
        if any(map(self._checks.owns, (change.old, change.new))):
            self._is_needed.set()
            self.checks_loop.add(change.key.name)
            self._add_workloads(change.key.name)

    def _config_seen(self, change: InformerEvent[kueue.ProvisioningRequestConfig]) -> None:
        for check in self._checks.names():
            if self._config_name(check) == change.key.name:
                self.checks_loop.add(check)
                self._add_workloads(check)

    def _request_seen(self, change: InformerEvent[ProvisioningRequest]) -> None:
        if change.new is None and change.old is not None:
            self._request_client.forget(change.old)
        for request in (change.old, change.new):
            for owner in _controllers(request) if request is not None else ():
                self.loop.add(ObjectKey(change.key.namespace, owner.name))

    def _add_workloads(self, check: str) -> None:
        for key in self._checks.workloads(check):
            self.loop.add(key)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _config_name(self, check: str) -> str:
        """Return the ProvisioningRequestConfig that a check names; empty if it names none or another kind."""
        found = self._checks.get(check)
        reference = found.spec.parameters if found is not None else None
        if reference is None or (reference.api_group, reference.kind) != (_CONFIG.group, _CONFIG.kind):
            return ""
        return reference.name

    def _config(self, check: str) -> kueue.ProvisioningRequestConfigSpec | None:
        found = self.configs.get(self._config_name(check))
        return found.spec if found is not None else None

    async def _reconcile_check(self, name: str) -> None:
        """Write whether a check is active."""
        if self._is_served is not None:
            status, reason, message = self._activity(name)
            await self._checks.write_active(name, status, reason, message, self._clock.now())

    def _activity(self, check: str) -> tuple[ConditionStatus, AdmissionCheckActiveReason, str]:
        reasons = AdmissionCheckActiveReason
        if not self._is_served:
            return (
                ConditionStatus.FALSE,
                reasons.NOT_SERVED,
                f"The API server does not serve {REQUEST.kind} of {REQUEST.api_version}",
            )
        name = self._config_name(check)
        if not name:
            return ConditionStatus.FALSE, reasons.BAD_PARAMETERS_REF, f"spec.parameters: must name a {_CONFIG.kind}"
        if self.configs.get(name) is None:
            return ConditionStatus.FALSE, reasons.BAD_PARAMETERS_REF, f"{_CONFIG.kind} {name} does not exist"
        return ConditionStatus.TRUE, reasons.ACTIVE, "The admission check is active"

    # --- Workloads ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> None:
        if not self._requests.has_synced:
            return
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None:
                return
            configs = {check: self._config_for(workload, check) for check in self._checks.of(workload)}
            owned = (request for _, request in self._requests.by_index(_OWNER, workload.metadata.uid))
            requests = [request for request in owned if not self._request_client.is_going(request)]
            now = self._clock.now()
            plan = provisioning.plan(workload, configs, requests, now, cleanup=self._cleanup)
            if plan.changes:
                await self._writer.workload(workload, plan.changes, PROVISIONING, now)
        for request in requests:
            await (self._request_client.delete if request in plan.unused else self._request_client.hand_over)(request)
        for attempt in plan.attempts:
            await self._create(key, workload, attempt)

    def _config_for(self, workload: kueue.Workload, check: str) -> kueue.ProvisioningRequestConfigSpec | None:
        config = self._config(check)
        return None if config is None else provisioning.without_excluded(config, self._excluded(workload))

    async def _create(self, key: ObjectKey, workload: kueue.Workload, attempt: ProvisioningAttempt) -> None:
        """Create a request. What prevents that is written to the check, and it is tried again."""
        try:
            made = await self._request_client.make(workload, attempt)
        except (Busy, Conflict, NotFound):
            raise  # a passing error, or the namespace was just deleted
        except (ApiError, CannotCreateRequest) as error:
            await self._write_failure(key, attempt, str(error))
            raise
        if made:
            note = f'Created ProvisioningRequest: "{attempt.name}"'
            self._writer.emit(workload, change.normal("ProvisioningRequestCreated", note), PROVISIONING)

    async def _write_failure(self, key: ObjectKey, attempt: ProvisioningAttempt, why: str) -> None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is not None:
                now = self._clock.now()
                message = f'Error creating ProvisioningRequest "{attempt.name}": {why}'
                changes = provisioning.create_failed(workload, attempt.check, message, now)
                await self._writer.workload(workload, changes, PROVISIONING, now)


def _copy(client: ApiClient, kind: Kind, type_: type[Any], rng: random.Random) -> Informer[Any]:
    return Informer(client, kind, ObjectDecoder(type_), rng)


def _controllers(request: ProvisioningRequest) -> Iterator[meta.OwnerReference]:
    for owner in request.metadata.owner_references:
        if owner.controller and owner.kind == WORKLOAD.kind:
            yield owner


def _owners(request: ProvisioningRequest) -> tuple[str, ...]:
    return tuple(owner.uid for owner in _controllers(request))
