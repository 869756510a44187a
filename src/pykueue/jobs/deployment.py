"""Deployment: each of its pods is a job by itself, with a Workload of its own. Only the webhook concerns the object.

The template gets the mark that gates the pods, and what makes each pod a job: the managed label, the queue and the
priority class. A template that changes is rolled out by the Deployment controller, so that pods always have the queue
of their Deployment; scaling needs no rule, since each pod waits for quota of its own [DP1, DP3, DP6].
"""

from __future__ import annotations

from typing import Final

from kubemachinery import unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod_parent import PodParent, stamped

FRAMEWORK: Final = "deployment"

_TEMPLATE: Final = ("spec", "template")


class Deployment(PodParent):
    """One Deployment."""

    is_reconciled = False

    @property
    def is_marked(self) -> bool:
        found = unstructured.get(self.tree, *_TEMPLATE, "metadata", "annotations", labels.POD_SUSPENDING_PARENT)
        return bool(found == FRAMEWORK)

    def defaulted(self, options: IntegrationOptions) -> Tree:
        marks = {
            labels.MANAGED: "true",
            labels.QUEUE_NAME: self.queue_name,
            labels.PRIORITY_CLASS: self.labels.get(labels.PRIORITY_CLASS, ""),
        }
        template = stamped(self.spec.get("template"), marks, {labels.POD_SUSPENDING_PARENT: FRAMEWORK})
        return unstructured.put(self.tree, _TEMPLATE, template)
