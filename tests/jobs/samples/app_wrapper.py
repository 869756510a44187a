"""An AppWrapper around one pod."""

from __future__ import annotations

from jobs.samples import JobSample, condition
from jobs.test_app_wrapper import app_wrapper
from kubemachinery.unstructured import Tree


def _is_false(type_: str) -> Tree:
    return {**condition(type_), "status": "False"}


SAMPLES = (
    JobSample(
        "workload.codeflare.dev/appwrapper",
        app_wrapper,
        running={"conditions": [condition("QuotaReserved"), condition("ResourcesDeployed"), condition("PodsReady")]},
        stopped={"conditions": [_is_false("QuotaReserved"), _is_false("ResourcesDeployed"), _is_false("PodsReady")]},
        succeeded={"phase": "Succeeded"},
        failed={"phase": "Failed", "conditions": [_is_false("ResourcesDeployed")]},
        operator_merges=True,
        has_variables=False,
    ),
)
