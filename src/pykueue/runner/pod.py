"""What a pod wants next: its containers' attempts in, containers to start and stop out, and how the pod stands.

    init containers   one after another, each until it succeeds; a sidecar (restartPolicy Always) only until it runs
    containers        side by side; what ends is started again as the restart policy says, later each time
    over              all containers have ended for good; sidecars are stopped then
    going             deleted, or out of time: everything is asked to stop, and killed when the grace period is over

Nothing is remembered here. Whoever asks again with the same attempts gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pykueue.api import meta, trees
from pykueue.api.trees import Tree
from pykueue.runner import conditions
from pykueue.runner.conditions import Said
from pykueue.runner.launch import LOOPBACK, Problem

_FIRST_PAUSE_SECONDS: Final = 10
_LONGEST_PAUSE_SECONDS: Final = 300
# One that ran for so long has recovered: its next failure counts as the first.
_RECOVERED_SECONDS: Final = 600
_LOST_CODE: Final = 137


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    code: int
    at: int
    signal: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one container; the number counts from 0."""

    number: int
    started: int
    ended: Ended | None = None


# The attempts of each container that are still known, the latest last.
Attempts: TypeAlias = Mapping[str, Sequence[Attempt]]


@dataclass(frozen=True, slots=True)
class Stop:
    container: str
    kill: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done now, and how the pod stands."""

    status: Tree
    start: tuple[str, ...] = ()
    stop: tuple[Stop, ...] = ()
    again_seconds: float | None = None


def lost(pod: Tree, attempts: Attempts, now: int) -> Attempts:
    """The attempts, with those that the pod's status knows and nobody else does: they ended, and nobody saw how."""
    found = dict(attempts)
    for field_name in ("initContainerStatuses", "containerStatuses"):
        for _, status in trees.entries(pod, "status", field_name):
            name = trees.text(status.get("name"))
            was = trees.mapping(status.get("state"))
            if name in found or not ("running" in was or "terminated" in was):
                continue
            number = trees.integer(status.get("restartCount")) or 0
            found[name] = (Attempt(number, _moment(was, "startedAt"), _told(was, now)),)
    return found


def _told(state: Mapping[str, Any], now: int) -> Ended:
    over = trees.mapping(state.get("terminated"))
    if not over:
        return unseen(now)
    return Ended(
        trees.integer(over.get("exitCode")) or 0,
        _moment(state, "finishedAt"),
        trees.integer(over.get("signal")) or 0,
        trees.text(over.get("reason")),
        trees.text(over.get("message")),
    )


def unseen(now: int) -> Ended:
    """The end of something that is not there any more, and left no word of how it ended."""
    return Ended(_LOST_CODE, now, reason="Lost", message="it ended while nobody was there to see how")


def _moment(state: Mapping[str, Any], name: str) -> int:
    written = next((trees.text(trees.get(each, name)) for each in state.values()), "")
    return meta.parse_time(written) if written else 0


# --- The step ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Wants:
    start: list[str] = field(default_factory=list)
    stop: list[Stop] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    waiting: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Why the pod is over although a container could be started again.
    given_up: bool = False


def step(pod: Tree, attempts: Attempts, now: int, problems: Mapping[str, Problem] | None = None) -> Step:
    """What to do with a pod that is on a node. `problems` are containers that could not be started just now."""
    spec = trees.mapping(pod.get("spec"))
    inits = [container for _, container in trees.entries(spec, "initContainers")]
    mains = [container for _, container in trees.entries(spec, "containers")]
    wants = _Wants(waiting={name: (why.reason, why.message) for name, why in (problems or {}).items()})
    kill_at, reason = _end(pod, now)
    if kill_at is not None:
        _stop_all(attempts, now, kill_at, wants)
    else:
        _start_due(spec, inits, mains, attempts, now, wants)
        if (deadline := _deadline(pod)) is not None:
            wants.wakes.append((deadline - now) / meta.SECOND)
    phase = _phase(spec, inits, mains, attempts, ending=kill_at is not None, given_up=wants.given_up)
    over = phase in ("Succeeded", "Failed")
    if over:
        wants.start.clear()
        if kill_at is None:
            # Only sidecars can be left.
            _stop_all(attempts, now, _last_end(attempts) + _grace(pod) * meta.SECOND, wants)
    running = any(_is_running(each) for each in attempts.values())
    status = _status(pod, "Running" if over and running else phase, attempts, wants, now)
    if reason and over and not running:
        status |= {"reason": reason, "message": "the pod ran longer than its activeDeadlineSeconds"}
    return Step(
        status,
        tuple(wants.start),
        tuple(wants.stop),
        again_seconds=max(min(wants.wakes), 0.01) if wants.wakes else None,
    )


