"""What the history costs: processor time per transition, bytes per record, and lists of a large history.

    python -m bench history [--records=1000000] [--json=FILE]

A transition is one state of a Workload folded into its record; a life has five, and its record is written twice. Times
are processor times of one core. The limits are 0.2 ms per transition, 500 bytes per record, and one second for a list.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus, set_condition
from kubemachinery.meta import SECOND
from pykueue.api import kube, kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.history import records
from pykueue.history.queries import RecordFilter
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore

SMALLEST = ("--records=2000",)

_START = meta.parse_time("2026-01-01T00:00:00Z") // SECOND
_USERS, _QUEUES, _CLUSTER_QUEUES = 200, 40, 30
_SHAPE = b'[{"count":4,"name":"main","requests":{"cpu":"4","memory":"16Gi","nvidia.com/gpu":"1"}}]'
_EVERY_SECONDS = 30
_BATCH = 500


def life(number: int) -> list[kueue.Workload]:
    """The states of a Workload: created, reserved, admitted, ready, finished."""
    container = kube.Container(name="c", resources=kube.ResourceRequirements(requests={"cpu": "4", "memory": "16Gi"}))
    template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    metadata = meta.ObjectMeta(
        name=f"job-train-{number}",
        namespace="team",
        uid=str(uuid.UUID(int=number)),
        creation_timestamp=meta.format_time(_START * SECOND),
        resource_version="1",
    )
    spec = kueue.WorkloadSpec(pod_sets=(kueue.PodSet(name="main", count=4, template=template),), queue_name="research")
    workload = kueue.Workload(metadata=metadata, spec=spec)
    found = [workload]
    given = kueue.PodSetAssignment(
        name="main", flavors={"cpu": "a100", "memory": "a100"}, resource_usage={"cpu": "16", "memory": "64Gi"}, count=4
    )
    types = ("QUOTA_RESERVED", "ADMITTED", "PODS_READY", "FINISHED")
    for revision, name in enumerate(types, start=2):
        now = (_START + revision * 60) * SECOND
        changed = set_condition(
            workload.status.conditions, WorkloadCondition[name].value, ConditionStatus.TRUE, "Succeeded", "", now=now,
            generation=1,
        )  # fmt: skip
        status = replace(
            workload.status,
            conditions=changed,
            admission=kueue.Admission(cluster_queue="physics", pod_set_assignments=(given,)),
        )
        metadata = replace(workload.metadata, resource_version=str(revision))
        workload = replace(workload, status=status, metadata=metadata)
        found.append(workload)
    return found


def transition_seconds(count: int) -> float:
    """Processor seconds of one transition, its share of the writes included."""
    lives = [life(number) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        store = HistoryStore(Path(folder) / "history.db")
        began = time.process_time()
        for start in range(0, count, _BATCH):
            some = lives[start : start + _BATCH]
            halfway, done = [], []
            for states in some:
                record: WorkloadRecord | None = None
                for place, workload in enumerate(states):
                    record = records.observe(record, workload, _START + place)
                    if place == len(states) - 2:
                        halfway.append(record)
                assert record is not None
                done.append(record)
            store.save(halfway)
            store.save(done)
        seconds = time.process_time() - began
        store.close()
    return seconds / (count * 5)


def record(number: int, rng: random.Random) -> WorkloadRecord:
    """A Workload that waited for up to an hour and ran for up to some hours."""
    submitted = _START + number * _EVERY_SECONDS
    started = submitted + rng.randrange(3600)
    ended = started + rng.randrange(60, 20_000)
    amounts = (("a100", "cpu", 16_000), ("a100", "memory", 64 * 2**30), ("a100", "nvidia.com/gpu", 4))
    segment = UsageSegment(started, ended, amounts)
    attempt = Attempt(
        started, f"cluster-queue-{number % _CLUSTER_QUEUES}", started, started, ended, "Finished", segments=(segment,)
    )
    return WorkloadRecord(
        uid=str(uuid.UUID(int=rng.getrandbits(128))),
        namespace=f"team-{number % 20}",
        name=f"job-train-llm-{number}-a1b2c",
        job_kind="job.batch",
        job_name=f"train-llm-{number}",
        job_uid=str(uuid.UUID(int=rng.getrandbits(128))),
        queue=f"queue-{number % _QUEUES}",
        user=f"user-{number % _USERS}",
        pods=4,
        shape=_SHAPE,
        submitted=submitted,
        ready=started + 5,
        ended=ended,
        outcome=Outcome.FAILED if number % 50 == 0 else Outcome.SUCCEEDED,
        exit_code=0,
        attempts=(attempt,),
        revision=number * 10,
        seen=ended,
    )


def lists(count: int) -> dict[str, Any]:
    """Bytes per record, and the processor seconds of lists and reports, with so many records."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        store = HistoryStore(path)
        for start in range(0, count, _BATCH):
            store.save([record(number, rng) for number in range(start, min(start + _BATCH, count))])
        store.close()
        size = path.stat().st_size
        store = HistoryStore(path)
        end = _START + count * _EVERY_SECONDS
        week, month = end - 7 * 86_400, end - 30 * 86_400
        questions: dict[str, Callable[[], Any]] = {
            "a user's week": lambda: store.select(RecordFilter(user="user-7", since=week)),
            "a queue's day": lambda: store.select(RecordFilter(queue="queue-3", since=end - 86_400)),
            "failed in a week": lambda: store.select(RecordFilter(states=frozenset({"Failed"}), since=week)),
            "by name": lambda: store.select(RecordFilter(name="train-llm-123*"), limit=1000),
            "evicted, of all": lambda: store.select(RecordFilter(evicted=True)),
            "usage of a month": lambda: store.usage(RecordFilter(since=month), end),
            "waiting of a month": lambda: store.waiting(RecordFilter(since=month), ["queue"]),
        }
        seconds = {}
        for name, question in questions.items():
            began = time.process_time()
            question()
            seconds[name] = time.process_time() - began
        store.close()
    return {"bytes per record": size / count, "seconds": seconds}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="history", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = {
        "records": options.records,
        "milliseconds per transition": transition_seconds(min(options.records, 5_000)) * 1000,
        **lists(options.records),
    }
    print(f"{figures['milliseconds per transition']:.3f} ms per transition (limit 0.2)")
    print(f"{figures['bytes per record']:.0f} bytes per record (limit 500), {options.records} records")
    for name, seconds in figures["seconds"].items():
        print(f"{seconds:8.3f} s  {name} (limit 1)")
    if options.json:
        options.json.write_text(json.dumps(figures))
    return 0
