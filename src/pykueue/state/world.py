"""The memory: what the API said, as the brain sees it, kept up by differences.

`put` and `drop` take watched objects in any order; `decide` runs one cycle and writes its outcome into the memory:
heads go back to their queues, reservations are assumed. What shapes trees is only noted; the next question builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pykueue.api import kube, kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.meta import SECOND, Nanoseconds
from pykueue.core import cycle, deferral, requests, topology
from pykueue.core.cycle import Head, Refusal
from pykueue.core.decision import (
    Admit,
    Decision,
    Evict,
    Preempt,
    Requeue,
    Retry,
    Victim,
    Wait,
)
from pykueue.core.policy import Policy
from pykueue.core.recheck import Holds, HoldsAfter, Lost, recheck
from pykueue.core.requests import Exclusion
from pykueue.core.snapshot import Snapshot
from pykueue.core.topology import Fleet, Profile
from pykueue.core.workload import Reservation, Workload
from pykueue.lifecycle import states
from pykueue.state import booking, reading
from pykueue.state.booking import Ledger, Reading
from pykueue.state.history import UsageLedger
from pykueue.state.queues import PendingQueue
from pykueue.state.reading import Rules, Shapes
from pykueue.state.structure import Structure
from pykueue.state.waking import District, Waking

_LONGEST_PAUSE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class _LocalQueue:
    cluster_queue: str
    is_stopped: bool


class World:
    """One owner, no I/O, no clock of its own."""

    def __init__(
        self,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        *,
        accounting: requests.Accounting = requests.PLAIN,
        profile: Profile | None = None,
    ) -> None:
        self.policy = policy
        self.snapshot = Snapshot(Fleet() if profile is None else Fleet(profile))
        self.structure = Structure(policy, self.snapshot)
        self.waking = Waking()
        self.queues: dict[str, PendingQueue] = {}
        self.reservations: dict[str, Reservation] = {}
        self.second_pass: dict[str, Workload] = {}
        self.usage_history = UsageLedger(policy.usage_history) if policy.usage_history is not None else None
        self.ledger = Ledger()  # reservations whose writing is under way; the writer tells it what came of it
        self.cycles = 0
        # OnlyDeclared looks at no list of exclusions, neither the global one nor a queue's own (KEP-7513).
        self._accounting = replace(accounting, prefixes=()) if policy.ignore_undeclared else accounting
        self._queue_exclusions = policy.queue_exclusions and not policy.ignore_undeclared
        self._local_queues: dict[str, _LocalQueue] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._limit_ranges: dict[str, dict[str, kube.LimitRange]] = {}
        self._runtime_classes: dict[str, kube.RuntimeClass] = {}
        self._rules: dict[tuple[str, tuple[str, ...]], Rules] = {}  # by namespace and the queue's own exclusions
        self._shapes = Shapes()
        self._waiting: dict[str, dict[str, Workload]] = {}  # LocalQueue -> pending Workloads, in a queue or not
        self._local_queue_of: dict[str, str] = {}
        self._outside: dict[str, dict[str, Mapping[str, int]]] = {}  # node -> pod -> what it uses
        self._node_of_pod: dict[str, str] = {}
        self._to_release: set[str] = set()
        # Reservations one of whose assumed victims has gone; whoever waited with them looks again.
        self.unblocked: set[str] = set()
        # Pending Workloads whose requests may read differently now; whoever has the objects puts them again.
        self.outdated: set[str] = set()
        self._revisions: dict[str, str] = {}
        self._tries: dict[str, int] = {}  # second passes that did not work

    # Objects.

    def put(self, thing: object, now: Nanoseconds = 0) -> None:
        """A watched object appeared or changed. A kind that does not matter here is ignored."""
        handler = _PUT.get(type(thing))
        if handler is not None:
            handler(self, thing, now)

    def drop(self, thing: object, now: Nanoseconds = 0) -> None:
        """A watched object is gone; its last known state."""
        handler = _DROP.get(type(thing))
        if handler is not None:
            handler(self, thing, now)

    def _put_cluster_queue(self, cluster_queue: kueue.ClusterQueue, now: Nanoseconds) -> None:
        name = cluster_queue.metadata.name
        before = self.structure.cluster_queues.get(name)
        if not self.structure.put_cluster_queue(cluster_queue):
            return
        excludes = before.spec.exclude_resource_prefixes if before is not None else ()
        if self._queue_exclusions and cluster_queue.spec.exclude_resource_prefixes != excludes:
            for local_queue, facts in self._local_queues.items():
                if facts.cluster_queue == name:
                    self.outdated.update(self._waiting.get(local_queue, {}))
        if name not in self.queues:
            self.queues[name] = PendingQueue(name)
            for local_queue, facts in self._local_queues.items():
                if facts.cluster_queue == name:
                    self._enqueue_all(local_queue, now)
        self._to_release.add(name)

    def _drop_cluster_queue(self, cluster_queue: kueue.ClusterQueue, now: Nanoseconds) -> None:
        name = cluster_queue.metadata.name
        self._to_release.update(self.structure.companions(name))
        self.structure.drop_cluster_queue(name)
        self.queues.pop(name, None)

    def _put_cohort(self, cohort: kueue.Cohort, now: Nanoseconds) -> None:
        if self.structure.put_cohort(reading.cohort_spec(cohort)):
            self._regrow()
            self._to_release.update(self.structure.queues_under(cohort.metadata.name))

    def _drop_cohort(self, cohort: kueue.Cohort, now: Nanoseconds) -> None:
        """Its quota and its place in the tree vanish at once; whoever was under it, or beside it, may fit now (W13)."""
        self._to_release.update(self.structure.queues_under(cohort.metadata.name))
        self.structure.drop_cohort(cohort.metadata.name)

    def _put_flavor(self, flavor: kueue.ResourceFlavor, now: Nanoseconds) -> None:
        self._to_release |= self.structure.put_flavor(flavor)

    def _drop_flavor(self, flavor: kueue.ResourceFlavor, now: Nanoseconds) -> None:
        self._to_release |= self.structure.drop_flavor(flavor.metadata.name)

    def _put_topology(self, found: kueue.Topology, now: Nanoseconds) -> None:
        self._to_release |= self.structure.put_topology(found)

    def _drop_topology(self, found: kueue.Topology, now: Nanoseconds) -> None:
        self.structure.drop_topology(found.metadata.name)

    def _put_check(self, check: kueue.AdmissionCheck, now: Nanoseconds) -> None:
        self._to_release |= self.structure.put_check(check)

    def _drop_check(self, check: kueue.AdmissionCheck, now: Nanoseconds) -> None:
        self.structure.drop_check(check.metadata.name)

    def _put_local_queue(self, local_queue: kueue.LocalQueue, now: Nanoseconds) -> None:
        key = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}"
        spec = local_queue.spec
        facts = _LocalQueue(spec.cluster_queue or "", spec.stop_policy != kueue.StopPolicy.NONE)
        before = self._local_queues.get(key)
        self._local_queues[key] = facts
        if self.usage_history is not None:
            self._account(local_queue, key, now)
            self.waking.stir(facts.cluster_queue)
        if before == facts:
            return
        if before is not None:
            self._withdraw_all(key, before)
        for workload in self._waiting.get(key, {}).values():
            workload.cluster_queue, workload.memory = facts.cluster_queue, None
        self._enqueue_all(key, now)

    def _drop_local_queue(self, local_queue: kueue.LocalQueue, now: Nanoseconds) -> None:
        key = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}"
        facts = self._local_queues.pop(key, None)
        if facts is not None:
            self._withdraw_all(key, facts)
        if self.usage_history is not None:
            self.usage_history.close(key)

    def _account(self, local_queue: kueue.LocalQueue, key: str, now: Nanoseconds) -> None:
        assert self.usage_history is not None
        self.usage_history.weights[key] = reading.weight(local_queue.spec.fair_sharing)
        status = local_queue.status.fair_sharing
        usage = status.admission_fair_sharing_status if status is not None else None
        if usage is not None:
            read = {name: reading.quantity_of(amount) for name, amount in usage.consumed_resources.items()}
            consumed = {name: amount for name, amount in read.items() if amount is not None}
            self.usage_history.seed(key, consumed, reading.time_of(usage.last_update) or now)

    def _put_namespace(self, namespace: kube.Namespace, now: Nanoseconds) -> None:
        name, labels = namespace.metadata.name, namespace.metadata.labels
        before = self._namespaces.get(name)
        self._namespaces[name] = labels
        if before != labels:
            for queue, selector in self.structure.selectors.items():
                if selector.matches(labels) and (before is None or not selector.matches(before)):
                    self._to_release.add(queue)
            self._stir_queues_of(name)

    def _drop_namespace(self, namespace: kube.Namespace, now: Nanoseconds) -> None:
        self._namespaces.pop(namespace.metadata.name, None)
        self._stir_queues_of(namespace.metadata.name)

    def _stir_queues_of(self, namespace: str) -> None:
        """Where Workloads of the namespace wait, they may be refused now, or not any more."""
        for local_queue in self._waiting:
            if local_queue.startswith(f"{namespace}/"):
                self.waking.stir(self._cluster_queue_of(local_queue))

    def _put_limit_range(self, limit_range: kube.LimitRange, now: Nanoseconds) -> None:
        self._limit_ranges.setdefault(limit_range.metadata.namespace, {})[limit_range.metadata.name] = limit_range
        self._forget_rules(limit_range.metadata.namespace)

    def _drop_limit_range(self, limit_range: kube.LimitRange, now: Nanoseconds) -> None:
        self._limit_ranges.get(limit_range.metadata.namespace, {}).pop(limit_range.metadata.name, None)
        self._forget_rules(limit_range.metadata.namespace)

    def _put_runtime_class(self, runtime_class: kube.RuntimeClass, now: Nanoseconds) -> None:
        self._runtime_classes[runtime_class.metadata.name] = runtime_class
        self._forget_rules()

    def _drop_runtime_class(self, runtime_class: kube.RuntimeClass, now: Nanoseconds) -> None:
        self._runtime_classes.pop(runtime_class.metadata.name, None)
        self._forget_rules()

    def _forget_rules(self, namespace: str | None = None) -> None:
        """What Workloads ask for may read differently now, in one namespace or in all."""
        self._rules.clear()
        self._shapes.forget()
        self.outdated.update(
            key for key in self._local_queue_of if namespace is None or key.startswith(f"{namespace}/")
        )

    def _put_node(self, node: kube.Node, now: Nanoseconds) -> None:
        if not self.policy.topology:
            return
        read = topology.node_of(node)
        if read is None:
            self._drop_node(node, now)
        elif self.snapshot.fleet.put_node(read):
            self._release_on_nodes()

    def _drop_node(self, node: kube.Node, now: Nanoseconds) -> None:
        """Pods that were to go there may fit elsewhere now."""
        if self.snapshot.fleet.drop_node(node.metadata.name):
            self._release_on_nodes()

    def _release_on_nodes(self) -> None:
        self._to_release.update(filter(self.structure.places_pods, self.structure.read))

    def _put_pod(self, pod: kube.Pod, now: Nanoseconds) -> None:
        """A pod that no placement accounts for takes room on its node all the same."""
        if not self.policy.topology:
            return
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        node = pod.spec.node_name
        uses = reading.pod_usage(pod) if topology.counts_outside(pod) else None
        if uses is not None and self._outside.get(node, {}).get(key) == uses:
            return
        self._drop_pod(pod, now)
        if uses is not None:
            self._node_of_pod[key] = node
            self._outside.setdefault(node, {})[key] = uses
            self._tell_outside_usage(node)

    def _drop_pod(self, pod: kube.Pod, now: Nanoseconds) -> None:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        node = self._node_of_pod.pop(key, None)
        if node is not None:
            del self._outside[node][key]
            self._tell_outside_usage(node)
            self._release_on_nodes()

    def _tell_outside_usage(self, node: str) -> None:
        total: dict[str, int] = {}
        for used in self._outside[node].values():
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        self.snapshot.fleet.put_outside_usage(node, total)
        for name in filter(self.structure.places_pods, self.structure.read):
            self.waking.stir(name)

    # Workloads.

    def _put_workload(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key = states.key(workload)
        if booking.is_older(workload.metadata.resource_version, self._revisions.get(key, "")):
            return  # a watch that is behind what was read past it must not give back what that read has shown
        self.outdated.discard(key)
        self._revisions[key] = workload.metadata.resource_version
        holds_quota = reading.holds_quota(workload)
        if key in self.ledger:
            is_over = states.is_finished(workload) or not states.is_active(workload)
            if is_over:
                self.ledger.end(key)
            elif self.ledger.read(key, workload.metadata.resource_version, shows_it=holds_quota) is Reading.KEEP:
                return  # older than our own write: what we decided stands
        if holds_quota:
            self._forget_pending(key)
            self._put_reservation(workload, now)
            return
        if key in self.reservations:
            self._end(key)
        if reading.may_queue(workload, self.policy):
            self._put_pending(workload, now)
        else:
            self._forget_pending(key)

    def _drop_workload(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key = states.key(workload)
        self.ledger.end(key)
        self._revisions.pop(key, None)
        if key in self.reservations:
            self._end(key)
        elif key in self._local_queue_of:
            self._to_release.add(self._cluster_queue_of(self._local_queue_of[key]))
        self._forget_pending(key)

    def _put_reservation(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        assert workload.status.admission is not None
        key = states.key(workload)
        shape = self._shapes.read(workload, self._rules_of(workload), self.policy)
        reservation = reading.reservation(workload, shape, self.policy)
        before = self.reservations.get(key)
        if before is not None and before.is_like(reservation):
            reservation = before
            self.structure.note_update(before.cluster_queue)
        else:
            if before is not None:
                reservation.assumed_victims, reservation.hidden = before.assumed_victims, before.hidden
                self.structure.release(before)
                self.waking.stir(before.cluster_queue)
                if before.usage != reservation.usage or before.priority != reservation.priority:
                    self._to_release.add(before.cluster_queue)
            self._reserve(reservation)
        self.second_pass.pop(key, None)
        if reading.needs_second_pass(workload):
            head = reading.pending(workload, shape, reservation.cluster_queue, self.policy)
            head.reservation = reservation
            head.held_back, head.back_off_until = False, None  # what holds back a pending one means nothing here
            self.second_pass[key] = head
        else:
            self._tries.pop(key, None)

    def _reserve(self, reservation: Reservation) -> None:
        self.reservations[reservation.key] = reservation
        self.structure.reserve(reservation)
        self.waking.stir(reservation.cluster_queue)

    def _end(self, key: str) -> None:
        """A reservation is over: whoever waits in its tree may fit now."""
        reservation = self.reservations.pop(key)
        self.second_pass.pop(key, None)
        self._show_victims(reservation)
        self.structure.release(reservation)
        for successor in reservation.hidden:
            self.unblocked.add(successor)
            held = self.reservations.get(successor)
            if held is not None:  # the victims that are left may hide more behind it now
                self._show_victims(held)
                # Should this one come back, then into room that nobody waits for.
                held.assumed_victims = {who: why for who, why in held.assumed_victims.items() if who != key}
                self._hide_victims(held)
        self._to_release.add(reservation.cluster_queue)

    def _hide_victims(self, reservation: Reservation) -> None:
        """Victims that are to go later count together with their successor, as the larger of the two."""
        victims = [self.reservations[key] for key in reservation.assumed_victims if key in self.reservations]
        queue = self.snapshot.queues.get(reservation.cluster_queue)
        if queue is not None and victims:
            for victim, amounts in deferral.hide(queue, dict(reservation.numbers), victims):
                victim.hidden[reservation.key] = amounts
                self._recount(victim)

    def _show_victims(self, reservation: Reservation) -> None:
        """Their successor is gone: they count for themselves again."""
        for key in reservation.assumed_victims:
            victim = self.reservations.get(key)
            if victim is not None and victim.hidden.pop(reservation.key, None) is not None:
                self._recount(victim)

    def _recount(self, victim: Reservation) -> None:
        self.structure.recount(victim)
        self.waking.stir(victim.cluster_queue)

    def waits_for(self, key: str) -> list[str]:
        """The assumed victims of a Workload that still hold quota; it must not start before they are gone."""
        held = self.reservations.get(key)
        return [victim for victim in held.assumed_victims if victim in self.reservations] if held is not None else []

    def recheck(self, key: str, now: Nanoseconds) -> Holds | HoldsAfter | Lost:
        """Whether a reservation still holds, and whom it needs gone; asked when preemptions that were put off are due,
        and when the last check has passed. Victims that are found only now count as assumed from here on."""
        self.settle(now)
        held = self.reservations[key]
        victims = tuple(
            Victim(
                victim,
                self.reservations[victim].cluster_queue,
                held.assumed_victims[victim],
                self.reservations[victim].evicted,
            )
            for victim in self.waits_for(key)
        )
        verdict = recheck(self.snapshot, self.structure.queue(held.cluster_queue), held, self.policy, now)
        if isinstance(verdict, Lost):
            return verdict
        if isinstance(verdict, HoldsAfter):
            self._show_victims(held)
            held.assumed_victims = {**held.assumed_victims, **{each.key: each.reason for each in verdict.victims}}
            self._hide_victims(held)
            victims = tuple({each.key: each for each in (*victims, *verdict.victims)}.values())
        return HoldsAfter(victims) if victims else Holds()

    def _put_pending(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key = states.key(workload)
        local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
        if self._local_queue_of.get(key, local_queue) != local_queue:
            self._forget_pending(key)
        shape = self._shapes.read(workload, self._rules_of(workload), self.policy)
        read = reading.pending(workload, shape, self._cluster_queue_of(local_queue), self.policy)
        before = self._waiting.setdefault(local_queue, {}).get(key)
        if before is not None and not _may_matter(before, read) and self._is_in_line(before):
            before.generation = read.generation
            return
        self._waiting[local_queue][key] = read
        self._local_queue_of[key] = local_queue
        if before is not None:
            read.memory = before.memory
            read.evaluated_generation = before.evaluated_generation
        queue = self._queue_of(local_queue)
        if queue is not None:
            queue.put(read, now)
            self.waking.look_at(queue.name)

    def _forget_pending(self, key: str) -> None:
        local_queue = self._local_queue_of.pop(key, None)
        if local_queue is None:
            return
        self._waiting[local_queue].pop(key, None)
        queue = self._queue_of(local_queue)
        if queue is not None:
            queue.drop(key)
            self.waking.look_at(queue.name)

    def _rules_of(self, workload: kueue.Workload) -> Rules:
        namespace = workload.metadata.namespace
        own: tuple[str, ...] = ()
        if self._queue_exclusions:
            name = self._cluster_queue_of(f"{namespace}/{workload.spec.queue_name or ''}")
            cluster_queue = self.structure.cluster_queues.get(name)
            own = cluster_queue.spec.exclude_resource_prefixes if cluster_queue is not None else ()
        rules = self._rules.get((namespace, own))
        if rules is None:
            rules = self._rules[namespace, own] = Rules(
                accounting=self._accounting.for_queue(own) if own else self._accounting,
                limits=requests.merge_limit_ranges(self._limit_ranges.get(namespace, {}).values()),
                runtime_classes=self._runtime_classes,
            )
        return rules

    def exclusions(self, workload: kueue.Workload) -> tuple[Exclusion, ...]:
        """What a Workload asks for and is not charged, and which list leaves it out (KEP-5800)."""
        rules = self._rules_of(workload)
        if not (rules.accounting.prefixes or rules.accounting.queue_prefixes):
            return ()
        pods = (
            requests.read(pod_set.template.spec, runtime_classes=rules.runtime_classes, limits=rules.limits)
            for pod_set in workload.spec.pod_sets
        )
        return rules.accounting.exclusions({resource for pod in pods for resource in pod.figure})

    def skipped(self, workload: kueue.Workload, cluster_queue: str) -> tuple[str, ...]:
        """What a Workload asks for and nobody looks at, because the ClusterQueue does not declare it (KEP-7513)."""
        read = self.structure.read.get(cluster_queue)
        if not self.policy.ignore_undeclared or read is None:
            return ()
        covered = {resource for group in read.spec.groups for resource in group.resources}
        shape = self._shapes.read(workload, self._rules_of(workload), self.policy)
        asked = (requests.undeclared(pod_set.requests, covered) for pod_set in shape.pod_sets)
        return tuple(sorted({resource for of_one in asked for resource, _ in of_one}))

    def _cluster_queue_of(self, local_queue: str) -> str:
        facts = self._local_queues.get(local_queue)
        return facts.cluster_queue if facts is not None else ""

    def _queue_of(self, local_queue: str) -> PendingQueue | None:
        """[QU2] The queue that the LocalQueue leads to, unless it is stopped or leads nowhere."""
        facts = self._local_queues.get(local_queue)
        return None if facts is None or facts.is_stopped else self.queues.get(facts.cluster_queue)

    def _is_in_line(self, workload: Workload) -> bool:
        queue = self.queues.get(workload.cluster_queue)
        return queue is not None and workload.key in queue

    def _enqueue_all(self, local_queue: str, now: Nanoseconds) -> None:
        queue = self._queue_of(local_queue)
        if queue is not None:
            for workload in self._waiting.get(local_queue, {}).values():
                workload.cluster_queue = queue.name
                queue.put(workload, now)
            self.waking.look_at(queue.name)

    def _withdraw_all(self, local_queue: str, facts: _LocalQueue) -> None:
        queue = self.queues.get(facts.cluster_queue)
        if queue is not None:
            for key in self._waiting.get(local_queue, {}):
                queue.drop(key)
            self.waking.look_at(queue.name)

    # Questions and cycles.

    def settle(self, now: Nanoseconds) -> None:
        """Bring trees and queues up to date with everything that was put and dropped."""
        self._regrow()
        for pending in self.queues.values():
            if pending.wake(now):
                self.waking.look_at(pending.name)
        if self._to_release:
            named, self._to_release = self._to_release, set()
            for name in sorted({companion for one in named for companion in self.structure.companions(one)}):
                if name in self.queues:
                    self.queues[name].release(lambda workload: self._may_return(workload, now))
                    self.waking.stir(name)

    def _regrow(self) -> None:
        """Build the trees that changed, and have their queues in the order that they ask for."""
        changed = self.structure.settle()
        if changed:
            self.waking.divide(self.structure.districts())
            # Also those whom a queue or a cohort has left behind: what it had borrowed is room for them.
            self._to_release |= changed
        for name in sorted(changed):
            self.waking.stir(name)
            queue, read = self.queues.get(name), self.structure.read.get(name)
            if queue is None or read is None:
                continue
            history = self.usage_history if read.spec.is_usage_based else None
            usage = history.usage if history is not None else None
            queue.relist(usage, read.spec.strategy)
            seat = self.snapshot.queues.get(name)
            if seat is not None:
                seat.local_usage = usage

    def _may_return(self, workload: Workload, now: Nanoseconds) -> bool:
        labels = self._namespaces.get(workload.namespace)
        selector = self.structure.selectors.get(workload.cluster_queue)
        return workload.may_compete(now) and labels is not None and selector is not None and selector.matches(labels)

    def in_circle(self, now: Nanoseconds) -> frozenset[str]:
        """The ClusterQueues whose cohorts are their own ancestors."""
        self.settle(now)
        return self.structure.in_circle

    def pending(self, key: str) -> Workload | None:
        """A Workload that waits, in a queue or for one."""
        local_queue = self._local_queue_of.get(key)
        return self._waiting[local_queue].get(key) if local_queue is not None else None

    def pending_in(self, local_queue: str) -> int:
        """How many Workloads wait through a LocalQueue, though it lead nowhere; without those that rest."""
        queue = self._queue_of(local_queue)
        resting = queue.resting() if queue is not None else set()
        waiting = self._waiting.get(local_queue, {})
        return len(waiting) - sum(key in waiting for key in resting)

    def problem(self, key: str) -> str:
        """What makes a waiting Workload impossible to admit, whatever is free; empty when nothing does."""
        workload = self.pending(key)
        refusal = self._refusal(workload) if workload is not None else None
        return refusal.message if refusal is not None else ""

    def condemned(self, key: str) -> QuotaReservedReason | None:
        """[QU13] Why a Workload of the same kind did not get in, where that verdict still stands."""
        workload = self.pending(key)
        queue = self.queues.get(workload.cluster_queue) if workload is not None else None
        verdict = queue.condemned.get(workload.kind) if queue is not None and workload is not None else None
        return verdict.reason if verdict is not None else None

    def decide(self, now: Nanoseconds, *, enough: int | None = None) -> list[Decision]:
        """One cycle wherever something changed: what it decided, already written into the memory.

        After `enough` decisions the other districts are left for the next call, so that nobody holds up everybody.
        Nothing is decided where everybody would only hear again what they heard.
        """
        self.settle(now)
        for workload in self._second_passes(now):
            self.waking.stir(workload.cluster_queue)
        decisions: list[Decision] = []
        for district in self.waking.due(lambda: enough is None or len(decisions) < enough):
            heads = self._heads(district, now)
            if heads:
                self.waking.look_at(district.queues[0])  # until nobody is left who has not been tried
                for decision in cycle.run(self.snapshot, heads, self.policy, now):
                    self._carry_out(decision, now)
                    decisions.append(decision)
        self.cycles += bool(decisions)
        return decisions

    def wake_everybody(self) -> None:
        """Try all who wait once more, for no cause: the safety net. Nobody should get in who was not woken before."""
        self._to_release.update(self.queues)
        for name in sorted(self.queues):
            self.waking.stir(name)

    def put_back(self, now: Nanoseconds) -> None:
        """A cycle broke off: whoever was being decided waits for the next one."""
        for queue in self.queues.values():
            for key, workload in sorted(queue.in_flight.items()):
                queue.drop(key)
                queue.put(workload, now)
                self.waking.stir(queue.name)

    def next_wake(self) -> Nanoseconds | None:
        """When something happens without any event: the earliest end of a back-off."""
        times = [queue.next_wake for queue in self.queues.values()]
        times += [workload.back_off_until for workload in self.second_pass.values()]
        return min((time for time in times if time is not None), default=None)

    def _heads(self, district: District, now: Nanoseconds) -> list[Head]:
        """[QU7] Second passes that are due, then one head of every queue that takes part, by name. None at all where
        all of them have been tried on the facts as they are."""
        again = [w for w in self._second_passes(now) if w.cluster_queue in district.queues]
        lines = [
            queue
            for name in district.queues
            if (queue := self.queues.get(name)) is not None and len(queue) and self.structure.is_open(name)
        ]
        if self.policy.is_fair:
            # Of a queue one takes part, and of a second pass and a head it is the head. A second pass that has lost
            # once has its queue for itself, or the head of a strict queue would keep it from its nodes for ever.
            lost = {workload.cluster_queue for workload in again if workload.key in self._tries}
            lines = [queue for queue in lines if queue.name not in lost]
        firsts = [(queue, head) for queue in lines if (head := queue.head()) is not None]
        front = tuple((head, queue.is_preemptor(head), head.resumes_at) for queue, head in firsts)
        if not again:
            if not front or front in district.tried:
                return []
            district.tried.add(front)
        for queue in lines:
            queue.pop()
        return [
            *(Head(workload, refusal=self._refusal(workload)) for workload in again),
            *(Head(head, queue.is_preemptor(head), self._refusal(head)) for queue, head in firsts),
        ]

    def _second_passes(self, now: Nanoseconds) -> Iterator[Workload]:
        for key in sorted(self.second_pass):
            workload = self.second_pass[key]
            if workload.may_compete(now):
                yield workload

    def _refusal(self, workload: Workload) -> Refusal | None:
        """§1.10 Namespace, selector, limits: in this order."""
        labels = self._namespaces.get(workload.namespace)
        if labels is None:
            return Refusal(QuotaReservedReason.MISCONFIGURED, f"namespace {workload.namespace} does not exist")
        selector = self.structure.selectors.get(workload.cluster_queue)
        if selector is not None and not selector.matches(labels):
            return Refusal(
                QuotaReservedReason.MISCONFIGURED,
                f"namespace {workload.namespace} is not selected by ClusterQueue {workload.cluster_queue}",
                Requeue.NAMESPACE_MISMATCH,
            )
        if workload.shape.problem:
            return Refusal(QuotaReservedReason.MISCONFIGURED, workload.shape.problem)
        return None

    def _carry_out(self, decision: Decision, now: Nanoseconds) -> None:
        match decision:
            case Admit():
                self._assume(decision, now)
            case Preempt():
                self._evict(decision.victims)
                requeue = Requeue.PENDING_MIGRATION if decision.migrates else Requeue.PENDING_PREEMPTION
                if decision.migrates:
                    self._mark_evicted(decision.migrates)
                self._requeue(decision, requeue, decision.reason, now)
            case Wait():
                if decision.requeue is Requeue.SET_ASIDE:
                    self.queues[decision.cluster_queue].in_flight[decision.workload].set_aside = True
                self._requeue(decision, decision.requeue, decision.reason, now)
            case Retry():
                self._evict(decision.victims)
                self._try_later(decision.workload, now)
            case Evict():
                self._mark_evicted(decision.workload)
                self.second_pass.pop(decision.workload, None)

    def _try_later(self, key: str, now: Nanoseconds) -> None:
        """[TS26] A second pass that did not work is tried again, at ever longer intervals."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        self.second_pass[key].back_off_until = now + min(2 ** (tries - 1), _LONGEST_PAUSE_SECONDS) * SECOND

    def _evict(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            if not victim.already_evicted:
                self._mark_evicted(victim.key)

    def _mark_evicted(self, key: str) -> None:
        self.reservations[key].evicted = True
        self.waking.stir(self.reservations[key].cluster_queue)

    def _requeue(self, decision: Decision, requeue: Requeue, reason: QuotaReservedReason, now: Nanoseconds) -> None:
        queue = self.queues[decision.cluster_queue]
        workload = queue.in_flight[decision.workload]
        queue.requeue(workload, requeue, reason, now, condemns=self.policy.equivalence_hashing)

    def _assume(self, decision: Admit, now: Nanoseconds) -> None:
        """The reservation counts from now on, before the API has heard of it."""
        if decision.is_second_pass:
            held = self.reservations[decision.workload]
            self.structure.release(held)
            workload = self.second_pass.pop(decision.workload)
            reserved_at, evicted = held.reserved_at, held.evicted
        else:
            workload = self.queues[decision.cluster_queue].in_flight[decision.workload]
            reserved_at, evicted = now - now % SECOND, False  # as its status will say it
            self._charge(workload, decision, now)
            self._forget_pending(decision.workload)
        reservation = Reservation(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=decision.cluster_queue,
            local_queue=workload.local_queue,
            pod_sets=decision.pod_sets,
            priority=workload.priority,
            queue_time=workload.queue_time,
            reserved_at=reserved_at,
            evicted=evicted,
            admitted=decision.is_admitted,
            placed=decision.placed,
            parent_uid=workload.details.parent_uid,
            variant_flavor=workload.details.variant_flavor,
            assumed_victims={victim.key: victim.reason for victim in decision.assumes},
        )
        self._reserve(reservation)
        self.ledger.assume(workload.key, self._revisions.get(workload.key, ""))
        self._hide_victims(reservation)
        if decision.replaces and decision.replaces in self.reservations:
            self._end(decision.replaces)

    def refuse(self, key: str) -> None:
        """The write of a reservation came to nothing: it is over. Whoever has the object puts it again."""
        self.ledger.end(key)
        held = self.reservations.get(key)
        if held is not None:
            if self.usage_history is not None:
                self.usage_history.forgive(f"{held.namespace}/{held.local_queue}", key)
            self._end(key)

    def set_aside(self, key: str, why: str, now: Nanoseconds) -> Wait | None:
        """What was decided for a Workload that waits again can never be written: leave it out until it changes. What to
        tell about it; nothing where it does not wait any more."""
        workload = self.pending(key)
        if workload is None:
            return None
        workload.set_aside = True
        queue = self.queues.get(workload.cluster_queue)
        if queue is not None and key in queue:
            queue.put(workload, now)
            self.waking.look_at(queue.name)
        return Wait(
            workload=key,
            cluster_queue=workload.cluster_queue,
            reason=QuotaReservedReason.PENDING_EVALUATION,
            requeue=Requeue.SET_ASIDE,
            message=f"{why}; it is left out until it changes",
        )

    def _charge(self, workload: Workload, decision: Admit, now: Nanoseconds) -> None:
        """[AF5]"""
        spec = self.structure.read[decision.cluster_queue].spec
        if self.usage_history is None or not spec.is_usage_based:
            return
        covered = {resource for group in spec.groups for resource in group.resources}
        requests = [
            (resource, amount)
            for pod_set in workload.shape.pod_sets
            for resource, amount in pod_set.requests
            if not self.policy.ignore_undeclared or resource in covered
        ]
        self.usage_history.charge(f"{workload.namespace}/{workload.local_queue}", workload.key, requests, now)


def _may_matter(before: Workload, after: Workload) -> bool:
    """§2.7(a) Whether a waiting Workload changed in a way that could let it in."""
    return (
        before.uid != after.uid
        or (before.evaluated_generation != 0 and after.generation != before.evaluated_generation)
        or before.shape is not after.shape
        or before.priority != after.priority
        or before.queue_time != after.queue_time
        or before.held_back != after.held_back
        or before.back_off_until != after.back_off_until
        or before.details != after.details
    )


_Handler = Callable[[World, Any, Nanoseconds], None]

_PUT: Final[Mapping[type, _Handler]] = {
    kueue.ClusterQueue: World._put_cluster_queue,
    kueue.Cohort: World._put_cohort,
    kueue.LocalQueue: World._put_local_queue,
    kueue.ResourceFlavor: World._put_flavor,
    kueue.Topology: World._put_topology,
    kueue.AdmissionCheck: World._put_check,
    kueue.Workload: World._put_workload,
    kube.Namespace: World._put_namespace,
    kube.LimitRange: World._put_limit_range,
    kube.RuntimeClass: World._put_runtime_class,
    kube.Node: World._put_node,
    kube.Pod: World._put_pod,
}

_DROP: Final[Mapping[type, _Handler]] = {
    kueue.ClusterQueue: World._drop_cluster_queue,
    kueue.Cohort: World._drop_cohort,
    kueue.LocalQueue: World._drop_local_queue,
    kueue.ResourceFlavor: World._drop_flavor,
    kueue.Topology: World._drop_topology,
    kueue.AdmissionCheck: World._drop_check,
    kueue.Workload: World._drop_workload,
    kube.Namespace: World._drop_namespace,
    kube.LimitRange: World._drop_limit_range,
    kube.RuntimeClass: World._drop_runtime_class,
    kube.Node: World._drop_node,
    kube.Pod: World._drop_pod,
}
