"""An admission check of your own: no Workload starts, and none goes on, once its namespace has spent its weekly budget.

    budget.py --prometheus http://prometheus:9090 --query 'sum(core_hours_this_week{namespace="NAMESPACE"})'

The budget of a namespace is a WeeklyBudget in it; what was consumed is asked of Prometheus. Nothing here knows how the
queueing works inside: the program watches AdmissionChecks, Workloads and WeeklyBudgets, and answers in
`status.admissionChecks`. To base admission on something else, change `decide` and `Prometheus`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import logging
import os
import random
import urllib.parse
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from kubemachinery import quantity
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind, Scope, Version

log = logging.getLogger("budget")

Tree = dict[str, Any]

NAME = "budget.example.com/weekly"
CHECK = Kind("kueue.x-k8s.io", "AdmissionCheck", "admissionchecks", (Version("v1beta2", storage=True),), Scope.CLUSTER)
WORKLOAD = Kind("kueue.x-k8s.io", "Workload", "workloads", (Version("v1beta2", storage=True),))
BUDGET = Kind("budget.example.com", "WeeklyBudget", "weeklybudgets", (Version("v1", storage=True),))

LONGEST_PAUSE = datetime.timedelta(minutes=15)


# --- Deciding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The answer of the check. With Retry, `again` is how long the Workload stays out of the queue."""

    state: str
    message: str
    again: datetime.timedelta | None = None


def decide(workload: Tree, budget: Decimal | None, consumed: Decimal, now: datetime.datetime) -> Answer:
    """Ready below the budget; Retry above it, next week at the latest; Rejected for what no week's budget could pay."""
    if budget is None:
        return Answer("Ready", "The namespace has no WeeklyBudget")
    if (least := core_hours(workload)) is not None and least > budget:
        return Answer("Rejected", f"It may take {least} core hours, and a week has {budget}")
    if consumed < budget:
        return Answer("Ready", f"{consumed} of {budget} core hours are spent this week")
    wait = min(next_week(now) - now, LONGEST_PAUSE)
    return Answer("Retry", f"All of the {budget} core hours of this week are spent ({consumed})", wait)


def core_hours(workload: Tree) -> Decimal | None:
    """What the Workload may take at most; None where it has no maximum execution time."""
    seconds = workload["spec"].get("maximumExecutionTimeSeconds")
    if seconds is None:
        return None
    given = (each.get("resourceUsage", {}) for each in workload["status"]["admission"]["podSetAssignments"])
    milli_cores = sum(quantity.parse(usage.get("cpu", "0")).milli_value() for usage in given)
    return Decimal(milli_cores * seconds) / 3_600_000


def next_week(now: datetime.datetime) -> datetime.datetime:
    monday = now.date() + datetime.timedelta(days=7 - now.weekday())
    return datetime.datetime.combine(monday, datetime.time(), datetime.UTC)