def _end(pod: Tree, now: int) -> tuple[int | None, str]:
    """When what still runs is killed, if the pod has to end at all; and a word for why it failed."""
    if _is_deleted(pod):
        return meta.parse_time(trees.text(trees.get(pod, "metadata", "deletionTimestamp"))), ""
    deadline = _deadline(pod)
    if deadline is not None and now >= deadline:
        return deadline + _grace(pod) * meta.SECOND, "DeadlineExceeded"
    return None, ""


def _last_end(attempts: Attempts) -> int:
    return max((each.ended.at for made in attempts.values() for each in made if each.ended is not None), default=0)


def _is_deleted(pod: Tree) -> bool:
    return trees.get(pod, "metadata", "deletionTimestamp") is not None


def _grace(pod: Tree) -> int:
    found = trees.integer(trees.get(pod, "spec", "terminationGracePeriodSeconds"))
    return 30 if found is None else found


def _deadline(pod: Tree) -> int | None:
    seconds = trees.integer(trees.get(pod, "spec", "activeDeadlineSeconds"))
    began = trees.text(trees.get(pod, "status", "startTime"))
    return meta.parse_time(began) + seconds * meta.SECOND if seconds is not None and began else None


def _stop_all(attempts: Attempts, now: int, kill_at: int, wants: _Wants) -> None:
    for name, made in attempts.items():
        if _is_running(made):
            wants.stop.append(Stop(name, kill=now >= kill_at))
    if wants.stop and now < kill_at:
        wants.wakes.append((kill_at - now) / meta.SECOND)


def _start_due(
    spec: Mapping[str, Any],
    inits: Sequence[Mapping[str, Any]],
    mains: Sequence[Mapping[str, Any]],
    attempts: Attempts,
    now: int,
    wants: _Wants,
) -> None:
    policy = trees.text(spec.get("restartPolicy")) or "Always"
    for container in inits:
        sidecar = _is_sidecar(container)
        made = attempts.get(_name(container), ())
        if not sidecar and _succeeded(made):
            continue
        # Init containers succeed once; where pods may restart at all, a failed one is tried again.
        _consider(container, "Always" if sidecar else {"Never": "Never"}.get(policy, "OnFailure"), made, now, wants)
        if not sidecar or not _is_running(made):
            if not sidecar and made and not _is_running(made) and policy == "Never":
                wants.given_up = True
            return
    for container in mains:
        _consider(container, policy, attempts.get(_name(container), ()), now, wants)


def _consider(container: Mapping[str, Any], policy: str, made: Sequence[Attempt], now: int, wants: _Wants) -> None:
    """Have a container started, now or later, if it should be."""
    name = _name(container)
    if not made:
        wants.start.append(name)
        return
    last = made[-1]
    if last.ended is None or not _restarts(policy, last.ended):
        return
    wait = (last.ended.at - now) / meta.SECOND + _pause_seconds(last)
    if wait <= 0:
        wants.start.append(name)
    else:
        wants.waiting.setdefault(name, ("CrashLoopBackOff", f"waits {_pause_seconds(last)} s before it starts again"))
        wants.wakes.append(wait)


def _restarts(policy: str, ended: Ended) -> bool:
    return policy == "Always" or (policy == "OnFailure" and ended.code != 0)


def _pause_seconds(last: Attempt) -> int:
    """The first restart comes at once, and the others ever later."""
    assert last.ended is not None
    if last.number == 0 or last.ended.at - last.started >= _RECOVERED_SECONDS * meta.SECOND:
        return 0
    return int(min(_FIRST_PAUSE_SECONDS * 2 ** min(last.number - 1, 10), _LONGEST_PAUSE_SECONDS))


# --- Small questions --------------------------------------------------------------------------------------------------


def _name(container: Mapping[str, Any]) -> str:
    return trees.text(container.get("name"))


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _is_running(made: Sequence[Attempt]) -> bool:
    return bool(made) and made[-1].ended is None


def _succeeded(made: Sequence[Attempt]) -> bool:
    return bool(made) and made[-1].ended is not None and made[-1].ended.code == 0


