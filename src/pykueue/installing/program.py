"""The program itself in a cluster: where it runs, with what settings, behind which Services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from pykueue.api import config
from pykueue.api.trees import Tree
from pykueue.installing.names import (
    CONFIG_FILE,
    CONFIG_MAP,
    DASHBOARD_SERVICE,
    LABELS,
    MANAGER,
    METRICS_SERVICE,
    document,
)
from pykueue.observe import visibility
from pykueue.settings import Settings
from pykueue.webhooks.registration import SERVICE_PORT

_SELECTOR: Final = {"control-plane": "controller-manager", "app.kubernetes.io/name": LABELS["app.kubernetes.io/name"]}
# Nobody in particular, in the range that images keep for nobody in particular.
_USER: Final = 65532
_DASHBOARD_PORT: Final = 8444
# What the manager is told so that it serves its dashboard.
DASHBOARD_ARGUMENT: Final = f"--dashboard=0.0.0.0:{_DASHBOARD_PORT}"


def documents(written: Tree, settings: Settings, namespace: str, image: str, *, dashboard: bool) -> Iterator[Tree]:
    """Settings, certificate, Services, Deployment. `written` is what goes into the file, `settings` what it means."""
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
    if dashboard:
        yield dashboard_service(namespace)
    deployment = _deployment(effective, image, ports, [DASHBOARD_ARGUMENT] if dashboard else [])
    yield document("apps/v1", "Deployment", MANAGER, namespace, spec=deployment)


def dashboard_service(namespace: str) -> Tree:
    return _service(DASHBOARD_SERVICE, namespace, "https", 443, _DASHBOARD_PORT)


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
        lists = effective.visibility_server or config.VisibilityServerConfiguration()
        ports["visibility"] = lists.bind_port or visibility.BIND_PORT
    return ports


def _service(name: str, namespace: str, port_name: str, port: int, target: str | int) -> Tree:
    ports = [{"name": port_name, "port": port, "protocol": "TCP", "targetPort": target}]
    return document("v1", "Service", name, namespace, spec={"ports": ports, "selector": dict(_SELECTOR)})


def _deployment(
    effective: config.Configuration, image: str, ports: dict[str, int], more_arguments: Sequence[str]
) -> Tree:
    pod: Tree = {
        "serviceAccountName": MANAGER,
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
