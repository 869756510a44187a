"""A batch Job and a pod."""

from __future__ import annotations

from jobs.job_harness import batch_job, pod
from jobs.samples import JobSample, condition

SAMPLES = (
    JobSample(
        "batch/job",
        batch_job,
        running={"active": 1, "ready": 1, "startTime": "2026-11-15T12:00:00Z"},
        stopped={"active": 0, "ready": 0},
        succeeded={"active": 0, "ready": 0, "succeeded": 1, "conditions": [condition("Complete", "done")]},
        failed={"active": 0, "ready": 0, "failed": 1, "conditions": [condition("Failed", "broken")]},
    ),
    JobSample(
        "pod",
        pod,
        running={"phase": "Running", "conditions": [condition("Ready")]},
        stopped={"phase": "Failed"},
        succeeded={"phase": "Succeeded"},
        failed={"phase": "Failed", "message": "broken"},
    ),
)
