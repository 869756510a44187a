"""workload.codeflare.dev AppWrapper: objects of any kind that are created together once quota is reserved [AW1].

The pod templates are inside the wrapped objects. The status of the wrapper names them once its operator has written it;
before that they are those the user declared, or those that the operator will infer from the kinds it knows. Admission
does not change the templates: it is written beside them, to `podSetInfos`, and the operator merges it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import field_error
from pykueue.jobs import podsets, wrapped_pod_sets
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo, Spot
from pykueue.jobs.wrapped_pod_sets import WrappedPodSet


class _Found(msgspec.Struct, frozen=True):
    """A pod set of a component, and where its pod template is; None if the path leads to none."""

    component: int
    number: int
    pod_set: WrappedPodSet
    spot: Spot | None


class AppWrapper(GenericJob):
    """A wrapper of other objects."""

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        found = [(each, each.spot) for each in self._found()]
        usable = [(each.pod_set, spot) for each, spot in found if spot is not None]
        return tuple(
            PodSetTemplate(
                f"{self.name}-{number}",
                spot,
                wrapped.replicas,
                pod_index_label=wrapped.annotations.get(wrapped_pod_sets.POD_INDEX_LABEL, ""),
                sub_group_index_label=wrapped.annotations.get(wrapped_pod_sets.SUB_GROUP_INDEX_LABEL, ""),
                sub_group_count=wrapped_pod_sets.sub_group_count(wrapped),
            )
            for number, (wrapped, spot) in enumerate(usable)
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        return tuple(
            podsets.build(
                {"template": wrapped_pod_sets.copied_template(podsets.at(self.tree, template.spot))},
                replace(template, spot=("template",)),
                options,
            )
            for template in self.templates()
        )

    def _components(self) -> list[Mapping[str, Any]]:
        return [component for _, component in unstructured.entries(self.spec, "components")]

    def _found(self) -> tuple[_Found, ...]:
        """Every pod set of every component, in order [AW1]."""
        components = self._components()
        reported = [entry for _, entry in unstructured.entries(self.status, "componentStatus")]
        is_reported = len(reported) == len(components)
        found: list[_Found] = []
        for number, component in enumerate(components):
            wrapped = unstructured.mapping(component.get("template"))
            # The status counts even where it reports no pod sets: the operator has decided.
            declared = wrapped_pod_sets.read(reported[number] if is_reported else component)
            pod_sets = declared if declared or is_reported else wrapped_pod_sets.infer(wrapped)
            for index, pod_set in enumerate(pod_sets):
                inside = wrapped_pod_sets.template_spot(wrapped, pod_set.path)
                spot = None if inside is None else ("spec", "components", number, "template", *inside)
                found.append(_Found(number, index, pod_set, spot))
        return tuple(found)

    # --- State --------------------------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        return self._is_true("QuotaReserved")

    def outcome(self) -> JobOutcome | None:
        phase = self.status.get("phase")
        if phase == "Succeeded":
            return JobOutcome("AppWrapper finished successfully", success=True)
        # Its operator removes the wrapped objects of a failed wrapper first; until then their pods may run.
        if phase == "Failed" and not self._is_true("ResourcesDeployed"):
            return JobOutcome("AppWrapper failed", success=False)
        return None

    def are_pods_ready(self) -> bool:
        return self._is_true("PodsReady")

    def _is_true(self, type_: str) -> bool:
        return any(
            condition.get("type") == type_ and condition.get("status") == "True"
            for _, condition in unstructured.entries(self.status, "conditions")
        )

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        """The wrapper resumed, with what admission defines in `podSetInfos`. A pod set whose path leads nowhere has no
        pods and gets an empty entry, since the operator assigns entries to pod sets by position [AW6]."""
        found = self._found()
        usable = sum(each.spot is not None for each in found)
        if len(infos) != usable:
            return PodSetConflict(f"there are {len(infos)} assignments for {usable} pod sets")
        given, entries = iter(infos), dict[int, list[Tree]]()
        for each in found:
            entry = {} if each.spot is None else _info_tree(next(given))
            entries.setdefault(each.component, []).append(entry)
        return self._with_infos(self.resumed(), entries)

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        return self._with_infos(self.tree, {})

    def _with_infos(self, tree: Tree, infos: Mapping[int, list[Tree]]) -> Tree:
        components: list[Any] = []
        for number, component in enumerate(unstructured.sequence(self.spec.get("components"))):
            kept = component
            if isinstance(component, dict):
                kept = {key: value for key, value in component.items() if key != "podSetInfos"}
                kept |= {"podSetInfos": infos[number]} if number in infos else {}
            components.append(kept)
        return unstructured.put(tree, ("spec", "components"), components) if components else tree

    # --- The webhook --------------------------------------------------------------------------------------------------

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """A pod set without a pod template would be missing from the Workload [AW3]."""
        if not self._may_be_managed(options):
            return
        components = self._components()
        for each in self._found():
            if each.spot is not None:
                continue
            place = f"spec.components[{each.component}]"
            is_declared = bool(wrapped_pod_sets.read(components[each.component]))
            yield field_error.invalid(
                f"{place}.podSets[{each.number}].path" if is_declared else f"{place}.template",
                each.pod_set.path,
                f"no pod template is at {each.pod_set.path}",
            )

    def _may_be_managed(self, options: IntegrationOptions) -> bool:
        return bool(self.queue_name) or options.manage_without_queue

    def warnings(self, options: IntegrationOptions) -> Iterator[str]:
        yield from super().warnings(options)
        if not self._may_be_managed(options):
            return
        if not self._found():
            yield "spec.components contains no pod sets: the AppWrapper gets no Workload and is never started"
        for number, component in enumerate(self._components()):
            for uncounted in wrapped_pod_sets.uncounted_pods(unstructured.mapping(component.get("template"))):
                yield f"spec.components[{number}].template: {uncounted} not counted against quota"


def _info_tree(info: PodSetInfo) -> Tree:
    found: Tree = {
        "annotations": dict(info.annotations),
        "labels": dict(info.labels),
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(info.tolerations),
        "schedulingGates": list(info.scheduling_gates),
    }
    return {key: value for key, value in found.items() if value}
