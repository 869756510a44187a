"""Traces from records and from files [PC6]."""

from __future__ import annotations

import pytest

from history.lives import START, Life
from kubemachinery.errors import UsageError
from pykueue.analysis import traces
from pykueue.analysis.traces import SwfMapping
from pykueue.api import kueue
from pykueue.core import requests
from pykueue.core.name_shape import name_shape
from pykueue.history import documents, records, swf
from pykueue.history.records import WorkloadRecord

HEAD = "; MaxProcs: 10\n; UnixStartTime: 1000\n"


def line(
    number: int, submitted: int, ran: int = 60, asked: int = 4, limit: int = -1, user: int = 1, queue: int = 1
) -> str:
    return f"{number} {submitted} -1 {ran} {asked} -1 -1 {asked} {limit} -1 1 {user} 1 1 {queue} 1 -1 -1\n"


def of(text: str, **mapping: object) -> traces.Trace:
    return traces.of_swf(swf.read(text, "t.swf"), "t.swf", SwfMapping(**mapping))  # type: ignore[arg-type]


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_queue_becomes_a_clusterqueue_and_a_user_a_localqueue() -> None:
    found = of(HEAD + line(1, 0, ran=300, queue=1) + line(2, 10, ran=100, user=2, queue=2))
    assert [(job.key, job.queue, job.submitted) for job in found.jobs] == [
        ("queue-1/job-1", "user-1", 1000),
        ("queue-2/job-2", "user-2", 1010),
    ]
    queues = {each.metadata.name: each for each in found.objects if isinstance(each, kueue.ClusterQueue)}
    quota = {name: each.spec.resource_groups[0].flavors[0].resources[0].nominal_quota for name, each in queues.items()}
    # In proportion to 1200 and 400 processor seconds of ten processors.
    assert quota == {"queue-1": "8", "queue-2": "2"}
    assert {each.spec.cohort_name for each in queues.values()} == {"trace"}
    local = {
        (each.metadata.namespace, each.metadata.name): each.spec.cluster_queue
        for each in found.objects
        if isinstance(each, kueue.LocalQueue)
    }
    assert local == {("queue-1", "user-1"): "queue-1", ("queue-2", "user-2"): "queue-2"}


def test_processors_are_pods_with_the_requests_of_the_map() -> None:
    found = of(HEAD + line(1, 0), per_processor=traces.per_processor(["nvidia.com/gpu=1", "cpu=4"]))
    (pod_set,) = found.jobs[0].pod_sets
    assert pod_set.count == 4
    figure = requests.read(pod_set.template.spec).figure
    assert {name: amount.canonical for name, amount in figure.items()} == {"cpu": "4", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize("text", ["cpu", "=1", "cpu=x", "cpu=0", "cpu=-1"])
def test_a_map_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--map {text}"):
        traces.per_processor([text])


def test_a_limit_that_the_run_exceeds_was_not_enforced() -> None:
    found = of(HEAD + line(1, 0, ran=60, limit=40) + line(2, 1, ran=60, limit=90) + line(3, 2))
    assert [job.limit_seconds for job in found.jobs] == [60, 90, None]


def test_jobs_that_never_ran_are_left_out_and_counted() -> None:
    found = of(HEAD + line(1, 0) + line(2, 1, ran=-1) + line(3, 2, asked=0))
    assert [job.name for job in found.jobs] == ["job-1"]
    assert "left out 2 jobs without processors or without a run time" in found.notices


def test_a_header_that_announces_another_number_of_jobs_is_reported() -> None:
    assert of("; MaxJobs: 7\n" + line(1, 0)).notices == ("the header announces 7 jobs, and the file has 1",)
    assert of("; MaxJobs: 1\n" + line(1, 0)).notices == ()


def test_a_file_without_jobs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"t\.swf: has no line of a job"):
        of(HEAD)
    with pytest.raises(UsageError, match=r"t\.swf: has no job that ran"):
        of(HEAD + line(1, 0, ran=-1))


@pytest.mark.parametrize("number", ["2147483648", "9" * 5000])
def test_a_machine_of_more_processors_than_pods_can_be_is_refused(number: str) -> None:
    with pytest.raises(UsageError, match=rf"t\.swf: MaxProcs {number}: is larger than 2147483647"):
        of(f"; MaxProcs: {number}\n" + line(1, 0))


def test_jobs_that_are_out_of_order_are_sorted() -> None:
    assert [job.submitted for job in of(HEAD + line(1, 50) + line(2, 10)).jobs] == [1010, 1050]


def test_names_replace_numbers() -> None:
    found = of(HEAD + line(1, 0, queue=1) + line(2, 0, queue=2), names={"queue": ["research"], "user": ["ana"]})
    assert [(job.namespace, job.queue) for job in found.jobs] == [("research", "ana"), ("queue-2", "ana")]


def test_users_whose_names_no_object_can_have_get_numbers_as_local_queues() -> None:
    """The name stays that of the user, for Budgets and estimates."""
    names = {"user": ["ana@example.com", "user-1", "system:serviceaccount:ci:runner"], "queue": ["Research"]}
    found = of("".join(line(number, 0, queue=1, user=number) for number in (1, 2, 3)), names=names)
    assert [job.user for job in found.jobs] == names["user"]
    assert [job.queue for job in found.jobs] == ["user-1-x", "user-1", "user-3"]
    assert {job.namespace for job in found.jobs} == {"queue-1"}
    shown = [each.metadata.name for each in found.objects if isinstance(each, kueue.LocalQueue)]
    assert sorted(shown) == ["user-1", "user-1-x", "user-3"]


