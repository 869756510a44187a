"""The options of `pykueue whatif` that belong to --trace."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kubemachinery.errors import UsageError


class TraceOptions(NamedTuple):
    """The options that belong to --trace."""

    trace: str
    history: Path | None
    per_processor: tuple[str, ...]
    ignore_bad_lines: bool
    write_base: Path | None
    repeat: int
    report_file: Path | None

    def check(self, *, is_forecast: bool = False) -> None:
        """Refuse options without the one that they belong to. A forecast may have a history without --trace."""
        given = {
            "--history": None if is_forecast else self.history,
            "--map": self.per_processor,
            "--ignore-bad-lines": self.ignore_bad_lines,
            "--write-base": self.write_base,
            "--repeat": self.repeat > 1,
            "--report": self.report_file,
        }
        alone = [name for name, value in given.items() if value]
        if alone and not self.trace:
            raise UsageError(f"{alone[0]} belongs to --trace")
        of_file = [name for name in ("--map", "--ignore-bad-lines", "--write-base") if given[name]]
        if self.is_range and of_file:
            raise UsageError(f"{of_file[0]} belongs to a trace file, and {self.trace} is a time range")
        if self.trace and not self.is_range and self.history is not None:
            raise UsageError(f"--history belongs to a time range, and {self.trace} is a file")

    @property
    def is_range(self) -> bool:
        return ".." in self.trace and not Path(self.trace).exists()
