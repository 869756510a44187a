"""Queues, cohorts, flavors, topologies and checks: what shapes the trees, and the trees built from it.

Changes are only noted; `settle` reads what changed and grows anew exactly the trees that something in them changed for.
Usage is carried over, so a tree that was grown anew holds what it would hold had it stood from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubemachinery import selectors
from pykueue.api import kueue
from pykueue.core import cohort, topology
from pykueue.core.cohort import CohortTree, QuotaNode, TreePlan
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import CohortInfo
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import Reservation
from pykueue.lifecycle.queues import References
from pykueue.state import specs
from pykueue.state.specs import QueueContext, ResolvedQueue


class _Grown(NamedTuple):
    plan: TreePlan
    ingredients: frozenset[int]
    tree: CohortTree


class Structure:
    """The objects that shape trees, the trees, and the reservations seated in them."""

    def __init__(self, policy: SchedulingPolicy, snapshot: Snapshot) -> None:
        self.policy = policy
        self.snapshot = snapshot
        self.cluster_queues: dict[str, kueue.ClusterQueue] = {}
        self.cohorts: dict[str, CohortInfo] = {}
        self.checks: dict[str, kueue.AdmissionCheck] = {}
        self.flavors: dict[str, kueue.ResourceFlavor] = {}
        self.topologies: dict[str, kueue.Topology] = {}
        self.read: dict[str, ResolvedQueue] = {}
        self.selectors: dict[str, selectors.Selector] = {}
        self.in_cohort_cycle: frozenset[str] = frozenset()
        self._held: dict[str, dict[str, Reservation]] = {}  # ClusterQueue -> its reservations
        self._seats: dict[str, Queue] = {}  # every queue that is in a tree, active or not
        self._trees: dict[tuple[bool, str], _Grown] = {}
        self._to_read: set[str] = set()
        self._is_reshaped = False
        self._on_nodes: tuple[str, ...] | None = None  # None: something has changed that it rests on

    # Objects.

    def put_cluster_queue(self, cluster_queue: kueue.ClusterQueue) -> bool:
        """Whether anything that matters changed; a new status does not."""
        name = cluster_queue.metadata.name
        before = self.cluster_queues.get(name)
        self.cluster_queues[name] = cluster_queue
        if before is not None and (before.spec, before.metadata.deletion_timestamp) == (
            cluster_queue.spec,
            cluster_queue.metadata.deletion_timestamp,
        ):
            return False
        self.selectors[name] = selectors.compile(cluster_queue.spec.namespace_selector)
        self._to_read.add(name)
        return True

    def drop_cluster_queue(self, name: str) -> None:
        self.cluster_queues.pop(name, None)
        self.read.pop(name, None)
        self._on_nodes = None
        self.selectors.pop(name, None)
        self._to_read.discard(name)
        self._is_reshaped = True

    def put_cohort(self, spec: CohortInfo) -> bool:
        if self.cohorts.get(spec.name) == spec:
            return False
        self.cohorts[spec.name] = spec
        self._is_reshaped = True
        return True

    def drop_cohort(self, name: str) -> None:
        self.cohorts.pop(name, None)
        self._is_reshaped = True

    def put_flavor(self, flavor: kueue.ResourceFlavor) -> set[str]:
        """The queues that use the flavor, if anything in it changed."""
        name = flavor.metadata.name
        before = self.flavors.get(name)
        self.flavors[name] = flavor
        if before is not None and before.spec == flavor.spec:
            return set()
        self.snapshot.eligibility_cache.clear()
        self.snapshot.flavors[name] = specs.flavor_spec(flavor)
        if before is None or before.spec.topology_name != flavor.spec.topology_name:
            self._to_read |= self._users_of_flavor(name)
        self._place_flavor(name)
        return self._users_of_flavor(name)

    def drop_flavor(self, name: str) -> set[str]:
        self.flavors.pop(name, None)
        self.snapshot.eligibility_cache.clear()
        self.snapshot.flavors.pop(name, None)
        self.snapshot.fleet.drop_flavor(name)
        self._on_nodes = None
        self._to_read |= self._users_of_flavor(name)
        return self._users_of_flavor(name)

    def put_topology(self, found: kueue.Topology) -> set[str]:
        name = found.metadata.name
        before = self.topologies.get(name)
        self.topologies[name] = found
        return set() if before is not None and before.spec == found.spec else self._topology_changed(name)

    def drop_topology(self, name: str) -> set[str]:
        self.topologies.pop(name, None)
        return self._topology_changed(name)

    def put_check(self, check: kueue.AdmissionCheck) -> set[str]:
        self.checks[check.metadata.name] = check
        return self._check_changed(check.metadata.name)

    def drop_check(self, name: str) -> set[str]:
        self.checks.pop(name, None)
        return self._check_changed(name)

    def _topology_changed(self, name: str) -> set[str]:
        users: set[str] = set()
        for flavor in self.flavors.values():
            if flavor.spec.topology_name == name:
                self._place_flavor(flavor.metadata.name)
                users |= self._users_of_flavor(flavor.metadata.name)
        self._to_read |= users
        return users

    def _check_changed(self, name: str) -> set[str]:
        users = {
            queue.metadata.name
            for queue in self.cluster_queues.values()
            if queue.spec.admission_checks_strategy is not None
            and any(rule.name == name for rule in queue.spec.admission_checks_strategy.admission_checks)
        }
        self._to_read |= users
        return users

    def _users_of_flavor(self, name: str) -> set[str]:
        return {
            queue.metadata.name
            for queue in self.cluster_queues.values()
            if any(flavor.name == name for group in queue.spec.resource_groups for flavor in group.flavors)
        }

    def _place_flavor(self, name: str) -> None:
        if not self.policy.topology:
            return
        self._on_nodes = None
        flavor = self.flavors[name]
        found = self.topologies.get(flavor.spec.topology_name or "")
        if found is not None:
            self.snapshot.fleet.put_flavor(topology.topology_flavor_of(flavor, found))
        elif self.snapshot.fleet.has_flavor(name):
            self.snapshot.fleet.drop_flavor(name)

    # Trees.

    def settle(self) -> set[str]:
        """Build what changed; the names of the queues that were read anew or stand in a new tree."""
        if not self._to_read and not self._is_reshaped:
            return set()
        self.snapshot.eligibility_cache.clear()
        references = References.of(
            self.flavors.values(),
            self.topologies.values(),
            self.checks.values(),
            has_topologies=self.policy.topology,
        )
        around = QueueContext(self.policy, references, self.checks)
        changed, self._to_read, self._is_reshaped = self._to_read, set(), False
        self._on_nodes = None
        for name in sorted(changed):
            self.read[name] = specs.queue_spec(self.cluster_queues[name], around)
        return changed | self._regrow()

    def _regrow(self) -> set[str]:
        forest = cohort.plan_trees((read.spec for read in self.read.values()), self.cohorts)
        trees: dict[tuple[bool, str], _Grown] = {}
        moved: set[str] = set()
        seats: dict[str, Queue] = {}
        for plan in forest.trees:
            name = (plan.single is not None, plan.root)
            ingredients = plan.spec_ids()
            grown = self._trees.get(name)
            if grown is not None and grown.ingredients == ingredients:
                trees[name] = grown
                seats.update((spec.name, self._seats[spec.name]) for spec in plan.members())
                continue
            tree = CohortTree.build(plan)
            trees[name] = _Grown(plan, ingredients, tree)
            for spec in plan.members():
                before = self._seats.get(spec.name)
                queue = Queue(spec, tree.queues[spec.name], before.generation + 1 if before is not None else 1)
                seats[spec.name] = queue
                moved.add(spec.name)
                for reservation in self._held.get(spec.name, {}).values():
                    self._seat(queue, reservation)
        self._trees, self._seats, self.in_cohort_cycle = trees, seats, forest.in_cohort_cycle
        self.snapshot.queues = {name: queue for name, queue in seats.items() if queue.spec.listed}
        self.snapshot.inactive = {name for name in self.read if name not in self.snapshot.queues}
        self.snapshot.settle()
        return moved

    def scopes(self) -> Iterator[Iterable[str]]:
        """Which queues could ever compete for the same room: those of one tree, and of all trees on nodes."""
        on_nodes: list[str] = []
        for grown in self._trees.values():
            if any(map(self.places_pods, grown.tree.queues)):
                on_nodes += grown.tree.queues
            else:
                yield grown.tree.queues
        if on_nodes:
            yield on_nodes

    def places_pods(self, name: str) -> bool:
        """Whether the queue has a flavor whose pods are given a place on nodes."""
        groups = self.read[name].spec.groups
        return any(self.snapshot.fleet.has_flavor(flavor) for group in groups for flavor in group.flavors)

    def on_nodes(self) -> tuple[str, ...]:
        """The queues that do, of whatever tree. Asked whenever room on nodes comes back, so it is kept."""
        if self._on_nodes is None:
            self._on_nodes = tuple(filter(self.places_pods, self.read))
        return self._on_nodes

    def companions(self, name: str) -> Iterator[str]:
        """The queues of the same tree, itself included; none where its cohorts run in a circle."""
        seat = self._seats.get(name)
        if seat is not None:
            yield from seat.node.tree.queues

    def queues_under(self, cohort_name: str) -> Iterator[str]:
        """The queues of the tree that a cohort is in."""
        for grown in self._trees.values():
            if grown.plan.single is None and any(node.name == cohort_name for node in grown.tree.nodes):
                yield from grown.tree.queues

    def is_open(self, name: str) -> bool:
        """Whether heads are taken from the queue. One that leaves the placement to another cluster without its topology
        being known here has its head taken and refused; so, in a plan, has one whose cohorts run in a circle. A manager
        calls that queue inactive."""
        read = self.read.get(name)
        return (
            read is not None and not read.is_blocked and not (self.policy.departures and name in self.in_cohort_cycle)
        )

    # Questions.

    def held(self, cluster_queue: str) -> Iterable[Reservation]:
        """The reservations in a queue, whether or not that queue exists."""
        return self._held.get(cluster_queue, {}).values()

    def queue(self, cluster_queue: str) -> Queue | None:
        """The queue in its tree, active or not."""
        return self._seats.get(cluster_queue)

    def node(self, cluster_queue: str) -> QuotaNode | None:
        """The queue's place in its tree, active or not."""
        seat = self._seats.get(cluster_queue)
        return seat.node if seat is not None else None

    def cohort_node(self, cohort_name: str) -> QuotaNode | None:
        """A cohort's place in its tree, declared or not."""
        return next((node for node in self.cohort_nodes() if node.name == cohort_name), None)

    def cohort_nodes(self) -> Iterator[QuotaNode]:
        """Every cohort in its tree: those with a Cohort object, and those that only a parentName or cohortName names.
        Cohorts of a cycle are in no tree."""
        for grown in self._trees.values():
            if grown.plan.single is None:
                yield from (node for node in grown.tree.nodes if not node.is_queue)

    # Reservations.

    def reserve(self, reservation: Reservation) -> None:
        """Count a reservation in its queue, whether or not that queue exists yet."""
        self._held.setdefault(reservation.cluster_queue, {})[reservation.key] = reservation
        queue = self._seats.get(reservation.cluster_queue)
        if queue is not None:
            self._seat(queue, reservation)
            self.snapshot.settle()
        if reservation.placed:
            self.snapshot.fleet.book(reservation.placed)

    def release(self, reservation: Reservation) -> None:
        self._held[reservation.cluster_queue].pop(reservation.key)
        queue = self._seats.get(reservation.cluster_queue)
        if queue is not None:
            queue.remove_reservation(reservation)
            self.snapshot.end(queue, reservation)
        if reservation.placed:
            self.snapshot.fleet.release(reservation.placed)
        self.note_update(reservation.cluster_queue)

    def note_update(self, cluster_queue: str) -> None:
        """[FL24] Something was said anew about a reservation in the queue, or it is over."""
        queue = self._seats.get(cluster_queue)
        if queue is not None:
            queue.generation += 1

    def recount(self, reservation: Reservation) -> None:
        """What of the reservation's usage is hidden has changed."""
        queue = self._seats.get(reservation.cluster_queue)
        if queue is not None:
            queue.remove_reservation(reservation)
            self.snapshot.end(queue, reservation)
            self._seat(queue, reservation)
            self.snapshot.settle()

    def _seat(self, queue: Queue, reservation: Reservation) -> None:
        queue.add_reservation(reservation)
        self.snapshot.assume(queue, reservation.usage_by_number)
