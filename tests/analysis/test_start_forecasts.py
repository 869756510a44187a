"""When a job would start that is not submitted yet."""

from __future__ import annotations

import pytest

from kubemachinery import meta, yaml_documents
from kubemachinery.meta import MINUTE, SECOND
from pykueue.analysis import planner, start_forecasts, whatif
from pykueue.analysis.planner import Case
from pykueue.api import kueue
from pykueue.controllers.forecast_question import PastWorkloads
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.projection.documents import ForecastDocument, ForecastItem

NOW = meta.parse_time("2026-11-16T10:10:00Z")
BASE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q, namespace: default}
spec: {clusterQueue: q}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: holder, namespace: default, creationTimestamp: "2026-11-16T10:00:00Z"}
spec:
  queueName: q
  maximumExecutionTimeSeconds: 3600
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
status:
  admission: {clusterQueue: q, podSetAssignments: [{name: main, count: 1, flavors: {cpu: f}, resourceUsage: {cpu: 1}}]}
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-11-16T10:00:00Z"}
  - {type: Admitted, status: "True", reason: Admitted, message: "", lastTransitionTime: "2026-11-16T10:00:00Z"}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: mine, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
"""


GATES = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {Budgets: true, QuotaCalendar: true}
"""
BUDGET = """
apiVersion: pykueue.io/v1alpha1
kind: Budget
metadata: {name: daily, creationTimestamp: "2026-11-01T00:00:00Z"}
spec: {every: Day, timeZone: UTC, per: Total, amounts: [{resource: cpu, hours: 2}]}
"""
CHECK = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: check}
spec: {controllerName: NAME, parameters: {apiGroup: pykueue.io, kind: Budget, name: daily}}
status:
  conditions:
  - {type: Active, status: "True", reason: Active, message: "", lastTransitionTime: "2026-11-01T00:00:00Z"}
