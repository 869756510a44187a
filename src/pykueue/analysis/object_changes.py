"""Single changes to objects, as data: their effect, a description, and a command that makes them.

A suggestion is a set of these. A change with an amount can be reduced to the smallest amount that suffices.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kubemachinery import conditions, meta, quantity
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue
from pykueue.api.conditions import ActiveCondition, AdmissionCheckActiveReason
from pykueue.core import amounts
from pykueue.core.amounts import Amount

Objects = dict[tuple[type, str, str], msgspec.Struct]
"""Objects by type, namespace and name."""

T = TypeVar("T", bound=msgspec.Struct)


def indexed(objects: Iterable[msgspec.Struct]) -> Objects:
    found: Objects = {}
    for thing in objects:
        metadata: meta.ObjectMeta = thing.metadata  # type: ignore[attr-defined]
        found[type(thing), metadata.namespace, metadata.name] = thing
    return found


class ObjectChange(msgspec.Struct, frozen=True):
    """A change to the objects."""

    def apply(self, objects: Objects) -> None:
        """Apply the change. Other changes may have been applied to the same object before."""
        raise NotImplementedError

    def sentence(self) -> str:
        """A description that begins with a verb."""
        raise NotImplementedError

    def how(self) -> str:
        """A command that makes the change; empty without one."""
        return ""

    def later_than(self) -> Nanoseconds:
        """The time at which the change takes effect; 0: at once."""
        return 0


# The fields that can be raised, and their API names.
_WRITTEN: Final = {"nominal_quota": "nominalQuota", "borrowing_limit": "borrowingLimit"}


class RaiseQuota(ObjectChange, frozen=True):
    """Raise nominal quota or a borrowing limit of a ClusterQueue or a Cohort."""

    owner: type[kueue.ClusterQueue] | type[kueue.Cohort]
    name: str
    flavor: str
    resource: str
    amount: Amount
    field: str = "nominal_quota"
    before: Amount = 0
    pointer: str = ""  # the path of the field, for a JSON patch

    def smaller(self, amount: Amount) -> RaiseQuota:
        return replace(self, amount=amount)

    def apply(self, objects: Objects) -> None:
        def raised(quota: kueue.ResourceQuota) -> kueue.ResourceQuota:
            if quota.name != self.resource:
                return quota
            return msgspec.structs.replace(quota, **{self.field: self._text()})

        def of_flavor(flavor: kueue.FlavorQuotas) -> kueue.FlavorQuotas:
            if flavor.name != self.flavor:
                return flavor
            return msgspec.structs.replace(flavor, resources=tuple(map(raised, flavor.resources)))

        thing: Any = objects[self.owner, "", self.name]
        groups = tuple(
            msgspec.structs.replace(group, flavors=tuple(map(of_flavor, group.flavors)))
            for group in thing.spec.resource_groups
        )
        spec = msgspec.structs.replace(thing.spec, resource_groups=groups)
        objects[self.owner, "", self.name] = msgspec.structs.replace(thing, spec=spec)

    def _text(self) -> str:
        return amounts.text(self.resource, amounts.add(self.before, self.amount))

    def sentence(self) -> str:
        by = amounts.text(self.resource, self.amount)
        return (
            f"raise {_WRITTEN[self.field]} of {self.resource} in flavor {self.flavor} "
            f"of {self.owner.__name__} {self.name} by {by}, to {self._text()}"
        )

    def how(self) -> str:
        change = [{"op": "replace", "path": self.pointer, "value": self._text()}]
        return _patch(self.owner.__name__.lower(), self.name, "", change)


def raises(
    owner: type[kueue.ClusterQueue] | type[kueue.Cohort],
    thing: kueue.ClusterQueue | kueue.Cohort,
    flavor: str,
    resources: Iterable[str],
    field: str = "nominal_quota",
) -> list[RaiseQuota]:
    """A change with amount 0 for each of these resources that the flavor has in the group."""
    wanted = set(resources)
    found = []
    for g, group in enumerate(thing.spec.resource_groups):
        for f, quotas in enumerate(group.flavors):
            for r, quota in enumerate(quotas.resources):
                written = getattr(quota, field)
                if quotas.name != flavor or quota.name not in wanted or written is None:
                    continue
                before = amounts.of_quota(quota.name, quantity.parse(written))
                if before != amounts.UNLIMITED:
                    pointer = f"/spec/resourceGroups/{g}/flavors/{f}/resources/{r}/{_WRITTEN[field]}"
                    found.append(RaiseQuota(owner, thing.metadata.name, flavor, quota.name, 0, field, before, pointer))
    return found


class DeclareQuota(ObjectChange, frozen=True):
    """Quota for a resource that a ClusterQueue does not cover, in one of its flavors; 0 in the others."""

    queue: str
    flavor: str
    resource: str
    amount: Amount

    def smaller(self, amount: Amount) -> DeclareQuota:
        return replace(self, amount=amount)

    def apply(self, objects: Objects) -> None:
        def more(flavor: kueue.FlavorQuotas) -> kueue.FlavorQuotas:
            text = amounts.text(self.resource, self.amount if flavor.name == self.flavor else 0)
            added = kueue.ResourceQuota(name=self.resource, nominal_quota=text)
            return msgspec.structs.replace(flavor, resources=(*flavor.resources, added))

        def covering(group: kueue.ResourceGroup) -> kueue.ResourceGroup:
            if self.flavor not in (flavor.name for flavor in group.flavors):
                return group
            return msgspec.structs.replace(
                group,
                covered_resources=(*group.covered_resources, self.resource),
                flavors=tuple(map(more, group.flavors)),
            )

        _update(
            objects,
            kueue.ClusterQueue,
            self.queue,
            lambda found: _spec(found, resource_groups=tuple(map(covering, found.spec.resource_groups))),
        )

    def sentence(self) -> str:
        much = amounts.text(self.resource, self.amount)
        return f"declare {self.resource} in ClusterQueue {self.queue}, with a quota of {much} in flavor {self.flavor}"


class RaisePriority(ObjectChange, frozen=True):
    """Raise the priority of a Workload."""

    workload: str
    before: int
    priority: int

    def apply(self, objects: Objects) -> None:
        _update(objects, kueue.Workload, self.workload, lambda found: _spec(found, priority=self.priority))

    def sentence(self) -> str:
        return f"raise the priority of {self.workload} from {self.before} to {self.priority}"

    def how(self) -> str:
        namespace, _, name = self.workload.partition("/")
        return _merge("workload", name, namespace, {"spec": {"priority": self.priority}})


class FinishWorkload(ObjectChange, frozen=True):
    """A Workload that holds quota finishes."""

    workload: str

    def apply(self, objects: Objects) -> None:
        objects.pop((kueue.Workload, *_parts(self.workload)), None)

    def sentence(self) -> str:
        return f"wait for {self.workload} to end"


class WithdrawWorkload(ObjectChange, frozen=True):
    """A pending Workload ahead is deactivated."""

    workload: str

    def apply(self, objects: Objects) -> None:
        _update(objects, kueue.Workload, self.workload, lambda found: _spec(found, active=False))

    def sentence(self) -> str:
        return f"deactivate {self.workload}, which is ahead of it"

    def how(self) -> str:
        namespace, _, name = self.workload.partition("/")
        return _merge("workload", name, namespace, {"spec": {"active": False}})


class ActivateWorkload(ObjectChange, frozen=True):
    workload: str

    def apply(self, objects: Objects) -> None:
        _update(objects, kueue.Workload, self.workload, lambda found: _spec(found, active=True))

    def sentence(self) -> str:
        return f"activate {self.workload}"

    def how(self) -> str:
        namespace, _, name = self.workload.partition("/")
        return _merge("workload", name, namespace, {"spec": {"active": True}})


class ResumeQueue(ObjectChange, frozen=True):
    """Resume a stopped queue."""

    kind: type[kueue.ClusterQueue] | type[kueue.LocalQueue]
    queue: str  # namespace/name, or the name of a ClusterQueue

    def apply(self, objects: Objects) -> None:
        _update(objects, self.kind, self.queue, lambda found: _spec(found, stop_policy=kueue.StopPolicy.NONE.value))

    def sentence(self) -> str:
        return f"resume {self.kind.__name__} {self.queue}"

    def how(self) -> str:
        namespace, name = _parts(self.queue)
        return _merge(self.kind.__name__.lower(), name, namespace, {"spec": {"stopPolicy": "None"}})


class LabelNamespace(ObjectChange, frozen=True):
    """Labels on a namespace, so that a ClusterQueue selects it."""

    namespace: str
    labels: Mapping[str, str | None]  # None takes one away

    def apply(self, objects: Objects) -> None:
        def labelled(found: kube.Namespace) -> kube.Namespace:
            labels: dict[str, str | None] = {**found.metadata.labels, **self.labels}
            kept = {key: value for key, value in labels.items() if value is not None}
            return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=kept))

        _update(objects, kube.Namespace, self.namespace, labelled)

    def sentence(self) -> str:
        return f"label namespace {self.namespace} with {' '.join(self._words())}"

    def how(self) -> str:
        return f"kubectl label --overwrite namespace {self.namespace} {' '.join(self._words())}"

    def _words(self) -> list[str]:
        return [f"{key}-" if value is None else f"{key}={value}" for key, value in self.labels.items()]


class CreateObject(ObjectChange, frozen=True):
    """An object that others refer to, and that is not there."""

    thing: msgspec.Struct
    leading_to: str = ""

    def apply(self, objects: Objects) -> None:
        objects.update(indexed([self.thing]))

    def sentence(self) -> str:
        metadata: meta.ObjectMeta = self.thing.metadata  # type: ignore[attr-defined]
        name = "/".join(filter(None, (metadata.namespace, metadata.name)))
        to = f" of ClusterQueue {self.leading_to}" if self.leading_to else ""
        return f"create {type(self.thing).__name__} {name}{to}"


class ActivateCheck(ObjectChange, frozen=True):
    """An AdmissionCheck becomes active."""

    check: str

    def apply(self, objects: Objects) -> None:
        def active(found: kueue.AdmissionCheck) -> kueue.AdmissionCheck:
            others = conditions.without(found.status.conditions, ActiveCondition.ACTIVE)
            yes = meta.Condition(
                type=ActiveCondition.ACTIVE.value,
                status=ConditionStatus.TRUE.value,
                reason=AdmissionCheckActiveReason.ACTIVE.value,
            )
            return msgspec.structs.replace(
                found, status=msgspec.structs.replace(found.status, conditions=(*others, yes))
            )

        _update(objects, kueue.AdmissionCheck, self.check, active)

    def sentence(self) -> str:
        return f"make the controller of AdmissionCheck {self.check} report it as active"


class RelaxTopology(ObjectChange, frozen=True):
    """A pod set drops its topology request."""

    workload: str
    pod_set: str

    def apply(self, objects: Objects) -> None:
        relaxed = kueue.PodSetTopologyRequest(unconstrained=True)
        _change_pod_set(objects, self.workload, self.pod_set, topology_request=lambda _: relaxed)

    def sentence(self) -> str:
        return f"let pod set {self.pod_set} of {self.workload} run anywhere instead of in one domain of its topology"


class AddToleration(ObjectChange, frozen=True):
    """Pods get a toleration for a flavor's taint."""

    workload: str
    pod_set: str
    taint: kube.Taint

    def apply(self, objects: Objects) -> None:
        def tolerant(template: kube.PodTemplateSpec) -> kube.PodTemplateSpec:
            taint = self.taint
            more = kube.Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
            spec = msgspec.structs.replace(template.spec, tolerations=(*template.spec.tolerations, more))
            return msgspec.structs.replace(template, spec=spec)

        _change_pod_set(objects, self.workload, self.pod_set, template=tolerant)

    def sentence(self) -> str:
        taint = self.taint
        described = f"{taint.key}={taint.value}:{taint.effect}"
        return f"let the pods of pod set {self.pod_set} of {self.workload} tolerate taint {described}"


