"""One sample job for each implemented framework, for the contract tests of all kinds (`tests/contracts/jobs`).

A kind adds a module with `SAMPLES`, a tuple of `JobSample`. A row of the table without a sample fails a test.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from kubemachinery import patches
from kubemachinery.unstructured import Tree


@dataclass(frozen=True)
class JobSample:
    """A job of one kind, and the status that its operator writes. Statuses are merge patches."""

    framework: str
    # The suspended job with the queue name `lq`, in namespace `main`, as the server stores it after the webhook.
    job: Callable[[], Tree]
    # The status while all pods run and are ready, and after the operator has stopped them.
    running: Tree
    stopped: Tree
    # The status of a job that has ended; None for a kind without an end.
    succeeded: Tree | None = None
    failed: Tree | None = None
    # Objects that the job refers to.
    related: tuple[Tree, ...] = ()
    # Whether the operator merges the admission into pod templates, and reports conflicts itself.
    operator_merges: bool = False
    # Whether the environment variables of the templates are part of the pod sets.
    has_variables: bool = True
    # Whether the pod templates are in the job; else they are made from other fields, or from another object.
    has_templates: bool = True

    def with_status(self, status: Tree) -> Tree:
        merged: Tree = patches.merge(self.job(), {"status": status})
        return merged


def _found() -> dict[str, JobSample]:
    modules = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    return {sample.framework: sample for module in modules for sample in module.SAMPLES}


def metadata(name: str) -> Tree:
    """The metadata of a stored job with the queue name `lq`."""
    return {
        "name": name,
        "namespace": "main",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
    }


def template(cpu: str = "1", name: str = "c") -> Tree:
    """A pod template with one container."""
    container = {"name": name, "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def condition(type_: str, message: str = "") -> Tree:
    """A true condition in the status of a job."""
    return {"type": type_, "status": "True", "reason": type_, "message": message}


SAMPLES = _found()
"""By framework."""
