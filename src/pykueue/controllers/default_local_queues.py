"""A LocalQueue in every namespace that a ClusterQueue selects (KEP-7610).

A ClusterQueue that is created or changed concerns the namespaces that it selects; a namespace that is created or has
other labels concerns the ClusterQueues with a default LocalQueue. Each pair is reconciled alone, so that one namespace
in which no LocalQueue can be created does not delay others.

Nothing is ever changed or deleted, not even if the namespace is not selected any more or the ClusterQueue is deleted. A
LocalQueue that a user deletes is created again when its namespace or its ClusterQueue changes, and not before, so that
the controller does not compete with a user who cleans up.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kubemachinery import codec, selectors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.errors import AlreadyExists, ApiError, Busy, NotFound
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.selectors import Selector
from pykueue.api import kube, kueue, labels, registry
from pykueue.lifecycle.workload_changes import EventType
from pykueue.observe.events import Reporter

log = logging.getLogger(__name__)

CLUSTER_QUEUES: Final = "kueue-clusterqueue-controller"  # the name under which it reports

_LOCAL_QUEUE: Final = registry.KUEUE.of(kueue.LocalQueue)
_MAKERS: Final = "makesLocalQueues"
_ALL: Final = ""
_EVERYWHERE: Final = ""  # a ClusterQueue by itself, in no particular namespace


class LocalQueueTemplate(msgspec.Struct, frozen=True):
    """Which LocalQueue is created for a ClusterQueue, where, and how it is recognized as ours."""

    # Empty: none is created.
    name: Callable[[kueue.ClusterQueue], str]
    # The annotations of the LocalQueue.
    annotations: Callable[[kueue.ClusterQueue], dict[str, str]]
    is_ours: Callable[[kueue.LocalQueue, kueue.ClusterQueue], bool]
    # The namespaces that are considered at all, besides what each ClusterQueue selects.
    namespaces: Selector = selectors.EVERYTHING
    # Whether two ClusterQueues that could create the same LocalQueue are a mistake to report.
    has_rivals: bool = False


def _named_in_spec(cluster_queue: kueue.ClusterQueue) -> str:
    wanted = cluster_queue.spec.default_local_queue
    return wanted.name if wanted is not None else ""


def _signature(cluster_queue: kueue.ClusterQueue) -> dict[str, str]:
    return {labels.CREATED_BY_CLUSTER_QUEUE: cluster_queue.metadata.name}


def _is_signed(local_queue: kueue.LocalQueue, cluster_queue: kueue.ClusterQueue) -> bool:
    return local_queue.metadata.annotations.items() >= _signature(cluster_queue).items()


BY_SPEC: Final = LocalQueueTemplate(_named_in_spec, _signature, _is_signed, has_rivals=True)
"""As `spec.defaultLocalQueue` has it, with the ClusterQueue's name as an annotation."""


class QueueNamespace(msgspec.Struct, frozen=True, order=True):
    """One ClusterQueue in one namespace, or, without a namespace, the ClusterQueue among the others."""

    cluster_queue: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.cluster_queue} in {self.namespace}" if self.namespace else self.cluster_queue