class RemoveNodeSelector(ObjectChange, frozen=True):
    """Pods drop a node selector."""

    workload: str
    pod_set: str
    key: str

    def apply(self, objects: Objects) -> None:
        def open_minded(template: kube.PodTemplateSpec) -> kube.PodTemplateSpec:
            selector = {key: value for key, value in template.spec.node_selector.items() if key != self.key}
            return msgspec.structs.replace(
                template, spec=msgspec.structs.replace(template.spec, node_selector=selector)
            )

        _change_pod_set(objects, self.workload, self.pod_set, template=open_minded)

    def sentence(self) -> str:
        return f"remove {self.key} from the node selector of pod set {self.pod_set} of {self.workload}"


class RemoveAffinity(ObjectChange, frozen=True):
    """Pods drop their node affinity."""

    workload: str
    pod_set: str

    def apply(self, objects: Objects) -> None:
        def free(template: kube.PodTemplateSpec) -> kube.PodTemplateSpec:
            return msgspec.structs.replace(template, spec=msgspec.structs.replace(template.spec, affinity=None))

        _change_pod_set(objects, self.workload, self.pod_set, template=free)

    def sentence(self) -> str:
        return f"remove the node affinity of pod set {self.pod_set} of {self.workload}"


class AdvanceTime(ObjectChange, frozen=True):
    """Time passes."""

    until: Nanoseconds

    def apply(self, objects: Objects) -> None:
        pass

    def sentence(self) -> str:
        return f"wait until {meta.format_time(self.until)}, when its backoff ends"

    def later_than(self) -> Nanoseconds:
        return self.until


