"""The check `kueue.x-k8s.io/provisioning-request`: nodes are asked for once quota is there, and before pods are made.

`lifecycle.provisioning` says what the requests of a Workload mean and which are due; here it is written, made and
deleted. A cluster without an autoscaler does not know ProvisioningRequests at all: they are followed from the time on
that a check asks for them and the server serves them, and until then such a check is not active.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from kubemachinery import codec, conditions, meta
from kubemachinery.client.client import METADATA, ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.errors import ApiError, Busy, KubeError, NotFound
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.client.transport import ApiRequest
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.kinds import Kind
from pykueue.api import kueue, labels, registry
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.api.conditions import ActiveCondition, AdmissionCheckActiveReason
from pykueue.controllers.checks.provisioning_requests import REQUEST, Asking, CannotAsk
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WORKLOAD, WorkloadWriter
from pykueue.lifecycle import provisioning
from pykueue.lifecycle import workload_changes as change
from pykueue.lifecycle.provisioning import ProvisioningAttempt
from pykueue.observe.events import PROVISIONING

log = logging.getLogger(__name__)

_CHECK: Final = registry.KUEUE.of(kueue.AdmissionCheck)
_CONFIG: Final = registry.KUEUE.of(kueue.ProvisioningRequestConfig)

_WORKERS: Final = 4
_OWNER: Final = "owner"
_ASKS: Final = "check"
_UNTIL_SERVED_SECONDS: Final = 10.0


class ProvisioningController:
    """One loop over Workloads, one over the checks that ask for nodes; `run` follows the requests."""

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
        self._informers = informers
        self._writer = writer
        self._clock = clock
        self._cleanup = cleanup
        self._excluded = excluded  # the resources of a Workload that its ClusterQueue or the Configuration excludes
        self.configs = _copy(client, _CONFIG, kueue.ProvisioningRequestConfig, rng)
        self._asking = Asking(client, lambda: {key.name: flavor for key, flavor in informers.flavors.items()})
        self._requests = _copy(client, REQUEST, ProvisioningRequest, rng)
        self._requests.add_index(_OWNER, _owners)
        self._is_asked = asyncio.Event()  # some check is ours
        self._is_served: bool | None = None  # None: nobody has looked yet
        self.loop: Controller[ObjectKey] = Controller("provisioning", self._reconcile, rng, workers=_WORKERS)
        self.checks_loop: Controller[str] = Controller("provisioning-checks", self._reconcile_check, rng)
        informers.workloads.add_index(
            _ASKS, lambda workload: (check.name for check in workload.status.admission_checks)
        )
        informers.workloads.add_handler(self._workload_seen)
        informers.checks.add_handler(self._check_seen)
        self.configs.add_handler(self._config_seen)
        self._requests.add_handler(self._request_seen)

    async def run(self) -> None:
        """Follow ProvisioningRequests, from the time on that they are asked for and served."""
        await self._is_asked.wait()
        while True:
            if await self._look_for_requests():
                break
            await asyncio.sleep(_UNTIL_SERVED_SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._requests.run(), name=REQUEST.name)
            await self._requests.wait_for_sync()
            self._everything_anew()

    async def _look_for_requests(self) -> bool:
        try:
            await self._client.request(ApiRequest("GET", REQUEST.path(), (("limit", "1"),)))
            found = True
        except NotFound:
            found = False
        except KubeError as error:
            log.info("provisioning: %s", error)
            return False
        if self._is_served is None and not found:
            log.warning("the server does not serve %s: checks that need it wait", REQUEST.name)
        if found != self._is_served:
            self._is_served = found
            self._everything_anew()
        return found

    def _everything_anew(self) -> None:
        for check in self._ours():
            self.checks_loop.add(check)
            self._add_workloads(check)

    # --- What wakes it ------------------------------------------------------------------------------------------------

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        workload = change.new
        if workload is None:
            return
        asks = any(self._is_ours(check.name) for check in workload.status.admission_checks)
        if asks or any(True for _ in self._requests.by_index(_OWNER, workload.metadata.uid)):
            self.loop.add(change.key)

    def _check_seen(self, change: InformerEvent[kueue.AdmissionCheck]) -> None:
        if any(check is not None and _is_ours(check) for check in (change.old, change.new)):
            self._is_asked.set()
            self.checks_loop.add(change.key.name)
            self._add_workloads(change.key.name)

    def _config_seen(self, change: InformerEvent[kueue.ProvisioningRequestConfig]) -> None:
        for check in self._ours():
            if self._config_name(check) == change.key.name:
                self.checks_loop.add(check)
                self._add_workloads(check)

    def _request_seen(self, change: InformerEvent[ProvisioningRequest]) -> None:
        if change.new is None and change.old is not None:
            self._asking.forget(change.old)
        for request in (change.old, change.new):
            for owner in _controllers(request) if request is not None else ():
                self.loop.add(ObjectKey(change.key.namespace, owner.name))

    def _add_workloads(self, check: str) -> None:
        for key, _ in self._informers.workloads.by_index(_ASKS, check):
            self.loop.add(key)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _ours(self) -> Iterator[str]:
        return (check.metadata.name for check in self._informers.checks.values() if _is_ours(check))

    def _is_ours(self, check: str) -> bool:
        found = self._informers.checks.get(check)
        return found is not None and _is_ours(found)

    def _config_name(self, check: str) -> str:
        """The settings that a check names; empty where it names none, or something else."""
        found = self._informers.checks.get(check)
        reference = found.spec.parameters if found is not None else None
        if reference is None or (reference.api_group, reference.kind) != (_CONFIG.group, _CONFIG.kind):
            return ""
        return reference.name

    def _config(self, check: str) -> kueue.ProvisioningRequestConfigSpec | None:
        found = self.configs.get(self._config_name(check))
        return found.spec if found is not None else None

    async def _reconcile_check(self, name: str) -> None:
        """Say whether a check can be asked."""
        check = self._informers.checks.get(name)
        if check is None or not _is_ours(check) or self._is_served is None:
            return
        status, reason, message = self._activity(name)
        said = conditions.set_condition(
            check.status.conditions,
            ActiveCondition.ACTIVE,
            status,
            reason,
            message,
            now=self._clock.now(),
            generation=check.metadata.generation,
        )
        if said != check.status.conditions:
            patch = {
                "metadata": {"resourceVersion": check.metadata.resource_version},
                "status": {"conditions": [codec.to_tree(condition) for condition in said]},
            }
            await self._client.patch(_CHECK, name, patch, subresource="status", accept=METADATA)

    def _activity(self, check: str) -> tuple[ConditionStatus, AdmissionCheckActiveReason, str]:
        reasons = AdmissionCheckActiveReason
        if not self._is_served:
            return (
                ConditionStatus.FALSE,
                reasons.NOT_SERVED,
                f"The server does not serve {REQUEST.name} ({REQUEST.version})",
            )
        name = self._config_name(check)
        if not name:
            return ConditionStatus.FALSE, reasons.BAD_PARAMETERS_REF, f"spec.parameters: must name a {_CONFIG.kind}"
        if self.configs.get(name) is None:
            return ConditionStatus.FALSE, reasons.BAD_PARAMETERS_REF, f"{_CONFIG.kind} {name} does not exist"
        return ConditionStatus.TRUE, reasons.ACTIVE, "The check can be asked"

    # --- Workloads ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> None:
        if not self._requests.has_synced:
            return
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None:
                return
            configs = {
                check.name: self._config_for(workload, check.name)
                for check in workload.status.admission_checks
                if self._is_ours(check.name)
            }
            owned = (request for _, request in self._requests.by_index(_OWNER, workload.metadata.uid))
            requests = [request for request in owned if not self._asking.is_going(request)]
            now = self._clock.now()
            plan = provisioning.plan(workload, configs, requests, now, cleanup=self._cleanup)
            if plan.changes:
                await self._writer.workload(workload, plan.changes, PROVISIONING, now)
        for request in requests:
            await (self._asking.delete if request in plan.unused else self._asking.hand_over)(request)
        for attempt in plan.attempts:
            await self._ask(key, workload, attempt)

    def _config_for(self, workload: kueue.Workload, check: str) -> kueue.ProvisioningRequestConfigSpec | None:
        config = self._config(check)
        return None if config is None else provisioning.without_excluded(config, self._excluded(workload))

    async def _ask(self, key: ObjectKey, workload: kueue.Workload, attempt: ProvisioningAttempt) -> None:
        """Make a request. What keeps it from being made is told, and it is tried again."""
        try:
            made = await self._asking.make(workload, attempt)
        except (Busy, NotFound):
            raise  # a moment's trouble, or the namespace has just gone
        except (ApiError, CannotAsk) as error:
            await self._tell_failure(key, attempt, str(error))
            raise
        if made:
            note = f"Made ProvisioningRequest {attempt.name}"
            self._writer.emit(workload, change.normal("ProvisioningRequestCreated", note), PROVISIONING)

    async def _tell_failure(self, key: ObjectKey, attempt: ProvisioningAttempt, why: str) -> None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is not None:
                now = self._clock.now()
                message = f"ProvisioningRequest {attempt.name} could not be made: {why}"
                changes = provisioning.failed_to_ask(workload, attempt.check, message, now)
                await self._writer.workload(workload, changes, PROVISIONING, now)


def _copy(client: ApiClient, kind: Kind, type_: type[Any], rng: random.Random) -> Informer[Any]:
    return Informer(client, kind, lambda data: codec.decode(data, type_), rng)


def _is_ours(check: kueue.AdmissionCheck) -> bool:
    return check.spec.controller_name == labels.PROVISIONING_CONTROLLER


def _controllers(request: ProvisioningRequest) -> Iterator[meta.OwnerReference]:
    for owner in request.metadata.owner_references:
        if owner.controller and owner.kind == WORKLOAD.kind:
            yield owner


def _owners(request: ProvisioningRequest) -> tuple[str, ...]:
    return tuple(owner.uid for owner in _controllers(request))
