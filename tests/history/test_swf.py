"""Files in the Standard Workload Format, as other programs write them: comments, headers, further fields, bad lines."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest

from kubemachinery.errors import UsageError
from pykueue.history import swf

JOB = "1 100 5 60 4 -1 -1 8 3600 -1 1 7 1 2 3 1 -1 -1"


def test_comments_and_the_header_are_read() -> None:
    found = swf.read(f"; Version: 2.2\n; MaxProcs: 128\n;\n;  note without a value\n; Queue: 0 batch\n\n{JOB}\n", "t")
    assert found.number("MaxProcs") == 128
    assert found.number("MaxNodes") is None
    assert found.header["Version"] == "2.2"
    (job,) = found.jobs
    assert (job.submitted, job.waited, job.ran, job.processors, job.requested_processors) == (100, 5, 60, 4, 8)
    assert (job.limit, job.user, job.executable, job.queue) == (3600, 7, 2, 3)


@pytest.mark.parametrize("text", ["none", "-4", "", "0", "1e5"])
def test_a_header_without_a_positive_number_has_none(text: str) -> None:
    assert swf.read(f"; MaxProcs: {text}\n", "t").number("MaxProcs") is None


def test_further_fields_are_ignored() -> None:
    assert swf.read(f"{JOB} {{12,13}} q_1d 1:ppn=64\n", "t").jobs == swf.read(f"{JOB}\n", "t").jobs


def test_fractions_of_seconds_are_cut() -> None:
    (job,) = swf.read(JOB.replace(" 60 ", " 60.9 ") + "\n", "t").jobs
    assert job.ran == 60


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1 2 3", "t, line 812: has 3 fields; a job of the Standard Workload Format has 18"),
        (JOB.replace("100", "x"), "t, line 812: a field is no number"),
        (JOB.replace("100", "nan"), "t, line 812: a field is no number"),
        (JOB.replace("100", "1_00"), "t, line 812: a field is no number"),
        (JOB.replace("100", "\u0661"), "t, line 812: a field is no number"),
        (JOB.replace("100", "1e999"), "t, line 812: a field is no number"),
        (JOB.replace("100", "inf"), "t, line 812: a field is no number"),
        (JOB.replace(" 100 ", " -5 "), "t, line 812: the time of submission is negative"),
        (JOB.replace(" 5 ", " -2 "), "t, line 812: the waiting time is negative"),
        (JOB.replace(" 60 ", " -1359980917 "), "t, line 812: the run time is negative"),
        (JOB.replace(" 60 ", f" {2**60} "), f"t, line 812: a time is longer than {2**36} s"),
        (JOB.replace(" 100 ", " 1000000000000 "), f"t, line 812: a time is longer than {2**36} s"),
        (JOB.replace(" 8 ", f" {2**31} "), f"t, line 812: a number of processors is larger than {2**31 - 1}"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_the_reason(line: str, sentence: str) -> None:
    text = "\n".join([*([JOB] * 811), line, JOB])
    with pytest.raises(UsageError) as caught:
        swf.read(text, "t")
    assert str(caught.value) == sentence
    left = swf.read(text, "t", leave_out=True)
    assert len(left.jobs) == 812
    assert left.left_out == (sentence.removeprefix("t, "),)


def test_the_most_processors_in_use_are_those_of_jobs_that_ran_at_the_same_time() -> None:
    lines = ["1 0 0 10 4 -1 -1 4", "2 5 0 10 3 -1 -1 3", "3 0 15 10 5 -1 -1 5", "4 0 -1 -1 0 -1 -1 1000"]
    jobs = swf.read("".join(f"{line} -1 -1 1 1 1 1 1 1 -1 -1\n" for line in lines), "t").jobs
    assert swf.most_used(jobs) == 7
    assert swf.most_used(jobs[2:]) == 5
    assert swf.most_used(()) == 1


# --- Bytes ------------------------------------------------------------------------------------------------------------

TEXT = f"; MaxProcs: 128\n; Note: M\u00fcnchen\n\n{JOB}\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("utf-8-sig"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
        TEXT.replace("\n", "\r").encode(),
        TEXT.encode("latin-1"),
        TEXT.replace("\u00fc", "\x0c\x1c\u2028").encode(),
        gzip.compress(TEXT.encode()),
        gzip.compress(TEXT.encode("utf-8-sig")),
        gzip.compress(TEXT[:20].encode()) + gzip.compress(TEXT[20:].encode()),
    ],
    ids=["mark", "crlf", "mark and crlf", "cr", "latin-1", "control characters", "gzip", "gzip and mark", "two gzips"],
)
def test_bytes_whose_meaning_is_certain_are_read(data: bytes) -> None:
    found = swf.read(swf.decode(data, "t"), "t")
    assert (found.jobs, found.number("MaxProcs")) == (swf.read(TEXT, "t").jobs, 128)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (TEXT.encode("utf-16"), "t: is UTF-16 text; a trace is UTF-8 text, as it is or compressed by gzip"),
        (TEXT.encode("utf-16-be"), "t: contains NUL bytes; a trace is UTF-8 text, as it is or compressed by gzip"),
        (gzip.compress(TEXT.encode("utf-16")), "t: is UTF-16 text; a trace is UTF-8 text,"),
        (lzma.compress(TEXT.encode()), "t: is compressed by xz; a trace"),
        (bz2.compress(TEXT.encode()), "t: is compressed by bzip2; a trace"),
        (b"PK\x03\x04rest", "t: is a zip archive; a trace"),
        (gzip.compress(TEXT.encode())[:-12], "t: is a damaged gzip file: "),
        (gzip.compress(TEXT.encode()) + b"rest", "t: is a damaged gzip file: "),
    ],
    # Not the bytes: a gzip file has the time, and the processes of a run have to collect the same names.
    ids=["utf-16", "utf-16 without mark", "utf-16 in gzip", "xz", "bzip2", "zip", "cut gzip", "gzip and rest"],
)
def test_other_bytes_are_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        swf.decode(data, "t")
    assert str(caught.value).startswith(sentence)


def test_a_compressed_file_is_not_unpacked_beyond_the_largest_size() -> None:
    with pytest.raises(UsageError, match="t: has more than 1 MiB"):
        swf.decode(gzip.compress(bytes(2**21)), "t", limit=2**20)
