"""The Configuration kind of `config.kueue.x-k8s.io`, v1beta2: the settings of the manager, field by field.

`config_v1beta1` has the older version by its differences, `validation.configuration` the rules that span fields, and
`settings` turns the whole into the values that each package gets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from kubemachinery.fields import Field, Int32, Quantity
from kubemachinery.meta import ApiStruct, LabelSelector
from pykueue.api import labels

GROUP: Final = "config.kueue.x-k8s.io"
V1BETA1: Final = f"{GROUP}/v1beta1"
V1BETA2: Final = f"{GROUP}/v1beta2"
KIND: Final = "Configuration"

DEFAULT_NAMESPACE: Final = "kueue-system"

# Spelt as Go spells durations: `30m`, `1h30m`, `500ms`.
Duration: TypeAlias = Annotated[str, Field(format="duration")]


class QuotaCheck(StrEnum):
    ALL = "All"
    ONLY_DECLARED = "OnlyDeclared"


class QuotaCheckStrategy(StrEnum):
    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class TransformationStrategy(StrEnum):
    RETAIN = "Retain"
    REPLACE = "Replace"


class PreemptionStrategy(StrEnum):
    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class RequeuingTimestamp(StrEnum):
    CREATION = "Creation"
    EVICTION = "Eviction"


class MetricLabelSource(StrEnum):
    CLUSTER_QUEUE = "ClusterQueue"
    LOCAL_QUEUE = "LocalQueue"
    COHORT = "Cohort"
    WORKLOAD = "Workload"


# The job kinds that Kueue manages: the name of the framework, and its kind.
FRAMEWORKS: Final = {
    "batch/job": "Job.v1.batch",
    "jobset.x-k8s.io/jobset": "JobSet.v1alpha2.jobset.x-k8s.io",
    "kubeflow.org/mpijob": "MPIJob.v2beta1.kubeflow.org",
    "kubeflow.org/pytorchjob": "PyTorchJob.v1.kubeflow.org",
    "kubeflow.org/tfjob": "TFJob.v1.kubeflow.org",
    "kubeflow.org/xgboostjob": "XGBoostJob.v1.kubeflow.org",
    "kubeflow.org/paddlejob": "PaddleJob.v1.kubeflow.org",
    "kubeflow.org/jaxjob": "JAXJob.v1.kubeflow.org",
    "trainer.kubeflow.org/trainjob": "TrainJob.v1alpha1.trainer.kubeflow.org",
    "ray.io/raycluster": "RayCluster.v1.ray.io",
    "ray.io/rayjob": "RayJob.v1.ray.io",
    "ray.io/rayservice": "RayService.v1.ray.io",
    "workload.codeflare.dev/appwrapper": "AppWrapper.v1beta2.workload.codeflare.dev",
    "sparkoperator.k8s.io/sparkapplication": "SparkApplication.v1beta2.sparkoperator.k8s.io",
    "pod": "Pod.v1.",
    "deployment": "Deployment.v1.apps",
    "statefulset": "StatefulSet.v1.apps",
    "leaderworkerset.x-k8s.io/leaderworkerset": "LeaderWorkerSet.v1.leaderworkerset.x-k8s.io",
}


# --- The process and its servers --------------------------------------------------------------------------------------


class ControllerWebhook(ApiStruct, frozen=True):
    port: Annotated[
        Int32 | None, Field("The port that webhooks are served on.", default=9443, minimum=1, maximum=65535)
    ] = None
    host: Annotated[str, Field("The address that webhooks are served on; empty means all.")] = ""
    cert_dir: Annotated[
        str,
        Field(
            "The folder that holds the serving certificate and its key.",
            default="/tmp/k8s-webhook-server/serving-certs",
        ),
    ] = ""


class LeaderElection(ApiStruct, frozen=True):
    leader_elect: Annotated[
        bool | None, Field("Whether several managers agree on one leader before one of them acts.", default=True)
    ] = None
    lease_duration: Annotated[
        Duration | None,
        Field("How long followers wait after the last renewal before one becomes the leader.", default="15s"),
    ] = None
    renew_deadline: Annotated[
        Duration | None, Field("How long the leader tries to renew before it stops leading.", default="10s")
    ] = None
    retry_period: Annotated[Duration | None, Field("How long to wait between two attempts.", default="2s")] = None
    resource_lock: Annotated[
        str, Field("The kind of object that holds the lock.", default="leases", enum=("leases",))
    ] = ""
    resource_name: Annotated[str, Field("The name of the lock.", default="c1f6bfd2.kueue.x-k8s.io")] = ""
    resource_namespace: Annotated[str, Field("The namespace of the lock; empty means the manager's own.")] = ""


class LocalQueueMetrics(ApiStruct, frozen=True):
    enable: Annotated[bool | None, Field("Whether each LocalQueue has series of its own.", default=True)] = None
    local_queue_selector: Annotated[LabelSelector | None, Field("Which LocalQueues have them; absent means all.")] = (
        None
    )


class CustomMetricLabel(ApiStruct, frozen=True):
    name: Annotated[
        str,
        Field(
            "The label's name; series carry it with the prefix `custom_`.",
            pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$",
        ),
    ] = ""
    source_kind: Annotated[
        str,
        Field(
            "The kind of object the value is read from.",
            default=MetricLabelSource.CLUSTER_QUEUE.value,
            enum=MetricLabelSource,
        ),
    ] = ""
    source_label_key: Annotated[str, Field("The label that holds the value; the name by default.")] = ""
    source_annotation_key: Annotated[str, Field("The annotation that holds the value, instead of a label.")] = ""
    tracked_values: Annotated[
        tuple[str, ...], Field("The values that are counted separately; all others are counted as one.", max_items=16)
    ] = ()


class ControllerMetrics(ApiStruct, frozen=True):
    bind_address: Annotated[str, Field("The address of the metrics server; `0` turns it off.", default=":8443")] = ""
    enable_cluster_queue_resources: Annotated[
        bool, Field("Whether quota and usage of ClusterQueues are exported per flavor and resource.")
    ] = False
    custom_labels: Annotated[
        tuple[CustomMetricLabel, ...],
        Field("Labels and annotations of objects that become labels of metrics.", max_items=20),
    ] = ()
    local_queue_metrics: Annotated[LocalQueueMetrics | None, Field("Metrics per LocalQueue.", default={})] = None


class ControllerHealth(ApiStruct, frozen=True):
    health_probe_bind_address: Annotated[str, Field("The address of the health server.", default=":8081")] = ""
    readiness_endpoint_name: Annotated[str, Field("The path of the readiness probe.", default="readyz")] = ""
    liveness_endpoint_name: Annotated[str, Field("The path of the liveness probe.", default="healthz")] = ""


class ControllerConfigurationSpec(ApiStruct, frozen=True):
    group_kind_concurrency: Annotated[
        dict[str, Int32], Field("How many objects of a kind (`Kind.group`) are reconciled at once.")
    ] = {}
    cache_sync_timeout: Annotated[
        Duration | None, Field("How long to wait for the first lists at start.", default="2m")
    ] = None


class TLSOptions(ApiStruct, frozen=True):
    min_version: Annotated[
        str, Field("The oldest TLS version that is served.", enum=("VersionTLS12", "VersionTLS13"))
    ] = ""
    cipher_suites: Annotated[tuple[str, ...], Field("The cipher suites that are served; only below TLS 1.3.")] = ()
    curve_preferences: Annotated[
        tuple[Int32, ...], Field("The key exchanges that are offered, by their numbers as TLS groups.")
    ] = ()


class InternalCertManagement(ApiStruct, frozen=True):
    enable: Annotated[
        bool | None, Field("Whether the manager makes, rotates and injects its own certificates.", default=True)
    ] = None
    webhook_service_name: Annotated[
        str, Field("The Service in front of the webhooks.", default="kueue-webhook-service")
    ] = ""
    webhook_secret_name: Annotated[
        str, Field("The Secret that keeps the certificates.", default="kueue-webhook-server-cert")
    ] = ""


class ClientConnection(ApiStruct, frozen=True):
    qps: Annotated[
        float | None, Field("Requests a second to the API server; negative means no limit.", default=300.0)
    ] = None
    burst: Annotated[
        Int32 | None, Field("How many requests may go out at once before the limit is felt.", default=500)
    ] = None


class VisibilityServerConfiguration(ApiStruct, frozen=True):
    bind_address: Annotated[str, Field("The IP address that the visibility API is served on.", default="0.0.0.0")] = ""
    bind_port: Annotated[
        Int32 | None, Field("The port that the visibility API is served on.", default=8082, minimum=1, maximum=65535)
    ] = None


# --- Jobs -------------------------------------------------------------------------------------------------------------


class RequeuingStrategy(ApiStruct, frozen=True):
    timestamp: Annotated[
        str,
        Field(
            "Where an evicted Workload queues up again: by its creation, or by its eviction.",
            default=RequeuingTimestamp.EVICTION.value,
            enum=RequeuingTimestamp,
        ),
    ] = ""
    backoff_limit_count: Annotated[
        Int32 | None,
        Field("How often a Workload is requeued before it is deactivated; absent means for ever.", minimum=0),
    ] = None
    backoff_base_seconds: Annotated[
        Int32 | None,
        Field("The wait before the second attempt; it doubles with each one after.", default=60, minimum=0),
    ] = None
    backoff_max_seconds: Annotated[
        Int32 | None, Field("The longest wait between two attempts.", default=3600, minimum=0)
    ] = None


class WaitForPodsReady(ApiStruct, frozen=True):
    timeout: Annotated[
        Duration | None, Field("How long an admitted Workload may take until its pods are ready.", default="30m")
    ] = None
    recovery_timeout: Annotated[
        Duration | None,
        Field(
            "How long a Workload whose pods were ready may take to get there again; `0s` turns it off. The same as `timeout` by default."
        ),
    ] = None
    block_admission: Annotated[
        bool | None, Field("Whether nothing else is admitted until the pods of the last one are ready.", default=False)
    ] = None
    requeuing_strategy: Annotated[
        RequeuingStrategy | None, Field("How evicted Workloads are requeued.", default={})
    ] = None


class Integrations(ApiStruct, frozen=True):
    frameworks: Annotated[
        tuple[str, ...], Field("The job kinds that are managed, by their framework names.", default=["batch/job"])
    ] = ()
    external_frameworks: Annotated[
        tuple[str, ...],
        Field("Kinds that other controllers manage, as `Kind.version.group`; they are recognized as owners."),
    ] = ()
    label_keys_to_copy: Annotated[tuple[str, ...], Field("Labels of a job that its Workload gets too.")] = ()


class MultiKueueExternalFramework(ApiStruct, frozen=True):
    name: Annotated[str, Field("The kind, as `kind.version.group`.")] = ""


class MultiKueueIncrementalDispatcher(ApiStruct, frozen=True):
    step_size: Annotated[Int32 | None, Field("How many clusters are added in each round.", default=3, minimum=1)] = None


class MultiKueueAccessProvider(ApiStruct, frozen=True):
    name: Annotated[str, Field("The provider's name, as ClusterProfiles use it.", min_length=1)] = ""
    exec_config: Annotated[
        dict[str, Any],
        Field("How to run the credential plugin, as in a kubeconfig.", preserve_unknown=True),
    ] = {}


class MultiKueueClusterProfile(ApiStruct, frozen=True):
    access_providers: Annotated[
        tuple[MultiKueueAccessProvider, ...], Field("Credential plugins for access to a cluster.")
    ] = ()
    credentials_providers: Annotated[
        tuple[MultiKueueAccessProvider, ...], Field("The older name of `accessProviders`.")
    ] = ()


class MultiKueue(ApiStruct, frozen=True):
    gc_interval: Annotated[
        Duration | None, Field("How often orphans on worker clusters are looked for; `0s` turns it off.", default="1m")
    ] = None
    origin: Annotated[
        str, Field("The label value that marks what this manager made on worker clusters.", default="multikueue")
    ] = ""
    worker_lost_timeout: Annotated[
        Duration | None,
        Field(
            "How long a worker cluster may be unreachable before its Workloads are moved to another one.", default="15m"
        ),
    ] = None
    dispatcher_name: Annotated[str, Field("What nominates worker clusters.", default=labels.DISPATCHER_ALL_AT_ONCE)] = (
        ""
    )
    external_frameworks: Annotated[
        tuple[MultiKueueExternalFramework, ...], Field("Further kinds that can be sent to worker clusters.")
    ] = ()
    cluster_profile: Annotated[MultiKueueClusterProfile | None, Field("Access to clusters by ClusterProfile.")] = None
    incremental_dispatcher_config: Annotated[
        MultiKueueIncrementalDispatcher | None, Field("The incremental dispatcher's pace.")
    ] = None


# --- Decisions --------------------------------------------------------------------------------------------------------


class FairSharingConfig(ApiStruct, frozen=True):
    preemption_strategies: Annotated[
        tuple[str, ...],
        Field(
            "The rules under which a ClusterQueue may preempt in another with a larger share, in the order in which they are tried."
        ),
    ] = ()


class AdmissionFairSharing(ApiStruct, frozen=True):
    usage_half_life_time: Annotated[
        Duration | None, Field("After how long past usage counts half; `0s` forgets at once.", default="0s")
    ] = None
    usage_sampling_interval: Annotated[Duration | None, Field("How often usage is sampled.", default="5m")] = None
    resource_weights: Annotated[dict[str, float], Field("How much each resource counts; 1 by default.")] = {}


class ResourceTransformation(ApiStruct, frozen=True):
    input: Annotated[str, Field("The resource that pods request.", min_length=1)] = ""
    strategy: Annotated[
        str,
        Field(
            "Whether the input is still counted (`Retain`) or not (`Replace`).",
            default=TransformationStrategy.RETAIN.value,
            enum=TransformationStrategy,
        ),
    ] = ""
    multiply_by: Annotated[str, Field("A resource whose requested amount multiplies the outputs.")] = ""
    outputs: Annotated[dict[str, Quantity], Field("What one unit of the input counts as.")] = {}


class DeviceExpression(ApiStruct, frozen=True):
    expression: Annotated[str, Field("A CEL expression over `device`.", min_length=1)] = ""


class DeviceSelector(ApiStruct, frozen=True):
    cel: Annotated[DeviceExpression | None, Field("Devices for which an expression is true.")] = None


class DeviceCounterSource(ApiStruct, frozen=True):
    name: Annotated[str, Field("The counter that is charged.")] = ""
    driver: Annotated[str, Field("The driver that publishes it.")] = ""
    device_selector: Annotated[DeviceSelector | None, Field("Which devices are meant.")] = None


class DeviceCapacitySource(ApiStruct, frozen=True):
    name: Annotated[str, Field("The capacity that is charged.")] = ""
    driver: Annotated[str, Field("The driver that publishes it.")] = ""
    device_selector: Annotated[DeviceSelector | None, Field("Which devices are meant.")] = None


class DeviceSource(ApiStruct, frozen=True):
    counter: Annotated[DeviceCounterSource | None, Field("Charge a counter of partitioned devices.")] = None
    capacity: Annotated[DeviceCapacitySource | None, Field("Charge a capacity of shared devices.")] = None


class DeviceClassMapping(ApiStruct, frozen=True):
    name: Annotated[str, Field("The resource that quota is defined for.", max_length=253)] = ""
    device_class_names: Annotated[
        tuple[str, ...], Field("The device classes that count as this resource.", min_items=1, max_items=8)
    ] = ()
    sources: Annotated[tuple[DeviceSource, ...], Field("What is charged instead of a count of devices.")] = ()


class Resources(ApiStruct, frozen=True):
    quota_check_strategy: Annotated[
        str,
        Field(
            "What a resource means that a ClusterQueue does not list: it blocks, or it is ignored.",
            default=QuotaCheckStrategy.BLOCK_UNDECLARED.value,
            enum=QuotaCheckStrategy,
        ),
    ] = ""
    quota_check: Annotated[
        str,
        Field(
            "The same as in KEP-7513, under the gate `QuotaCheck`: quota counts every requested resource, or only the declared ones.",
            enum=QuotaCheck,
        ),
    ] = ""
    exclude_resource_prefixes: Annotated[
        tuple[str, ...], Field("Resources with a name that begins with one of these never count against quota.")
    ] = ()
    transformations: Annotated[
        tuple[ResourceTransformation, ...], Field("How requested resources count as others.")
    ] = ()
    device_class_mappings: Annotated[
        tuple[DeviceClassMapping, ...], Field("How devices count as resources.", max_items=16)
    ] = ()


class WorkloadRetentionPolicy(ApiStruct, frozen=True):
    after_finished: Annotated[
        Duration | None, Field("How long finished Workloads are kept; absent means for ever.")
    ] = None
    after_deactivated_by_kueue: Annotated[
        Duration | None,
        Field("How long Workloads that the manager deactivated are kept, with their jobs; absent means for ever."),
    ] = None


class ObjectRetentionPolicies(ApiStruct, frozen=True):
    workloads: Annotated[WorkloadRetentionPolicy | None, Field("How long Workloads are kept.")] = None


# --- The whole --------------------------------------------------------------------------------------------------------


class Configuration(ApiStruct, frozen=True):
    """Settings of the manager. Read once, at start."""

    api_version: str = V1BETA2
    kind: str = KIND
    namespace: Annotated[
        str,
        Field(
            "The namespace that the manager runs in; its service account's by default, else `kueue-system`.",
            default=DEFAULT_NAMESPACE,
        ),
    ] = ""
    webhook: Annotated[ControllerWebhook | None, Field("The webhook server.", default={})] = None
    leader_election: Annotated[LeaderElection | None, Field("How several managers agree on a leader.", default={})] = (
        None
    )
    metrics: Annotated[ControllerMetrics | None, Field("The metrics server.", default={})] = None
    health: Annotated[ControllerHealth | None, Field("The health server.", default={})] = None
    pprof_bind_address: Annotated[str, Field("The address of the profiling server; empty means none.")] = ""
    controller: Annotated[
        ControllerConfigurationSpec | None, Field("How controllers work through their queues.", default={})
    ] = None
    tls: Annotated[TLSOptions | None, Field("What the servers accept as TLS.")] = None
    manage_jobs_without_queue_name: Annotated[
        bool, Field("Whether jobs that name no queue are suspended until they do.")
    ] = False
    managed_jobs_namespace_selector: Annotated[
        LabelSelector | None,
        Field(
            "The namespaces in which jobs without a queue name are managed. By default all but `kube-system` and the manager's own; it may never match those two."
        ),
    ] = None
    internal_cert_management: Annotated[
        InternalCertManagement | None, Field("Certificates made by the manager itself.", default={})
    ] = None
    wait_for_pods_ready: Annotated[
        WaitForPodsReady | None,
        Field("All-or-nothing: what happens to a Workload whose pods do not get ready.", default={}),
    ] = None
    client_connection: Annotated[
        ClientConnection | None, Field("The pace of requests to the API server.", default={})
    ] = None
    integrations: Annotated[Integrations | None, Field("The job kinds that are managed.", default={})] = None
    multi_kueue: Annotated[MultiKueue | None, Field("Sending jobs to worker clusters.", default={})] = None
    fair_sharing: Annotated[
        FairSharingConfig | None, Field("Sharing by weight among the ClusterQueues of a cohort. Absent means off.")
    ] = None
    admission_fair_sharing: Annotated[
        AdmissionFairSharing | None,
        Field("Sharing by past usage among the LocalQueues of a ClusterQueue. Absent means off."),
    ] = None
    resources: Annotated[Resources | None, Field("What counts against quota, and as what.")] = None
    object_retention_policies: Annotated[
        ObjectRetentionPolicies | None, Field("When objects that are done are deleted.")
    ] = None
    visibility_server: Annotated[
        VisibilityServerConfiguration | None, Field("The server of the visibility API.", default={})
    ] = None
    feature_gates: Annotated[dict[str, bool], Field("Feature gates by name.")] = {}
