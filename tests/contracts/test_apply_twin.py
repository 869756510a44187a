"""Corpus C: sequences of writes by several managers give the same object on both servers, after every step."""

from __future__ import annotations

from typing import Any

import pytest

from contracts import ownership
from contracts.ownership import SequenceGenerator, Step
from contracts.twin import Twin, seeds

pytestmark = pytest.mark.cluster

SEQUENCES = 300
STEPS = 8
_BASE = f"/apis/{ownership.GROUP}/v1/namespaces/default/{ownership.PLURAL}"


def _play(twin: Twin, name: str, sequence: list[Step]) -> list[str]:
    """Play one sequence on both servers; the differences, up to the step where they part."""
    head = {"apiVersion": ownership.API_VERSION, "kind": ownership.KIND}
    live: list[dict[str, Any] | None] = [None, None]
    for number, step in enumerate(sequence):
        metadata = {"name": name, "namespace": "default", **step.body.get("metadata", {})}
        body = {**head, **step.body, "metadata": metadata}
        path = f"{_BASE}/{name}" + (f"/{step.subresource}" if step.subresource else "")
        query = f"?fieldManager={step.manager}"
        match step.verb:
            case "create":
                answers = twin.both("POST", _BASE + query, body)
            case "apply":
                query += f"&force={'true' if step.force else 'false'}"
                answers = twin.both("PATCH", path + query, body, "application/apply-patch+yaml")
            case "merge":
                answers = twin.both("PATCH", path + query, step.body, "application/merge-patch+json")
            case _:
                changed = [_laid_over(one or {}, step.body) for one in live]
                answers = (
                    twin.real.request("PUT", path + query, changed[0]),
                    twin.ours.request("PUT", path + query, changed[1]),
                )
        found = twin.compare(f"apply sequence {name} step {number}: {step}", *answers)
        if found or answers[0].code != answers[1].code:
            return found
        if answers[0].code < 300:
            live = [answer.body for answer in answers]
    return []


def _laid_over(live: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    out = dict(live)
    for part, fields in change.items():
        out[part] = {**out.get(part, {}), **fields}
    return out


@pytest.mark.parametrize("block", range(6))
def test_objects_and_owners_are_equal_after_every_step(twin: Twin, block: int) -> None:
    """Whatever is applied, updated or patched, forced or not: same object, same managedFields, same conflicts."""
    size = SEQUENCES // 6
    found: list[str] = []
    for seed in seeds(size, block):
        found += _play(twin, f"sequence-{seed}", SequenceGenerator(seed).sequence(STEPS))
        assert len(found) < 100, "\n".join(found)
    assert not found, "\n".join(found)
