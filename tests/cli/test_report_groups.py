"""`pykueue report usage` and `waiting`: what the rows are grouped by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.json_server import answering
from shell import Shell

WAITED = {"started": 1, "p50Seconds": 1, "p90Seconds": 1, "p99Seconds": 1, "longestSeconds": 1, "overAnHour": 0}


def reports(path: str) -> tuple[int, dict[str, Any]]:
    """One row for each word that is asked for."""
    parts = urlsplit(path)
    by = parse_qs(parts.query)["by"][0].split(",")
    row = {"group": {word: f"a-{word}" for word in by}, "resource": "cpu", "resourceSeconds": "3600", **WAITED}
    return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [row]}


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with answering(reports, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield Shell(capsys)


@pytest.mark.parametrize("report", ["usage", "waiting"])
@pytest.mark.parametrize(
    ("options", "head"),
    [
        ((), "queue"),
        (("-A",), "namespace,queue"),
        (("-A", "--by", "day,queue,user"), "day,namespace,queue,user"),
        (("-A", "--by", "queue,namespace"), "queue,namespace"),
        (("-A", "--by", "clusterqueue"), "clusterqueue"),
    ],
)
def test_queues_of_all_namespaces_have_their_namespace(
    shell: Shell, report: str, options: tuple[str, ...], head: str
) -> None:
    first, row = shell("report", report, *options, "-o", "csv").out.splitlines()
    words = head.split(",")
    assert first.split(",")[: len(words)] == words
    assert row.split(",")[: len(words)] == [f"a-{word}" for word in words]
