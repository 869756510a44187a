"""A broken status of an operator never stops the reconciler: wrong types, negative numbers, nulls, unknown words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contracts.jobs.test_lifecycle import JOB_ROWS, harness_of, job_of, sample_of
from kubemachinery.unstructured import Tree
from pykueue.jobs.integration import JobIntegration

BROKEN: tuple[Any, ...] = (None, -1, 0, 10**12, 1.5, True, "", "Unknown", [], [None], ["x"], {}, {"x": None})


def paths(value: Any, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a tree, from the root down."""
    yield here
    if isinstance(value, dict):
        for key, below in value.items():
            yield from paths(below, (*here, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from paths(below, (*here, number))


def put(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    head, *rest = path
    if isinstance(value, list):
        return [put(each, tuple(rest), new) if number == head else each for number, each in enumerate(value)]
    return {key: put(each, tuple(rest), new) if key == head else each for key, each in value.items()}


def broken_statuses(row: JobIntegration) -> Iterator[Any]:
    sample = sample_of(row)
    for status in filter(None, (sample.running, sample.stopped, sample.succeeded, sample.failed)):
        for path in paths(status):
            yield from (put(status, path, value) for value in BROKEN)


@pytest.mark.parametrize("row", JOB_ROWS, ids=lambda row: row.framework)
def test_broken_status_is_read_without_an_error(row: JobIntegration) -> None:
    harness = harness_of(row).settle()
    (name,) = harness.objects
    stored: Tree = harness.job
    counts = {pod_set.name: pod_set.count for pod_set in harness.workload.spec.pod_sets}
    for status in broken_statuses(row):
        harness.objects[name] = {**stored, "status": status}
        job = job_of(harness)
        job.outcome(), job.is_active(), job.are_pods_ready(), job.is_on_hold(), job.conditions(harness.workload)
        assert all(0 <= pods <= counts[of] for of, pods in job.reclaimable().items()), status


@pytest.mark.parametrize("row", JOB_ROWS, ids=lambda row: row.framework)
def test_reconciler_comes_to_rest_with_any_broken_status(row: JobIntegration) -> None:
    for status in broken_statuses(row):
        for admitted in (False, True):
            harness = harness_of(row).settle()
            (name,) = harness.objects
            if admitted:
                harness.admit().settle()
            harness.objects[name] = {**harness.objects[name], "status": status}
            harness.settle()
