"""The traits of a run: the features it uses, its gates, and the configuration of the manager.

A trait is a row of `TRAITS` with percentage of runs that have it; the seed picks. A gate of a proposal is on in
half of the runs, whether or not their objects use its field: off, the field must do nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from simulation.engine import job_kinds
from simulation.engine.revisions import Tree

# trait -> percentage of runs that have it
_FIRST: Final[Mapping[str, int]] = {
    "jobs": 50,  # most work comes as batch/v1 Jobs instead of bare Workloads
    "checks": 30,  # queues have admission checks, and a simulated controller
    "deferred preemptions": 50,  # some checks want preemptions to wait for them (KEP-993)
    "fair sharing": 20,
    "admission fair sharing": 12,
    "topology": 15,  # one flavor has nodes
    "pods ready": 20,  # pods that do not come up cost a Workload its place
    "one at a time": 30,  # and no other Workload is admitted before they are (blockAdmission)
    "limited time": 15,  # some work may run only so long
    "partial": 15,  # some work is content with fewer pods
    "rush": 10,  # many come at once, so that whatever is free is taken at once
    "meddling": 15,  # users change objects all the time
    "two managers": 25,
    "disk": 10,  # the server keeps its objects in SQLite
    "poison": 20,  # objects that make no sense, and must not stop others
    "default queues": 20,  # ClusterQueues ask for LocalQueues in the namespaces they select (KEP-7610)
    "unnamed jobs": 20,  # Jobs that name no queue (KEP-3589)
    "excluded resources": 20,  # ClusterQueues leave resources out (KEP-5800)
    "undeclared resources": 20,  # work asks for what queues do not declare (KEP-7513)
}
# These came later, and are drawn from an rng of their own, so that old seeds keep their runs.
LATER: Final[Mapping[str, int]] = {
    "pods": 4,  # some work comes as plain pods and groups of pods
    "elastic": 6,  # some Jobs grow and shrink while they wait and run
    "provisioning": 12,  # a check asks an autoscaler for nodes, which is simulated too
    "node failures": 30,  # nodes go, fall ill and come back
    "churn": 2,  # small work keeps coming long after the faults are over
    "rebuilding": 12,  # cohorts, limits, flavors, policies and namespaces are changed under those who wait
    "by hand": 8,  # users start and stop Jobs themselves, and delete their Workloads
    "piecemeal": 12,  # pods of Jobs are done one after the other, and some Jobs fail
    "several groups": 8,  # queues have memory beside CPUs, of the same flavors or of others; some work has two pod sets
    "taints": 8,  # flavors have labels and taints, which users change; some work asks for these, or stands them
    "retention": 8,  # what is done, or was given up, is deleted after some seconds
    "prebuilt": 8,  # users create the Workloads of some Jobs: before, after, wrong or never
    "alpha gates": 25,  # gates of the scheduler are on that are off by default
    "informer order": 20,  # informers that start together start in a drawn order, another one at every start
    "job kinds": 10,  # some work comes as JobSets, PyTorchJobs, RayClusters and RayJobs, with their operators
    "pods of controllers": 8,  # some work comes as Deployments, StatefulSets and LeaderWorkerSets
    "short turns": 20,  # the loop continues wherever a long task lets it: after each object of a list or a watch
    "variants": 3,  # queues have a concurrentAdmissionPolicy: work is tried on every flavor by a Workload of its own
}
TRAITS: Final[Mapping[str, int]] = {**_FIRST, **LATER}
NEEDS: Final[Mapping[str, str]] = {
    "deferred preemptions": "checks",
    "provisioning": "checks",
    "elastic": "jobs",
    "by hand": "jobs",
    "piecemeal": "jobs",
    "prebuilt": "jobs",
    "node failures": "topology",
    "one at a time": "pods ready",
    "unnamed jobs": "jobs",
}
# The gates of the proposals; KEP-993 has none.
GATES: Final = (
    "DefaultLocalQueue",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
    "ClusterQueueExcludeResourcePrefixes",
    "QuotaCheck",
)

# Gates that are off by default, on in runs with the trait "alpha gates".
ALPHA_GATES: Final = (
    "ConcurrentAdmission",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "MultiKueueOrchestratedPreemption",
    "PrioritizePreemptorWorkloads",
)

# Where jobs without a queue name are ours.
_MANAGED: Final = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default", "ours"]}

Traits = frozenset[str]


def draw(rng: random.Random, later: random.Random) -> Traits:
    """Every trait is drawn, also those that then lack what they need, so that one row does not move the others."""
    drawn = {name for name, percent in _FIRST.items() if rng.random() * 100 < percent}
    drawn |= {name for name, percent in LATER.items() if later.random() * 100 < percent}
    return frozenset(name for name in drawn if NEEDS.get(name, name) in drawn)


def configuration(traits: Traits, rng: random.Random) -> Tree:
    """What the operator wrote."""
    found: Tree = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {name: rng.random() < 0.5 for name in GATES},
        "leaderElection": {"leaderElect": "two managers" in traits},
    }
    if "alpha gates" in traits:
        found["featureGates"] |= dict.fromkeys(ALPHA_GATES, True)
    if "variants" in traits:
        found["featureGates"]["ConcurrentAdmission"] = True
    frameworks = ["pod"] * ("pods" in traits)
    if "job kinds" in traits:
        frameworks += [each.framework for each in job_kinds.OF_OPERATORS]
    if "pods of controllers" in traits:
        frameworks += [each.framework for each in job_kinds.PARENTS.values()]
    if frameworks:
        found["integrations"] = {"frameworks": ["batch/job", *frameworks]}
    if "fair sharing" in traits:
        strategies = [["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ["LessThanInitialShare"]]
        found["fairSharing"] = {"preemptionStrategies": rng.choice(strategies)}
    if "admission fair sharing" in traits:
        found["admissionFairSharing"] = {"usageHalfLifeTime": "30s", "usageSamplingInterval": "5s"}
    if "pods ready" in traits:
        found["waitForPodsReady"] = {
            "timeout": "8s",
            "recoveryTimeout": "8s",
            "blockAdmission": "one at a time" in traits,
            "requeuingStrategy": {
                "timestamp": rng.choice(("Creation", "Eviction")),
                "backoffLimitCount": rng.randint(0, 3),
                "backoffBaseSeconds": rng.randint(0, 3),
                "backoffMaxSeconds": 10,
            },
        }
    if "retention" in traits:
        kept = {"afterFinished": "10s", "afterDeactivatedByKueue": "10s"}
        found["objectRetentionPolicies"] = {"workloads": kept}
    if "unnamed jobs" in traits:
        found["manageJobsWithoutQueueName"] = rng.random() < 0.7
        found["managedJobsNamespaceSelector"] = {"matchExpressions": [_MANAGED]}
    if "undeclared resources" in traits:
        found["resources"] = {"quotaCheck": rng.choice(("All", "OnlyDeclared"))}
    return found
