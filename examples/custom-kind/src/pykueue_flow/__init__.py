"""Flows of example.com, as pykueue sees them: a flag that suspends them, and a pod template per step.

The whole of it is a class with four answers and a row. Suspending, starting with node selectors and tolerations,
putting them back, events, the webhook: all of that follows from where the flag and the templates stand.
"""

from __future__ import annotations

from kubemachinery import unstructured
from kubemachinery.kinds import Kind, Version
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate
from pykueue.jobs.kinds import JobIntegration


class Flow(GenericJob):
    """A number of steps, each with its own pods, that run side by side. `spec.suspend` holds them all back."""

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return tuple(
            PodSetTemplate(
                name=unstructured.text(step.get("name")),
                spot=("spec", "steps", number, "template"),
                count=unstructured.integer(step.get("replicas")) or 1,
            )
            for number, step in unstructured.entries(self.tree, "spec", "steps")
        )

    def outcome(self) -> JobOutcome | None:
        phase = unstructured.text(unstructured.get(self.tree, "status", "phase"))
        return JobOutcome(f"The flow has {phase.lower()}", phase == "Succeeded") if phase in _ENDS else None

    def is_active(self) -> bool:
        return bool(unstructured.integer(unstructured.get(self.tree, "status", "active")))

    def are_pods_ready(self) -> bool:
        wanted = sum(template.count for template in self.templates())
        return (unstructured.integer(unstructured.get(self.tree, "status", "ready")) or 0) >= wanted


_ENDS = ("Succeeded", "Failed")

ROW = JobIntegration(
    framework="example.com/flow",
    kind=Kind("example.com", "Flow", "flows", (Version("v1", storage=True),)),
    implementation=Flow,
)
