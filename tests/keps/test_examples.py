"""The example of each proposal, applied to a system with its configuration, does what its first line describes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from keps.engines import Engine
from keps.system import System, Tree, system
from kubemachinery.unstructured import get
from pykueue.api import registry

EXAMPLES = Path(__file__).parents[2] / "examples" / "keps"
NUMBERS = sorted(path.stem for path in EXAMPLES.glob("*.yaml") if path.stem.isdecimal())

# Which Jobs run in the end, and which are held.
OUTCOMES = {
    "3589": {"team/sneaky": "held", "platform/backup": "runs"},
    "5800": {"default/left-out": "runs", "default/counted": "held"},
    "7513": {"default/fits": "runs", "default/too-many-gpus": "held"},
    "7610": {"physics/train": "runs"},
    "993": {"default/train": "held"},
}


def documents(name: str) -> list[Tree]:
    return [tree for tree in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")) if tree]


@pytest.mark.parametrize("number", NUMBERS)
async def test_an_example_has_its_documented_result(engine: Engine, number: str) -> None:
    (configuration,) = documents(f"{number}-configuration.yaml")
    settings = {name: value for name, value in configuration.items() if name not in ("apiVersion", "kind")}
    async with system(engine, **settings) as env:
        for tree in documents(f"{number}.yaml"):
            row = registry.ALL.named(tree["kind"])
            assert row is not None
            await env.client.create(row, tree)
            if tree["kind"] == "AdmissionCheck":
                await env.set_condition("AdmissionCheck", tree["metadata"]["name"], "Active", "True", "Active")
        await env.until(lambda: _came_out(env, OUTCOMES[number]))
        await env.quiet()
        assert await _came_out(env, OUTCOMES[number])
        if number == "993":
            (workload,) = await env.all("Workload")
            await env.answers(workload["metadata"]["name"], "budget", "Ready")
            await env.until(lambda: _came_out(env, {"default/train": "runs"}))


async def _came_out(env: System, outcomes: dict[str, str]) -> bool:
    found = {}
    for name in outcomes:
        namespace, _, job = name.partition("/")
        suspended = get(await env.find_in(namespace, "Job", job), "spec", "suspend")
        found[name] = "held" if suspended else "runs"
    return found == outcomes
