"""The parts of Kubernetes' own types that pykueue reads.

Only fields that are read are declared; changes are made to the tree of an object. Types that occur in pykueue's CRDs
describe their fields, because `kubectl explain` shows them. A field that the API requires has the default
`required(…)`. Absent text reads as "" where Kubernetes does not distinguish the two, and as None where it does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from kubemachinery.fields import Field, Int32, Int64, Quantity, Time, ValidationRule, always, required
from kubemachinery.meta import ApiStruct, LabelSelector, ObjectMeta

ResourceList: TypeAlias = dict[str, Quantity]
Labels: TypeAlias = dict[str, str]

API_VERSION = Field("The version of the API that this object is written in, as `group/version`.")
KIND = Field("The kind of the object.")
METADATA = Field("The object's name, namespace, labels, owners and other standard metadata.")

# Lists with named entries, which are merged by name.
BY_NAME = Field(list_type="map", list_map_keys=("name",))
BY_TYPE = Field(list_type="map", list_map_keys=("type",))

ApiVersion: TypeAlias = Annotated[str, API_VERSION]
KindName: TypeAlias = Annotated[str, KIND]
Metadata: TypeAlias = Annotated[ObjectMeta, METADATA]


# --- Taints and tolerations -------------------------------------------------------------------------------------------


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(ApiStruct, frozen=True):
    """A mark on a node that keeps pods away unless they tolerate it."""

    key: Annotated[str, Field("The name of the taint, in the form of a label key.")] = required(str)
    value: Annotated[str, Field("The value that goes with the key; a toleration may require it.")] = ""
    effect: Annotated[
        str,
        Field("What happens to pods that do not tolerate the taint: NoSchedule, PreferNoSchedule or NoExecute."),
    ] = required(str)
    time_added: Annotated[Time | None, Field("When a NoExecute taint was put on.")] = None


class Toleration(ApiStruct, frozen=True):
    """A pod's consent to run on nodes that carry matching taints."""

    key: Annotated[str, Field("The key of the taints to tolerate. Empty, with operator Exists, means every key.")] = ""
    operator: Annotated[str, Field("Equal (the default) compares the value as well; Exists compares the key only.")] = (
        ""
    )
    value: Annotated[str, Field("The taint's value to match; leave it out with operator Exists.")] = ""
    effect: Annotated[
        str, Field("The effect to tolerate: NoSchedule, PreferNoSchedule or NoExecute. Empty means all of them.")
    ] = ""
    toleration_seconds: Annotated[
        Int64 | None,
        Field("How long a pod stays after a NoExecute taint appears. Absent means for good; 0 or less, not at all."),
    ] = None


_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"

TAINT_RULES = (
    ValidationRule(
        f"self.all(t, t.effect in {_EFFECTS})", "a taint's effect must be NoSchedule, PreferNoSchedule or NoExecute"
    ),
)
TOLERATION_RULES = (
    ValidationRule(
        "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))",
        "a toleration without a key needs the operator Exists",
    ),
    ValidationRule(
        "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
        "tolerationSeconds needs the effect NoExecute",
    ),
    ValidationRule(
        "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
        "a toleration's operator must be Equal or Exists",
    ),
    ValidationRule(
        "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value))",
        "a toleration with the operator Exists takes no value",
    ),
    ValidationRule(
        f"self.all(t, !has(t.effect) || t.effect in {_EFFECTS})",
        "a toleration's effect must be NoSchedule, PreferNoSchedule or NoExecute",
    ),
)


# --- Pods -------------------------------------------------------------------------------------------------------------


class ContainerResourceClaim(ApiStruct, frozen=True):
    """A device claim of the pod that this container uses."""

    name: Annotated[str, Field("The entry of the pod's `resourceClaims` to use.")] = required(str)
    request: Annotated[str, Field("One request of that claim; empty means all of it.")] = ""


class ResourceRequirements(ApiStruct, frozen=True):
    """What a container or a pod needs, and what it may use at most."""

    requests: Annotated[ResourceList, Field("The amounts that are set aside.")] = {}
    limits: Annotated[ResourceList, Field("The amounts that must not be exceeded.")] = {}
    claims: Annotated[
        tuple[ContainerResourceClaim, ...], Field("Device claims in use.", list_type="map", list_map_keys=("name",))
    ] = ()


class EnvVar(ApiStruct, frozen=True):
    """One variable of a container's environment."""

    name: Annotated[str, Field("The variable's name.")] = required(str)
    value: Annotated[str, Field("The variable's value; `$(NAME)` is replaced by an earlier variable.")] = ""
    value_from: Annotated[
        dict[str, Any] | None, Field("The source of the value, when it is not set here.", preserve_unknown=True)
    ] = None


