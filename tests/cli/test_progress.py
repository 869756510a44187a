"""Progress lines on stderr for operations that take long."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import pytest

from kubemachinery.errors import UsageError
from pykueue.api import kueue, registry
from pykueue.cli import progress
from pykueue.cli.connection_flags import ConnectionFlags
from waiting import until


def output_of(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """A function that returns everything written to stderr so far."""
    text = ""

    def written() -> str:
        nonlocal text
        text += capsys.readouterr().err
        return text

    return written


def test_in_a_log_each_new_thing_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_OF_LOGS_SECONDS", 0.0)
    written = output_of(capsys)
    with progress.progress() as report:
        report("reading")
        until(lambda: written() == "reading\n")
        report("reading")
        report("thinking")
    assert written() == "reading\nthinking\n"


def test_on_a_terminal_it_is_one_line_that_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    written = output_of(capsys)
    with progress.progress() as report:
        report("reading")
        until(lambda: "reading ..." in written())
    assert "\n" not in written()
    assert written().endswith("\r\x1b[K")


async def test_nothing_is_written_if_the_environment_excludes_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_OF_LOGS_SECONDS", 0.0)
    monkeypatch.setenv("PYKUEUE_NO_PROGRESS", "1")
    with progress.progress() as report, progress.awaiting("waiting"):
        report("reading")
        await asyncio.sleep(0.05)
        report("thinking")
    assert capsys.readouterr().err == ""


def test_quick_work_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as report:
        report("reading")
    assert capsys.readouterr().err == ""


def test_a_server_that_is_slow_to_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It accepts connections and never answers. A wait that the user requested is not repeated."""
    monkeypatch.setattr(progress, "_PATIENCE_OF_LOGS_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        reach = ConnectionFlags("", "", {"server": url, "request-timeout": "1s"})
        with pytest.raises(UsageError, match=r"does not answer GET .*: not within 1 s"):
            reach.run(lambda client, _: client.list(registry.KUEUE.of(kueue.ClusterQueue)))
    assert capsys.readouterr().err == f"waiting for {url}\n"
