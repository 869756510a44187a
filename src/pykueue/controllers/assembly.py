"""A manager: every controller on one client, one clock and one random source, and the order in which they start.

    kinds that shape queues are read ──▶ Workloads are read ──▶ jobs are read ──▶ deciding starts

A manager that decided before it had read everything would give quota that is reserved already.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from kubemachinery import process, turns
from kubemachinery.client.client import ApiClient
from kubemachinery.client.clock_watch import ClockWatch
from kubemachinery.client.controller import Controller
from kubemachinery.client.event_recorder import EventRecorder
from kubemachinery.client.informer import Informer, run_informers
from kubemachinery.client.leader_election import LeaderElector
from kubemachinery.client.retry import retry_transient
from kubemachinery.clock import Clock
from kubemachinery.meta import Nanoseconds
from pykueue.controllers import concurrency
from pykueue.controllers.checks.budget import BudgetController
from pykueue.controllers.checks.multikueue import MultiKueueChecks
from pykueue.controllers.checks.provisioning import ProvisioningController
from pykueue.controllers.default_local_queues import BY_SPEC, DefaultLocalQueues
from pykueue.controllers.elastic import ElasticController
from pykueue.controllers.failure_recovery import FailureRecoveryController
from pykueue.controllers.forecaster import Forecaster, WorkerOf
from pykueue.controllers.history_recorder import HistoryOptions, HistoryRecorder
from pykueue.controllers.in_use_protection import InUseController
from pykueue.controllers.informers import Informers
from pykueue.controllers.jobs import JobsController
from pykueue.controllers.metrics import ManagerMetrics
from pykueue.controllers.planned_starts import BackfillAnnotations, PlannedStartController
from pykueue.controllers.priority_class import PriorityClassController
from pykueue.controllers.queues import QueuesController
from pykueue.controllers.quota_schedules import QuotaScheduleController
from pykueue.controllers.scheduler import Scheduler
from pykueue.controllers.state_audit import StateAuditor
from pykueue.controllers.topology import NodeController, NodeFailureOptions, UngatingController
from pykueue.controllers.troubles import TroubleReporter
from pykueue.controllers.variants import VariantsController
from pykueue.controllers.workload import WorkloadController
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.topology import PlacementOptions
from pykueue.jobs.executor import JobReconciler
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.observe.events import Reporter
from pykueue.observe.metrics import MetricsOptions
from pykueue.projection import SchedulerCase
from pykueue.state.troubles import STARVING_AFTER
from pykueue.state.world import World


class ManagerOptions(msgspec.Struct, frozen=True):
    """The manager's configuration, as the values that each package takes."""

    policy: SchedulingPolicy
    accounting: requests.Accounting
    profile: PlacementOptions
    kinds: JobKinds
    jobs: IntegrationOptions
    nodes: NodeFailureOptions
    blocks_admission: bool
    default_local_queues: bool = False
    # Whether an eviction deletes the ProvisioningRequests of a Workload.
    cleans_up_requests: bool = True
    metrics: MetricsOptions = msgspec.field(default_factory=MetricsOptions)
    # `controller.groupKindConcurrency`, and after how long a start that cannot read its objects fails; None: never.
    concurrency: Mapping[str, int] = msgspec.field(default_factory=dict)
    sync_timeout_seconds: float | None = None
    # Whether QuotaSchedules are applied.
    quota_calendar: bool = False
    # Where the history of Workloads is kept; None: no history.
    history: HistoryOptions | None = None
    # After how long a Workload that others have passed counts as starving.
    starving_after: Nanoseconds = STARVING_AFTER
    # Whether the checks of Budgets are answered; it needs a history.
    budgets: bool = False
    # Whether pods that hang on an unreachable node are deleted by force, where they allow it.
    failure_recovery: bool = False
    # What computes forecasts; None: no forecasts.
    forecasts: WorkerOf | None = None

    @property
    def lifecycle(self) -> LifecycleOptions:
        return self.jobs.lifecycle

    def empty_world(self) -> World:
        """Return an empty scheduler state with the configured policy."""
        return World(self.policy, accounting=self.accounting, profile=self.profile)


