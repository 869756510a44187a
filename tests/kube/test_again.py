"""What looks before it writes can be done again until it is done."""

from __future__ import annotations

import pytest

from pykueue.kube import errors
from pykueue.kube.again import until_done


class Attempts:
    """Fails with these first, then works."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.count


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.kube.again._FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize(
    "trouble",
    [
        errors.Conflict(409, "Conflict", ""),
        errors.AlreadyExists(409, "AlreadyExists", ""),
        errors.Unanswered("lost"),
        errors.Busy(503, "ServiceUnavailable", ""),
        errors.ApiError(500, "InternalError", ""),
    ],
)
async def test_trouble_that_passes_is_waited_out(trouble: Exception) -> None:
    attempts = Attempts(trouble, trouble)
    assert await until_done(attempts) == 3


async def test_a_refusal_is_final() -> None:
    attempts = Attempts(errors.ApiError(403, "Forbidden", "no"))
    with pytest.raises(errors.ApiError):
        await until_done(attempts)
    assert attempts.count == 1


async def test_what_never_works_raises_in_the_end() -> None:
    attempts = Attempts(*[errors.Unanswered("lost")] * 99)
    with pytest.raises(errors.Unanswered):
        await until_done(attempts, attempts=4)
    assert attempts.count == 4
