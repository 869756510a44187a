"""When a job would start that is not submitted yet."""

from __future__ import annotations

from kubemachinery import meta, yaml_documents
from kubemachinery.meta import MINUTE
from pykueue.analysis import planner, start_forecasts, whatif

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


def test_a_job_that_is_not_submitted_starts_after_the_holder_ends() -> None:
    case = planner.read(yaml_documents.parse(BASE, "base"))
    changed = whatif.changed_by(case, planner.read(yaml_documents.parse(JOB, "job")), [], NOW)
    (new,) = start_forecasts.new_workloads(case, changed)
    scope = start_forecasts.scope_of(changed, [new], NOW)
    (item,) = start_forecasts.starts(scope, [new], NOW, {}).items
    assert item.because == "default/holder"
    assert item.p50 is not None
    assert item.p90 is not None
    # The holder has a limit of an hour, and ten minutes of it have passed.
    assert NOW < meta.parse_time(item.p50) < meta.parse_time(item.p90) <= NOW + 50 * MINUTE
    known = {"default/holder": start_forecasts.estimate_of(900, 900, None)}
    (item,) = start_forecasts.starts(scope, [new], NOW, known).items
    assert meta.parse_time(item.p50 or "") == NOW + 5 * MINUTE