def is_asked(workload: Tree) -> bool:
    """Past the first stage, and not at its end: it holds quota, and waits or runs."""
    conditions = {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", [])}
    is_over = conditions.get("Finished") == "True" or conditions.get("Evicted") == "True"
    return conditions.get("QuotaReserved") == "True" and not is_over


# --- Asking -----------------------------------------------------------------------------------------------------------


class Meter(Protocol):
    async def consumed(self, namespace: str) -> Decimal: ...


@dataclass(frozen=True)
class Prometheus:
    url: str
    query: str

    async def consumed(self, namespace: str) -> Decimal:
        return await asyncio.to_thread(self._ask, self.query.replace("NAMESPACE", namespace))

    def _ask(self, query: str) -> Decimal:
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return Decimal(found[0]["value"][1]) if found else Decimal(0)


# --- The controller ---------------------------------------------------------------------------------------------------


class BudgetController:
    """Looks at every Workload that it is asked about, when something changes and every now and then."""

    def __init__(self, client: ApiClient, meter: Meter, every_seconds: float, rng: random.Random) -> None:
        self._client = client
        self._meter = meter
        self._every_seconds = every_seconds
        self.checks: Informer[Tree] = Informer(client, CHECK, json.loads, rng)
        self.budgets: Informer[Tree] = Informer(client, BUDGET, json.loads, rng)
        self.workloads: Informer[Tree] = Informer(client, WORKLOAD, json.loads, rng)
        self.loop: Controller[tuple[str, ObjectKey]] = Controller("budget", self._reconcile, rng)
        self.checks.add_handler(self._check_seen)
        self.budgets.add_handler(self._budget_seen)
        self.workloads.add_handler(lambda change: self.loop.add(("Workload", change.key)))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (self.checks, self.budgets, self.workloads):
                group.create_task(informer.run())
                await informer.wait_for_sync()
            group.create_task(self.loop.run())

    def _check_seen(self, change: InformerEvent[Tree]) -> None:
        self.loop.add(("AdmissionCheck", change.key))
        self._enqueue_workloads()

    def _budget_seen(self, change: InformerEvent[Tree]) -> None:
        self._enqueue_workloads(change.key.namespace)

    def _enqueue_workloads(self, namespace: str = "") -> None:
        for key, _ in self.workloads.items():
            if not namespace or key.namespace == namespace:
                self.loop.add(("Workload", key))

    async def _reconcile(self, what: tuple[str, ObjectKey]) -> float | None:
        kind, key = what
        return await (self._activate(key) if kind == "AdmissionCheck" else self._answer(key))

    async def _activate(self, key: ObjectKey) -> None:
        """Set the condition Active of the AdmissionCheck; ClusterQueues wait for it."""
        check = self.checks.get(key.name)
        if check is None or check["spec"]["controllerName"] != NAME:
            return
        if any(each["type"] == "Active" for each in check.get("status", {}).get("conditions", [])):
            return
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "Budgets are looked at"}
        await self._apply(CHECK, check, {"conditions": [{**active, "lastTransitionTime": written(now())}]})

    async def _answer(self, key: ObjectKey) -> float | None:
        workload = self.workloads.get(key.name, key.namespace)
        asked = [each for each in (workload or {}).get("status", {}).get("admissionChecks", []) if self._is_ours(each)]
        if workload is None or not asked or not is_asked(workload):
            return None
        budget = next((each for at, each in self.budgets.items() if at.namespace == key.namespace), None)
        amount = None if budget is None else Decimal(str(budget["spec"]["coreHours"]))
        try:
            consumed = await self._meter.consumed(key.namespace)
        except OSError as error:
            # No job is stopped or started because a meter cannot be read.
            log.warning("%s: what was consumed is not known: %s", key, error)
            return self._every_seconds
        answer = decide(workload, amount, consumed, now())
        news = [updated(each, answer) for each in asked if each["state"] != answer.state]
        if news:
            log.info("%s: %s. %s", key, answer.state, answer.message)
            await self._apply(WORKLOAD, workload, {"admissionChecks": news})
        # A check is never over: what runs now may be above its budget in an hour.
        return self._every_seconds

    def _is_ours(self, check: Tree) -> bool:
        found = self.checks.get(check["name"])
        return found is not None and found["spec"]["controllerName"] == NAME

    async def _apply(self, kind: Kind, found: Tree, status: Tree) -> None:
        """Write our part of a status, and only upon what was looked at: an eviction in between resets the check."""
        kept = ("name", "namespace", "resourceVersion")
        metadata = {name: value for name, value in found["metadata"].items() if name in kept}
        tree = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "status": status}
        await self._client.apply(kind, tree, NAME, subresource="status")


def updated(check: Tree, answer: Answer) -> Tree:
    entry = {"name": check["name"], "state": answer.state, "message": answer.message}
    if answer.again is not None:
        entry["requeueAfterSeconds"] = int(answer.again.total_seconds())
    return {**entry, "lastTransitionTime": written(now())}


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def written(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


async def run(arguments: argparse.Namespace) -> None:
    rng = random.Random()
    target = client_config.find(os.environ, arguments.kubeconfig)
    transport = client_config.connect(target, SystemClock(), user_agent="budget")
    try:
        meter = Prometheus(arguments.prometheus, arguments.query)
        await BudgetController(ApiClient(transport, rng), meter, arguments.every, rng).run()
    finally:
        await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Holds Workloads of namespaces that have spent their weekly budget.")
    parser.add_argument("--kubeconfig", default="", help="the server; as kubectl finds it where this is absent")
    parser.add_argument("--prometheus", required=True, help="where consumption is asked for")
    parser.add_argument("--query", default='sum(core_hours_this_week{namespace="NAMESPACE"})')
    parser.add_argument("--every", type=float, default=60.0, help="how often to look again, in seconds")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
