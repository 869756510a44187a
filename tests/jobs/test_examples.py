"""The examples that people copy do what their first line says."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.stage import KINDS, OPTIONS, Stage, flavor
from pykueue.api import codec, kueue, trees
from pykueue.api.trees import Tree
from pykueue.jobs import admission, kinds
from pykueue.jobs.admission import AdmissionFacts
from pykueue.jobs.kinds import Row

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted((EXAMPLES / "jobs").glob("job*.yaml")) + sorted((EXAMPLES / "jobs").glob("pod*.yaml"))


def objects(file: Path) -> list[Tree]:
    return [tree for tree in yaml.safe_load_all(file.read_text()) if tree]


def stored(tree: Tree, table: kinds.JobKinds = KINDS) -> Tree:
    """A job as the server keeps it, after our webhook."""
    row = table.of(tree)
    assert row is not None
    tree = admission.default(row, tree, AdmissionFacts(), table, OPTIONS)
    assert admission.validate_create(row, tree, AdmissionFacts(), table, OPTIONS).errors == ()
    return trees.put(tree, ("metadata", "uid"), f"uid-{tree['metadata']['name']}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_waits_is_admitted_and_runs(file: Path) -> None:
    found = objects(file)
    classes = {
        tree["metadata"]["name"]: codec.from_tree(tree, kueue.WorkloadPriorityClass)
        for tree in found
        if tree["kind"] == "WorkloadPriorityClass"
    }
    jobs = [stored(tree) for tree in found if KINDS.of(tree) is not None]
    stage = Stage(*jobs, workload_priority_classes=classes).settle()
    assert stage.workload.spec.queue_name == "team"
    stage.admit().settle()
    assert stage.told.count("Started") == len(jobs)


@pytest.fixture
def flow_row() -> Row:
    source = EXAMPLES / "custom-kind" / "src" / "pykueue_flow" / "__init__.py"
    spec = importlib.util.spec_from_file_location("pykueue_flow", source)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    row: Row = module.ROW
    return row


def test_a_kind_that_another_package_brings_lives_like_any_other(flow_row: Row) -> None:
    table = kinds.JobKinds((*KINDS, flow_row))
    (tree,) = objects(EXAMPLES / "custom-kind" / "flow.yaml")
    options = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, flow_row.framework))
    stage = Stage(stored(tree, table), row=flow_row, options=options)
    assert stage.job["spec"]["suspend"] is True
    stage.facts = replace(stage.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    before = stage.job
    stage.settle()
    assert [(each.name, each.count) for each in stage.workload.spec.pod_sets] == [("extract", 2), ("load", 1)]
    stage.admit().settle()
    assert stage.job["spec"]["suspend"] is False
    steps = stage.job["spec"]["steps"]
    assert [step["template"]["spec"]["nodeSelector"] for step in steps] == [{"pool": "blue"}] * 2
    stage.evict().settle()
    assert stage.job == before
    stage.admit().settle().status(ready=3).settle()
    assert stage.condition("PodsReady") == "True/Started"
    stage.status(phase="Succeeded").settle()
    assert stage.condition("Finished") == "True/Succeeded"
