"""The program itself in a cluster: where it runs, with what settings, behind which Services."""

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
# Nobody in particular, in the range that images keep for nobody in particular.
_USER: Final = 65532
_DASHBOARD_PORT: Final = 8444
# A node can be drained, and of several replicas one at a time.
_BUDGET: Final = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
# What the manager is told so that it serves its dashboard.
DASHBOARD_ARGUMENT: Final = f"--dashboard=0.0.0.0:{_DASHBOARD_PORT}"


def documents(
    written: Tree, settings: Settings, namespace: str, image: str, *, dashboard: bool, api_server: Sequence[str] = ()
) -> Iterator[Tree]:
    """Settings, certificate, Services, network policies, disruption budget, Deployment.

    `written` is what goes into the file, `settings` what it means. `api_server` are the address ranges from which the
    API server calls webhooks and the visibility API; none is any address.
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
    yield document("apps/v1", "Deployment", MANAGER, namespace, spec=deployment)


def dashboard_documents(namespace: str) -> Iterator[Tree]:
    """What leads to the dashboard. Network policies add up, so that this one opens its port beside the others."""
    yield _service(DASHBOARD_SERVICE, namespace, "https", 443, _DASHBOARD_PORT)
    yield _network_policy(DASHBOARD_SERVICE, namespace, [_opened([_DASHBOARD_PORT])])


# The ports that the API server calls; the others have clients of all sorts, which prove who they are or only probe.
_FOR_API_SERVER: Final = ("webhook-server", "visibility")


def _policy(namespace: str, ports: dict[str, int], api_server: Sequence[str]) -> Tree:
    """Let in who has business here. Webhooks answer without asking who calls, so their callers are the narrowest."""
    called = [ports[name] for name in _FOR_API_SERVER if name in ports]
    others = [port for name, port in ports.items() if name not in _FOR_API_SERVER]
    rules = [_opened(called, [{"ipBlock": {"cidr": cidr}} for cidr in api_server])]
    return _network_policy(MANAGER, namespace, [*rules, *([_opened(others)] if others else [])])


def _opened(ports: Sequence[int], sources: Sequence[Tree] = ()) -> Tree:
    """A rule that opens ports; to all sources where none is named."""
    return {"from": list(sources), "ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _network_policy(name: str, namespace: str, rules: Sequence[Tree]) -> Tree:
    # An empty `from` means every source, and an API server does not store it: left out, an installation that is
    # applied again changes nothing.
    stored = [{key: value for key, value in rule.items() if key != "from" or value} for rule in rules]
    spec = {"podSelector": {"matchLabels": dict(_SELECTOR)}, "policyTypes": ["Ingress"], "ingress": stored}
    return document("networking.k8s.io/v1", "NetworkPolicy", name, namespace, spec=spec)


def configuration_text(written: Tree) -> str:
    """The Configuration as the file that the manager reads."""
    return yaml.dump(written, sort_keys=False, width=120, allow_unicode=True)


def _ports(settings: Settings) -> dict[str, int]:
    """The ports of the pod by their names; a server that is turned off has none."""
    effective = settings.configuration
    served = effective.webhook or config.ControllerWebhook()
    metrics, health = effective.metrics or config.ControllerMetrics(), effective.health or config.ControllerHealth()
    ports = {"webhook-server": served.port if served.port is not None else 9443}
    for name, address in (("metrics", metrics.bind_address), ("probes", health.health_probe_bind_address)):
        port = address.rpartition(":")[2]
        if port.isdecimal() and int(port):
            ports[name] = int(port)
    if settings.gates["VisibilityOnDemand"]:
        visibility_api_services = effective.visibility_server or config.VisibilityServerConfiguration()
        ports["visibility"] = visibility_api_services.bind_port or visibility.BIND_PORT
    return ports


def _service(name: str, namespace: str, port_name: str, port: int, target: str | int) -> Tree:
    ports = [{"name": port_name, "port": port, "protocol": "TCP", "targetPort": target}]
    return document("v1", "Service", name, namespace, spec={"ports": ports, "selector": dict(_SELECTOR)})


def _deployment(
    effective: config.Configuration, image: str, ports: dict[str, int], more_arguments: Sequence[str]
) -> Tree:
    pod: Tree = {
        "serviceAccountName": MANAGER,
        # Its account gives the token to no pod that does not ask for it.
        "automountServiceAccountToken": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Long enough to give the lease back, so that the next leader need not wait for it to run out.
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
        # No limit of processors: one that is throttled answers webhooks late, which every write of a cluster waits for.
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
