"""The safety net under waking by cause: nobody needs it, and it would catch whoever did."""

from __future__ import annotations

import pytest

from controllers.conftest import Story
from controllers.test_metrics import STANDALONE, page
from pykueue.controllers import scheduler
from pykueue.state.reservations import Reservations

SWEEPS = f"pykueue_sweeps_total{{{STANDALONE}}}"
ADMITTED = f"pykueue_admitted_by_sweep_total{{{STANDALONE}}}"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_SWEEP_SECONDS", 0.1)


async def sweeps(story: Story, count: int) -> None:
    async def made() -> bool:
        return (await page(story)).get(SWEEPS, 0) >= count

    await story.until(made)


async def test_a_sweep_lets_in_nobody_whom_a_cause_wakes(story: Story) -> None:
    async with story.manager():
        await story.queues("1")
        await story.workload("first")
        await story.until_said("first", "Admitted", "True/Admitted")
        await story.workload("second")
        await story.until_said("second", "QuotaReserved", "False/WaitingForQuota")
        await sweeps(story, 2)
        await story.finish("first")
        await story.until_said("second", "Admitted", "True/Admitted")
        assert (await page(story))[ADMITTED] == 0


async def test_a_sweep_finds_whom_no_cause_woke(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Reservations.end

    def quiet(self: Reservations, key: str) -> None:
        end(self, key)
        self._waking.take_released()

    monkeypatch.setattr(Reservations, "end", quiet)
    async with story.manager():
        await story.queues("1")
        await story.workload("first")
        await story.until_said("first", "Admitted", "True/Admitted")
        await story.workload("second")
        await story.until_said("second", "QuotaReserved", "False/WaitingForQuota")
        await story.finish("first")
        await story.until_said("second", "Admitted", "True/Admitted")
        await sweeps(story, 1)
        assert (await page(story))[ADMITTED] == 1
