"""The examples for users do what their first line states."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from jobs.job_harness import KINDS, OPTIONS, JobHarness, flavor
from kubemachinery import codec, unstructured
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, registry
from pykueue.jobs import admission, kinds
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.options import IntegrationOptions
from started import Up
from waiting import PATIENCE_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted((EXAMPLES / "jobs").glob("job*.yaml")) + sorted((EXAMPLES / "jobs").glob("pod*.yaml"))


def objects(file: Path) -> list[Tree]:
    return [tree for tree in yaml.safe_load_all(file.read_text()) if tree]


def stored(tree: Tree, table: kinds.JobKinds = KINDS, options: IntegrationOptions = OPTIONS) -> Tree:
    """A job as the server keeps it, after our webhook."""
    row = table.of(ObjectView(tree))
    assert row is not None
    tree = admission.default(row, tree, JobAdmissionFacts(), table, options)
    assert admission.validate_create(row, tree, JobAdmissionFacts(), table, options).errors == ()
    return unstructured.put(tree, ("metadata", "uid"), f"uid-{tree['metadata']['name']}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_waits_is_admitted_and_runs(file: Path) -> None:
    found = objects(file)
    classes = {
        tree["metadata"]["name"]: codec.from_tree(tree, kueue.WorkloadPriorityClass)
        for tree in found
        if tree["kind"] == "WorkloadPriorityClass"
    }
    jobs = [stored(tree) for tree in found if KINDS.of(ObjectView(tree)) is not None]
    harness = JobHarness(*jobs, workload_priority_classes=classes).settle()
    assert harness.workload.spec.queue_name == "team"
    harness.admit().settle()
    assert harness.events.count("Started") == len(jobs)


@pytest.fixture
def flow_row() -> JobIntegration:
    source = EXAMPLES / "custom-kind" / "src" / "pykueue_flow" / "__init__.py"
    spec = importlib.util.spec_from_file_location("pykueue_flow", source)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    row: JobIntegration = module.ROW
    return row


def test_a_kind_that_another_package_brings_lives_like_any_other(flow_row: JobIntegration) -> None:
    table = kinds.JobKinds((*KINDS, flow_row))
    (tree,) = objects(EXAMPLES / "custom-kind" / "flow.yaml")
    options = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, flow_row.framework))
    harness = JobHarness(stored(tree, table, options), row=flow_row, options=options)
    before = harness.job
    assert before["spec"]["suspend"] is True
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    harness.settle()
    assert [(each.name, each.count) for each in harness.workload.spec.pod_sets] == [("extract", 2), ("load", 1)]
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False
    steps = harness.job["spec"]["steps"]
    assert [step["template"]["spec"]["nodeSelector"] for step in steps] == [{"pool": "blue"}] * 2
    harness.evict().settle()
    assert harness.job == before
    harness.admit().settle().status(ready=3).settle()
    assert harness.condition("PodsReady") == "True/Started"
    harness.status(phase="Succeeded").settle()
    assert harness.condition("Finished") == "True/Succeeded"


CRDS = Kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", (Version("v1", storage=True),),
    scope=Scope.CLUSTER,
)  # fmt: skip
FLOWS = Kind("example.com", "Flow", "flows", (Version("v1", storage=True),))


def serving_flows(folder: Path) -> Up:
    """A server with the package, installed as pip would: the module, and beside it the metadata with the entry point under which it
    is found."""
    example = EXAMPLES / "custom-kind"
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    shutil.copytree(example / "src", folder / "site")
    about = folder / "site" / f"pykueue_flow-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in found.items())
        for group, found in project["entry-points"].items()
    )
    (about / "entry_points.txt").write_text(points)
    path = os.pathsep.join(filter(None, (str(folder / "site"), os.environ.get("PYTHONPATH", ""))))
    kubeconfig = folder / "kubeconfig"
    return Up(
        kubeconfig, "--data-dir", str(folder / "data"), "--kubeconfig", str(kubeconfig), "--runner", "none",
        "--config", str(example / "configuration.yaml"), environment={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


async def test_integration_of_another_package_suspends_and_starts_flows(tmp_path: Path) -> None:
    example, server = EXAMPLES / "custom-kind", serving_flows(tmp_path)
    client = ApiClient(
        client_config.connect(client_config.from_files([server.kubeconfig]), SystemClock()), random.Random(1)
    )
    try:
        for tree in objects(example / "crd.yaml"):
            await client.create(CRDS, tree)
        for tree in objects(EXAMPLES / "jobs" / "queue.yaml"):
            kind = registry.ALL.named(tree["kind"])
            assert kind is not None
            await client.create(kind, tree)
        held = await client.create(FLOWS, *objects(example / "flow.yaml"))
        assert held["spec"]["suspend"] is True
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.get(FLOWS, "etl", "default"))["spec"]["suspend"]:
                await asyncio.sleep(0.1)
    finally:
        await client.close()
        server.end()


def test_a_server_that_waits_for_a_kind_can_be_ended(tmp_path: Path) -> None:
    """The server ends without a traceback although the kind of flows is not served."""
    code, events = serving_flows(tmp_path).end()
    assert code == 0, events
    assert "Traceback" not in events
    assert "export KUBECONFIG=" in events
