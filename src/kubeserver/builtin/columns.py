"""What `kubectl get` prints of the built-in kinds: the columns, and a function for the cells of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kubemachinery import meta, selectors
from kubemachinery.meta import SECOND
from kubeserver.registry.strategy import ServedColumn
from kubeserver.registry.tables import age, duration

Tree = dict[str, Any]
Cells: TypeAlias = Callable[[Tree, int], Sequence[Any]]

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"


class PrintedTable(NamedTuple):
    """The columns of a kind and their cells."""

    columns: tuple[ServedColumn, ...]
    cells: Cells


def _columns(names: str, wide: str = "", **types: str) -> tuple[ServedColumn, ...]:
    """Columns from their names, divided by commas; those of `wide` are shown with `-o wide` only."""
    out = []
    for listed, priority in ((names, 0), (wide, 1)):
        for name in filter(None, listed.split(",")):
            sort = types.get(name.replace(" ", "_").replace("-", "_"), "string")
            out.append(
                ServedColumn(name=name, path="", type=sort, format="name" if name == "Name" else "", priority=priority)
            )
    return tuple(out)


def _name(tree: Tree) -> str:
    name: str = tree["metadata"].get("name", "")
    return name


def _age(tree: Tree, now: int) -> str:
    created = tree["metadata"].get("creationTimestamp")
    return age(created, now) if created else _UNKNOWN


def _joined(values: Iterable[str]) -> str:
    return ",".join(values)


def _labels(labels: dict[str, str] | None) -> str:
    return _joined(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(selector: Tree | None) -> str:
    return selectors.spelt(selector or {}) or _NONE


def _containers(spec: Tree) -> tuple[str, str]:
    containers = spec.get("containers") or ()
    return _joined(one.get("name", "") for one in containers), _joined(one.get("image", "") for one in containers)


# --- Pod --------------------------------------------------------------------------------------------------------------


def _pod(pod: Tree, now: int) -> list[Any]:
    spec, status = pod["spec"], pod.get("status", {})
    state, ready, restarts, last_restart = _pod_state(pod)
    shown = str(restarts)
    if restarts and last_restart:
        shown = f"{restarts} ({age(last_restart, now)} ago)"
    gates = spec.get("readinessGates", ())
    true = {one.get("type") for one in status.get("conditions", ()) if one.get("status") == "True"}
    passed = sum(gate.get("conditionType") in true for gate in gates)
    addresses = status.get("podIPs") or ()
    return [
        _name(pod),
        f"{ready}/{_counted_containers(spec)}",
        state,
        shown,
        _age(pod, now),
        addresses[0].get("ip", _NONE) if addresses else _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
    ]


def _is_sidecar(container: Tree) -> bool:
    return container.get("restartPolicy") == "Always"


def _counted_containers(spec: Tree) -> int:
    sidecars = sum(_is_sidecar(container) for container in spec.get("initContainers", ()))
    return len(spec.get("containers") or ()) + sidecars


def _pod_state(pod: Tree) -> tuple[str, int, int, str]:
    """Return the status of a pod, its number of ready containers, its restarts, and the time of the last one."""
    status = pod.get("status", {})
    gated = any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in status.get("conditions", ())
    )
    state = "SchedulingGated" if gated else status.get("reason") or status.get("phase") or ""
    count = _Count()
    beginning = _count_beginning(pod["spec"], status, count)
    if not beginning or _has_condition(status, "Initialized"):
        state = _count_running(status, count, beginning or state)
    else:
        state = beginning
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            state = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            state = "Terminating"
    return state, count.ready, count.restarts, count.last


class _Count(msgspec.Struct):
    """Sums over containers; of init containers, only sidecars stay in the sums."""

    ready: int = 0
    restarts: int = 0
    last: str = ""
    sidecar_restarts: int = 0
    sidecar_last: str = ""

    def add(self, container: Tree, *, sidecar: bool = False) -> None:
        self.restarts += container.get("restartCount", 0)
        self.last = max(self.last, _finished(container))
        if sidecar:
            self.sidecar_restarts += container.get("restartCount", 0)
            self.sidecar_last = max(self.sidecar_last, _finished(container))


def _count_beginning(spec: Tree, status: Tree, count: _Count) -> str:
    """Return the status of a pod during initialization; "" once its init containers are done."""
    beginnings = {container.get("name"): container for container in spec.get("initContainers", ())}
    for index, container in enumerate(status.get("initContainerStatuses", ())):
        sidecar = _is_sidecar(beginnings.get(container.get("name"), {}))
        count.add(container, sidecar=sidecar)
        word = _init_word(container, sidecar=sidecar)
        if word is not None:
            return f"Init:{word}" if word else f"Init:{index}/{len(beginnings)}"
        count.ready += sidecar and bool(container.get("ready"))
    return ""


def _count_running(status: Tree, count: _Count, state: str) -> str:
    """Return the reason of the first container that has one, for a pod whose init containers are done."""
    count.restarts, count.last = count.sidecar_restarts, count.sidecar_last
    running = False
    for container in reversed(status.get("containerStatuses", ())):
        count.add(container)
        now_at = container.get("state", {})
        if now_at.get("waiting", {}).get("reason"):
            state = now_at["waiting"]["reason"]
        elif "terminated" in now_at:
            state = _ended_word(now_at["terminated"])
        elif container.get("ready") and "running" in now_at:
            running = True
            count.ready += 1
    if state == "Completed" and running:
        return "Running" if _has_condition(status, "Ready") else "NotReady"
    return state


def _has_condition(status: Tree, condition: str) -> bool:
    return any(one.get("type") == condition and one.get("status") == "True" for one in status.get("conditions", ()))


def _finished(container: Tree) -> str:
    finished: str = container.get("lastState", {}).get("terminated", {}).get("finishedAt") or ""
    return finished


def _ended_word(terminated: Tree) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _init_word(container: Tree, *, sidecar: bool) -> str | None:
    """Return None for an init container that is done, "" for one that runs, else its reason."""
    state = container.get("state", {})
    terminated = state.get("terminated")
    if terminated is not None and terminated.get("exitCode", 0) == 0:
        return None
    if sidecar and container.get("started"):
        return None
    if terminated is not None:
        return _ended_word(terminated)
    reason = state.get("waiting", {}).get("reason", "")
    return reason if reason and reason != "PodInitializing" else ""


# --- the others -------------------------------------------------------------------------------------------------------


def _job(job: Tree, now: int) -> list[Any]:
    spec, status = job["spec"], job.get("status", {})
    completions = spec.get("completions")
    succeeded = status.get("succeeded", 0)
    if completions is not None:
        done = f"{succeeded}/{completions}"
    else:
        parallelism = spec.get("parallelism", 0)
        done = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started, ended = status.get("startTime"), status.get("completionTime")
    lasted = ""
    if started:
        until = meta.parse_time(ended) if ended else now
        lasted = duration((until - meta.parse_time(started)) // SECOND)
    containers, images = _containers(spec["template"]["spec"])
    return [
        _name(job),
        _job_state(job),
        done,
        lasted,
        _age(job, now),
        containers,
        images,
        _selector(spec.get("selector")),
    ]


def _job_state(job: Tree) -> str:
    true = {one.get("type") for one in job.get("status", {}).get("conditions", ()) if one.get("status") == "True"}
    for state in ("Complete", "Failed"):
        if state in true:
            return state
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if state in true:
            return state
    return "Running"


def _node(node: Tree, now: int) -> list[Any]:
    status = node.get("status", {})
    ready = next((one for one in status.get("conditions", ()) if one.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = node["metadata"].get("labels", {})
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    info = status.get("nodeInfo", {})
    kernel, architecture = info.get("kernelVersion") or _UNKNOWN, info.get("architecture")
    addresses = {one.get("type"): one.get("address") for one in reversed(status.get("addresses", ()))}
    return [
        _name(node),
        _joined(words),
        _joined(sorted(roles)) or _NONE,
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        f"{kernel} ({architecture})" if architecture else kernel,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(event: Tree, now: int) -> list[Any]:
    def field(core: str, events: str) -> Any:
        return event.get(core, event.get(events))

    first, last = field("firstTimestamp", "deprecatedFirstTimestamp"), field("lastTimestamp", "deprecatedLastTimestamp")
    created = event.get("eventTime")
    series = event.get("series") or {}
    first_seen = age(first, now) if first else age(created, now) if created else _UNKNOWN
    last_seen = (
        age(series["lastObservedTime"], now)
        if series.get("lastObservedTime")
        else age(last, now)
        if last
        else first_seen
    )
    count = series.get("count") or field("count", "deprecatedCount") or 1
    subject = field("involvedObject", "regarding") or {}
    source = field("source", "deprecatedSource") or {}
    who = source.get("component") or field("reportingComponent", "reportingController") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    kind = subject.get("kind", "").lower()
    return [
        last_seen,
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{subject['name']}" if subject.get("name") else kind,
        subject.get("fieldPath", ""),
        f"{who}, {host}" if who and host else who,
        str(field("message", "note") or "").strip(),
        first_seen,
        count,
        _name(event),
    ]


def _binding(binding: Tree, now: int) -> list[Any]:
    role = binding.get("roleRef", {})
    subjects = binding.get("subjects", ())

    def of(kind: str) -> str:
        return ", ".join(
            f"{one.get('namespace', '')}/{one.get('name', '')}" if kind == "ServiceAccount" else one.get("name", "")
            for one in subjects
            if one.get("kind") == kind
        )

    return [
        _name(binding),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        _age(binding, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]


def _claim(claim: Tree, now: int) -> list[Any]:
    status = claim.get("status", {})
    states = []
    if claim["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    if "allocation" not in status:
        if not states:
            states.append("pending")
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    return [_name(claim), _joined(states), _age(claim, now)]


# --- apps/v1, CronJobs, Services --------------------------------------------------------------------------------------


def _workload(*cells: Callable[[Tree], Any], selector: bool = True) -> Cells:
    """The name, these cells, the age; of the pod template, its containers and images, and the selector of its pods."""

    def of(tree: Tree, now: int) -> list[Any]:
        spec = tree["spec"]
        wide = [*_containers(spec["template"]["spec"]), *([_selector(spec.get("selector"))] if selector else [])]
        return [_name(tree), *(cell(tree) for cell in cells), _age(tree, now), *wide]

    return of


def _ready(tree: Tree) -> str:
    return f"{tree.get('status', {}).get('readyReplicas', 0)}/{tree['spec'].get('replicas', 0)}"


def _wanted(tree: Tree) -> int:
    wanted: int = tree["spec"].get("replicas", 0)
    return wanted


def _count(field: str) -> Callable[[Tree], int]:
    def count(tree: Tree) -> int:
        found: int = tree.get("status", {}).get(field, 0)
        return found

    return count


def _cron_job(cron_job: Tree, now: int) -> list[Any]:
    spec, status = cron_job["spec"], cron_job.get("status", {})
    template = spec["jobTemplate"]["spec"]
    last = status.get("lastScheduleTime")
    containers, images = _containers(template["template"]["spec"])
    return [
        _name(cron_job),
        spec.get("schedule", ""),
        spec.get("timeZone", _NONE),
        "True" if spec.get("suspend") else "False",
        len(status.get("active", ())),
        age(last, now) if last else _NONE,
        _age(cron_job, now),
        containers,
        images,
        _selector(template.get("selector")),
    ]


_SHOWN: Final = 3
_BALANCER_WIDTH: Final = 16


def _service(service: Tree, now: int) -> list[Any]:
    spec = service["spec"]
    addresses = spec.get("clusterIPs") or (_NONE,)
    ports = _joined(
        f"{one.get('port', 0)}:{one['nodePort']}/{one.get('protocol', '')}"
        if one.get("nodePort")
        else f"{one.get('port', 0)}/{one.get('protocol', '')}"
        for one in spec.get("ports", ())
    )
    kind = spec.get("type", "")
    return [
        _name(service),
        kind,
        addresses[0],
        _external(service),
        ports or _NONE,
        _age(service, now),
        _labels(spec.get("selector")),
    ]


def _external(service: Tree) -> str:
    spec = service["spec"]
    given = spec.get("externalIPs", ())
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
            balancers = _joined(sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}))
            if len(balancers) > _BALANCER_WIDTH:
                balancers = f"{balancers[: _BALANCER_WIDTH - 3]}..."
            return _joined([*filter(None, balancers.split(",")), *given]) or "<pending>"
        case "ClusterIP" | "NodePort":
            return _joined(given) or _NONE
    return _UNKNOWN


def _endpoints(endpoints: Tree, now: int) -> list[Any]:
    shown = []
    for subset in endpoints.get("subsets", ()):
        addresses = [one.get("ip", "") for one in subset.get("addresses", ())]
        for port in subset.get("ports", ()):
            shown += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
        if not subset.get("ports"):
            shown += addresses
    text = _some(shown) if endpoints.get("subsets") else _NONE
    return [_name(endpoints), text, _age(endpoints, now)]


def _endpoint_slice(one: Tree, now: int) -> list[Any]:
    ports = [str(port.get("port") or port.get("name", "*")) for port in one.get("ports") or ()]
    addresses = [address for endpoint in one.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        _name(one),
        one.get("addressType", ""),
        _some(ports) or "<unset>",
        _some(addresses) or "<unset>",
        _age(one, now),
    ]


def _some(values: Sequence[str]) -> str:
    more = len(values) - _SHOWN
    return _joined(values[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")


def _simple(*cells: Callable[[Tree], Any]) -> Cells:
    """The name, these cells, the age."""
    return lambda tree, now: [_name(tree), *(cell(tree) for cell in cells), _age(tree, now)]


_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _volume_claim(tree: Tree, now: int) -> list[Any]:
    spec, status = tree["spec"], tree.get("status", {})
    phase = "Terminating" if tree["metadata"].get("deletionTimestamp") else status.get("phase", "")
    volume = spec.get("volumeName", "")
    modes = ",".join(short for mode, short in _MODES.items() if volume and mode in status.get("accessModes", ()))
    capacity = status.get("capacity", {}).get("storage", "0") if volume else ""
    classes = [spec.get("storageClassName") or "", spec.get("volumeAttributesClassName") or "<unset>"]
    return [_name(tree), phase, volume, capacity, modes, *classes, _age(tree, now), spec.get("volumeMode") or "<unset>"]


def _controller(tree: Tree) -> str:
    """The controller of an object, as KIND.GROUP/NAME in lower case."""
    for owner in tree["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            group = owner["apiVersion"].rpartition("/")[0]
            return f"{owner['kind'].lower()}{'.' * bool(group)}{group}/{owner['name']}"
    return _NONE


def _created(tree: Tree, _now: int) -> list[Any]:
    return [_name(tree), tree["metadata"].get("creationTimestamp")]


def _template(template: Tree, _now: int) -> list[Any]:
    inner = template.get("template", {})
    containers, images = _containers(inner.get("spec", {}))
    return [_name(template), containers, images, _labels(inner.get("metadata", {}).get("labels"))]


def _priority_class(one: Tree, now: int) -> list[Any]:
    return [
        _name(one),
        one.get("value", 0),
        one.get("globalDefault", False),
        _age(one, now),
        one.get("preemptionPolicy", ""),
    ]


_CREATED: Final = PrintedTable(_columns("Name,Created At", Created_At="date"), _created)
_WEBHOOKS: Final = PrintedTable(
    _columns("Name,Webhooks,Age", Webhooks="integer"), _simple(lambda one: len(one.get("webhooks", ())))
)
_EVENTS: Final = PrintedTable(
    tuple(
        ServedColumn(name=name, path="", format="name" if name == "Name" else "", priority=priority)
        for name, priority in (
            ("Last Seen", 0),
            ("Type", 0),
            ("Reason", 0),
            ("Object", 0),
            ("Subobject", 1),
            ("Source", 1),
            ("Message", 0),
            ("First Seen", 1),
            ("Count", 1),
            ("Name", 1),
        )
    ),
    _event,
)
_BINDINGS: Final = PrintedTable(_columns("Name,Role,Age", "Users,Groups,ServiceAccounts"), _binding)

PRINTED: Final[dict[str, PrintedTable]] = {
    "apps.v1.Deployment": PrintedTable(
        _columns("Name,Ready,Up-to-date,Available,Age", "Containers,Images,Selector"),
        _workload(_ready, _count("updatedReplicas"), _count("availableReplicas")),
    ),
    "apps.v1.StatefulSet": PrintedTable(
        _columns("Name,Ready,Age", "Containers,Images"),
        _workload(_ready, selector=False),
    ),
    "apps.v1.ReplicaSet": PrintedTable(
        _columns(
            "Name,Desired,Current,Ready,Age",
            "Containers,Images,Selector",
            Desired="integer",
            Current="integer",
            Ready="integer",
        ),
        _workload(_wanted, _count("replicas"), _count("readyReplicas")),
    ),
    "apps.v1.DaemonSet": PrintedTable(
        _columns(
            "Name,Desired,Current,Ready,Up-to-date,Available,Node Selector,Age",
            "Containers,Images,Selector",
            **dict.fromkeys(("Desired", "Current", "Ready", "Up_to_date", "Available"), "integer"),
        ),
        _workload(
            _count("desiredNumberScheduled"),
            _count("currentNumberScheduled"),
            _count("numberReady"),
            _count("updatedNumberScheduled"),
            _count("numberAvailable"),
            lambda one: _labels(one["spec"]["template"]["spec"].get("nodeSelector")),
        ),
    ),
    "apps.v1.ControllerRevision": PrintedTable(
        _columns("Name,Controller,Revision,Age"), _simple(_controller, lambda one: one["revision"])
    ),
    "batch.v1.CronJob": PrintedTable(
        _columns(
            "Name,Schedule,Timezone,Suspend,Active,Last Schedule,Age",
            "Containers,Images,Selector",
            Suspend="boolean",
            Active="integer",
        ),
        _cron_job,
    ),
    "core.v1.PersistentVolumeClaim": PrintedTable(
        _columns("Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age", "VolumeMode"),
        _volume_claim,
    ),
    "core.v1.Service": PrintedTable(_columns("Name,Type,Cluster-IP,External-IP,Port(s),Age", "Selector"), _service),
    "core.v1.Endpoints": PrintedTable(_columns("Name,Endpoints,Age"), _endpoints),
    "discovery.v1.EndpointSlice": PrintedTable(_columns("Name,AddressType,Ports,Endpoints,Age"), _endpoint_slice),
    "core.v1.Pod": PrintedTable(
        _columns("Name,Ready,Status,Restarts,Age", "IP,Node,Nominated Node,Readiness Gates"), _pod
    ),
    "batch.v1.Job": PrintedTable(_columns("Name,Status,Completions,Duration,Age", "Containers,Images,Selector"), _job),
    "core.v1.Node": PrintedTable(
        _columns("Name,Status,Roles,Age,Version", "Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime"),
        _node,
    ),
    "core.v1.Namespace": PrintedTable(
        _columns("Name,Status,Age"), _simple(lambda one: one.get("status", {}).get("phase", ""))
    ),
    "core.v1.ConfigMap": PrintedTable(
        _columns("Name,Data,Age"), _simple(lambda one: len(one.get("data", ())) + len(one.get("binaryData", ())))
    ),
    "core.v1.Secret": PrintedTable(
        _columns("Name,Type,Data,Age"), _simple(lambda one: one.get("type", ""), lambda one: len(one.get("data", ())))
    ),
    "core.v1.ServiceAccount": PrintedTable(_columns("Name,Age"), _simple()),
    "core.v1.Event": _EVENTS,
    "events.v1.Event": _EVENTS,
    "core.v1.LimitRange": _CREATED,
    "core.v1.PodTemplate": PrintedTable(_columns("Name,Containers,Images,Pod Labels"), _template),
    "coordination.v1.Lease": PrintedTable(
        _columns("Name,Holder,Age"), _simple(lambda one: one.get("spec", {}).get("holderIdentity", ""))
    ),
    "scheduling.v1.PriorityClass": PrintedTable(
        _columns("Name,Value,Global-Default,Age,PreemptionPolicy", Value="integer", Global_Default="boolean"),
        _priority_class,
    ),
    "node.v1.RuntimeClass": PrintedTable(_columns("Name,Handler,Age"), _simple(lambda one: one.get("handler", ""))),
    "apiextensions.v1.CustomResourceDefinition": _CREATED,
    "admissionregistration.v1.MutatingWebhookConfiguration": _WEBHOOKS,
    "admissionregistration.v1.ValidatingWebhookConfiguration": _WEBHOOKS,
    "rbac.v1.Role": _CREATED,
    "rbac.v1.ClusterRole": _CREATED,
    "rbac.v1.RoleBinding": _BINDINGS,
    "rbac.v1.ClusterRoleBinding": _BINDINGS,
    "resource.v1.DeviceClass": PrintedTable(_columns("Name,Age"), _simple()),
    "resource.v1.ResourceClaimTemplate": PrintedTable(_columns("Name,Age"), _simple()),
    "resource.v1.ResourceClaim": PrintedTable(_columns("Name,State,Age"), _claim),
    "resource.v1.ResourceSlice": PrintedTable(
        _columns("Name,Node,Driver,Pool,Age"),
        _simple(
            lambda one: one["spec"].get("nodeName") or "<unset>",
            lambda one: one["spec"].get("driver", ""),
            lambda one: one["spec"].get("pool", {}).get("name", ""),
        ),
    ),
}