# --- Changing objects -------------------------------------------------------------------------------------------------


def _parts(name: str) -> tuple[str, str]:
    namespace, _, rest = name.rpartition("/")
    return namespace, rest


def _update(objects: Objects, kind: type[T], name: str, change: Callable[[T], T]) -> None:
    key = (kind, *_parts(name))
    found = objects.get(key)
    if isinstance(found, kind):
        objects[key] = change(found)


def _spec(thing: T, **fields: Any) -> T:
    spec = msgspec.structs.replace(thing.spec, **fields)  # type: ignore[attr-defined]
    return msgspec.structs.replace(thing, spec=spec)


def _change_pod_set(objects: Objects, workload: str, name: str, **changes: Callable[[Any], Any]) -> None:
    def changed(pod_set: kueue.PodSet) -> kueue.PodSet:
        if pod_set.name != name:
            return pod_set
        fields = {field: change(getattr(pod_set, field)) for field, change in changes.items()}
        return msgspec.structs.replace(pod_set, **fields)

    _update(
        objects,
        kueue.Workload,
        workload,
        lambda found: _spec(found, pod_sets=tuple(map(changed, found.spec.pod_sets))),
    )


def _patch(resource: str, name: str, namespace: str, change: object) -> str:
    return _kubectl(resource, name, namespace, "json", change)


def _merge(resource: str, name: str, namespace: str, change: object) -> str:
    return _kubectl(resource, name, namespace, "merge", change)


def _kubectl(resource: str, name: str, namespace: str, sort: str, change: object) -> str:
    where = ["-n", namespace] if namespace else []
    patch = json.dumps(change, separators=(",", ":"))
    return shlex.join(["kubectl", "patch", resource, name, *where, f"--type={sort}", "-p", patch])