"""
MIDNIGHT = meta.parse_time("2026-11-17T00:00:00Z")
RUNS_FOR = {"default/holder": start_forecasts.estimate_of(900, 900, None)}
NO_HISTORY = "no other Workload arrives: no history is given"


def checked(*more: str, controller: str = "pykueue.io/budget") -> tuple[Case, list[kueue.Workload]]:
    """The objects with an admission check and with the job, and the Workload of the job."""
    strategy = "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: check}]}"
    base = BASE.replace("  namespaceSelector: {}", strategy)
    return submitted("---".join((base, CHECK.replace("NAME", controller), *more)))


def submitted(base: str) -> tuple[Case, list[kueue.Workload]]:
    case = planner.read(yaml_documents.parse(base, "base"))
    changed = whatif.changed_by(case, planner.read(yaml_documents.parse(JOB, "job")), [], NOW)
    return changed, start_forecasts.new_workloads(case, changed)


def only(found: ForecastDocument) -> ForecastItem:
    (item,) = found.items
    return item


def past(number: int, submitted: int, admitted: int, seconds: int, *, is_open: bool = False) -> WorkloadRecord:
    """A Workload of one core in the queue, submitted so many seconds ago."""
    now = NOW // SECOND
    begin, start = now - submitted, now - submitted + admitted
    end = None if is_open else start + seconds
    segment = UsageSegment(start, end, (("f", "cpu", 1000),))
    return WorkloadRecord(
        uid=f"past-{number}",
        namespace="default",
        name=f"past-{number}",
        queue="q",
        submitted=begin,
        ended=end,
        outcome=Outcome.UNKNOWN if is_open else Outcome.SUCCEEDED,
        attempts=(Attempt(begin, "q", begin, start, end, "" if is_open else "Finished", "", (segment,)),),
    )


def test_a_job_that_is_not_submitted_starts_after_the_holder_ends() -> None:
    case, new = submitted(BASE)
    item = only(start_forecasts.starts(case, new, NOW, {}))
    assert item.because == "default/holder"
    assert item.p50 is not None
    assert item.p90 is not None
    # The holder has a limit of an hour, and ten minutes of it have passed.
    assert NOW < meta.parse_time(item.p50) < meta.parse_time(item.p90) <= NOW + 50 * MINUTE
    item = only(start_forecasts.starts(case, new, NOW, RUNS_FOR))
    assert meta.parse_time(item.p50 or "") == NOW + 5 * MINUTE


def test_without_a_history_a_forecast_states_what_is_not_known() -> None:
    case, new = submitted(BASE)
    assert start_forecasts.starts(case, new, NOW, {}).assumes == (NO_HISTORY, start_forecasts.NOT_CORRECTED)
    case, new = checked(controller="example.com/check")
    found = start_forecasts.starts(case, new, NOW, RUNS_FOR)
    assert found.assumes == (NO_HISTORY, "admission checks pass at once", start_forecasts.NOT_CORRECTED)
    assert only(found).p50 == meta.format_time(NOW + 5 * MINUTE)


def test_checks_take_as_long_as_in_the_history() -> None:  # [FC11]
    case, new = checked(controller="example.com/check")
    day = 86_400
    records = [past(number, day - 4000 * number, 300, 3600) for number in range(6)]
    found = start_forecasts.starts(case, new, NOW, RUNS_FOR, PastWorkloads(records, records[0].submitted))
    assert "admission checks take as long as they took in the last 4 weeks" in found.assumes
    assert "no other Workload arrives: the history is shorter than a week" in found.assumes
    assert only(found).p50 == meta.format_time(NOW + 10 * MINUTE)


def test_past_runs_give_the_run_times_of_workloads_without_an_estimate() -> None:
    case, new = submitted(BASE.replace("  maximumExecutionTimeSeconds: 3600\n", ""))
    assert only(start_forecasts.starts(case, new, NOW, {})).reason
    records = [past(number, 90_000 + 4000 * number, 0, 1200) for number in range(8)]
    item = only(start_forecasts.starts(case, new, NOW, {}, PastWorkloads(records, records[-1].submitted)))
    assert item.p50 == meta.format_time(NOW + 10 * MINUTE)


def test_a_job_waits_for_the_next_period_of_a_budget_that_the_history_has_spent() -> None:  # [FC10]
    case, new = checked(GATES, BUDGET)
    spent = [past(0, 5 * 3600, 0, 2 * 3600)]
    found = start_forecasts.starts(case, new, NOW, RUNS_FOR, PastWorkloads(spent, spent[0].submitted - 30 * 86_400))
    item = only(found)
    assert item.because == "the next period of Budget daily begins"
    assert MIDNIGHT <= meta.parse_time(item.p50 or "") <= MIDNIGHT + MINUTE
    assert not [each for each in found.assumes if "counted" in each or "at once" in each]


def test_without_a_history_only_present_workloads_are_charged() -> None:
    case, new = checked(GATES, BUDGET)
    found = start_forecasts.starts(case, new, NOW, RUNS_FOR)
    assert only(found).p50 == meta.format_time(NOW + 5 * MINUTE)
    assert "of what Budgets have spent, only Workloads that still exist are counted" in found.assumes
    # The holder was admitted ten minutes ago, and uses up the Budget before it ends.
    case, new = checked(GATES, BUDGET.replace("hours: 2", 'hours: "0.2"'))
    item = only(start_forecasts.starts(case, new, NOW, RUNS_FOR))
    assert item.because == "the next period of Budget daily begins"


def test_a_history_that_begins_after_the_first_period_is_stated() -> None:
    case, new = checked(GATES, BUDGET)
    records = [past(0, 3600, 0, 60)]
    found = start_forecasts.starts(case, new, NOW, RUNS_FOR, PastWorkloads(records, records[0].submitted))
    assert "what Budgets spent before the history begins at 2026-11-16T09:10:00Z is not counted" in found.assumes


def test_a_record_without_an_end_whose_workload_is_gone_is_charged_until_now() -> None:
    """It has used an hour and 50 minutes; the holder ten, and both together the two hours of the Budget."""
    case, new = checked(GATES, BUDGET)
    since = NOW // SECOND - 30 * 86_400
    almost = [past(0, 6500, 0, 0, is_open=True)]
    item = only(start_forecasts.starts(case, new, NOW, RUNS_FOR, PastWorkloads(almost, since)))
    assert item.because == "the next period of Budget daily begins"
    less = [past(0, 3600, 0, 0, is_open=True)]
    item = only(start_forecasts.starts(case, new, NOW, RUNS_FOR, PastWorkloads(less, since)))
    assert item.p50 == meta.format_time(NOW + 5 * MINUTE)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ((BUDGET,), "AdmissionCheck check is taken to pass: the gate Budgets is off"),
        ((GATES,), "AdmissionCheck check is taken to pass: Budget daily does not exist"),
    ],
)
def test_the_check_of_a_budget_that_is_not_asked_is_stated(more: tuple[str, ...], sentence: str) -> None:
    case, new = checked(*more)
    assert sentence in start_forecasts.starts(case, new, NOW, RUNS_FOR).assumes


def test_a_forecast_knows_the_windows_of_quota_schedules() -> None:
    closed = """
apiVersion: pykueue.io/v1alpha1
kind: QuotaSchedule
metadata: {name: night}
spec:
  timeZone: UTC
  windows: [{name: closed, cron: "0 10 * * *", duration: 2h}]
  targets:
  - clusterQueue: q
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 0}]}]
"""
    case, new = submitted("---".join((BASE, GATES, closed)))
    item = only(start_forecasts.starts(case, new, NOW, RUNS_FOR))
    assert meta.parse_time(item.p50 or "") == meta.parse_time("2026-11-16T12:00:00Z")
