"""The manager in a cluster: its Deployment, Configuration, Services, network policies and disruption budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from kubemachinery.unstructured import Tree
from pykueue.api import config
from pykueue.install.names import CONFIG_FILE, CONFIG_MAP, DASHBOARD_SERVICE, LABELS, MANAGER, METRICS_SERVICE, document
from pykueue.observe import visibility
from pykueue.settings import Settings
from pykueue.webhooks.registration import SERVICE_PORT

_SELECTOR: Final = {"control-plane": "controller-manager", "app.kubernetes.io/name": LABELS["app.kubernetes.io/name"]}
# The conventional non-root user of distroless images.
_USER: Final = 65532
_DASHBOARD_PORT: Final = 8444
# A node can be drained; of several replicas, one at a time.
_BUDGET: Final = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
# The argument that makes the manager serve the dashboard.
DASHBOARD_ARGUMENT: Final = f"--dashboard=0.0.0.0:{_DASHBOARD_PORT}"


# Where the history is in the pod, and the names of its volume.
_HISTORY_FOLDER: Final = "/var/lib/pykueue"
HISTORY_CLAIM: Final = "pykueue-history"


def documents(
    written: Tree,
    settings: Settings,
    namespace: str,
    image: str,
    *,
    dashboard: bool,
    api_server: Sequence[str] = (),
    history_size: str = "",
) -> Iterator[Tree]:
    """Yield Configuration, certificate Secret, Services, network policies, disruption budget, Deployment.

    `written` is the content of the Configuration file, `settings` its parsed form. `api_server` are the address ranges
    from which the
    API server calls webhooks and the visibility API; none is any address. With a `history_size` the manager keeps the
    history on a volume of this size.
    """
    effective = settings.configuration
    own = effective.internal_cert_management or config.InternalCertManagement()
    yield document("v1", "ConfigMap", CONFIG_MAP, namespace, data={CONFIG_FILE: configuration_text(written)})
    if own.enable:
        yield document("v1", "Secret", own.webhook_secret_name, namespace, type="Opaque")
    ports = _ports(settings)
    yield _service(own.webhook_service_name, namespace, "https-webhook", SERVICE_PORT, "webhook-server")
    if "metrics" in ports:
        yield _service(METRICS_SERVICE, namespace, "metrics", ports["metrics"], "metrics")
    if "visibility" in ports:
        yield _service(visibility.SERVICE, namespace, "https", visibility.SERVICE_PORT, "visibility")
    yield _policy(namespace, ports, api_server)
    if dashboard:
        yield from dashboard_documents(namespace)
    yield document("policy/v1", "PodDisruptionBudget", MANAGER, namespace, spec=_BUDGET)
    deployment = _deployment(effective, image, ports, [DASHBOARD_ARGUMENT] if dashboard else [])
    if history_size:
        yield document("v1", "PersistentVolumeClaim", HISTORY_CLAIM, namespace, spec=_claim(history_size))
        deployment = _with_history(deployment)
    yield document("apps/v1", "Deployment", MANAGER, namespace, spec=deployment)


def _claim(size: str) -> Tree:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}


def _with_history(deployment: Tree) -> Tree:
    """Return the Deployment with the volume of the history. One file has one writer, so the old pod ends before the new
    one starts."""
    pod = deployment["template"]["spec"]
    (manager,) = pod["containers"]
    manager = {
        **manager,
        "args": [*manager["args"], f"--history={_HISTORY_FOLDER}/history.db"],
        "volumeMounts": [*manager["volumeMounts"], {"name": "history", "mountPath": _HISTORY_FOLDER}],
    }
    volume = {"name": "history", "persistentVolumeClaim": {"claimName": HISTORY_CLAIM}}
    # The volume belongs to the group of the manager, which is no root.
    security = {**pod["securityContext"], "fsGroup": _USER}
    pod = {**pod, "containers": [manager], "volumes": [*pod["volumes"], volume], "securityContext": security}
    template = {**deployment["template"], "spec": pod}
    return {**deployment, "strategy": {"type": "Recreate"}, "template": template}


def dashboard_documents(namespace: str) -> Iterator[Tree]:
    """Yield the Service of the dashboard and a network policy that opens its port in addition to the others."""
    yield _service(DASHBOARD_SERVICE, namespace, "https", 443, _DASHBOARD_PORT)
    yield _network_policy(DASHBOARD_SERVICE, namespace, [_opened([_DASHBOARD_PORT])])


# The ports that only the API server calls; clients of the others authenticate, or are probes.
_FOR_API_SERVER: Final = ("webhook-server", "visibility")


def _policy(namespace: str, ports: dict[str, int], api_server: Sequence[str]) -> Tree:
    """Return the ingress policy. Webhooks do not authenticate callers, so their sources are the most restricted."""
    called = [ports[name] for name in _FOR_API_SERVER if name in ports]
    others = [port for name, port in ports.items() if name not in _FOR_API_SERVER]
    rules = [_opened(called, [{"ipBlock": {"cidr": cidr}} for cidr in api_server])]
    return _network_policy(MANAGER, namespace, [*rules, *([_opened(others)] if others else [])])


def _opened(ports: Sequence[int], sources: Sequence[Tree] = ()) -> Tree:
    """Return a rule that opens ports; to all sources if none is given."""
    return {"from": list(sources), "ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _network_policy(name: str, namespace: str, rules: Sequence[Tree]) -> Tree:
    # An empty `from` means every source, and an API server does not store it: left out, an installation that is
    # applied again changes nothing.
    stored = [{key: value for key, value in rule.items() if key != "from" or value} for rule in rules]
    spec = {"podSelector": {"matchLabels": dict(_SELECTOR)}, "policyTypes": ["Ingress"], "ingress": stored}
    return document("networking.k8s.io/v1", "NetworkPolicy", name, namespace, spec=spec)


def configuration_text(written: Tree) -> str:
    """Return the Configuration file of the manager."""
    return yaml.dump(written, sort_keys=False, width=120, allow_unicode=True)


def _ports(settings: Settings) -> dict[str, int]:
    """Return the ports of the pod by name; a disabled server has none."""
    effective = settings.configuration
    served = effective.webhook or config.ControllerWebhook()
    metrics, health = effective.metrics or config.ControllerMetrics(), effective.health or config.ControllerHealth()
    ports = {"webhook-server": served.port if served.port is not None else 9443}
    for name, address in (("metrics", metrics.bind_address), ("probes", health.health_probe_bind_address)):
        port = address.rpartition(":")[2]
        if port.isdecimal() and int(port):
            ports[name] = int(port)
    # Troubles of Workloads are in `views.pykueue.io`, whether or not the visibility API is on.
    visibility_server = effective.visibility_server or config.VisibilityServerConfiguration()
    ports["visibility"] = visibility_server.bind_port or visibility.BIND_PORT
    return ports


def _service(name: str, namespace: str, port_name: str, port: int, target: str | int) -> Tree:
    ports = [{"name": port_name, "port": port, "protocol": "TCP", "targetPort": target}]
    return document("v1", "Service", name, namespace, spec={"ports": ports, "selector": dict(_SELECTOR)})


def _deployment(
    effective: config.Configuration, image: str, ports: dict[str, int], more_arguments: Sequence[str]
) -> Tree:
    pod: Tree = {
        "serviceAccountName": MANAGER,
        # The ServiceAccount does not mount its token by default.
        "automountServiceAccountToken": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Long enough to release the Lease, so that the next leader does not wait for it to expire.
        "terminationGracePeriodSeconds": 20,
        "containers": [_container(effective, image, ports, more_arguments)],
        "volumes": [
            {"name": "config", "configMap": {"name": CONFIG_MAP}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi", "medium": "Memory"}},
        ],
    }
    labels = {**LABELS, **_SELECTOR}
    return {
        "replicas": 1,
        "selector": {"matchLabels": dict(_SELECTOR)},
        "template": {
            "metadata": {"labels": labels, "annotations": {"kubectl.kubernetes.io/default-container": "manager"}},
            "spec": pod,
        },
    }


def _container(
    effective: config.Configuration, image: str, ports: dict[str, int], more_arguments: Sequence[str]
) -> Tree:
    container: Tree = {
        "name": "manager",
        "image": image,
        "args": ["manager", f"--config=/etc/pykueue/{CONFIG_FILE}", "--log-level=info", *more_arguments],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        # No CPU limit: a throttled manager answers webhooks late, and every write of the cluster waits for them.
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/pykueue", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
    if "probes" in ports:
        health = effective.health or config.ControllerHealth()
        container["livenessProbe"] = _probe(health.liveness_endpoint_name, initialDelaySeconds=15, periodSeconds=20)
        container["readinessProbe"] = _probe(health.readiness_endpoint_name, initialDelaySeconds=2, periodSeconds=5)
    return container


def _probe(path: str, **timing: Any) -> Tree:
    return {"httpGet": {"path": f"/{path.lstrip('/')}", "port": "probes"}, **timing}
