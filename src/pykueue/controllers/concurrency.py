"""`controller.groupKindConcurrency`: how many objects of a kind are reconciled at once, for every controller.

A kind is written `Kind.group`, and `Kind` alone in the core group. A controller that reconciles one kind has as many
workers as the Configuration sets; one that reconciles several has a limit for each. Without an entry a controller has
the number of workers it was built with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pykueue.api import kueue

if TYPE_CHECKING:  # the Configuration is read by short commands as well, which need none of these
    from kubemachinery.client.controller import Controller
    from kubemachinery.kinds import Kind
    from pykueue.jobs.kinds import JobKinds

_WORKLOAD: Final = f"Workload.{kueue.GROUP}"

# Controllers of one kind, by name. As in Kueue, what opens the gates of pods counts by Workload.
_OF_ONE_KIND: Final[Mapping[str, str]] = {
    "workload": _WORKLOAD,
    "topology-gate": _WORKLOAD,
    "elastic-gate": _WORKLOAD,
    "nodes": "Node",
    "failure-recovery": "Pod",
    "priority-class": f"WorkloadPriorityClass.{kueue.GROUP}",
    "provisioning": _WORKLOAD,
    "provisioning-checks": f"AdmissionCheck.{kueue.GROUP}",
    "multikueue": _WORKLOAD,
    "multikueue-checks": f"AdmissionCheck.{kueue.GROUP}",
}
_QUEUES: Final = ("ClusterQueue", "LocalQueue", "Cohort")
_IN_USE: Final = ("ClusterQueue", "ResourceFlavor", "AdmissionCheck", "Topology")


def name_of(kind: Kind) -> str:
    """A kind as the Configuration writes it."""
    return f"{kind.kind}.{kind.group}" if kind.group else kind.kind


def known(jobs: JobKinds) -> frozenset[str]:
    """Every kind that a controller reconciles."""
    ours = (f"{kind}.{kueue.GROUP}" for kind in (*_QUEUES, *_IN_USE))
    of_jobs = (name_of(row.kind) for row in jobs if row.implementation is not None)
    return frozenset((*_OF_ONE_KIND.values(), *ours, *of_jobs))


def names() -> frozenset[str]:
    """The controllers that can be limited."""
    return frozenset((*_OF_ONE_KIND, "queues", "in-use", "jobs"))


def limit(loops: Iterable[Controller[Any]], wanted: Mapping[str, int], jobs: JobKinds) -> None:
    """Limit every controller as the Configuration asks. Numbers below 1 ask for nothing, as in Kueue."""
    limits = {kind: count for kind, count in wanted.items() if count > 0}
    for loop in loops:
        kind_of = _kind_of(loop.name, jobs)
        kinds = {kind: limits[kind] for kind in _kinds(loop.name, jobs) if kind in limits}
        if kind_of is not None and kinds:
            loop.limit_concurrency(kind_of, kinds)


def _kinds(loop: str, jobs: JobKinds) -> frozenset[str]:
    """The kinds that a controller reconciles."""
    if loop in _OF_ONE_KIND:
        return frozenset((_OF_ONE_KIND[loop],))
    own = {"queues": _QUEUES, "in-use": _IN_USE}.get(loop, ())
    of_jobs = (name_of(row.kind) for row in jobs) if loop == "jobs" else ()
    return frozenset((*(f"{kind}.{kueue.GROUP}" for kind in own), *of_jobs))


def _kind_of(loop: str, jobs: JobKinds) -> Callable[[Any], str] | None:
    """Return the function from a controller's key to its kind; None if none of its kinds can be limited."""
    if loop in _OF_ONE_KIND:
        return lambda key: _OF_ONE_KIND[loop]
    if loop == "queues":
        return lambda key: f"{key.kind}.{kueue.GROUP}"
    if loop == "in-use":
        return lambda key: f"{key[0]}.{kueue.GROUP}"
    if loop == "jobs":
        names = {row.framework: name_of(row.kind) for row in jobs}
        return lambda key: names[key.framework]
    return None
