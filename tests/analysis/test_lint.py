"""Every rule reports what it is for, and nothing about valid objects."""

from __future__ import annotations

import pytest

from kubemachinery import yaml_documents
from pykueue.analysis import lint, planner
from pykueue.api.effects import NO_MULTIKUEUE

SOUND = """
kind: Namespace
apiVersion: v1
metadata: {name: team}
---
kind: ResourceFlavor
metadata: {name: cpu-nodes}
spec: {nodeLabels: {pool: cpu}}
---
kind: Node
apiVersion: v1
metadata: {name: one, labels: {pool: cpu}}
status: {allocatable: {cpu: 16, memory: 64Gi}}
---
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: cpu-nodes
      resources: [{name: cpu, nominalQuota: 8}, {name: memory, nominalQuota: 32Gi}]
---
kind: LocalQueue
metadata: {name: queue, namespace: team}
spec: {clusterQueue: research}
"""

JOB = """
kind: Job
apiVersion: batch/v1
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: queue}}
spec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}
"""

GATES = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {ClusterQueueExcludeResourcePrefixes: true, DefaultLocalQueue: true}
"""

EXCLUDING = "ClusterQueueExcludeResourcePrefixes"
EXCLUDES = "  namespaceSelector: {}\n  excludeResourcePrefixes: [mem]"

MULTIKUEUE = """
---
kind: AdmissionCheck
metadata: {name: mk}
spec: {controllerName: kueue.x-k8s.io/multikueue}
---
kind: MultiKueueConfig
metadata: {name: workers}
spec: {clusters: [east]}
---
kind: MultiKueueCluster
metadata: {name: east}
spec: {clusterSource: {kubeConfig: {location: east, locationType: Secret}}}
"""

# rule -> what is written in place of what, or beside it; and the finding.
SPOILT: dict[str, tuple[str, str, str]] = {
    "missing-flavor": (
        "    - name: cpu-nodes",
        "    - name: gone",
        "ClusterQueue research: ResourceFlavor gone does not exist: the queue is inactive",
    ),
    "missing-check": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
        "ClusterQueue research: AdmissionCheck budget does not exist: the queue is inactive",
    ),
    "missing-topology": (
        "spec: {nodeLabels: {pool: cpu}}",
        "spec: {nodeLabels: {pool: cpu}, topologyName: racks}",
        "ResourceFlavor cpu-nodes: Topology racks does not exist: queues that use it are inactive",
    ),
    "missing-cluster-queue": (
        "spec: {clusterQueue: research}",
        "spec: {clusterQueue: reserch}",
        "LocalQueue team/queue: ClusterQueue reserch does not exist",
    ),
    "unselected-namespace": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {matchLabels: {team: a}}",
        (
            "LocalQueue team/queue: ClusterQueue research does not select namespace team: "
            "nothing in this queue is ever admitted"
        ),
    ),
    "no-namespace-selector": (
        "  namespaceSelector: {}\n",
        "",
        "ClusterQueue research: has no namespaceSelector, which selects no namespace; {} selects all",
    ),
    "selects-no-namespace": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {matchLabels: {team: a}}",
        "ClusterQueue research: its namespaceSelector matches no existing namespace",
    ),
    "no-local-queue": (
        "spec: {clusterQueue: research}",
        "spec: {clusterQueue: another}",
        "ClusterQueue research: it has no LocalQueue: no job can use it",
    ),
    "unknown-queue": (
        "kind: Namespace",
        f"{JOB.replace('queue-name: queue', 'queue-name: queu')}---\nkind: Namespace",
        "Job team/train: LocalQueue team/queu does not exist: it waits until the LocalQueue is created",
    ),
    "undeclared-resource": (
        "kind: Namespace",
        f"{JOB.replace('cpu: 1', 'nvidia.com/gpu: 1')}---\nkind: Namespace",
        "Job team/train: requests nvidia.com/gpu, and ClusterQueue research has no quota for it",
    ),
    "unknown-field": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  cohort: shared",
        "ClusterQueue research: unknown field spec.cohort; did you mean cohortName?",
    ),
    "refused": (
        "nodeLabels: {pool: cpu}",
        "nodeLabels: {pool: not a label}",
        (
            "ResourceFlavor cpu-nodes: spec.nodeLabels: Invalid value: \"not a label\": must be letters, digits, '-', "
            "'_' and '.', with a letter or digit first and last, or be empty"
        ),
    ),
    "no-quota": (
        "{name: cpu, nominalQuota: 8}, {name: memory, nominalQuota: 32Gi}",
        "{name: cpu, nominalQuota: 0}, {name: memory, nominalQuota: 0}",
        "ClusterQueue research: has no quota, and no cohort to borrow from: it admits nothing",
    ),
    "out-of-proportion": (
        "{name: cpu, nominalQuota: 8}",
        "{name: cpu, nominalQuota: 8000}",
        ("ClusterQueue research: flavor cpu-nodes has 8k cores with 32Gi of memory; millicores are written with m"),
    ),
    "cohort-cycle": (
        "kind: Namespace",
        (
            "kind: Cohort\nmetadata: {name: a}\nspec: {parentName: b}\n---\n"
            "kind: Cohort\nmetadata: {name: b}\nspec: {parentName: a}\n---\nkind: Namespace"
        ),
        "Cohort a: is its own ancestor (cohort cycle): no queue below it admits anything",
    ),
    "beyond-nodes": (
        "nominalQuota: 8}",
        "nominalQuota: 17}",
        ("ResourceFlavor cpu-nodes: quotas of cpu sum to 17, the nodes have 16: admitted pods will stay Pending"),
    ),
    "tainted-nodes": (
        "status: {allocatable",
        "spec: {taints: [{key: maintenance, value: soon, effect: NoSchedule}]}\nstatus: {allocatable",
        (
            "ResourceFlavor cpu-nodes: all of its nodes have taints that are in neither nodeTaints nor tolerations: "
            "admitted pods are not scheduled unless they have the tolerations themselves"
        ),
    ),
    "units": (
        "nominalQuota: 32Gi",
        "nominalQuota: 32",
        (
            "ClusterQueue research: memory of flavor cpu-nodes: 32 is less than one mebibyte; "
            "a number without a suffix is bytes"
        ),
    ),
    "unused-flavor": (
        "kind: Namespace",
        "kind: ResourceFlavor\nmetadata: {name: spare}\n---\nkind: Namespace",
        "ResourceFlavor spare: no ClusterQueue uses it",
    ),
    "ineffective-preemption": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  preemption: {reclaimWithinCohort: Any}",
        "ClusterQueue research: reclaimWithinCohort is Any, and the queue is in no cohort: it has no effect",
    ),
    "ineffective-weight": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  fairSharing: {weight: 2}",
        "ClusterQueue research: has weight 2, and fair sharing is off: it has no effect",
    ),
    "alone-in-cohort": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  cohortName: lonely",
        "ClusterQueue research: is alone in cohort lonely: it cannot borrow or lend",
    ),
    "excluded-quota": (
        "kind: Namespace",
        f"{GATES}---\nkind: Namespace",
        "ClusterQueue research: excludes 'mem', so its quota for memory is never counted",
    ),
    "no-effect": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  excludeResourcePrefixes: [mem]",
        f"ClusterQueue research: spec.excludeResourcePrefixes has no effect while the gate {EXCLUDING} is off",
    ),
    "missing-budget": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: hours}]}",
        "AdmissionCheck hours: Budget weekly does not exist: the check is inactive",
    ),
    "no-controller": (
        "  namespaceSelector: {}",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: mk}]}",
        f"ClusterQueue research: AdmissionCheck mk never becomes active ({NO_MULTIKUEUE}): the queue is inactive",
    ),
}

BUDGET_CHECK = """
---
kind: AdmissionCheck
metadata: {name: hours}
spec:
  controllerName: pykueue.io/budget
  parameters: {apiGroup: pykueue.io, kind: Budget, name: weekly}
