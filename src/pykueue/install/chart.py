"""The manifests as a Helm chart. Its templates are the manifests with placeholders for the values.

A template uses three forms only, so that it is readable and can be tested without Helm: `{{ .Path }}` inside a string,
`{{ toJson .Path }}` for a whole value (JSON is YAML), and `{{- if .Path }}` to `{{- end }}` around whole lines. The
CRDs are part of the chart, and are kept when it is uninstalled, and so is the volume of the history.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.unstructured import Tree
from pykueue.install import kustomize, manager_deployment, rbac
from pykueue.install.manifests import InstallPlan, all_manifests
from pykueue.install.names import CONFIG_FILE, DASHBOARD_SERVICE, MANAGER
from pykueue.version import __version__

# A placeholder for the namespace while manifests are rendered; it has to be a valid name.
_NAMESPACE: Final = "the-namespace-of-the-release"
_REPOSITORY, _TAG = "controllerManager.manager.image.repository", "controllerManager.manager.image.tag"
_CONFIGURATION: Final = "managerConfig.controllerManagerConfigYaml"
# Permissions to read owners of external frameworks: a chart cannot derive them from the Configuration in its values.
_EXTERNAL: Final = "managerConfig.externalFrameworksRules"
_DASHBOARD: Final = "enableDashboard"
# The size of the volume for the history; empty: no history.
_HISTORY: Final = "history.size"
_HISTORY_SIZE: Final = "1Gi"  # replaced by the value
_API_SERVER: Final = "networkPolicy.apiServer"
_KEEP: Final = {"helm.sh/resource-policy": "keep"}

_POD: Final = ("spec", "template", "spec")
# The values of the Deployment: name of the value -> path in the manifest.
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "controllerManager.replicas": ("spec", "replicas"),
    "controllerManager.manager.podAnnotations": ("spec", "template", "metadata", "annotations"),
    "controllerManager.manager.priorityClassName": (*_POD, "priorityClassName"),
    "controllerManager.imagePullSecrets": (*_POD, "imagePullSecrets"),
    "controllerManager.nodeSelector": (*_POD, "nodeSelector"),
    "controllerManager.tolerations": (*_POD, "tolerations"),
    "controllerManager.topologySpreadConstraints": (*_POD, "topologySpreadConstraints"),
}
# The values of its container: name of the value -> field.
_OF_CONTAINER: Final[dict[str, str]] = {
    "controllerManager.manager.image.pullPolicy": "imagePullPolicy",
    "controllerManager.manager.resources": "resources",
    "controllerManager.livenessProbe": "livenessProbe",
    "controllerManager.readinessProbe": "readinessProbe",
}
# Defaults of values that the manifests do not set.
_OTHERWISE: Final[dict[str, Any]] = {
    "controllerManager.manager.priorityClassName": "",
    "controllerManager.imagePullSecrets": [],
    "controllerManager.nodeSelector": {},
    "controllerManager.tolerations": [],
    "controllerManager.topologySpreadConstraints": [],
    "controllerManager.manager.image.pullPolicy": "IfNotPresent",
}
_WHOLE: Final = re.compile(r"'(\{\{ toJson [^}]* \}\})'")
_DASHBOARD_LINE: Final = re.compile(rf" *- {re.escape(manager_deployment.DASHBOARD_ARGUMENT)}\n")


def files(plan: InstallPlan) -> Iterator[tuple[str, str]]:
    """Yield path and content of every file of the chart."""
    yield "Chart.yaml", kustomize.render([_about()])
    yield "values.yaml", kustomize.render([values(plan)])
    opened = replace(plan, namespace=_NAMESPACE, image=_image(), dashboard=True)
    without, fullest = _texts(opened), _texts(replace(opened, history_size=_HISTORY_SIZE))
    for path, text in fullest.items():
        text = _with_condition(_HISTORY, without.get(path, ""), text)
        text = _DASHBOARD_LINE.sub(lambda line: _if(_DASHBOARD, line[0]), text)
        # A role without rules has no such field (`rbac.documents`).
        text = text.replace(_EXTERNAL_LINE, _if(_EXTERNAL, _EXTERNAL_LINE))
        if path == kustomize.file_of({"kind": "Service", "metadata": {"name": DASHBOARD_SERVICE}}):
            text = _if(_DASHBOARD, text)
        yield f"templates/{path}", text.replace(_NAMESPACE, "'{{ .Release.Namespace }}'")


def _texts(plan: InstallPlan) -> dict[str, str]:
    """Return the content of every template by path."""
    by_file: dict[str, list[Tree]] = {}
    for one in all_manifests(plan):
        if one["kind"] != "Namespace":  # Helm creates it with --create-namespace
            by_file.setdefault(kustomize.file_of(one), []).append(_opened(one))
    return {path: _WHOLE.sub(r"\1", kustomize.render(objects)) for path, objects in by_file.items()}


def _if(name: str, lines: str) -> str:
    return f"{{{{- if .Values.{name} }}}}\n{lines}{{{{- end }}}}\n"


def _with_condition(name: str, without: str, text: str) -> str:
    """Return the longer text with a condition around every line that the shorter one has not."""
    before, after = without.splitlines(keepends=True), text.splitlines(keepends=True)
    found = []
    for what, begin, end, first, last in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        lines = "".join(after[first:last])
        assert what in ("equal", "insert"), f"{before[begin:end]} cannot become {lines} by a condition"
        found.append(lines if what == "equal" else _if(name, lines))
    return "".join(found)


def values(plan: InstallPlan) -> Tree:
    """Return the values of the chart with their defaults."""
    deployment = next(one for one in all_manifests(plan) if one["kind"] == "Deployment")
    (container,) = unstructured.get(deployment, *_POD, "containers")
    repository, _, tag = plan.image.rpartition(":")
    found: Tree = {_REPOSITORY: repository, _TAG: tag}
    found |= {name: unstructured.get(deployment, *path) for name, path in _CHOICES.items()}
    found |= {name: container.get(field) for name, field in _OF_CONTAINER.items()}
    found = {name: _OTHERWISE.get(name) if value is None else value for name, value in found.items()}
    found[_CONFIGURATION] = manager_deployment.configuration_text(plan.written)
    found[_EXTERNAL] = next(one for one in all_manifests(plan) if _is_external_role(one)).get("rules", [])
    found[_API_SERVER] = [{"ipBlock": {"cidr": cidr}} for cidr in plan.api_server]
    found[_DASHBOARD] = plan.dashboard
    found[_HISTORY] = plan.history_size
    tree: Tree = {}
    for name, value in found.items():
        tree = unstructured.put(tree, tuple(name.split(".")), value)
    return tree


def _about() -> Tree:
    return {
        "apiVersion": "v2",
        "name": "pykueue",
        "description": "Job queueing for Kubernetes, compatible with the Kueue API.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.29.0-0",
    }


def _image() -> str:
    return f"{{{{ .Values.{_REPOSITORY} }}}}:{{{{ .Values.{_TAG} }}}}"


def _value(name: str) -> str:
    return f"{{{{ toJson .Values.{name} }}}}"


_EXTERNAL_LINE: Final = f"rules: {_value(_EXTERNAL)}\n"


def _is_external_role(document: Tree) -> bool:
    return (document["kind"], document["metadata"]["name"]) == ("ClusterRole", rbac.EXTERNAL_ROLE)


def _opened(document: Tree) -> Tree:
    """Return the manifest with placeholders for the values."""
    match document["kind"]:
        case "CustomResourceDefinition":
            notes = unstructured.mapping(unstructured.get(document, "metadata", "annotations"))
            return unstructured.put(document, ("metadata", "annotations"), {**notes, **_KEEP})
        case "ClusterRole" if _is_external_role(document):
            return {**document, "rules": _value(_EXTERNAL)}
        case "PersistentVolumeClaim":
            document = unstructured.put(document, ("metadata", "annotations"), dict(_KEEP))
            return unstructured.put(document, ("spec", "resources", "requests", "storage"), _value(_HISTORY))
        case "ConfigMap":
            return unstructured.put(document, ("data", CONFIG_FILE), _value(_CONFIGURATION))
        case "NetworkPolicy" if document["metadata"]["name"] == MANAGER:
            first, *others = document["spec"]["ingress"]
            return unstructured.put(document, ("spec", "ingress"), [{**first, "from": _value(_API_SERVER)}, *others])
        case "Deployment":
            (container,) = unstructured.get(document, *_POD, "containers")
            opened = {**container, **{field: _value(name) for name, field in _OF_CONTAINER.items()}}
            document = unstructured.put(document, (*_POD, "containers"), [opened])
            for name, path in _CHOICES.items():
                document = unstructured.put(document, path, _value(name))
    return document
