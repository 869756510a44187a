"""The state of the scheduler as a list of records: cached usage, pending Workloads, writes in flight.

Kueue's manager logs the same on SIGUSR2, with these messages. `records` is read-only and takes one pass over the state;
`log_state` writes one log line per record, `document` is the same as JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pykueue.core import amounts
from pykueue.core.cohort import QuotaNode
from pykueue.state.world import World

log: Final = logging.getLogger("pykueue.dumper")


class StateRecord(NamedTuple):
    """One log line of the dump."""

    message: str
    fields: dict[str, Any]


def records(world: World) -> Iterator[StateRecord]:
    """Yield all records, ordered by name."""
    yield from _cluster_queues(world)
    yield from _cohorts(world)
    yield from _free_capacity(world)
    for name, queue in sorted(world.queues.items()):
        yield StateRecord(
            "Found pending and inadmissible workloads in ClusterQueue",
            {
                "clusterQueue": name,
                "pending": [workload.key for workload in (*queue.active(), *queue.in_flight.values())],
                "inadmissible": sorted(workload.key for workload in queue.parked()),
            },
        )
    yield StateRecord(
        "Found work under way",
        {
            "reservationsBeingWritten": sorted(key for key in world.reservations if world.is_assumed(key)),
            "secondPasses": sorted(world.second_passes),
            "cycles": world.cycles,
        },
    )


def document(world: World) -> list[dict[str, Any]]:
    """Return the records for a JSON response."""
    return [{"msg": record.message, **record.fields} for record in records(world)]


def log_state(world: World) -> None:
    """Log the state at any configured log level, because the operator requested it."""
    log.setLevel(logging.INFO)
    log.info("Started dump")
    for record in records(world):
        log.info(record.message, extra=record.fields)
    log.info("Ended dump")


def _cluster_queues(world: World) -> Iterator[StateRecord]:
    for name in sorted(world.cluster_queues):
        node, spec = world.queue_node(name), world.queue_spec(name)
        quotas = sorted(spec.quotas.items()) if spec is not None else ()
        yield StateRecord(
            "Found ClusterQueue",
            {
                "clusterQueue": name,
                "cohort": node.parent.name if node is not None and node.parent is not None else "<none>",
                "active": world.is_active(name),
                "quota": {
                    f"{pair.flavor}/{pair.resource}": amounts.text(pair.resource, quota[0]) for pair, quota in quotas
                },
                "usage": _usage(node) if node is not None else {},
                "workloads": sorted(reservation.key for reservation in world.reservations_in(name)),
            },
        )


def _cohorts(world: World) -> Iterator[StateRecord]:
    found: dict[str, QuotaNode] = {}
    for name in world.cluster_queues:
        node = world.queue_node(name)
        found |= {above.name: above for above in (node.ancestors if node is not None else ())}
    for name, node in sorted(found.items()):
        quota = {
            f"{pair.flavor}/{pair.resource}": amounts.text(pair.resource, node.subtree[number])
            for number in node.known
            for pair in (node.tree.pairs[number],)
        }
        yield StateRecord("Found cohort", {"cohort": name, "resources": quota, "usage": _usage(node)})


def _usage(node: QuotaNode) -> dict[str, str]:
    pairs = ((node.tree.pairs[number], amount) for number, amount in enumerate(node.usage) if amount)
    return {f"{pair.flavor}/{pair.resource}": amounts.text(pair.resource, amount) for pair, amount in sorted(pairs)}


def _free_capacity(world: World) -> Iterator[StateRecord]:
    topology_cache = world.snapshot().topology_cache
    specs = (spec for name in world.cluster_queues if (spec := world.queue_spec(name)) is not None)
    flavors = {flavor for spec in specs for group in spec.groups for flavor in group.flavors}
    for flavor in sorted(name for name in flavors if topology_cache.has_flavor(name)):
        free = {
            "/".join(domain): {name: amounts.text(name, amount) for name, amount in sorted(left.items())}
            for domain, left in sorted(topology_cache.left(flavor).items())
        }
        yield StateRecord("TAS Snapshot Free Capacity", {"resourceFlavor": flavor, "freeCapacityPerDomain": free})
