"""Commands as people type them, in this process: what they say, and how they end."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pykueue import cli


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code = 0
        try:
            cli.main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return Said(code, *self._capsys.readouterr())
