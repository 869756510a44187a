"""What `pykueue top` shows in a small terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from kubemachinery import quantity
from pykueue.cli import top
from pykueue.client.queue_overview import QueueRow, Usage

LINE = QueueRow(
    name="research",
    depth=0,
    is_cohort=False,
    is_active=True,
    admitted=12,
    pending=34,
    usages=(
        Usage(
            flavor="default",
            resource="cpu",
            used=quantity.parse("56"),
            nominal=quantity.parse("78"),
            borrowed=quantity.parse("0"),
        ),
    ),
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_who_waits_and_what_is_used_is_seen_on_every_terminal(width: int) -> None:
    console = Console(width=width)
    with console.capture() as shown:
        console.print(top._tree([LINE], width))
    head, row = shown.get().splitlines()
    assert {"research", "cpu", "56", "78", "34"} <= set(row.split())
    assert ("FLAVOR" in head) is (width == 200)
