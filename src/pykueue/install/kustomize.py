"""The manifests as files, for `kubectl apply --server-side -k deploy`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import yaml

from kubemachinery import kubectl_yaml
from kubemachinery.unstructured import Tree
from pykueue.install import manager_deployment
from pykueue.install.manifests import InstallPlan, all_manifests
from pykueue.install.names import DASHBOARD_SERVICE, MANAGER

# Kind -> file; each CRD has its own file.
_FILES: Final = {
    "Namespace": "manager/namespace.yaml",
    "ServiceAccount": "rbac/manager.yaml",
    "Role": "rbac/manager.yaml",
    "RoleBinding": "rbac/manager.yaml",
    "ClusterRoleBinding": "rbac/manager.yaml",
    "ClusterRole": "rbac/manager.yaml",
    "ConfigMap": "manager/configuration.yaml",
    "Secret": "webhooks/secret.yaml",
    "Service": "manager/services.yaml",
    "NetworkPolicy": "manager/network.yaml",
    "PersistentVolumeClaim": "manager/history.yaml",
    "PodDisruptionBudget": "manager/deployment.yaml",
    "Deployment": "manager/deployment.yaml",
    "APIService": "visibility/apiservices.yaml",
    "MutatingWebhookConfiguration": "webhooks/mutating.yaml",
    "ValidatingWebhookConfiguration": "webhooks/validating.yaml",
}
# The names of roles for users, which the manager does not need.
_USER_ROLES: Final = ("-editor-role", "-viewer-role", "batch-admin-role", "batch-user-role", "metrics-reader")


class _Dumper(kubectl_yaml.Dumper):
    """Writes multi-line strings as literal blocks."""


def _text(dumper: Any, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def render(objects: Sequence[Tree], form: str = "yaml") -> str:
    """Return the objects as a YAML stream, or as a List in JSON."""
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True)


def files(plan: InstallPlan) -> Iterator[tuple[str, str]]:
    """Yield path and content of every file."""
    by_file: dict[str, list[Tree]] = {}
    for one in all_manifests(plan):
        by_file.setdefault(file_of(one), []).append(one)
    for path, objects in by_file.items():
        yield path, render(objects)
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(by_file),
    }
    yield "kustomization.yaml", render([listed])
    if not plan.dashboard:
        yield from _dashboard(plan)


def _dashboard(plan: InstallPlan) -> Iterator[tuple[str, str]]:
    """Yield a kustomize component that adds the dashboard."""
    documents = list(manager_deployment.dashboard_documents(plan.namespace))
    argument = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/args/-",
        "value": manager_deployment.DASHBOARD_ARGUMENT,
    }
    file = PurePath(file_of(documents[0]))
    yield str(file), render(documents)
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": [file.name],
        "patches": [{"target": {"kind": "Deployment", "name": MANAGER}, "patch": json.dumps([argument])}],
    }
    yield str(file.parent / "kustomization.yaml"), render([component])


def file_of(document: Tree) -> str:
    """Return the file of an object."""
    kind, name = document["kind"], document["metadata"]["name"]
    if name == DASHBOARD_SERVICE:
        return "dashboard/service.yaml"
    if kind == "CustomResourceDefinition":
        return f"crds/{name}.yaml"
    if kind == "ClusterRole" and name.endswith(_USER_ROLES):
        return "rbac/users.yaml"
    return _FILES[kind]