def test_executables_without_names_are_different_programs() -> None:
    mapping = SwfMapping(names={"name": ["train-20261115"]})
    assert mapping.program(1) == "train-20261115"
    shapes = [name_shape(mapping.program(number)) for number in (-1, 0, 2, 12, 13, 42589)]
    assert len(set(shapes)) == len(shapes)


def test_without_a_header_the_quota_is_the_most_that_was_used() -> None:
    found = of(line(1, 0, ran=100, asked=3) + line(2, 50, ran=100, asked=2) + line(3, 200, asked=1))
    (queue,) = (each for each in found.objects if isinstance(each, kueue.ClusterQueue))
    assert queue.spec.resource_groups[0].flavors[0].resources[0].nominal_quota == "5"


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, {"a": 1, "b": 1, "c": 1}, {"a": 4, "b": 3, "c": 3}),
        (10, {"a": 5, "b": 3, "c": 0}, {"a": 6, "b": 4, "c": 0}),
        (3, {"a": 0, "b": 0}, {"a": 2, "b": 1}),
    ],
)
def test_shares_add_up(total: int, weights: dict[str, int], expected: dict[str, int]) -> None:
    assert traces.in_proportion(total, weights) == expected


def test_the_queues_of_a_base_are_used_by_name_or_if_there_is_one() -> None:
    found = of(HEAD + line(1, 0, queue=1) + line(2, 0, queue=2))
    queues = [each for each in found.objects if isinstance(each, kueue.ClusterQueue)]
    one = traces.with_queues(found, [queues[0]], "t.swf")
    assert {each.spec.cluster_queue for each in one if isinstance(each, kueue.LocalQueue)} == {"queue-1"}
    both = traces.with_queues(found, queues, "t.swf")
    assert {each.spec.cluster_queue for each in both if isinstance(each, kueue.LocalQueue)} == {"queue-1", "queue-2"}
    with pytest.raises(
        UsageError, match=r"jobs of queue-1 need a ClusterQueue queue-1, or a LocalQueue queue-1/user-1"
    ):
        traces.with_queues(found, [], "t.swf")


# --- Records ----------------------------------------------------------------------------------------------------------


def recorded(*ends: str, uid: str = "a") -> WorkloadRecord:
    """A life with an attempt of 100 s for each word: `Finished`, `Preempted`, `Deleted`, `open`; a minute between."""
    life = Life(uid=uid, name=f"job-{uid}")
    record = records.observe(None, life.workload, START)
    at = 10
    for end in ends:
        record = records.observe(record, life.reserved(at), START + at)
        record = records.observe(record, life.admitted(at), START + at)
        if end == "Finished":
            record = records.observe(record, life.finished(at + 100), START + at + 100)
        elif end == "Preempted":
            record = records.observe(record, life.evicted(at + 100), START + at + 100)
            record = records.observe(record, life.released(at + 100), START + at + 100)
        elif end == "Deleted":
            record = records.gone(record, None, START + at + 100)
        at += 160
    return record


def only(record: WorkloadRecord, begin: int = 0, end: int = 1000) -> traces.TraceJob:
    (found,) = traces.of_records([record], START + begin, START + end, "test").jobs
    return found


def test_the_run_time_is_that_of_the_run_that_ended_by_itself() -> None:
    """[PC2]"""
    assert only(recorded("Finished")).run_seconds == 100
    assert only(recorded("Preempted", "Finished")).run_seconds == 100
    for ends in (("Preempted",), ("Deleted",), ("open",)):
        found = only(recorded(*ends), end=200)
        assert found.run_seconds is None
        assert found.ran_at_least == (190 if ends == ("open",) else 100)


def test_a_job_that_was_deleted_while_waiting_is_withdrawn_then() -> None:
    waiting = records.gone(recorded(), None, START + 50)
    assert only(waiting).withdrawn == START + 50
    assert only(records.gone(recorded("Preempted"), None, START + 300)).withdrawn == START + 300
    assert only(recorded("Deleted")).withdrawn is None
    assert only(recorded("Finished")).withdrawn is None


def test_a_range_has_what_waited_or_ran_when_it_began_and_not_what_came_after() -> None:
    every = [recorded("Finished", uid="a"), recorded("open", uid="b")]
    found = traces.of_records(every, START + 500, START + 600, "test")
    assert [job.uid for job in found.jobs] == ["b"]
    assert traces.of_records(every, START - 100, START, "test").jobs == ()


def test_a_document_has_all_that_a_trace_needs() -> None:
    """What a client reads from the API is the same trace."""
    for ends in ((), ("Finished",), ("Preempted", "Finished"), ("Deleted",), ("open",)):
        record = recorded(*ends)
        shown = documents.record_of(documents.record_document(record, START + 900))
        assert only(shown) == only(record)
        assert only(shown).pod_sets[0].count == 4


def test_a_start_time_beyond_the_years_of_the_api_is_refused() -> None:
    text = "; UnixStartTime: 99999999999999999999\n1 0 -1 10 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n"
    with pytest.raises(UsageError, match="UnixStartTime 99999999999999999999: is later than"):
        traces.of_swf(swf.read(text, "t"), "t", traces.SwfMapping())