class DefaultLocalQueues:
    def __init__(
        self,
        client: ApiClient,
        cluster_queues: Informer[kueue.ClusterQueue],
        namespaces: Informer[kube.Namespace],
        local_queues: Informer[kueue.LocalQueue],
        reporter: Reporter,
        template: LocalQueueTemplate,
        rng: random.Random,
        *,
        reports_as: str = CLUSTER_QUEUES,
    ) -> None:
        self._client = client
        self._cluster_queues = cluster_queues
        self._namespaces = namespaces
        self._local_queues = local_queues
        self._reporter = reporter
        self._template = template
        self._reports_as = reports_as
        self._selectors: dict[str, Selector] = {}  # of the ClusterQueues, read once: every namespace meets all of them
        self._warned: dict[QueueNamespace, tuple[str, str, str]] = {}  # of which LocalQueue, for which UIDs
        self._rivals: dict[frozenset[str], tuple[str, str]] = {}  # reported pairs of names: LocalQueue and UIDs
        self.loop: Controller[QueueNamespace] = Controller("default-local-queues", self._reconcile, rng, workers=4)
        cluster_queues.add_index(_MAKERS, lambda queue: (_ALL,) if template.name(queue) else ())
        cluster_queues.add_handler(self._cluster_queue_seen)
        namespaces.add_handler(self._namespace_seen)

    # --- Events that add keys -----------------------------------------------------------------------------------------

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._selectors.pop(change.key.name, None)
            self._forget(lambda pair: pair.cluster_queue == change.key.name)
            self._rivals = {pair: about for pair, about in self._rivals.items() if change.key.name not in pair}
            return
        if not self._template.name(new) or (old is not None and self._creates_alike(old, new)):
            return
        selector = self._selectors[change.key.name] = selectors.compile(new.spec.namespace_selector)
        if self._template.has_rivals:
            self.loop.add(QueueNamespace(change.key.name, _EVERYWHERE), priority=change.priority)
        for namespace in self._namespaces.values():
            if selector.matches(namespace.metadata.labels):
                self.loop.add(QueueNamespace(change.key.name, namespace.metadata.name), priority=change.priority)

    def _creates_alike(self, old: kueue.ClusterQueue, new: kueue.ClusterQueue) -> bool:
        return (
            old.metadata.uid == new.metadata.uid
            and self._template.name(old) == self._template.name(new)
            and old.spec.namespace_selector == new.spec.namespace_selector
        )

    def _namespace_seen(self, change: InformerEvent[kube.Namespace]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._forget(lambda pair: pair.namespace == change.key.name)
            return
        if old is not None and old.metadata.uid == new.metadata.uid and old.metadata.labels == new.metadata.labels:
            return
        for key, _ in self._cluster_queues.by_index(_MAKERS, _ALL):
            if self._selectors[key.name].matches(new.metadata.labels):
                self.loop.add(QueueNamespace(key.name, change.key.name), priority=change.priority)

    def _forget(self, is_gone: Callable[[QueueNamespace], bool]) -> None:
        for pair in [pair for pair in self._warned if is_gone(pair)]:
            del self._warned[pair]

    # --- What it does -------------------------------------------------------------------------------------------------

    async def _reconcile(self, pair: QueueNamespace) -> None:
        cluster_queue = self._cluster_queues.get(pair.cluster_queue)
        if pair.namespace == _EVERYWHERE:
            if cluster_queue is not None and cluster_queue.metadata.deletion_timestamp is None:
                self._report_rivals(cluster_queue)
            return
        namespace = self._namespaces.get(pair.namespace)
        if cluster_queue is None or namespace is None or not self._is_served(cluster_queue, namespace):
            return
        name = self._template.name(cluster_queue)
        found = self._local_queues.get(name, pair.namespace)
        if found is None and not await self._create(name, pair, cluster_queue, namespace):
            # The informer is behind: the LocalQueue exists, and may belong to another owner.
            tree = await self._client.find(_LOCAL_QUEUE, name, pair.namespace)
            found = codec.from_tree(tree, kueue.LocalQueue) if tree is not None else None
        if found is not None and not self._template.is_ours(found, cluster_queue):
            self._warn(name, pair, cluster_queue, namespace)

    def _report_rivals(self, cluster_queue: kueue.ClusterQueue) -> None:
        """Emit a Warning on both ClusterQueues that create LocalQueues of the same name and could select the same
        namespace. The webhook refuses the second of them; two that were created at the same moment, or while no
        webhook was served, were both accepted. Every pair is reported once."""
        metadata, name = cluster_queue.metadata, self._template.name(cluster_queue)
        selector = self._selectors.get(metadata.name)
        if selector is None or not name:
            return
        for key, rival in list(self._cluster_queues.by_index(_MAKERS, _ALL)):
            if key.name == metadata.name or self._template.name(rival) != name or rival.metadata.deletion_timestamp:
                continue
            pair = frozenset((metadata.name, key.name))
            about = name, "/".join(sorted((metadata.uid, rival.metadata.uid)))
            if self._rivals.get(pair) == about or not selector.overlaps(self._selectors[key.name]):
                continue
            self._rivals[pair] = about
            for one, other in ((cluster_queue, rival), (rival, cluster_queue)):
                note = (
                    f"ClusterQueue {other.metadata.name} also creates LocalQueues named {name}, and a namespace could "
                    "match both namespaceSelectors: the first to create the LocalQueue keeps it. "
                    "Change the name or the namespaceSelector of one of them"
                )
                self._emit(one, EventType.WARNING, "DefaultLocalQueueConflict", note, other)

    def _is_served(self, cluster_queue: kueue.ClusterQueue, namespace: kube.Namespace) -> bool:
        """Whether the namespace is selected, and neither it nor the ClusterQueue is being deleted."""
        found = namespace.metadata.labels
        return (
            bool(self._template.name(cluster_queue))
            and cluster_queue.metadata.deletion_timestamp is None
            and namespace.metadata.deletion_timestamp is None
            and namespace.status.phase != "Terminating"
            and self._template.namespaces.matches(found)
            and self._selectors[cluster_queue.metadata.name].matches(found)
        )

    async def _create(
        self, name: str, pair: QueueNamespace, cluster_queue: kueue.ClusterQueue, namespace: kube.Namespace
    ) -> bool:
        """Create the LocalQueue; whether it was created, False if it exists."""
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": pair.namespace,
            "labels": {labels.AUTO_GENERATED: "true"},
        }
        if annotations := self._template.annotations(cluster_queue):
            metadata["annotations"] = annotations
        tree = {
            "apiVersion": _LOCAL_QUEUE.api_version,
            "kind": _LOCAL_QUEUE.kind,
            "metadata": metadata,
            "spec": {"clusterQueue": pair.cluster_queue},
        }
        try:
            await self._client.create(_LOCAL_QUEUE, tree)
        except AlreadyExists:
            return False
        except (Busy, NotFound):
            raise  # a passing error, or the namespace was just deleted
        except ApiError as error:
            if not _is_terminating(error):
                note = f"LocalQueue {name} could not be created in namespace {pair.namespace}: {error}"
                self._emit(cluster_queue, EventType.WARNING, "LocalQueueCreationFailed", note, namespace)
            raise
        note = f"Created LocalQueue {name} in namespace {pair.namespace}"
        log.info("ClusterQueue %s: %s", pair.cluster_queue, note)
        self._emit(cluster_queue, EventType.NORMAL, "LocalQueueCreated", note, namespace)
        return True

    def _warn(
        self, name: str, pair: QueueNamespace, cluster_queue: kueue.ClusterQueue, namespace: kube.Namespace
    ) -> None:
        """Emit a Warning that another owner's LocalQueue has the name; once per pair."""
        about = (name, cluster_queue.metadata.uid, namespace.metadata.uid)
        if self._warned.get(pair) != about:
            self._warned[pair] = about
            note = f"No LocalQueue was created in namespace {pair.namespace}: one named {name} exists already"
            self._emit(cluster_queue, EventType.WARNING, "LocalQueueExists", note, namespace)

    def _emit(
        self,
        cluster_queue: kueue.ClusterQueue,
        type_: EventType,
        reason: str,
        note: str,
        related: kueue.ClusterQueue | kube.Namespace,
    ) -> None:
        self._reporter.event(cluster_queue, type_, reason, note, self._reports_as, related)


def _is_terminating(error: ApiError) -> bool:
    """Whether the server refused because the namespace is being deleted; the watch will show it."""
    return error.code == 403 and "terminat" in str(error)
