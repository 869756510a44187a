"""Labels, annotations, finalizers and scheduling gates of the queueing system.

Every key is defined here once. Where a key is read both as a label and as an annotation, it is one constant.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "kueue.x-k8s.io"

# --- Labels on jobs, pods and Workloads -------------------------------------------------------------------------------

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""On jobs and pods: the LocalQueue they go to."""
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
"""On jobs and Workloads: the WorkloadPriorityClass. It may change at any time."""
MAX_EXEC_TIME_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""On jobs: how long they may run before they are deactivated."""
PREBUILT_WORKLOAD_NAME: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""On jobs, as a label or an annotation: the prebuilt Workload of the job."""
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""On Workloads: the UID of their job."""
MANAGED: Final = "kueue.x-k8s.io/managed"
"""With the value "true" on pods, ProvisioningRequests and PodTemplates: managed. Also the finalizer of pods."""
PODSET: Final = "kueue.x-k8s.io/podset"
"""On pods and their templates: the pod set they belong to."""
LOCAL_QUEUE_NAME: Final = "kueue.x-k8s.io/local-queue-name"
"""On pods of admitted Workloads: the LocalQueue."""
CLUSTER_QUEUE_NAME: Final = "kueue.x-k8s.io/cluster-queue-name"
"""On pods of admitted Workloads: the ClusterQueue, where its name is short enough for a label."""
POD_GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
"""On pods, as a label or an annotation: the group that is admitted together."""
POD_GROUP_POD_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
"""On pods: their place in the group."""
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""On objects of a worker cluster: the manager that created them."""
MULTIKUEUE_WORKER_WORKLOAD_POD: Final = "kueue.x-k8s.io/multikueue-worker-workload-pod"
"""With the value "true" on pods of a worker cluster."""
CONCURRENT_ADMISSION_PARENT: Final = "kueue.x-k8s.io/concurrent-admission-parent"
"""With the value "true" on a Workload that tries several flavors through variants."""
AUTO_GENERATED: Final = "kueue.x-k8s.io/auto-generated"
"""With the value "true" on LocalQueues that the manager created."""

RBAC_BATCH_ADMIN: Final = "rbac.kueue.x-k8s.io/batch-admin"
RBAC_BATCH_USER: Final = "rbac.kueue.x-k8s.io/batch-user"
RBAC_ROLE: Final = "rbac.kueue.x-k8s.io/role"

# --- Annotations ------------------------------------------------------------------------------------------------------

ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
COMPONENT_WORKLOAD_INDEX: Final = "kueue.x-k8s.io/component-workload-index"
CREATED_BY_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/created-by-clusterqueue"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"
JOB_COMPLETIONS_EQUAL_PARALLELISM: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
JOB_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
JOB_OWNER_GVK: Final = "kueue.x-k8s.io/job-owner-gvk"
JOB_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
MULTIKUEUE_ORIGIN_UID: Final = "kueue.x-k8s.io/multikueue-origin-uid"
POD_GROUP_FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
POD_GROUP_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
POD_GROUP_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP_TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
POD_INDEX_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"
POD_SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
PODSET_GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"
PODSET_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
PODSET_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
PODSET_SLICE_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
PODSET_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
PODSET_UNCONSTRAINED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
RAYCLUSTER_GENERATION: Final = "kueue.x-k8s.io/raycluster-generation"
RAYCLUSTER_PODSET_REPLICA_SIZES: Final = "kueue.x-k8s.io/raycluster-podset-replica-sizes"
RETRIABLE_IN_GROUP: Final = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
SAFE_TO_FORCEFULLY_DELETE: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
STOPPING: Final = "kueue.x-k8s.io/stopping"
WORKLOAD: Final = "kueue.x-k8s.io/workload"
WORKLOAD_ALLOWED_RESOURCE_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
WORKLOAD_SLICE_NAME: Final = "kueue.x-k8s.io/workload-slice-name"
WORKLOAD_SLICE_REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"

UNREAD_OWNER: Final = "pykueue.io/unread-owner"
"""On jobs and pods that were suspended or gated because an owner could not be read, so that it is unknown whether the
owner is managed; the value names the owner. The reconciler removes it as soon as the owner has been read."""

SUBMITTED_BY: Final = "pykueue.io/submitted-by"
"""On jobs, copied to their Workloads: the user name of the request that created the job (gate WorkloadHints)."""
EXPECTED_TIME: Final = "pykueue.io/expected-time"
"""On jobs, copied to their Workloads: the expected run time, as a duration such as `90m`."""
START_P50: Final = "pykueue.io/start-p50"
START_P90: Final = "pykueue.io/start-p90"
"""On items of the visibility API: when the Workload is expected to start, in half and in 9 of 10 cases."""
ACTIVE_DEADLINE_SECONDS: Final = "pykueue.io/active-deadline-seconds"
"""On Workloads: the deadline that the controller of their job enforces, in seconds (gate WorkloadHints)."""

PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""Annotations of a job that start so are parameters of its ProvisioningRequest."""
CONSUME_PROVISIONING_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS_NAME: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""On pods: the ProvisioningRequest that provides their nodes, and its class."""

# --- Finalizers, gates, controllers -----------------------------------------------------------------------------------

RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
POD_FINALIZER: Final = MANAGED

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
ELASTIC_JOB_GATE: Final = "kueue.x-k8s.io/elastic-job"

MULTIKUEUE_PREEMPTION_GATE: Final = "kueue.x-k8s.io/multikueue"
CONCURRENT_ADMISSION_PREEMPTION_GATE: Final = "kueue.x-k8s.io/concurrent-admission"

PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""The check controller, and the value of a job's `managedBy` that leaves it to a worker cluster."""

DISPATCHER_ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
DISPATCHER_INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"

# --- Names that mean something ----------------------------------------------------------------------------------------

DEFAULT_LOCAL_QUEUE: Final = "default"
DEFAULT_PRIORITY_CLASS: Final = "default"
DEFAULT_POD_SET: Final = "main"

# --- Labels of others, in which pods carry their index ----------------------------------------------------------------

JOB_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
KUBEFLOW_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
STATEFUL_SET_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
HOSTNAME: Final = "kubernetes.io/hostname"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
