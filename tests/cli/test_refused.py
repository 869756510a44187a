"""A user without permission gets one sentence: the answer of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.json_server import answering
from shell import Shell


def refused(path: str) -> tuple[int, dict[str, Any]]:
    """The user may read one namespace only, and there is nothing in it."""
    resource = path.partition("?")[0].rpartition("/")[2]
    if "/namespaces/" in path:
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}
    sentence = f'{resource}.views.pykueue.io is forbidden: User "ana" cannot list resource "{resource}"'
    return 403, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                 "message": sentence}  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with answering(refused, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield Shell(capsys)


@pytest.mark.parametrize(
    ("arguments", "resource"),
    [
        (("history", "-A"), "workloadrecords"),
        (("report", "usage", "-A"), "usage"),
        (("queue", "--trouble", "-A"), "troubles"),
    ],
    ids=["history", "report", "troubles"],
)
def test_list_of_all_namespaces_is_refused_in_one_sentence(
    shell: Shell, arguments: tuple[str, ...], resource: str
) -> None:
    result = shell(*arguments)
    assert result.code != 0
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert f'{resource}.views.pykueue.io is forbidden: User "ana" cannot list resource "{resource}"' in result.err


@pytest.mark.parametrize("name", ["no/such", "..", "Ns", "a b"])
def test_namespace_that_cannot_exist_is_refused_before_any_request(shell: Shell, name: str) -> None:
    rule = "must be lower case letters, digits and '-', with a letter or digit first and last"
    for command in ("history", "queue", "list"):
        words = (command, "workload") if command == "list" else (command,)
        assert shell(*words, "-n", name) == (2, "", f"pykueue: --namespace {name}: {rule}\n")


def test_own_namespace_is_listed(shell: Shell) -> None:
    assert shell("queue", "--trouble") == (0, "", "no jobs are in trouble\n")
    assert shell("history").code == 1  # nothing matched


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("history", "--format", "job", "-o", "json"),
            "--format chooses the columns of a table; it cannot be combined with -o json",
        ),
        (
            ("history", "--format", "job", "-o", "swf"),
            "--format chooses the columns of a table; it cannot be combined with -o swf",
        ),
        (("history", "--swf-processor", "cpu"), "--swf-processor needs -o swf"),
        (
            ("explain", "big", "--now", "2026-01-01T00:00:00Z"),
            "--now is the time of the decision about objects of files; it needs -f",
        ),
    ],
    ids=["json", "swf", "processor", "now"],
)
def test_options_without_an_effect_are_refused(shell: Shell, arguments: tuple[str, ...], sentence: str) -> None:
    assert shell(*arguments) == (2, "", f"pykueue: {sentence}\n")
