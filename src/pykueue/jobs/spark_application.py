"""sparkoperator.k8s.io SparkApplication: a driver and its executors, which Spark itself creates as pods [SP1].

There are no pod templates that hold everything: requests, tolerations and labels are fields of the roles `spec.driver`
and `spec.executor`, from which the operator and Spark make pods. The pod sets are made from the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubemachinery import quantity, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import field_error, topology_annotations
from pykueue.jobs import podsets
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, first_time
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
_CONTAINERS: Final = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
# Volumes of this prefix are made by Spark for its scratch space.
_LOCAL_DIRECTORY: Final = "spark-local-dir-"

_SUCCEEDED: Final = frozenset({"COMPLETED"})
_FAILED: Final = frozenset({"FAILED", "SUBMISSION_FAILED"})
# States in which no pod of the application can run.
_INACTIVE: Final = frozenset({"", "SUSPENDED"}) | _SUCCEEDED | _FAILED
_READY_EXECUTORS: Final = frozenset({"RUNNING", "COMPLETED"})

_DYNAMIC_ALLOCATION: Final = "spark.dynamicAllocation.enabled"
_INSTANCES: Final = "spark.executor.instances"
_FIXED: Final = "is not supported for a managed job: the number of executors is fixed when quota is reserved"

# Amounts of memory as the Java virtual machine reads them: powers of 1024, in any case.
_JAVA_MEMORY: Final = re.compile(r"([0-9]+)([kmgtp]?)b?", re.IGNORECASE)


class SparkApplication(GenericJob):
    """An application of Spark in cluster mode."""

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    @property
    def executors(self) -> int:
        return max(unstructured.integer(self._role(EXECUTOR).get("instances")) or 0, 0)

    def templates(self) -> tuple[PodSetTemplate, ...]:
        return (
            PodSetTemplate(DRIVER, ("spec", DRIVER, "template"), 1),
            PodSetTemplate(EXECUTOR, ("spec", EXECUTOR, "template"), self.executors),
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return tuple(
            podsets.build({"template": self._pod_template(name)}, PodSetTemplate(name, ("template",), count), options)
            for name, count in ((DRIVER, 1), (EXECUTOR, self.executors))
        )

    def _role(self, name: str) -> Mapping[str, Any]:
        return unstructured.mapping(self.spec.get(name))

    def _pod_template(self, name: str) -> Tree:
        """The pod that Spark creates for a role, as far as quota depends on it [SP2]."""
        role = self._role(name)
        container: Tree = {"name": _CONTAINERS[name]}
        spec: Tree = {}
        mounts = [mount for mount in self._mounts(role) if mount["name"] in self._volumes()]
        if mounts:
            names = dict.fromkeys(mount["name"] for mount in mounts)
            spec["volumes"] = [self._volumes()[each] for each in names]
            container["volumeMounts"] = mounts
        resources = {key: value for key, value in _resources(role).items() if value}
        if resources:
            container["resources"] = resources
        if found := _distinct(role.get("initContainers")):
            spec["initContainers"] = found
        spec["containers"] = [container, *_distinct(role.get("sidecars"))]
        for key in ("priorityClassName", "affinity", "tolerations"):
            if role.get(key):
                spec[key] = role[key]
        if selector := self._node_selector(role):
            spec["nodeSelector"] = selector
        return {"metadata": _metadata(role), "spec": spec}

    def _volumes(self) -> Mapping[str, Mapping[str, Any]]:
        return {unstructured.text(each.get("name")): each for _, each in unstructured.entries(self.spec, "volumes")}

    def _mounts(self, role: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for _, mount in unstructured.entries(role, "volumeMounts"):
            name = unstructured.text(mount.get("name"))
            if name and not name.startswith(_LOCAL_DIRECTORY):
                yield mount

    def _node_selector(self, role: Mapping[str, Any]) -> dict[str, str]:
        """The node selector of the whole application, else that of the role; the operator allows only one of them."""
        return unstructured.texts(self.spec.get("nodeSelector")) or unstructured.texts(role.get("nodeSelector"))

    # --- State --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return unstructured.text(unstructured.get(self.status, "applicationState", "state"))

    def outcome(self) -> JobOutcome | None:
        if self.state not in _SUCCEEDED | _FAILED:
            return None
        success = self.state in _SUCCEEDED
        message = unstructured.text(unstructured.get(self.status, "applicationState", "errorMessage"))
        return JobOutcome(
            message or f"SparkApplication {'finished successfully' if success else 'failed'}",
            success,
            first_time(self.status.get("terminationTime")),
        )

    def is_active(self) -> bool:
        """Also while it is being submitted, suspended or run again: its pods exist, or are about to [SP9]."""
        return self.state not in _INACTIVE

    def are_pods_ready(self) -> bool:
        """The state is RUNNING as soon as the driver runs; the executors are reported one by one."""
        states = unstructured.texts(self.status.get("executorState")).values()
        return self.state == "RUNNING" and sum(state in _READY_EXECUTORS for state in states) >= self.executors

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        if len(infos) != len(_CONTAINERS):
            return PodSetConflict(f"there are {len(infos)} assignments for {len(_CONTAINERS)} pod sets")
        tree = self.resumed()
        for name, info in zip(_CONTAINERS, infos, strict=True):
            found = podsets.injected(self._view(name), info)
            if isinstance(found, PodSetConflict):
                return PodSetConflict(f"pod set {name}: {found.message}")
            tree = unstructured.put(tree, ("spec", name), _written(name, self._role(name), found))
        # Its content is now in both roles, which may be on different nodes.
        return unstructured.without(tree, ("spec", "nodeSelector"))

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        if len(infos) != len(_CONTAINERS):
            return self.tree
        tree = self.tree
        for name, info in zip(_CONTAINERS, infos, strict=True):
            role = self._role(name)
            found = _without_inherited(role, podsets.restored(self._view(name), info))
            tree = unstructured.put(tree, ("spec", name), _written(name, role, found))
        if infos[1].count != self.executors:
            tree = unstructured.put(tree, ("spec", EXECUTOR, "instances"), infos[1].count)
        return unstructured.without(tree, ("spec", "nodeSelector"))

    def _view(self, name: str) -> Tree:
        """The fields of a role that admission changes, in the shape of a pod template."""
        role = self._role(name)
        metadata = {key: role[key] for key in ("labels", "annotations") if role.get(key)}
        spec: Tree = {
            "nodeSelector": self._node_selector(role),
            "tolerations": role.get("tolerations"),
            "schedulingGates": unstructured.get(role, "template", "spec", "schedulingGates"),
        }
        return {"metadata": metadata, "spec": {key: value for key, value in spec.items() if value}}

    # --- The webhook --------------------------------------------------------------------------------------------------

    def is_validated(self, old: GenericJob | None, options: IntegrationOptions) -> bool:
        """An update is validated only if the application is managed, or was before [SP13]."""
        if old is None or self._may_be_managed(options):
            return True
        return options.validate_ray_and_spark_updates and bool(old.queue_name)

    def _may_be_managed(self, options: IntegrationOptions) -> bool:
        return bool(self.queue_name) or options.manage_without_queue

    def pod_sets_problem(self, options: IntegrationOptions) -> str:
        """An amount that cannot be read, in an application that was stored while no webhook was called."""
        errors = (error for name in _CONTAINERS for error in _amount_errors(name, self._role(name)))
        found = next(errors, None) if self._may_be_managed(options) else None
        return f"{self.row.kind.kind} {self.name}: {found.path}: {found.message}" if found is not None else ""

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        return self._conf_errors(options)

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        """Properties that the application had before are not refused: else it could not be suspended."""
        assert isinstance(old, SparkApplication)
        known = {error.path for error in old._conf_errors(options)}
        return (error for error in self._conf_errors(options) if error.path not in known)

    def _conf_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """Properties of Spark by which executors would run without quota [SP12]: the operator passes them on."""
        if not self._may_be_managed(options):
            return
        conf = unstructured.texts(self.spec.get("sparkConf"))
        if (dynamic := conf.get(_DYNAMIC_ALLOCATION, "")).lower() == "true":
            yield field_error.invalid(f"spec.sparkConf[{_DYNAMIC_ALLOCATION}]", dynamic, _FIXED)
        if _INSTANCES in conf and self._role(EXECUTOR).get("instances") is None:
            why = (
                f"is required for a managed job with {_INSTANCES} in spec.sparkConf: quota is reserved for this number"
            )
            yield field_error.required("spec.executor.instances", why)

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if self._may_be_managed(options):
            if self.spec.get("mode") != "cluster":
                yield field_error.invalid("spec.mode", self.spec.get("mode"), "must be cluster for a managed job")
            if unstructured.get(self.spec, "dynamicAllocation", "enabled") is True:
                yield field_error.invalid("spec.dynamicAllocation.enabled", True, _FIXED)
            for name in _CONTAINERS:
                yield from _amount_errors(name, self._role(name))
        if options.topology:
            for name, count in ((DRIVER, 1), (EXECUTOR, self.executors)):
                metadata = _metadata(self._role(name))
                yield from topology_annotations.validate(metadata, f"spec.{name}", options.validation)
                yield from topology_annotations.validate_size(metadata, f"spec.{name}", count)


# --- Fields of a role -------------------------------------------------------------------------------------------------


def _metadata(role: Mapping[str, Any]) -> Tree:
    """Labels and annotations of the pods of a role: those of its template, overridden by its own."""
    found = {
        key: unstructured.texts(unstructured.get(role, "template", "metadata", key)) | unstructured.texts(role.get(key))
        for key in ("labels", "annotations")
    }
    return {key: value for key, value in found.items() if value}


def _distinct(containers: object) -> list[Any]:
    """Containers without those that repeat the name and the image of one before."""
    found: dict[tuple[Any, Any], Any] = {}
    for container in unstructured.sequence(containers):
        key = (unstructured.get(container, "name"), unstructured.get(container, "image"))
        found.setdefault((repr(key[0]), repr(key[1])), container)
    return list(found.values())


def memory(written: Any) -> Any:
    """An amount of memory of Spark as a quantity: `512m` is 512Mi. Anything else is returned as it is [SP4]."""
    found = _JAVA_MEMORY.fullmatch(written) if isinstance(written, str) else None
    if found is None:
        return written
    number, unit = found.groups()
    return f"{number}{unit.upper()}i" if unit else number


def _as_written(amount: Any) -> Any:
    return amount


# Field of a role -> (requests or limits, resource, how its amount is read).
_AMOUNTS: Final[Mapping[str, tuple[str, str, Callable[[Any], Any]]]] = {
    "coreRequest": ("requests", "cpu", _as_written),
    "coreLimit": ("limits", "cpu", _as_written),
    "memory": ("requests", "memory", memory),
    "memoryLimit": ("limits", "memory", memory),
}


def _resources(role: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for key, (where, resource, read) in _AMOUNTS.items():
        if role.get(key) is not None:
            found[where][resource] = read(role[key])
    gpu = unstructured.mapping(role.get("gpu"))
    name, count = unstructured.text(gpu.get("name")), unstructured.integer(gpu.get("quantity")) or 0
    if name and count > 0:
        found["limits"][name] = str(count)
    return found


def _amount_errors(name: str, role: Mapping[str, Any]) -> Iterator[FieldError]:
    """Amounts that cannot be read. The Workload would be refused because of them."""
    for key, (_, _, read) in _AMOUNTS.items():
        if role.get(key) is None:
            continue
        if not isinstance(role[key], str | int | float):
            yield field_error.invalid(f"spec.{name}.{key}", role[key], "is not a quantity")
            continue
        try:
            quantity.parse(read(role[key]))
        except quantity.QuantityError as error:
            yield field_error.invalid(f"spec.{name}.{key}", role[key], str(error))


def _without_inherited(role: Mapping[str, Any], view: Tree) -> Tree:
    """A restored role without the labels and annotations that its template has: the pod set contained both."""
    metadata: Tree = {}
    for key, values in unstructured.mapping(view.get("metadata")).items():
        inherited = unstructured.texts(unstructured.get(role, "template", "metadata", key))
        kept = {name: value for name, value in values.items() if inherited.get(name) != value}
        metadata |= {key: kept} if kept else {}
    return {**view, "metadata": metadata}


def _written(name: str, role: Mapping[str, Any], view: Tree) -> Tree:
    """A role with the fields of `view`. Scheduling gates are only in its template, which is created for them."""
    metadata, spec = unstructured.mapping(view.get("metadata")), unstructured.mapping(view.get("spec"))
    fields = {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
        "template": _gated(name, role.get("template"), spec.get("schedulingGates")),
    }
    kept = {key: value for key, value in role.items() if key not in fields}
    return kept | {key: value for key, value in fields.items() if value}


def _gated(name: str, template: Any, gates: Any) -> Any:
    """The template of a role with these gates. One that exists only for gates is removed with them."""
    made: Tree = {"spec": {"containers": [{"name": _CONTAINERS[name]}]}}
    if gates:
        return unstructured.put(dict(unstructured.mapping(template)) or made, ("spec", "schedulingGates"), gates)
    if not isinstance(template, dict):
        return template
    bare = unstructured.without(template, ("spec", "schedulingGates"))
    return None if bare == made else bare
