"""StatefulSet: all its pods are one group, with one Workload that the set itself creates.

created         the webhook marks the template, so that pods are gated; the reconciler creates the Workload
pods appear     the reconciler puts each into the group of the Workload; the group starts them once it is admitted
scaled to 0     the Workload is put on hold when no pod runs any more; scaled up again, it is queued with the new count
rolled out      pods of the new revision join the same Workload: the shape of the pods cannot change
deleted         the Workload is deleted with the set and its last pod
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from kubemachinery import codec, selectors, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import LabelSelector, Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels, names
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.validation import field_error
from pykueue.jobs import parent_pods, parent_workloads, podsets, workload_sync, workloads
from pykueue.jobs.actions import (
    Actions,
    ChangeWorkload,
    DeleteObject,
    EmitJobEvent,
    ResizeWorkload,
)
from pykueue.jobs.interface import PodSetTemplate
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import KIND as POD
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import Branches, ParentFacts, PodParent, stamped
from pykueue.lifecycle import readiness, reservation, states

FRAMEWORK: Final = "statefulset"
GROUP: Final = "apps"
KIND: Final = "StatefulSet"

REVISION: Final = "controller-revision-hash"

# The name of a pod: that of its set, and its ordinal.
_ORDINAL: Final = re.compile(r"(.+)-[0-9]+")
_GROUPED: Final = (labels.POD_GROUP_NAME, labels.PREBUILT_WORKLOAD_NAME)

_TEMPLATE: Final = ("spec", "template")
_REPLICAS: Final = "spec.replicas"
_ON_HOLD: Final = "StatefulSet scaled to zero; workload on hold"


class StatefulSet(PodParent):
    """One StatefulSet."""

    @property
    def template(self) -> ObjectView:
        """The pod template, read as an object: it has metadata and a spec."""
        return ObjectView(dict(unstructured.mapping(self.spec.get("template"))))

    @property
    def is_of_another(self) -> bool:
        """Whether its template carries the mark of another framework, such as the sets of a LeaderWorkerSet."""
        return self.template.annotations.get(labels.POD_SUSPENDING_PARENT, FRAMEWORK) != FRAMEWORK

    @property
    def workload_count(self) -> int:
        return 1

    # --- Webhook ------------------------------------------------------------------------------------------------------

    @property
    def is_marked(self) -> bool:
        return self.template.annotations.get(labels.POD_SUSPENDING_PARENT) == FRAMEWORK

    def defaulted(self, options: IntegrationOptions) -> Tree:
        """No label is added: one that changes would roll out the template [SS1]."""
        template = stamped(self.template.tree, {}, {labels.POD_SUSPENDING_PARENT: FRAMEWORK})
        return unstructured.put(self.tree, _TEMPLATE, template)

    def validate_update(self, old: PodParent, options: IntegrationOptions, *, managed: bool) -> Iterator[FieldError]:
        assert isinstance(old, StatefulSet)
        yield from super().validate_update(old, options, managed=managed)
        if not managed:
            return
        yield from parent_pods.shape_changes(self.template.spec, old.template.spec, "spec.template.spec")
        if self.replicas and old.replicas and self.replicas != old.replicas:
            yield field_error.immutable(_REPLICAS, self.replicas)
        remaining = unstructured.integer(self.status.get("replicas")) or 0
        if self.replicas > 0 and old.replicas == 0 and remaining > 0:
            yield field_error.forbidden(_REPLICAS, "scaling down is still in progress")

    # --- Its Workload -------------------------------------------------------------------------------------------------

    def workload_names(self, options: IntegrationOptions, owned: Collection[kueue.Workload] = ()) -> tuple[str, ...]:
        """The name with the UID, then the one that Kueue derived without it before 0.18 [SS6]."""
        return tuple(
            names.workload_name(KIND, GROUP, self.name, uid, short=options.short_names) for uid in (self.owner_uid, "")
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        """One pod set with the spec of the template, without its metadata."""
        template = PodSetTemplate(
            labels.DEFAULT_POD_SET, _TEMPLATE, self.replicas, pod_index_label=labels.STATEFUL_SET_POD_INDEX
        )
        built = podsets.build(self.tree, template, options)
        return ({**built, "template": {"metadata": {}, "spec": built["template"]["spec"]}},)

    @classmethod
    def parent_of(cls, pod: ObjectView) -> str:
        owner = pod.controller
        if owner is None:
            # A pod of a set that was deleted without its pods: a later set of the name adopts it [SS13].
            name = _ORDINAL.fullmatch(pod.name)
            return name[1] if name and any(key in pod.annotations or key in pod.labels for key in _GROUPED) else ""
        if owner.kind != KIND or owner.api_version.rpartition("/")[0] != GROUP:
            return ""
        return owner.name

    def reconcile(self, facts: ParentFacts, options: IntegrationOptions, now: Nanoseconds) -> Branches:
        pods = tuple(map(PodView, facts.pods))
        ours = [pod for pod in pods if not (pod.is_finished or pod.is_deleting) and self._is_its_own(pod)]
        used = {pod.group_name(options) for pod in ours}
        workload = self._chosen(facts, used, options)
        name = self.workload_names(options)[0] if workload is None else workload.metadata.name
        by_group: dict[str, list[PodView]] = {}
        for pod in pods:
            by_group.setdefault(pod.group_name(options), []).append(pod)
        others = [pod for pod in ours if self._controls(pod) and pod.group_name(options) not in ("", name)]
        surplus = [
            parent_workloads.is_stopping(by_group.get(each.metadata.name, []), options, now)
            or parent_workloads.removed(each)
            for each in facts.workloads
            if parent_workloads.is_owned(self, each) and each.metadata.name not in (name, *used)
        ]
        return (
            self._workload(name, workload, by_group.get(name, []), facts, options, now),
            *surplus,
            *filter(None, (self._marked(pod, name, workload, options) for pod in pods)),
            *filter(None, (self._of_others(others, name, options),)),
        )

    def _chosen(self, facts: ParentFacts, used: Collection[str], options: IntegrationOptions) -> kueue.Workload | None:
        """The Workload of the set; None if it has to be created. One that its pods belong to is preferred: pods that
        the set adopts from an earlier one stay in their group, and would otherwise count twice [SS13]."""
        own = (facts.named[name] for name in self.workload_names(options) if name in facts.named)
        owned = (each for each in facts.workloads if parent_workloads.is_owned(self, each))
        candidates = (*own, *owned)
        earlier = (each for each in facts.joined if self._continues(each, options))
        in_use = (each for each in (*candidates, *earlier) if each.metadata.name in used)
        return next(in_use, next(iter(candidates), None))

    def _continues(self, workload: kueue.Workload, options: IntegrationOptions) -> bool:
        """Whether the Workload of an earlier set of this name serves for this one: it was created for such a set, has
        the same queue and pod set, and quota for enough pods if it has any."""
        annotations = workload.metadata.annotations
        is_ours = parent_workloads.owner_annotations(self).items() <= dict(annotations).items()
        if not is_ours or states.is_finished(workload) or workloads.is_deleting(workload):
            return False
        if workload.spec.queue_name != (self.queue_name or None):
            return False
        if not parent_workloads.is_alike(workload, self.pod_sets(options)):
            return False
        return not states.is_reserved(workload) or workload.spec.pod_sets[0].count >= self.replicas

    def _is_its_own(self, pod: PodView) -> bool:
        """Whether the set controls a pod, or its controller is going to adopt it: one without a controller that has a
        name of the set's pods and is selected."""
        if pod.controller is not None:
            return self._controls(pod)
        selector = codec.from_tree(dict(unstructured.mapping(self.spec.get("selector"))), LabelSelector)
        return selectors.compile(selector).matches(pod.labels)

    def _workload(
        self,
        name: str,
        workload: kueue.Workload | None,
        members: list[PodView],
        facts: ParentFacts,
        options: IntegrationOptions,
        now: Nanoseconds,
    ) -> Actions:
        if workload is None:
            if self.replicas == 0 or self.is_remote:
                return ()
            return parent_workloads.created(self, name, self.pod_sets(options), facts, options, {})
        alone = parent_workloads.unattended(workload, members, options, now)
        if alone is not None:
            return alone
        if parent_workloads.is_replaceable(workload, members):
            # No Workload is created again under the name that was derived for an earlier set.
            own = name in self.workload_names(options)
            ended = [pod.tree for pod in members if not own and pod.has_gate() and not pod.is_deleting]
            return (*(DeleteObject(POD, tree) for tree in ended), *parent_workloads.removed(workload))
        if states.is_finished(workload):
            return ()
        if self.replicas == 0:
            return self._held(workload, members, options, now)
        return (
            *parent_workloads.adopted(self, workload),
            *workload_sync.synced(self, workload, facts, options),
            *self._resized(workload),
            *self._reshaped(workload),
            *self._resumed(workload, options, now),
        )

    def _held(
        self, workload: kueue.Workload, members: list[PodView], options: IntegrationOptions, now: Nanoseconds
    ) -> Actions:
        """A set without pods holds no quota and is not queued, in whatever state its Workload is [SS11]. Pods that
        still run use the quota until they have ended."""
        if states.is_on_hold(workload):
            return ()
        changes = reservation.clear(workload, QuotaReservedReason.ON_HOLD, _ON_HOLD, options.lifecycle, now)
        changes = (*changes, *readiness.not_started(workload))
        return parent_workloads.is_stopping(members, options, now) or (ChangeWorkload(workload, changes),)

    def _resized(self, workload: kueue.Workload) -> Actions:
        """The count follows the set while no quota is reserved [SS9]. With quota it stays: pods beyond it wait."""
        if len(workload.spec.pod_sets) != 1 or workload.spec.pod_sets[0].count == self.replicas:
            return ()
        if not states.is_reserved(workload):
            return (ResizeWorkload(workload, (self.replicas,)),)
        if workload.spec.pod_sets[0].count > self.replicas:
            return ()
        note = (
            f"spec.replicas is {self.replicas} and Workload {states.key(workload)} has quota for"
            f" {workload.spec.pod_sets[0].count} pods; the pods beyond them stay gated until the set is scaled to 0"
        )
        return (EmitJobEvent(self.tree, "ScaledWithoutQuota", note, warning=True),)

    def _reshaped(self, workload: kueue.Workload) -> Actions:
        """A Warning Event while the template requests other amounts than the Workload [SS12]. The webhook refuses such
        a template; this one was stored while the webhook was not called. Pod sets are not recomputed, as in Kueue."""
        ours = parent_pods.requests(self.template.spec)
        theirs = [parent_pods.requests(codec.to_tree(each.template.spec)) for each in workload.spec.pod_sets]
        if theirs == [ours]:
            return ()
        note = (
            f"The pod template requests other resources than Workload {states.key(workload)} has quota for; restore the"
            " template, or scale the set to 0 and delete the Workload"
        )
        return (EmitJobEvent(self.tree, "PodTemplateChanged", note, warning=True),)

    def _resumed(self, workload: kueue.Workload, options: IntegrationOptions, now: Nanoseconds) -> Actions:
        if not states.is_on_hold(workload):
            return ()
        return (ChangeWorkload(workload, reservation.off_hold(workload, options.lifecycle, now)),)

    # --- Its pods -----------------------------------------------------------------------------------------------------

    def _marked(self, pod: PodView, name: str, workload: kueue.Workload | None, options: IntegrationOptions) -> Actions:
        if pod.is_finished or pod.is_deleting:
            return ()
        group = pod.group_name(options)
        if group == name:
            return parent_pods.replaced(pod, self._followed(pod, workload))
        if group or not self._controls(pod):
            # A pod of an earlier set of this name, which ends, or one that this set has adopted from it: it runs, if at
            # all, on the quota of that set's Workload, and the group of a pod never changes [PD9].
            return ()
        after = ObjectView(parent_pods.in_group(pod, name, max(1, self.replicas), labels.DEFAULT_POD_SET, options))
        after = ObjectView(
            after.with_annotations(
                {
                    labels.POD_GROUP_FAST_ADMISSION: "true",
                    labels.POD_GROUP_SERVING: "true",
                    labels.POD_GROUP_POD_INDEX_LABEL: labels.STATEFUL_SET_POD_INDEX,
                }
            )
        )
        copied = {key: self.labels.get(key, "") for key in (labels.QUEUE_NAME, labels.PRIORITY_CLASS)}
        return parent_pods.replaced(pod, after.with_labels({key: value for key, value in copied.items() if value}))

    def _controls(self, pod: PodView) -> bool:
        return pod.controller is not None and pod.controller.uid == self.uid

    def _of_others(self, pods: list[PodView], name: str, options: IntegrationOptions) -> Actions:
        """A Warning Event while pods of the set use the quota of another Workload [SS13]."""
        if not pods:
            return ()
        groups = ", ".join(sorted({f"{self.namespace}/{pod.group_name(options)}" for pod in pods}))
        note = (
            f"{len(pods)} pods that an earlier set of this name created belong to Workload {groups}, which keeps its"
            f" quota until they have ended; a pod that replaces one of them belongs to Workload {self.namespace}/{name}"
        )
        return (EmitJobEvent(self.tree, "PodsOfEarlierSet", note, warning=True),)

    def _followed(self, pod: PodView, workload: kueue.Workload | None) -> Tree:
        """A pod of the group with the queue and the size of the set now. Only a gated pod may change [SS4]."""
        if not pod.has_gate():
            return pod.tree
        if labels.MANAGED not in pod.labels:
            return self._released_legacy(pod, workload)
        after = pod.with_labels({labels.QUEUE_NAME: self.queue_name}) if self.queue_name else pod.tree
        if self.replicas > 0:
            after = ObjectView(after).with_annotations({labels.POD_GROUP_TOTAL_COUNT: str(self.replicas)})
        return after

    def _released_legacy(self, pod: PodView, workload: kueue.Workload | None) -> Tree:
        """A pod that is in the group and not managed, as Kueue marked pods before 0.11: no group starts it. One of
        the old revision is released during a rollout, which waits for it, once the Workload is admitted [SS7]."""
        current = unstructured.text(self.status.get("currentRevision"))
        rolls = current != unstructured.text(self.status.get("updateRevision"))
        admitted = workload is not None and states.is_admitted(workload)
        is_old = rolls and admitted and pod.labels.get(REVISION) == current
        return parent_pods.without_gates(pod) if is_old else pod.tree
