"""Bugs to plant: each a small change of the product that somebody could make by mistake, and what it breaks.

They measure the tester: a law that no planted bug breaks guards nothing. A row says how the bug reads, how it is
planted, and under which laws (see `checkers`) it may show. Each is searched for from its own first seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pykueue.controllers import carrying, scheduler
from pykueue.core import quota
from pykueue.kube.client import Client
from pykueue.kube.errors import KubeError
from pykueue.kube.informer import Informer
from pykueue.state.booking import Ledger
from pykueue.state.structure import Structure
from pykueue.state.world import World

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Plant
    laws: tuple[str, ...]
    first_seed: int = 0


def _frees_on_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(carrying, "_may_have_been_carried_out", lambda error: False)


def _forgets_what_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "assume", lambda self, key, base: None)


def _writes_without_a_revision(patch: pytest.MonkeyPatch) -> None:
    conditional = Client.patch

    async def patched(self: Client, kind: Any, name: str, tree: Any, *rest: Any, **options: Any) -> Any:
        tree = {**tree, "metadata": {k: v for k, v in tree.get("metadata", {}).items() if k != "resourceVersion"}}
        return await conditional(self, kind, name, tree, *rest, **options)

    patch.setattr(Client, "patch", patched)


def _forgets_reservations_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    seen = scheduler.Scheduler._workload_seen

    def forgetful(self: Any, change: Any) -> None:
        if not (change.initial and change.new.status.admission is not None):
            seen(self, change)

    patch.setattr(scheduler.Scheduler, "_workload_seen", forgetful)


def _wakes_nobody_when_quota_is_given_back(patch: pytest.MonkeyPatch) -> None:
    end = World._end

    def quiet(self: World, key: str) -> None:
        before = set(self._to_release)
        end(self, key)
        self._to_release = before

    patch.setattr(World, "_end", quiet)


def _wakes_nobody_when_a_queue_changes(patch: pytest.MonkeyPatch) -> None:
    put = World._put_cluster_queue

    def quiet(self: World, cluster_queue: Any, now: int) -> None:
        before = set(self._to_release)
        put(self, cluster_queue, now)
        self._to_release = before

    patch.setattr(World, "put", _with(World.put, "ClusterQueue", quiet))


def _with(put: Any, kind: str, instead: Any) -> Any:
    def routed(self: World, thing: Any, now: int = 0) -> None:
        if type(thing).__name__ == kind:
            instead(self, thing, now)
        else:
            put(self, thing, now)

    return routed


def _leaves_out_those_of_a_restarted_local_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "_enqueue_all", lambda self, local_queue, now: None)


def _counts_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Structure, "release", lambda self, reservation: None)


def _ignores_what_may_be_borrowed(patch: pytest.MonkeyPatch) -> None:
    def generous(node: Any, number: int) -> int:
        path = (node, *node.ancestors)
        free: int = path[-1].subtree[number] - path[-1].usage[number]
        for below in reversed(path[:-1]):
            free += quota.headroom(below, number)
        return free

    patch.setattr(quota, "balance", generous)


def _forgets_cohorts(patch: pytest.MonkeyPatch) -> None:
    """Usage that exceeds what a queue keeps is not shown to its cohort."""

    def lonely(node: Any, number: int, amount: int, log: Any) -> None:
        log.append((node.usage, number, node.usage[number]))
        node.usage[number] += amount

    patch.setattr(quota, "add", lonely)


def _misses_what_happened_while_a_watch_was_broken(patch: pytest.MonkeyPatch) -> None:
    follow = Informer._follow

    async def skipping(self: Any) -> None:
        self._revision += 20
        await follow(self)

    patch.setattr(Informer, "_follow", skipping)


def _keeps_ghosts_after_a_new_list(patch: pytest.MonkeyPatch) -> None:
    replace = Informer._replace

    def keeping(self: Any, items: Any, revision: int) -> None:
        drop, self._drop = self._drop, lambda key: None
        try:
            replace(self, items, revision)
        finally:
            self._drop = drop

    patch.setattr(Informer, "_replace", keeping)


def _says_why_only_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(carrying.Carrier, "_until_said", carrying.Carrier._wait)


def _forgets_evictions_that_were_refused(patch: pytest.MonkeyPatch) -> None:
    """The victim counts as leaving, nobody told it to, and nobody asks again."""

    async def trusting(self: Any, key: Any, changes: Any) -> bool:
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is None or not (made := changes(workload, now)):
                return False
            await self._writer.workload(workload, made, "scheduler", now)
        return True

    patch.setattr(carrying.Carrier, "_take_away", trusting)


def _preempts_who_has_nothing(patch: pytest.MonkeyPatch) -> None:
    async def blind(self: Any, key: Any, changes: Any) -> bool:
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is None or not (made := changes(workload, now)):
                return False
            try:
                await self._writer.workload(workload, made, "scheduler", now)
            except KubeError:
                self.put_current(key)
                self._wake()
                raise
        return True

    patch.setattr(carrying.Carrier, "_take_away", blind)


BUGS = (
    Bug("forgets reservations at a restart", _forgets_reservations_at_a_restart, ("S1", "S8", "L1")),
    Bug("counts what was given back", _counts_twice, ("L1", "L2", "promise")),
    Bug("ignores what may be borrowed", _ignores_what_may_be_borrowed, ("S1",)),
    Bug("forgets to count in cohorts", _forgets_cohorts, ("S1",)),
)

# Sought and not yet measured to be found within the budget: the next dimensions of the worlds are for these.
SOUGHT = (
    Bug("frees quota when an answer is lost", _frees_on_a_lost_answer, ("S1",)),
    Bug("forgets reservations that are on their way", _forgets_what_is_on_its_way, ("S1", "S3", "promise", "L1")),
    Bug("writes without the revision it decided on", _writes_without_a_revision, ("S1", "S3", "S4")),
    Bug("wakes nobody when quota is given back", _wakes_nobody_when_quota_is_given_back, ("L1", "L2")),
    Bug("wakes nobody when a queue changes", _wakes_nobody_when_a_queue_changes, ("L1", "L2")),
    Bug("leaves out those of a restarted LocalQueue", _leaves_out_those_of_a_restarted_local_queue, ("L1", "L2")),
    Bug("misses what happened while a watch was broken", _misses_what_happened_while_a_watch_was_broken, ("L1", "S8")),
    Bug("keeps ghosts after a new list", _keeps_ghosts_after_a_new_list, ("L1", "S8", "L6")),
    Bug("says why somebody waits only once", _says_why_only_once, ("L1", "L6")),
    Bug("forgets evictions that were refused", _forgets_evictions_that_were_refused, ("L1", "L2", "L3", "L6")),
    Bug("preempts who has nothing", _preempts_who_has_nothing, ("S3", "promise")),
)
