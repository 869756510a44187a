"""The table of kinds, and kinds that other packages bring."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from jobs.job_harness import KINDS, POD
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree, get
from pykueue.api import config
from pykueue.jobs import kinds
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate
from pykueue.jobs.kinds import JobIntegration, UnknownFramework


class Flow(GenericJob):
    """A kind of another package: a suspend field, and a template per step."""

    def templates(self) -> tuple[PodSetTemplate, ...]:
        steps = get(self.tree, "spec", "steps") or []
        return tuple(
            PodSetTemplate(step["name"], ("spec", "steps", number, "template"), step.get("pods", 1))
            for number, step in enumerate(steps)
        )

    def outcome(self) -> JobOutcome | None:
        return JobOutcome("done", success=True) if get(self.tree, "status", "done") else None

    def is_active(self) -> bool:
        return bool(get(self.tree, "status", "running"))

    def are_pods_ready(self) -> bool:
        return bool(get(self.tree, "status", "ready"))


ROW = JobIntegration("example.com/flow", Kind("example.com", "Flow", "flows", (Version("v1", storage=True),)), Flow)
NOT_A_ROW = "flow"


def test_a_kind_of_another_package_is_a_row_like_any_other() -> None:
    table = kinds.load([_loaded(EntryPoint("flow", "flows:ROW", kinds.ENTRY_POINTS), ROW)])
    assert table.enabled(["example.com/flow"]) == (ROW,)
    tree: Tree = {"apiVersion": "example.com/v1", "kind": "Flow", "metadata": {"name": "f"}, "spec": {"steps": []}}
    assert table.of(ObjectView(tree)) is ROW


def test_an_entry_point_that_names_something_else_is_refused_by_name() -> None:
    with pytest.raises(UnknownFramework, match="'flow' is none"):
        kinds.load([_loaded(EntryPoint("flow", "x:y", kinds.ENTRY_POINTS), NOT_A_ROW)])


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(UnknownFramework, match="same framework name"):
        kinds.JobKinds((ROW, ROW))


def test_configuration_knows_the_frameworks_of_the_table() -> None:
    rows = {row.framework: f"{row.kind.kind}.{row.kind.storage.name}.{row.kind.group}" for row in kinds.BUILT_IN}
    assert rows == config.FRAMEWORKS


NAMED = replace(ROW, implementation=None)


def test_kind_without_integration_is_known_as_owner_and_cannot_be_enabled() -> None:
    table = kinds.JobKinds((*KINDS, NAMED))
    assert table.of(ObjectView({"apiVersion": "example.com/v1", "kind": "Flow"})) is NAMED
    with pytest.raises(UnknownFramework, match=r"example\.com/flow is not implemented"):
        table.enabled(["batch/job", "example.com/flow"])


def test_package_may_provide_a_public_framework_that_is_not_implemented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "BUILT_IN", (NAMED,))
    table = kinds.load([_loaded(EntryPoint("flow", "flows:ROW", kinds.ENTRY_POINTS), ROW)])
    assert table.rows == (ROW,)


def test_two_providers_of_a_framework_are_named() -> None:
    points = [_loaded(EntryPoint(name, f"{name}:ROW", kinds.ENTRY_POINTS), ROW) for name in ("one", "two")]
    both = r"the entry point one \(one:ROW\) and the entry point two \(two:ROW\)"
    with pytest.raises(UnknownFramework, match=f"example.com/flow has two providers: {both}"):
        kinds.load(points)


def test_package_cannot_replace_an_implemented_framework() -> None:
    row = replace(ROW, framework="batch/job")
    with pytest.raises(UnknownFramework, match="batch/job has two providers: pykueue and the entry point flow"):
        kinds.load([_loaded(EntryPoint("flow", "flows:ROW", kinds.ENTRY_POINTS), row)])


def test_two_frameworks_of_one_kind_are_refused() -> None:
    with pytest.raises(UnknownFramework, match="same kind"):
        kinds.JobKinds((ROW, replace(ROW, framework="example.com/other")))


def test_implied_framework_is_enabled_once() -> None:
    row = replace(ROW, implies=("pod",))
    table = kinds.JobKinds((*KINDS, row))
    assert [each.framework for each in table.enabled([row.framework])] == [row.framework, "pod"]
    assert [each.framework for each in table.enabled(["pod", row.framework])] == ["pod", row.framework]
    assert table.is_enabled(POD, [row.framework])
    assert not table.is_enabled(POD, ["batch/job"])


def test_the_version_of_an_owner_does_not_matter() -> None:
    assert KINDS.of(ObjectView({"apiVersion": "jobset.x-k8s.io/v1alpha9", "kind": "JobSet"})) is not None


def test_a_package_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(
        UnknownFramework, match=r"the entry point flow of pykueue\.job_kinds cannot be loaded: No module"
    ):
        kinds.load([EntryPoint("flow", "no_such_module:ROW", kinds.ENTRY_POINTS)])


def _loaded(point: EntryPoint, value: object) -> EntryPoint:
    """An entry point of a package that is installed."""

    class Installed(EntryPoint):
        def load(self) -> object:
            return value

    return Installed(point.name, point.value, point.group)
