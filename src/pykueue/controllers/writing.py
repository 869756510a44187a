"""Changes of a Workload become requests: the one place.

Changes on the status travel in one conditional merge patch of what differs; changes on the object in one of their own.
The write carries the revision that the decision was made on, so a decision about an object that has changed meanwhile is
refused by the server instead of undoing somebody's work. What is news is told once the write has worked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pykueue.api import codec, kueue, labels, patches, registry
from pykueue.api.meta import Nanoseconds
from pykueue.kube.client import METADATA, Client
from pykueue.kube.errors import KubeError
from pykueue.lifecycle import change, states
from pykueue.lifecycle.change import Changes, Deactivate, Delete, RemoveFinalizer, Tell
from pykueue.observe.reporting import Reporter

log = logging.getLogger(__name__)

WORKLOAD = registry.KUEUE.of(kueue.Workload)


class NotLeading(KubeError):
    """This manager lost its lease and must not write any more."""


class Writer:
    """Carries out what was decided about Workloads."""

    def __init__(self, client: Client, reporter: Reporter, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._reporter = reporter
        self._may_write = may_write

    async def workload(self, before: kueue.Workload, changes: Changes, controller: str, now: Nanoseconds) -> int:
        """Write the changes; returns the revision they made, or that of `before` where nothing had to be written."""
        if not self._may_write():
            raise NotLeading(f"{states.key(before)}: not written, because this manager does not lead any more")
        after = change.apply_to(before, changes, now)
        states.check_move(before, after)
        revision = int(before.metadata.resource_version or 0)
        if after.status != before.status:
            revision = await self._status(before, after)
        for each in changes:
            match each:
                case Deactivate():
                    revision = await self._patch(before, {"spec": {"active": False}})
                case RemoveFinalizer():
                    kept = [name for name in before.metadata.finalizers if name != labels.RESOURCE_IN_USE_FINALIZER]
                    if len(kept) != len(before.metadata.finalizers):
                        revision = await self._patch(before, {"metadata": {"finalizers": kept or None}})
                case Delete():
                    metadata = before.metadata
                    await self._client.delete(WORKLOAD, metadata.name, metadata.namespace, uid=metadata.uid)
        self._reporter.changes(after, changes, controller)
        return revision

    async def read(self, workload: kueue.Workload) -> kueue.Workload | None:
        """The object as the server has it now, past every cache."""
        metadata = workload.metadata
        found = await self._client.find(WORKLOAD, metadata.name, metadata.namespace)
        return codec.from_tree(found, kueue.Workload) if found is not None else None

    def tell(self, workload: kueue.Workload, news: Tell, controller: str) -> None:
        """Tell something that goes with no write."""
        self._reporter.changes(workload, (news,), controller)

    async def _status(self, before: kueue.Workload, after: kueue.Workload) -> int:
        patch = {"status": patches.make_merge(codec.to_tree(before.status), codec.to_tree(after.status))}
        return await self._patch(before, patch, "status")

    async def _patch(self, before: kueue.Workload, patch: dict[str, Any], subresource: str = "") -> int:
        metadata = before.metadata
        conditional = {
            **patch,
            "metadata": {**patch.get("metadata", {}), "resourceVersion": metadata.resource_version},
        }
        answer = await self._client.patch(
            WORKLOAD, metadata.name, conditional, metadata.namespace, subresource=subresource, answer=METADATA
        )
        return int(answer["metadata"]["resourceVersion"])
