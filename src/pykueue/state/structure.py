"""ClusterQueues, cohorts, flavors, topologies and checks, and the cohort trees built from them.

Changes are only noted; `settle` reads what changed and rebuilds exactly the trees that changed. Usage is carried over,
so a rebuilt tree holds what it would hold had it existed from the start. Where many objects changed, `prepare` does
most of that work in steps before: what it reads is dropped when its object changes again, and a tree that it builds is
taken only for the very specs that it was built from, so it may stop at any step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from kubemachinery import selectors
from kubemachinery.meta import Nanoseconds
from pykueue.api import backfill, kueue
from pykueue.core import cohort, quota, topology
from pykueue.core.cohort import CohortTree, Forest, QuotaNode, TreePlan
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import CohortInfo, FlavorResource, QueueSpec, Quota
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import Reservation
from pykueue.lifecycle.queues import References
from pykueue.state import specs
from pykueue.state.quota_windows import GivenQuotas, QuotaOwner, QuotaWindows
from pykueue.state.specs import QueueContext, ResolvedQueue


class _BuiltTree(NamedTuple):
    plan: TreePlan
    spec_ids: frozenset[int]
    tree: CohortTree


class UsageObserver(Protocol):
    """Is called with every reservation that is added to a tree, changed or removed."""

    def used(self, queue: Queue, reservation: Reservation) -> None: ...
    def released(self, queue: Queue, key: str) -> None: ...


class Structure:
    """The objects that shape cohort trees, the trees, and the reservations in them."""

    def __init__(self, policy: SchedulingPolicy, snapshot: Snapshot) -> None:
        self.policy = policy
        self.snapshot = snapshot
        self.cluster_queues: dict[str, kueue.ClusterQueue] = {}
        self.cohorts: dict[str, CohortInfo] = {}
        self.checks: dict[str, kueue.AdmissionCheck] = {}
        self.flavors: dict[str, kueue.ResourceFlavor] = {}
        self.topologies: dict[str, kueue.Topology] = {}
        self.windows = QuotaWindows()
        self._spec_quotas: dict[str, Mapping[FlavorResource, Quota]] = {}  # of ClusterQueues, without windows
        self._cohorts_in_force: dict[str, CohortInfo] = {}  # those whose quota a window changes
        self.read: dict[str, ResolvedQueue] = {}
        self.selectors: dict[str, selectors.Selector] = {}
        self.in_cohort_cycle: frozenset[str] = frozenset()
        self._held: dict[str, dict[str, Reservation]] = {}  # ClusterQueue -> its reservations
        self._queues_by_name: dict[str, Queue] = {}  # every ClusterQueue that is in a tree, active or not
        self._trees: dict[tuple[bool, str], _BuiltTree] = {}
        self.tree_version = 0  # grows whenever a tree is built
        self._to_read: set[str] = set()
        self._is_reshaped = False
        self._references: References | None = None  # None: to be computed again
        self._read_ahead: dict[str, ResolvedQueue] = {}  # of those to read, without windows
        self._built_ahead: dict[tuple[bool, str], _BuiltTree] = {}  # without usage
        self.usage_observer: UsageObserver | None = None
        # By the flavors of which they have one; None is any topology flavor. Computed when needed.
        self._topology_queues: dict[frozenset[str] | None, tuple[str, ...]] = {}

    # Objects.

    def put_cluster_queue(self, cluster_queue: kueue.ClusterQueue) -> bool:
        """Put a ClusterQueue; whether anything changed that the scheduler reads."""
        name = cluster_queue.metadata.name
        before = self.cluster_queues.get(name)
        self.cluster_queues[name] = cluster_queue
        if before is not None and self._facts(before) == self._facts(cluster_queue):
            return False
        self.selectors[name] = selectors.compile(cluster_queue.spec.namespace_selector)
        self._note_read((name,))
        return True

    def _facts(self, cluster_queue: kueue.ClusterQueue) -> tuple[object, ...]:
        """Everything of a ClusterQueue that the scheduler reads."""
        spec, metadata = cluster_queue.spec, cluster_queue.metadata
        if not self.policy.planned_backfill:
            return spec, metadata.deletion_timestamp
        return spec, metadata.deletion_timestamp, *map(metadata.annotations.get, backfill.ANNOTATIONS)

    def drop_cluster_queue(self, name: str) -> None:
        self.cluster_queues.pop(name, None)
        self.read.pop(name, None)
        self._spec_quotas.pop(name, None)
        self._topology_queues.clear()
        self.selectors.pop(name, None)
        self._to_read.discard(name)
        self._read_ahead.pop(name, None)
        self._is_reshaped = True

    def put_cohort(self, spec: CohortInfo) -> bool:
        if self.cohorts.get(spec.name) == spec:
            return False
        self.cohorts[spec.name] = spec
        self._overlay_cohort(spec.name)
        self._is_reshaped = True
        return True

    def drop_cohort(self, name: str) -> None:
        self.cohorts.pop(name, None)
        self._cohorts_in_force.pop(name, None)
        self._is_reshaped = True

    def put_flavor(self, flavor: kueue.ResourceFlavor) -> set[str]:
        """Put a flavor; return the ClusterQueues that use it if it changed."""
        name = flavor.metadata.name
        before = self.flavors.get(name)
        self.flavors[name] = flavor
        self._references = None
        if before is not None and before.spec == flavor.spec:
            return set()
        self.snapshot.eligibility_cache.clear()
        self.snapshot.flavors[name] = specs.flavor_spec(flavor)
        if before is None or before.spec.topology_name != flavor.spec.topology_name:
            self._note_read(self._users_of_flavor(name))
        self._place_flavor(name)
        return self._users_of_flavor(name)

    def drop_flavor(self, name: str) -> set[str]:
        self.flavors.pop(name, None)
        self._references = None
        self.snapshot.eligibility_cache.clear()
        self.snapshot.flavors.pop(name, None)
        self.snapshot.topology_cache.drop_flavor(name)
        self._topology_queues.clear()
        self._note_read(self._users_of_flavor(name))
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
        self._references = None
        users: set[str] = set()
        for flavor in self.flavors.values():
            if flavor.spec.topology_name == name:
                self._place_flavor(flavor.metadata.name)
                users |= self._users_of_flavor(flavor.metadata.name)
        self._note_read(users)
        return users

    def _check_changed(self, name: str) -> set[str]:
        self._references = None
        users = {
            queue.metadata.name
            for queue in self.cluster_queues.values()
            if queue.spec.admission_checks_strategy is not None
            and any(rule.name == name for rule in queue.spec.admission_checks_strategy.admission_checks)
        }
        self._note_read(users)
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
        self._topology_queues.clear()
        flavor = self.flavors[name]
        found = self.topologies.get(flavor.spec.topology_name or "")
        if found is not None:
            self.snapshot.topology_cache.put_flavor(topology.topology_flavor_of(flavor, found))
        elif self.snapshot.topology_cache.has_flavor(name):
            self.snapshot.topology_cache.drop_flavor(name)

    # Windows of time.

    def advance(self, now: Nanoseconds) -> bool:
        """Apply the windows that began or ended; whether a quota may have changed. The next `settle` rebuilds the
        trees of the objects that they concern."""
        changed = self.windows.advance(now)
        for owner in changed:
            if not owner.is_cohort:
                self._note_read({owner.name} & self.cluster_queues.keys())
            elif owner.name in self.cohorts:
                self._overlay_cohort(owner.name)
                self._is_reshaped = True
        return bool(changed)

    def _overlay_cohort(self, name: str) -> None:
        """Compute the quotas of a Cohort in the present windows. A Cohort whose quotas are those of its spec keeps its
        identity, so that its tree is not rebuilt."""
        spec = self.cohorts[name]
        quotas = self.windows.quotas(QuotaOwner(is_cohort=True, name=name), spec.quotas)
        if quotas is spec.quotas:
            self._cohorts_in_force.pop(name, None)
        else:
            self._cohorts_in_force[name] = replace(spec, quotas=quotas)

    def _overlaid(self, read: ResolvedQueue) -> ResolvedQueue:
        self._spec_quotas[read.spec.name] = read.spec.quotas
        quotas = self.windows.quotas(QuotaOwner(is_cohort=False, name=read.spec.name), read.spec.quotas)
        return read if quotas is read.spec.quotas else replace(read, spec=replace(read.spec, quotas=quotas))

    def spec_quotas(self, owner: QuotaOwner) -> Mapping[FlavorResource, Quota] | None:
        """Return the quotas of the spec of an object; None if it does not exist."""
        if not owner.is_cohort:
            return self._spec_quotas.get(owner.name)
        found = self.cohorts.get(owner.name)
        return found.quotas if found is not None else None

    def forest_at(self, at: Nanoseconds) -> Forest:
        """Return the trees with the quotas of an instant, as of the last `settle`."""
        windows = self.windows
        given = windows.given_at(at)
        specs_at = (
            replace(read.spec, quotas=windows.overlaid(QuotaOwner(False, name), self._spec_quotas[name], given))
            for name, read in self.read.items()
        )
        cohorts_at = {
            name: replace(spec, quotas=windows.overlaid(QuotaOwner(True, name), spec.quotas, given))
            for name, spec in self.cohorts.items()
        }
        return cohort.plan_trees(specs_at, cohorts_at)

    def trees(self) -> Iterator[CohortTree]:
        """Return every tree, as of the last `settle`."""
        return (built.tree for built in self._trees.values())

    def plan_at(self, tree: CohortTree, given: GivenQuotas) -> TreePlan:
        """Return the specs of a tree with what windows give at an instant, as of the last `settle`."""
        plan = self._trees[tree.root.is_queue, tree.root.name].plan

        def queue_at(spec: QueueSpec) -> QueueSpec:
            base = self._spec_quotas[spec.name]
            return replace(spec, quotas=self.windows.overlaid(QuotaOwner(False, spec.name), base, given))

        def cohort_at(name: str) -> CohortInfo:
            spec = self.cohorts[name]
            return replace(spec, quotas=self.windows.overlaid(QuotaOwner(True, name), spec.quotas, given))

        return replace(
            plan,
            single=queue_at(plan.single) if plan.single is not None else None,
            cohorts={name: cohort_at(name) for name in plan.cohorts},
            queues={name: tuple(map(queue_at, members)) for name, members in plan.queues.items()},
        )

    # Trees.

    def _note_read(self, names: Collection[str]) -> None:
        """Note ClusterQueues that changed, or something that they refer to."""
        self._to_read.update(names)
        if self._read_ahead:
            for name in names:
                self._read_ahead.pop(name, None)

    def prepare(self) -> Iterator[None]:
        """Do most of the work of the next `settle`, in steps of one ClusterQueue or one tree. Objects may change
        between two steps."""
        for name in sorted(self._to_read):
            if name in self._to_read and name not in self._read_ahead:
                self._read_ahead[name] = specs.queue_spec(self.cluster_queues[name], self._context())
                yield
        known = {**self.read, **self._read_ahead}
        for plan in cohort.plan_trees((read.spec for read in known.values()), self._cohorts()).trees:
            root, spec_ids = (plan.single is not None, plan.root), plan.spec_ids()
            if (built := self._trees.get(root)) is None or built.spec_ids != spec_ids:
                self._built_ahead[root] = _BuiltTree(plan, spec_ids, CohortTree.build(plan))
                yield

    def _context(self) -> QueueContext:
        if self._references is None:
            self._references = References.of(
                self.flavors.values(),
                self.topologies.values(),
                self.checks.values(),
                has_topologies=self.policy.topology,
            )
        return QueueContext(self.policy, self._references, self.checks)

    def settle(self) -> set[str]:
        """Rebuild what changed; return the ClusterQueues that were read again or are in a new tree."""
        if not self._to_read and not self._is_reshaped:
            return set()
        self.snapshot.eligibility_cache.clear()
        around, ahead = self._context(), self._read_ahead
        changed, self._to_read, self._is_reshaped = self._to_read, set(), False
        self._topology_queues.clear()
        for name in sorted(changed):
            read = ahead.get(name)
            if read is None:
                read = specs.queue_spec(self.cluster_queues[name], around)
            self.read[name] = self._overlaid(read)
        moved = self._rebuild()
        self._read_ahead, self._built_ahead = {}, {}
        return changed | moved

    def _rebuild(self) -> set[str]:
        forest = cohort.plan_trees((read.spec for read in self.read.values()), self._cohorts())
        trees: dict[tuple[bool, str], _BuiltTree] = {}
        moved: set[str] = set()
        queues: dict[str, Queue] = {}
        for plan in forest.trees:
            name = (plan.single is not None, plan.root)
            spec_ids = plan.spec_ids()
            built = self._trees.get(name)
            if built is not None and built.spec_ids == spec_ids:
                trees[name] = built
                queues.update((spec.name, self._queues_by_name[spec.name]) for spec in plan.members())
                continue
            ahead = self._built_ahead.get(name)
            tree = ahead.tree if ahead is not None and ahead.spec_ids == spec_ids else CohortTree.build(plan)
            self.tree_version += 1
            trees[name] = _BuiltTree(plan, spec_ids, tree)
            for spec in plan.members():
                before = self._queues_by_name.get(spec.name)
                queue = Queue(spec, tree.queues[spec.name], before.generation + 1 if before is not None else 1)
                queues[spec.name] = queue
                moved.add(spec.name)
                for reservation in self._held.get(spec.name, {}).values():
                    self._add_reservation(queue, reservation)
        self._trees, self._queues_by_name, self.in_cohort_cycle = trees, queues, forest.in_cohort_cycle
        self.snapshot.queues = {name: queue for name, queue in queues.items() if queue.spec.listed}
        self.snapshot.inactive = {name for name in self.read if name not in self.snapshot.queues}
        self.snapshot.settle()
        return moved

    def _cohorts(self) -> dict[str, CohortInfo]:
        return {**self.cohorts, **self._cohorts_in_force} if self._cohorts_in_force else self.cohorts

    def scopes(self) -> Iterator[Iterable[str]]:
        """Return which ClusterQueues could ever compete for the same capacity: those of one tree, and of all trees that
        place pods on nodes."""
        topology_queues: list[str] = []
        for built in self._trees.values():
            if any(map(self.uses_topology, built.tree.queues)):
                topology_queues += built.tree.queues
            else:
                yield built.tree.queues
        if topology_queues:
            yield topology_queues

    def uses_topology(self, name: str) -> bool:
        """Whether the ClusterQueue has a flavor with topology aware scheduling."""
        groups = self.read[name].spec.groups
        return any(self.snapshot.topology_cache.has_flavor(flavor) for group in groups for flavor in group.flavors)

    def topology_queues(self, flavors: frozenset[str] | None = None) -> tuple[str, ...]:
        """Return the ClusterQueues that do, of all trees, or those that have one of these flavors. Needed when node
        capacity is free again, so it is cached."""
        found = self._topology_queues.get(flavors)
        if found is None:
            found = tuple(
                name for name in self.read if self.uses_topology(name) and (flavors is None or self._has(name, flavors))
            )
            self._topology_queues[flavors] = found
        return found

    def _has(self, name: str, flavors: frozenset[str]) -> bool:
        return any(not flavors.isdisjoint(group.flavors) for group in self.read[name].spec.groups)

    def tree_queues(self, name: str) -> Iterator[str]:
        """Return the ClusterQueues of the same tree, itself included; none in a cohort cycle."""
        queue = self._queues_by_name.get(name)
        if queue is not None:
            yield from queue.node.tree.queues

    def queues_under(self, cohort_name: str) -> Iterator[str]:
        """Return the ClusterQueues of the tree that a cohort is in."""
        for built in self._trees.values():
            if built.plan.single is None and any(node.name == cohort_name for node in built.tree.nodes):
                yield from built.tree.queues

    def is_active(self, name: str) -> bool:
        """Whether heads are taken from the ClusterQueue. One that leaves the placement to another cluster, and whose
        topology does not exist here, has its head taken and refused; so, in a plan, has one in a cohort cycle, which a
        manager calls inactive."""
        read = self.read.get(name)
        return (
            read is not None and not read.is_blocked and not (self.policy.departures and name in self.in_cohort_cycle)
        )

    # Queries.

    def held(self, cluster_queue: str) -> Iterable[Reservation]:
        """Return the reservations in a ClusterQueue, whether or not it exists."""
        return self._held.get(cluster_queue, {}).values()

    def queue(self, cluster_queue: str) -> Queue | None:
        """Return the ClusterQueue in its tree, active or not."""
        return self._queues_by_name.get(cluster_queue)

    def node(self, cluster_queue: str) -> QuotaNode | None:
        """Return the ClusterQueue's node in its tree, active or not."""
        queue = self._queues_by_name.get(cluster_queue)
        return queue.node if queue is not None else None

    def cohort_node(self, cohort_name: str) -> QuotaNode | None:
        """Return a cohort's node in its tree, with or without a Cohort object."""
        return next((node for node in self.cohort_nodes() if node.name == cohort_name), None)

    def cohort_nodes(self) -> Iterator[QuotaNode]:
        """Return every cohort's node: with a Cohort object, or named only by a parentName or cohortName.
        Cohorts of a cycle are in no tree."""
        for built in self._trees.values():
            if built.plan.single is None:
                yield from (node for node in built.tree.nodes if not node.is_queue)

    # Reservations.

    def reserve(self, reservation: Reservation) -> None:
        """Count a reservation in its ClusterQueue, whether or not that exists yet."""
        self._held.setdefault(reservation.cluster_queue, {})[reservation.key] = reservation
        queue = self._queues_by_name.get(reservation.cluster_queue)
        if queue is not None:
            self._add_reservation(queue, reservation)
            self.snapshot.settle()
        if reservation.placed:
            self.snapshot.topology_cache.book(reservation.placed)

    def release(self, reservation: Reservation) -> None:
        self._held[reservation.cluster_queue].pop(reservation.key)
        queue = self._queues_by_name.get(reservation.cluster_queue)
        if queue is not None:
            queue.remove_reservation(reservation)
            self._remove_usage(queue, reservation)
            if self.usage_observer is not None:
                self.usage_observer.released(queue, reservation.key)
        if reservation.placed:
            self.snapshot.topology_cache.release(reservation.placed)
        self.note_update(reservation.cluster_queue)

    def note_update(self, cluster_queue: str) -> None:
        """Increase the generation of a ClusterQueue: a reservation in it was read again, or ended [FL24]."""
        queue = self._queues_by_name.get(cluster_queue)
        if queue is not None:
            queue.generation += 1

    def recount(self, reservation: Reservation) -> None:
        """Count a reservation again: the hidden part of its usage changed."""
        queue = self._queues_by_name.get(reservation.cluster_queue)
        if queue is not None:
            queue.remove_reservation(reservation)
            self._remove_usage(queue, reservation)
            self._add_reservation(queue, reservation)
            self.snapshot.settle()

    def _add_reservation(self, queue: Queue, reservation: Reservation) -> None:
        queue.add_reservation(reservation)
        self.snapshot.assume(queue, reservation.usage_by_number)
        if self.usage_observer is not None:
            self.usage_observer.used(queue, reservation)

    def _remove_usage(self, queue: Queue, reservation: Reservation) -> None:
        """Remove the usage of a reservation that its ClusterQueue does not list any more. Saturated usage is summed
        again from the reservations that are left ([AM2])."""
        if not quota.is_saturated(queue.node, reservation.usage_by_number):
            self.snapshot.end(queue, reservation)
            return
        tree = queue.node.tree
        tree.clear_usage()
        for name in tree.queues:
            of_tree = self._queues_by_name[name]
            for left in of_tree.reservations.values():
                self.snapshot.assume(of_tree, left.usage_by_number)
        self.snapshot.settle()

    def set_hard_end(self, reservation: Reservation, hard_end: Nanoseconds) -> None:
        """Change when the quota of a reservation is back at the latest."""
        reservation.hard_end = hard_end
        queue = self._queues_by_name.get(reservation.cluster_queue)
        if queue is not None and self.usage_observer is not None:
            self.usage_observer.used(queue, reservation)
