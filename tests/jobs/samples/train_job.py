"""A TrainJob of a runtime with one step."""

from __future__ import annotations

from jobs.samples import JobSample, condition
from jobs.test_train_job import ACTIVE, INACTIVE, runtime, train_job

SAMPLES = (
    JobSample(
        "trainer.kubeflow.org/trainjob",
        train_job,
        running={"jobsStatus": ACTIVE},
        stopped={"jobsStatus": INACTIVE},
        succeeded={"jobsStatus": INACTIVE, "conditions": [condition("Complete", "done")]},
        failed={"jobsStatus": INACTIVE, "conditions": [condition("Failed", "broken")]},
        related=(runtime(),),
        operator_merges=True,
        has_variables=False,
        has_templates=False,
    ),
)
