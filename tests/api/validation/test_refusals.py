"""The recorded answers to bad and good writes (see `refusals/README.md`), asked of the pure rules."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykueue.api import defaults, own_schemas, validation

Tree = dict[str, Any]

DIRECTORY = Path(__file__).with_name("refusals")
POD = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": "1"}}}],
    }
}
CPU_5 = [
    {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "5"}]}],
    }
]
WORDS = {"$pod": POD, "$cpu-5": CPU_5}


def spelt_out(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: spelt_out(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [spelt_out(entry) for entry in value]
    return copy.deepcopy(WORDS[value]) if isinstance(value, str) and value in WORDS else value


@cache
def steps_of(name: str) -> list[Tree]:
    return [spelt_out(step) for step in yaml.safe_load((DIRECTORY / f"{name}.yaml").read_text())]


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def received(tree: Tree) -> Tree:
    """A write after the defaults and pruning of the schema, before any webhook."""
    tree = {"apiVersion": "kueue.x-k8s.io/v1beta2", **tree}
    schema = own_schemas.find(tree)
    assert schema is not None
    defaulted: dict[str, Any] = schema.default(schema.prune(tree))
    return defaulted


def admitted(tree: Tree) -> Tree:
    since = "2025-01-01T00:00:00Z"
    holds = [
        {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": since}
        for kind in ("QuotaReserved", "Admitted")
    ]
    granted = [
        {
            "name": pod_set["name"],
            "count": pod_set["count"],
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": str(pod_set["count"])},
        }
        for pod_set in tree["spec"]["podSets"]
    ]
    return {**tree, "status": {"conditions": holds, "admission": {"clusterQueue": "cq", "podSetAssignments": granted}}}


def written(step: Tree, world: dict[str, Tree]) -> tuple[Tree, Tree | None]:
    """What a step would store, and what it replaces."""
    if "change" not in step:
        made = received(step.get("given") or step["create"])
        return (admitted(made) if step.get("admitted") else defaults.webhook_defaults(made)), None
    old = world[step["change"]]
    patch = {"status": step["status"]} if "status" in step else step["merge"]
    return received(merged(old, patch)), old


def world_before(name: str, position: int) -> dict[str, Tree]:
    """The objects of a case before its step at `position`: every accepted step before it was applied."""
    world: dict[str, Tree] = {}
    for step in steps_of(name)[:position]:
        if "given" in step or step.get("accepted"):
            new, _ = written(step, world)
            world[new["metadata"]["name"]] = new
    return world


CASES = [
    pytest.param(path.stem, position, id=f"{path.stem}: {step['id']}")
    for path in sorted(DIRECTORY.glob("*.yaml"))
    for position, step in enumerate(steps_of(path.stem))
    if "id" in step
]


@pytest.mark.parametrize(("name", "position"), CASES)
def test_the_answer_is_the_recorded_one(name: str, position: int) -> None:
    step = steps_of(name)[position]
    new, old = written(step, world_before(name, position))
    code, errors = 422, validation.structural_errors(new, old)
    if not errors:
        code, errors = 403, validation.validate(new, old)
    if step.get("accepted"):
        assert errors == []
    else:
        assert errors
        # Errors without a path are about the object as a whole, and are not among the fields of an answer.
        fields = {error.path for error in errors} - {""}
        assert (code, fields) == (step["code"], set(step["fields"])), errors
