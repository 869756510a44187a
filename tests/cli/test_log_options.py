"""The log of a command that serves: JSON by default off a terminal, console lines on request."""

from __future__ import annotations

import json
import logging

import click
import pytest
from click.testing import CliRunner

from pykueue import cli
from pykueue.cli.log_options import LoggingOptions, log_options

pytestmark = pytest.mark.usefixtures("same_logging")


@click.command()
@log_options
def serve(logging_options: LoggingOptions) -> None:
    logging_options.start(lambda: "leader")
    logger = logging.getLogger("pykueue.test")
    logger.info("a detail")
    logger.warning("a warning")


def lines(*arguments: str) -> list[str]:
    result = CliRunner().invoke(serve, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stderr.splitlines()


def test_off_a_terminal_every_line_is_json_with_the_replica_role() -> None:
    (line,) = map(json.loads, lines())
    assert (line["msg"], line["level"], line["replica-role"]) == ("a warning", "warning", "leader")


def test_console_format_has_readable_lines() -> None:
    (line,) = lines("--log-format", "console")
    assert line.endswith(" warning: a warning")


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 1),
        (("-v",), 2),
        (("--log-level", "info"), 2),
        (("--log-level", "error"), 0),
        (("-v", "--log-level", "error"), 0),
    ],
)
def test_the_log_level_can_be_chosen(arguments: tuple[str, ...], count: int) -> None:
    assert len(lines(*arguments)) == count


def failure() -> Exception:
    """An error group as a manager raises it: one task failed within two groups of tasks."""
    try:
        try:
            raise KeyError("a-queue")
        except KeyError as error:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [error]) from None
    except ExceptionGroup as group:
        return ExceptionGroup("unhandled errors in a TaskGroup", [group])


def test_an_error_that_ends_a_server_is_a_log_line_with_the_traceback_of_its_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    LoggingOptions("json", "error").start(lambda: "leader")
    cli.report_internal_error(failure())
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert line["level"] == "critical"
    assert line["msg"].startswith("internal error: KeyError: 'a-queue' (")
    assert __file__ in line["msg"]
    assert "raise KeyError" in line["stacktrace"]


def test_an_internal_error_of_a_command_that_writes_no_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli.report_internal_error(failure())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pykueue: internal error: KeyError: 'a-queue' (")
    assert line.endswith("; PYKUEUE_TRACEBACK=1 shows the traceback")
