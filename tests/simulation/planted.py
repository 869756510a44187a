"""Bugs to plant: each a small change of the product that could be made by mistake, and what it breaks.

They measure the tester: a law that no planted bug breaks guards nothing. A row has the name of the bug, how it is
planted, and under which laws (see `checkers`) it may show. Each is searched for from its own first seed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from kubemachinery.client.client import ApiClient
from kubemachinery.client.clock_watch import ClockWatch
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer
from kubemachinery.client.leader_election import LeaderElector
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import SqliteJournal
from pykueue.api import kube, kueue, nodes
from pykueue.app import options
from pykueue.controllers import reservation_writer, scheduler, topology, world_feed
from pykueue.controllers.checks.provisioning_requests import ProvisioningRequestClient
from pykueue.controllers.jobs import JobsController
from pykueue.controllers.queues import QueuesController
from pykueue.controllers.topology import NodeController
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.core import ordering, quota
from pykueue.core import workload as core_workload
from pykueue.core.preemption import search
from pykueue.core.requests import Accounting
from pykueue.core.topology.nodes import TopologyCache
from pykueue.core.workload import WorkloadInfo
from pykueue.jobs import (
    parent_workloads,
    pod,
    podsets,
    reconcile,
    selection,
    slices,
    triggers,
    workload_matching,
    workloads,
)
from pykueue.jobs.batch_job import BatchJob
from pykueue.jobs.deployment import Deployment
from pykueue.jobs.jobset import JobSet
from pykueue.jobs.leader_worker_set import LeaderWorkerSet
from pykueue.jobs.ray import RayClusterOwner
from pykueue.jobs.ray_cluster import RayCluster
from pykueue.jobs.ray_job import RayJob
from pykueue.jobs.stateful_set import StatefulSet
from pykueue.lifecycle import checks, eviction, provisioning, readiness, states, step, variants
from pykueue.lifecycle.rules import END
from pykueue.state import equivalence_buckets, intake
from pykueue.state.assumed import AssumedReservations, ReadOutcome, WriteStage
from pykueue.state.reservations import Reservations
from pykueue.state.structure import Structure
from simulation.engine import simulation_run

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Plant
    laws: tuple[str, ...]
    # The runs that search for it: first seed, count, traits and fault rates.
    first_seed: int = 0
    within: int = 12
    traits: tuple[str, ...] = ()
    rates: Mapping[str, float] | None = None


def _frees_on_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    """And leaves it to the watch to bring the Workload back into its queue, where it would stand before others."""
    patch.setattr(reservation_writer, "_may_have_been_applied", lambda error: False)
    patch.setattr(world_feed.WorldFeed, "put_current", lambda self, key: None)


def _writes_without_a_revision(patch: pytest.MonkeyPatch) -> None:
    conditional = ApiClient.patch_revision

    async def patched(self: ApiClient, kind: Any, name: str, tree: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(tree, dict):
            tree = {**tree, "metadata": {k: v for k, v in tree.get("metadata", {}).items() if k != "resourceVersion"}}
        return await conditional(self, kind, name, tree, *rest, **options)

    patch.setattr(ApiClient, "patch_revision", patched)


def _forgets_reservations_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    handle = scheduler.Scheduler.handle

    def forgetful(self: Any, change: Any) -> None:
        is_held = isinstance(change.new, kueue.Workload) and change.new.status.admission is not None
        if not (change.initial and is_held):
            handle(self, change)

    patch.setattr(scheduler.Scheduler, "handle", forgetful)


def _requeues_nothing_when_quota_is_released(patch: pytest.MonkeyPatch) -> None:
    end = Reservations.end

    def quiet(self: Reservations, key: str) -> None:
        before = self._scopes.take_released()
        end(self, key)
        self._scopes.take_released()
        self._scopes.release(before)

    patch.setattr(Reservations, "end", quiet)


def _forgets_deferred_preemptions_in_a_second_pass(patch: pytest.MonkeyPatch) -> None:
    assume = Reservations.assume

    def forgetful(self: Reservations, workload: Any, decision: Any, now: int) -> None:
        assume(self, workload, decision, now)
        if decision.is_second_pass:
            self.held[workload.key].assumed_targets = {}

    patch.setattr(Reservations, "assume", forgetful)


def _counts_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Structure, "release", lambda self, reservation: None)


def _ignores_what_may_be_borrowed(patch: pytest.MonkeyPatch) -> None:
    def generous(node: Any, number: int) -> int:
        path = (node, *node.ancestors)
        free: int = path[-1].subtree[number] - path[-1].usage[number]
        for below in reversed(path[:-1]):
            free += quota.headroom(below, number)
        return free

    patch.setattr(quota, "balance", generous)


def _forgets_cohorts(patch: pytest.MonkeyPatch) -> None:
    """Usage that exceeds what a queue keeps is not shown to its cohort."""

    def lonely(node: Any, number: int, amount: int, log: Any) -> None:
        log.append((node.usage, number, node.usage[number]))
        node.usage[number] += amount

    patch.setattr(quota, "add", lonely)


def _misses_what_happened_while_a_watch_was_broken(patch: pytest.MonkeyPatch) -> None:
    follow = Informer._watch_changes

    async def skipping(self: Any) -> None:
        self._revision += 20
        await follow(self)

    patch.setattr(Informer, "_watch_changes", skipping)


def _keeps_ghosts_after_a_new_list(patch: pytest.MonkeyPatch) -> None:
    replace = Informer._replace

    async def keeping(self: Any, items: Any, revision: int) -> None:
        drop, self._remove = self._remove, lambda key: None
        try:
            await replace(self, items, revision)
        finally:
            self._remove = drop

    patch.setattr(Informer, "_replace", keeping)


def _leaves_checks_as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "reset", lambda conditions, now: conditions)


def _does_not_wait_for_checks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states, "are_checks_ready", lambda workload: True)


def _starts_every_job_with_quota(patch: pytest.MonkeyPatch) -> None:
    def eager(case: Any) -> Any:
        return reconcile._started(case) if case.job.is_suspended() and states.is_reserved(case.workload) else None

    phases = [eager if phase is reconcile._suspended else phase for phase in reconcile._PHASES]
    patch.setattr(reconcile, "_PHASES", (*phases, reconcile._suspended))


def _never_gives_back_what_an_evicted_job_had(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eviction, "release", lambda workload, options, now, **_: ())


def _overlooks_the_workload_of_a_job(patch: pytest.MonkeyPatch) -> None:
    """Once for each job, and another one is made under another name."""
    overlooked: set[str] = set()
    numbers, find, build = itertools.count(), workload_matching.find, workloads.build

    def overlooking(job: Any, facts: Any, options: Any, now: int) -> Any:
        uid = job.tree["metadata"]["uid"]
        if facts.workloads and uid not in overlooked:
            overlooked.add(uid)
            facts = structs.replace(facts, workloads=())
        return find(job, facts, options, now)

    def another(*args: Any) -> Any:
        tree = build(*args)
        return {**tree, "metadata": {**tree["metadata"], "name": f"{tree['metadata']['name']}-{next(numbers)}"}}

    patch.setattr(workload_matching, "find", overlooking)
    patch.setattr(workloads, "build", another)


def _leads_on_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    async def stubborn(self: Any, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    patch.setattr(LeaderElector, "_renew", stubborn)
    patch.setattr(LeaderElector, "may_write", lambda self: True)


def _gives_up_without_a_response(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_failed", lambda self, key, error, seconds: self.queue.forget(key))


def _ignores_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkloadInfo, "may_compete", lambda self, now: True)


def _opens_what_was_finished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states, "is_finished", lambda workload: False)


def _keeps_finalizers(patch: pytest.MonkeyPatch) -> None:
    async def kept(self: Any, before: Any, made: int) -> int:
        return made

    patch.setattr(WorkloadWriter, "_remove_finalizer", kept)


def _without(*names: str) -> Plant:
    """Lifecycle rules that are removed."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for rules in ("RULES", "WAITING_RULES", "RUNNING_RULES"):
            kept = tuple(rule for rule in getattr(step, rules) if rule.__name__ not in names)
            patch.setattr(step, rules, kept)

    return plant