class ContainerPort(ApiStruct, frozen=True):
    """A port that a container listens on."""

    container_port: Annotated[Int32, Field("The port's number.")] = required(int)
    name: Annotated[str, Field("A name for the port.")] = ""
    protocol: Annotated[str, Field("TCP (the default), UDP or SCTP.")] = ""
    host_port: Annotated[Int32 | None, Field("The port on the node, if one is to be used.")] = None


class Container(ApiStruct, frozen=True):
    """One container of a pod."""

    name: Annotated[str, Field("The container's name, unique within its pod.")] = required(str)
    image: Annotated[str, Field("The image to run.")] = ""
    command: Annotated[tuple[str, ...], Field("The program and its first arguments, without a shell.")] = ()
    args: Annotated[tuple[str, ...], Field("More arguments.")] = ()
    working_dir: Annotated[str, Field("The directory to start in.")] = ""
    env: Annotated[tuple[EnvVar, ...], Field("The environment.", list_type="map", list_map_keys=("name",))] = ()
    ports: Annotated[tuple[ContainerPort, ...], Field("The ports it listens on.")] = ()
    resources: Annotated[ResourceRequirements, Field("What it needs and may use.")] = ResourceRequirements()
    restart_policy: Annotated[
        str, Field("Always, on an init container, makes it a sidecar that runs beside the others.")
    ] = ""
    image_pull_policy: Annotated[str, Field("When the image is fetched: Always, IfNotPresent or Never.")] = ""
    termination_message_path: Annotated[str, Field("The file with its termination message.")] = ""
    termination_message_policy: Annotated[
        str, Field("Whether the end of its log replaces a missing termination message.")
    ] = ""


class NodeSelectorRequirement(ApiStruct, frozen=True):
    """One demand on one label or field of a node."""

    key: Annotated[str, Field("The label or field.")] = required(str)
    operator: Annotated[str, Field("In, NotIn, Exists, DoesNotExist, Gt or Lt.")] = required(str)
    values: Annotated[tuple[str, ...], Field("The values that the operator compares with.")] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """Demands that a node must meet all at once."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], Field("Demands on the node's labels.")] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], Field("Demands on the node's fields.")] = ()


class NodeSelector(ApiStruct, frozen=True):
    """Terms of which a node must meet at least one."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field("The terms.")] = required(tuple)


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """A preference for certain nodes, with its weight."""

    weight: Annotated[Int32, Field("The weight of the preference, 1 to 100.")] = required(int)
    preference: Annotated[NodeSelectorTerm, Field("The nodes that are wished for.")] = required(NodeSelectorTerm)


class NodeAffinity(ApiStruct, frozen=True):
    """Which nodes a pod must or would like to run on."""

    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, Field("Nodes that do not match are out of the question.")
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], Field("Nodes that match are preferred.")
    ] = ()


class Affinity(ApiStruct, frozen=True):
    """Requirements and preferences of a pod for its node."""

    node_affinity: Annotated[NodeAffinity | None, Field("Towards nodes.")] = None
    pod_affinity: Annotated[dict[str, Any] | None, Field("Towards other pods.", preserve_unknown=True)] = None
    pod_anti_affinity: Annotated[dict[str, Any] | None, Field("Away from other pods.", preserve_unknown=True)] = None


class PodSchedulingGate(ApiStruct, frozen=True):
    """A gate that keeps a pod from being scheduled until it is removed."""

    name: Annotated[str, Field("The gate's name.")] = required(str)


class PodResourceClaim(ApiStruct, frozen=True):
    """A claim on devices that belongs to a pod."""

    name: Annotated[str, Field("How the pod's containers call the claim.")] = required(str)
    resource_claim_name: Annotated[str | None, Field("An existing ResourceClaim of the same namespace.")] = None
    resource_claim_template_name: Annotated[
        str | None, Field("A ResourceClaimTemplate from which each pod gets a claim of its own.")
    ] = None


