"""Commands run in this process: their output and exit code."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pykueue import cli


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        self._capsys.readouterr()
        code = 0
        try:
            cli.main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return CommandResult(code, *self._capsys.readouterr())
