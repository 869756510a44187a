"""What must hold of any stored history. Asked of bytes and words alone: nothing here is imported from the product.

    S1     no write raises usage above what the tree of cohorts allows
    S2     a reservation names the queue that its LocalQueue leads to, flavors of that queue, and its own pod sets
    S3     conditions move only as the life of a Workload allows; Finished is final
    S4     no reservation vanishes or changes without eviction, end, or deletion
    S8     at rest, the queues' own figures are those of the history
    L1     at rest, whoever could be admitted is; everybody else has been told why not
    L2     a new manager admits nothing new
    L3     at rest, nobody is evicted and still holds quota
    L6     at rest, a new manager writes nothing

Quota may be lowered under running work, and a manager cannot know at once. So growth is judged by the trees that stood
within the last `GRACE_SECONDS`: it is wrong only when it is wrong under each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pykueue.simulate.quota_tree import QuotaTree, milli
from pykueue.simulate.revisions import Mark, Stored, Violation

Tree = dict[str, Any]

GRACE_SECONDS: Final = 30.0
_GROUP: Final = ".kueue.x-k8s.io"
_CHATTER: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")


@dataclass(slots=True)
class Verdict:
    violations: list[Violation] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


def judge(history: Sequence[Stored], marks: Iterable[Mark]) -> Verdict:
    """Read a history from its first revision, and stop at the marks to look around."""
    judge = _Judge()
    by_index: dict[int, list[str]] = {}
    for mark in marks:
        by_index.setdefault(mark.index, []).append(mark.name)
    for index in range(len(history) + 1):
        for name in by_index.get(index, ()):
            judge.at_rest(name)
        if index < len(history):
            judge.read(history[index])
    return judge.verdict


class Life:
    """One state of a Workload, in the few words that count."""

    __slots__ = ("conditions", "is_active", "name", "reservation", "tree", "uid")

    def __init__(self, tree: Tree) -> None:
        status = tree.get("status", {})
        self.tree = tree
        self.name: str = tree["metadata"]["name"]
        self.uid: str = tree["metadata"]["uid"]
        self.conditions: dict[str, Tree] = {each["type"]: each for each in status.get("conditions", ())}
        self.reservation: Tree | None = status.get("admission")
        self.is_active = tree["spec"].get("active", True) is not False

    def says(self, condition: str) -> bool:
        return bool(self.conditions.get(condition, {}).get("status") == "True")

    def words(self) -> object:
        """Everything but messages and times."""
        return self.reservation, [(each["type"], each["status"], each["reason"]) for each in self.conditions.values()]

    @property
    def holds(self) -> bool:
        return self.says("QuotaReserved") and not self.says("Finished") and self.is_active

    @property
    def waits(self) -> bool:
        return not self.says("QuotaReserved") and not self.says("Finished") and self.is_active

    def usage(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        if self.holds and self.reservation is not None:
            for pod_set in self.reservation.get("podSetAssignments", ()):
                for resource, flavor in pod_set.get("flavors", {}).items():
                    found[self.reservation["clusterQueue"], flavor] += milli(pod_set["resourceUsage"][resource])
        return found

    def asks(self) -> int:
        total = 0
        for pod_set in self.tree["spec"]["podSets"]:
            containers = pod_set["template"]["spec"]["containers"]
            total += pod_set["count"] * sum(milli(each["resources"]["requests"]["cpu"]) for each in containers)
        return total


class _Judge:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._specs: dict[str, dict[str, Tree]] = {"clusterqueues": {}, "cohorts": {}, "localqueues": {}}
        self._statuses: dict[str, Tree] = {}
        self._lives: dict[str, Life] = {}
        self._usage: Counter[tuple[str, str]] = Counter()
        self._trees = [QuotaTree.read({}, {})]
        self._rests = ""
        self._now: Stored | None = None

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, stored: Stored) -> None:
        self._now = stored
        kind = stored.resource.removesuffix(_GROUP)
        if self._rests == "restarting" and kind not in (*_CHATTER, "workloads"):
            self._wrong("L6", stored.name, f"a new manager writes {stored.op} {stored.resource} though all was at rest")
        if kind == "workloads":
            self._read_workload(stored)
        elif kind in self._specs:
            self._read_structure(kind, stored)

    def _read_structure(self, kind: str, stored: Stored) -> None:
        specs = self._specs[kind]
        before = specs.get(stored.name)
        if stored.op == "DELETED":
            specs.pop(stored.name, None)
        else:
            tree = msgspec.json.decode(stored.body)
            specs[stored.name] = tree.get("spec", {})
            if kind == "clusterqueues":
                self._statuses[stored.name] = tree.get("status", {})
        if kind != "localqueues" and specs.get(stored.name) != before:
            self._trees[-1].until = stored.seconds
            self._trees = [tree for tree in self._trees if tree.until >= stored.seconds - GRACE_SECONDS]
            self._trees.append(QuotaTree.read(self._specs["clusterqueues"], self._specs["cohorts"]))

    def _read_workload(self, stored: Stored) -> None:
        before = self._lives.get(stored.name)
        if stored.op == "DELETED":
            self._lives.pop(stored.name, None)
            if before is not None:
                self._usage = self._usage - before.usage()
            return
        life = self._lives[stored.name] = Life(msgspec.json.decode(stored.body))
        if before is not None and before.uid != life.uid:
            self._wrong("store", life.name, "another object took its place without a deletion")
        was, usage = self._usage, life.usage()
        self._usage = was + usage if before is None else was - before.usage() + usage
        if usage:
            self._check_usage(life, was, usage)
        self._check_life(life)
        if before is not None:
            self._check_move(before, life)
        # Why somebody waits may be said in other words by another manager; that it waits, and for what, may not change.
        if self._rests == "restarting" and (before is None or before.words() != life.words()):
            law = "L2" if life.holds and not (before and before.holds) else "L6"
            self._wrong(law, life.name, "a new manager changes it though all was at rest")

    def _check_usage(self, life: Life, before: Counter[tuple[str, str]], own: Counter[tuple[str, str]]) -> None:
        for queue, flavor in own:
            found = [tree.overrun(queue, flavor, before, self._usage) for tree in self._recent()]
            if found and all(found):
                self._wrong("S1", life.name, found[-1])

    def _recent(self) -> Iterator[QuotaTree]:
        assert self._now is not None
        return (tree for tree in self._trees if tree.until >= self._now.seconds - GRACE_SECONDS)

    # --- One Workload -------------------------------------------------------------------------------------------------

    def _check_life(self, life: Life) -> None:
        if life.says("QuotaReserved") != (life.reservation is not None):
            self._wrong("S3", life.name, "QuotaReserved and status.admission say different things")
        if life.says("Admitted") and not life.says("QuotaReserved"):
            self._wrong("S3", life.name, "admitted without a reservation")

    def _check_move(self, before: Life, after: Life) -> None:
        def rises(condition: str) -> bool:
            return after.says(condition) and not before.says(condition)

        def falls(condition: str) -> bool:
            return before.says(condition) and not after.says(condition)

        for condition in after.conditions:
            if rises(condition):
                reason = after.conditions[condition]["reason"]
                self.verdict.seen[f"{condition} {reason}"] += 1
                self._trace(f"{after.name} {condition} {reason}")
        if before.says("Finished"):
            for condition in ("QuotaReserved", "Admitted", "Evicted", "Requeued"):
                if rises(condition):
                    self._wrong("S3", after.name, f"{condition} after it was finished")
            if falls("Finished"):
                self._wrong("S3", after.name, "is not finished any more")
        if rises("QuotaReserved"):
            self._check_reservation(after)
        if rises("Admitted") and after.says("Evicted"):
            self._wrong("S3", after.name, "admitted while it is evicted")
        if falls("QuotaReserved") and not before.says("Evicted") and before.says("Admitted"):
            self._wrong("S4", after.name, "its reservation is gone, and nobody evicted it")
        if before.says("QuotaReserved") and after.says("QuotaReserved") and before.reservation != after.reservation:
            self._wrong("S4", after.name, "its assignment changed under it")
        if falls("Evicted") and not rises("QuotaReserved"):
            self._wrong("S3", after.name, "its eviction is forgotten before it has quota again")
        if (
            rises("Evicted")
            and after.conditions["Evicted"]["reason"] == "Preempted"
            and not before.says("QuotaReserved")
        ):
            self._wrong("S3", after.name, "preempted without having anything")

    def _check_reservation(self, life: Life) -> None:
        """A reservation appears: is it for this Workload, and may it be?"""
        if life.says("Evicted"):
            self._wrong("S3", life.name, "has quota again and still counts as evicted")
        if not life.is_active:
            self._wrong("S3", life.name, "is given quota though it is not active")
        if life.reservation is None:
            return
        queue = self._specs["localqueues"].get(life.tree["spec"].get("queueName", ""), {}).get("clusterQueue")
        if life.reservation.get("clusterQueue") != queue:
            self._wrong("S2", life.name, f"reserved in {life.reservation.get('clusterQueue')}, its queue is {queue}")
        given = {each["name"]: each for each in life.reservation.get("podSetAssignments", ())}
        asked = {each["name"]: each for each in life.tree["spec"]["podSets"]}
        if given.keys() != asked.keys() or any(given[name]["count"] != asked[name]["count"] for name in given):
            self._wrong("S2", life.name, f"is given {given}, asked for {asked}")
        flavors = {flavor for each in given.values() for flavor in each.get("flavors", {}).values()}
        if not any(flavors <= set(tree.flavors.get(queue or "", ())) for tree in self._recent()):
            self._wrong("S2", life.name, f"is given {sorted(flavors)}, which {queue} does not have")
        if sum(life.usage().values()) != life.asks():
            self._wrong("S2", life.name, f"is charged {sum(life.usage().values())}m for {life.asks()}m")

    # --- At rest ------------------------------------------------------------------------------------------------------

    def at_rest(self, name: str) -> None:
        """Faults are over and nothing is written any more: whoever waits now waits for a reason."""
        # After `healed` comes the restart, which may write nothing until it is at rest again.
        self._rests = "restarting" if name == "healed" else ""
        waiting: dict[str, list[Life]] = {}
        for life in self._lives.values():
            if life.says("QuotaReserved") and life.says("Evicted") and not life.says("Finished"):
                self._wrong("L3", life.name, f"{name}: is evicted and still holds quota")
            if name == "ended" and life.holds and not life.says("Evicted"):
                self._wrong("L1", life.name, "ended: has quota and never came to its end")
            if not life.waits:
                continue
            self.verdict.seen[f"waits when {name}"] += 1
            queue = self._queue_of(life)
            if queue is not None:
                waiting.setdefault(queue, []).append(life)
        for queue, lives in waiting.items():
            self._check_waiting(name, queue, lives, waiting)
        for queue in self._specs["clusterqueues"]:
            self._check_figures(name, queue, len(waiting.get(queue, ())))

    def _queue_of(self, life: Life) -> str | None:
        """The ClusterQueue that a Workload waits for; None while it or its LocalQueue is stopped."""
        local_queue = self._specs["localqueues"].get(life.tree["spec"].get("queueName", ""))
        if local_queue is None or local_queue.get("stopPolicy", "None") != "None":
            return None
        queue: str = local_queue["clusterQueue"]
        spec = self._specs["clusterqueues"].get(queue)
        return queue if spec is not None and spec.get("stopPolicy", "None") == "None" else None

    def _check_waiting(self, name: str, queue: str, lives: list[Life], waiting: dict[str, list[Life]]) -> None:
        tree = self._trees[-1]
        told = {life.asks() for life in lives if life.conditions.get("QuotaReserved", {}).get("reason")}
        silent = sorted(life.name for life in lives if life.asks() not in told)
        # What was said to one counts for all who ask for the same. In a strict queue only the first is looked at.
        if silent and (not told or tree.specs[queue].get("queueingStrategy") != "StrictFIFO"):
            self._wrong("L1", queue, f"{name}: {silent} wait and have not been told why")
        strict = [other for other in waiting if tree.specs[other].get("queueingStrategy") == "StrictFIFO"]
        if any(other != queue and tree.root(other) == tree.root(queue) for other in strict):
            return  # the head of a strict queue may keep room for itself that nobody else gets
        fitting = [life for life in lives if self._fits(life, queue)]
        if queue in strict and len(fitting) < len(lives):
            return  # whoever is first may be one that does not fit
        for life in fitting:
            why = life.conditions.get("QuotaReserved", {}).get("message", "")
            self._wrong("L1", life.name, f"{name}: fits into {queue} and waits: {why}")

    def _fits(self, life: Life, queue: str) -> bool:
        tree = self._trees[-1]
        # A queue that asks for more than one flavor's worth never gets it: a pod set is not split.
        return any(life.asks() <= tree.available(queue, flavor, self._usage) for flavor in tree.flavors.get(queue, ()))

    def _check_figures(self, name: str, queue: str, waiting: int) -> None:
        status = self._statuses.get(queue, {})
        own = [
            life
            for life in self._lives.values()
            if life.holds and (life.reservation or {}).get("clusterQueue") == queue
        ]
        figures = {
            "pendingWorkloads": waiting,
            "reservingWorkloads": len(own),
            "admittedWorkloads": sum(life.says("Admitted") for life in own),
        }
        for field_name, expected in figures.items():
            if status.get(field_name, 0) != expected:
                self._wrong("S8", queue, f"{name}: {field_name} is {status.get(field_name, 0)}, there are {expected}")
        for flavor in status.get("flavorsReservation", ()):
            shown = sum(milli(each.get("total", 0)) for each in flavor["resources"])
            if shown != self._usage[queue, flavor["name"]]:
                self._wrong(
                    "S8",
                    queue,
                    f"{name}: shows {shown}m of {flavor['name']}, not {self._usage[queue, flavor['name']]}m",
                )

    # --- Telling ------------------------------------------------------------------------------------------------------

    def _wrong(self, law: str, about: str, what: str) -> None:
        revision = self._now.revision if self._now is not None else 0
        self.verdict.violations.append(Violation(law, revision, about, what))
        self._trace(f"!! {law} {about}: {what}")

    def _trace(self, line: str) -> None:
        seconds = self._now.seconds if self._now is not None else 0.0
        self.verdict.trace.append(f"{seconds:9.3f} {line}")
