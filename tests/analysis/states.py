"""States in which a Workload stays pending: random ones, and those of the recorded cases."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from kubemachinery import meta
from kubemachinery.yaml_documents import Document
from laws.random_clusters import ClusterCase
from pykueue.analysis import planner
from pykueue.analysis.planner import Case, Configured
from pykueue.api import kueue
from pykueue.core.decision import Admit
from pykueue.core.requests import PLAIN
from pykueue.core.topology import PlacementOptions
from pykueue.lifecycle import states
from pykueue.state import workload_info

FAMILIES = sorted((Path(__file__).parent.parent / "conformance" / "plan").glob("*.jsonl.gz"))
CYCLES = 10_000


def case_of(generated: ClusterCase) -> Case:
    return Case(Configured(generated.policy, PLAIN, PlacementOptions()), ()).with_objects(generated.things())


def recorded(rng: random.Random) -> Iterator[tuple[str, Case, int]]:
    """Recorded cases in a random order: what each is called, the case, and its time."""
    families = list(FAMILIES)
    rng.shuffle(families)
    for family in families:
        with gzip.open(family, "rt") as lines:
            line = json.loads(rng.choice(lines.readlines()))
        yield line["id"], planner.read([Document(line["id"], line["case"])]), meta.parse_time(line["now"])


def blocked(case: Case, now: int) -> list[str]:
    """The pending Workloads that are not admitted in any number of cycles."""
    made = planner.plan(case, now, cycles=CYCLES, until_stable=True, departures=True)
    lucky = {decision.workload for decision in made.decisions if isinstance(decision, Admit)}
    return [
        key
        for key, workload in made.workloads.items()
        if key not in lucky and not workload_info.holds_quota(workload) and not states.is_finished(workload)
    ]


def workload_of(case: Case, key: str) -> kueue.Workload:
    return next(t for t in case.objects if isinstance(t, kueue.Workload) and states.key(t) == key)
