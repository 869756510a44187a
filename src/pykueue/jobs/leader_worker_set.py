"""LeaderWorkerSet: a number of groups, each a leader with its workers; each group has a Workload of its own.

created       the webhook marks both templates; the reconciler creates one Workload for each group
pods appear   the reconciler puts each into its group by the label `group-index`; the pod reconciler starts the group
scaled up     Workloads of the new indexes are created, each admitted by itself
scaled down   Workloads of the highest indexes are deleted once their pods do not run any more
rolled out    groups beyond `spec.replicas` (maxSurge) have Workloads until the rollout ends
deleted       its Workloads are deleted with it and its pods
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Path, Tree
from pykueue.api import kueue, labels, names, workload_owners
from pykueue.api.validation import field_error, topology_annotations
from pykueue.api.validation.topology_annotations import AnnotatedPodSet
from pykueue.jobs import parent_pods, parent_workloads, podsets, workload_sync
from pykueue.jobs.actions import Actions
from pykueue.jobs.interface import PodSetTemplate
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import Branches, ParentFacts, PodParent, stamped
from pykueue.lifecycle import states

FRAMEWORK: Final = "leaderworkerset.x-k8s.io/leaderworkerset"
GROUP: Final = "leaderworkerset.x-k8s.io"
KIND: Final = "LeaderWorkerSet"

LEADER: Final = "leader"
WORKER: Final = "worker"

PREFIX: Final = "leaderworkerset.sigs.k8s.io"
NAME: Final = f"{PREFIX}/name"
GROUP_INDEX: Final = f"{PREFIX}/group-index"
LEADER_NAME: Final = f"{PREFIX}/leader-name"

REPLICAS_MAX: Final = 1_000_000
# How many Workloads one pass creates; the last of them triggers the next pass.
_CREATED_AT_ONCE: Final = 200
# How many Workloads of one object wait for quota at a time. A million of them would be stored, and each change of one
# looks at all. They are equal, so that no further one could be admitted where these cannot.
WAITING_MAX: Final = 1000

_TEMPLATE: Final = ("spec", "leaderWorkerTemplate")
_LEADER_TEMPLATE: Final = (*_TEMPLATE, "leaderTemplate")
_WORKER_TEMPLATE: Final = (*_TEMPLATE, "workerTemplate")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_INDEX: Final = re.compile(r"[0-9]{1,9}")


class LeaderWorkerSet(PodParent):
    """One LeaderWorkerSet."""

    # --- Fields -------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of pods of a group, with its leader."""
        found = unstructured.integer(unstructured.get(self.tree, *_TEMPLATE, "size"))
        return 1 if found is None else found

    @property
    def has_leader_template(self) -> bool:
        return isinstance(unstructured.get(self.tree, *_LEADER_TEMPLATE), dict)

    @property
    def groups(self) -> int:
        """How many groups have a Workload: `spec.replicas`, and during a rollout those that surge beyond it [LW9]."""
        current = unstructured.integer(self.status.get("replicas")) or 0
        updated = unstructured.integer(self.status.get("updatedReplicas")) or 0
        surge = self._max_surge() if updated < self.replicas else 0
        return max(0, self.replicas, min(current, self.replicas + surge))

    @property
    def workload_count(self) -> int:
        return self.groups

    def _max_surge(self) -> int:
        written = unstructured.get(self.spec, "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
        percent = _PERCENT.fullmatch(unstructured.text(written))
        if percent:
            return math.ceil(self.replicas * int(percent[1]) / 100)
        return max(0, unstructured.integer(written) or 0)

    # --- Webhook ------------------------------------------------------------------------------------------------------

    @property
    def is_marked(self) -> bool:
        paths = (_LEADER_TEMPLATE, _WORKER_TEMPLATE) if self.has_leader_template else (_WORKER_TEMPLATE,)
        marks = (self._template(path).annotations.get(labels.POD_SUSPENDING_PARENT) for path in paths)
        return all(mark == FRAMEWORK for mark in marks)

    def defaulted(self, options: IntegrationOptions) -> Tree:
        tree = self.tree
        if self.has_leader_template:
            tree = unstructured.put(tree, _LEADER_TEMPLATE, self._stamped(_LEADER_TEMPLATE, {}))
        offset: dict[str, str] = {}
        grouped = labels.PODSET_GROUP_NAME in self._template(_WORKER_TEMPLATE).annotations
        if options.topology and self.has_leader_template and not grouped:
            # The leader has index 0; the workers of a pod set of their own begin at 1.
            offset[labels.POD_INDEX_OFFSET] = "1"
        return unstructured.put(tree, _WORKER_TEMPLATE, self._stamped(_WORKER_TEMPLATE, offset))

    def _template(self, path: Path) -> ObjectView:
        return ObjectView(dict(unstructured.mapping(unstructured.get(self.tree, *path))))

    def _stamped(self, path: Path, more: dict[str, str]) -> Tree:
        marks = {key: self.labels.get(key, "") for key in (labels.QUEUE_NAME, labels.PRIORITY_CLASS)}
        annotations = {labels.POD_SUSPENDING_PARENT: FRAMEWORK, labels.POD_GROUP_SERVING: "true", **more}
        return stamped(unstructured.get(self.tree, *path), marks, annotations)

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        yield from super().validate_create(options)
        if not 0 <= self.replicas <= REPLICAS_MAX:
            yield field_error.invalid("spec.replicas", self.replicas, f"must be between 0 and {REPLICAS_MAX}")
        if options.topology:
            yield from self._topology_errors(options)

    def _topology_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        for template in self.templates():
            path, metadata = f"{template.place}.metadata", template.at(self.tree).get("metadata")
            yield from topology_annotations.validate(metadata, path, options.validation)
            yield from topology_annotations.validate_size(metadata, path, template.count)
        yield from topology_annotations.validate_groups(
            [
                AnnotatedPodSet(
                    f"{each.place}.metadata.annotations",
                    each.count,
                    unstructured.texts(unstructured.get(each.at(self.tree), "metadata", "annotations")),
                )
                for each in self.templates()
            ]
        )

    def validate_update(self, old: PodParent, options: IntegrationOptions, *, managed: bool) -> Iterator[FieldError]:
        assert isinstance(old, LeaderWorkerSet)
        yield from super().validate_update(old, options, managed=managed)
        if not managed:
            return
        leader = ".".join(_LEADER_TEMPLATE)
        if self.has_leader_template != old.has_leader_template:
            yield field_error.immutable(leader, unstructured.get(self.tree, *_LEADER_TEMPLATE))
        else:
            yield from self._shape_changes(old, _LEADER_TEMPLATE)
        yield from self._shape_changes(old, _WORKER_TEMPLATE)
        if options.immutable_group_size and self.size != old.size:
            yield field_error.immutable(".".join((*_TEMPLATE, "size")), self.size)

    def _shape_changes(self, old: LeaderWorkerSet, path: Path) -> Iterator[FieldError]:
        return parent_pods.shape_changes(self._template(path).spec, old._template(path).spec, f"{'.'.join(path)}.spec")

    # --- Its Workloads ------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        """The pod templates of a group. The leader has no index: there is one."""
        if not self.has_leader_template:
            main = PodSetTemplate(
                labels.DEFAULT_POD_SET, _WORKER_TEMPLATE, self.size, pod_index_label=labels.LWS_WORKER_INDEX
            )
            return (main,)
        return (
            PodSetTemplate(LEADER, _LEADER_TEMPLATE, 1),
            PodSetTemplate(WORKER, _WORKER_TEMPLATE, max(0, self.size - 1), pod_index_label=labels.LWS_WORKER_INDEX),
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return tuple(_without_own_keys(podsets.build(self.tree, each, options)) for each in self.templates())

    def workload_name(self, index: int | str, options: IntegrationOptions) -> str:
        """The name of the Workload of one group."""
        return names.workload_name(KIND, GROUP, f"{self.name}-{index}", self.owner_uid, short=options.short_names)

    @classmethod
    def parent_of(cls, pod: ObjectView) -> str:
        return pod.labels.get(NAME, "")

    def reconcile(self, facts: ParentFacts, options: IntegrationOptions, now: Nanoseconds) -> Branches:
        members = _by_group(facts.pods, options)
        owned = {each.metadata.name: each for each in facts.workloads if parent_workloads.is_owned(self, each)}
        limit = self._creatable(owned.values()) if facts.creates_max is None else facts.creates_max
        wanted = self._wanted(facts.workloads, options, limit)
        lost = {
            name: each for name, each in facts.named.items() if name not in owned and self._is_its_own(each, options)
        }
        known = {**owned, **lost}
        missing = [(name, index) for name, index in wanted.items() if name not in known and not self.is_remote]
        return tuple(
            filter(
                None,
                (
                    *(
                        parent_workloads.adopted(self, each, _indexed(wanted[name]))
                        for name, each in lost.items()
                        if name in wanted
                    ),
                    *(self._created(name, index, facts, options) for name, index in missing[:limit]),
                    *(
                        self._kept(each, members.get(name, []), facts, options, now)
                        if name in wanted
                        else self._surplus(each, members.get(name, []), options, now)
                        for name, each in owned.items()
                    ),
                    *(self._marked(PodView(tree), options) for tree in facts.pods),
                ),
            )
        )

    def workload_names(self, options: IntegrationOptions, owned: Collection[kueue.Workload] = ()) -> tuple[str, ...]:
        return tuple(self._wanted(owned, options))

    def _is_its_own(self, workload: kueue.Workload, options: IntegrationOptions) -> bool:
        """Whether a Workload under the name of a group, of which the set is not an owner, is as the set creates it: its
        owner references were removed [LW10]. Any other keeps the group from having one."""
        pod_sets = self.pod_sets(options)
        counts = [each.count for each in workload.spec.pod_sets] == [each["count"] for each in pod_sets]
        is_free = workload_owners.controller(workload) is None
        return is_free and counts and parent_workloads.is_alike(workload, pod_sets)

    def _creatable(self, owned: Collection[kueue.Workload]) -> int:
        """How many Workloads this pass creates [LW12]. Inactive ones do not count as waiting."""
        waiting = sum(not (states.is_reserved(w) or states.is_finished(w)) and states.is_active(w) for w in owned)
        return max(0, min(_CREATED_AT_ONCE, WAITING_MAX - waiting))

    def _wanted(
        self, existing: Collection[kueue.Workload], options: IntegrationOptions, more: int = _CREATED_AT_ONCE
    ) -> dict[str, int]:
        """The names that the Workloads of groups have, with the indexes: all that exist, and as many that do not as one
        pass creates. A set may request a million groups, and their names take seconds to derive."""
        owned = [each for each in existing if parent_workloads.is_owned(self, each)]
        first = range(min(self.groups, len(owned) + more))
        noted = (each.metadata.annotations.get(labels.COMPONENT_WORKLOAD_INDEX, "") for each in owned)
        found = {int(index) for index in noted if _INDEX.fullmatch(index)}
        indexes = (*first, *sorted(index for index in found if len(first) <= index < self.groups))
        return {self.workload_name(index, options): index for index in indexes}

    def _created(self, name: str, index: int, facts: ParentFacts, options: IntegrationOptions) -> Actions:
        return parent_workloads.created(self, name, self.pod_sets(options), facts, options, _indexed(index))

    def _kept(
        self,
        workload: kueue.Workload,
        members: list[PodView],
        facts: ParentFacts,
        options: IntegrationOptions,
        now: Nanoseconds,
    ) -> Actions:
        alone = parent_workloads.unattended(workload, members, options, now)
        if alone is not None:
            return alone
        if parent_workloads.is_replaceable(workload, members):
            return parent_workloads.removed(workload)
        if states.is_finished(workload):
            return ()
        return workload_sync.synced(self, workload, facts, options)

    def _surplus(
        self, workload: kueue.Workload, members: list[PodView], options: IntegrationOptions, now: Nanoseconds
    ) -> Actions:
        """The Workload of a group that was scaled away is deleted when none of its pods uses the quota [LW5]."""
        return parent_workloads.is_stopping(members, options, now) or parent_workloads.removed(workload)

    # --- Its pods -----------------------------------------------------------------------------------------------------

    def _marked(self, pod: PodView, options: IntegrationOptions) -> Actions:
        if pod.is_finished or pod.is_deleting:
            return ()
        queue = {labels.QUEUE_NAME: self.queue_name} if self.queue_name and pod.has_gate() else {}
        if labels.MANAGED in pod.labels:
            # The webhook refuses another queue for a pod that runs.
            return parent_pods.replaced(pod, pod.with_labels(queue)) if queue else ()
        index = pod.labels.get(GROUP_INDEX)
        if index is None:
            return ()  # the webhook of LeaderWorkerSet has not set it yet
        role = labels.DEFAULT_POD_SET
        if self.has_leader_template:
            role = WORKER if LEADER_NAME in pod.annotations else LEADER
        after = parent_pods.in_group(pod, self.workload_name(index, options), max(1, self.size), role, options)
        return parent_pods.replaced(pod, ObjectView(after).with_labels(queue) if queue else after)


def _indexed(index: int) -> dict[str, str]:
    """The annotation of the Workload of the group with this index."""
    return {labels.COMPONENT_WORKLOAD_INDEX: str(index)}


def _by_group(pods: tuple[Tree, ...], options: IntegrationOptions) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = {}
    for pod in map(PodView, pods):
        found.setdefault(pod.group_name(options), []).append(pod)
    return found


def _without_own_keys(pod_set: Tree) -> Tree:
    """A pod set without the labels and annotations of LeaderWorkerSet, which differ between groups."""
    metadata: dict[str, Any] = {}
    for key, values in unstructured.mapping(pod_set["template"].get("metadata")).items():
        kept = {name: value for name, value in values.items() if not name.startswith(PREFIX) or name == NAME}
        if kept:
            metadata[key] = kept
    return {**pod_set, "template": {**pod_set["template"], "metadata": metadata}}