class PodSpec(ApiStruct, frozen=True):
    """What a pod runs, what it needs and where it may run."""

    containers: Annotated[
        tuple[Container, ...], Field("The containers, side by side.", list_type="map", list_map_keys=("name",))
    ] = required(tuple)
    init_containers: Annotated[
        tuple[Container, ...],
        Field("Containers that run first, one after another.", list_type="map", list_map_keys=("name",)),
    ] = ()
    resources: Annotated[ResourceRequirements | None, Field("Needs and limits of the pod as a whole.")] = None
    overhead: Annotated[ResourceList, Field("What running the pod costs beside its containers.")] = {}
    node_selector: Annotated[Labels, Field("Labels that the node must have.", map_type="atomic")] = {}
    affinity: Annotated[Affinity | None, Field("Further requirements and preferences for the node.")] = None
    tolerations: Annotated[tuple[Toleration, ...], Field("Taints that the pod tolerates.", list_type="atomic")] = ()
    topology_spread_constraints: Annotated[
        tuple[dict[str, Any], ...], Field("How evenly pods are spread over domains.", list_type="atomic")
    ] = ()
    scheduling_gates: Annotated[
        tuple[PodSchedulingGate, ...],
        Field("Gates that must be removed before the pod is scheduled.", list_type="map", list_map_keys=("name",)),
    ] = ()
    priority_class_name: Annotated[str, Field("The PriorityClass of the pod.")] = ""
    priority: Annotated[Int32 | None, Field("The number behind the priority class.")] = None
    preemption_policy: Annotated[str | None, Field("Whether the pod may displace others.")] = None
    runtime_class_name: Annotated[str | None, Field("The RuntimeClass, which may add overhead.")] = None
    resource_claims: Annotated[
        tuple[PodResourceClaim, ...], Field("Claims on devices.", list_type="map", list_map_keys=("name",))
    ] = ()
    scheduler_name: Annotated[str, Field("The scheduler of the pod.")] = ""
    node_name: Annotated[str, Field("The node the pod is bound to.")] = ""
    restart_policy: Annotated[str, Field("Always, OnFailure or Never.")] = ""
    termination_grace_period_seconds: Annotated[
        Int64 | None, Field("How long the pod has to end itself before it is killed.")
    ] = None
    active_deadline_seconds: Annotated[Int64 | None, Field("How long the pod may run.")] = None
    service_account_name: Annotated[str, Field("The account the pod acts as.")] = ""
    hostname: Annotated[str, Field("The pod's host name.")] = ""
    subdomain: Annotated[str, Field("The domain below the namespace's that the host name belongs to.")] = ""


class PodCondition(ApiStruct, frozen=True):
    """A condition of a pod."""

    type: str = required(str)
    status: str = required(str)
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None


# The reasons of containers that ended without a record, of the runner and of the kubelet: neither the exit code nor the
# time is known.
LOST: Final = "Lost"
UNKNOWN_ENDS: Final = frozenset({LOST, "ContainerStatusUnknown"})


class ContainerStateTerminated(ApiStruct, frozen=True):
    """How a container ended."""

    exit_code: Int32 = required(int)
    signal: Int32 | None = None
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(ApiStruct, frozen=True):
    """Waiting, running or terminated: one of the three."""

    waiting: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True):
    """How one container of a pod is doing."""

    name: str = required(str)
    ready: bool = required(bool)
    restart_count: Int32 = required(int)
    image: str = required(str)
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    started: bool | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(ApiStruct, frozen=True):
    """The status of a pod."""

    phase: str = ""
    conditions: Annotated[tuple[PodCondition, ...], BY_TYPE] = ()
    reason: str = ""
    message: str = ""
    start_time: Time | None = None
    nominated_node_name: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    qos_class: str = ""
    container_statuses: Annotated[tuple[ContainerStatus, ...], BY_NAME] = ()
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], BY_NAME] = ()
    observed_generation: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class Pod(ApiStruct, frozen=True):
    """Containers that run together on one node."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("Pod")
    metadata: Metadata = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateSpec(ApiStruct, frozen=True):
    """The mould from which a controller makes pods."""

    metadata: Annotated[ObjectMeta, Field("Labels, annotations and finalizers that every pod gets.")] = ObjectMeta()
    spec: Annotated[PodSpec, Field("What every pod runs, what it needs and where it may run.")] = PodSpec()


class PodTemplate(ApiStruct, frozen=True):
    """A pod's mould as an object of its own."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("PodTemplate")
    metadata: Metadata = ObjectMeta()
    template: PodTemplateSpec = PodTemplateSpec()


# --- Core -------------------------------------------------------------------------------------------------------------


