"""What takes long says what it does."""

from __future__ import annotations

import sys

import pytest

from pykueue.cli import connection
from waiting import until


def test_in_a_log_each_new_thing_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_OF_LOGS_SECONDS", 0.0)
    said = ""

    def heard() -> str:
        nonlocal said
        said += capsys.readouterr().err
        return said

    with connection.progress() as told:
        told("reading")
        until(lambda: heard() == "reading\n")
        told("reading")
        told("thinking")
    assert heard() == "reading\nthinking\n"


def test_on_a_terminal_it_is_one_line_that_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = ""

    def heard() -> str:
        nonlocal said
        said += capsys.readouterr().err
        return said

    with connection.progress() as told:
        told("reading")
        until(lambda: "reading ..." in heard())
    assert "\n" not in heard()
    assert said.endswith("\r\x1b[K")


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with connection.progress() as told:
        told("reading")
    assert capsys.readouterr().err == ""
