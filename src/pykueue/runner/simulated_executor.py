"""Simulated containers: no process runs; each takes the configured time and ends with the configured exit code.

Annotations of the pod configure them:

    pykueue.io/simulated-seconds       how long a container runs; a range such as `20-40` draws a random duration
    pykueue.io/simulated-exit-code     its exit code, 0 by default

Without the first, a container with the command `sleep N` runs N seconds, and any other one second.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from kubemachinery import meta, unstructured
from kubemachinery.clock import Clock
from kubemachinery.unstructured import Tree
from pykueue.runner import container_attempts as attempts
from pykueue.runner.container_attempts import Attempts, ContainerAttempt, Termination
from pykueue.runner.process_spec import StartProblem

SECONDS: Final = "pykueue.io/simulated-seconds"
EXIT_CODE: Final = "pykueue.io/simulated-exit-code"

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)s?")
_RANGE: Final = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")
_OTHERWISE_SECONDS: Final = 1.0
_TERMINATED, _KILLED = 143, 137


class SimulatedExecutor:
    """The executor of `--runner simulated`."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.on_change: Callable[[str], None] = lambda uid: None
        self._clock = clock
        self._rng = rng
        self._attempts: dict[str, dict[str, list[ContainerAttempt]]] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def attempts(self, pod: Tree) -> Attempts:
        uid = unstructured.text(unstructured.get(pod, "metadata", "uid"))
        if uid not in self._attempts:
            self._attempts[uid] = self._resumed(uid, pod)
        return self._attempts[uid]

    def _resumed(self, uid: str, pod: Tree) -> dict[str, list[ContainerAttempt]]:
        """Return the attempts that an earlier runner process started, from the status of the pod, and let them
        continue."""
        found: dict[str, list[ContainerAttempt]] = {}
        for field in ("initContainerStatuses", "containerStatuses"):
            for _, status in unstructured.entries(pod, "status", field):
                name, number = (
                    unstructured.text(status.get("name")),
                    unstructured.integer(status.get("restartCount")) or 0,
                )
                began = unstructured.text(unstructured.get(status, "state", "running", "startedAt"))
                container = attempts.find(pod, name)
                if began and container is not None:
                    started = meta.parse_time(began)
                    end = started + round(self._seconds(pod, container) * meta.SECOND)
                    left = (end - self._clock.now()) / meta.SECOND
                    if left > 0:
                        found[name] = [ContainerAttempt(number, started)]
                        self._end_after(uid, name, left, _code(pod))
                    else:
                        found[name] = [ContainerAttempt(number, started, Termination(_code(pod), end))]
        return found

    async def start(self, pod: Tree, container: Tree, number: int) -> StartProblem | None:
        uid, name = (
            unstructured.text(unstructured.get(pod, "metadata", "uid")),
            unstructured.text(container.get("name")),
        )
        made = self._attempts.setdefault(uid, {}).setdefault(name, [])
        made[:] = [*made[-1:], ContainerAttempt(number, self._clock.now())]
        self._end_after(uid, name, self._seconds(pod, container), _code(pod))
        return None

    def _seconds(self, pod: Tree, container: Tree) -> float:
        written = unstructured.text(unstructured.get(pod, "metadata", "annotations", SECONDS))
        if found := _RANGE.fullmatch(written):
            return self._rng.uniform(float(found[1]), float(found[2]))
        words = [*unstructured.sequence(container.get("command")), *unstructured.sequence(container.get("args"))]
        if not written and len(words) == 2 and words[0] == "sleep":
            written = unstructured.text(words[1])
        plain = _NUMBER.fullmatch(written)
        return float(plain[1]) if plain else _OTHERWISE_SECONDS

    def _end_after(self, uid: str, name: str, seconds: float, code: int) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._end, uid, name, code)
        self._timers[uid, name] = timer

    def _end(self, uid: str, name: str, code: int) -> None:
        if timer := self._timers.pop((uid, name), None):
            timer.cancel()
        made = self._attempts.get(uid, {}).get(name, [])
        if made and made[-1].ended is None:
            made[-1] = replace(made[-1], ended=Termination(code, self._clock.now()))
            self.on_change(uid)

    def stop(self, uid: str, container: str, *, kill: bool) -> None:
        self._end(uid, container, _KILLED if kill else _TERMINATED)

    async def discard(self, uid: str) -> None:
        for name in self._attempts.pop(uid, {}):
            if timer := self._timers.pop((uid, name), None):
                timer.cancel()

    async def sweep(self, known: Iterable[str]) -> None:
        """Do nothing: an earlier runner process leaves nothing but the statuses of pods."""

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def ignored(self, pod: Tree) -> Iterator[str]:
        """Yield nothing: with simulated containers no process runs, so every field is equally ignored."""
        return iter(())


def _code(pod: Tree) -> int:
    written = unstructured.text(unstructured.get(pod, "metadata", "annotations", EXIT_CODE))
    return int(written) if written.isdigit() and int(written) < 256 else 0
