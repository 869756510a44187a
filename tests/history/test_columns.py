"""The columns of `pykueue history`, and the Standard Workload Format."""

from __future__ import annotations

import msgspec
import pytest

from history.lives import START, Life
from kubemachinery.errors import UsageError
from pykueue.history import columns, documents, queries, records, swf
from pykueue.history.documents import JobRecord
from pykueue.history.records import WorkloadRecord


def shown(uid: str, ran: int, job: str = "train", user: str = "ana") -> JobRecord:
    life = Life(uid=uid, job=job)
    record: WorkloadRecord | None = None
    for workload in (life.annotated(submitted_by=user), life.started(30), life.finished(30 + ran)):
        record = records.observe(record, workload, START)
    assert record is not None
    return documents.record_document(record, START)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0, "0s"), (59, "59s"), (60, "1m"), (2520, "42m"), (18720, "5h12m"), (273600, "3d4h"), (86400, "1d")],
)
def test_a_duration_has_two_units_at_most(seconds: int | None, text: str) -> None:
    assert columns.duration(seconds) == text


def test_columns_have_cells_and_values() -> None:
    record = shown("a", 3600)
    cells = {name: column.cell(record) for name, column in columns.COLUMNS.items()}
    assert (cells["job"], cells["user"], cells["state"], cells["ran"], cells["waited"]) == (
        "train", "ana", "Succeeded", "1h", "30s",
    )  # fmt: skip
    assert (cells["cpu_hours"], cells["gpu_hours"], cells["evicted"], cells["why"]) == ("4.0", "", "0", "Finished")


def test_rows_are_sorted_by_several_columns() -> None:
    rows = [shown("a", 10, "x"), shown("b", 20, "y"), shown("c", 10, "y")]
    keys = columns.sort_keys("job,-ran")
    assert [row.metadata.name for row in columns.sorted_by(rows, keys)] == ["a", "b", "c"]
    assert [row.metadata.name for row in columns.sorted_by(rows, columns.sort_keys("-job,ran"))] == ["c", "b", "a"]


def test_jobs_submitted_in_one_second_stay_in_the_order_of_their_records() -> None:
    rows = [shown("b", 10, "first"), shown("a", 10, "second")]
    assert [row.metadata.name for row in columns.sorted_by(rows, columns.sort_keys("submitted"))] == ["b", "a"]


@pytest.mark.parametrize(("function", "option"), [(columns.sort_keys, "--sort"), (columns.chosen, "--format")])
def test_an_unknown_column_is_refused(function: object, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} colour: is no column; the columns are job, namespace"):
        function("job,colour") if option == "--sort" else function("job,colour", wide=False)  # type: ignore[operator]


@pytest.mark.parametrize("text", [",", " ", ", ,"])
def test_a_format_without_a_column_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--format {text}: names no column; the columns are job, namespace"):
        columns.chosen(text, wide=False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cpu=-1", "larger-than cpu=-1: must not be negative"),
        ("cpu", "larger-than cpu: must be RESOURCE=QUANTITY, such as nvidia.com/gpu=8"),
        ("cpu=x", "larger-than cpu=x: 'x' is not a quantity; use 2 or 500m"),
    ],
)
def test_a_size_that_no_record_can_be_compared_with_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        queries.larger_than([text])
    assert str(caught.value) == sentence


def test_a_trace_has_a_head_numbers_for_names_and_one_line_per_job() -> None:
    trace = swf.trace([shown("b", 20, "train-2", "bob"), shown("a", 10, "train-1")])
    head = [line for line in trace.text.splitlines() if line.startswith(";")]
    assert "; Version: 2.2" in head
    assert f"; UnixStartTime: {START}" in head
    assert "; Queue: 1 research" in head
    lines = [line.split() for line in trace.text.splitlines() if not line.startswith(";")]
    assert [line[:5] for line in lines] == [["1", "0", "30", "10", "4"], ["2", "0", "30", "20", "4"]]
    assert trace.names == {
        "user": ["ana", "bob"], "namespace": ["ns"], "name": ["train-#"], "queue": ["research"],
        "clusterqueue": ["physics"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1 2 3", "trace, line 2: has 3 fields; a job of the Standard Workload Format has 18"),
        ("x " * 18, "trace, line 2: a field is no number"),
        ("1 -5 " + "0 " * 16, "trace, line 2: the time of submission is negative"),
    ],
)
def test_a_broken_line_of_a_trace_is_named(line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        swf.read(f"; head\n{line}\n", "trace")


def test_the_size_of_the_machine_in_a_trace_is_what_was_in_use_at_a_time() -> None:
    trace = swf.trace([shown("a", 20), shown("b", 10)])
    # Two jobs of 4 cpus, submitted and started together.
    assert "; MaxProcs: 8" in trace.text.splitlines()


def test_a_partly_admitted_job_has_fewer_processors_in_a_trace_than_it_asked_for() -> None:
    life = Life(pods=4)
    record = records.observe(None, life.reserved(0, count=3), START)
    for workload in (life.admitted(0), life.reclaimable(2), life.finished(10)):
        record = records.observe(record, workload, START + 5)
    (job,) = swf.read(swf.trace([documents.record_document(record, START)]).text, "trace").jobs
    assert (job.processors, job.requested_processors) == (3, 4)


def test_a_job_without_quota_for_its_processors_has_those_that_it_asked_for() -> None:
    record = msgspec.structs.replace(shown("a", 20), requests={"cpu": "4", "example.com/npu": "2"})
    (job,) = swf.read(swf.trace([record]).text, "trace").jobs
    assert (job.processors, job.requested_processors) == (2, 2)


def test_a_resource_that_no_job_requests_is_refused_as_processors() -> None:
    with pytest.raises(UsageError, match=r"--swf-processor example\.com/tpu: no job requests it"):
        swf.trace([shown("a", 20)], "example.com/tpu")
