"""The pods that controllers without an integration create: those of Argo Workflows, Tekton and Agent Sandbox, played.

None of these controllers is built for the tests. Each creates the pods of its objects with labels that the user writes
into the object, and these pods are queued one by one. What is here creates the same pods from the same manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Tree = dict[str, Any]


class PlayedKind:
    """A kind that is stored with a CRD that keeps everything, since its controller does not run."""

    def __init__(self, group: str, version: str, kind: str) -> None:
        self.kind = kind
        self.plural = "sandboxes" if kind == "Sandbox" else f"{kind.lower()}s"
        self.resource = f"apis/{group}/{version}/{self.plural}"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        served = {"name": version, "served": True, "storage": True, "schema": schema}
        names = {"kind": kind, "listKind": f"{kind}List", "plural": self.plural, "singular": kind.lower()}
        self.crd: Tree = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
        }


KINDS: Final = {
    kind.kind: kind
    for kind in (
        PlayedKind("argoproj.io", "v1alpha1", "Workflow"),
        PlayedKind("tekton.dev", "v1", "PipelineRun"),
        PlayedKind("tekton.dev", "v1", "Pipeline"),
        PlayedKind("tekton.dev", "v1", "Task"),
        PlayedKind("agents.x-k8s.io", "v1alpha1", "Sandbox"),
    )
}


def pods(owner: Tree, others: list[Tree]) -> list[Tree]:
    """The pods that the controller of a stored object creates, with the other objects that it refers to."""
    return [_owned(pod, owner) for pod in _RECIPES[owner["kind"]](owner, others)]


def _owned(pod: Tree, owner: Tree) -> Tree:
    reference = {key: owner["metadata"][key] for key in ("name", "uid")}
    reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    metadata = {**pod["metadata"], "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"restartPolicy": "Never", **pod["spec"]}}


def _workflow_pods(workflow: Tree, _others: list[Tree]) -> Iterator[Tree]:
    """Argo: a pod for each step, with the labels of `podMetadata` and those of the step's template."""
    spec, name = workflow["spec"], workflow["metadata"]["name"]
    templates = {template["name"]: template for template in spec["templates"]}
    entry = templates[spec["entrypoint"]]
    steps = [step for group in entry.get("steps", ()) for step in group]
    for step in steps or [{"name": entry["name"], "template": entry["name"]}]:
        template = templates[step["template"]]
        labels = {
            "workflows.argoproj.io/workflow": name,
            **_labels(spec.get("podMetadata")),
            **_labels(template.get("metadata")),
        }
        metadata = {"name": f"{name}-{step['name']}", "labels": labels}
        yield {"metadata": metadata, "spec": {"containers": [{"name": "main", **template["container"]}]}}


def _pipeline_pods(run: Tree, others: list[Tree]) -> Iterator[Tree]:
    """Tekton: a pod for each task of the pipeline, with the labels of the PipelineRun, and a container for each step."""
    by_name = {(tree["kind"], tree["metadata"].get("name")): tree for tree in others}
    pipeline, name = by_name["Pipeline", run["spec"]["pipelineRef"]["name"]], run["metadata"]["name"]
    for task in pipeline["spec"]["tasks"]:
        steps = by_name["Task", task["taskRef"]["name"]]["spec"]["steps"]
        containers = [
            {"name": f"step-{step['name']}", "image": step["image"], "command": ["sh", "-c", step["script"]]}
            for step in steps
        ]
        labels = {**_labels(run["metadata"]), "tekton.dev/pipelineRun": name, "tekton.dev/pipelineTask": task["name"]}
        yield {"metadata": {"name": f"{name}-{task['name']}-pod", "labels": labels}, "spec": {"containers": containers}}


def _sandbox_pods(sandbox: Tree, _others: list[Tree]) -> Iterator[Tree]:
    """Agent Sandbox: one pod of the template, with the name of the Sandbox."""
    template = sandbox["spec"]["podTemplate"]
    metadata = {"name": sandbox["metadata"]["name"], "labels": _labels(template.get("metadata"))}
    yield {"metadata": metadata, "spec": template["spec"]}


def _labels(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    return dict((metadata or {}).get("labels") or {})


_RECIPES: Final[Mapping[str, Callable[[Tree, list[Tree]], Iterator[Tree]]]] = {
    "Workflow": _workflow_pods,
    "PipelineRun": _pipeline_pods,
    "Sandbox": _sandbox_pods,
}
