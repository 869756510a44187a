"""Random numbers of a run: each is a function of the seed and the UID and class of the Workload; that of the time of
admission checks, also of the attempt [RA2].

So a draw does not depend on the order of events, and two configurations that are compared get the same run times.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from math import sqrt
from statistics import NormalDist
from typing import Final, Protocol

import msgspec

from pykueue.api import kueue
from pykueue.projection.outcome import ProjectedAttempt


def uniform(seed: int, uid: str, attempt: int, purpose: str = "run") -> float:
    """A number between 0 and 1, both excluded."""
    digest = blake2b(f"{seed}/{uid}/{attempt}/{purpose}".encode(), digest_size=7).digest()
    return (int.from_bytes(digest) + 0.5) / 2.0**56


_NORMAL: Final = NormalDist()


def correlated(own: float, common: float, correlation: float) -> float:
    """A number between 0 and 1 from two such numbers: one of its own, and one that it has in common with others.

    If both are uniform, so is the result. Two results with the same common number have this correlation, as quantiles
    of the normal distribution (a Gaussian copula) [RT12]."""
    if correlation <= 0.0:
        return own
    score = sqrt(correlation) * _NORMAL.inv_cdf(common) + sqrt(1.0 - correlation) * _NORMAL.inv_cdf(own)
    return min(max(_NORMAL.cdf(score), 1e-12), 1.0 - 1e-12)


class Draws(Protocol):
    """How long things take in one run. A run time and a stop are the same in every attempt of a Workload [RT13]."""

    def run_seconds(self, workload: kueue.Workload, elapsed_seconds: int) -> int | None:
        """The whole length of an attempt, from its admission to its end, after it has run for some time already. A
        limit of the run time is included. None: nothing is known, and the attempt does not end."""
        ...

    def check_seconds(self, workload: kueue.Workload, attempt: ProjectedAttempt, elapsed_seconds: int) -> int:
        """How long the admission checks take, from the reservation on, after they have taken some time already."""
        ...

    def stop_seconds(self, workload: kueue.Workload) -> int:
        """How long pods take to stop after an eviction."""
        ...


class ConstantDraws(msgspec.Struct, frozen=True):
    """Run times that are known: a function of the Workload."""

    run: Callable[[kueue.Workload], int | None]
    checks: int = 0
    stop: int = 0

    def run_seconds(self, workload: kueue.Workload, elapsed_seconds: int) -> int | None:
        return self.run(workload)

    def check_seconds(self, workload: kueue.Workload, attempt: ProjectedAttempt, elapsed_seconds: int) -> int:
        return self.checks

    def stop_seconds(self, workload: kueue.Workload) -> int:
        return self.stop
