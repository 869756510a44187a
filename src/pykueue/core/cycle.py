"""The algorithm on one page: heads in, decisions out (§5).

    nominate    each head alone, against the same picture: flavors, victims, a place on the nodes
    order       who is processed first
    process     one by one on a picture that fills up: admit, preempt, defer, reserve, or skip

Nothing is remembered here. What heads there are and what becomes of them afterwards is the business of `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pykueue.api.meta import Nanoseconds
from pykueue.core import amounts, order, preemption, quota, topology
from pykueue.core.assignment import Assignment, Mode, assigned_of
from pykueue.core.decision import (
    Admit,
    Decision,
    Evict,
    Kind,
    Preempt,
    Reason,
    Requeue,
    Retry,
    Victim,
    Wait,
)
from pykueue.core.flavors import Assigner, scaled, take_places
from pykueue.core.policy import Policy
from pykueue.core.preemption import Search, Target
from pykueue.core.queue import FlavorResource
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import PlacedPods
from pykueue.core.workload import AssignedPodSet, Reservation, ScanMemory, Workload


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a head is not even nominated (§5.2)."""

    reason: Reason
    message: str
    requeue: Requeue = Requeue.GENERIC


@dataclass(frozen=True, slots=True)
class Head:
    """A Workload that the cycle is to decide. `refusal` is what is known against it beforehand (namespace, limits)."""

    workload: Workload
    is_preemptor: bool = False
    refusal: Refusal | None = None


class _Fits(Enum):
    YES = auto()
    NO_QUOTA = auto()
    NO_PLACE = auto()


@dataclass(slots=True)
class Entry:
    """A head after nomination."""

    head: Head
    queue: Queue
    assignment: Assignment
    targets: list[Target]
    decision: Decision | None = None
    placed: tuple[PlacedPods, ...] = ()
    keeps_memory: bool = True  # of where the search for flavors stopped

    @property
    def workload(self) -> Workload:
        return self.head.workload

    @property
    def is_preemptor(self) -> bool:
        return self.head.is_preemptor

    @property
    def level(self) -> int:
        return self.assignment.level

    def quota_usage(self) -> Mapping[int, int]:
        """[CY2] A reservation counts already."""
        return {} if self.workload.reservation is not None else self.assignment.usage


def run(snapshot: Snapshot, heads: Iterable[Head], policy: Policy, now: Nanoseconds, cycle: int = 0) -> list[Decision]:
    """Decide every head. The picture is afterwards as it was; carrying out the decisions is somebody else's work."""
    return Cycle(snapshot, policy, now, cycle).run(heads)


