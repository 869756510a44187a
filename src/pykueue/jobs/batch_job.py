"""batch/v1 Job."""

from __future__ import annotations

from pykueue.jobs.contract import Job


class BatchJob(Job):
    """A Job of Kubernetes."""