"""

SECOND_QUEUE = """
---
kind: ClusterQueue
metadata: {name: second}
spec:
  namespaceSelector: {}
  cohortName: shared
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: cpu-nodes, resources: [{name: cpu, nominalQuota: 2, lendingLimit: 0}]}
---
kind: ClusterQueue
metadata: {name: third}
spec:
  namespaceSelector: {}
  cohortName: shared
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: cpu-nodes, resources: [{name: cpu, nominalQuota: 2, lendingLimit: 0}]}
    - {name: same-nodes, resources: [{name: cpu, nominalQuota: 2, lendingLimit: 0}]}
---
kind: ResourceFlavor
metadata: {name: same-nodes}
spec: {nodeLabels: {pool: cpu}}
---
kind: LocalQueue
metadata: {name: strict, namespace: team}
spec: {clusterQueue: third}
---
kind: Workload
metadata: {name: huge, namespace: team, uid: huge}
spec:
  queueName: strict
  podSets:
  - name: main
    count: 1
    template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 40}}}]}}
"""


def found(text: str) -> dict[str, set[str]]:
    whole = "\n---\n".join(
        part if "apiVersion" in part else f"apiVersion: kueue.x-k8s.io/v1beta2\n{part.strip()}"
        for part in text.split("\n---\n")
    )
    by_rule: dict[str, set[str]] = {}
    case = planner.read(yaml_documents.parse(whole, "test"))
    for finding in lint.lint(planner.queued(case, case.jobs, 0)):
        by_rule.setdefault(finding.rule, set()).add(f"{finding.place}: {finding.sentence}")
    return by_rule


def test_what_is_well_made_is_left_in_peace() -> None:
    assert found(SOUND) == found(f"{SOUND}---{JOB}") == {}


KINDS = """
kind: PyTorchJob
apiVersion: kubeflow.org/v1
metadata: {name: torch, namespace: team, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, image: i, resources: {requests: {cpu: 1}}}]}}}
    Worker:
      replicas: 2
      template:
        metadata: {annotations: {kueue.x-k8s.io/podset-slice-size: "1"}}
        spec: {containers: [{name: pytorch, image: i, resources: {requests: {cpu: 1}}}]}
