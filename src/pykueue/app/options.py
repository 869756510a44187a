"""The Configuration as the options of each package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.client.leader_election import LeaderElectionConfig
from kubemachinery.meta import Nanoseconds
from pykueue.api import config
from pykueue.api.budget import BudgetEvery
from pykueue.controllers.assembly import ManagerOptions
from pykueue.controllers.forecaster import InlineWorker, process_worker
from pykueue.controllers.history_recorder import (
    DEFAULT_RETENTION_SECONDS,
    HistoryOptions,
    StoreWorker,
    thread_worker,
)
from pykueue.controllers.topology import NodeFailureOptions
from pykueue.core import requests
from pykueue.core.topology import PlacementOptions
from pykueue.errors import ConfigurationError
from pykueue.history import budget_rules
from pykueue.history.budget_periods import LONGEST_SECONDS
from pykueue.jobs.options import IntegrationOptions
from pykueue.observe.metrics import MetricsOptions
from pykueue.settings import Settings
from pykueue.state.troubles import STARVING_AFTER
from pykueue.webhooks.review import WebhookOptions

# The timeout that zero stands for, as in Kueue.
_SYNC_TIMEOUT_SECONDS: Final = 120.0
# As in Kueue. `plan` replaces a failed node in its first cycle.
NODE_REPLACEMENT_DELAY: Final[Nanoseconds] = meta.SECOND


def webhook_options(settings: Settings) -> WebhookOptions:
    jobs = IntegrationOptions.of(settings.configuration, settings.gates, settings.pod_namespace_selector)
    return WebhookOptions.of(settings.job_kinds, jobs, settings.gates, only_declared=settings.ignores_undeclared)


def manager_options(
    settings: Settings,
    history: HistoryOptions | None = None,
    starving_after: Nanoseconds = STARVING_AFTER,
    *,
    is_real_time: bool = True,
) -> ManagerOptions:
    """Return the options of a manager, with the documented differences from Kueue enabled (`departures`). On a virtual
    clock no other process is started."""
    resources, on = settings.configuration.resources, settings.gates
    controller = settings.configuration.controller or config.ControllerConfigurationSpec()
    prefixes = resources.exclude_resource_prefixes if resources else ()
    transformations = resources.transformations if resources else ()
    return ManagerOptions(
        policy=replace(settings.policy, departures=True, node_replacement_delay=NODE_REPLACEMENT_DELAY),
        accounting=requests.accounting(prefixes, transformations),
        profile=PlacementOptions.of(on),
        kinds=settings.job_kinds,
        jobs=IntegrationOptions.of(settings.configuration, settings.gates, settings.pod_namespace_selector),
        nodes=NodeFailureOptions(
            on_pod_termination=on["TASReplaceNodeOnPodTermination"],
            on_taints=on["TASReplaceNodeOnNodeTaints"],
            after_fixed_time=on["TASReplaceNodeDueToNotReadyOverFixedTime"],
        ),
        blocks_admission=bool(
            settings.configuration.wait_for_pods_ready
            and settings.configuration.wait_for_pods_ready.block_admission
            and not on["DisableWaitForPodsReady"]
        ),
        default_local_queues=on["DefaultLocalQueue"],
        quota_calendar=on["QuotaCalendar"],
        cleans_up_requests=on["CleanupProvisioningRequestsOnEviction"],
        metrics=MetricsOptions.of(settings.configuration, settings.gates),
        concurrency=controller.group_kind_concurrency,
        sync_timeout_seconds=_seconds(controller.cache_sync_timeout) or _SYNC_TIMEOUT_SECONDS,
        history=history,
        starving_after=starving_after,
        budgets=on["Budgets"],
        failure_recovery=on["FailureRecoveryPolicy"],
        forecasts=(process_worker if is_real_time else InlineWorker) if on["StartForecast"] else None,
    )


def require_history(settings: Settings, history: HistoryOptions | None) -> None:
    """Refuse a start whose gates need a history that is not kept, or not kept for long enough [BU8]."""
    if not settings.gates["Budgets"]:
        return
    if history is None:
        raise ConfigurationError("featureGates", ["Budgets: needs a history: name a file with --history"])
    kept, needed = history.retention_seconds, budget_rules.PERIODS_KEPT * LONGEST_SECONDS[BudgetEvery.DAY]
    if kept is not None and kept < needed:
        raise ConfigurationError(
            "featureGates", ["Budgets: needs two periods of history: set --history-retention to at least 2d"]
        )


def history_options(
    settings: Settings,
    path: Path | None,
    *,
    retention_seconds: int | None = DEFAULT_RETENTION_SECONDS,
    user_label: str = "",
    worker: Callable[[], StoreWorker] = thread_worker,
) -> HistoryOptions | None:
    """Return how the history is kept, in a file or in memory; None with the gate off."""
    if not settings.gates["History"]:
        return None
    return HistoryOptions(path, retention_seconds, user_label, worker)


def leader_election_config(settings: Settings) -> LeaderElectionConfig:
    chosen = settings.configuration.leader_election or config.LeaderElection()
    return LeaderElectionConfig(
        name=chosen.resource_name,
        namespace=chosen.resource_namespace or settings.configuration.namespace or config.DEFAULT_NAMESPACE,
        lease_duration_seconds=_seconds(chosen.lease_duration, 15.0),
        renew_deadline_seconds=_seconds(chosen.renew_deadline, 10.0),
        retry_period_seconds=_seconds(chosen.retry_period, 2.0),
    )


def _seconds(text: str | None, otherwise: float = 0.0) -> float:
    return meta.parse_duration(text) / meta.SECOND if text else otherwise
