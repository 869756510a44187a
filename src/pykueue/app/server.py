"""The parts of the embedded API server: Kueue's kinds, the webhooks in its process, and the objects it begins with."""

from __future__ import annotations

from functools import cache
from typing import Final

from msgspec.structs import replace

from kubeserver.assembly import Parts
from kubeserver.storage.sqlite import DatabaseIdentity
from pykueue.api import registry, schema
from pykueue.app import in_process_webhooks, options
from pykueue.app.bare_server import bare_parts
from pykueue.runner import node
from pykueue.runner.machine import Machine
from pykueue.runner.process_executor import IN_MEMORY, Database
from pykueue.settings import Settings

ORPHAN_SECONDS: Final = 6.0
# Without a runner another program plays the controllers of the cluster, and reads how objects end.
UNATTENDED_ORPHAN_SECONDS: Final = 30.0


@cache
def kueue_parts() -> Parts:
    """Return `bare_parts` with the CRDs of Kueue's kinds and of those of `pykueue.io`."""
    return replace(bare_parts(), crds=[schema.crd(row) for row in registry.CUSTOM])


def managed_parts(settings: Settings, machine: Machine | None = None, orphan_seconds: float = ORPHAN_SECONDS) -> Parts:
    """Return the same with the webhooks in the process, active before the first request; and, for a machine, with
    queues of its size."""
    parts, chosen = kueue_parts(), options.webhook_options(settings)
    return replace(
        parts,
        plugins=lambda find: (*parts.plugins(find), *in_process_webhooks.hooks(chosen, find)),
        # Controllers record the outcome in the Workload of a deleted job; keep it a while before it is collected.
        orphan_seconds=orphan_seconds,
        first=node.initial_queues(machine) if machine is not None else (),
    )


def runner_database(opened: DatabaseIdentity | None) -> Database:
    """Return the identity of the database that a server has opened. A restored one has another identity."""
    if opened is None:
        return IN_MEMORY
    return Database(f"{opened.cluster_id} {opened.restored}", opened.revision, is_new=opened.is_new)
