"""Generated traces in the Standard Workload Format: a week of jobs by day and night, short and long, small and large.

Each queue has users of its own. A user has a few programs; the runs of a program are alike, and users ask for limits
that are several times longer, as the logs of supercomputers show. The same seed gives the same bytes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

WEEK_SECONDS: Final = 7 * 86_400
_SIZES: Final = (1, 1, 1, 1, 2, 2, 4, 8, 16, 32)
LIMITS: Final = (1800, 3600, 4 * 3600, 8 * 3600, 24 * 3600, 72 * 3600)
SHORTEST: Final = 10
# Of programs: the mean and the standard deviation of the logarithm of the typical run time, and the range of spreads.
TYPICAL: Final = (6.6, 1.3)
SPREADS: Final = (0.1, 0.8)


class WeekProgram(NamedTuple):
    """A program of a user: its run times are lognormal, with the median `typical` and the standard deviation `spread`
    of the logarithm."""

    queue: int
    user: int
    name: int
    size: int
    typical: float
    spread: float

    @property
    def limit(self) -> int:
        return next((each for each in LIMITS if each >= 2 * self.typical), LIMITS[-1])


class WeekJob(NamedTuple):
    submitted: int
    program: WeekProgram
    ran: int


def week(jobs: int, *, queues: int = 15, load: float = 0.9, seed: int = 0, seconds: int = WEEK_SECONDS) -> str:
    """A file with so many jobs. Its `MaxProcs` is what gives the load: work divided by processors times seconds."""
    lines, work = [], 0
    for number, (at, program, ran) in enumerate(drawn(jobs, queues=queues, seed=seed, seconds=seconds), start=1):
        queue, user, name, size, _, _ = program
        work += ran * size
        line = f"{number} {at} -1 {ran} {size} -1 -1 {size} {program.limit} -1 1 {user} {queue} {name} {queue} 1 -1 -1"
        lines.append(line)
    processors = max(max(_SIZES), math.ceil(work / seconds / load))
    head = ["; Version: 2.2", f"; MaxJobs: {jobs}", f"; MaxProcs: {processors}", "; UnixStartTime: 1793577600"]
    return "\n".join([*head, *lines]) + "\n"


def drawn(jobs: int, *, queues: int = 15, seed: int = 0, seconds: int = WEEK_SECONDS) -> Iterator[WeekJob]:
    """The jobs of a file by submission, with the programs that they are runs of."""
    rng = random.Random(seed)
    programs = [_program(rng, queue) for queue in range(1, queues + 1) for _ in range(12)]
    weights = [rng.paretovariate(1.2) for _ in programs]
    for at in sorted(_moment(rng, seconds) for _ in range(jobs)):
        program = rng.choices(programs, weights)[0]
        ran = max(SHORTEST, round(rng.lognormvariate(math.log(program.typical), program.spread)))
        yield WeekJob(at, program, min(ran, program.limit))


def _program(rng: random.Random, queue: int) -> WeekProgram:
    user = queue * 100 + rng.randint(1, 4)
    name, size = rng.randint(1, 10**6), rng.choice(_SIZES)
    return WeekProgram(queue, user, name, size, rng.lognormvariate(*TYPICAL), rng.uniform(*SPREADS))


def _moment(rng: random.Random, seconds: int) -> int:
    """A time of submission: three times as likely by day as by night."""
    while True:
        at = rng.uniform(0, seconds)
        if rng.random() < 0.5 + 0.25 * (1 - math.cos(2 * math.pi * at / 86_400)):
            return int(at)