def _believes_old_news(stage: WriteStage) -> Plant:
    """A read that does not show a reservation frees it, though the read is older than what is on its way."""
    read = AssumedReservations.read

    def believing(self: AssumedReservations, key: str, revision: str, *, shows_it: bool) -> ReadOutcome:
        if self.stage(key) is stage and not shows_it:
            self.end(key)
            return ReadOutcome.FREE
        return read(self, key, revision, shows_it=shows_it)

    return lambda patch: patch.setattr(AssumedReservations, "read", believing)


def _forgets_what_is_on_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopologyCache, "book", lambda self, usage: None)
    patch.setattr(TopologyCache, "release", lambda self, usage: None)


def _makes_default_queues_with_the_gate_off(patch: pytest.MonkeyPatch) -> None:
    choices = options.manager_options
    patch.setattr(
        options, "manager_options", lambda settings: structs.replace(choices(settings), default_local_queues=True)
    )
    # Runs share the options of a configuration; these must not.
    patch.setattr(simulation_run, "_configured", simulation_run._configured.__wrapped__)


def _charges_what_a_queue_leaves_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Accounting, "for_queue", lambda self, own: self)


def _manages_jobs_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selection, "selects", lambda row, namespace, options: True)


def _counts_those_who_wait_twice(patch: pytest.MonkeyPatch) -> None:
    counted = QueuesController._counted

    def twice(self: Any, cluster_queue: Any) -> Any:
        found = counted(self, cluster_queue)
        return structs.replace(found, pending=2 * found.pending)

    patch.setattr(QueuesController, "_counted", twice)


