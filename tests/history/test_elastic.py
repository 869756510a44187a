"""The history of an elastic job: one record for each slice, linked, and no second is charged twice [HI5]."""

from __future__ import annotations

from typing import Any

from kubemachinery.meta import SECOND, parse_time
from pykueue.client.job_status import JobState
from pykueue.history.documents import JobRecord
from pykueue.testing import system

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "grows",
        "labels": {"kueue.x-k8s.io/queue-name": "default"},
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
    },
    "spec": {
        "parallelism": 2,
        "completions": 8,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c",
                        "image": "x",
                        "command": ["sleep", "10000"],
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            }
        },
    },
}


def pod_seconds(record: JobRecord) -> int:
    return int(record.resource_seconds["cpu"])


def test_elastic_job_that_grows_has_two_linked_records_and_is_charged_once() -> None:
    with system() as kueue:
        kueue.apply(JOB)
        kueue.advance(100)
        kueue.patch("job", "grows", {"spec": {"parallelism": 4}})
        kueue.advance(100)
        first, second = kueue.history()
        assert (first.state, second.state) == ("Replaced", "Running")
        assert second.slice_of == f"default/{first.workload}"
        assert (first.pods, second.pods) == (2, 4)
        assert first.ended is not None
        assert second.started is not None
        # Without a gap and without an overlap, but for the second that the API's times are rounded to.
        gap = (parse_time(second.started) - parse_time(first.ended)) // SECOND
        assert abs(gap) <= 1
        assert first.ran_seconds * 2 == pod_seconds(first)
        assert second.ran_seconds * 4 == pod_seconds(second)
        assert abs(first.ran_seconds + second.ran_seconds - 202) <= 2


def test_slice_that_was_replaced_has_no_exit_code_of_pods_that_are_scaled_down_later() -> None:
    with system() as kueue:
        kueue.apply(JOB)
        for parallelism in (4, 3):
            kueue.advance(100)
            kueue.patch("job", "grows", {"spec": {"parallelism": parallelism}})
        kueue.advance(100)
        first, second = kueue.history()
        assert (first.state, first.exit_code) == ("Replaced", None)
        # The slice was submitted with four pods; its last pod is not charged any more.
        assert (second.pods, second.requests) == (4, {"cpu": "4"})
        assert [usage.amount for usage in second.attempts[-1].usage] == ["4", "3"]


def test_queue_shows_an_elastic_job_once_and_not_its_replaced_slices() -> None:
    with system() as kueue:
        kueue.apply(JOB)
        kueue.advance(100)
        kueue.patch("job", "grows", {"spec": {"parallelism": 4}})
        kueue.advance(100)
        assert [record.state for record in kueue.history()] == ["Replaced", "Running"]
        assert [(entry.name, entry.status.state, entry.pods) for entry in kueue.queue(all=True)] == [
            ("grows", JobState.RUNNING, 4)
        ]