def _phase(
    spec: Mapping[str, Any],
    inits: Sequence[Mapping[str, Any]],
    mains: Sequence[Mapping[str, Any]],
    attempts: Attempts,
    *,
    ending: bool,
    given_up: bool,
) -> str:
    """Where the pod is. A pod that has to end is over once its containers are."""
    policy = "Never" if ending else trees.text(spec.get("restartPolicy")) or "Always"
    made = [attempts.get(_name(container), ()) for container in mains]
    if given_up:
        return "Failed"
    over = [bool(each) and each[-1].ended is not None and not _restarts(policy, each[-1].ended) for each in made]
    if all(over):
        return "Succeeded" if all(map(_succeeded, made)) else "Failed"
    if ending and not any(map(_is_running, made)):
        return "Failed"  # it never came to run, or not all of it
    initialized = all(_is_initialized(container, attempts) for container in inits)
    return "Running" if initialized and any(made) else "Pending"


def _is_initialized(container: Mapping[str, Any], attempts: Attempts) -> bool:
    made = attempts.get(_name(container), ())
    return bool(made) if _is_sidecar(container) else _succeeded(made)


# --- How it stands ----------------------------------------------------------------------------------------------------


def _status(pod: Tree, phase: str, attempts: Attempts, wants: _Wants, now: int) -> Tree:
    spec, before = trees.mapping(pod.get("spec")), trees.mapping(pod.get("status"))
    inits = [container for _, container in trees.entries(spec, "initContainers")]
    mains = [container for _, container in trees.entries(spec, "containers")]
    initialized = all(_is_initialized(container, attempts) for container in inits)
    ready = phase == "Running" and all(_is_running(attempts.get(_name(container), ())) for container in mains)
    over = phase in ("Succeeded", "Failed")
    began = min((made[0].started for made in attempts.values() if made), default=now)
    status: Tree = {
        **before,
        "phase": phase,
        "startTime": before.get("startTime") or meta.format_time(began),
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "containerStatuses": [_container(each, attempts, wants, initialized=initialized) for each in mains],
    }
    if inits:
        status["initContainerStatuses"] = [_container(each, attempts, wants, is_init=True) for each in inits]
    not_ready = "PodCompleted" if over else "ContainersNotReady"
    reason = "" if ready else not_ready
    said = (
        Said("PodScheduled", True),
        Said("PodReadyToStartContainers", not over),
        Said("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        Said("ContainersReady", ready, reason),
        Said("Ready", ready, reason),
    )
    status["conditions"] = conditions.after(before, said, now)
    return status


def _container(
    container: Mapping[str, Any], attempts: Attempts, wants: _Wants, *, initialized: bool = True, is_init: bool = False
) -> Tree:
    name = _name(container)
    made = attempts.get(name, ())
    running = _is_running(made)
    reason, message = wants.waiting.get(name, ("ContainerCreating" if initialized else "PodInitializing", ""))
    status: Tree = {
        "name": name,
        "image": trees.text(container.get("image")),
        "imageID": "",
        "ready": running or (is_init and _succeeded(made)),
        "started": running,
        "restartCount": made[-1].number if made else 0,
        "state": {},
        "lastState": {},
    }
    if not made or (name in wants.waiting and not running):
        status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        previous = made[-1:]
    else:
        status["state"] = _state(made[-1])
        previous = made[-2:-1]
    if previous:
        status["lastState"] = _state(previous[0])
    return status


def _state(attempt: Attempt) -> Tree:
    started = meta.format_time(attempt.started)
    if attempt.ended is None:
        return {"running": {"startedAt": started}}
    ended = attempt.ended
    over: Tree = {
        "exitCode": ended.code,
        "reason": ended.reason or ("Completed" if ended.code == 0 else "Error"),
        "startedAt": started,
        "finishedAt": meta.format_time(ended.at),
    }
    if ended.signal:
        over["signal"] = ended.signal
    if ended.message:
        over["message"] = ended.message
    return {"terminated": over}


def names(pod: Tree) -> Iterator[str]:
    """The containers of a pod, those that run first before the others."""
    for field_name in ("initContainers", "containers"):
        yield from (_name(container) for _, container in trees.entries(pod, "spec", field_name))


def find(pod: Tree, name: str) -> Tree | None:
    """The container of that name."""
    both: Iterable[Mapping[str, Any]] = (
        container
        for field_name in ("initContainers", "containers")
        for _, container in trees.entries(pod, "spec", field_name)
    )
    return next((dict(container) for container in both if _name(container) == name), None)