def _forgets_the_newest_workload(patch: pytest.MonkeyPatch) -> None:
    load = SqliteJournal.load

    def forgetful(self: SqliteJournal) -> Any:
        found = load(self)
        newest = max((row.revision for row in found.rows if row.key.resource.startswith("workloads.")), default=0)
        return replace(found, rows=[row for row in found.rows if row.revision != newest])

    patch.setattr(SqliteJournal, "load", forgetful)


def _overlooks_lost_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeController, "_judged", lambda self, key, workload, name, node: topology._Judgement(False, False))


def _keeps_the_finalizers_of_pods(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod, "finalize", lambda kind, pods: ())


def _lets_a_replaced_slice_live(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, key: Any, by: str) -> None:
        return

    patch.setattr(reservation_writer.ReservationWriter, "_finish_replaced", nothing)
    patch.setattr(slices, "_kept", lambda living: living)


def _takes_a_request_for_nodes(patch: pytest.MonkeyPatch) -> None:
    def ready(workload: Any, check: Any, config: Any, request: Any, now: int) -> Any:
        return provisioning._ready(check, "", (), now) if request is not None else check

    patch.setattr(provisioning, "_answer", ready)


def _never_deletes_requests(patch: pytest.MonkeyPatch) -> None:
    async def kept(self: Any, request: Any) -> None:
        self._deleted.add(request.metadata.uid)

    patch.setattr(ProvisioningRequestClient, "delete", kept)


def _overlooks_that_a_namespace_opens(patch: pytest.MonkeyPatch) -> None:
    def quiet(self: intake.Intake, namespace: Any, now: int) -> None:
        self._parts.namespaces.put(namespace)

    handlers = intake._HANDLERS[kube.Namespace]._replace(put=quiet)
    patch.setitem(intake._HANDLERS, kube.Namespace, handlers)