class Manager:
    """The controllers, wired to each other and not yet running."""

    def __init__(
        self,
        client: ApiClient,
        options: ManagerOptions,
        clock: Clock,
        rng: random.Random,
        *,
        instance: str = "pykueue",
        election: LeaderElector | None = None,
    ) -> None:
        self.client = client
        self._clock = clock
        client = client.with_fence(election.may_write if election is not None else None)
        self.informers = Informers(client, rng, topology=options.policy.topology, reads_nodes=options.failure_recovery)
        self.recorder = EventRecorder(client.low_priority(), clock, instance)
        self.world = options.empty_world()
        measures = ManagerMetrics(options.metrics, self.world, self.informers, clock, lambda: client.sent)
        self.metrics = measures.metrics
        reporter = Reporter(self.recorder, measures.written)
        self.writer = WorkloadWriter(client, self.informers.workloads, reporter, election)
        self.auditor = StateAuditor(self.informers, self.world, options.empty_world, clock, self.metrics.audited)
        self.scheduler = self._scheduler(options, clock)
        background = self.scheduler.applier.background
        self.recorder.may_write, self.recorder.leaves_out = background.take_now, lambda: background.is_long_rush
        tools = _Tools(client, self.informers, self.writer, reporter, self.scheduler, measures, clock, rng)
        workload = WorkloadController(self.informers, self.scheduler, self.writer, options.lifecycle, clock, rng)
        always = tuple(_always(options, tools))
        jobs = JobsController(
            client,
            self.informers,
            self.writer,
            self.recorder,
            options.kinds,
            options.jobs,
            clock,
            rng,
            measures.job_action,
        )
        measures.waiting_frameworks = jobs.waiting.counts
        self._provisioning = ProvisioningController(
            client,
            self.informers,
            self.writer,
            clock,
            rng,
            cleanup=options.cleans_up_requests,
            excluded=self.world.excluded_from_checks,
        )
        remote = MultiKueueChecks(client, self.informers, self.writer, clock, rng)
        self.history = self._history(options, clock)
        self.budgets = self._budgets(options, tools)
        chosen = tuple(_as_chosen(options, tools, jobs.executor))
        own = (informer for part in chosen for informer in part.informers)
        budgets = (self.budgets.budgets,) if self.budgets is not None else ()
        self._jobs: tuple[Informer[Any], ...] = (*jobs.informers, self._provisioning.configs, *own, *budgets)
        self.loops: tuple[Controller[Any], ...] = (
            workload.loop,
            *always,
            jobs.loop,
            self._provisioning.loop,
            self._provisioning.checks_loop,
            remote.loop,
            remote.checks_loop,
            *(part.loop for part in chosen),
            *(self.budgets.loops if self.budgets is not None else ()),
        )
        concurrency.limit(self.loops, options.concurrency, options.kinds)
        self.forecaster = self._forecaster(options, clock)
        if self.forecaster is not None:
            measures.forecast_waits = self.forecaster.waits
            measures.forecast_coverage = self.forecaster.coverage_ratios
            measures.forecast_size_coverage = self.forecaster.size_coverage_ratios
        self.troubles = TroubleReporter(
            self.world, self.informers, self.writer, self.history, self.forecaster, clock, options.starving_after
        )
        self.scheduler.on_loop.append(self.troubles.loop_found)
        measures.starvation_rules = lambda: self.troubles.rules
        self._sync_timeout_seconds = options.sync_timeout_seconds
        self._clock_watch = ClockWatch(clock, self.loops, self.scheduler.wake)

    def _scheduler(self, options: ManagerOptions, clock: Clock) -> Scheduler:
        """Build the scheduler and subscribe it to every kind that scheduling depends on."""
        made = Scheduler(
            self.world,
            self.informers.workloads,
            self.writer,
            options.lifecycle,
            clock,
            self.informers.cluster_queue_facts,
            blocks_admission=options.blocks_admission,
        )
        made.on_cycle.append(self.metrics.cycle)
        made.on_sweep.append(self.metrics.swept)
        made.on_loop.append(lambda loop: self.metrics.loop_found(loop.cluster_queue))
        self.informers.in_cohort_cycle = lambda: self.world.in_cohort_cycle(clock.now())
        for informer in self.informers.scheduling:
            informer.add_handler(made.handle)
        return made

    def _history(self, options: ManagerOptions, clock: Clock) -> HistoryRecorder | None:
        if options.history is None:
            return None
        pods = self.informers.pods if options.policy.topology else None
        made = HistoryRecorder(options.history, self.informers.workloads, pods, clock, self.metrics.history_gaps)
        self.writer.history = made
        return made

    def _budgets(self, options: ManagerOptions, tools: _Tools) -> BudgetController | None:
        if not options.budgets or self.history is None:
            return None
        made = BudgetController(
            tools.client, self.informers, self.writer, self.history, tools.reporter, tools.clock, tools.rng
        )
        tools.measures.budget_ratios = made.ratios
        return made

    def _forecaster(self, options: ManagerOptions, clock: Clock) -> Forecaster | None:
        if options.forecasts is None:
            return None
        settings = SchedulerCase((), options.policy, options.accounting, options.profile, options.lifecycle)
        worker = options.forecasts(self.history)
        return Forecaster(settings, self.world, self.informers, self.history, clock, worker, self.budgets)

    @asynccontextmanager
    async def reading(
        self, start_order: Callable[[Sequence[Informer[Any]]], Sequence[Informer[Any]]] = tuple
    ) -> AsyncIterator[None]:
        """Run the informers; inside, all objects have been read. Raises `NotSynced` if that takes too long.

        `start_order` reorders the informers that start together: no behaviour may depend on their order.
        """
        timeout = self._sync_timeout_seconds
        async with run_informers(start_order(self.informers.shaping), timeout):
            # Trees of cohorts exist before Workloads are read: each of these is then added by itself, in turns.
            async for _ in turns.in_turns(self.world.prepare()):
                pass
            self.world.settle(self._clock.now())
            async with (
                run_informers((self.informers.workloads,), timeout),
                run_informers(start_order(self._jobs), timeout),
            ):
                process.objects_read()
                yield

    async def take_over(self) -> None:
        """Lead after another manager, which may have reserved quota that no watch has shown here yet."""
        await retry_transient(self.informers.workloads.wait_until_current)
        await self.lead()

    async def lead(self) -> None:
        """Decide and act until cancelled. Only one manager of a cluster may be here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(), name="recorder")
            group.create_task(self._provisioning.run(), name="provisioning-requests")
            for loop in self.loops:
                group.create_task(loop.run(), name=loop.name)
            group.create_task(self._clock_watch.run(), name="clock")
            group.create_task(self.scheduler.run(), name="scheduler")
            group.create_task(self.auditor.run(), name="auditor")
            group.create_task(self.troubles.run(), name="troubles")
            if self.history is not None:
                group.create_task(self.history.run(), name="history")
            if self.forecaster is not None:
                group.create_task(self.forecaster.run(), name="forecasts")

    @property
    def idle(self) -> bool:
        """Whether nothing is to be decided, written or reported now; timers do not count."""
        return self.scheduler.idle and self.recorder.idle and not any(loop.queue.busy for loop in self.loops)

    @property
    def copies(self) -> tuple[Informer[Any], ...]:
        """Return all informers that `reading` runs."""
        return (*self.informers.shaping, self.informers.workloads, *self._jobs)


# --- Controllers ------------------------------------------------------------------------------------------------------


class _Tools(msgspec.Struct, frozen=True):
    """What controllers are built from."""

    client: ApiClient
    informers: Informers
    writer: WorkloadWriter
    reporter: Reporter
    scheduler: Scheduler
    measures: ManagerMetrics
    clock: Clock
    rng: random.Random


class _Part(NamedTuple):
    """A controller, with the informers that only it needs."""

    loop: Controller[Any]
    informers: tuple[Informer[Any], ...] = ()


def _always(options: ManagerOptions, tools: _Tools) -> Iterator[Controller[Any]]:
    """Build the controllers of queues and of what they refer to."""
    client, informers, rng = tools.client, tools.informers, tools.rng
    yield QueuesController(client, informers, tools.scheduler, tools.clock, rng).loop
    yield InUseController(client, informers, tools.scheduler, rng, topology=options.policy.topology).loop
    yield PriorityClassController(client, informers, rng).loop


def _as_chosen(options: ManagerOptions, tools: _Tools, executor: JobReconciler) -> Iterator[_Part]:
    """Build the controllers that the configuration enables."""
    client, informers, writer, rng = tools.client, tools.informers, tools.writer, tools.rng
    if options.default_local_queues:
        kinds = informers.cluster_queues, informers.namespaces, informers.local_queues
        yield _Part(DefaultLocalQueues(client, *kinds, tools.reporter, BY_SPEC, rng).loop)
    if options.quota_calendar:
        schedules = QuotaScheduleController(client, informers, tools.scheduler, writer, tools.clock, rng)
        edges, statuses = schedules.loops
        yield _Part(edges, (schedules.informer,))
        yield _Part(statuses)
    if options.policy.planned_backfill:
        planned = PlannedStartController(client, tools.scheduler.world, informers, writer, tools.clock, rng)
        planned.on_change.append(tools.measures.metrics.plan_changed)
        tools.scheduler.on_plan_change.append(planned.publish)
        BackfillAnnotations(informers, tools.reporter)
        yield _Part(planned.loop)
    if options.policy.concurrent_admission:
        family = VariantsController(
            client,
            informers,
            writer,
            tools.scheduler,
            options.lifecycle,
            tools.clock,
            rng,
            short_names=options.jobs.short_names,
        )
        yield _Part(family.loop)
    pods = options.kinds.framework("pod")
    if options.jobs.elastic and pods is not None:
        elastic = ElasticController(client, informers, writer, executor, pods, rng)
        yield _Part(elastic.loop, (elastic.informer,))
    if options.policy.topology:
        yield _Part(UngatingController(client, informers, writer, rng, tools.measures.gate_removed).loop)
    if options.policy.topology and options.policy.node_replacement:
        yield _Part(NodeController(client, informers, writer, tools.reporter, options.nodes, tools.clock, rng).loop)
    if options.failure_recovery:
        yield _Part(FailureRecoveryController(client, informers, tools.reporter, tools.clock, rng).loop)
