"""The table of kinds, and kinds that other packages bring."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, POD
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree, get
from pykueue.api import config
from pykueue.jobs import kinds, ray
from pykueue.jobs.integration import ImplementationPath
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate
from pykueue.jobs.kinds import JobIntegration, UnknownFramework
from pykueue.jobs.pod_parent import PodParent
from pykueue.jobs.ray import RayClusterOwner, RayKind
from pykueue.jobs.training_operator import REPLICAS, TrainingOperatorJob


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


IMPLEMENTED = [row for row in kinds.BUILT_IN if row.implementation is not None]


@pytest.mark.parametrize("row", IMPLEMENTED, ids=lambda row: row.framework)
def test_row_of_the_table_agrees_with_its_module(row: JobIntegration) -> None:
    found = row.implementation_type
    assert found is not None
    assert issubclass(found, PodParent if row.is_pod_parent else GenericJob)
    assert row.is_pod_parent == found.is_pod_parent
    assert row.parent_type is (found if row.is_pod_parent else None)
    module = sys.modules[found.__module__]
    assert getattr(module, "FRAMEWORK", row.framework) == row.framework
    assert getattr(module, "OWN_CONTROLLER", row.own_controller) == row.own_controller
    if issubclass(found, PodParent):
        assert row.verbs == (kinds.PARENT_VERBS if found.is_reconciled else kinds.OWNER_VERBS)
    if issubclass(found, RayKind):
        assert row.own_controller == ray.OPERATOR
        assert bool(row.reads) == issubclass(found, RayClusterOwner)
        tree: Tree = {"metadata": {"name": "r", "namespace": "n"}, "status": {"rayClusterName": "c"}}
        assert row.related(tree) == found.find_related(tree)


def test_the_kinds_of_the_training_operator_are_those_with_replica_specs() -> None:
    rows = [row.kind.kind for row in IMPLEMENTED if row.implementation_type is TrainingOperatorJob]
    assert rows == list(REPLICAS)


def test_the_table_imports_no_module_of_a_kind() -> None:
    script = "import sys, pykueue.jobs.kinds; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    paths = [row.implementation for row in IMPLEMENTED if isinstance(row.implementation, ImplementationPath)]
    modules = {f"pykueue.jobs.{path.module}" for path in paths}
    assert modules
    assert not modules & set(done.stdout.split())