---
kind: JobSet
apiVersion: jobset.x-k8s.io/v1alpha2
metadata: {name: set, namespace: team, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  replicatedJobs:
  - name: driver
    replicas: 3
    template: {spec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: 1}}}]}}}}
"""


def test_jobs_of_every_kind_are_checked() -> None:
    """What the webhook would refuse, and what the queues cannot give, by the kind of the job."""
    torch = "spec.pytorchReplicaSpecs[Worker].template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"
    slices = "Forbidden: may only be set together with kueue.x-k8s.io/podset-slice-required-topology"
    assert found(f"{SOUND}---{KINDS}") == {
        "refused": {f"PyTorchJob team/torch: {torch}: {slices}"},
        "undeclared-resource": {
            "JobSet team/set: requests nvidia.com/gpu, and ClusterQueue research has no quota for it"
        },
    }


def test_jobs_of_frameworks_that_are_not_enabled_are_not_checked() -> None:
    configuration = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job]}
"""
    assert found(f"{SOUND}---{KINDS}---{configuration}") == {}


@pytest.mark.parametrize(
    ("written", "sentence"),
    [("1e9999", "'1e9999' has an exponent beyond 2000"), ("9" * 400, "is too long to be a quantity: 400 characters")],
)
def test_request_that_is_not_a_quantity_is_a_finding(written: str, sentence: str) -> None:
    job = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: large, namespace: team, labels: {{kueue.x-k8s.io/queue-name: jobs}}}}
