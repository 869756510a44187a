"""Generated traces in the Standard Workload Format: a week of jobs by day and night, short and long, small and large.

Each queue has users of its own. A user has a few programs; the runs of a program are alike, and users ask for limits
that are several times longer, as the logs of supercomputers show. The same seed gives the same bytes.
"""

from __future__ import annotations

import math
import random
from typing import Final

WEEK_SECONDS: Final = 7 * 86_400
_SIZES: Final = (1, 1, 1, 1, 2, 2, 4, 8, 16, 32)
_LIMITS: Final = (1800, 3600, 4 * 3600, 8 * 3600, 24 * 3600, 72 * 3600)


def week(jobs: int, *, queues: int = 15, load: float = 0.9, seed: int = 0, seconds: int = WEEK_SECONDS) -> str:
    """A file with so many jobs. Its `MaxProcs` is what gives the load: work divided by processors times seconds."""
    rng = random.Random(seed)
    programs = [_program(rng, queue) for queue in range(1, queues + 1) for _ in range(12)]
    weights = [rng.paretovariate(1.2) for _ in programs]
    submitted = sorted(_moment(rng, seconds) for _ in range(jobs))
    lines, work = [], 0
    for number, at in enumerate(submitted, start=1):
        queue, user, name, size, typical, spread = rng.choices(programs, weights)[0]
        ran = max(10, round(rng.lognormvariate(math.log(typical), spread)))
        limit = next((each for each in _LIMITS if each >= 2 * typical), _LIMITS[-1])
        ran = min(ran, limit)
        work += ran * size
        lines.append(f"{number} {at} -1 {ran} {size} -1 -1 {size} {limit} -1 1 {user} {queue} {name} {queue} 1 -1 -1")
    processors = max(max(_SIZES), math.ceil(work / seconds / load))
    head = ["; Version: 2.2", f"; MaxJobs: {jobs}", f"; MaxProcs: {processors}", "; UnixStartTime: 1793577600"]
    return "\n".join([*head, *lines]) + "\n"


def _program(rng: random.Random, queue: int) -> tuple[int, int, int, int, float, float]:
    """A queue, a user of it, the number of a program, its processors, its typical run time and how much that varies."""
    user = queue * 100 + rng.randint(1, 4)
    return queue, user, rng.randint(1, 10**6), rng.choice(_SIZES), rng.lognormvariate(6.6, 1.3), rng.uniform(0.1, 0.8)


def _moment(rng: random.Random, seconds: int) -> int:
    """A time of submission: three times as likely by day as by night."""
    while True:
        at = rng.uniform(0, seconds)
        if rng.random() < 0.5 + 0.25 * (1 - math.cos(2 * math.pi * at / 86_400)):
            return int(at)
