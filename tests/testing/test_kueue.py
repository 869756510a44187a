"""The fixture that other people's tests use: fresh, quick, on a clock of its own."""

from __future__ import annotations

import pytest

from kubemachinery.errors import UsageError
from pykueue.errors import NegativeResult, PykueueError
from pykueue.testing import Kueue


def test_a_job_needs_no_set_up_and_no_time(kueue: Kueue) -> None:
    job = kueue.submit(["sleep", "3600"])
    assert kueue.status(job).state == "Running"
    assert kueue.wait(job).state == "Succeeded"


def test_each_test_has_its_own_system(kueue: Kueue) -> None:
    assert kueue.all("job") == []


def test_one_that_waits_can_be_asked_why(kueue: Kueue) -> None:
    kueue.submit(["sleep", "100"], cpu=8)
    second = kueue.submit(["sleep", "100"], cpu=1)
    explained = kueue.explain(second)
    assert explained.causes[0] == (
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for cpu in flavor default-flavor, 1 more needed"
    )
    waiting, *others = explained.suggestions
    assert (waiting.kind, waiting.warning) == ("waiting", "")
    assert "raise nominalQuota of cpu" in others[0].sentence()
    assert "until pods of other Workloads end: no node fits" in others[0].warning
    with pytest.raises(NegativeResult, match="has not finished after 5 s"):
        kueue.wait(second, timeout_seconds=5)


@pytest.mark.kueue(runner="none")
def test_pods_can_be_left_alone(kueue: Kueue) -> None:
    assert kueue.all("clusterqueue") == []
    with pytest.raises(UsageError, match="none exists"):
        kueue.submit(["sleep", "1"])


def test_objects_are_written_read_changed_and_deleted(kueue: Kueue) -> None:
    kueue.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}})
    kueue.patch("configmap", "a", {"data": {"k": "2"}})
    assert kueue.get("cm", "a")["data"] == {"k": "2"}
    kueue.delete("configmap", "a")
    with pytest.raises(KeyError):
        kueue.get("configmap", "a")
    with pytest.raises(UsageError, match="is not a known kind"):
        kueue.get("unicorn", "a")


def test_what_apply_refuses_shows_the_line_of_the_test_and_the_sentence(kueue: Kueue) -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "Not A Name"}}
    for wrong in (queue, "kind: [", "{apiVersion: v1, kind: Unicorn, metadata: {name: u}}"):
        with pytest.raises(PykueueError) as refused:
            kueue.apply(wrong)
        shown = refused.traceback.filter(refused)
        assert [entry.name for entry in shown] == [
            "test_what_apply_refuses_shows_the_line_of_the_test_and_the_sentence"
        ]
        assert len(str(refused.value).splitlines()) == 1


def test_the_queue_has_what_runs_and_waits_and_all_of_it_when_asked(kueue: Kueue) -> None:
    over = kueue.submit(["sleep", "1"], name="over")
    kueue.wait(over)
    kueue.submit(["sleep", "600"], cpu=8, name="runs")
    kueue.submit(["sleep", "600"], cpu=8, name="waits")
    assert [entry.name for entry in kueue.queue()] == ["runs", "waits"]
    assert [entry.name for entry in kueue.queue(all=True)] == ["runs", "waits", "over"]
    assert repr(kueue.queue()[0]) == "<QueueEntry default/runs in default: running, cpu 8>"


def test_a_cancelled_job_is_never_shown_as_succeeded(kueue: Kueue) -> None:
    """Also in the moment in which its Workload has finished for want of an owner, and is still there."""
    kueue.submit(["sleep", "600"], cpu=8, name="runs")
    kueue.submit(["sleep", "600"], cpu=8, name="waits")
    for workload in kueue.all("workload"):
        finalizers = [*workload["metadata"].get("finalizers", ()), "example.com/kept"]
        kueue.patch("workload", workload["metadata"]["name"], {"metadata": {"finalizers": finalizers}})
    for name in ("waits", "runs"):
        kueue.delete("job", name)
    kueue.advance(60)
    shown = kueue.queue(all=True)
    assert shown
    assert {entry.status.state.value for entry in shown} == {"Cancelled"}


def test_a_command_is_a_list_of_words(kueue: Kueue) -> None:
    with pytest.raises(UsageError, match="command must be a list of words"):
        kueue.submit("sleep 1")
    with pytest.raises(UsageError, match="the command is empty"):
        kueue.submit([])


def test_submit_refuses_unknown_keywords(kueue: Kueue) -> None:
    """A job without the GPU that was meant would run, and fail much later."""
    with pytest.raises(
        TypeError, match=r"^submit\(\) got an unexpected keyword argument 'gpu'. Did you mean 'gpus'\?$"
    ):
        kueue.submit(["true"], gpu=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^submit\(\) got an unexpected keyword argument 'banana'$"):
        kueue.submit(["true"], banana=True)  # type: ignore[call-arg]
    assert kueue.all("job") == []


def test_submit_takes_the_name_of_a_workload_priority_class(kueue: Kueue) -> None:
    """And not that of a PriorityClass, which is another kind."""
    kueue.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        },
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "pods"}, "value": 5},
    )
    kueue.submit(["sleep", "60"], priority_class="high")
    assert [entry.priority for entry in kueue.queue()] == [100]
    with pytest.raises(UsageError, match=r"^WorkloadPriorityClass pods not found; available: high$"):
        kueue.submit(["sleep", "60"], priority_class="pods")
