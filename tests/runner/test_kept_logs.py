"""The logs of deleted pods: kept by job, read again, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubemachinery.status import StatusError
from pykueue.runner.kept_logs import KeptLogs


def written(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "0.log"
    file.write_text("".join(f"2026-11-16T09:00:0{n}Z stdout F {line}\n" for n, line in enumerate(lines)))
    return file


def test_the_last_log_of_each_container_is_kept(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path / "logs")
    main, side = written(tmp_path / "main", "one", "two"), written(tmp_path / "side", "three")
    kept.keep("ns", "job", "pod-a", {"main": [main], "side": [side], "init": []})
    assert kept.read("ns", "job") == [
        {"pod": "pod-a", "container": "main", "text": "one\ntwo\n"},
        {"pod": "pod-a", "container": "side", "text": "three\n"},
    ]
    assert kept.read("ns", "job", tail=1)[0]["text"] == "two\n"
    assert kept.read("other", "job") == []


def test_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path / "logs")
    for namespace, owner, pod in (
        ("..", "job", "pod"),
        ("ns", "../x", "pod"),
        ("ns", "job", "a/b"),
        ("", "job", "pod"),
    ):
        kept.keep(namespace, owner, pod, {"main": [written(tmp_path / "main", "one")]})
    assert not (tmp_path / "logs").exists()
    assert kept.read("..", "logs") == []


def test_the_oldest_jobs_beyond_the_bound_are_removed(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path / "logs", jobs_max=2)
    for number in range(4):
        kept.keep("ns", f"job-{number}", "pod", {"main": [written(tmp_path / "main", "one")]})
        for path in (tmp_path / "logs" / "ns" / f"job-{number}").rglob("*"):
            os.utime(path, (number, number))
        os.utime(tmp_path / "logs" / "ns" / f"job-{number}", (number, number))
    kept.keep("ns", "job-9", "pod", {"main": [written(tmp_path / "main", "one")]})
    assert sorted(path.name for path in (tmp_path / "logs" / "ns").iterdir()) == ["job-3", "job-9"]


def test_of_large_logs_the_newest_stays(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path / "logs", bytes_max=10)
    for name in ("old", "new"):
        kept.keep("ns", name, "pod", {"main": [written(tmp_path / "main", "x" * 100)]})
        if name == "old":
            for path in ((tmp_path / "logs" / "ns" / "old"), *(tmp_path / "logs" / "ns" / "old").iterdir()):
                os.utime(path, (1, 1))
    assert [path.name for path in (tmp_path / "logs" / "ns").iterdir()] == ["new"]


async def test_the_api_needs_a_namespace_and_a_job(tmp_path: Path) -> None:
    view = KeptLogs(tmp_path / "logs").resource().collection
    assert view is not None
    assert (await view.read("ns", {"job": ("a",)}))["items"] == []
    for namespace, given in (("", {"job": ("a",)}), ("ns", {}), ("ns", {"job": ("a",), "tail": ("x",)})):
        with pytest.raises(StatusError):
            await view.read(namespace, given)
