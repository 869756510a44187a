"""Jobs that change while a command runs, and jobs that cannot start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kubemachinery.errors import UsageError
from pykueue.cli import explain
from pykueue.client.client import AsyncClient
from pykueue.errors import NegativeResult
from pykueue.testing import Kueue


@pytest.mark.parametrize(
    "wait",
    [lambda client, job: client.wait(job), lambda client, job: client.logs(job, follow=True)],
    ids=["wait", "logs"],
)
def test_waiting_for_a_cancelled_job_reports_the_cancellation(
    kueue: Kueue, wait: Callable[[AsyncClient, str], Awaitable[object]]
) -> None:
    running = kueue.submit(["sleep", "3600"], cpu=8)
    waiting = kueue.submit(["sleep", "3600"], cpu=8)

    async def cancelled_meanwhile() -> None:
        asked = asyncio.ensure_future(wait(kueue._client, waiting))
        await asyncio.sleep(5)
        await kueue._client.cancel(waiting)
        with pytest.raises(NegativeResult, match=f"^job {waiting} was deleted during the wait$"):
            await asked

    kueue._run(cancelled_meanwhile())
    assert kueue.status(running).state == "Running"


@pytest.mark.parametrize("name", ["", "job/"])
def test_an_empty_name_names_no_job(kueue: Kueue, name: str) -> None:
    """As of a variable of a shell script that is not set: no job is cancelled for it."""
    running = kueue.submit(["sleep", "3600"], cpu=1)
    for call in (kueue._client.cancel, kueue._client.status, kueue._client.wait, kueue._client.logs):
        with pytest.raises(UsageError, match="names no job: the name is empty"):
            kueue._run(call(name))
    assert kueue.status(running).state in ("Starting", "Running")


CLASSES = {
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta2", {"kueue.x-k8s.io/priority-class": "urgent"}, {}),
    "PriorityClass": ("scheduling.k8s.io/v1", {}, {"priorityClassName": "urgent"}),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_job_that_no_workload_can_be_made_for_is_in_the_queue_with_the_reason(kueue: Kueue, kind: str) -> None:
    version, marks, of_pods = CLASSES[kind]
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
    kueue.apply({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "lost", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "default"} | marks},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container], **of_pods}},
        },
    })  # fmt: skip
    why = f'{kind} "urgent" not found'
    [entry] = kueue.queue()
    assert (entry.title, entry.queue, entry.pods, entry.requests) == ("job.batch/lost", "default", 2, "cpu 4")
    assert str(entry.status) == str(kueue.status("lost")) == f"unqueued, {why}"
    with pytest.raises(UsageError, match=f"^job lost has no Workload: {why}$"):
        kueue.explain("lost")

    kueue.apply({"apiVersion": version, "kind": kind, "metadata": {"name": "urgent"}, "value": 7})
    kueue.advance(120)
    [entry] = kueue.queue(all=True)
    assert (entry.workload != "", entry.name, entry.priority) == (True, "lost", 7)


def pod(name: str, labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "default"} | labels}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": annotations or {}}, "spec": spec}


@pytest.mark.kueue({"integrations": {"frameworks": ["batch/job", "pod"]}})
def test_pods_that_no_workload_can_be_made_for_are_in_the_queue_with_the_reason(
    kueue: Kueue, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a group together; queued ones are not reported twice."""
    group, size = {"kueue.x-k8s.io/pod-group-name": "half"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}
    kueue.apply(pod("lost", {"kueue.x-k8s.io/priority-class": "urgent"}))
    kueue.apply(pod("one", group, size), pod("two", group, size), pod("fine", {}))
    entries = kueue.queue()
    half, lost = sorted((entry for entry in entries if not entry.workload), key=lambda entry: entry.name)
    assert (half.name, half.title, half.pods, half.requests) == ("half", "pod/one", 2, "cpu 4")
    assert str(half.status) == "unqueued, 'half' group has fewer runnable pods than expected"
    assert (lost.name, lost.title, lost.pods, lost.queue) == ("lost", "pod/lost", 1, "default")
    assert str(lost.status) == 'unqueued, WorkloadPriorityClass "urgent" not found'
    assert [entry.names for entry in entries if entry.workload] == [("fine",)]

    named = explain.Named.of("pod/two")
    assert explain.matching([lost, half], named) is half
    explain._print_unqueued(half, "default", named, "text")
    assert capsys.readouterr().out == (
        "Pod group default/half has no Workload and is not queued\n\n"
        "Why\n  'half' group has fewer runnable pods than expected\n"
    )
    assert explain.matching([lost, half], explain.Named.of("job/two")) is None

    kueue.apply(pod("three", group, size))
    assert [entry.name for entry in kueue.queue() if not entry.workload] == ["lost"]


@pytest.mark.kueue({"integrations": {"frameworks": ["batch/job", "pod"]}})
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_pod_of_another_role_in_an_admitted_group_is_explained(kueue: Kueue, field: str) -> None:
    name = {"kueue.x-k8s.io/pod-group-name": "g"}
    size = {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/pod-group-fast-admission": "true"}
    marks = (name, size) if field == "labels" else ({}, name | size)
    kueue.apply(pod("first", *marks))
    small = pod("small", *marks)
    small["spec"] = {**pod("small", {})["spec"], "nodeSelector": {"disk": "fast"}}  # type: ignore[dict-item]
    kueue.apply(small)
    kueue.apply(pod("second", *marks))
    assert kueue.explain("pod/second").state == kueue.explain("g").state == "Admitted"
    [lost] = [entry for entry in kueue.queue() if not entry.workload]
    assert (lost.name, lost.title, lost.pods) == ("small", "pod/small", 1)
    assert str(lost.status).startswith("unqueued, podSetInfo with the name ")
    with pytest.raises(UsageError, match=r"^pod small has no Workload: podSetInfo with the name .* is not found"):
        kueue.explain("pod/small")
    assert explain.matching([lost], explain.Named.of("pod/small")) is lost
