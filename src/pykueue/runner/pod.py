"""Decisions of the kubelet: the attempts of a pod's containers in; containers to start and stop, and its status out.

    init containers   one after another, each until it succeeds; a sidecar (restartPolicy Always) only until it runs
    containers        in parallel; one that ends is restarted by the restart policy, with exponential backoff
    finished          all containers have ended and none is restarted; sidecars are stopped then
    terminating       deleted, or past activeDeadlineSeconds: containers get SIGTERM, and SIGKILL after the grace period

The module keeps no state: the same attempts give the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions, container_attempts
from pykueue.runner.conditions import ConditionUpdate
from pykueue.runner.container_attempts import Attempts, ContainerAttempt, PodContainer, Termination
from pykueue.runner.process_spec import LOOPBACK, StartProblem

_FIRST_PAUSE_SECONDS: Final = 10
_LONGEST_PAUSE_SECONDS: Final = 300
# A container that ran this long resets its backoff, as in the kubelet.
_RECOVERED_SECONDS: Final = 600
_GRACE_SECONDS: Final = 30


class StopContainer(msgspec.Struct, frozen=True):
    """A running container to terminate, or to kill."""

    container: str
    kill: bool


class PodStep(msgspec.Struct, frozen=True):
    """What to do now, and the status of the pod."""

    status: Tree
    start: tuple[str, ...] = ()
    stop: tuple[StopContainer, ...] = ()
    requeue_after_seconds: float | None = None


class _Requests(msgspec.Struct):
    """A step while it is computed."""

    start: list[str] = msgspec.field(default_factory=list)
    stop: list[StopContainer] = msgspec.field(default_factory=list)
    wakes: list[float] = msgspec.field(default_factory=list)
    # Container -> reason and message of its waiting state.
    waiting: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)


def step(pod: Tree, made: Attempts, now: int, problems: Mapping[str, StartProblem] | None = None) -> PodStep:
    """Return the next step of a pod that is bound to a node. `problems` are containers that could not be started
    now."""
    inits, mains = container_attempts.containers(pod, made)
    wants = _Requests(waiting={name: (why.reason, why.message) for name, why in (problems or {}).items()})
    policy = unstructured.text(unstructured.get(pod, "spec", "restartPolicy")) or "Always"
    kill_at, reason = _end(pod, policy, mains, now)
    phase = _phase("Never" if kill_at is not None else policy, inits, mains, has_to_end=kill_at is not None)
    over = phase in ("Succeeded", "Failed")
    if over and kill_at is None:
        # Only sidecars can still run.
        kill_at = max(one.end.at for one in (*inits, *mains) if one.end is not None) + _grace(pod)
    if kill_at is not None:
        _stop([*inits, *mains], now, kill_at, wants)
    else:
        _start(policy, inits, mains, now, wants)
        if (deadline := _deadline(pod)) is not None:
            wants.wakes.append((deadline - now) / meta.SECOND)
    running = any(one.is_running for one in (*inits, *mains))
    status = _status(pod, "Running" if over and running else phase, inits, mains, wants, now)
    if reason and over and not running:
        seconds = unstructured.integer(unstructured.get(pod, "spec", "activeDeadlineSeconds"))
        status |= {"reason": reason, "message": f"time limit of {seconds} s exceeded"}
    again = max(min(wants.wakes), 0.01) if wants.wakes else None
    return PodStep(status, tuple(wants.start), tuple(wants.stop), again)


def _phase(policy: str, inits: Sequence[PodContainer], mains: Sequence[PodContainer], *, has_to_end: bool) -> str:
    """Return the phase of the pod. A terminating pod is over as soon as no main container runs."""
    if all(_is_over(policy, one) for one in mains):
        return "Succeeded" if all(one.succeeded for one in mains) else "Failed"
    if has_to_end and not any(one.is_running for one in mains):
        return "Failed"
    if policy == "Never" and any(one.end is not None and not one.succeeded for one in inits if not one.is_sidecar):
        return "Failed"
    return "Running" if all(one.lets_others_start for one in inits) and any(one.made for one in mains) else "Pending"


def _is_over(policy: str, container: PodContainer) -> bool:
    return container.end is not None and not _restarts(policy, container.end)


def _restarts(policy: str, end: Termination) -> bool:
    return policy == "Always" or (policy == "OnFailure" and end.code != 0)


# --- Ending -----------------------------------------------------------------------------------------------------------


def _end(pod: Tree, policy: str, mains: Sequence[PodContainer], now: int) -> tuple[int | None, str]:
    """Return when running containers are killed (None if the pod is not terminating), and the reason of the failure."""
    deleted = unstructured.get(pod, "metadata", "deletionTimestamp")
    if deleted is not None:
        return meta.parse_time(deleted), ""
    deadline = _deadline(pod)
    # Containers that ended in time are reported later if the runner was down.
    in_time = all(_is_over(policy, one) and one.end is not None and one.end.at < (deadline or 0) for one in mains)
    if deadline is not None and now >= deadline and not in_time:
        return deadline + _grace(pod), "DeadlineExceeded"
    return None, ""


def _grace(pod: Tree) -> int:
    found = unstructured.integer(unstructured.get(pod, "spec", "terminationGracePeriodSeconds"))
    return (_GRACE_SECONDS if found is None else found) * meta.SECOND


def _deadline(pod: Tree) -> int | None:
    seconds = unstructured.integer(unstructured.get(pod, "spec", "activeDeadlineSeconds"))
    began = unstructured.text(unstructured.get(pod, "status", "startTime"))
    return meta.parse_time(began) + seconds * meta.SECOND if seconds is not None and began else None


def _stop(containers: Iterable[PodContainer], now: int, kill_at: int, wants: _Requests) -> None:
    """Terminate the running containers; kill them after the grace period."""
    wants.stop += [StopContainer(one.name, kill=now >= kill_at) for one in containers if one.is_running]
    if wants.stop and now < kill_at:
        wants.wakes.append((kill_at - now) / meta.SECOND)


# --- Starting ---------------------------------------------------------------------------------------------------------


def _start(
    policy: str, inits: Sequence[PodContainer], mains: Sequence[PodContainer], now: int, wants: _Requests
) -> None:
    """Start the containers that may start now."""
    for one in inits:
        if one.is_sidecar:
            _consider(one, "Always", now, wants)
        elif not one.succeeded:
            _consider(one, "Never" if policy == "Never" else "OnFailure", now, wants)
        if not one.lets_others_start:
            return
    for one in mains:
        _consider(one, policy, now, wants)


def _consider(container: PodContainer, policy: str, now: int, wants: _Requests) -> None:
    """Start a container now, or after its backoff, if its restart policy asks for it."""
    name, end = container.name, container.end
    if not container.made:
        wants.start.append(name)
    if end is None or not _restarts(policy, end):
        return
    pause = _pause_seconds(container.made[-1], end)
    wait = (end.at - now) / meta.SECOND + pause
    if wait <= 0:
        wants.start.append(name)
    else:
        wants.waiting.setdefault(name, ("CrashLoopBackOff", f"back-off {pause}s restarting failed container={name}"))
        wants.wakes.append(wait)


def _pause_seconds(last: ContainerAttempt, end: Termination) -> int:
    """Return the backoff before the next restart: none for the first, then doubling."""
    if last.number == 0 or end.at - last.started >= _RECOVERED_SECONDS * meta.SECOND:
        return 0
    return int(min(_FIRST_PAUSE_SECONDS * 2 ** min(last.number - 1, 10), _LONGEST_PAUSE_SECONDS))


# --- Status -----------------------------------------------------------------------------------------------------------


def _status(
    pod: Tree, phase: str, inits: Sequence[PodContainer], mains: Sequence[PodContainer], wants: _Requests, now: int
) -> Tree:
    before = unstructured.mapping(pod.get("status"))
    initialized = all(one.lets_others_start for one in inits)
    began = min((one.made[0].started for one in (*inits, *mains) if one.made), default=now)
    status: Tree = {
        **before,
        "phase": phase,
        "startTime": before.get("startTime") or meta.format_time(began),
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "containerStatuses": [
            _container_status(one, wants, "ContainerCreating" if initialized else "PodInitializing") for one in mains
        ],
        "conditions": conditions.merge(before, _condition_updates(phase, initialized, mains), now),
    }
    if inits:
        status["initContainerStatuses"] = [_container_status(one, wants, "PodInitializing") for one in inits]
    return status


def _condition_updates(phase: str, initialized: bool, mains: Sequence[PodContainer]) -> tuple[ConditionUpdate, ...]:
    over = phase in ("Succeeded", "Failed")
    ready = phase == "Running" and all(one.is_running for one in mains)
    why = "" if ready else "PodCompleted" if over else "ContainersNotReady"
    return (
        ConditionUpdate("PodScheduled", True),
        ConditionUpdate("PodReadyToStartContainers", not over),
        ConditionUpdate("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        ConditionUpdate("ContainersReady", ready, why),
        ConditionUpdate("Ready", ready, why),
    )


def _container_status(container: PodContainer, wants: _Requests, otherwise: str) -> Tree:
    """Return the status of one container. `otherwise` is the waiting reason if no other is known."""
    made = container.made
    waits = not made or (container.name in wants.waiting and not container.is_running)
    reason, message = wants.waiting.get(container.name, (otherwise, ""))
    waiting = {"reason": reason, **({"message": message} if message else {})}
    before = made[-1:] if waits else made[-2:-1]
    return {
        "name": container.name,
        "image": unstructured.text(container.tree.get("image")),
        "imageID": "",
        "ready": container.is_running or (container.is_init and container.succeeded),
        "started": container.is_running,
        "restartCount": made[-1].number if made else 0,
        "state": {"waiting": waiting} if waits else _state(made[-1]),
        "lastState": _state(before[0]) if before else {},
    }


def _state(attempt: ContainerAttempt) -> Tree:
    started = meta.format_time(attempt.started)
    end = attempt.ended
    if end is None:
        return {"running": {"startedAt": started}}
    over: Tree = {
        "exitCode": end.code,
        "reason": end.reason or ("Completed" if end.code == 0 else "Error"),
        "startedAt": started,
        "finishedAt": meta.format_time(end.at),
    }
    if end.signal:
        over["signal"] = end.signal
    if end.message:
        over["message"] = end.message
    return {"terminated": over}