spec: {{template: {{spec: {{containers: [{{name: main, resources: {{requests: {{cpu: "{written}"}}}}}}]}}}}}}
"""
    [finding] = found(f"{SOUND}---{job}")["units"]
    assert finding.startswith("Job team/large: cpu of container main: ")
    assert sentence in finding


@pytest.mark.parametrize("rule", SPOILT)
def test_a_rule_finds_what_it_is_for(rule: str) -> None:
    before, after, finding = SPOILT[rule]
    assert before in SOUND
    corrupted = SOUND.replace(before, after, 1)
    if rule == "excluded-quota":
        corrupted = corrupted.replace("  namespaceSelector: {}", EXCLUDES, 1)
    if rule == "no-controller":
        corrupted += MULTIKUEUE
    if rule == "missing-budget":
        corrupted += BUDGET_CHECK
    assert finding in found(corrupted)[rule]


def test_an_exclusion_is_not_claimed_while_its_gate_is_off() -> None:
    assert "excluded-quota" not in found(SOUND.replace("  namespaceSelector: {}", EXCLUDES, 1))


def test_a_default_local_queue_is_a_way_in_only_while_its_gate_is_on() -> None:
    text = SOUND.replace("clusterQueue: research", "clusterQueue: another").replace(
        "  namespaceSelector: {}", "  namespaceSelector: {}\n  defaultLocalQueue: {name: own}"
    )
    assert "no-local-queue" in found(text)
    assert "no-local-queue" not in found(f"{GATES}---{text}")


def test_a_policy_of_concurrent_admission_is_named_while_its_gate_is_off() -> None:
    policy = "  namespaceSelector: {}\n  concurrentAdmissionPolicy: {migration: {mode: TryPreferredFlavors}}"
    findings = found(SOUND.replace("  namespaceSelector: {}", policy, 1))["no-effect"]
    assert findings == {
        "ClusterQueue research: spec.concurrentAdmissionPolicy has no effect while the gate ConcurrentAdmission is off"
    }


def test_a_check_of_a_budget_is_named_while_its_gate_is_off() -> None:
    """Its queue is inactive, as with any check without a controller."""
    uses = "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: hours}]}"
    text = SOUND.replace("  namespaceSelector: {}", uses, 1) + BUDGET_CHECK
    sentence = (
        "ClusterQueue research: AdmissionCheck hours never becomes active (the gate Budgets is off): the queue is"
    )
    assert found(text)["no-controller"] == {f"{sentence} inactive"}
    gates = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {Budgets: true}\n"
    assert "no-controller" not in found(f"{gates}---{text}")


def test_objects_of_multikueue_are_named() -> None:
    findings = found(SOUND + MULTIKUEUE)["no-effect"]
    assert (
        "MultiKueueConfig workers: spec.clusters has no effect: MultiKueue is not implemented in this version"
        in findings
    )
    assert any(each.startswith("MultiKueueCluster east: spec.clusterSource has no effect") for each in findings)
    assert any(each.startswith("AdmissionCheck mk: spec.controllerName") for each in findings)


def test_rules_about_several_queues() -> None:
    findings = found(SOUND + SECOND_QUEUE)
    assert findings["no-lending"] == {"Cohort shared: none of its 2 ClusterQueues lends anything: none can borrow"}
    assert findings["shadowed-flavor"] == {
        "ClusterQueue third: flavors cpu-nodes and same-nodes select the same nodes: their quotas add up"
    }
    assert findings["exceeds-capacity"] == {
        "Workload team/huge: requested 40 cpu of flavor cpu-nodes, maximum capacity 2"
    }
    assert findings["blocked-strict-fifo"] == {
        "ClusterQueue third: is StrictFIFO, and team/huge can never be admitted: it blocks the queue"
    }


def test_flavors_that_select_the_same_nodes_share_them() -> None:
    text = SOUND + SECOND_QUEUE.partition("---\nkind: LocalQueue")[0]
    assert "beyond-nodes" not in found(text), "8, 2, 2 and 2 of 16"
    more = text.replace(
        "same-nodes, resources: [{name: cpu, nominalQuota: 2", "same-nodes, resources: [{name: cpu, nominalQuota: 7"
    )
    [finding] = found(more)["beyond-nodes"]
    assert finding.startswith(
        "ResourceFlavor cpu-nodes and ResourceFlavor same-nodes: quotas of cpu sum to 19, the nodes have 16"
    )


def test_planned_backfill_with_a_topology_is_named() -> None:
    backfill = "{name: research, annotations: {pykueue.io/backfill: EASY}}"
    planned = SOUND.replace(
        "kind: ClusterQueue\nmetadata: {name: research}", f"kind: ClusterQueue\nmetadata: {backfill}"
    )
    assert "backfill-topology" not in found(planned), "without a topology nodes do not matter"
    placed = planned.replace("spec: {nodeLabels: {pool: cpu}}", "spec: {nodeLabels: {pool: cpu}, topologyName: racks}")
    [finding] = found(placed)["backfill-topology"]
    assert finding == (
        "ClusterQueue research: planned starts consider quota and not the nodes of flavor cpu-nodes: they are expected,"
        " not certain"
    )


def test_every_rule_is_tried() -> None:
    # The last one is about a case that was read from a server; tests/analysis/test_live_case.py has it.
    together = {"no-lending", "shadowed-flavor", "exceeds-capacity", "blocked-strict-fifo", "unread-configuration"}
    # tests/analysis/test_quota_schedules.py
    in_schedules = {"schedule-calendar", "schedule-target", "schedule-sum", "schedule-notice"}
    together.add("backfill-topology")
    assert SPOILT.keys() | together | in_schedules == lint.RULES.keys()
