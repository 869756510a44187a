"""The populator: default LocalQueues beside any manager, also one without a gate for them.

Every ClusterQueue gets a LocalQueue in every namespace that it selects, with one common name or its own. It is the same
controller as for `spec.defaultLocalQueue`, with another template; a LocalQueue is recognized by the ClusterQueue
that it points to.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final, Literal, TypeVar

import msgspec

from kubemachinery import codec, meta, selectors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.event_recorder import EventRecorder
from kubemachinery.client.informer import Informer, run_informers
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.clock import Clock
from kubemachinery.meta import LabelSelector, LabelSelectorRequirement
from pykueue.api import kube, kueue, labels, registry
from pykueue.api.validation.nearest import did_you_mean
from pykueue.controllers.default_local_queues import DefaultLocalQueues, LocalQueueTemplate
from pykueue.errors import ConfigurationError
from pykueue.observe.events import Reporter

T = TypeVar("T", bound=msgspec.Struct)

REPORTS_AS: Final = "kueue-populator"
_OTHERWISE: Final = "default"
_NAME_LENGTH: Final = 63
_NOT_THE_SYSTEM: Final = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key=labels.NAMESPACE_NAME, operator="NotIn", values=("kube-system",)),)
)


class PopulatorConfiguration(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The configuration file; every field is optional."""

    local_queue_name: str | None = None
    local_queue_name_mode: Literal["Static", "AsClusterQueue"] = "Static"
    managed_jobs_namespace_selector: LabelSelector = _NOT_THE_SYSTEM


def load(tree: object, source: str) -> PopulatorConfiguration:
    """Return the configuration in `tree`, or raise with every mistake in it."""
    if not isinstance(tree, dict):
        raise ConfigurationError(source, ["must be an object"])
    known = [field.encode_name for field in msgspec.structs.fields(PopulatorConfiguration)]
    findings = [f"{name}: is not a field{did_you_mean(name, known)}" for name in tree if name not in known]
    path = "managedJobsNamespaceSelector"
    if tree.get(path) is not None:
        findings += [str(error) for error in selectors.check(tree[path], path)]
    try:
        found = msgspec.convert(
            codec.without_nulls({name: tree[name] for name in known if name in tree}), PopulatorConfiguration
        )
    except msgspec.ValidationError as error:
        raise ConfigurationError(source, [*findings, str(error)]) from None
    if found.local_queue_name is not None:
        if found.local_queue_name_mode != "Static":
            findings.append("localQueueName: cannot be set while localQueueNameMode is AsClusterQueue")
        findings += [f"localQueueName: {why}" for why in meta.check_subdomain_name(found.local_queue_name)]
        if len(found.local_queue_name) > _NAME_LENGTH:
            findings.append(f"localQueueName: must not be longer than {_NAME_LENGTH} characters")
    if findings:
        raise ConfigurationError(source, findings)
    return found


def template(configuration: PopulatorConfiguration) -> LocalQueueTemplate:
    static = configuration.local_queue_name or _OTHERWISE
    of_its_own = configuration.local_queue_name_mode == "AsClusterQueue"
    return LocalQueueTemplate(
        name=lambda cluster_queue: cluster_queue.metadata.name if of_its_own else static,
        annotations=lambda _: {},
        is_ours=lambda local_queue, cluster_queue: local_queue.spec.cluster_queue == cluster_queue.metadata.name,
        namespaces=selectors.compile(configuration.managed_jobs_namespace_selector),
    )


class Populator:
    """The controller with informers of its own."""

    def __init__(
        self,
        client: ApiClient,
        configuration: PopulatorConfiguration,
        clock: Clock,
        rng: random.Random,
        *,
        instance: str,
    ) -> None:
        def copy(type_: type[T]) -> Informer[T]:
            return Informer(client, registry.ALL.of(type_), ObjectDecoder(type_), rng)

        cluster_queues, namespaces = copy(kueue.ClusterQueue), copy(kube.Namespace)
        local_queues = copy(kueue.LocalQueue)
        self._informers: tuple[Informer[Any], ...] = (namespaces, local_queues, cluster_queues)
        self._recorder = EventRecorder(client, clock, instance)
        self._loop = DefaultLocalQueues(
            client,
            cluster_queues,
            namespaces,
            local_queues,
            Reporter(self._recorder),
            template(configuration),
            rng,
            reports_as=REPORTS_AS,
        ).loop

    async def run(self) -> None:
        """Create LocalQueues until cancelled."""
        async with run_informers(self._informers), asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="recorder")
            group.create_task(self._loop.run(), name=self._loop.name)