def _leaves_out_the_step(*names: str) -> Plant:
    """One of those by which a job is brought to where its Workload stands."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(reconcile, "_PHASES", tuple(each for each in reconcile._PHASES if each.__name__ not in names))

    return plant


def _keeps_what_pods_had_that_are_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(readiness, "reclaim", lambda workload, done: ())


def _serves_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    def rank(workload: WorkloadInfo) -> tuple[int, int, str, str]:
        return -workload.priority, -workload.queue_time, workload.uid, workload.key

    def first(self: equivalence_buckets.Bucket) -> Any:
        return min(map(rank, self.members.values()), default=None)

    patch.setattr(ordering, "in_queue", rank)
    patch.setattr(equivalence_buckets.Bucket, "first", first)


def _takes_its_time_to_begin(patch: pytest.MonkeyPatch) -> None:
    run = scheduler.Scheduler.run

    async def late(self: Any) -> None:
        await asyncio.sleep(30.0)
        await run(self)

    patch.setattr(scheduler.Scheduler, "run", late)


def _counts_only_the_first_pod_set(patch: pytest.MonkeyPatch) -> None:
    usage = core_workload._usage
    patch.setattr(core_workload, "_usage", lambda pod_sets: usage(pod_sets[:1]))


def _counts_only_the_first_resource(patch: pytest.MonkeyPatch) -> None:
    usage = core_workload._usage
    patch.setattr(core_workload, "_usage", lambda pod_sets: usage(pod_sets)[:1])


def _overlooks_taints(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "untolerated", lambda taints, tolerations: None)


def _overlooks_that_a_taint_goes(patch: pytest.MonkeyPatch) -> None:
    def quiet(self: intake.Intake, flavor: Any, now: int) -> None:
        self._parts.structure.put_flavor(flavor)

    handlers = intake._HANDLERS[kueue.ResourceFlavor]._replace(put=quiet)
    patch.setitem(intake._HANDLERS, kueue.ResourceFlavor, handlers)


def _leaves_node_selectors_behind(patch: pytest.MonkeyPatch) -> None:
    restored = podsets.restored

    def sticky(template: Any, info: Any, keep_labels: Any = ()) -> Any:
        found = restored(template, info, keep_labels)
        return {**found, "spec": {**found["spec"], "nodeSelector": template["spec"].get("nodeSelector", {})}}

    patch.setattr(podsets, "restored", sticky)


def _keeps_what_is_finished(patch: pytest.MonkeyPatch) -> None:
    def lasting(view: Any) -> Any:
        return END if states.is_finished(view.workload) else None

    patch.setattr(step, "RULES", tuple(lasting if rule.__name__ == "finished" else rule for rule in step.RULES))


def _keeps_what_was_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "_retired", lambda case, reason: ())


def _believes_what_was_made_for_a_job(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(workloads, "is_equivalent", lambda job, workload, options: True)


def _overlooks_that_a_workload_is_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(triggers, "named_keys", lambda row, tree, options: ())


def _acknowledges_what_it_cannot_keep(patch: pytest.MonkeyPatch) -> None:
    attempt = Objects._try

    def hopeful(self: Objects, records: Any) -> None:
        attempt(self, records)

    patch.setattr(Objects, "_try", hopeful)


def _never_writes_again(patch: pytest.MonkeyPatch) -> None:
    async def resigned(self: Objects) -> None:
        return

    patch.setattr(Objects, "_recover", resigned)


def _does_not_notice_that_its_clock_is_set(patch: pytest.MonkeyPatch) -> None:
    async def blind(self: ClockWatch) -> None:
        await asyncio.Event().wait()

    patch.setattr(ClockWatch, "run", blind)


def _preempts_whatever_its_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search, "may_take", lambda policy, workload, candidate: policy != "Never")


def _takes_a_part_of_a_job_for_a_job(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selection, "ancestor", lambda found, namespace, kinds, options: None)


def _restores_only_the_first_template(patch: pytest.MonkeyPatch) -> None:
    restored = podsets.restored

    def first(template: Any, info: Any, *rest: Any) -> Any:
        return template if info.name == "workers" else restored(template, info, *rest)

    patch.setattr(podsets, "restored", first)


def _places_only_the_first_template(patch: pytest.MonkeyPatch) -> None:
    injected = podsets.injected
    patch.setattr(
        podsets, "injected", lambda template, info: template if info.name == "workers" else injected(template, info)
    )


def _takes_a_suspended_job_for_stopped(patch: pytest.MonkeyPatch) -> None:
    """Its operator has not stopped its pods yet."""
    for kind in (JobSet, RayCluster, RayJob):
        patch.setattr(kind, "is_active", lambda self: not self.is_suspended())


def _overlooks_the_autoscaler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobsController, "_second_seen", lambda self, row, change: None)


def _counts_the_workers_of_the_job(patch: pytest.MonkeyPatch) -> None:
    """Not those of its RayCluster, which Ray scales."""
    patch.setattr(RayClusterOwner, "live_counts", lambda self, options: {})


def _never_asks_again_for_a_kind(patch: pytest.MonkeyPatch) -> None:
    async def for_ever(self: Any) -> None:
        await asyncio.Event().wait()

    absent = Informer._absent

    async def once(self: Any) -> None:
        await absent(self)
        await for_ever(self)

    patch.setattr(Informer, "_absent", once)


def _keeps_the_workloads_of_deleted_parents(patch: pytest.MonkeyPatch) -> None:
    """Their finalizers stay, so that the garbage collector cannot delete them."""
    patch.setattr(parent_workloads, "without_finalizer", lambda workload: ())
    patch.setattr(reconcile, "_released", lambda workload: ())


def _keeps_the_quota_of_an_empty_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatefulSet, "_held", lambda self, workload, members, options, now: ())


def _never_queues_a_set_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatefulSet, "_resumed", lambda self, workload, options, now: ())


def _overlooks_that_a_set_is_scaled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatefulSet, "_resized", lambda self, workload: ())


def _keeps_the_workloads_of_removed_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderWorkerSet, "_surplus", lambda self, workload, members, options, now: ())


def _gates_no_pods_of_deployments(patch: pytest.MonkeyPatch) -> None:
    """The template is not marked."""
    patch.setattr(Deployment, "defaulted", lambda self, options: self.tree)


def _gives_back_twice_what_pods_had(patch: pytest.MonkeyPatch) -> None:
    reclaimable = BatchJob.reclaimable
    patch.setattr(BatchJob, "reclaimable", lambda self: {name: 2 * count for name, count in reclaimable(self).items()})


def _deletes_the_variant_that_runs(patch: pytest.MonkeyPatch) -> None:
    """Its flavor has left the ClusterQueue, and its job has not stopped."""
    stale = variants._stale

    def hasty(parent: Any, members: Any, policy: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(variants, "_is_run", lambda parent, variant: False)
            return list(stale(parent, members, policy))

    patch.setattr(variants, "_stale", hasty)


_LOST = {"lost answer": 0.3, "watch dropped": 0.2, "watch late": 0.3, "slow": 0.3}
_CONTROLLERS = ("pods of controllers",)
_JUMPY = {"slow answer": 0.5, "watch late": 0.8}

BUGS = (
    Bug("forgets reservations at a restart", _forgets_reservations_at_a_restart, ("S1", "S8", "L1"), first_seed=1),
    Bug("preempts a Workload whatever its priority", _preempts_whatever_its_priority, ("S5",), traits=("rush",), first_seed=1),
    Bug("counts what was given back", _counts_twice, ("L1", "L2", "promise")),
    Bug("ignores what may be borrowed", _ignores_what_may_be_borrowed, ("S1",), traits=("rush",)),
    Bug("forgets to count in cohorts", _forgets_cohorts, ("S1",), traits=("rush",)),
    Bug("frees quota when an answer is lost", _frees_on_a_lost_answer, ("S1",), traits=("rush", "fair sharing"), rates=_LOST, first_seed=2),
    Bug("frees a reservation that was written", _believes_old_news(WriteStage.WRITTEN), ("S1", "S3", "promise"), traits=("rush",), rates=_JUMPY, first_seed=3),
    Bug("writes without the revision it decided on", _writes_without_a_revision, ("S1", "S3", "S4"), rates=_JUMPY),
    Bug("requeues no Workload when quota is released", _requeues_nothing_when_quota_is_released, ("L1", "L2")),
    Bug("forgets who waits for a time", _without("backoff"), ("L1",), traits=("pods ready",), first_seed=1),
    Bug("misses what happened while a watch was broken", _misses_what_happened_while_a_watch_was_broken, ("L1", "S8"), rates={"watch dropped": 0.1}),
    Bug("keeps ghosts after a new list", _keeps_ghosts_after_a_new_list, ("L1", "S8", "L6"), traits=("meddling",), rates={"history gone": 0.3, "watch late": 0.8}),
    Bug("leaves checks as they were at an eviction", _leaves_checks_as_they_were, ("S3",), traits=("checks",), first_seed=1),
    Bug("does not wait for checks", _does_not_wait_for_checks, ("S3",), traits=("checks",)),
    Bug("starts every job with quota", _starts_every_job_with_quota, ("S7",), traits=("jobs", "checks")),
    Bug("never gives back what an evicted job had", _never_gives_back_what_an_evicted_job_had, ("L3",), traits=("jobs",), first_seed=1),
    Bug("overlooks the Workload of a job", _overlooks_the_workload_of_a_job, ("S9",), traits=("jobs",)),
    Bug("leads on without a lease", _leads_on_without_a_lease, ("S1", "S3", "L6"), traits=("two managers", "rush"), rates={"pause": 0.2}, first_seed=12),
    Bug("gives up without a response", _gives_up_without_a_response, ("S7", "S8", "L1", "L2", "L3", "L5", "L6"), traits=("jobs",), rates={"cut off": 0.1}, first_seed=4),
    Bug("ignores back-off", _ignores_back_off, ("S4",), traits=("pods ready",), first_seed=1),
    Bug("opens what was finished", _opens_what_was_finished, ("S3", "promise"), first_seed=2),
    Bug("keeps finalizers", _keeps_finalizers, ("L5",), traits=("jobs",)),
    Bug("ignores the maximum execution time", _without("execution_time"), ("limit",), traits=("limited time",), first_seed=1),
    Bug("waits for pods for ever", _without("pods_ready"), ("limit",), traits=("pods ready",), first_seed=1),
    Bug("ignores checks in Retry and Rejected", _without("rejected", "retry"), ("L1", "check"), traits=("checks",), first_seed=1),
    Bug("forgets what is on nodes", _forgets_what_is_on_nodes, ("S1",), traits=("topology", "rush"), first_seed=1),
    Bug("makes default queues with the gate off", _makes_default_queues_with_the_gate_off, ("7610",), traits=("default queues",), first_seed=2),
    Bug("charges what a queue leaves out", _charges_what_a_queue_leaves_out, ("L1",), traits=("excluded resources",), first_seed=1),
    Bug("manages jobs everywhere", _manages_jobs_everywhere, ("3589",), traits=("jobs", "unnamed jobs")),
    Bug("counts those who wait twice", _counts_those_who_wait_twice, ("S8",)),
    Bug("overlooks lost nodes", _overlooks_lost_nodes, ("nodes",), traits=("topology", "node failures"), first_seed=39),
    Bug("keeps the finalizers of pods", _keeps_the_finalizers_of_pods, ("L5",), traits=("pods",), first_seed=7),
    Bug("lets a slice live that was replaced", _lets_a_replaced_slice_live, ("slice", "S1"), traits=("jobs", "elastic"), first_seed=3),
    Bug("takes a request for nodes", _takes_a_request_for_nodes, ("nodes",), traits=("checks", "provisioning")),
    Bug("never takes a request for nodes back", _never_deletes_requests, ("nodes",), traits=("checks", "provisioning")),
    Bug("serves the newest first", _serves_the_newest_first, ("L7",), traits=("churn",), first_seed=2),
    Bug("overlooks that a namespace opens", _overlooks_that_a_namespace_opens, ("L1", "L2"), traits=("rebuilding",), rates={}, first_seed=29),
    Bug("lets a job run that was started by hand", _leaves_out_the_step("_running"), ("S7",), traits=("jobs", "by hand"), rates={}, first_seed=1),
    Bug("lets a job run whose Workload was deleted", _leaves_out_the_step("_workload_deleted"), ("S7", "L5"), traits=("jobs", "by hand"), rates={}),
    Bug("keeps what pods had that are done", _keeps_what_pods_had_that_are_done, ("done",), traits=("jobs", "piecemeal"), first_seed=1),
    Bug("counts only the first pod set", _counts_only_the_first_pod_set, ("S1", "S8"), traits=("several groups",)),
    Bug("counts only the first resource", _counts_only_the_first_resource, ("S1", "S8"), traits=("several groups",)),
    Bug("overlooks taints", _overlooks_taints, ("S2",), traits=("taints",), first_seed=3),
    Bug("overlooks that a taint goes", _overlooks_that_a_taint_goes, ("L1", "L2"), traits=("taints",), rates={}, first_seed=1),
    Bug("leaves node selectors in a job that it stops", _leaves_node_selectors_behind, ("flavor",), traits=("jobs", "taints"), first_seed=15),
    Bug("keeps what is finished", _keeps_what_is_finished, ("kept",), traits=("retention",)),
    Bug("keeps what was given up", _keeps_what_was_given_up, ("kept",), traits=("jobs", "pods ready", "retention")),
    Bug("believes what was made for a job", _believes_what_was_made_for_a_job, ("S7",), traits=("jobs", "prebuilt"), first_seed=4),
    Bug("overlooks that a Workload is made", _overlooks_that_a_workload_is_made, ("L1",), traits=("jobs", "prebuilt"), rates={}),
    Bug("acknowledges what it cannot keep", _acknowledges_what_it_cannot_keep, ("S11",), rates={"disk full": 0.1}),
    Bug("never writes again after its disk was full", _never_writes_again, ("S11",), rates={"disk full": 0.1}),
    Bug("does not notice that its clock is set", _does_not_notice_that_its_clock_is_set, ("L1", "L6", "kept", "limit"), traits=("pods ready", "retention"), rates={"hour slow": 0.2}),
    Bug("forgets deferred preemptions in a second pass", _forgets_deferred_preemptions_in_a_second_pass, ("S1", "L4", "promise"), traits=("checks", "deferred preemptions", "provisioning", "topology", "rush"), first_seed=44),
    Bug("takes a part of a job for a job", _takes_a_part_of_a_job_for_a_job, ("S9",), traits=("job kinds",), rates={}),
    Bug("restores only the first template of a job", _restores_only_the_first_template, ("flavor",), traits=("job kinds", "taints", "meddling", "rush"), rates={}, first_seed=9),
    Bug("places only the first template of a job", _places_only_the_first_template, ("flavor",), traits=("job kinds", "taints"), rates={}),
    Bug("takes a suspended job for a stopped one", _takes_a_suspended_job_for_stopped, ("pods",), traits=("job kinds",), rates={}),
    Bug("overlooks what an autoscaler does", _overlooks_the_autoscaler, ("slice", "L2", "L6"), traits=("job kinds", "jobs", "elastic"), rates={}, first_seed=4),
    Bug("counts the workers of a job, not of its cluster", _counts_the_workers_of_the_job, ("slice",), traits=("job kinds", "jobs", "elastic"), rates={}, first_seed=4),
    Bug("never asks again for a kind that was not served", _never_asks_again_for_a_kind, ("3589", "S7", "L2", "L6"), traits=("job kinds",), rates={}),
    Bug("keeps the Workloads of deleted parents", _keeps_the_workloads_of_deleted_parents, ("L5",), traits=_CONTROLLERS, rates={}),
    Bug("keeps the quota of an empty set", _keeps_the_quota_of_an_empty_set, ("groups",), traits=_CONTROLLERS, rates={}),
    Bug("never queues a set again", _never_queues_a_set_again, ("groups",), traits=_CONTROLLERS, rates={}, first_seed=1),
    Bug("overlooks that a set is scaled", _overlooks_that_a_set_is_scaled, ("groups",), traits=_CONTROLLERS, rates={}),
    Bug("keeps the Workloads of removed groups", _keeps_the_workloads_of_removed_groups, ("groups",), traits=_CONTROLLERS, rates={}),
    Bug("gates no pods of Deployments", _gates_no_pods_of_deployments, ("S7", "groups"), traits=_CONTROLLERS, rates={}),
    Bug("gives back twice what pods had", _gives_back_twice_what_pods_had, ("done", "S1"), traits=("jobs", "piecemeal"), rates={}, first_seed=1),
    Bug("deletes the variant that runs", _deletes_the_variant_that_runs, ("family",), traits=("variants", "rebuilding"), rates={}, first_seed=25),
    Bug("takes its time to begin", _takes_its_time_to_begin, ("L4",)),
    Bug("forgets an acknowledged write", _forgets_the_newest_workload, ("S11",), traits=("disk",), rates={"server killed": 0.1}),
)  # fmt: skip