class Cycle:
    def __init__(self, snapshot: Snapshot, policy: Policy, now: Nanoseconds, number: int) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = now
        self.number = number
        self.issued: dict[str, Reservation] = {}  # victims of this cycle so far
        self.vanished: dict[str, Reservation] = {}  # those that are to be preempted later, by somebody of this cycle
        self.claims: list[tuple[Queue, Mapping[int, int], tuple[PlacedPods, ...]]] = []  # of entries that have to wait

    def run(self, heads: Iterable[Head]) -> list[Decision]:
        mark = self.snapshot.mark()
        refused: list[Decision] = []
        entries: list[Entry] = []
        for head in heads:
            refusal = self._refusal(head)
            if refusal is not None:
                refused.append(self._refuse(head, refusal))
                continue
            queue = self.snapshot.queues[head.workload.cluster_queue]
            assignment, targets = self._nominate(head.workload, queue)
            entries.append(Entry(head, queue, assignment, targets))
        for entry in self._in_order(entries):
            entry.decision = self._process(entry)
        for entry in entries:
            entry.workload.memory = entry.assignment.memory if entry.keeps_memory else None
        self.snapshot.undo(mark)
        return [entry.decision or self._left_out(entry) for entry in entries] + refused

    def _in_order(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        if self.policy.is_fair:
            return order.tournament(entries, self.policy, self.snapshot)
        return iter(order.classical(entries, self.policy))

    # Nomination.

    def _refusal(self, head: Head) -> Refusal | None:
        workload = head.workload
        if workload.details.has_failed_checks:
            return Refusal(Reason.PENDING_EVALUATION, "the Workload has failed admission checks")
        name = workload.cluster_queue
        if name in self.snapshot.inactive:
            return Refusal(Reason.SUSPENDED, f"ClusterQueue {name} is inactive")
        if name not in self.snapshot.queues:
            return Refusal(Reason.MISCONFIGURED, f"ClusterQueue {name} does not exist")
        return head.refusal

    def _nominate(
        self, workload: Workload, queue: Queue, pinned: Mapping[str, Mapping[str, str]] | None = None
    ) -> tuple[Assignment, list[Target]]:
        """§5.3 The best assignment, with the victims that make it possible."""
        if workload.memory is not None and self._is_outdated(workload.memory, workload, queue):
            workload.memory = None
        replaced = self._replaced(workload, queue)
        assigner = Assigner(
            snapshot=self.snapshot,
            policy=self.policy,
            workload=workload,
            queue=queue,
            simulate=self._simulation(workload, queue),
            cycle=self.number,
            replaced=replaced,
            pinned=pinned,
        )
        assignment, targets = self._assign(assigner)
        self._reserve_places(assigner, assignment, targets)
        return assignment, targets

    def _assign(self, assigner: Assigner) -> tuple[Assignment, list[Target]]:
        """Whole if possible, then partly, else whole without victims."""
        old = [Target(assigner.replaced, None)] if assigner.replaced is not None else []
        full = assigner.assign()
        if full.mode is Mode.FIT:
            return full, old
        victims = self._victims(assigner, full)
        if victims:
            return full, old + victims
        if self.policy.partial_admission and any(p.can_shrink for p in assigner.workload.shape.pod_sets):
            partial = self._assign_partly(assigner)
            if partial is not None:
                return partial[0], old + partial[1]
        return full, []

    def _assign_partly(self, assigner: Assigner) -> tuple[Assignment, list[Target]] | None:
        """§4.10 The largest counts that fit or find victims, by bisection over how much is cut."""
        pod_sets = assigner.workload.shape.pod_sets
        cuts = [p.spec_count - (p.spec_count if p.min_count is None else p.min_count) for p in pod_sets]
        deepest = sum(cuts)
        if deepest <= 0:
            return None
        best: tuple[Assignment, list[Target]] | None = None
        low, high = 0, deepest + 1
        while low < high:
            step = (low + high) // 2
            counts = [p.spec_count - cut * step // deepest for p, cut in zip(pod_sets, cuts, strict=True)]
            assignment = assigner.assign(counts)
            victims = self._victims(assigner, assignment)
            if assignment.mode is Mode.FIT or victims:
                best, high = (assignment, victims), step
            else:
                low = step + 1
        return best if low <= deepest else None

    def _victims(self, assigner: Assigner, assignment: Assignment) -> list[Target]:
        if assignment.mode is not Mode.PREEMPT:
            return []
        placements = assigner.placement_requests(assignment) if self.policy.topology else ()
        return preemption.find(
            Search(
                snapshot=self.snapshot,
                policy=self.policy,
                now=self.now,
                workload=assigner.workload,
                queue=assigner.queue,
                contested=assignment.contested,
                requests=_requested(assigner.workload, assignment, with_pods=self.policy.departures),
                placements=placements,
            )
        )

    def _simulation(self, workload: Workload, queue: Queue) -> Callable[[int, int], tuple[Kind, int]]:
        """[FL15] What preemption could do for one flavor-resource alone, without topology."""

        def simulate(number: int, amount: int) -> tuple[Kind, int]:
            targets = preemption.find(
                Search(
                    snapshot=self.snapshot,
                    policy=self.policy,
                    now=self.now,
                    workload=workload,
                    queue=queue,
                    contested=frozenset((number,)),
                    requests={number: amount},
                )
            )
            if not targets:
                return Kind.NO_CANDIDATES, quota.level(queue.node, number, amount)[0]
            mark = self.snapshot.mark()
            for target in targets:
                self.snapshot.remove(target.reservation)
            level, _ = quota.level(queue.node, number, amount)
            self.snapshot.undo(mark)
            is_own = any(target.reservation.cluster_queue == queue.name for target in targets)
            return (Kind.PREEMPT if is_own else Kind.RECLAIM), level

        return simulate

    def _is_outdated(self, memory: ScanMemory, workload: Workload, queue: Queue) -> bool:
        """[FL23]"""
        if self.policy.preserve_scan_progress:
            if memory.shape is not None and memory.shape is not workload.shape:
                return True
            if self.number - memory.cycle <= 1:
                return False
        return queue.generation > memory.queue_generation

    def _replaced(self, workload: Workload, queue: Queue) -> Reservation | None:
        """[FL28] The elastic slice that the Workload takes over from, if it still holds quota in the same queue."""
        key = workload.details.replaces
        if not self.policy.elastic_slices or not key or key in self.snapshot.gone:
            return None
        old = queue.reservations.get(key)
        return old if old is not None and old.namespace == workload.namespace else None

    def _reserve_places(self, assigner: Assigner, assignment: Assignment, targets: Sequence[Target]) -> None:
        """§5.3(5) Where it would go once its victims are gone, or in an emptied cluster, so that nobody of lower rank
        takes that room in the meantime."""
        workload, queue = assigner.workload, assigner.queue
        if not self.policy.topology or assignment.mode is not Mode.PREEMPT:
            return
        if not (workload.shape.wants_topology or queue.spec.is_topology_only) or _has_lost_node(workload):
            return
        requests = assigner.placement_requests(assignment)
        if not requests:
            return
        if targets:
            mark = self.snapshot.mark()
            for target in targets:
                self.snapshot.remove(target.reservation)
            outcome = topology.place(self.snapshot.fleet, requests)
            self.snapshot.undo(mark)
        else:
            outcome = topology.place(self.snapshot.fleet, requests, emptied=True)
        take_places(assignment, outcome)

    # Processing.

    def _process(self, entry: Entry) -> Decision:
        """§5.6, step by step."""
        workload, details = entry.workload, entry.workload.details
        if self._has_better_sibling(entry):
            return self._skip(entry, "a more favorable variant is admitted already", Reason.PENDING_EVALUATION)
        fits = self._refresh(entry)
        mode = entry.assignment.mode
        if self.policy.node_replacement_fail_fast and _has_lost_node(workload) and mode is not Mode.FIT:
            return Evict(workload=workload.key, cluster_queue=entry.queue.name, nodes=workload.details.unhealthy_nodes)
        if mode is Mode.NO_FIT:
            return self._wait(entry, entry.assignment.reason or Reason.NO_MATCHING_FLAVOR, Requeue.NO_FIT)
        if mode is Mode.PREEMPT:
            if not entry.targets:
                self._reserve_claim(entry)
                return self._wait(entry, Reason.WAITING_FOR_QUOTA, Requeue.PREEMPTION_NO_CANDIDATES)
            if (self.policy.concurrent_admission or self.policy.orchestrated_preemption) and details.has_closed_gate:
                entry.keeps_memory = False
                return self._wait(
                    entry, Reason.ADMISSION_GATED, Requeue.PREEMPTION_GATED, "needs preemption, and its gate is closed"
                )
        if mode is Mode.DEFERRED_FIT:
            entry.keeps_memory = False
            self._claim(entry, entry.quota_usage())
            return self._wait(
                entry,
                Reason.WAITING_FOR_PREEMPTED_WORKLOADS,
                Requeue.PENDING_PREEMPTION,
                "will fit once the victims of other Workloads are gone",
            )
        if any(t.reservation.key in self.issued or t.reservation.key in self.vanished for t in entry.targets):
            return self._skip(entry, "its victims are those of another Workload")
        if fits is not _Fits.YES:
            return self._skip(entry, "no longer fits after another Workload was processed")
        must_fit_now = mode is Mode.FIT and bool(self.issued) and self.policy.departures
        if must_fit_now and self._fits_beside_victims(entry) is not _Fits.YES:
            return self._skip(entry, "its room is still held by Workloads that are about to be preempted")
        victims = tuple(
            Victim(target.reservation.key, target.reservation.cluster_queue, target.reason, target.reservation.evicted)
            for target in entry.targets
            if target.reason is not None
        )
        if mode is Mode.PREEMPT and self._may_wait_with_victims(entry):
            self._hide(entry)
            self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
            return self._admit(entry, assumes=victims)
        for target in entry.targets:
            self.issued[target.reservation.key] = target.reservation
        if mode is Mode.PREEMPT:
            entry.keeps_memory = False
            self._claim(entry, entry.quota_usage())
            return self._preempt(entry, victims)
        self.snapshot.assume(entry.queue, entry.quota_usage().items(), entry.placed)
        sibling = self._worse_sibling(entry)
        if sibling is not None:
            return self._migrate(entry, sibling)
        return self._admit(entry)

    def _refresh(self, entry: Entry) -> _Fits:
        """§5.7 Assign anew where earlier entries took the victims or the place; whether it fits then."""
        is_shared = any(target.reservation.key in self.issued for target in entry.targets)
        overlaps = is_shared or any(target.reservation.key in self.vanished for target in entry.targets)
        fits = self._fits(entry)
        if overlaps and self.policy.recompute_on_overlap:
            mark = self.snapshot.mark()
            before = self.snapshot.gone
            for victim in self.issued.values():
                self.snapshot.remove(victim)
            self.snapshot.gone = frozenset((*self.issued, *self.vanished))
            self._assign_anew(entry)
            self.snapshot.gone = before
            self.snapshot.undo(mark)
            if is_shared and entry.assignment.mode is Mode.FIT:
                entry.assignment.set_mode(Mode.DEFERRED_FIT)
        elif fits is _Fits.NO_PLACE and self.policy.recompute_placement:
            self._assign_anew(entry)
        else:
            return fits
        return self._fits(entry)

    def _assign_anew(self, entry: Entry) -> None:
        """[CY6] From the first flavor, but never to another flavor than the one nominated."""
        entry.workload.memory = None
        pinned = entry.assignment.pinned()
        entry.assignment, entry.targets = self._nominate(entry.workload, entry.queue, pinned or None)

    def _fits(self, entry: Entry) -> _Fits:
        """[CY1] With the victims issued so far, and its own, gone."""
        entry.placed = entry.assignment.placed(entry.queue, entry.workload.reservation, self.snapshot.fleet)
        gone = dict(self.issued)
        gone.update((target.reservation.key, target.reservation) for target in entry.targets)
        mark = self.snapshot.mark()
        own = entry.queue.node.tree
        for reservation in gone.values():
            # Victims in other trees free no quota here, only room on nodes.
            if reservation.placed or self.snapshot.queues[reservation.cluster_queue].node.tree is own:
                self.snapshot.remove(reservation)
        fits = self._has_room(entry)
        self.snapshot.undo(mark)
        return fits

    def _fits_beside_victims(self, entry: Entry) -> _Fits:
        """W2: whoever is admitted at once must have room while the victims of others still run. What those others are
        to get does not count: they wait."""
        mark = self.snapshot.mark()
        for queue, usage, placed in self.claims:
            self.snapshot.withdraw(queue, usage.items(), placed)
        for target in entry.targets:
            self.snapshot.remove(target.reservation)
        fits = self._has_room(entry)
        self.snapshot.undo(mark)
        return fits

    def _has_room(self, entry: Entry) -> _Fits:
        """Whether the entry fits on the picture as it stands."""
        if any(amount > quota.available(entry.queue.node, n) for n, amount in entry.quota_usage().items()):
            return _Fits.NO_QUOTA
        if entry.placed and not self.snapshot.fleet.fits(entry.placed):
            return _Fits.NO_PLACE
        return _Fits.YES

    def _reserve_claim(self, entry: Entry) -> None:
        """[CY8] A queue that cannot count on reclaiming keeps others off what its head is waiting for."""
        spec, node = entry.queue.spec, entry.queue.node
        if spec.preemption.can_always_reclaim and not (self.policy.prioritize_preemptors and entry.is_preemptor):
            return
        claim = {}
        for number, amount in entry.quota_usage().items():
            used, nominal = node.usage[number], node.subtree[number]
            if entry.level == 0:
                claim[number] = max(0, min(amount, amounts.subtract(nominal, used)))
            elif node.borrowing_limit[number] == amounts.UNLIMITED:
                claim[number] = amount
            else:
                limit = amounts.add(nominal, node.borrowing_limit[number])
                claim[number] = min(amount, amounts.subtract(limit, used))
                if self.policy.departures:
                    claim[number] = max(0, claim[number])  # W16
        self._claim(entry, claim)

    def _claim(self, entry: Entry, usage: Mapping[int, int]) -> None:
        """Room that the entry is to get, kept from everybody behind it for the rest of the cycle."""
        self.claims.append((entry.queue, usage, entry.placed))
        self.snapshot.assume(entry.queue, usage.items(), entry.placed)

    # Variants of one Workload (ConcurrentAdmission).

    def _has_better_sibling(self, entry: Entry) -> bool:
        return self._sibling(entry, lambda theirs, mine: theirs < mine) is not None

    def _worse_sibling(self, entry: Entry) -> Reservation | None:
        return self._sibling(entry, lambda theirs, mine: theirs > mine)

    def _sibling(self, entry: Entry, stands: Callable[[int, int], bool]) -> Reservation | None:
        """An admitted variant of the same parent whose flavor stands so to this one's in the queue's order."""
        details = entry.workload.details
        if not self.policy.concurrent_admission or not details.parent_uid or not entry.queue.spec.groups:
            return None
        flavors = entry.queue.spec.groups[0].flavors
        if details.variant_flavor not in flavors:
            return None
        mine = flavors.index(details.variant_flavor)
        for other in sorted(entry.queue.reservations.values(), key=lambda reservation: reservation.key):
            if (
                other.uid != entry.workload.uid
                and other.parent_uid == details.parent_uid
                and other.admitted
                and other.variant_flavor in flavors
                and stands(flavors.index(other.variant_flavor), mine)
            ):
                return other
        return None

    def _migrate(self, entry: Entry, sibling: Reservation) -> Decision:
        workload, spec = entry.workload, entry.queue.spec
        flavors = spec.groups[0].flavors
        last = spec.last_acceptable_flavor
        if last is not None and flavors.index(workload.details.variant_flavor) > flavors.index(last):
            return self._wait(
                entry, Reason.PENDING_EVALUATION, Requeue.GENERIC, "its flavor is below the last acceptable one"
            )
        entry.keeps_memory = False
        return Preempt(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(Reason.WAITING_FOR_PREEMPTED_WORKLOADS),
            migrates=sibling.key,
        )

    # Decisions.

    # Preemptions that are put off until checks have passed (KEP-993).

    def _may_wait_with_victims(self, entry: Entry) -> bool:
        """Whether some check that its flavors require asks for preemptions to wait, and none asks for them now."""
        deferring = entry.queue.spec.deferring_checks
        if not deferring or entry.workload.reservation is not None:
            return False
        required = required_checks(entry.queue, entry.assignment.recorded()) & deferring
        states = {check.name: check for check in entry.workload.details.checks}
        is_asked = any(check.state == "PreemptionRequired" for check in states.values())
        return not is_asked and any(name not in states or states[name].state != "Ready" for name in required)

    def _hide(self, entry: Entry) -> None:
        """From now on the victims and their successor count together, as the larger of the two; and nobody else in this
        cycle may have them."""
        for target in entry.targets:
            self.vanished[target.reservation.key] = target.reservation
        hidden = hide(entry.queue, entry.quota_usage(), [target.reservation for target in entry.targets])
        for reservation, amounts_hidden in hidden:
            queue = self.snapshot.queues[reservation.cluster_queue]
            number = queue.node.tree.number
            self.snapshot.withdraw(
                queue, [(number(pair.flavor, pair.resource), amount) for pair, amount in amounts_hidden.items()]
            )

    def _admit(self, entry: Entry, assumes: tuple[Victim, ...] = ()) -> Admit:
        workload, assignment = entry.workload, entry.assignment
        pod_sets = assignment.recorded()
        old = next((target.reservation for target in entry.targets if target.reason is None), None)
        return Admit(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=assignment.explanation(),
            pod_sets=pod_sets,
            placed=assignment.placed(entry.queue, None, self.snapshot.fleet),
            is_admitted=not assumes and is_admitted(workload, entry.queue, pod_sets),
            was_admitted=workload.reservation is not None and workload.reservation.admitted,
            is_second_pass=workload.reservation is not None,
            repairs_node=bool(workload.details.unhealthy_nodes) and workload.reservation is not None,
            replaces=old.key if old is not None else "",
            borrowing_level=assignment.level,
            assumes=assumes,
        )

    def _preempt(self, entry: Entry, victims: tuple[Victim, ...]) -> Decision:
        workload = entry.workload
        if workload.reservation is not None:
            return Retry(
                workload=workload.key,
                cluster_queue=entry.queue.name,
                explanation=entry.assignment.explanation(),
                victims=victims,
                message="waits for its victims to go",
            )
        return Preempt(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(Reason.WAITING_FOR_PREEMPTED_WORKLOADS),
            victims=victims,
        )

    def _skip(self, entry: Entry, message: str, reason: Reason = Reason.WAITING_FOR_QUOTA) -> Decision:
        """[CY3] Straight back into the queue; the scan goes on where it was, unless that is switched off."""
        if not self.policy.preserve_scan_progress:
            entry.keeps_memory = False
        return self._wait(entry, reason, Requeue.FAILED_AFTER_NOMINATION, message)

    def _wait(self, entry: Entry, reason: Reason, requeue: Requeue, message: str = "") -> Decision:
        workload = entry.workload
        if workload.reservation is not None:
            return Retry(
                workload=workload.key,
                cluster_queue=entry.queue.name,
                explanation=entry.assignment.explanation(),
                message=message,
            )
        return Wait(
            workload=workload.key,
            cluster_queue=entry.queue.name,
            explanation=entry.assignment.explanation(),
            reason=self._told(reason),
            requeue=requeue,
            message=message,
        )

    def _refuse(self, head: Head, refusal: Refusal) -> Decision:
        workload = head.workload
        if workload.reservation is not None:
            return Retry(workload=workload.key, cluster_queue=workload.cluster_queue, message=refusal.message)
        return Wait(
            workload=workload.key,
            cluster_queue=workload.cluster_queue,
            reason=self._told(refusal.reason),
            requeue=refusal.requeue,
            message=refusal.message,
        )

    def _left_out(self, entry: Entry) -> Decision:
        """An entry that the order never came to: fair sharing takes one of each queue."""
        return self._wait(entry, Reason.PENDING_EVALUATION, Requeue.GENERIC, "another entry of the queue went first")

    def _told(self, reason: Reason) -> Reason:
        return reason if self.policy.precise_reasons else Reason.PENDING


def is_admitted(workload: Workload, queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> bool:
    """§10.2 Whether nothing is left to wait for: every check that its flavors require is listed, every check listed is
    Ready, and no placement is outstanding."""
    return (
        required_checks(queue, pod_sets) <= {check.name for check in workload.details.checks}
        and workload.details.all_checks_ready
        and not any(pod_set.delayed == "Pending" and pod_set.placement is None for pod_set in pod_sets)
    )


def required_checks(queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> frozenset[str]:
    """The checks of the queue that apply to any of the flavors assigned."""
    flavors = {flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()}
    return frozenset(check for check, applies_to in queue.spec.checks.items() if not flavors.isdisjoint(applies_to))


def hide(
    queue: Queue, usage: Mapping[int, int], victims: Sequence[Reservation]
) -> list[tuple[Reservation, dict[FlavorResource, int]]]:
    """What of the victims' usage counts as that of their successor: as much of it as the successor will take itself."""
    pairs = queue.node.tree.pairs
    rest = {pairs[number]: amount for number, amount in usage.items()}
    hidden = []
    for victim in victims:
        mine: dict[FlavorResource, int] = {}
        for pair, amount in victim.usage:
            part = min(rest.get(pair, 0), victim.counted(pair, amount))
            if part > 0:
                rest[pair] -= part
                mine[pair] = part
        hidden.append((victim, mine))
    return hidden


def _requested(workload: Workload, assignment: Assignment, *, with_pods: bool) -> dict[int, int]:
    """What victims have to make room for: the Workload's own totals at the counts assigned, and its pods where the
    queue counts pods (W1). Of an elastic slice only what it has more than the one it replaces."""
    total: dict[int, int] = {}
    for choice in assignment.pod_sets:
        assigned = assigned_of(workload, choice.pod_set)
        requests, count = (
            (assigned.requests, assigned.count)
            if assigned is not None
            else (choice.pod_set.requests, choice.pod_set.count)
        )
        wanted = choice.count
        if assignment.replaced is not None:
            old = next((a for a in assignment.replaced.pod_sets if a.name == choice.name), None)
            wanted = count - (old.count if old is not None else 0)
        if assigned is None or assigned.placement is None:
            requests, _ = scaled(requests, count, wanted)
        if with_pods and assigned is None and amounts.PODS in choice.flavors:
            requests = (*requests, (amounts.PODS, wanted))
        for resource, amount in requests:
            chosen = choice.flavors.get(resource)
            if amount != 0 and chosen is not None:
                total[chosen.number] = amounts.add(total.get(chosen.number, 0), amount)
    return total


def _has_lost_node(workload: Workload) -> bool:
    """Whether an admitted Workload has pods placed on a node that is unhealthy."""
    reservation = workload.reservation
    if reservation is None or not reservation.admitted or not workload.details.unhealthy_nodes:
        return False
    lost = set(workload.details.unhealthy_nodes)
    return any(
        domain.values[-1] in lost
        for assigned in reservation.pod_sets
        if assigned.placement is not None
        for domain in assigned.placement.domains
    )
