"""The names of installed objects. They are part of the public interface: manifests and dashboards use them."""

from __future__ import annotations

from typing import Final

from kubemachinery.unstructured import Tree

PREFIX: Final = "kueue-"
MANAGER: Final = "kueue-controller-manager"
CONFIG_MAP: Final = "kueue-manager-config"
CONFIG_FILE: Final = "controller_manager_config.yaml"
METRICS_SERVICE: Final = "kueue-controller-manager-metrics-service"
DASHBOARD_SERVICE: Final = "kueue-dashboard"

# Marks every installed object. Objects of the same name without it belong to another installer.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OWNER: Final = "pykueue"
LABELS: Final = {
    "app.kubernetes.io/name": "kueue",
    "app.kubernetes.io/component": "controller",
    MANAGED_BY: OWNER,
}


def document(api_version: str, kind: str, name: str, namespace: str = "", **content: object) -> Tree:
    """Return a manifest with the labels of the installation."""
    metadata: Tree = {"name": name, "labels": dict(LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