class NamespaceSpec(ApiStruct, frozen=True):
    """What keeps a namespace from going."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(ApiStruct, frozen=True):
    """Whether a namespace is there or going."""

    phase: str = ""


class Namespace(ApiStruct, frozen=True):
    """A namespace, with labels that selectors match."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("Namespace")
    metadata: Metadata = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class NodeCondition(ApiStruct, frozen=True):
    """A condition of a node."""

    type: str = required(str)
    status: str = required(str)
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeSpec(ApiStruct, frozen=True):
    """What keeps pods off a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(ApiStruct, frozen=True):
    """Allocatable resources and conditions of a node."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: Annotated[tuple[NodeCondition, ...], BY_TYPE] = ()


class Node(ApiStruct, frozen=True):
    """A machine that runs pods."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("Node")
    metadata: Metadata = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LimitRangeItem(ApiStruct, frozen=True):
    """Bounds and defaults for one type: Container, Pod or PersistentVolumeClaim."""

    type: str = required(str)
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(ApiStruct, frozen=True):
    """The bounds and defaults in force."""

    limits: tuple[LimitRangeItem, ...] = required(tuple)


class LimitRange(ApiStruct, frozen=True):
    """Limits of the requests of pods in a namespace, and defaults for pods without requests."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("LimitRange")
    metadata: Metadata = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ConfigMap(ApiStruct, frozen=True):
    """Named texts."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("ConfigMap")
    metadata: Metadata = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool | None = None


class Secret(ApiStruct, frozen=True):
    """Confidential data by name; the values are base64."""

    api_version: ApiVersion = always("v1")
    kind: KindName = always("Secret")
    metadata: Metadata = ObjectMeta()
    data: dict[str, str] = {}
    type: str = ""
    immutable: bool | None = None


class ObjectReference(ApiStruct, frozen=True):
    """A pointer to one object, and perhaps to a place in it."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


# --- Batch ------------------------------------------------------------------------------------------------------------


class JobCondition(ApiStruct, frozen=True):
    """A condition of a Job."""

    type: str = required(str)
    status: str = required(str)
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class JobSpec(ApiStruct, frozen=True):
    """How many pods a Job runs, how often it tries, and from which mould."""

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    ttl_seconds_after_finished: Int32 | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    managed_by: str | None = None
    manual_selector: bool | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = required(PodTemplateSpec)


class UncountedTerminatedPods(ApiStruct, frozen=True):
    """Pods that ended and are not in the Job's counters yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(ApiStruct, frozen=True):
    """The status of a Job."""

    conditions: Annotated[tuple[JobCondition, ...], BY_TYPE] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    active: Int32 = 0
    ready: Int32 | None = None
    terminating: Int32 | None = None
    succeeded: Int32 = 0
    failed: Int32 = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(ApiStruct, frozen=True):
    """Pods that run to completion."""

    api_version: ApiVersion = always("batch/v1")
    kind: KindName = always("Job")
    metadata: Metadata = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


# --- Scheduling, node, coordination -----------------------------------------------------------------------------------


class PriorityClass(ApiStruct, frozen=True):
    """A name for a priority of pods."""

    api_version: ApiVersion = always("scheduling.k8s.io/v1")
    kind: KindName = always("PriorityClass")
    metadata: Metadata = ObjectMeta()
    value: Int32 = required(int)
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


class Overhead(ApiStruct, frozen=True):
    """What a runtime costs for every pod."""

    pod_fixed: ResourceList = {}


class Scheduling(ApiStruct, frozen=True):
    """Where pods of a runtime may run."""

    node_selector: Labels = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(ApiStruct, frozen=True):
    """A way to run containers, with its price."""

    api_version: ApiVersion = always("node.k8s.io/v1")
    kind: KindName = always("RuntimeClass")
    metadata: Metadata = ObjectMeta()
    handler: str = required(str)
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class LeaseSpec(ApiStruct, frozen=True):
    """Holder of a lease, since when and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: Int32 | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(ApiStruct, frozen=True):
    """The right to act, held by one for a while."""

    api_version: ApiVersion = always("coordination.k8s.io/v1")
    kind: KindName = always("Lease")
    metadata: Metadata = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


# --- Events -----------------------------------------------------------------------------------------------------------


class EventSeries(ApiStruct, frozen=True):
    """The same event again: how often, and when last."""

    count: Int32 = required(int)
    last_observed_time: Time | None = None


class Event(ApiStruct, frozen=True):
    """An Event that regards an object (events.k8s.io/v1)."""

    api_version: ApiVersion = always("events.k8s.io/v1")
    kind: KindName = always("Event")
    metadata: Metadata = ObjectMeta()
    event_time: Time | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
    deprecated_first_timestamp: Time | None = None
    deprecated_last_timestamp: Time | None = None
    deprecated_count: Int32 = 0
