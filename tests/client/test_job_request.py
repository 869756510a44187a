"""Options of a submission become a Job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.errors import UsageError
from pykueue.api import labels
from pykueue.client import job_request
from pykueue.client.job_request import JobRequest
from pykueue.runner import process_spec


def job(*command: str, **more: Any) -> dict[str, Any]:
    return job_request.job(JobRequest(command=command or ("true",), queue="q", namespace="n", **more), now=0)


def container(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = job(**more)["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("given", [1, None, b"x", "a\0b", "a\udc80"])
def test_words_and_values_that_no_process_can_get_are_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"^command: .* (is not text|cannot be sent)$"):
        job("echo", given)
    with pytest.raises(UsageError, match=r"^environment A: .* (is not text|cannot be sent)$"):
        job("echo", environment={"A": given})


def test_a_command_alone_is_enough() -> None:
    made = job("python", "train.py")
    assert made["metadata"] == {
        "generateName": "python-",
        "namespace": "n",
        "labels": {labels.QUEUE_NAME: "q"},
        "annotations": {job_request.SUBMITTED_AT: "1970-01-01T00:00:00.000000Z"},
    }
    assert made["spec"]["backoffLimit"] == 0, "a command that failed is not simply run again"
    (main,) = made["spec"]["template"]["spec"]["containers"]
    assert main["command"] == ["python", "train.py"]
    assert main["resources"] == {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("program", "base"),
    [("./Train_me.sh", "train-me-sh-"), ("/usr/bin/env", "env-"), ("...", "job-"), ("x" * 99, "x" * 40 + "-")],
)
def test_a_job_without_a_name_is_called_after_its_program(program: str, base: str) -> None:
    assert job(program)["metadata"]["generateName"] == base


def test_memory_and_devices_are_asked_for_and_limited() -> None:
    resources = container(cpu="2", memory="4Gi", gpus=1)["resources"]
    assert resources["requests"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert resources["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize("slip", ["5", "512m", "100k"])
def test_memory_that_no_program_fits_into_is_a_slip_of_the_unit(slip: str) -> None:
    with pytest.raises(UsageError, match=rf"^--memory {slip}: is less than one mebibyte"):
        job_request.amount(slip, "--memory")
    assert job_request.amount("512Mi", "--memory") == "512Mi"


def test_several_pods_are_numbered() -> None:
    spec = job(parallelism=3)["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (3, 3, "Indexed")
    assert "completionMode" not in job()["spec"]


def test_the_rest_finds_its_place() -> None:
    made = job(name="x", priority_class="high", retries=2, time_limit_seconds=60)
    assert made["metadata"]["name"] == "x"
    assert made["metadata"]["labels"][labels.PRIORITY_CLASS] == "high"
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (2, 60)
    main = container(environment={"A": "1"}, directory="/srv", image="i:1")
    assert (main["env"], main["workingDir"], main["image"]) == ([{"name": "A", "value": "1"}], "/srv", "i:1")


@given(st.text(alphabet="$()X a", max_size=12))
def test_dollar_signs_reach_the_command_unchanged(text: str) -> None:
    """Whatever Kubernetes would expand in it: `$$`, `$(X)`, or half of one."""
    main = container(environment={"X": "1", "Y": text})
    values = {each["name"]: each["value"] for each in main["env"]}
    assert process_spec.expand(values["Y"], {"X": "1"}) == text
    (word,) = job(text or "true")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert process_spec.expand(word, {"X": "1"}) == (text or "true")


def test_variables_have_a_value_or_take_the_one_they_have_here() -> None:
    assert job_request.variables(["A=1=2", "B", "C="], {"B": "here"}) == {"A": "1=2", "B": "here", "C": ""}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: job_request.variables(["B"], {}), "--env B: is not set in the environment"),
        (lambda: job_request.variables(["1x=2"], {}), "--env 1x=2: must be NAME=VALUE or NAME"),
        (lambda: job_request.amount("abc", "--cpu"), "--cpu abc"),
        (lambda: job_request.amount("0", "--cpu"), "--cpu 0: must be greater than 0"),
        (lambda: job_request.seconds("soon", "--time-limit"), "--time-limit soon"),
        (lambda: job_request.seconds("10ms", "--time-limit"), "--time-limit 10ms: must be at least a second"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: Any, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        wrong()
    assert words in str(refused.value)
