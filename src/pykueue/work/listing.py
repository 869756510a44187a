"""What lists show of queues, flavors and Workloads: the rows of kueuectl's tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from pykueue.api import conditions, kueue, meta, registry
from pykueue.api.conditions import WorkloadCondition
from pykueue.api.trees import Tree
from pykueue.errors import UsageError
from pykueue.kube import errors
from pykueue.kube.client import Client
from pykueue.kube.transport import Call
from pykueue.lifecycle import states
from pykueue.observe import visibility

_TYPE_LENGTH: Final = 20


class Status(StrEnum):
    """Where a Workload is, in the words of `--status`."""

    PENDING = "pending"
    QUOTA_RESERVED = "quotareserved"
    ADMITTED = "admitted"
    FINISHED = "finished"


def status(workload: kueue.Workload) -> Status:
    if states.has(workload, WorkloadCondition.FINISHED):
        return Status.FINISHED
    if states.has(workload, WorkloadCondition.ADMITTED):
        return Status.ADMITTED
    return Status.QUOTA_RESERVED if states.has(workload, WorkloadCondition.QUOTA_RESERVED) else Status.PENDING


def job_types(workload: kueue.Workload) -> str:
    """The kinds of its owners as resources: `job.batch`."""
    found = {_type(owner) for owner in workload.metadata.owner_references}
    return ", ".join(sorted(name if len(name) <= _TYPE_LENGTH else f"{name[:_TYPE_LENGTH]}..." for name in found))


def _type(owner: meta.OwnerReference) -> str:
    group, slash, _ = owner.api_version.rpartition("/")
    return f"{owner.kind.lower()}.{group}" if slash else owner.kind.lower()


def job_names(workload: kueue.Workload) -> str:
    return ", ".join(sorted({owner.name for owner in workload.metadata.owner_references}))


def seconds_run(workload: kueue.Workload, now: meta.Nanoseconds) -> str:
    """How long it has been admitted, or was until it finished."""
    admitted = conditions.find(workload.status.conditions, WorkloadCondition.ADMITTED)
    if admitted is None or admitted.status != "True":
        return ""
    finished = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    end = meta.parse_time(finished.last_transition_time) if finished and finished.status == "True" else now
    return duration(end - meta.parse_time(admitted.last_transition_time))


def age(made: str | None, now: meta.Nanoseconds) -> str:
    """How long ago something was made."""
    return duration(now - meta.parse_time(made)) if made else "<unknown>"


_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


def duration(nanoseconds: int) -> str:
    """A span of time as kubectl shows ages: precise while it is short, rough when it is long."""
    seconds = max(0, nanoseconds // meta.SECOND)
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if seconds < 2 * _YEAR:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


async def in_line(client: Client, namespace: str, local_queue: str) -> list[Tree]:
    """Who waits through a LocalQueue, first come first, from the visibility API; nobody where it is not served."""
    group, version = visibility.GROUP, visibility.VERSIONS[0]
    path = f"/apis/{group}/{version}/namespaces/{namespace}/localqueues/{local_queue}/pendingworkloads"
    try:
        answer = await client.ask(Call("GET", path))
    except errors.ApiError:
        return []
    return msgspec.json.decode(answer.body).get("items") or []


async def positions(client: Client, queues: Mapping[str, set[str]]) -> dict[str, int]:
    """Places in LocalQueues, which are named by namespace."""
    return {
        f"{namespace}/{item['metadata']['name']}": item["positionInLocalQueue"]
        for namespace, names in queues.items()
        for name in sorted(names)
        for item in await in_line(client, namespace, name)
    }


def of_type(text: str) -> tuple[str, str]:
    """TYPE[.GROUP]/NAME of `--for`: the kind in small letters, singular, and the name."""
    kind, slash, name = text.partition("/")
    wanted = kind.partition(".")[0].lower()
    if not slash or not wanted or not name:
        raise UsageError(f"--for {text}: must be TYPE/NAME or TYPE.GROUP/NAME, such as job/train")
    for row in registry.ALL:
        if wanted in (row.singular, row.plural, *row.short_names):
            return row.singular, name
    return wanted.removesuffix("s"), name


def is_owned_by(metadata: meta.ObjectMeta, owner: tuple[str, str]) -> bool:
    """Whether an object belongs to what `--for` named."""
    return owner in {(reference.kind.lower(), reference.name) for reference in metadata.owner_references}
