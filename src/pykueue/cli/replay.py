"""`pykueue replay`: replays the trace of a manager and compares the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kubemachinery.errors import UsageError
from pykueue import wording
from pykueue.cli.progress import progress
from pykueue.errors import NegativeResult


@click.command("replay")
@click.argument("trace", type=click.Path(dir_okay=False, path_type=Path))
def command(trace: Path) -> None:
    """Replay a trace written by `pykueue manager --record`, and compare every decision.

    Needs no cluster. Exit code 0 when all decisions are the same, 1 when one differs.
    """
    import msgspec

    from pykueue import settings
    from pykueue.app.options import manager_options
    from pykueue.controllers import decision_trace
    from pykueue.version import __version__

    try:
        # Text after the last newline was being written when the manager was killed.
        lines = trace.read_bytes().split(b"\n")[:-1]
        header = msgspec.json.decode(lines[0] if lines else b"", type=dict[str, Any])
        chosen = settings.load(header["configuration"], f"{trace}, line 1")
    except OSError as error:
        raise UsageError(f"{trace}: {error.strerror}") from None
    except (msgspec.DecodeError, KeyError):
        raise UsageError(f"{trace}: line 1: is not the header of a trace") from None
    try:
        with progress() as report:
            report(f"Replaying {wording.counted(len(lines) - 1, 'line')}")
            found = decision_trace.replay(lines[1:], manager_options(chosen).empty_world(), first=2)
    except UsageError as error:
        raise UsageError(f"{trace}: {error}") from None
    if found.difference is not None:
        shown = msgspec.json.format(
            msgspec.json.encode({"recorded": found.difference.recorded, "replayed": found.difference.replayed})
        )
        click.echo(shown.decode())
        written_by = header.get("pykueue", "")
        by = "" if written_by == __version__ else f"; the trace was recorded by {written_by}, this is {__version__}"
        raise NegativeResult(f"{trace}: line {found.difference.line}: a different decision{by}")
    numbers = ((found.calls, "call"), (found.cycles, "cycle"), (found.decisions, "decision"))
    click.echo(f"equal: {', '.join(wording.counted(number, noun) for number, noun in numbers)}")
