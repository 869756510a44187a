"""The job of a Workload, by its owner references and annotations."""

from __future__ import annotations

from kubemachinery import meta
from pykueue.api import kueue, labels


def controller(workload: kueue.Workload) -> meta.OwnerReference | None:
    """The owner that controls a Workload; None without one."""
    return next((owner for owner in workload.metadata.owner_references if owner.controller), None)


def job_of(workload: kueue.Workload) -> meta.OwnerReference | None:
    """The job that a Workload is for: the one that its annotations name, for a kind whose pods own the Workload as
    well, or its controller. None for a group of pods, of which none is the job."""
    annotations = workload.metadata.annotations
    version, _, kind = annotations.get(labels.JOB_OWNER_GVK, "").partition(", Kind=")
    if not kind:
        return controller(workload)
    named = (kind, annotations.get(labels.JOB_OWNER_NAME, ""))
    found = next((owner for owner in workload.metadata.owner_references if (owner.kind, owner.name) == named), None)
    return found or meta.OwnerReference(api_version=version, kind=kind, name=named[1], uid="")
