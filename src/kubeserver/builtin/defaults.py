"""What an absent field of a built-in kind means, by type: a table, and functions for what a table cannot express.

A default belongs to a type and not to a kind, so a pod template is completed alike wherever it stands. The trees have
been read (`reading`), so every value is of the right type and empty optional ones are absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kubemachinery import quantity
from kubeserver.builtin_types.types import FieldType, message

Tree = dict[str, Any]

_FILE_MODE: Final = 0o644

_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_WEBHOOK: Final = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}
_RBAC: Final = "rbac.authorization.k8s.io"

# Values here are shared by every object and never changed; containers among them are empty and copied when set.
_STATIC: Final[dict[str, Mapping[str, Any]]] = {
    "core.v1.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "core.v1.Container": _CONTAINER,
    "core.v1.EphemeralContainer": _CONTAINER,
    "core.v1.ContainerPort": {"protocol": "TCP"},
    "core.v1.Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.SecretVolumeSource": {"defaultMode": _FILE_MODE},
    "core.v1.ConfigMapVolumeSource": {"defaultMode": _FILE_MODE},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": _FILE_MODE},
    "core.v1.ProjectedVolumeSource": {"defaultMode": _FILE_MODE},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.AzureDiskVolumeSource": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "readOnly": False,
        "kind": "Shared",
    },
    "core.v1.ScaleIOVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "apps.v1.StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "core.v1.PersistentVolumeClaim": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.ServiceSpec": {"sessionAffinity": "None", "type": "ClusterIP"},
    "core.v1.ServicePort": {"protocol": "TCP"},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "rbac.v1.RoleRef": {"apiGroup": _RBAC},
    "resource.v1.ExactDeviceRequest": {"allocationMode": "ExactCount"},
    "resource.v1.DeviceSubRequest": {"allocationMode": "ExactCount"},
    "resource.v1.DeviceToleration": {"operator": "Equal"},
}


# Amounts of resources, which are counted in thousandths: what is finer is rounded up.
_AMOUNTS: Final[dict[str, tuple[str, ...]]] = {
    "core.v1.ResourceRequirements": ("limits", "requests"),
    "core.v1.PodSpec": ("overhead",),
    "core.v1.NodeStatus": ("capacity", "allocatable"),
    "core.v1.LimitRangeItem": ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"),
}


def default(name: str, tree: Tree) -> Tree:
    """Fill in the object of this message, in place, and return it."""
    if _is_concerned(name):
        _message(name, tree)
    return tree


def _message(name: str, tree: Tree) -> None:
    # Types have many fields, of which few have defaults.
    for key, kind in _concerned_fields(name):
        value = tree.get(key)
        if value is not None:
            _value(kind, value)
    for key, standard in _STATIC.get(name, {}).items():
        given = tree.get(key)
        # A mandatory text that was not given has been read as an empty one.
        if given is None or (given == "" and not message(name).fields[key].type.pointer):
            tree[key] = dict(standard) if isinstance(standard, dict) else standard
    for key in _AMOUNTS.get(name, ()):
        _round_up(tree.get(key) or {})
    compute = _COMPUTED.get(name)
    if compute is not None:
        compute(tree)


def _round_up(amounts: dict[str, str]) -> None:
    for name, text in amounts.items():
        # As they have been read, only amounts that are finer than thousandths end like this.
        if text.endswith(("u", "n")):
            amounts[name] = str(quantity.parse(f"{quantity.parse(text).milli_value()}m"))


def _value(kind: FieldType, value: Any) -> None:
    if kind.item is not None:
        for one in value:
            _value(kind.item, one)
    elif kind.value is not None:
        for one in value.values():
            _value(kind.value, one)
    elif isinstance(value, dict):
        _message(kind.name, value)


@cache
def _concerned_fields(name: str) -> tuple[tuple[str, FieldType], ...]:
    fields = message(name).fields.values()
    return tuple((field.name, field.type) for field in fields if _is_concerned_type(field.type))


def _is_concerned_type(kind: FieldType) -> bool:
    inner: FieldType | None = kind
    while inner is not None:
        if inner.is_message and _is_concerned(inner.name):
            return True
        inner = inner.item or inner.value
    return False


@cache
def _is_concerned(name: str) -> bool:
    """Whether this type has defaults, or contains a type that has."""
    return _leads_to_default(name, frozenset())


def _leads_to_default(name: str, above: frozenset[str]) -> bool:
    if name in _STATIC or name in _AMOUNTS or name in _COMPUTED:
        return True
    for field in message(name).fields.values():
        kind: FieldType | None = field.type
        while kind is not None:
            if kind.is_message and kind.name not in above and _leads_to_default(kind.name, above | {name}):
                return True
            kind = kind.item or kind.value
    return False


# --- defaults as functions --------------------------------------------------------------------------------------------

# A name (with a registry, perhaps), a tag, a digest. What is none of these has no tag that could move.
_IMAGE: Final = re.compile(
    r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[\w][\w.-]{0,127})?(@[\w+.:-]+)?", re.ASCII
)
_VOLUME_OWN: Final = frozenset({"name"})


def _volume(volume: Tree) -> None:
    if volume.keys() <= _VOLUME_OWN:
        volume["emptyDir"] = {}
    image = volume.get("image")
    if image is not None and "pullPolicy" not in image:
        image["pullPolicy"] = pull_policy(image.get("reference", ""))


def _container(container: Tree) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))


def pull_policy(image: str) -> str:
    """Return Always for an image with the tag latest, or without tag and digest, else IfNotPresent."""
    if not _IMAGE.fullmatch(image):
        return "IfNotPresent"
    name, at, _digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or (not tag and not at) else "IfNotPresent"


def _pod_spec(spec: Tree) -> None:
    # The account has an old name, and both are always written.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if spec.get("hostNetwork"):
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for port in container.get("ports", ()):
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)


def _pod(pod: Tree) -> None:
    spec = pod["spec"]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container["resources"]
        limits = resources.get("limits")
        if limits:
            resources["requests"] = {**limits, **resources.get("requests", {})}
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True


# Of a Job, and not of the template of a CronJob, which gets them when a Job is made of it.
_JOB_SPEC: Final = {"completionMode": "NonIndexed", "suspend": False, "manualSelector": False}


def _job(job: Tree) -> None:
    spec = job["spec"]
    for key, standard in _JOB_SPEC.items():
        spec.setdefault(key, standard)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if "backoffLimit" not in spec:
        # With a limit for each index, the limit for all of them is as good as none.
        spec["backoffLimit"] = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    labels = spec["template"]["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def _namespace(namespace: Tree) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}


def _node_status(status: Tree) -> None:
    if "allocatable" not in status and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


def _limit_range_item(item: Tree) -> None:
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for key, value in (("default", limits), ("defaultRequest", requests)):
        if value:
            item[key] = value


def _rolling(strategy: Tree, **shares: int | str) -> None:
    """The shares of pods of a rolling update, which is what happens where no type of update is given."""
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for key, share in shares.items():
            rolling.setdefault(key, share)


def _deployment(spec: Tree) -> None:
    _rolling(spec["strategy"], maxUnavailable="25%", maxSurge="25%")


def _daemon_set_spec(spec: Tree) -> None:
    _rolling(spec["updateStrategy"], maxUnavailable=1, maxSurge=0)


def _daemon_set(daemon_set: Tree) -> None:
    # In earlier versions this count was a field; in v1 it is an annotation, which every object has.
    annotations = daemon_set["metadata"].get("annotations", {})
    daemon_set["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "0", **annotations}


def _stateful_set(spec: Tree) -> None:
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec["persistentVolumeClaimRetentionPolicy"]
    for key in ("whenDeleted", "whenScaled"):
        retention.setdefault(key, "Retain")


_AFFINITY_SECONDS: Final = 10800
_INTERNAL: Final = ("ClusterIP", "NodePort", "LoadBalancer")


def _service_spec(spec: Tree) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        given = spec.get("sessionAffinityConfig", {}).get("clientIP", {})
        if "timeoutSeconds" not in given:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports", ()):
        if port.get("targetPort") in (0, "", None):
            port["targetPort"] = port.get("port", 0)
    kind = spec["type"]
    if kind in _INTERNAL[1:] or (kind == _INTERNAL[0] and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in _INTERNAL:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _subject(subject: Tree) -> None:
    if "apiGroup" not in subject and subject.get("kind") in ("User", "Group"):
        subject["apiGroup"] = _RBAC


def _device_request(request: Tree) -> None:
    if request.get("allocationMode") == "ExactCount":
        request.setdefault("count", 1)


_COMPUTED: Final[dict[str, Callable[[Tree], None]]] = {
    "core.v1.Volume": _volume,
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.Pod": _pod,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeStatus": _node_status,
    "core.v1.LimitRangeItem": _limit_range_item,
    "batch.v1.Job": _job,
    "apps.v1.DeploymentSpec": _deployment,
    "apps.v1.StatefulSetSpec": _stateful_set,
    "apps.v1.DaemonSetSpec": _daemon_set_spec,
    "apps.v1.DaemonSet": _daemon_set,
    "core.v1.ServiceSpec": _service_spec,
    "rbac.v1.Subject": _subject,
    "resource.v1.ExactDeviceRequest": _device_request,
    "resource.v1.DeviceSubRequest": _device_request,
}
